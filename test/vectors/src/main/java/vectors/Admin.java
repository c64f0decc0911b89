package vectors;

import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** What an operator does, and what only the 5.4.0 client can: pop consumption and recall. */
public final class Admin {
    private static final String CLUSTER = "DefaultCluster";
    private static final String BROKER = "broker-a";

    private final String namesrv;
    private final String broker;
    private final Steps steps = new Steps();
    private DefaultMQAdminExt admin;
    private DefaultMQProducer producer;
    private DefaultMQPushConsumer consumer;
    private SendResult sent;

    private Admin(String namesrv, String broker) {
        this.namesrv = namesrv;
        this.broker = broker;
    }

    /** Arguments: name server address, broker address. */
    public static void main(String[] args) throws Exception {
        Admin a = new Admin(args[0], args[1]);
        a.run();
        System.out.println("admin done");
        System.exit(0);
    }

    private void run() throws Exception {
        admin = new DefaultMQAdminExt("AdminTool", 10_000);
        admin.setNamesrvAddr(namesrv);
        admin.setClientIP("127.0.0.1");
        admin.setInstanceName("AdminTool");
        admin.start();
        tables();
        steps.step("clients", this::clients);
        nameServer();
        runtime();
        offsets();
        messages();
        steps.step("pop", this::pop);
        steps.step("recall", this::recall);
        removal();
        steps.report();
    }

    private void tables() {
        steps.step("create topic", () -> admin.createAndUpdateTopicConfig(broker, new TopicConfig("AdminTopic", 4, 4)));
        steps.step("create topics", () -> admin.createAndUpdateTopicConfigList(broker, List.of(new TopicConfig("AdminTopic2", 1, 1))));
        steps.step("create group", () -> {
            SubscriptionGroupConfig g = new SubscriptionGroupConfig();
            g.setGroupName("AdminGroup");
            admin.createAndUpdateSubscriptionGroupConfig(broker, g);
            g.setGroupName("AdminGroup2");
            admin.createAndUpdateSubscriptionGroupConfigList(broker, List.of(g));
        });
        steps.step("topic config", () -> admin.examineTopicConfig(broker, "AdminTopic"));
        steps.step("group config", () -> admin.examineSubscriptionGroupConfig(broker, "AdminGroup"));
        steps.step("all topic config", () -> admin.getAllTopicConfig(broker, 5000));
        steps.step("all groups", () -> admin.getAllSubscriptionGroup(broker, 5000));
    }

