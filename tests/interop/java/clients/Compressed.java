import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** Sends one message so large that the client compresses it, in the way that a flag tells it. */
final class Compressed {
    private Compressed() {}

    public static void main(String[] arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("compressing");
        producer.setNamesrvAddr(arguments[0]);
        producer.start();
        byte[] body = arguments[2].repeat(Integer.parseInt(arguments[3]))
                .getBytes(StandardCharsets.UTF_8);
        System.out.println(producer.send(new Message(arguments[1], body)).getSendStatus());
        // The client leaves threads behind that are no daemons.
        System.exit(0);
    }
}
