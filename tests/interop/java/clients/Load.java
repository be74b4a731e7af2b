import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * Producers and a consumer that do not give up, whatever happens to the broker.
 *
 * <p>Tells each acknowledged message. When standard input ends, the producers stop, and the
 * consumer has to get everything that was acknowledged.
 */
final class Load {
    private static final int THREADS = 4;
    private static final int PAUSE_MS = 50;

    private Load() {}

    static void run(Session session) throws Exception {
        session.createTopic(session.topic(), 4);
        Set<String> consumed = ConcurrentHashMap.newKeySet();
        Set<String> acknowledged = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer consumer = session.pushConsumer(session.group());
        consumer.subscribe(session.topic(), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(each -> consumed.add(Consuming.body(each)));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = session.aimed(new DefaultMQProducer("java-load"));
        // An answer that does not come in time is no answer: the message may be there twice.
        producer.setSendMsgTimeout(2000);
        producer.start();
        AtomicBoolean goesOn = new AtomicBoolean(true);
        Thread[] senders = new Thread[THREADS];
        AtomicInteger numbers = new AtomicInteger();
        for (int i = 0; i < THREADS; i++) {
            senders[i] = new Thread(() -> send(session, producer, numbers, goesOn, acknowledged));
            senders[i].start();
        }
        awaitEndOfInput();
        goesOn.set(false);
        for (Thread sender : senders) {
            sender.join();
        }
        session.await("all that was acknowledged", () -> consumed.containsAll(acknowledged));
        session.say("consumed", "acknowledged", acknowledged.size(), "distinct", consumed.size());
        consumer.shutdown();
    }

    private static void send(Session session, DefaultMQProducer producer, AtomicInteger numbers,
            AtomicBoolean goesOn, Set<String> acknowledged) {
        while (goesOn.get()) {
            String body = "load-" + numbers.getAndIncrement();
            try {
                SendResult result = producer.send(new Message(session.topic(), body.getBytes(StandardCharsets.UTF_8)));
                if (result.getSendStatus() == SendStatus.SEND_OK) {
                    acknowledged.add(body);
                    session.say("acknowledged", "body", body,
                            "queueId", result.getMessageQueue().getQueueId(), "queueOffset", result.getQueueOffset());
                }
            } catch (Exception error) {
                pause();
            }
        }
    }

    private static void awaitEndOfInput() throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        while (input.readLine() != null) {
            // Only the end matters.
        }
    }

    private static void pause() {
        try {
            Thread.sleep(PAUSE_MS);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }
}
