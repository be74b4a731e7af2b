import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * One piece of work of bench.client, done by the official client.
 *
 * <p>Arguments: the work, the name server, the topic, how many messages. The work is done twice, and
 * the second time counts: the first one is for the compiler of the JVM. Prints one line of JSON.
 */
public final class ClientBench {
    private static final byte[] BODY = new byte[128];
    private static final int BATCH_COUNT = 16;
    private static final int IN_FLIGHT = 256;

    private ClientBench() {}

    public static void main(String[] arguments) throws Exception {
        String work = arguments[0];
        String namesrv = arguments[1];
        String topic = arguments[2];
        int count = Integer.parseInt(arguments[3]);
        if (work.equals("consumption")) {
            consume(namesrv, topic, count);
        } else {
            DefaultMQProducer producer = new DefaultMQProducer("java-bench");
            producer.setNamesrvAddr(namesrv);
            producer.start();
            send(work, producer, topic, count);
            Stopwatch watch = new Stopwatch();
            send(work, producer, topic, count);
            watch.print();
        }
        // The client leaves threads behind that are no daemons.
        System.exit(0);
    }

    private static void send(String work, DefaultMQProducer producer, String topic, int count)
            throws Exception {
        switch (work) {
            case "one_by_one":
                for (int i = 0; i < count; i++) {
                    producer.send(new Message(topic, BODY));
                }
                break;
            case "batches":
                for (int i = 0; i < count / BATCH_COUNT; i++) {
                    List<Message> batch = new ArrayList<>(BATCH_COUNT);
                    for (int j = 0; j < BATCH_COUNT; j++) {
                        batch.add(new Message(topic, BODY));
                    }
                    producer.send(batch);
                }
                break;
            case "in_flight":
                sendInFlight(producer, topic, count);
                break;
            default:
                throw new IllegalArgumentException(work);
        }
    }

    private static void sendInFlight(DefaultMQProducer producer, String topic, int count)
            throws Exception {
        Semaphore room = new Semaphore(IN_FLIGHT);
        CountDownLatch left = new CountDownLatch(count);
        SendCallback answered = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                room.release();
                left.countDown();
            }

            @Override
            public void onException(Throwable error) {
                error.printStackTrace();
                System.exit(1);
            }
        };
        for (int i = 0; i < count; i++) {
            room.acquire();
            producer.send(new Message(topic, BODY), answered);
        }
        left.await();
    }

    private static void consume(String namesrv, String topic, int count) throws Exception {
        for (int round = 0; round < 2; round++) {
            CountDownLatch left = new CountDownLatch(count);
            String group = "java-bench-" + ProcessHandle.current().pid() + "-" + round;
            DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
            consumer.setNamesrvAddr(namesrv);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(each -> left.countDown());
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            Stopwatch watch = new Stopwatch();
            consumer.start();
            left.await();
            if (round == 1) {
                watch.print();
            }
            consumer.shutdown();
        }
    }

    /** Measures time by the clock and of the processor, of all threads. */
    private static final class Stopwatch {
        private final long began = System.nanoTime();
        private final long cpuBegan = cpuTime();

        private static long cpuTime() {
            return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
        }

        void print() {
            double seconds = (System.nanoTime() - began) / 1e9;
            double cpuSeconds = (cpuTime() - cpuBegan) / 1e9;
            System.out.println(String.format(
                    Locale.ROOT, "{\"seconds\": %.6f, \"cpu_seconds\": %.6f}", seconds, cpuSeconds));
        }
    }
}
