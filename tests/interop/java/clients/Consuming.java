import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Every way to consume. */
@SuppressWarnings("deprecation") // Clients in use still hold the old pull consumer.
final class Consuming {
    private static final int COUNT = 24;
    private static final int SUSPEND_MS = 100;
    private static final int POLL_TIMEOUT_MS = 200;

    private Consuming() {}

    static void push(Session session) throws Exception {
        session.createTopic(session.topic(), 4);
        DefaultMQProducer producer = session.producer();
        Set<String> seen = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer consumer = concurrent(session, session.group(), "TagA || TagC", "consumer", seen);
        consumer.start();
        for (int i = 0; i < COUNT; i++) {
            session.sent(producer.send(session.message(i)));
        }
        session.await("messages with wanted tags", () -> seen.size() >= COUNT * 2 / 3);
        consumer.shutdown();
    }

    /** A consumer by SQL92 gets the same of what was there and of what comes; a wrong one says so. */
    static void sql(Session session) throws Exception {
        session.createTopic(session.topic(), 4);
        DefaultMQProducer producer = session.producer();
        for (int i = 0; i < COUNT; i++) {
            session.sent(producer.send(session.message(i)));
        }
        Set<String> seen = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer consumer = concurrent(session, session.group(), "*", "consumer", seen);
        consumer.subscribe(session.topic(), MessageSelector.bySql(
                "number BETWEEN 3 AND 6 OR TAGS = 'TagC' AND number > 40 OR missing = 'x'"));
        consumer.start();
        session.await("messages that were there", () -> seen.size() >= 4);
        for (int i = COUNT; i < 2 * COUNT; i++) {
            session.sent(producer.send(session.message(i)));
        }
        session.await("messages that came", () -> seen.size() >= 7);
        consumer.shutdown();
        DefaultMQPushConsumer wrong = concurrent(session, session.group() + "-wrong", "*", "wrong", seen);
        wrong.subscribe(session.topic(), MessageSelector.bySql("number >"));
        try {
            wrong.start();
        } catch (MQClientException refused) {
            session.say("refused", "message", refused.getErrorMessage(), "code", refused.getResponseCode());
        } finally {
            wrong.shutdown();
        }
    }

