import java.util.Arrays;
import java.util.Scanner;
import org.apache.kafka.common.utils.Exit;

/** Runs the commands of Kafka that it reads, `NAME ARGUMENT...` a line, and ends with the first that fails. */
public class Tools {
    public static void main(String[] args) throws Exception {
        Exit.setExitProcedure((status, message) -> {
            if (status != 0) throw new IllegalStateException("status " + status + ": " + message);
        });
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().trim().split("\\s+");
            String[] rest = Arrays.copyOfRange(words, 1, words.length);
            switch (words[0]) {
                case "kafka-acls": org.apache.kafka.tools.AclCommand.main(rest); break;
                case "kafka-configs": kafka.admin.ConfigCommand.main(rest); break;
                case "kafka-topics": org.apache.kafka.tools.TopicCommand.main(rest); break;
                default: throw new IllegalArgumentException(words[0]);
            }
        }
    }
}
