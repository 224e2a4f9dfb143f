import java.io.FileReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** client.go with Kafka's own client; PROPERTIES is a file of Kafka's. */
public class Client {
    private static final List<Integer> codes = new ArrayList<>();
    private static final List<Long> offsets = new ArrayList<>();
    private static double throttleMs = 0;

    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        try (FileReader file = new FileReader(args[0])) {
            properties.load(file);
        }
        switch (args[1]) {
            case "create" -> create(properties, List.of(args).subList(2, args.length));
            case "produce" -> produce(properties, args[2], Integer.parseInt(args[3]), Integer.parseInt(args[4]));
            case "consume" -> consume(properties, args[2], args[3], Integer.parseInt(args[4]));
            default -> throw new IllegalArgumentException(args[1]);
        }
        System.out.printf("{\"codes\":%s,\"offsets\":%s,\"throttle_ms\":%d}%n", codes, offsets, (long) throttleMs);
    }

    private static void create(Properties properties, List<String> words) throws Exception {
        List<NewTopic> topics = new ArrayList<>();
        for (String word : words) {
            String[] part = word.split("=");
            topics.add(new NewTopic(part[0], Optional.of(Integer.parseInt(part[1])), Optional.of((short) 1)));
        }
        try (Admin admin = Admin.create(properties)) {
            var options = new CreateTopicsOptions().retryOnQuotaViolation(false);
            for (Future<Void> answer : admin.createTopics(topics, options).values().values()) {
                note(answer);
            }
        }
    }

    private static void produce(Properties properties, String topic, int count, int size) throws Exception {
        var text = new StringSerializer();
        try (var producer = new KafkaProducer<>(properties, text, text)) {
            List<Future<?>> answers = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                answers.add(producer.send(new ProducerRecord<>(topic, String.format("%0" + size + "d", i))));
            }
            for (Future<?> answer : answers) {
                note(answer);
            }
            throttled(producer.metrics(), "produce-throttle-time-max");
        }
    }

    private static void consume(Properties properties, String topic, String group, int count) {
        properties.put("group.id", group);
        properties.put("auto.offset.reset", "earliest");
        var text = new StringDeserializer();
        try (var consumer = new KafkaConsumer<>(properties, text, text)) {
            consumer.subscribe(List.of(topic));
            while (offsets.size() < count) {
                consumer.poll(Duration.ofSeconds(1)).forEach(record -> offsets.add(record.offset()));
            }
            throttled(consumer.metrics(), "fetch-throttle-time-max");
        }
    }

    private static void note(Future<?> answer) throws Exception {
        try {
            answer.get();
            codes.add(0);
        } catch (java.util.concurrent.ExecutionException failure) {
            if (failure.getCause() instanceof ThrottlingQuotaExceededException told) {
                throttleMs = Math.max(throttleMs, told.throttleTimeMs());
            }
            codes.add((int) Errors.forException(failure.getCause()).code());
        }
    }

    private static void throttled(Map<MetricName, ? extends Metric> metrics, String name) {
        metrics.forEach((key, metric) -> {
            if (key.name().equals(name) && metric.metricValue() instanceof Double value && value > throttleMs) {
                throttleMs = value;
            }
        });
    }
}
