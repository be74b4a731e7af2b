import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.topic.DeleteTopicSubCommand;

/** What operators do, through the official tools. Types that moved between versions are "var". */
final class Administration {
    private static final int COUNT = 8;
    private static final long TIMEOUT_MS = 20_000;

    private Administration() {}

    static void topics(Session session) throws Exception {
        DefaultMQAdminExt admin = session.admin();
        session.createTopic(session.topic(), 3);
        DefaultMQProducer producer = session.producer();
        for (int i = 0; i < COUNT; i++) {
            session.sent(producer.send(session.message(i)));
        }
        var cluster = admin.examineBrokerClusterInfo();
        String clusterName = cluster.getClusterAddrTable().keySet().iterator().next();
        session.say("cluster", "clusters", new TreeMap<>(cluster.getClusterAddrTable()),
                "brokers", new TreeSet<>(cluster.getBrokerAddrTable().keySet()));
        session.say("listed", "topics", new TreeSet<>(admin.fetchAllTopicList().getTopicList()));
        session.say("listed in cluster",
                "topics", new TreeSet<>(admin.fetchTopicsByCLuster(clusterName).getTopicList()),
                "clusters", admin.getTopicClusterList(session.topic()));
        Map<String, List<Long>> ends = new TreeMap<>();
        admin.examineTopicStats(session.topic()).getOffsetTable().forEach((queue, offsets) ->
                ends.put(String.valueOf(queue.getQueueId()),
                        List.of(offsets.getMinOffset(), offsets.getMaxOffset(), offsets.getLastUpdateTimestamp())));
        session.say("stats", "queues", ends);
        var config = admin.examineTopicConfig(session.brokerAddress(), session.topic());
        session.say("config", "read", config.getReadQueueNums(), "write", config.getWriteQueueNums(),
                "perm", config.getPerm());
        var units = admin.queryConsumeQueue(session.brokerAddress(), session.topic(), 0, 0, 10, null);
        session.say("units", "min", units.getMinQueueIndex(), "max", units.getMaxQueueIndex(),
                "sizes", units.getQueueData().stream().map(each -> each.getPhysicSize()).collect(Collectors.toList()));
        delete(session, admin, clusterName);
    }

    private static void delete(Session session, DefaultMQAdminExt admin, String cluster) throws Exception {
        // The arguments of the calls below have changed places between versions.
        DeleteTopicSubCommand.deleteTopic(admin, cluster, session.topic());
        try {
            session.say("still there", "route", String.valueOf(admin.examineTopicRouteInfo(session.topic())));
        } catch (MQClientException error) {
            session.say("deleted", "code", error.getResponseCode(),
                    "listed", admin.fetchAllTopicList().getTopicList().contains(session.topic()));
        }
    }

    static void groups(Session session) throws Exception {
        DefaultMQAdminExt admin = session.admin();
        session.createTopic(session.topic(), 2);
        DefaultMQProducer producer = session.producer();
        for (int i = 0; i < COUNT; i++) {
            session.sent(producer.send(session.message(i)));
        }
        Set<String> seen = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer consumer = Consuming.concurrent(session, session.group(), "*", "consumer", seen);
        consumer.start();
        session.await("the first round", () -> seen.size() >= COUNT);
        configure(session, admin);
        connections(session, admin);
        session.await("all to be committed", () -> isCaughtUp(session, admin));
        progress(session, admin);
        seen.clear();
        var reset = admin.resetOffsetByTimestamp(session.topic(), session.group(), 0, true);
        session.say("reset", "offsets", reset.values());
        session.await("the second round", () -> seen.size() >= COUNT);
        consumer.shutdown();
        admin.deleteSubscriptionGroup(session.brokerAddress(), session.group());
        var left = admin.getAllSubscriptionGroup(session.brokerAddress(), TIMEOUT_MS);
        session.say("deleted", "listed", left.getSubscriptionGroupTable().containsKey(session.group()));
    }

