import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a share group that prints each record that it gets: when, topic, partition, offset, delivery.
 *
 * <p>Arguments: bootstrap, group, topics, how many records, for how many seconds at most, NAME=VALUE...
 */
public class ShareReader {
    public static void main(String[] args) {
        Properties properties = new Properties();
        for (int i = 5; i < args.length; i++) {
            String[] parts = args[i].split("=", 2);
            properties.put(parts[0], parts[1]);
        }
        properties.put("bootstrap.servers", args[0]);
        properties.put("group.id", args[1]);
        long count = Long.parseLong(args[3]);
        long until = System.currentTimeMillis() + 1000 * Long.parseLong(args[4]);
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaShareConsumer<>(properties, bytes, bytes)) {
            consumer.subscribe(List.of(args[2].split(",")));
            for (long read = 0; read < count && System.currentTimeMillis() < until; ) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    read++;
                    System.out.printf("%d %s %d %d %d%n", System.currentTimeMillis(), record.topic(),
                        record.partition(), record.offset(), record.deliveryCount().orElse((short) 0));
                }
            }
        }
    }
}
