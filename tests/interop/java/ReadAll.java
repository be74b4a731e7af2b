import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.ResponseCode;

/**
 * Reads a broker through the official client.
 *
 * <p>Argument: the name server. Standard input: {"topics": [...], "queries": [{"topic", "key"}]}.
 * Standard output: one JSON object a line, of kind "queue", "message" or "query"; then "end".
 */
@SuppressWarnings("deprecation") // Only the old pull consumer reads queues without a group's help.
public final class ReadAll {
    private static final int BATCH = 32;
    private static final int QUERY_MAX = 64;
    /** What the client itself adds to every message it pulled. */
    private static final List<String> ADDED_BY_CLIENT = List.of("MIN_OFFSET", "MAX_OFFSET");

    private final PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    private final DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("flintmq-interop");

    public static void main(String[] arguments) throws Exception {
        byte[] input = System.in.readAllBytes();
        JSONObject request = JSON.parseObject(new String(input, StandardCharsets.UTF_8));
        ReadAll reader = new ReadAll();
        reader.consumer.setNamesrvAddr(arguments[0]);
        reader.consumer.setVipChannelEnabled(false);
        reader.consumer.start();
        try {
            for (Object topic : request.getJSONArray("topics")) {
                reader.readTopic((String) topic);
            }
            JSONArray queries = request.getJSONArray("queries");
            for (int i = 0; i < queries.size(); i++) {
                reader.query(queries.getJSONObject(i));
            }
            reader.print("end", new JSONObject(true));
            reader.out.flush();
        } finally {
            reader.consumer.shutdown();
        }
        // The client leaves threads behind that are no daemons.
        System.exit(0);
    }

    private void readTopic(String topic) throws Exception {
        for (MessageQueue queue : new TreeSet<>(consumer.fetchSubscribeMessageQueues(topic))) {
            long min = consumer.minOffset(queue);
            long max = consumer.maxOffset(queue);
            JSONObject line = new JSONObject(true);
            line.put("topic", topic);
            line.put("queueId", queue.getQueueId());
            line.put("min", min);
            line.put("max", max);
            print("queue", line);
            readQueue(queue, min, max);
        }
    }

    private void readQueue(MessageQueue queue, long min, long max) throws Exception {
        long offset = min;
        while (offset < max) {
            PullResult result = consumer.pull(queue, "*", offset, BATCH);
            List<MessageExt> found = result.getMsgFoundList();
            for (MessageExt message : found == null ? new ArrayList<MessageExt>() : found) {
                print("message", describe(message));
            }
            if (result.getNextBeginOffset() <= offset) {
                throw new IllegalStateException(queue + " stuck at " + offset + ": " + result);
            }
            offset = result.getNextBeginOffset();
        }
    }

    private void query(JSONObject query) throws Exception {
        String topic = query.getString("topic");
        String key = query.getString("key");
        List<Long> offsets = new ArrayList<>();
        try {
            QueryResult result = consumer.queryMessage(topic, key, QUERY_MAX, 0, Long.MAX_VALUE);
            for (MessageExt message : result.getMessageList()) {
                offsets.add(message.getCommitLogOffset());
            }
        } catch (MQClientException error) {
            // The client has no other way to say that it found nothing.
            if (error.getResponseCode() != ResponseCode.NO_MESSAGE) {
                throw error;
            }
        }
        JSONObject line = new JSONObject(true);
        line.put("topic", topic);
        line.put("key", key);
        line.put("offsets", offsets);
        print("query", line);
    }

    private static JSONObject describe(MessageExt message) throws Exception {
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        TreeMap<String, String> properties = new TreeMap<>(message.getProperties());
        ADDED_BY_CLIENT.forEach(properties::remove);
        JSONObject line = new JSONObject(true);
        line.put("physicalOffset", message.getCommitLogOffset());
        line.put("size", message.getStoreSize());
        line.put("topic", message.getTopic());
        line.put("queueId", message.getQueueId());
        line.put("queueOffset", message.getQueueOffset());
        line.put("sysFlag", message.getSysFlag());
        line.put("flag", message.getFlag());
        line.put("bornTimestamp", message.getBornTimestamp());
        line.put("bornHost", describe((InetSocketAddress) message.getBornHost()));
        line.put("storeTimestamp", message.getStoreTimestamp());
        line.put("storeHost", describe((InetSocketAddress) message.getStoreHost()));
        line.put("reconsumeTimes", message.getReconsumeTimes());
        line.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        line.put("bodyCRC", message.getBodyCRC());
        line.put("bodyLength", body.length);
        byte[] digest = MessageDigest.getInstance("SHA-256").digest(body);
        line.put("bodySha256", UtilAll.bytes2string(digest).toLowerCase());
        line.put("properties", properties);
        line.put("msgId", ((MessageClientExt) message).getOffsetMsgId());
        return line;
    }

    private static String describe(InetSocketAddress address) {
        String host = address.getAddress().getHostAddress();
        return (host.contains(":") ? "[" + host + "]" : host) + ":" + address.getPort();
    }

    private void print(String kind, JSONObject line) {
        line.put("kind", kind);
        out.println(JSON.toJSONString(line, SerializerFeature.WriteMapNullValue));
    }
}
