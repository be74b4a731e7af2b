import java.nio.charset.StandardCharsets;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestFutureHolder;
import org.apache.rocketmq.client.producer.RequestResponseFuture;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;

/** Messages that are answered by a message. */
final class Replies {
    private static final int TIMEOUT_MS = 20_000;
    private static final int COUNT = 3;

    private Replies() {}

    static void run(Session session) throws Exception {
        session.createTopic(session.topic(), 2);
        DefaultMQProducer replier = session.aimed(new DefaultMQProducer("java-repliers", Session.signing("user")));
        replier.start();
        AtomicInteger replies = new AtomicInteger();
        DefaultMQPushConsumer consumer = session.pushConsumer(session.group());
        consumer.subscribe(session.topic(), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                session.received("replier", message);
                reply(session, replier, message);
                replies.incrementAndGet();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = session.producer();
        for (int i = 0; i < COUNT; i++) {
            request(session, producer, session.message(i));
        }
        for (int i = COUNT; i < 2 * COUNT; i++) {
            ask(session, producer, session.message(i));
        }
        // An answer may be here before the replier knows that it was delivered.
        session.await("the replier", () -> replies.get() >= 2 * COUNT);
        consumer.shutdown();
    }

    private static void request(Session session, DefaultMQProducer producer, Message message) throws Exception {
        try {
            answered(session, "request", producer.request(message, TIMEOUT_MS));
        } catch (RequestTimeoutException error) {
            session.say("gave up", "error", error.getMessage());
        }
    }

    /**
     * The same by hand: release 5.3.3 stops waiting for the answer as soon as the request is
     * stored, so there its own call gets an answer by luck only.
     */
    private static void ask(Session session, DefaultMQProducer producer, Message message) throws Exception {
        String id = UUID.randomUUID().toString();
        String client = producer.buildMQClientId();
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_CORRELATION_ID, id);
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_MESSAGE_REPLY_TO_CLIENT, client);
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_MESSAGE_TTL, String.valueOf(TIMEOUT_MS));
        RequestResponseFuture future = new RequestResponseFuture(id, TIMEOUT_MS, null);
        RequestFutureHolder.getInstance().getRequestFutureTable().put(id, future);
        producer.send(message);
        answered(session, "ask", future.waitResponseMessage(TIMEOUT_MS));
    }

    private static void answered(Session session, String by, Message answer) {
        session.say("answer", "by", by, "body", new String(answer.getBody(), StandardCharsets.UTF_8));
    }

    private static void reply(Session session, DefaultMQProducer replier, MessageExt message) {
        try {
            byte[] body = ("reply to " + Consuming.body(message)).getBytes(StandardCharsets.UTF_8);
            replier.send(MessageUtil.createReplyMessage(message, body));
        } catch (Exception error) {
            session.say("unanswered", "error", String.valueOf(error));
        }
    }
}
