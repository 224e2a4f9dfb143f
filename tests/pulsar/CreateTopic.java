import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.impl.auth.AuthenticationBasic;

/** Makes a producer or consumer of each topic: SERVICE USER producer|consumer NAME..., prints what became of it. */
public class CreateTopic {
    public static void main(String[] args) throws Exception {
        AuthenticationBasic login = new AuthenticationBasic();
        login.configure(Map.of("userId", args[1], "password", "any"));
        PulsarClient built = PulsarClient.builder().serviceUrl("pulsar://" + args[0]).authentication(login).build();
        try (PulsarClient client = built) {
            for (int i = 3; i < args.length; i++) {
                long begun = System.nanoTime();
                String outcome = "ok";
                try {
                    if (args[2].equals("producer")) {
                        client.newProducer().topic(args[i]).create().close();
                    } else {
                        client.newConsumer().topic(args[i]).subscriptionName("s").subscribe().close();
                    }
                } catch (PulsarClientException failure) {
                    outcome = failure.getClass().getSimpleName() + " " + failure.getMessage().replace("\n", " ");
                }
                System.out.println(args[i] + " " + TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - begun) + " " + outcome);
            }
        }
        System.exit(0);
    }
}