    /** Messages of one order go to one queue; a pause of a queue keeps what follows behind it. */
    static void orderly(Session session) throws Exception {
        session.createTopic(session.topic(), 4);
        DefaultMQProducer producer = session.producer();
        Set<String> seen = ConcurrentHashMap.newKeySet();
        Set<String> paused = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer consumer = session.pushConsumer(session.group());
        consumer.subscribe(session.topic(), "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            for (MessageExt message : messages) {
                if (body(message).endsWith("7") && paused.add(body(message))) {
                    context.setSuspendCurrentQueueTimeMillis(SUSPEND_MS);
                    session.say("paused", "body", body(message));
                    return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                }
                session.received("consumer", message);
                seen.add(body(message));
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        for (int i = 0; i < COUNT; i++) {
            session.sent(producer.send(
                    session.message(i),
                    (queues, message, order) -> queues.get((Integer) order % queues.size()),
                    i % 5));
        }
        session.await("all ordered messages", () -> seen.size() >= COUNT);
        consumer.shutdown();
    }

    static void broadcast(Session session) throws Exception {
        session.createTopic(session.topic(), 2);
        DefaultMQProducer producer = session.producer();
        Set<String> seen = ConcurrentHashMap.newKeySet();
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (String name : new String[] {"first", "second"}) {
            DefaultMQPushConsumer consumer = concurrent(session, session.group(), "*", name, seen);
            consumer.setInstanceName(name);
            // The enum lives in different packages in 4.x and 5.x.
            var models = consumer.getMessageModel().getDeclaringClass();
            consumer.setMessageModel(Enum.valueOf(models, "BROADCASTING"));
            consumer.start();
            consumers.add(consumer);
        }
        for (int i = 0; i < COUNT; i++) {
            producer.send(session.message(i));
        }
        session.await("both to get everything", () -> seen.size() >= COUNT * 2);
        consumers.forEach(DefaultMQPushConsumer::shutdown);
    }

    /** One message always fails and ends as a dead letter, another one succeeds the second time. */
    static void retry(Session session) throws Exception {
        session.createTopic(session.topic(), 1);
        DefaultMQProducer producer = session.producer();
        AtomicInteger given = new AtomicInteger();
        DefaultMQPushConsumer consumer = session.pushConsumer(session.group());
        consumer.setMaxReconsumeTimes(2);
        consumer.subscribe(session.topic(), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            session.received("consumer", message);
            given.incrementAndGet();
            boolean works = body(message).equals("body-1") && message.getReconsumeTimes() == 1;
            return works ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        session.sent(producer.send(session.message(0)));
        session.sent(producer.send(session.message(1)));
        session.await("all attempts", () -> given.get() >= 3 + 2);
        session.readAll("%DLQ%" + session.group(), 1);
        consumer.shutdown();
    }

    /** A second member comes, shares the queues and leaves again, while messages keep flowing. */
    static void rebalance(Session session) throws Exception {
        session.createTopic(session.topic(), 4);
        DefaultMQProducer producer = session.producer();
        Set<String> first = ConcurrentHashMap.newKeySet();
        Set<String> second = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer stayer = concurrent(session, session.group(), "*", "first", first);
        stayer.start();
        int count = 0;
        while (first.size() < COUNT) {
            producer.send(session.message(count++));
            Thread.sleep(1);
        }
        DefaultMQPushConsumer guest = concurrent(session, session.group(), "*", "second", second);
        guest.start();
        int before = first.size();
        long deadline = System.currentTimeMillis() + Session.DEADLINE_MS;
        while (second.size() < COUNT || first.size() < before + COUNT) {
            producer.send(session.message(count++));
            Thread.sleep(2);
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("the queues were not shared: " + first.size() + "/" + second.size());
            }
        }
        guest.shutdown();
        for (int i = 0; i < COUNT; i++) {
            producer.send(session.message(count++));
        }
        int sent = count;
        session.await("all messages by either", () -> union(first, second) == sent);
        session.say("shared", "sent", sent, "first", first.size(), "second", second.size());
        stayer.shutdown();
    }

    static void litePull(Session session) throws Exception {
        session.createTopic(session.topic(), 2);
        DefaultMQProducer producer = session.producer();
        for (int i = 0; i < COUNT; i++) {
            producer.send(session.message(i), (queues, message, number) -> queues.get((Integer) number % 2), i);
        }
        assigned(session);
        subscribed(session, "subscribed", COUNT);
        producer.send(session.message(COUNT));
        subscribed(session, "resumed", 1);
    }

    private static void assigned(Session session) throws Exception {
        DefaultLitePullConsumer consumer = session.aimed(new DefaultLitePullConsumer(session.group() + "-assigned", Session.signing("user")));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        consumer.start();
        Collection<MessageQueue> queues = new TreeSet<>(consumer.fetchMessageQueues(session.topic()));
        consumer.assign(queues);
        // The client may still hand over what it had asked for before a seek; now it has all.
        pollUntil(session, consumer, "assigned", COUNT);
        for (MessageQueue queue : queues) {
            consumer.seek(queue, 4);
        }
        pollUntil(session, consumer, "sought", COUNT - 2 * 4);
        consumer.seekToBegin(queues.iterator().next());
        pollUntil(session, consumer, "from the beginning", COUNT / 2);
        consumer.shutdown();
    }

    private static void subscribed(Session session, String by, int count) throws Exception {
        DefaultLitePullConsumer consumer = session.aimed(new DefaultLitePullConsumer(session.group(), Session.signing("user")));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        consumer.subscribe(session.topic(), "*");
        consumer.start();
        pollUntil(session, consumer, by, count);
        consumer.commitSync();
        long committed = 0;
        for (MessageQueue queue : consumer.fetchMessageQueues(session.topic())) {
            committed += consumer.committed(queue);
        }
        session.say("committed", "by", by, "sum", committed);
        consumer.shutdown();
    }

    private static void pollUntil(Session session, DefaultLitePullConsumer consumer, String by, int count)
            throws Exception {
        Set<String> seen = ConcurrentHashMap.newKeySet();
        session.await(count + " polled messages", () -> {
            for (MessageExt message : consumer.poll(POLL_TIMEOUT_MS)) {
                session.received(by, message);
                seen.add(body(message));
            }
            return seen.size() >= count;
        });
    }

    static void pull(Session session) throws Exception {
        session.createTopic(session.topic(), 1);
        DefaultMQProducer producer = session.producer();
        DefaultMQPullConsumer consumer = session.pullConsumer();
        for (int i = 0; i < COUNT; i++) {
            producer.send(session.message(i));
        }
        MessageQueue queue = consumer.fetchSubscribeMessageQueues(session.topic()).iterator().next();
        session.say("offsets", "min", consumer.minOffset(queue), "max", consumer.maxOffset(queue),
                "first", consumer.searchOffset(queue, 0),
                "last", consumer.searchOffset(queue, System.currentTimeMillis() + Session.DEADLINE_MS),
                "unknown", consumer.fetchConsumeOffset(queue, true));
        var filtered = consumer.pull(queue, "TagB", 0, COUNT);
        filtered.getMsgFoundList().forEach(each -> session.received("filtered", each));
        session.say("pulled", "status", filtered.getPullStatus(), "next", filtered.getNextBeginOffset());
        var beyond = consumer.pull(queue, "*", COUNT + 100, 1);
        session.say("pulled", "status", beyond.getPullStatus(), "next", beyond.getNextBeginOffset());
        consumer.updateConsumeOffset(queue, 7);
        consumer.getDefaultMQPullConsumerImpl().getOffsetStore().persist(queue);
        session.await("the offset to be kept", () -> consumer.fetchConsumeOffset(queue, true) == 7);
        Thread sender = new Thread(() -> sendLater(session, producer));
        sender.start();
        long start = System.currentTimeMillis();
        var held = consumer.pullBlockIfNotFound(queue, "*", COUNT, 1);
        session.say("woken", "status", held.getPullStatus(), "millis", System.currentTimeMillis() - start);
        held.getMsgFoundList().forEach(each -> session.received("held", each));
        sender.join();
        consumer.shutdown();
    }

    private static void sendLater(Session session, DefaultMQProducer producer) {
        try {
            Thread.sleep(POLL_TIMEOUT_MS);
            session.sent(producer.send(session.message(COUNT)));
        } catch (Exception error) {
            session.say("refused", "error", String.valueOf(error));
        }
    }

    // -- helpers ---------------------------------------------------------------------------------

    /** A consumer that tells what it gets, and notes it under its own name. */
    static DefaultMQPushConsumer concurrent(
            Session session, String group, String expression, String by, Set<String> seen) throws Exception {
        DefaultMQPushConsumer consumer = session.pushConsumer(group);
        consumer.subscribe(session.topic(), expression);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                session.received(by, message);
                seen.add(by + " " + body(message));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        return consumer;
    }

    private static int union(Set<String> first, Set<String> second) {
        Set<String> bodies = new TreeSet<>();
        first.forEach(each -> bodies.add(each.substring(each.indexOf(' '))));
        second.forEach(each -> bodies.add(each.substring(each.indexOf(' '))));
        return bodies.size();
    }

    static String body(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }
}
