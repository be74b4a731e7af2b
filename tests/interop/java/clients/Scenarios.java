import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * Runs scenarios of the official client against a cluster.
 *
 * <p>Arguments: the name server, then scenarios by name. Standard output: one JSON object a line
 * with "scenario" and "kind"; the last line of a scenario is of kind "end" or "failed". Judging
 * what was said is left to the reader.
 */
public final class Scenarios {
    private static final int AT_ONCE = 6;
    private static final int MINUTES_MAX = 5;

    @FunctionalInterface
    interface Scenario {
        void run(Session session) throws Exception;
    }

    /** Those that mostly wait stand first. */
    private static final Map<String, Scenario> ALL = new LinkedHashMap<>();

    static {
        ALL.put("admin-groups", Administration::groups);
        ALL.put("retry", Consuming::retry);
        ALL.put("transaction", Transactions::run);
        ALL.put("rebalance", Consuming::rebalance);
        ALL.put("delayed", Sending::delayed);
        ALL.put("timed", Sending::timed);
        ALL.put("sync", Sending::sync);
        ALL.put("async", Sending::async);
        ALL.put("oneway", Sending::oneway);
        ALL.put("batch", Sending::batch);
        ALL.put("auto-created", Sending::autoCreated);
        ALL.put("refused", Sending::refused);
        ALL.put("request-reply", Replies::run);
        ALL.put("query", Queries::run);
        ALL.put("push", Consuming::push);
        ALL.put("sql", Consuming::sql);
        ALL.put("orderly", Consuming::orderly);
        ALL.put("broadcast", Consuming::broadcast);
        ALL.put("lite-pull", Consuming::litePull);
        ALL.put("pull", Consuming::pull);
        ALL.put("admin-topics", Administration::topics);
        ALL.put("admin-broker", Administration::broker);
        ALL.put("access", Access::run);
        ALL.put("access-later", Access::later);
        ALL.put("history-written", History::write);
        ALL.put("history-continued", History::continued);
        ALL.put("load", Load::run);
    }

    public static void main(String[] arguments) throws Exception {
        String namesrv = arguments[0];
        List<String> names = Arrays.asList(arguments).subList(1, arguments.length);
        var admin = Session.startAdmin(namesrv);
        ExecutorService pool = Executors.newFixedThreadPool(AT_ONCE);
        ALL.forEach((name, scenario) -> {
            if (names.contains(name)) {
                pool.execute(() -> run(scenario, new Session(name, namesrv, admin)));
            }
        });
        pool.shutdown();
        boolean done = pool.awaitTermination(MINUTES_MAX, TimeUnit.MINUTES);
        // The client leaves threads behind that are no daemons.
        System.exit(done ? 0 : 1);
    }

    private static void run(Scenario scenario, Session session) {
        long start = System.currentTimeMillis();
        try {
            scenario.run(session);
            session.say("end", "millis", System.currentTimeMillis() - start);
        } catch (Throwable error) {
            StringWriter trace = new StringWriter();
            error.printStackTrace(new PrintWriter(trace));
            session.say("failed", "error", trace.toString());
        }
    }
}
