package interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.parser.Feature;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.OutputStreamWriter;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * produce --namesrv A --topic T [--group G] [--count N] [--first N] [--size BYTES] [--file F.json] [--ordering-field NAME]
 * [--batch B] [--tags A,B] [--timeout MS] [--oneway true].
 *
 * <p>Sends one message after the other, each with its number as key, and prints a line for each acknowledged one: queue id,
 * queue offset, message id, key. Bodies are the records of F, a JSON array, or made up. With an ordering field, its value
 * chooses the queue and is kept as the message's sharding key.
 */
final class Produce {
    private final Options options;
    private final DefaultMQProducer producer;
    private final String topic;
    private final String[] tags;
    private final int batch;
    private final Writer out = new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8), 1 << 16);
    private List<MessageQueue> queues;

    Produce(Options o) {
        options = o;
        topic = o.need("topic");
        tags = o.get("tags", "").isEmpty() ? null : o.get("tags", "").split(",");
        batch = o.number("batch", 1);
        producer = new DefaultMQProducer(o.get("group", "interop-producer"));
        producer.setNamesrvAddr(o.need("namesrv"));
        producer.setSendMsgTimeout(o.number("timeout", 5000));
    }

    int run() throws Exception {
        producer.start();
        try {
            if (options.get("oneway", "").equals("true")) {
                return oneWay();
            }
            String field = options.get("ordering-field", "");
            List<List<Message>> pending = new ArrayList<>();
            int first = options.number("first", 0);
            List<String[]> records = records(field);
            for (int i = 0; i < records.size(); i++) {
                Message m = message(first + i, records.get(i)[0]);
                String key = records.get(i)[1];
                if (key != null) {
                    m.putUserProperty("__SHARDINGKEY", key);
                }
                add(pending, m, key);
            }
            for (int q = 0; q < pending.size(); q++) {
                flush(pending, q);
            }
        } finally {
            out.flush();
            producer.shutdown();
        }
        return 0;
    }

    private int oneWay() throws Exception {
        int first = options.number("first", 0);
        for (String[] r : records("")) {
            producer.sendOneway(message(first++, r[0]));
        }
        // Nothing tells when a one-way send has left; a two-way one behind it on the same connection does.
        SendResult r = producer.send(message(first, "end"));
        print(r, 0, r.getMsgId(), "" + first);
        return 0;
    }

    /** Body and ordering key of everything that is to be sent. */
    private List<String[]> records(String field) throws IOException {
        List<String[]> list = new ArrayList<>();
        String file = options.get("file", "");
        int count = options.number("count", file.isEmpty() ? 1 : Integer.MAX_VALUE);
        if (file.isEmpty()) {
            int size = options.number("size", 0);
            for (int i = 0; i < count; i++) {
                StringBuilder b = new StringBuilder("message " + (options.number("first", 0) + i) + " \u00fc\u4e2d");
                while (b.length() < size) {
                    b.append('x');
                }
                list.add(new String[] {b.toString(), null});
            }
            return list;
        }
        String text = new String(Files.readAllBytes(Paths.get(file)), StandardCharsets.UTF_8);
        JSONArray array = (JSONArray) JSON.parse(text, Feature.OrderedField);
        for (int i = 0; i < array.size() && i < count; i++) {
            JSONObject o = array.getJSONObject(i);
            list.add(new String[] {o.toJSONString(), field.isEmpty() ? null : o.getString(field)});
        }
        return list;
    }

    private Message message(int number, String body) {
        String tag = tags == null ? "" : tags[number % tags.length];
        return new Message(topic, tag, "" + number, body.getBytes(StandardCharsets.UTF_8));
    }

    /** Sends at once, or collects a batch for the key's queue. */
    private void add(List<List<Message>> pending, Message m, String key) throws Exception {
        if (batch == 1) {
            SendResult r = key == null ? producer.send(m)
                : producer.send(m, (all, msg, k) -> all.get(Math.floorMod(k.hashCode(), all.size())), key);
            print(r, 0, r.getMsgId(), m.getKeys());
            return;
        }
        if (queues == null) {
            // A first message makes the topic exist, so that it has queues to choose from.
            queues = queuesOfTopic();
            queues.forEach(q -> pending.add(new ArrayList<>()));
        }
        int q = key == null ? Integer.parseInt(m.getKeys()) / batch % queues.size() : Math.floorMod(key.hashCode(), queues.size());
        pending.get(q).add(m);
        if (pending.get(q).size() == batch) {
            flush(pending, q);
        }
    }

    private List<MessageQueue> queuesOfTopic() throws Exception {
        try {
            return producer.fetchPublishMessageQueues(topic);
        } catch (Exception none) {
            SendResult r = producer.send(new Message(topic, "first", "first", "makes the topic".getBytes(StandardCharsets.UTF_8)));
            print(r, 0, r.getMsgId(), "first");
            return producer.fetchPublishMessageQueues(topic);
        }
    }

    private void flush(List<List<Message>> pending, int q) throws Exception {
        List<Message> list = pending.get(q);
        if (list.isEmpty()) {
            return;
        }
        SendResult r = producer.send(list, queues.get(q));
        String[] ids = r.getMsgId().split(",");
        for (int i = 0; i < list.size(); i++) {
            print(r, i, ids[i], list.get(i).getKeys());
        }
        list.clear();
    }

    private void print(SendResult r, int i, String id, String key) throws IOException {
        if (r.getSendStatus() != SendStatus.SEND_OK) {
            throw new IOException("message " + key + ": " + r.getSendStatus());
        }
        out.write(r.getMessageQueue().getQueueId() + " " + (r.getQueueOffset() + i) + " " + id + " " + key + "\n");
    }
}
