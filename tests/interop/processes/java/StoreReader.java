// Opens a store directory with RocketMQ's own DefaultMessageStore, lets it recover, and prints what it then holds as one
// JSON object: {"aborted", "minPhysicalOffset", "maxPhysicalOffset", "queues": [{topic, queueId, minOffset, maxOffset}],
// "messages": [{topic, queueId, queueOffset, physicalOffset, body (base64), keys, uniqKey, tags, foundByKey}]}.
// usage: StoreReader STORE_DIR [key=value …]
import com.alibaba.fastjson2.JSON;
import java.io.File;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

public class StoreReader {
    static DefaultMessageStore store;

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.setProperty("storePathRootDir", args[0]);
        settings.setProperty("storePathCommitLog", args[0] + "/commitlog");
        settings.setProperty("haListenPort", "0");
        settings.setProperty("timerWheelEnable", "false");
        for (int i = 1; i < args.length; i++) {
            settings.setProperty(args[i].split("=", 2)[0], args[i].split("=", 2)[1]);
        }
        MessageStoreConfig storeConfig = new MessageStoreConfig();
        BrokerConfig brokerConfig = new BrokerConfig();
        MixAll.properties2Object(settings, storeConfig);
        MixAll.properties2Object(settings, brokerConfig);
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("aborted", new File(args[0], "abort").exists());
        store = new DefaultMessageStore(storeConfig, new BrokerStatsManager("reader", false), null, brokerConfig, new ConcurrentHashMap<>());
        answer.put("loaded", store.load());
        store.start();
        for (int i = 0; i < 600 && storeConfig.isEnableDLegerCommitLog() && store.getMaxPhyOffset() <= 0; i++) {
            Thread.sleep(50); // a member knows its end when it has elected itself, and dispatches then
        }
        for (int calm = 0; calm < 5; calm = store.dispatchBehindBytes() <= 0 ? calm + 1 : 0) {
            Thread.sleep(50);
        }
        answer.put("minPhysicalOffset", store.getMinPhyOffset());
        answer.put("maxPhysicalOffset", store.getMaxPhyOffset());
        List<Object> queues = new ArrayList<>();
        List<Object> messages = new ArrayList<>();
        for (Map.Entry<String, ? extends Map<Integer, ConsumeQueueInterface>> topic : store.getConsumeQueueTable().entrySet()) {
            for (ConsumeQueueInterface queue : topic.getValue().values()) {
                queues.add(Map.of("topic", topic.getKey(), "queueId", queue.getQueueId(),
                    "minOffset", queue.getMinOffsetInQueue(), "maxOffset", queue.getMaxOffsetInQueue()));
                readQueue(topic.getKey(), queue, messages);
            }
        }
        answer.put("queues", queues);
        answer.put("messages", messages);
        store.shutdown();
        System.out.println("@@" + JSON.toJSONString(answer));
        System.exit(0);
    }

    static void readQueue(String topic, ConsumeQueueInterface queue, List<Object> messages) throws Exception {
        long offset = queue.getMinOffsetInQueue();
        while (offset < queue.getMaxOffsetInQueue()) {
            GetMessageResult result = store.getMessage("reader", topic, queue.getQueueId(), offset, 256, null);
            if (result.getMessageCount() == 0 && result.getNextBeginOffset() <= offset) {
                break;
            }
            for (ByteBuffer buffer : result.getMessageBufferList()) {
                messages.add(row(MessageDecoder.decode(buffer)));
            }
            offset = result.getNextBeginOffset();
            result.release();
        }
    }

    static Map<String, Object> row(MessageExt message) throws Exception {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("topic", message.getTopic());
        row.put("queueId", message.getQueueId());
        row.put("queueOffset", message.getQueueOffset());
        row.put("physicalOffset", message.getCommitLogOffset());
        row.put("body", Base64.getEncoder().encodeToString(message.getBody()));
        row.put("tags", message.getTags());
        row.put("keys", message.getKeys());
        row.put("uniqKey", message.getProperty("UNIQ_KEY"));
        boolean found = message.getKeys() != null;
        if (found) {
            for (String key : message.getKeys().split(" ")) {
                found &= foundByKey(message, key);
            }
        }
        row.put("foundByKey", found);
        return row;
    }

    static boolean foundByKey(MessageExt message, String key) throws Exception {
        QueryMessageResult result = store.queryMessage(message.getTopic(), key, 64, 0, Long.MAX_VALUE);
        boolean found = false;
        for (ByteBuffer buffer : result.getMessageBufferList()) {
            found |= buffer.getLong(buffer.position() + 28) == message.getCommitLogOffset();
        }
        result.release();
        return found;
    }
}
