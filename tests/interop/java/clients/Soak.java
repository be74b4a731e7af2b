import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A producer or a consumer that works until its standard input ends, whatever happens to the broker.
 *
 * <p>Arguments: the name server, "producer" or "consumer", topics. A producer tells each message
 * before it is sent and after its answer; a consumer tells what it got.
 */
final class Soak {
    private static final int PAUSE_MS = 20;
    private static final int SEND_TIMEOUT_MS = 3000;
    private static final int BODY_SIZE = 300;

    private Soak() {}

    public static void main(String[] arguments) throws Exception {
        Session session = new Session("soak", arguments[0], null);
        List<String> topics = List.of(arguments).subList(2, arguments.length);
        if (arguments[1].equals("producer")) {
            produce(session, topics.get(0));
        } else {
            consume(session, topics);
        }
        System.exit(0);
    }

    private static void produce(Session session, String topic) throws Exception {
        DefaultMQProducer producer = session.aimed(new DefaultMQProducer("soak-java-producers"));
        producer.setSendMsgTimeout(SEND_TIMEOUT_MS);
        producer.start();
        Thread sender = new Thread(() -> sendUntilInterrupted(session, producer, topic));
        sender.start();
        awaitEndOfInput();
        sender.interrupt();
        sender.join();
        producer.shutdown();
    }

    private static void sendUntilInterrupted(Session session, DefaultMQProducer producer, String topic) {
        try {
            for (int number = 0; ; number++) {
                String id = "java:" + number;
                String body = id + " " + "x".repeat(BODY_SIZE);
                session.say("sending", "id", id);
                long began = System.nanoTime();
                try {
                    Message message = new Message(topic, "soak", id, body.getBytes(StandardCharsets.UTF_8));
                    SendResult result = producer.send(message);
                    if (result.getSendStatus() == SendStatus.SEND_OK) {
                        session.say("acknowledged", "id", id, "micros", (System.nanoTime() - began) / 1000,
                                "queueId", result.getMessageQueue().getQueueId(),
                                "queueOffset", result.getQueueOffset());
                    } else {
                        session.say("failed", "id", id, "error", result.getSendStatus());
                    }
                } catch (InterruptedException error) {
                    session.say("failed", "id", id, "error", "interrupted");
                    return;
                } catch (Exception error) {
                    session.say("failed", "id", id, "error", String.valueOf(error.getMessage()));
                }
                Thread.sleep(PAUSE_MS);
            }
        } catch (InterruptedException error) {
            // Asked to end.
        }
    }

    private static void consume(Session session, List<String> topics) throws Exception {
        DefaultMQPushConsumer consumer = session.pushConsumer("soak-java-consumers");
        for (String topic : topics) {
            consumer.subscribe(topic, "*");
        }
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            List<String> ids = new ArrayList<>();
            for (MessageExt each : messages) {
                String body = new String(each.getBody(), StandardCharsets.UTF_8);
                ids.add(body.substring(0, body.indexOf(' ')));
            }
            session.say("got", "ids", ids);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        awaitEndOfInput();
        consumer.shutdown();
    }

    private static void awaitEndOfInput() throws Exception {
        while (System.in.read() >= 0) {
            // Only the end matters.
        }
    }
}
