import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.Stores;

/**
 * Counts records by their value in each of so many stores, behind one repartition topic each.
 *
 * <p>Prints each change of its state, with the time, and ends when its input does. Arguments: bootstrap,
 * application, topic, how many stores, NAME=VALUE...
 */
public class StreamsApp {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        for (int i = 4; i < args.length; i++) {
            String[] parts = args[i].split("=", 2);
            properties.put(parts[0], parts[1]);
        }
        properties.put("bootstrap.servers", args[0]);
        properties.put("application.id", args[1]);
        properties.put("default.key.serde", Serdes.StringSerde.class);
        properties.put("default.value.serde", Serdes.StringSerde.class);
        StreamsBuilder builder = new StreamsBuilder();
        var records = builder.<String, String>stream(args[2]);
        for (int store = 0; store < Integer.parseInt(args[3]); store++) {
            records.groupBy((key, value) -> value, Grouped.as("by-" + store)).count(
                Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("count-" + store))
                    .withValueSerde(Serdes.Long()));
        }
        KafkaStreams streams = new KafkaStreams(builder.build(properties), properties);
        streams.setStateListener((now, before) ->
            System.out.printf("%d %s%n", System.currentTimeMillis(), now));
        streams.setUncaughtExceptionHandler(error -> {
            System.out.printf("%d %s%n", System.currentTimeMillis(), error);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        System.in.read();
        streams.close(Duration.ofSeconds(10));
    }
}
