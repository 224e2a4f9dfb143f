import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;

/** Creates topics: BOOTSTRAP CLIENT_ID RETRY(true|false) NAME=PARTITIONS... and prints what became of them. */
public class CreateTopics {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        properties.put("client.id", args[1]);
        try (Admin admin = Admin.create(properties)) {
            List<NewTopic> topics = new ArrayList<>();
            for (int i = 3; i < args.length; i++) {
                String[] part = args[i].split("=");
                topics.add(new NewTopic(part[0], Optional.of(Integer.parseInt(part[1])), Optional.of((short) 1)));
            }
            CreateTopicsOptions options = new CreateTopicsOptions();
            options.retryOnQuotaViolation(Boolean.parseBoolean(args[2]));
            long begun = System.nanoTime();
            var answer = admin.createTopics(topics, options);
            for (NewTopic topic : topics) {
                try {
                    answer.values().get(topic.name()).get();
                    System.out.println(topic.name() + " ok");
                } catch (Exception failure) {
                    if (failure.getCause() instanceof ThrottlingQuotaExceededException) {
                        var throttled = (ThrottlingQuotaExceededException) failure.getCause();
                        System.out.println(topic.name() + " throttled " + throttled.throttleTimeMs());
                    } else {
                        System.out.println(topic.name() + " failed " + failure.getCause());
                    }
                }
            }
            System.out.println("took " + (System.nanoTime() - begun) / 1000000);
        }
    }
}
