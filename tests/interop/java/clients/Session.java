import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.exception.RemotingException;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** What one scenario works with: clients of the cluster, and a voice of JSON lines. */
@SuppressWarnings("deprecation") // Only the old pull consumer reads queues without a group's help.
final class Session {
    static final int DEADLINE_MS = 60_000;
    private static final int CLIENT_TIMEOUT_MS = 20_000;
    private static final int READ_BATCH = 32;
    private static final int POLL_MS = 20;
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    final String name;
    final String namesrv;
    private final DefaultMQAdminExt admin;

    Session(String name, String namesrv, DefaultMQAdminExt admin) {
        this.name = name;
        this.namesrv = namesrv;
        this.admin = admin;
    }

    static DefaultMQAdminExt startAdmin(String namesrv) throws MQClientException {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(signing("operator"), CLIENT_TIMEOUT_MS);
        admin.setNamesrvAddr(namesrv);
        admin.setInstanceName("administrator");
        admin.start();
        return admin;
    }

    /** What signs requests as an account, "key:secret" in a system property; null if there is none. */
    static RPCHook signing(String account) {
        String[] keys = System.getProperty("access." + account, "").split(":");
        return keys.length < 2 ? null : new AclClientRPCHook(new SessionCredentials(keys[0], keys[1]));
    }

    // -- clients ---------------------------------------------------------------------------------

    String topic() {
        return "java-" + name;
    }

    String group() {
        return "java-group-" + name;
    }

    DefaultMQAdminExt admin() {
        return admin;
    }

    <T extends ClientConfig> T aimed(T client) {
        client.setNamesrvAddr(namesrv);
        client.setMqClientApiTimeout(CLIENT_TIMEOUT_MS);
        client.setPollNameServerInterval(1000);
        client.setHeartbeatBrokerInterval(1000);
        client.setPersistConsumerOffsetInterval(1000);
        return client;
    }

    DefaultMQProducer producer() throws MQClientException {
        DefaultMQProducer producer = aimed(new DefaultMQProducer("java-producers-" + name, signing("user")));
        producer.setSendMsgTimeout(CLIENT_TIMEOUT_MS);
        producer.start();
        return producer;
    }

    /** A push consumer that has not been started; its group begins with the oldest message. */
    DefaultMQPushConsumer pushConsumer(String group) {
        DefaultMQPushConsumer consumer = aimed(new DefaultMQPushConsumer(signing("user")));
        consumer.setConsumerGroup(group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(2);
        consumer.setConsumeThreadMax(2);
        return consumer;
    }

    DefaultMQPullConsumer pullConsumer() throws MQClientException {
        DefaultMQPullConsumer consumer = aimed(new DefaultMQPullConsumer("java-readers-" + name, signing("user")));
        consumer.start();
        return consumer;
    }

    String brokerAddress() throws Exception {
        var brokers = admin.examineBrokerClusterInfo().getBrokerAddrTable();
        return brokers.values().iterator().next().getBrokerAddrs().get(0L);
    }

    /** Make a topic, and wait until the name server leads to it. */
    void createTopic(String topic, int queues) throws Exception {
        TopicConfig config = new TopicConfig(topic);
        config.setReadQueueNums(queues);
        config.setWriteQueueNums(queues);
        admin.createAndUpdateTopicConfig(brokerAddress(), config);
        awaitRoute(topic);
    }

    void awaitRoute(String topic) throws Exception {
        await("the route of " + topic, () -> {
            try {
                return !admin.examineTopicRouteInfo(topic).getQueueDatas().isEmpty();
            } catch (MQClientException error) {
                return false;
            }
        });
    }

    Message message(int number) {
        byte[] body = ("body-" + number).getBytes(StandardCharsets.UTF_8);
        Message message = new Message(topic(), "Tag" + (char) ('A' + number % 3), "key-" + number, body);
        message.putUserProperty("number", String.valueOf(number));
        return message;
    }

    // -- reading ---------------------------------------------------------------------------------

    /** Wait until a topic holds so many messages, then tell every one of them. */
    void readAll(String topic, int count) throws Exception {
        awaitRoute(topic);
        DefaultMQPullConsumer reader = pullConsumer();
        List<MessageQueue> queues = new ArrayList<>(new TreeSet<>(reader.fetchSubscribeMessageQueues(topic)));
        await(count + " messages in " + topic, () -> {
            long held = 0;
            for (MessageQueue queue : queues) {
                held += reader.maxOffset(queue);
            }
            return held >= count;
        });
        for (MessageQueue queue : queues) {
            readQueue(reader, queue);
        }
        reader.shutdown();
    }

    private void readQueue(DefaultMQPullConsumer reader, MessageQueue queue)
            throws MQClientException, MQBrokerException, RemotingException, InterruptedException {
        long end = reader.maxOffset(queue);
        for (long offset = reader.minOffset(queue); offset < end; ) {
            var result = reader.pull(queue, "*", offset, READ_BATCH);
            List<MessageExt> found = result.getMsgFoundList();
            (found == null ? Collections.<MessageExt>emptyList() : found).forEach(each -> received("reader", each));
            offset = Math.max(offset + 1, result.getNextBeginOffset());
        }
    }

    void await(String what, Callable<Boolean> condition) throws Exception {
        long deadline = System.currentTimeMillis() + DEADLINE_MS;
        while (!condition.call()) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("waited too long for " + what);
            }
            Thread.sleep(POLL_MS);
        }
    }

    // -- telling ---------------------------------------------------------------------------------

    void sent(SendResult result) {
        say("sent",
                "status", result.getSendStatus(),
                "msgId", result.getMsgId(),
                "offsetMsgId", result.getOffsetMsgId(),
                "topic", result.getMessageQueue().getTopic(),
                "queueId", result.getMessageQueue().getQueueId(),
                "queueOffset", result.getQueueOffset(),
                "regionId", result.getRegionId());
    }

    void received(String by, MessageExt message) {
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        say("received",
                "by", by,
                "topic", message.getTopic(),
                "body", new String(body, StandardCharsets.UTF_8),
                "tags", message.getTags(),
                "keys", message.getKeys(),
                "msgId", message.getMsgId(),
                "offsetMsgId", ((MessageClientExt) message).getOffsetMsgId(),
                "queueId", message.getQueueId(),
                "queueOffset", message.getQueueOffset(),
                "reconsumeTimes", message.getReconsumeTimes(),
                "bornTimestamp", message.getBornTimestamp(),
                "storeTimestamp", message.getStoreTimestamp(),
                "at", System.currentTimeMillis(),
                "properties", new TreeMap<>(message.getProperties()));
    }

    void say(String kind, Object... pairs) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("scenario", name);
        line.put("kind", kind);
        for (int i = 0; i < pairs.length; i += 2) {
            line.put((String) pairs[i], pairs[i + 1]);
        }
        synchronized (OUT) {
            OUT.println(Json.text(line));
            OUT.flush();
        }
    }
}
