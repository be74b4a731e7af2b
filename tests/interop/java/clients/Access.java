import java.util.List;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** What accounts may do, and what is denied to them. */
@SuppressWarnings("deprecation") // Only the old pull consumer asks for just what it is told to.
final class Access {
    private static final int COUNT = 10;
    private static final String CLOSED = "closed-topic";
    private static final String LATER = "later-topic";
    private static final long TIMEOUT_MS = 20_000;

    private Access() {}

    static void run(Session session) throws Exception {
        session.createTopic(session.topic(), 2);
        session.createTopic(CLOSED, 2);
        DefaultMQProducer user = session.producer();
        for (int i = 0; i < COUNT; i++) {
            session.sent(user.send(session.message(i)));
        }
        session.sent(user.send(List.of(session.message(COUNT), session.message(COUNT + 1))));
        attempt(session, "send", () -> user.send(new Message(CLOSED, new byte[1])));
        attempt(session, "batch", () -> user.send(List.of(new Message(CLOSED, new byte[1]))));
        for (String account : List.of("forger", "stranger", "nobody", "elsewhere")) {
            DefaultMQProducer other =
                    session.aimed(new DefaultMQProducer("producers-" + account, Session.signing(account)));
            other.start();
            attempt(session, account, () -> other.send(session.message(0)));
            other.shutdown();
        }
        consume(session);
        administer(session);
    }

    private static void consume(Session session) throws Exception {
        Set<String> seen = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer consumer = Consuming.concurrent(session, session.group(), "*", "consumer", seen);
        consumer.start();
        session.await("all messages", () -> seen.size() >= COUNT + 2);
        consumer.shutdown();
        DefaultMQPullConsumer reader =
                session.aimed(new DefaultMQPullConsumer("closed-group", Session.signing("user")));
        reader.start();
        for (MessageQueue queue : reader.fetchSubscribeMessageQueues(session.topic())) {
            attempt(session, "group", () -> reader.pull(queue, "*", 0, 1));
        }
        reader.shutdown();
    }

    private static void administer(Session session) throws Exception {
        DefaultMQAdminExt user = session.aimed(new DefaultMQAdminExt(Session.signing("user"), TIMEOUT_MS));
        user.setInstanceName("user-" + session.name);
        user.start();
        String broker = session.brokerAddress();
        attempt(session, "settings", () -> user.getBrokerConfig(broker));
        session.say("settings", "size", session.admin().getBrokerConfig(broker).size());
        user.shutdown();
    }

    /** Send until it is allowed, while the other topic goes on. */
    static void later(Session session) throws Exception {
        session.createTopic(session.topic(), 2);
        session.createTopic(LATER, 2);
        DefaultMQProducer user = session.producer();
        attempt(session, "later", () -> user.send(new Message(LATER, new byte[1])));
        session.await("a permission", () -> {
            session.sent(user.send(session.message(0)));
            try {
                session.sent(user.send(new Message(LATER, new byte[1])));
                return true;
            } catch (MQBrokerException | MQClientException error) {
                denialOf(error);
                return false;
            }
        });
    }

    /** A producer that has tried in vain several times tells the last answer as the cause. */
    private static MQBrokerException denialOf(Exception error) throws Exception {
        Throwable found = error instanceof MQBrokerException ? error : error.getCause();
        if (found instanceof MQBrokerException) {
            return (MQBrokerException) found;
        }
        throw error;
    }

    private static void attempt(Session session, String what, Callable<Object> call) throws Exception {
        try {
            session.say("allowed", "what", what, "result", String.valueOf(call.call()));
        } catch (MQBrokerException | MQClientException error) {
            MQBrokerException denial = denialOf(error);
            session.say("denied", "what", what, "code", denial.getResponseCode(),
                    "error", denial.getErrorMessage());
        }
    }
}
