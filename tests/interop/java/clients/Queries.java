import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Finding messages by key, by unique key and by id. */
final class Queries {
    private static final int RESULTS_MAX = 32;

    private Queries() {}

    static void run(Session session) throws Exception {
        session.createTopic(session.topic(), 4);
        DefaultMQProducer producer = session.producer();
        SendResult last = null;
        for (int i = 0; i < 9; i++) {
            Message message = session.message(i);
            message.setKeys("key-" + i + " shared-" + i % 2);
            last = producer.send(message);
            session.sent(last);
        }
        for (String key : new String[] {"key-3", "shared-1", "nobody"}) {
            session.say("found", "key", key, "bodies", byKey(session, key));
        }
        session.say("viewed", "by", "unique key",
                "body", body(session.admin().viewMessage(session.topic(), last.getMsgId())));
        session.say("viewed", "by", "id",
                "body", body(session.admin().viewMessage(session.topic(), last.getOffsetMsgId())));
    }

    private static List<String> byKey(Session session, String key) throws Exception {
        try {
            QueryResult result =
                    session.admin().queryMessage(session.topic(), key, RESULTS_MAX, 0, Long.MAX_VALUE);
            return result.getMessageList().stream().map(Queries::body).sorted().collect(Collectors.toList());
        } catch (MQClientException error) {
            // The client has no other way to say that it found nothing.
            return List.of("code " + error.getResponseCode());
        }
    }

    private static String body(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }
}
