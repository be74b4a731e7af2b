import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

/** One member of a consumer group, which tells the queue, offset and body of what it gets. */
final class Member {
    private Member() {}

    public static void main(String[] arguments) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(arguments[1]);
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        // How soon it notices that a broker has gone or is back, in milliseconds.
        int interval = Integer.getInteger("member.interval", 30_000);
        consumer.setPollNameServerInterval(interval);
        consumer.setHeartbeatBrokerInterval(interval);
        consumer.subscribe(arguments[2], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(each -> System.out.println(Json.text(Map.of(
                    "kind", "got",
                    "queueId", each.getQueueId(),
                    "queueOffset", each.getQueueOffset(),
                    "body", new String(each.getBody(), StandardCharsets.UTF_8)))));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        // The JVM may only be killed, so that is how the group loses this member cleanly.
        Runtime.getRuntime().addShutdownHook(new Thread(consumer::shutdown));
        consumer.start();
        System.out.println("member started");
    }
}
