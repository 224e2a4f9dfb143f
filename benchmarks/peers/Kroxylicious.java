import io.kroxylicious.proxy.KafkaProxy;
import io.kroxylicious.proxy.config.ConfigParser;
import io.kroxylicious.proxy.internal.config.Features;
import java.nio.file.Files;
import java.nio.file.Path;

/** Runs Kroxylicious with the configuration in a file, as its own command does, which is not on Maven Central. */
public final class Kroxylicious {
    private Kroxylicious() {}

    public static void main(String[] words) throws Exception {
        var parser = new ConfigParser();
        var configuration = parser.parseConfiguration(Files.readString(Path.of(words[0])));
        try (var proxy = new KafkaProxy(parser, configuration, Features.defaultFeatures())) {
            proxy.startup();
            proxy.block();
        }
    }
}