    private static void configure(Session session, DefaultMQAdminExt admin) throws Exception {
        String broker = session.brokerAddress();
        var config = admin.getAllSubscriptionGroup(broker, TIMEOUT_MS)
                .getSubscriptionGroupTable().get(session.group());
        session.say("group", "retryMaxTimes", config.getRetryMaxTimes(), "retryQueueNums", config.getRetryQueueNums(),
                "consumeEnable", config.isConsumeEnable());
        config.setRetryMaxTimes(7);
        admin.createAndUpdateSubscriptionGroupConfig(broker, config);
        var changed = admin.getAllSubscriptionGroup(broker, TIMEOUT_MS)
                .getSubscriptionGroupTable().get(session.group());
        session.say("group changed", "retryMaxTimes", changed.getRetryMaxTimes());
    }

    private static void connections(Session session, DefaultMQAdminExt admin) throws Exception {
        var online = admin.examineConsumerConnectionInfo(session.group());
        var connection = online.getConnectionSet().iterator().next();
        session.say("consumers", "count", online.getConnectionSet().size(), "model", online.getMessageModel(),
                "type", online.getConsumeType(), "language", connection.getLanguage(),
                "topics", new TreeSet<>(online.getSubscriptionTable().keySet()));
        var running = admin.getConsumerRunningInfo(session.group(), connection.getClientId(), false);
        session.say("running", "queues", running.getMqTable().keySet().stream()
                .filter(each -> each.getTopic().equals(session.topic())).count());
        session.await("the producer to be known", () -> {
            try {
                var producers = admin.examineProducerConnectionInfo(
                        "java-producers-" + session.name, session.topic());
                session.say("producers", "count", producers.getConnectionSet().size());
                return true;
            } catch (MQBrokerException error) {
                return false;
            }
        });
    }

    private static boolean isCaughtUp(Session session, DefaultMQAdminExt admin) throws Exception {
        try {
            return admin.examineConsumeStats(session.group(), session.topic()).computeTotalDiff() == 0;
        } catch (MQClientException error) {
            return false; // So the tools say that no offset has been committed yet.
        }
    }

    private static void progress(Session session, DefaultMQAdminExt admin) throws Exception {
        var stats = admin.examineConsumeStats(session.group(), session.topic());
        session.say("progress",
                "broker", stats.getOffsetTable().values().stream().mapToLong(each -> each.getBrokerOffset()).sum(),
                "consumer", stats.getOffsetTable().values().stream().mapToLong(each -> each.getConsumerOffset()).sum());
        session.say("consumed by", "groups", admin.queryTopicConsumeByWho(session.topic()).getGroupList());
    }

    static void broker(Session session) throws Exception {
        DefaultMQAdminExt admin = session.admin();
        String broker = session.brokerAddress();
        session.say("runtime", "table", new TreeMap<>(admin.fetchBrokerRuntimeStats(broker).getTable()));
        session.say("settings", "table", new TreeMap<>(admin.getBrokerConfig(broker)));
        Properties change = new Properties();
        change.setProperty("shortPollingTimeMills", "1234");
        admin.updateBrokerConfig(broker, change);
        session.say("changed", "value", admin.getBrokerConfig(broker).getProperty("shortPollingTimeMills"));
        try {
            Properties path = new Properties();
            path.setProperty("brokerConfigPath", "elsewhere");
            admin.updateBrokerConfig(broker, path);
        } catch (MQBrokerException error) {
            session.say("refused", "code", error.getResponseCode());
        }
        admin.createAndUpdateKvConfig("interop", "key", "value");
        session.say("pair", "value", admin.getKVConfig("interop", "key"));
        admin.deleteKvConfig("interop", "key");
        try {
            session.say("pair", "value", admin.getKVConfig("interop", "key"));
        } catch (MQClientException error) {
            session.say("pair gone", "code", error.getResponseCode());
        }
        var servers = admin.getNameServerConfig(admin.getNameServerAddressList());
        session.say("name server", "count", servers.size(),
                "port", servers.values().iterator().next().getProperty("listenPort"));
    }
}
