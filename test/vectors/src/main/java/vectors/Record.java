package vectors;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.LanguageCode;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;

/** Starts Apache's servers as child JVMs, drives them, and writes the golden data. See README.md. */
public final class Record {
    private static final String LONG_GROUP = "g".repeat(200);

    private final Path repo;
    private final Path work;
    private final String classPath;
    private final String oldClassPath;

    private Record(Path repo, Path work, String classPath, String oldClassPath) {
        this.repo = repo;
        this.work = work;
        this.classPath = classPath;
        this.oldClassPath = oldClassPath;
    }

    /** Arguments: repository root, scratch directory, class path, class path with the 4.9.8 client; then what to record (all). */
    public static void main(String[] args) throws Exception {
        Record r = new Record(Path.of(args[0]), Path.of(args[1]), args[2], args[3]);
        String what = args.length > 4 ? args[4] : "all";
        if (what.equals("all") || what.equals("frames")) {
            Frames frames = new Frames();
            r.frames(frames, "JSON");
            r.frames(frames, "ROCKETMQ");
            frames.write(fresh(r.repo.resolve("protocol/testdata/frames")));
        }
        if (what.equals("all") || what.equals("records")) {
            r.records();
        }
        if (what.equals("all") || what.equals("stores")) {
            r.store("clean", false);
            r.store("killed", true);
        }
        System.exit(0);
    }

    private Path dir(String name) throws IOException {
        return Files.createDirectories(fresh(work.resolve(name)));
    }

    /** A directory without what an earlier run left there. */
    private static Path fresh(Path dir) throws IOException {
        if (Files.exists(dir)) {
            try (var s = Files.walk(dir)) {
                for (Path p : s.sorted((a, b) -> b.compareTo(a)).toList()) {
                    Files.delete(p);
                }
            }
        }
        return Files.createDirectories(dir);
    }

    private static Map<String, String> brokerSettings(int port, String advertise, int namesrvPort) {
        Map<String, String> s = new TreeMap<>();
        s.put("brokerClusterName", "DefaultCluster");
        s.put("brokerName", "broker-a");
        s.put("brokerId", "0");
        s.put("bindAddress", "127.0.0.1");
        s.put("brokerIP1", advertise);
        s.put("brokerIP2", advertise);
        s.put("listenPort", "" + port);
        s.put("haListenPort", "" + (port + 1));
        s.put("namesrvAddr", "127.0.0.1:" + namesrvPort);
        s.put("storePathRootDir", "store");
        s.put("storePathCommitLog", "store/commitlog");
        s.put("autoCreateTopicEnable", "true");
        s.put("enablePropertyFilter", "true");
        s.put("mappedFileSizeCommitLog", "4194304");
        s.put("mappedFileSizeConsumeQueue", "20000");
        s.put("maxHashSlotNum", "1000");
        s.put("maxIndexNum", "4000");
        s.put("mappedFileSizeTimerLog", "1048576");
        s.put("transactionCheckInterval", "2000");
        s.put("transactionTimeOut", "2000");
        return s;
    }

    /** The wire between everyone: client to name server, client to broker, broker to name server. */
    private void frames(Frames frames, String coding) throws Exception {
        Path dir = dir("frames-" + coding);
        int ns = Child.freePort();
        int port = Child.freePort();
        Child namesrv = Child.nameServer(dir, classPath, coding, ns);
        InetSocketAddress nsAddress = new InetSocketAddress("127.0.0.1", ns);
        try (Proxy brokerToNs = new Proxy("127.0.0.1", 0, nsAddress, frames, "broker-5.4.0");
            Proxy clientToNs = new Proxy("127.0.0.1", 0, nsAddress, frames, "client-5.4.0");
            // The broker binds 127.0.0.1 and advertises 127.0.0.2: the proxy listens there, so every client meets it.
            Proxy clientToBroker = new Proxy("127.0.0.2", port, new InetSocketAddress("127.0.0.1", port), frames, "client-5.4.0")) {
            Map<String, String> s = brokerSettings(port, "127.0.0.2", brokerToNs.port());
            s.put("recallMessageEnable", "true");
            Child broker = Child.broker(dir, classPath, coding, s);
            registered(ns);
            String nsAddr = "127.0.0.1:" + clientToNs.port();
            String brokerAddr = "127.0.0.2:" + port;
            run(dir, classPath, coding, "client-5.4.0", Traffic.class, nsAddr, "New");
            run(dir, classPath, coding, "admin-5.4.0", Admin.class, nsAddr, brokerAddr);
            run(dir, classPath, coding, "client-5.4.0-v1", Traffic.class, nsAddr, "Long", "-Dorg.apache.rocketmq.client.sendSmartMsg=false");
            clientToNs.caller("raw");
            clientToBroker.caller("raw");
            raw(clientToNs.port(), port, dir, coding);
            clientToNs.caller("client-4.9.8");
            clientToBroker.caller("client-4.9.8");
            run(dir, oldClassPath, coding, "client-4.9.8", Traffic.class, nsAddr, "Old");
            broker.stop();
        }
        namesrv.stop();
    }

