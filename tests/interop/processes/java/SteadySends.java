import com.alibaba.fastjson2.JSONObject;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/** One producer that sends from several threads, each one message an interval, until it is told to stop. */
final class SteadySends {
    static class Run {
        volatile boolean isStopped;
        final List<Thread> threads = new ArrayList<>();
        final List<Map<String, Object>> failures = Collections.synchronizedList(new ArrayList<>());
        final List<String> acknowledged = Collections.synchronizedList(new ArrayList<>());
        long longestMs;

        synchronized void took(long ms) {
            longestMs = Math.max(longestMs, ms);
        }
    }

    static final Map<String, Run> RUNS = new HashMap<>();

    private SteadySends() {
    }

    static void register() {
        Driver.HANDLERS.put("steadyStart", SteadySends::start);
        Driver.HANDLERS.put("steadyCount", SteadySends::count);
        Driver.HANDLERS.put("steadyStop", SteadySends::stop);
    }

    static Object start(JSONObject request) {
        DefaultMQProducer producer = Driver.client(request).producer;
        Run run = new Run();
        for (int i = 0; i < request.getIntValue("threads"); i++) {
            int number = i;
            Thread thread = new Thread(() -> send(run, producer, request, number));
            run.threads.add(thread);
            thread.start();
        }
        RUNS.put(request.getString("name"), run);
        return true;
    }

    private static void send(Run run, DefaultMQProducer producer, JSONObject request, int thread) {
        int interval = request.getIntValue("intervalMs");
        for (int i = 0; !run.isStopped; i++) {
            String body = thread + "|" + i;
            long began = System.currentTimeMillis();
            try {
                SendStatus status = producer.send(new Message(request.getString("topic"), body.getBytes())).getSendStatus();
                if (status == SendStatus.SEND_OK) {
                    run.acknowledged.add(body);
                } else {
                    run.failures.add(Map.of("atMs", began, "error", String.valueOf(status)));
                }
            } catch (Exception e) {
                run.failures.add(Map.of("atMs", began, "error", String.valueOf(e)));
            }
            long took = System.currentTimeMillis() - began;
            run.took(took);
            try {
                Thread.sleep(Math.max(0, interval - took));
            } catch (InterruptedException e) {
                return;
            }
        }
    }

    /** So many were acknowledged until now. */
    static Object count(JSONObject request) {
        return RUNS.get(request.getString("name")).acknowledged.size();
    }

    static Object stop(JSONObject request) throws Exception {
        Run run = RUNS.remove(request.getString("name"));
        run.isStopped = true;
        for (Thread thread : run.threads) {
            thread.join();
        }
        return Map.of("acknowledged", run.acknowledged, "failures", run.failures, "longestMs", run.longestMs);
    }
}
