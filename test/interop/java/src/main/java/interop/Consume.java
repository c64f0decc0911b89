package interop;

import java.io.PrintStream;
import java.security.MessageDigest;
import java.util.HashSet;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * consume --namesrv A --topic T [--group G] [--expect N] [--timeout S] [--tag EXPR] [--instance NAME] [--stay true].
 *
 * <p>A push consumer that starts at the first offset. It prints a line for each message, fields apart by tabs: queue id, queue
 * offset, message id, keys, tags, sharding key, first 16 digits of the body's SHA-256, tries before. Lines that begin with # tell what
 * happens: started, and the queues that are assigned, whenever they change. It ends when N different messages have come, or,
 * with --stay, when its input is closed.
 */
final class Consume {
    private final Options options;
    private final DefaultMQPushConsumer consumer;
    private final Set<String> seen = new HashSet<>();
    private final int expect;
    private final CountDownLatch done = new CountDownLatch(1);
    private final PrintStream out = System.out;

    Consume(Options o) {
        options = o;
        expect = o.number("expect", Integer.MAX_VALUE);
        consumer = new DefaultMQPushConsumer(o.get("group", "interop-consumer"));
        consumer.setNamesrvAddr(o.need("namesrv"));
        consumer.setInstanceName(o.get("instance", "interop-" + System.nanoTime()));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        // One thread keeps each queue's order in what is printed.
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        consumer.setPersistConsumerOffsetInterval(1000);
        consumer.setPollNameServerInterval(1000);
    }

    int run() throws Exception {
        consumer.subscribe(options.need("topic"), options.get("tag", "*"));
        consumer.registerMessageListener((MessageListenerConcurrently) (msgs, ctx) -> {
            msgs.forEach(this::print);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        out.println("# started");
        if (options.get("stay", "").equals("true")) {
            onEndOfInput(done::countDown);
        }
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(options.number("timeout", 60));
        String assigned = "";
        while (!done.await(100, TimeUnit.MILLISECONDS)) {
            String now = assigned();
            if (!now.equals(assigned)) {
                assigned = now;
                synchronized (this) {
                    out.println("# assigned " + now);
                }
            }
            if (System.nanoTime() > deadline) {
                System.err.println("time is up: " + seen.size() + " of " + expect + " messages");
                return 3;
            }
        }
        // Leaves the group in good order: offsets are stored and the other members told.
        consumer.shutdown();
        return 0;
    }

    private static void onEndOfInput(Runnable r) {
        Thread t = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    // only the end matters
                }
            } catch (java.io.IOException ended) {
                // so does a broken pipe
            }
            r.run();
        });
        t.setDaemon(true);
        t.start();
    }

    private String assigned() {
        Set<Integer> ids = new TreeSet<>();
        for (MessageQueue q : consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet()) {
            if (q.getTopic().equals(options.need("topic"))) {
                ids.add(q.getQueueId());
            }
        }
        return ids.toString().replaceAll("[\\[\\] ]", "");
    }

    private synchronized void print(MessageExt m) {
        String key = m.getProperty("__SHARDINGKEY");
        out.println(String.join("\t", "" + m.getQueueId(), "" + m.getQueueOffset(), m.getMsgId(), or(m.getKeys()), or(m.getTags()), or(key),
            digest(m.getBody()), "" + m.getReconsumeTimes()));
        if (seen.add(m.getMsgId()) && seen.size() == expect) {
            done.countDown();
        }
    }

    private static String or(String s) {
        return s == null ? "" : s;
    }

    private static String digest(byte[] body) {
        try {
            StringBuilder b = new StringBuilder();
            byte[] d = MessageDigest.getInstance("SHA-256").digest(body);
            for (int i = 0; i < 8; i++) {
                b.append(String.format("%02x", d[i]));
            }
            return b.toString();
        } catch (java.security.NoSuchAlgorithmException e) {
            throw new IllegalStateException(e);
        }
    }
}