    /** A broker calls itself started before the name server knows it; a client that comes too early finds no route. */
    private static void registered(int ns) throws Exception {
        for (int i = 0; i < 600; i++) {
            if (Raw.call("127.0.0.1", ns, RequestCode.GET_ROUTEINFO_BY_TOPIC, 479, LanguageCode.JAVA, Map.of("topic", "TBW102"), null).getCode() == 0) {
                return;
            }
            Thread.sleep(50);
        }
        throw new IOException("the broker did not register");
    }

    private void run(Path dir, String cp, String coding, String log, Class<?> main, String... args) throws Exception {
        Child c = Child.start(dir, log, cp, coding, main.getName(), args);
        int code = c.end(240);
        System.out.println("---- " + coding + " " + log + " exit " + code);
        c.output().lines().filter(l -> l.contains(" ok ") || l.contains("steps") || l.contains("Exception")).forEach(System.out::println);
    }

    /** Questions with old versions and other languages; the serialisation is the recorder's own, so only in the JSON run. */
    private static void raw(int nsPort, int brokerPort, Path dir, String coding) throws Exception {
        if (!coding.equals("JSON")) {
            return;
        }
        for (int version : new int[] {317, 401, 479}) {
            Raw.call("127.0.0.1", nsPort, RequestCode.GET_ROUTEINFO_BY_TOPIC, version, LanguageCode.GO, Map.of("topic", "NewPlain"), null);
        }
        Raw.call("127.0.0.1", nsPort, RequestCode.GET_BROKER_CLUSTER_INFO, 317, LanguageCode.GO, null, null);
        Raw.call("127.0.0.1", nsPort, 9999, 479, LanguageCode.GO, null, null);
        Raw.call("127.0.0.2", brokerPort, 9999, 479, LanguageCode.GO, null, null);
        Raw.call("127.0.0.2", brokerPort, RequestCode.GET_ALL_TOPIC_CONFIG, 479, LanguageCode.JAVA, null, null);
        Raw.call("127.0.0.2", brokerPort, RequestCode.GET_ALL_CONSUMER_OFFSET, 479, LanguageCode.JAVA, null, null);
        Raw.call("127.0.0.2", brokerPort, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, 479, LanguageCode.JAVA, null, null);
        Raw.call("127.0.0.2", brokerPort, RequestCode.GET_ALL_DELAY_OFFSET, 479, LanguageCode.JAVA, null, null);
        Raw.call("127.0.0.2", brokerPort, RequestCode.GET_MAX_OFFSET, 479, LanguageCode.GO, Map.of("topic", "NoSuchTopic", "queueId", "0"), null);
        Raw.call("127.0.0.2", brokerPort, RequestCode.QUERY_CONSUMER_OFFSET, 479, LanguageCode.GO,
            Map.of("topic", "NewPlain", "queueId", "0", "consumerGroup", "NoSuchGroup"), null);
        Raw.call("127.0.0.2", brokerPort, RequestCode.QUERY_CONSUMER_OFFSET, 479, LanguageCode.GO,
            Map.of("topic", "NewPlain", "queueId", "0", "consumerGroup", "NoSuchGroup", "setZeroIfNotFound", "false"), null);
        Raw.call("127.0.0.2", brokerPort, RequestCode.GET_CONSUMER_LIST_BY_GROUP, 479, LanguageCode.GO, Map.of("consumerGroup", "NoSuchGroup"), null);
        Raw.call("127.0.0.2", brokerPort, RequestCode.PULL_MESSAGE, 479, LanguageCode.GO, pull("NewPlain", 99), null);
        Raw.call("127.0.0.2", brokerPort, RequestCode.PULL_MESSAGE, 479, LanguageCode.GO, pull("NoSuchTopic", 0), null);
        RemotingCommand old = Raw.call("127.0.0.2", brokerPort, RequestCode.SEND_MESSAGE, 317, LanguageCode.GO, send("RawTopic"), Traffic.bytes("raw"));
        if (old.getCode() != 0) {
            throw new IOException("raw send: " + old);
        }
    }

