import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;

/**
 * Evaluates SQL92 expressions on properties as a broker does.
 *
 * <p>It reads one JSON object a line, with "expression" and "properties", and prints one a line:
 * "outcome" is VALUE (then "value" and its "type" are there), COMPILE_ERROR or EVALUATION_ERROR
 * (then "message" is there).
 */
public final class EvaluateFilter {
    public static void main(String[] arguments) throws IOException {
        BufferedReader asked =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = asked.readLine(); line != null; line = asked.readLine()) {
            JSONObject pair = JSON.parseObject(line);
            Map<String, String> properties = new HashMap<>();
            pair.getJSONObject("properties")
                    .forEach((name, value) -> properties.put(name, (String) value));
            answers.println(judge(pair.getString("expression"), properties));
        }
        answers.flush();
    }

    private static JSONObject judge(String text, Map<String, String> properties) {
        Expression compiled;
        try {
            compiled = FilterFactory.INSTANCE.get("SQL92").compile(text);
        } catch (Throwable error) {
            return failed("COMPILE_ERROR", error);
        }
        try {
            Object value = compiled.evaluate(new MessageEvaluationContext(properties));
            JSONObject answer = new JSONObject().fluentPut("outcome", "VALUE");
            if (value != null) {
                answer.fluentPut("value", value.toString());
                answer.fluentPut("type", value.getClass().getSimpleName());
            }
            return answer;
        } catch (Throwable error) {
            return failed("EVALUATION_ERROR", error);
        }
    }

    private static JSONObject failed(String outcome, Throwable error) {
        return new JSONObject()
                .fluentPut("outcome", outcome)
                .fluentPut("error", error.getClass().getSimpleName())
                .fluentPut("message", String.valueOf(error.getMessage()));
    }
}
