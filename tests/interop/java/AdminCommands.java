import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs many commands of the official mqadmin in one process.
 *
 * <p>Standard input: one JSON list of arguments a line. Standard output: for each of them one line,
 * an object whose "output" is what the command has printed.
 */
public final class AdminCommands {
    private AdminCommands() {}

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader lines =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] command = JSON.parseArray(line).toArray(new String[0]);
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream captured = new PrintStream(printed, true, StandardCharsets.UTF_8);
            System.setOut(captured);
            System.setErr(captured);
            MQAdminStartup.main0(command, null);
            JSONObject answer = new JSONObject();
            answer.put("output", printed.toString(StandardCharsets.UTF_8));
            answers.println(answer.toJSONString());
        }
        // The tools leave threads behind that are no daemons.
        System.exit(0);
    }
}