    private static Map<String, String> pull(String topic, long offset) {
        Map<String, String> f = new LinkedHashMap<>();
        f.put("consumerGroup", "RawGroup");
        f.put("topic", topic);
        f.put("queueId", "0");
        f.put("queueOffset", "" + offset);
        f.put("maxMsgNums", "8");
        f.put("sysFlag", "4");
        f.put("commitOffset", "0");
        f.put("suspendTimeoutMillis", "0");
        f.put("subscription", "*");
        f.put("subVersion", "0");
        f.put("expressionType", "TAG");
        return f;
    }

    private static Map<String, String> send(String topic) {
        Map<String, String> f = new LinkedHashMap<>();
        f.put("producerGroup", "RawProducer");
        f.put("topic", topic);
        f.put("defaultTopic", "TBW102");
        f.put("defaultTopicQueueNums", "4");
        f.put("queueId", "0");
        f.put("sysFlag", "0");
        f.put("bornTimestamp", "" + System.currentTimeMillis());
        f.put("flag", "0");
        f.put("properties", "TAGS\u0001RawTag\u0002");
        f.put("reconsumeTimes", "0");
        f.put("unitMode", "false");
        f.put("maxReconsumeTimes", "0");
        f.put("batch", "false");
        return f;
    }

    private void records() throws Exception {
        Path out = fresh(repo.resolve("protocol/message/testdata/records"));
        List<String> index = new ArrayList<>();
        recordRun(out, index, "plain", Map.of());
        recordRun(out, index, "crc", Map.of("enabledAppendPropCRC", "true"));
        recordRun(out, index, "ipv6", Map.of("bindAddress", "::1", "brokerIP1", "::1", "brokerIP2", "::1"));
        Records.writeLines(out.resolve("index.json"), index);
        System.out.println(index.size() + " records");
    }

    /** A broker with the given settings stores a little traffic; one record of each shape is kept. */
    private void recordRun(Path out, List<String> index, String run, Map<String, String> settings) throws Exception {
        Path dir = dir("records-" + run);
        int ns = Child.freePort();
        int port = Child.freePort();
        Child namesrv = Child.nameServer(dir, classPath, "JSON", ns);
        Map<String, String> s = brokerSettings(port, "127.0.0.1", ns);
        s.putAll(settings);
        knowLongGroup(dir.resolve("store/config"));
        Child broker = Child.broker(dir, classPath, "JSON", s);
        registered(ns);
        String host = s.get("brokerIP1");
        run(dir, classPath, "JSON", "store", StoreTraffic.class, "127.0.0.1:" + ns, "3", "40", host);
        run(dir, classPath, "JSON", "traffic", Traffic.class, "127.0.0.1:" + ns, "Rec");
        // A retry topic may be longer than 127 bytes: the only records of version 2. No client sends to one.
        String longTopic = "%RETRY%" + LONG_GROUP;
        Map<String, String> f = send(longTopic);
        Raw.call(host, port, RequestCode.UPDATE_AND_CREATE_TOPIC, 479, LanguageCode.JAVA, topic(longTopic), null);
        RemotingCommand r = Raw.call(host, port, RequestCode.SEND_MESSAGE, 479, LanguageCode.JAVA, f, Traffic.bytes("long topic"));
        System.out.println("send to a long topic: " + r.getCode() + " " + r.getRemark());
        broker.stop();
        namesrv.stop();
        keep(out, index, run, Records.of(dir.resolve("store/commitlog")));
    }

