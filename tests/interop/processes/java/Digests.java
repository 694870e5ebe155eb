// One number for all that a Java consumer receives of a queue, so that millions of messages can be compared.
import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

class Digests {
    static void register() {
        Driver.HANDLERS.put("digests", Digests::of);
    }

    /** Queue id → number of messages and SHA-256 over them, of a whole topic, by DefaultMQPullConsumer. */
    static Object of(JSONObject request) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(request.getString("group"));
        Driver.servers(consumer, request);
        consumer.setVipChannelEnabled(false);
        consumer.start();
        Map<String, Object> found = new HashMap<>();
        try {
            for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(request.getString("topic"))) {
                MessageDigest digest = MessageDigest.getInstance("SHA-256");
                long count = 0;
                long offset = 0;
                for (long end = consumer.maxOffset(queue); offset < end; ) {
                    PullResult pulled = consumer.pull(queue, "*", offset, 1024);
                    if (pulled.getPullStatus() == PullStatus.FOUND) {
                        for (MessageExt message : pulled.getMsgFoundList()) {
                            digest.update(line(message).getBytes(StandardCharsets.UTF_8));
                            digest.update(message.getBody());
                            count++;
                        }
                    }
                    offset = pulled.getNextBeginOffset();
                }
                String hex = HexFormat.of().formatHex(digest.digest());
                found.put(String.valueOf(queue.getQueueId()), List.of(count, hex));
            }
        } finally {
            consumer.shutdown();
        }
        return found;
    }

    static String line(MessageExt m) {
        return String.join("|", String.valueOf(m.getQueueOffset()), String.valueOf(m.getBornTimestamp()),
            String.valueOf(m.getStoreTimestamp()), m.getMsgId(), String.valueOf(m.getTags()), String.valueOf(m.getKeys()),
            String.valueOf(m.getUserProperty("n")), String.valueOf(m.getBody().length)) + "\n";
    }
}
