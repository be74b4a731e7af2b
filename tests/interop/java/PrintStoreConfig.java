import java.util.TreeMap;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** Prints the defaults of the store's settings, one "key=value" a line, as a broker reports them. */
public final class PrintStoreConfig {
    public static void main(String[] arguments) {
        new TreeMap<>(MixAll.object2Properties(new MessageStoreConfig()))
                .forEach((key, value) -> System.out.println(key + "=" + value));
    }
}
