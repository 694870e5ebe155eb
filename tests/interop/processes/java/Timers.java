import com.alibaba.fastjson2.JSONObject;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** Messages with a delivery time, and taking them back. */
final class Timers {
    private Timers() {
    }

    static void register() {
        Driver.HANDLERS.put("sendTimed", Timers::send);
        Driver.HANDLERS.put("recall", Timers::recall);
    }

    /** One message a delay; kinds in turn: delay in ms, moment, delay in seconds. */
    static Object send(JSONObject request) throws Exception {
        DefaultMQProducer producer = Driver.client(request).producer;
        List<Object> rows = new ArrayList<>();
        int number = 0;
        for (Object value : request.getJSONArray("delaysMs")) {
            long delay = ((Number) value).longValue();
            long now = System.currentTimeMillis();
            String body = String.valueOf(now + delay);
            Message message = new Message(request.getString("topic"), body.getBytes());
            if (number % 3 == 0) {
                message.setDelayTimeMs(delay);
            } else if (number % 3 == 1) {
                message.setDeliverTimeMs(now + delay);
            } else {
                message.setDelayTimeSec(delay / 1000);
            }
            number++;
            SendResult result = producer.send(message);
            rows.add(Map.of("msgId", result.getMsgId(), "recallHandle", String.valueOf(result.getRecallHandle())));
        }
        return rows;
    }

    static Object recall(JSONObject request) throws Exception {
        return Driver.client(request).producer.recallMessage(request.getString("topic"), request.getString("handle"));
    }
}