    /** Keeps a producer and a consumer on line, for the requests that ask about them. */
    private void clients() throws Exception {
        producer = new DefaultMQProducer("AdminProducer");
        producer.setNamesrvAddr(namesrv);
        producer.setClientIP("127.0.0.1");
        producer.setInstanceName("AdminProducer");
        producer.start();
        for (int i = 0; i < 8; i++) {
            sent = producer.send(new Message("AdminTopic", "TagA", "admin-" + i, Traffic.bytes("admin " + i)));
        }
        CountDownLatch got = new CountDownLatch(8);
        consumer = new DefaultMQPushConsumer("AdminGroup");
        consumer.setNamesrvAddr(namesrv);
        consumer.setClientIP("127.0.0.1");
        consumer.setInstanceName("AdminConsumer");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPersistConsumerOffsetInterval(1000);
        consumer.subscribe("AdminTopic", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (msgs, ctx) -> {
            msgs.forEach(m -> got.countDown());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        if (!got.await(30, TimeUnit.SECONDS)) {
            throw new Exception("still missing " + got.getCount());
        }
        consumer.getDefaultMQPushConsumerImpl().getOffsetStore().persistAll(consumer.fetchSubscribeMessageQueues("AdminTopic"));
    }

    private void nameServer() {
        steps.step("cluster info", () -> admin.examineBrokerClusterInfo());
        steps.step("topic list", () -> admin.fetchAllTopicList());
        steps.step("topics by cluster", () -> admin.fetchTopicsByCLuster(CLUSTER));
        steps.step("route", () -> admin.examineTopicRouteInfo("AdminTopic"));
        steps.step("put kv", () -> admin.putKVConfig("ns", "k", "v \u00fc"));
        steps.step("create kv", () -> admin.createAndUpdateKvConfig("ns", "k2", "v2"));
        steps.step("get kv", () -> admin.getKVConfig("ns", "k"));
        steps.step("list kv", () -> admin.getKVListByNamespace("ns"));
        steps.step("get missing kv", () -> admin.getKVConfig("ns", "none"));
        steps.step("order conf", () -> admin.createOrUpdateOrderConf("AdminTopic", "broker-a:4", false));
        steps.step("delete kv", () -> admin.deleteKvConfig("ns", "k2"));
        steps.step("wipe write perm", () -> admin.wipeWritePermOfBroker(namesrv, BROKER));
        steps.step("add write perm", () -> admin.addWritePermOfBroker(namesrv, BROKER));
        steps.step("name server config", () -> admin.getNameServerConfig(List.of(namesrv)));
        steps.step("update name server config", () -> {
            Properties p = new Properties();
            p.setProperty("clusterTest", "false");
            admin.updateNameServerConfig(p, List.of(namesrv));
        });
    }

    private void runtime() {
        steps.step("runtime info", () -> admin.fetchBrokerRuntimeStats(broker));
        steps.step("broker config", () -> admin.getBrokerConfig(broker));
        steps.step("update broker config", () -> {
            Properties p = new Properties();
            p.setProperty("defaultQueryMaxNum", "32");
            admin.updateBrokerConfig(broker, p);
        });
        steps.step("ha status", () -> admin.getBrokerHAStatus(broker));
        steps.step("broker stats", () -> admin.viewBrokerStatsData(broker, "TOPIC_PUT_NUMS", "AdminTopic"));
        steps.step("producer connections", () -> admin.examineProducerConnectionInfo("AdminProducer", "AdminTopic"));
        steps.step("all producers", () -> admin.getAllProducerInfo(broker));
        steps.step("consumer connections", () -> admin.examineConsumerConnectionInfo("AdminGroup"));
        steps.step("consumer connections of no one", () -> admin.examineConsumerConnectionInfo("AdminGroup2", broker));
        steps.step("consumer running info", () -> admin.getConsumerRunningInfo("AdminGroup", "127.0.0.1@AdminConsumer", false));
        steps.step("query subscription", () -> admin.querySubscription("AdminGroup", "AdminTopic"));
        steps.step("consumed by whom", () -> admin.queryTopicConsumeByWho("AdminTopic"));
        steps.step("topics by consumer", () -> admin.queryTopicsByConsumer("AdminGroup"));
        steps.step("consume time span", () -> admin.queryConsumeTimeSpan("AdminTopic", "AdminGroup"));
        steps.step("read forbidden", () -> admin.updateAndGetGroupReadForbidden(broker, "AdminGroup", "AdminTopic", false));
        steps.step("clean queues", () -> admin.cleanExpiredConsumerQueueByAddr(broker));
        steps.step("clean topics", () -> admin.cleanUnusedTopicByAddr(broker));
        steps.step("delete expired log", () -> admin.deleteExpiredCommitLogByAddr(broker));
    }

    private void offsets() {
        MessageQueue q = sent.getMessageQueue();
        steps.step("topic stats", () -> admin.examineTopicStats("AdminTopic"));
        steps.step("consume stats", () -> admin.examineConsumeStats("AdminGroup", "AdminTopic"));
        steps.step("consume stats in broker", () -> admin.fetchConsumeStatsInBroker(broker, false, 5000));
        steps.step("max and min", () -> {
            admin.maxOffset(q);
            admin.minOffset(q);
            admin.earliestMsgStoreTime(q);
            admin.searchLowerBoundaryOffset(q, System.currentTimeMillis());
            admin.searchUpperBoundaryOffset(q, System.currentTimeMillis());
        });
        steps.step("update offset", () -> admin.updateConsumeOffset(broker, "AdminGroup2", q, 1));
        steps.step("clone offsets", () -> admin.cloneGroupOffset("AdminGroup", "AdminGroup2", "AdminTopic", true));
        steps.step("consume status", () -> admin.getConsumeStatus("AdminTopic", "AdminGroup", "127.0.0.1@AdminConsumer"));
        steps.step("reset by time", () -> admin.resetOffsetByTimestamp("AdminTopic", "AdminGroup", 0, true));
        steps.step("reset by queue", () -> admin.resetOffsetByQueueId(broker, "AdminGroup2", "AdminTopic", 0, 0));
        steps.step("query consume queue", () -> admin.queryConsumeQueue(broker, "AdminTopic", q.getQueueId(), 0, 2, "AdminGroup"));
    }

    private void messages() {
        steps.step("view", () -> admin.viewMessage("AdminTopic", sent.getOffsetMsgId()));
        steps.step("view by unique key", () -> admin.queryMessageByUniqKey(CLUSTER, "AdminTopic", sent.getMsgId(), 8, 0, Long.MAX_VALUE));
        steps.step("query", () -> admin.queryMessage("AdminTopic", "admin-1", 8, 0, System.currentTimeMillis() + 60_000));
        steps.step("query nothing", () -> admin.queryMessage("AdminTopic", "no-such-key", 8, 0, System.currentTimeMillis()));
        steps.step("consume directly",
            () -> admin.consumeMessageDirectly("AdminGroup", "127.0.0.1@AdminConsumer", "AdminTopic", sent.getMsgId()));
        steps.step("view a wrong offset", () -> admin.viewMessage("AdminTopic",
            sent.getOffsetMsgId().substring(0, 16) + "00000000FFFFFFFF"));
    }

    private void pop() throws Exception {
        admin.setMessageRequestMode(broker, "AdminTopic", "PopGroup", MessageRequestMode.POP, 8, 5000);
        CountDownLatch got = new CountDownLatch(2);
        DefaultMQPushConsumer c = new DefaultMQPushConsumer("PopGroup");
        c.setNamesrvAddr(namesrv);
        c.setClientIP("127.0.0.1");
        c.setInstanceName("PopConsumer");
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        c.setClientRebalance(false);
        c.subscribe("AdminTopic", "*");
        c.registerMessageListener((MessageListenerConcurrently) (msgs, ctx) -> {
            got.countDown();
            return got.getCount() == 1 ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        try {
            if (!got.await(20, TimeUnit.SECONDS)) {
                throw new Exception("still missing " + got.getCount());
            }
        } finally {
            c.shutdown();
        }
    }

    private void recall() throws Exception {
        Message m = new Message("AdminTopic", Traffic.bytes("taken back"));
        m.setDelayTimeSec(120);
        SendResult r = producer.send(m);
        producer.recallMessage("AdminTopic", r.getRecallHandle());
    }

    private void removal() {
        steps.step("stop clients", () -> {
            consumer.shutdown();
            producer.shutdown();
        });
        steps.step("delete group", () -> admin.deleteSubscriptionGroup(broker, "AdminGroup2", true));
        steps.step("delete topic in broker", () -> admin.deleteTopicInBroker(Set.of(broker), "AdminTopic2"));
        steps.step("delete topic in name server", () -> admin.deleteTopicInNameServer(Set.of(namesrv), "AdminTopic2"));
        steps.step("route of no topic", () -> admin.examineTopicRouteInfo("NoSuchTopic"));
        steps.step("stop", () -> admin.shutdown());
    }
}
