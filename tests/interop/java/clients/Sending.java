import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageQueue;

/** Every way to send. */
final class Sending {
    private static final int COUNT = 20;
    /** Above the size from which clients compress. */
    private static final int LARGE = 20_000;

    private Sending() {}

    static void sync(Session session) throws Exception {
        session.createTopic(session.topic(), 4);
        DefaultMQProducer producer = session.producer();
        for (int i = 0; i < COUNT; i++) {
            session.sent(producer.send(session.message(i)));
        }
        byte[] large = "large ".repeat(LARGE / 6).getBytes(StandardCharsets.UTF_8);
        session.sent(producer.send(new Message(session.topic(), large)));
        session.readAll(session.topic(), COUNT + 1);
    }

    static void async(Session session) throws Exception {
        session.createTopic(session.topic(), 4);
        DefaultMQProducer producer = session.producer();
        CountDownLatch answered = new CountDownLatch(COUNT);
        for (int i = 0; i < COUNT; i++) {
            producer.send(session.message(i), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    session.sent(result);
                    answered.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    session.say("refused", "error", String.valueOf(error));
                    answered.countDown();
                }
            });
        }
        answered.await(Session.DEADLINE_MS, TimeUnit.MILLISECONDS);
        session.readAll(session.topic(), COUNT);
    }

    static void oneway(Session session) throws Exception {
        session.createTopic(session.topic(), 4);
        DefaultMQProducer producer = session.producer();
        for (int i = 0; i < COUNT; i++) {
            producer.sendOneway(session.message(i));
        }
        session.readAll(session.topic(), COUNT);
    }

    static void batch(Session session) throws Exception {
        session.createTopic(session.topic(), 4);
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < COUNT; i++) {
            messages.add(session.message(i));
        }
        session.sent(session.producer().send(messages));
        session.readAll(session.topic(), COUNT);
    }

    static void autoCreated(Session session) throws Exception {
        DefaultMQProducer producer = session.producer();
        producer.setDefaultTopicQueueNums(3);
        session.sent(producer.send(session.message(0)));
        session.readAll(session.topic(), 1);
        var route = session.admin().examineTopicRouteInfo(session.topic());
        var queues = route.getQueueDatas().get(0);
        session.say("route", "read", queues.getReadQueueNums(), "write", queues.getWriteQueueNums(),
                "perm", queues.getPerm());
    }

    /** A queue that does not exist refuses messages, and the broker says why. */
    static void refused(Session session) throws Exception {
        session.createTopic(session.topic(), 1);
        DefaultMQProducer producer = session.producer();
        SendResult first = producer.send(session.message(0));
        session.sent(first);
        String broker = first.getMessageQueue().getBrokerName();
        try {
            session.sent(producer.send(session.message(1), new MessageQueue(session.topic(), broker, 99)));
        } catch (MQBrokerException error) {
            session.say("refused", "code", error.getResponseCode(), "message", error.getErrorMessage());
        }
        session.readAll(session.topic(), 1);
    }

    static void delayed(Session session) throws Exception {
        session.createTopic(session.topic(), 1);
        DefaultMQProducer producer = session.producer();
        // The longer one goes first, so that the order of arrival shows that both have waited.
        for (int level : new int[] {4, 1, 0}) {
            Message message = session.message(level);
            message.setDelayTimeLevel(level);
            session.sent(producer.send(message));
        }
        session.readAll(session.topic(), 3);
    }

    /** By the properties that release 5 writes for a time of delivery; 4.9 has no methods for it. */
    static void timed(Session session) throws Exception {
        session.createTopic(session.topic(), 1);
        DefaultMQProducer producer = session.producer();
        Message late = session.message(4);
        long due = System.currentTimeMillis() + 4000;
        MessageAccessor.putProperty(late, "TIMER_DELIVER_MS", Long.toString(due));
        SendResult first = producer.send(late);
        session.sent(first);
        Message cancelled = session.message(3);
        MessageAccessor.putProperty(cancelled, "TIMER_DELIVER_MS", Long.toString(due));
        String id = producer.send(cancelled, new MessageQueue(
                session.topic(), first.getMessageQueue().getBrokerName(), 0)).getMsgId();
        Message cancelling = session.message(9);
        MessageAccessor.putProperty(cancelling, "TIMER_DELIVER_MS", Long.toString(due));
        MessageAccessor.putProperty(cancelling, "TIMER_DEL_UNIQKEY", id);
        producer.send(cancelling);
        Message sooner = session.message(2);
        MessageAccessor.putProperty(sooner, "TIMER_DELAY_SEC", "2");
        session.sent(producer.send(sooner));
        Message soon = session.message(1);
        MessageAccessor.putProperty(soon, "TIMER_DELAY_MS", "1000");
        session.sent(producer.send(soon));
        session.sent(producer.send(session.message(0)));
        session.readAll(session.topic(), 4);
    }
}
