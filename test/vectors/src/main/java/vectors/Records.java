package vectors;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;

/** Cuts a broker's commit log into its records. */
final class Records {
    private static final int BLANK = 0xCBD43194;

    private Records() { }

    /** Every record of every segment, in order; end-of-file markers are left out. */
    static List<byte[]> of(Path commitLog) throws IOException {
        List<byte[]> records = new ArrayList<>();
        List<Path> files;
        try (Stream<Path> s = Files.list(commitLog)) {
            files = s.sorted(Comparator.comparing(Path::getFileName)).toList();
        }
        for (Path f : files) {
            byte[] all = Files.readAllBytes(f);
            ByteBuffer b = ByteBuffer.wrap(all);
            while (b.remaining() > 8) {
                int size = b.getInt(b.position());
                if (size <= 0 || b.getInt(b.position() + 4) == BLANK) {
                    break;
                }
                records.add(Arrays.copyOfRange(all, b.position(), b.position() + size));
                b.position(b.position() + size);
            }
        }
        return records;
    }

    /** Decoded by Apache's own code, so that the index holds its view of the record. */
    static MessageExt decode(byte[] record) {
        return MessageDecoder.decode(ByteBuffer.wrap(record), true, false, false);
    }

    /** One line of index.json: what Apache's decoder says about a record. */
    static String describe(String file, byte[] record, String extra) {
        MessageExt m = decode(record);
        Map<String, Object> v = new LinkedHashMap<>();
        v.put("file", file);
        v.put("topic", m.getTopic());
        v.put("queueId", m.getQueueId());
        v.put("queueOffset", m.getQueueOffset());
        v.put("physicalOffset", m.getCommitLogOffset());
        v.put("size", m.getStoreSize());
        v.put("sysFlag", m.getSysFlag());
        v.put("flag", m.getFlag());
        v.put("bornTimestamp", m.getBornTimestamp());
        v.put("bornHost", address(m.getBornHost()));
        v.put("storeTimestamp", m.getStoreTimestamp());
        v.put("storeHost", address(m.getStoreHost()));
        v.put("reconsumeTimes", m.getReconsumeTimes());
        v.put("preparedTransactionOffset", m.getPreparedTransactionOffset());
        v.put("bodyCrc", m.getBodyCRC());
        v.put("bodyLength", m.getBody() == null ? 0 : m.getBody().length);
        v.put("offsetMsgId", m.getMsgId());
        v.put("uniqKey", m.getProperty("UNIQ_KEY"));
        v.put("tags", m.getTags());
        v.put("tagsCode", m.getTags() == null || m.getTags().isEmpty() ? 0L : (long) m.getTags().hashCode());
        v.put("properties", m.getProperties());
        v.put("run", extra);
        return json(v);
    }

    private static String address(java.net.SocketAddress a) {
        java.net.InetSocketAddress i = (java.net.InetSocketAddress) a;
        String host = i.getAddress().getHostAddress();
        return (host.contains(":") ? "[" + host + "]" : host) + ":" + i.getPort();
    }

    static String json(Object v) {
        return com.alibaba.fastjson2.JSON.toJSONString(v);
    }

    static void writeLines(Path file, List<String> lines) throws IOException {
        Files.write(file, ("[\n" + String.join(",\n", lines) + "\n]\n").getBytes(StandardCharsets.UTF_8));
    }
}
