import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** One broker leaves a history behind, another one has to go on with it. */
@SuppressWarnings("deprecation") // The old pull consumer sets a group's offset to the number wanted.
final class History {
    private static final String TOPIC = "java-history";
    private static final String GROUP = "java-group-history";
    private static final String TRANSACTIONS = "java-history-pending";
    private static final int COUNT = 30;
    private static final int CONSUMED_PER_QUEUE = 4;
    private static final int DELAY_LEVEL = 2;
    private static final long TIMEOUT_MS = 20_000;

    private History() {}

    static void write(Session session) throws Exception {
        session.createTopic(TOPIC, 3);
        session.createTopic(TRANSACTIONS, 1);
        DefaultMQProducer producer = session.producer();
        for (int i = 0; i < COUNT; i++) {
            session.sent(producer.send(message(i), (queues, each, number) -> queues.get((Integer) number % 3), i));
        }
        Message delayed = new Message(TOPIC, "delayed".getBytes(StandardCharsets.UTF_8));
        delayed.setDelayTimeLevel(DELAY_LEVEL);
        session.sent(producer.send(delayed));
        Message pending = new Message(TRANSACTIONS, "committed when asked".getBytes(StandardCharsets.UTF_8));
        var transactions = Transactions.producer(session, new ConcurrentHashMap<>());
        transactions.sendMessageInTransaction(pending, null);
        transactions.shutdown();
        leaveGroup(session);
    }

    /** A group that has consumed some of each queue, with a setting of its own. */
    private static void leaveGroup(Session session) throws Exception {
        Set<String> seen = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer consumer = consumer(session, seen);
        consumer.start();
        session.await("everything but what is delayed", () -> seen.size() >= COUNT);
        consumer.shutdown();
        DefaultMQPullConsumer rewinder = session.aimed(new DefaultMQPullConsumer(GROUP));
        rewinder.start();
        for (MessageQueue queue : new TreeSet<>(rewinder.fetchSubscribeMessageQueues(TOPIC))) {
            rewinder.updateConsumeOffset(queue, CONSUMED_PER_QUEUE);
            rewinder.getDefaultMQPullConsumerImpl().getOffsetStore().persist(queue);
            session.await("the offset to be kept", () ->
                    rewinder.fetchConsumeOffset(queue, true) == CONSUMED_PER_QUEUE);
        }
        rewinder.shutdown();
        String broker = session.brokerAddress();
        var config = session.admin().getAllSubscriptionGroup(broker, TIMEOUT_MS)
                .getSubscriptionGroupTable().get(GROUP);
        config.setRetryMaxTimes(9);
        session.admin().createAndUpdateSubscriptionGroupConfig(broker, config);
    }

    static void continued(Session session) throws Exception {
        session.awaitRoute(TOPIC);
        var transactions = Transactions.producer(
                new Session("history-written", session.namesrv, session.admin()), new ConcurrentHashMap<>());
        String broker = session.brokerAddress();
        var config = session.admin().getAllSubscriptionGroup(broker, TIMEOUT_MS)
                .getSubscriptionGroupTable().get(GROUP);
        session.say("group", "retryMaxTimes", config.getRetryMaxTimes());
        var topic = session.admin().examineTopicConfig(broker, TOPIC);
        session.say("topic", "read", topic.getReadQueueNums(), "write", topic.getWriteQueueNums());
        var stats = session.admin().examineConsumeStats(GROUP, TOPIC);
        session.say("progress", "offsets", stats.getOffsetTable().values().stream()
                .map(each -> each.getConsumerOffset()).toList());
        session.readAll(TOPIC, COUNT + 1);
        Set<String> seen = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer consumer = consumer(session, seen);
        consumer.start();
        session.await("what was left", () -> seen.size() >= COUNT - 3 * CONSUMED_PER_QUEUE + 1);
        DefaultMQProducer producer = session.producer();
        for (int i = 0; i < 3; i++) {
            session.sent(producer.send(
                    message(COUNT + i), (queues, each, number) -> queues.get((Integer) number % 3), i));
        }
        session.await("what is new", () -> seen.size() >= COUNT - 3 * CONSUMED_PER_QUEUE + 4);
        consumer.shutdown();
        var found = producer.queryMessage(TOPIC, "key-5", 32, 0, Long.MAX_VALUE);
        session.say("found", "count", found.getMessageList().size());
        session.readAll(TRANSACTIONS, 1);
        transactions.shutdown();
    }

    private static DefaultMQPushConsumer consumer(Session session, Set<String> seen) throws Exception {
        DefaultMQPushConsumer consumer = Consuming.concurrent(session, GROUP, "*", "group", seen);
        consumer.unsubscribe(session.topic());
        consumer.subscribe(TOPIC, "*");
        return consumer;
    }

    private static Message message(int number) {
        byte[] body = ("body-" + number).getBytes(StandardCharsets.UTF_8);
        return new Message(TOPIC, "TagA", "key-" + number, body);
    }
}
