package vectors;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** Fills a store: some topics, tags, keys, batches, and enough bytes for several small segments. */
public final class StoreTraffic {
    private StoreTraffic() { }

    /** Arguments: name server address, number of messages per topic, bytes of a body. */
    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[1]);
        int size = Integer.parseInt(args[2]);
        DefaultMQProducer p = new DefaultMQProducer("StoreProducer");
        p.setNamesrvAddr(args[0]);
        p.setClientIP(args.length > 3 ? args[3] : "127.0.0.1");
        p.setInstanceName("StoreProducer");
        p.setSendMsgTimeout(10_000);
        p.start();
        for (String topic : List.of("StoreA", "StoreB")) {
            for (int i = 0; i < count; i++) {
                byte[] body = Traffic.bytes(String.format("%s %d ", topic, i) + "x".repeat(size));
                check(p.send(new Message(topic, "Tag" + i % 3, "key-" + i, i, body, true)));
            }
            List<Message> batch = new ArrayList<>();
            for (int i = 0; i < 5; i++) {
                batch.add(new Message(topic, "TagBatch", "batch-" + i, Traffic.bytes("batch " + i)));
            }
            check(p.send(batch));
        }
        MessageQueue one = p.fetchPublishMessageQueues("StoreA").get(0);
        check(p.send(new Message("StoreA", Traffic.bytes("no tag, no key")), one));
        Message unicode = new Message("StoreA", "\u6807\u7b7e\ud83d\ude00", "schl\u00fcssel", Traffic.bytes("\u00fc\u4e2d\ud83d\ude00"));
        unicode.putUserProperty("gr\u00f6\u00dfe", "\u4e2d\u6587");
        check(p.send(unicode, one));
        check(p.send(new Message("StoreA", "TagZ", Traffic.bytes("0123456789abcdef".repeat(320)))));
        p.shutdown();
        System.out.println("store traffic done");
        System.exit(0);
    }

    private static void check(SendResult r) {
        if (r.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException(r.toString());
        }
    }
}
