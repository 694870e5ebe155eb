import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.parser.SelectorParser;

/** Lines of base64 texts in: an expression and texts of properties. Out: X (refused), or T F N E of each. */
public class Answers {
    private static String text(String base64) {
        return new String(Base64.getDecoder().decode(base64), StandardCharsets.UTF_8);
    }

    private static String answer(Expression expression, Map<String, String> properties) {
        try {
            Object value = expression.evaluate(new EvaluationContext() {
                public Object get(String name) {
                    return properties.get(name);
                }

                public Map<String, Object> keyValues() {
                    return new HashMap<>(properties);
                }
            });
            return value == null ? "N" : (Boolean) value ? "T" : "F";
        } catch (Throwable error) {
            return "E";
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split(" ", -1);
            Expression expression;
            try {
                expression = SelectorParser.parse(text(parts[0]));
            } catch (Throwable error) {
                System.out.println("X");
                continue;
            }
            StringBuilder out = new StringBuilder();
            for (int i = 1; i < parts.length; i++) {
                out.append(answer(expression, MessageDecoder.string2messageProperties(text(parts[i]))));
            }
            System.out.println(out);
        }
    }
}
