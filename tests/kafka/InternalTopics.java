import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage.TopicMetadata;
import org.apache.kafka.coordinator.group.streams.StreamsTopology;
import org.apache.kafka.coordinator.group.streams.topics.InternalTopicManager;
import org.slf4j.helpers.NOPLogger;

/**
 * What a broker's own coordinator would make of the topologies of heartbeats: NAME=PARTITIONS of each, by name.
 *
 * <p>Reads a heartbeat's body a line, in hex; arguments: the topics that are there, NAME=PARTITIONS...
 */
public class InternalTopics {
    public static void main(String[] args) throws Exception {
        TreeMap<String, Integer> there = new TreeMap<>();
        for (String arg : args) {
            there.put(arg.split("=")[0], Integer.valueOf(arg.split("=")[1]));
        }
        CoordinatorMetadataImage image = as(CoordinatorMetadataImage.class, name ->
            Optional.ofNullable(there.get(name)).map(count -> as(TopicMetadata.class, unused -> count)));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            TreeMap<String, Integer> made = new TreeMap<>();
            try {
                ByteBuffer body = ByteBuffer.wrap(HexFormat.of().parseHex(line));
                var heartbeat = new StreamsGroupHeartbeatRequestData(new ByteBufferAccessor(body), (short) 0);
                InternalTopicManager.configureTopics(NOPLogger.NOP_LOGGER, "g", "m", 0,
                    StreamsTopology.fromHeartbeatRequest(heartbeat.topology()), image, Time.SYSTEM
                ).internalTopicsToBeCreated().forEach((name, topic) -> made.put(name, topic.numPartitions()));
            } catch (RuntimeException refused) {
                made.clear();
            }
            System.out.println(String.join(" ",
                made.entrySet().stream().map(each -> each.getKey() + "=" + each.getValue()).toList()));
        }
    }

    /** Says the same whatever it is asked. */
    private static <T> T as(Class<T> kind, java.util.function.Function<Object, Object> said) {
        return kind.cast(Proxy.newProxyInstance(kind.getClassLoader(), new Class<?>[] {kind},
            (proxy, method, args) -> said.apply(args == null ? null : args[0])));
    }
}
