package vectors;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * What an application does: sends and consumes in every way. Uses only classes that the 4.9.8 and the 5.4.0 client both have
 * under the same names, so that one class file serves both.
 */
public final class Traffic {
    private final String namesrv;
    private final String prefix;
    private final Steps steps = new Steps();
    private final List<Runnable> toStop = new ArrayList<>();
    private SendResult tagged;

    private Traffic(String namesrv, String prefix) {
        this.namesrv = namesrv;
        this.prefix = prefix;
    }

    /** Arguments: name server address, prefix of topics and groups. */
    public static void main(String[] args) {
        Traffic t = new Traffic(args[0], args[1]);
        t.run();
        System.out.println("traffic done");
        System.exit(0);
    }

    private void run() {
        steps.step("produce", this::produce);
        steps.step("consume", this::consume);
        steps.step("consume in order", this::consumeInOrder);
        steps.step("two members of one group", this::twoMembers);
        steps.step("pull", this::pull);
        steps.step("transactions", this::transactions);
        steps.step("request and reply", this::requestReply);
        toStop.forEach(Runnable::run);
        steps.report();
    }

    private DefaultMQProducer producer(String group) throws Exception {
        DefaultMQProducer p = new DefaultMQProducer(prefix + group);
        p.setNamesrvAddr(namesrv);
        p.setClientIP("127.0.0.1");
        p.setInstanceName(prefix + group);
        p.setSendMsgTimeout(10_000);
        p.start();
        toStop.add(p::shutdown);
        return p;
    }

    static byte[] bytes(String s) {
        return s.getBytes(StandardCharsets.UTF_8);
    }

    private void produce() throws Exception {
        DefaultMQProducer p = producer("Producer");
        steps.step("send", () -> p.send(new Message(prefix + "Plain", bytes("plain body"))));
        steps.step("send with tag, keys, properties", () -> {
            Message m = new Message(prefix + "Plain", "TagA", "key-1 key-2", 7, bytes("tagged \u00fc\u4e2d\ud83d\ude00"), true);
            m.putUserProperty("gr\u00f6\u00dfe", "\u4e2d\u6587 \ud83d\ude00");
            m.putUserProperty("quote", "a\"b\\c<d>&e");
            tagged = p.send(m);
        });
        steps.step("send without waiting for the store", () -> p.send(new Message(prefix + "Plain", "TagB", "", 0, bytes("no wait"), false)));
        steps.step("send one-way", () -> p.sendOneway(new Message(prefix + "Plain", "TagA", bytes("one way"))));
        steps.step("send asynchronously", () -> {
            CountDownLatch done = new CountDownLatch(1);
            p.send(new Message(prefix + "Plain", bytes("async")), new SendCallback() {
                @Override
                public void onSuccess(SendResult r) {
                    done.countDown();
                }

                @Override
                public void onException(Throwable e) {
                    e.printStackTrace();
                }
            });
            await(done, 10);
        });
        steps.step("send a compressed body", () -> p.send(new Message(prefix + "Plain", bytes("0123456789abcdef".repeat(320)))));
        steps.step("send a batch", () -> p.send(Arrays.asList(new Message(prefix + "Batch", "TagA", "b-1", bytes("first")),
            new Message(prefix + "Batch", "TagB", "b-2", bytes("second")), new Message(prefix + "Batch", bytes("third")))));
        steps.step("send in other ways", () -> produceMore(p));
        steps.step("offsets by producer", () -> {
            MessageQueue q = tagged.getMessageQueue();
            p.maxOffset(q);
            p.minOffset(q);
            p.searchOffset(q, System.currentTimeMillis() - 60_000);
            p.earliestMsgStoreTime(q);
        });
        steps.step("view by offset id", () -> p.viewMessage(prefix + "Plain", tagged.getOffsetMsgId()));
        steps.step("query by key", () -> p.queryMessage(prefix + "Plain", "key-1", 8, 0, System.currentTimeMillis() + 60_000));
    }

    private void produceMore(DefaultMQProducer p) {
        steps.step("send by key", () -> {
            for (int i = 0; i < 8; i++) {
                Message m = new Message(prefix + "Ordered", bytes("ordered " + i));
                m.putUserProperty("n", "" + i);
                p.send(m, (queues, msg, key) -> queues.get((Integer) key % queues.size()), i % 2);
            }
        });
        steps.step("send delayed", () -> {
            Message m = new Message(prefix + "Delayed", bytes("later"));
            m.setDelayTimeLevel(1);
            p.send(m);
        });
        steps.step("send to an illegal topic", () -> {
            try {
                p.send(new Message("SCHEDULE_TOPIC_XXXX", bytes("x")));
            } catch (Exception expected) {
                System.out.println("refused: " + expected.getMessage().split("\n")[0]);
            }
        });
    }

    private DefaultMQPushConsumer consumer(String group, String instance) {
        DefaultMQPushConsumer c = new DefaultMQPushConsumer(prefix + group);
        c.setNamesrvAddr(namesrv);
        c.setClientIP("127.0.0.1");
        c.setInstanceName(prefix + instance);
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        c.setPersistConsumerOffsetInterval(1000);
        return c;
    }

    private static void await(CountDownLatch latch, int seconds) throws Exception {
        if (!latch.await(seconds, TimeUnit.SECONDS)) {
            throw new Exception("still missing " + latch.getCount());
        }
    }

