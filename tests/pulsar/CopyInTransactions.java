import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.transaction.Transaction;
import org.apache.pulsar.client.impl.auth.AuthenticationBasic;

/** Copies messages, some in each transaction, and aborts every third: SERVICE USER FROM TO MESSAGES EACH. */
public class CopyInTransactions {
    public static void main(String[] args) throws Exception {
        AuthenticationBasic login = new AuthenticationBasic();
        login.configure("{\"userId\": \"" + args[1] + "\", \"password\": \"any\"}");
        int messages = Integer.parseInt(args[4]);
        int each = Integer.parseInt(args[5]);
        try (PulsarClient client = PulsarClient.builder().serviceUrl("pulsar://" + args[0]).authentication(login)
                        .enableTransaction(true).build();
                Consumer<byte[]> from = client.newConsumer().topic(args[2]).subscriptionName("copies")
                        .subscriptionType(SubscriptionType.Shared).enableBatchIndexAcknowledgment(true)
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
                Producer<byte[]> to = client.newProducer().topic(args[3]).sendTimeout(0, TimeUnit.SECONDS).create()) {
            long begun = System.nanoTime();
            int copied = 0;
            for (int number = 1; copied < messages; number++) {
                Transaction transaction = client.newTransaction()
                        .withTransactionTimeout(60, TimeUnit.SECONDS).build().get();
                int taken = 0;
                while (taken < Math.min(each, messages - copied)) {
                    Message<byte[]> message = from.receive(20, TimeUnit.SECONDS);
                    if (message == null) {
                        throw new IllegalStateException("nothing came after " + copied + " and " + taken);
                    }
                    to.newMessage(transaction).value(message.getValue()).sendAsync();
                    from.acknowledgeAsync(message.getMessageId(), transaction);
                    taken++;
                }
                boolean aborts = number % 3 == 0;
                (aborts ? transaction.abort() : transaction.commit()).get();
                copied += aborts ? 0 : taken;
                long tookMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - begun);
                System.out.println((aborts ? "aborted " : "committed ") + taken + " " + tookMs);
            }
        }
        System.exit(0);
    }
}