    /** A group name that old versions allowed: no request creates it any more, but a broker still loads it. */
    private static void knowLongGroup(Path config) throws IOException {
        SubscriptionGroupConfig g = new SubscriptionGroupConfig();
        g.setGroupName(LONG_GROUP);
        Files.createDirectories(config);
        Files.writeString(config.resolve("subscriptionGroup.json"), "{\"subscriptionGroupTable\":{\"" + LONG_GROUP + "\":"
            + RemotingSerializable.toJson(g, false) + "}}");
    }

    private static Map<String, String> topic(String name) {
        Map<String, String> f = new LinkedHashMap<>();
        f.put("topic", name);
        f.put("defaultTopic", "TBW102");
        f.put("readQueueNums", "1");
        f.put("writeQueueNums", "1");
        f.put("perm", "6");
        f.put("topicFilterType", "SINGLE_TAG");
        f.put("topicSysFlag", "0");
        f.put("order", "false");
        return f;
    }

    private static void keep(Path out, List<String> index, String run, List<byte[]> records) throws IOException {
        Map<String, Integer> seen = new TreeMap<>();
        for (byte[] r : records) {
            MessageExt m = Records.decode(r);
            String shape = m.getTopic() + m.getSysFlag() + m.getProperties().keySet();
            boolean batch = m.getKeys() != null && m.getKeys().startsWith("b");
            if (seen.merge(shape, 1, Integer::sum) > (batch ? 3 : 1)) {
                continue;
            }
            String topic = m.getTopic().toLowerCase().replaceAll("[^a-z0-9]+", "-").replaceAll("^-|-$", "");
            String stem = run + "-" + (topic.length() > 40 ? topic.substring(0, 40) : topic);
            String file = stem + ".bin";
            for (int n = 2; Files.exists(out.resolve(file)); n++) {
                file = stem + "-" + n + ".bin";
            }
            Files.write(out.resolve(file), r);
            index.add(Records.describe(file, r, run));
        }
    }

    /** A complete store directory with small files, after a clean stop or after SIGKILL. */
    private void store(String name, boolean kill) throws Exception {
        Path dir = dir("store-" + name);
        int ns = Child.freePort();
        int port = Child.freePort();
        Child namesrv = Child.nameServer(dir, classPath, "JSON", ns);
        Map<String, String> s = brokerSettings(port, "127.0.0.1", ns);
        s.put("mappedFileSizeCommitLog", "65536");
        s.put("mappedFileSizeConsumeQueue", "400");
        s.put("maxHashSlotNum", "100");
        s.put("maxIndexNum", "400");
        s.put("timerWheelEnable", "false");
        Child broker = Child.broker(dir, classPath, "JSON", s);
        registered(ns);
        run(dir, classPath, "JSON", "store", StoreTraffic.class, "127.0.0.1:" + ns, "120", "600");
        if (kill) {
            broker.kill();
        } else {
            broker.stop();
        }
        namesrv.stop();
        List<String> lines = new ArrayList<>();
        for (byte[] r : Records.of(dir.resolve("store/commitlog"))) {
            lines.add(Records.describe(name, r, name));
        }
        Path out = Files.createDirectories(repo.resolve("spool/testdata/apache"));
        Records.writeLines(out.resolve(name + ".json"), lines);
        Process tar = new ProcessBuilder("tar", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", "-czf",
            out.resolve(name + ".tar.gz").toString(), "-C", dir.toString(), "store").inheritIO().start();
        if (tar.waitFor() != 0) {
            throw new IOException("tar failed");
        }
        System.out.println("store " + name + ": " + lines.size() + " records, " + Files.size(out.resolve(name + ".tar.gz")) + " bytes");
    }
}