    /** Two matching messages, one sent back once and so delivered a third time; then one more that ends a long poll. */
    private void consume() throws Exception {
        CountDownLatch got = new CountDownLatch(4);
        AtomicBoolean first = new AtomicBoolean(true);
        DefaultMQPushConsumer c = consumer("Consumer", "Consumer");
        c.subscribe(prefix + "Plain", "TagA || TagC");
        c.registerMessageListener((MessageListenerConcurrently) (msgs, ctx) -> {
            got.countDown();
            if (first.compareAndSet(true, false)) {
                ctx.setDelayLevelWhenNextConsume(1);
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        toStop.add(c::shutdown);
        DefaultMQProducer p = producer("LateProducer");
        p.send(new Message(prefix + "Plain", "TagC", bytes("ends a long poll")));
        await(got, 60);
        c.getDefaultMQPushConsumerImpl().getOffsetStore().persistAll(c.fetchSubscribeMessageQueues(prefix + "Plain"));
    }

    private void consumeInOrder() throws Exception {
        CountDownLatch got = new CountDownLatch(8);
        DefaultMQPushConsumer c = consumer("OrderedConsumer", "OrderedConsumer");
        c.subscribe(prefix + "Ordered", "*");
        c.registerMessageListener((MessageListenerOrderly) (msgs, ctx) -> {
            msgs.forEach(m -> got.countDown());
            return ConsumeOrderlyStatus.SUCCESS;
        });
        c.start();
        await(got, 60);
        c.shutdown();
    }

    /** The second member makes the broker call the first; the answer of the group's member list has both. */
    private void twoMembers() throws Exception {
        DefaultMQPushConsumer a = consumer("Pair", "PairA");
        DefaultMQPushConsumer b = consumer("Pair", "PairB");
        Set<String> who = java.util.Collections.synchronizedSet(new java.util.HashSet<>());
        for (DefaultMQPushConsumer c : List.of(a, b)) {
            c.subscribe(prefix + "Plain", "*");
            c.registerMessageListener((MessageListenerConcurrently) (msgs, ctx) -> {
                who.add(c.getInstanceName());
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            c.start();
        }
        DefaultMQProducer p = producer("PairProducer");
        AtomicInteger n = new AtomicInteger();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
        while (who.size() < 2 && System.nanoTime() < deadline) {
            p.send(new Message(prefix + "Plain", bytes("pair " + n.incrementAndGet())));
            TimeUnit.MILLISECONDS.sleep(100);
        }
        b.shutdown();
        a.shutdown();
    }

    private void pull() throws Exception {
        DefaultLitePullConsumer c = new DefaultLitePullConsumer(prefix + "Puller");
        c.setNamesrvAddr(namesrv);
        c.setClientIP("127.0.0.1");
        c.setInstanceName(prefix + "Puller");
        c.setAutoCommit(false);
        c.start();
        List<MessageQueue> queues = new ArrayList<>(c.fetchMessageQueues(prefix + "Batch"));
        c.assign(queues);
        for (MessageQueue q : queues) {
            c.seekToBegin(q);
        }
        int n = 0;
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
        while (n < 3 && System.nanoTime() < deadline) {
            List<MessageExt> got = c.poll(1000);
            n += got.size();
        }
        c.commitSync();
        c.seek(queues.get(0), 0);
        c.shutdown();
        if (n < 3) {
            throw new Exception("pulled " + n);
        }
    }

    /** One committed, one rolled back, one left to the broker's question. */
    private void transactions() throws Exception {
        CountDownLatch asked = new CountDownLatch(1);
        TransactionMQProducer p = new TransactionMQProducer(prefix + "TransactionProducer");
        p.setNamesrvAddr(namesrv);
        p.setClientIP("127.0.0.1");
        p.setInstanceName(prefix + "TransactionProducer");
        p.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message msg, Object state) {
                return (LocalTransactionState) state;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt msg) {
                asked.countDown();
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        p.start();
        toStop.add(p::shutdown);
        p.sendMessageInTransaction(new Message(prefix + "Transaction", "TagT", "t-1", bytes("commit")), LocalTransactionState.COMMIT_MESSAGE);
        p.sendMessageInTransaction(new Message(prefix + "Transaction", "TagT", "t-2", bytes("roll back")), LocalTransactionState.ROLLBACK_MESSAGE);
        Message m = new Message(prefix + "Transaction", "TagT", "t-3", bytes("ask me"));
        p.sendMessageInTransaction(m, LocalTransactionState.UNKNOW);
        await(asked, 60);
    }

    private void requestReply() throws Exception {
        DefaultMQProducer replier = producer("Replier");
        DefaultMQPushConsumer c = consumer("ReplyConsumer", "ReplyConsumer");
        c.subscribe(prefix + "Request", "*");
        c.registerMessageListener((MessageListenerConcurrently) (msgs, ctx) -> {
            for (MessageExt m : msgs) {
                try {
                    replier.send(org.apache.rocketmq.client.utils.MessageUtil.createReplyMessage(m, bytes("answer")), 5000);
                } catch (Exception e) {
                    e.printStackTrace();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        toStop.add(c::shutdown);
        DefaultMQProducer p = producer("Requester");
        p.request(new Message(prefix + "Request", bytes("question")), 30_000);
    }
}
