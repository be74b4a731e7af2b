import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Half messages: decided at once, or when the broker asks. */
final class Transactions {
    private static final Map<String, LocalTransactionState> AT_ONCE = Map.of(
            "committed", LocalTransactionState.COMMIT_MESSAGE,
            "rolled back", LocalTransactionState.ROLLBACK_MESSAGE);
    private static final Map<String, LocalTransactionState> WHEN_ASKED = Map.of(
            "committed when asked", LocalTransactionState.COMMIT_MESSAGE,
            "rolled back when asked", LocalTransactionState.ROLLBACK_MESSAGE);

    private Transactions() {}

    static void run(Session session) throws Exception {
        session.createTopic(session.topic(), 2);
        Map<String, Integer> asked = new ConcurrentHashMap<>();
        TransactionMQProducer producer = producer(session, asked);
        for (String outcome : new String[] {
            "committed", "rolled back", "committed when asked", "rolled back when asked", "decided late"
        }) {
            Message message = new Message(session.topic(), outcome.getBytes(StandardCharsets.UTF_8));
            var result = producer.sendMessageInTransaction(message, null);
            session.say("prepared", "outcome", outcome, "status", result.getSendStatus(),
                    "state", result.getLocalTransactionState(), "transactionId", result.getTransactionId());
        }
        session.await("all check-backs", () -> asked.size() >= 3 && asked.get("decided late") >= 2);
        session.readAll(session.topic(), 3);
        session.say("asked", "counts", asked);
        producer.shutdown();
    }

    static TransactionMQProducer producer(Session session, Map<String, Integer> asked) throws Exception {
        TransactionMQProducer producer =
                session.aimed(new TransactionMQProducer("java-transactions-" + session.name, Session.signing("user")));
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return AT_ONCE.getOrDefault(body(message), LocalTransactionState.UNKNOW);
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                int times = asked.merge(body(message), 1, Integer::sum);
                if (body(message).equals("decided late")) {
                    return times < 2 ? LocalTransactionState.UNKNOW : LocalTransactionState.COMMIT_MESSAGE;
                }
                return WHEN_ASKED.getOrDefault(body(message), LocalTransactionState.UNKNOW);
            }
        });
        producer.start();
        return producer;
    }

    private static String body(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }
}
