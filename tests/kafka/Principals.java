import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HexFormat;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/** What a broker makes of names: lines `dn HEX-OF-DER` or `rule BASE64-OF-RULES BASE64-OF-NAME`; answers in base64, `-` for an error. */
public class Principals {
    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] word = line.split(" ", -1);
            String answer;
            try {
                answer = word[0].equals("dn")
                    ? new X500Principal(HexFormat.of().parseHex(word[1])).getName()
                    : SslPrincipalMapper.fromRules(text(word[1])).getName(text(word[2]));
                answer = Base64.getEncoder().encodeToString(answer.getBytes(StandardCharsets.UTF_8));
            } catch (Exception failure) {
                answer = "-";
            }
            System.out.println(answer);
        }
    }

    private static String text(String base64) {
        return new String(Base64.getDecoder().decode(base64), StandardCharsets.UTF_8);
    }
}
