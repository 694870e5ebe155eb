// What Driver.java offers of the rarer kinds of message: request and reply, compression, automatic batches, priority,
// light queues, and where a new group starts.
import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

class Kinds {
    static void register() {
        Driver.HANDLERS.put("kindsProducer", Kinds::startProducer);
        Driver.HANDLERS.put("kindsSend", Kinds::send);
        Driver.HANDLERS.put("request", Kinds::request);
        Driver.HANDLERS.put("replier", Kinds::startReplier);
        Driver.HANDLERS.put("kindsConsumer", Kinds::startConsumer);
        Driver.HANDLERS.put("pullQueue", Kinds::pullQueue);
    }

    static Object startProducer(JSONObject request) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(request.getString("group"));
        Driver.servers(producer, request);
        producer.setInstanceName(request.getString("name"));
        producer.setVipChannelEnabled(false);
        producer.setSendMsgTimeout(10000);
        if (request.containsKey("compress")) {
            CompressionType type = CompressionType.of(request.getString("compress"));
            producer.setCompressType(type);
        }
        if (request.getBooleanValue("autoBatch")) {
            producer.setAutoBatch(true);
            producer.batchMaxDelayMs(50);
        }
        producer.start();
        Driver.Client client = new Driver.Client();
        client.producer = producer;
        client.close = producer::shutdown;
        Driver.CLIENTS.put(request.getString("name"), client);
        return true;
    }

    static Message message(JSONObject request, int number) {
        Message message = Driver.message(request, number);
        if (request.containsKey("priority")) {
            message.setPriority(request.getIntValue("priority"));
        }
        if (request.containsKey("keyCount")) {
            message.setKeys("key-" + number % request.getIntValue("keyCount"));
        }
        if (request.containsKey("properties")) {
            request.getJSONObject("properties").forEach((key, value) -> MessageAccessor.putProperty(message, key, String.valueOf(value)));
        }
        return message;
    }

    /** One message a call; `threads` calls at a time. */
    static Object send(JSONObject request) throws Exception {
        DefaultMQProducer producer = Driver.client(request).producer;
        List<Object> rows = Collections.synchronizedList(new ArrayList<>());
        ExecutorService pool = Executors.newFixedThreadPool(request.getIntValue("threads", 1));
        for (int i = 0; i < request.getIntValue("count"); i++) {
            int number = i;
            pool.submit(() -> {
                try {
                    rows.add(Driver.sent(producer.send(message(request, number))));
                } catch (Exception e) {
                    rows.add(Map.of("error", String.valueOf(e)));
                }
            });
        }
        pool.shutdown();
        pool.awaitTermination(60, TimeUnit.SECONDS);
        return rows;
    }

    static Object request(JSONObject request) throws Exception {
        Message message = new Message(request.getString("topic"), request.getString("body").getBytes(StandardCharsets.UTF_8));
        Message reply = Driver.client(request).producer.request(message, 20000);
        return new String(reply.getBody(), StandardCharsets.UTF_8);
    }

    /** A consumer that answers every request with its body, twice. */
    static Object startReplier(JSONObject request) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("REPLIER_" + request.getString("group"));
        Driver.servers(producer, request);
        producer.setInstanceName(request.getString("name") + "-p");
        producer.setVipChannelEnabled(false);
        producer.start();
        DefaultMQPushConsumer consumer = consumer(request);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    String text = new String(message.getBody(), StandardCharsets.UTF_8);
                    producer.send(MessageUtil.createReplyMessage(message, (text + text).getBytes(StandardCharsets.UTF_8)), 5000);
                } catch (Exception e) {
                    System.err.println("reply: " + e);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Driver.Client client = new Driver.Client();
        client.close = () -> {
            consumer.shutdown();
            producer.shutdown();
        };
        Driver.CLIENTS.put(request.getString("name"), client);
        return true;
    }

    static DefaultMQPushConsumer consumer(JSONObject request) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(request.getString("group"));
        Driver.servers(consumer, request);
        consumer.setInstanceName(request.getString("name"));
        consumer.setVipChannelEnabled(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(
            (String) request.getOrDefault("from", "CONSUME_FROM_FIRST_OFFSET")));
        if (request.containsKey("timestamp")) {
            consumer.setConsumeTimestamp(UtilAll.timeMillisToHumanString3(request.getLongValue("timestamp")));
        }
        consumer.subscribe(request.getString("topic"), "*");
        return consumer;
    }

    static Object startConsumer(JSONObject request) throws Exception {
        Driver.Client client = new Driver.Client();
        DefaultMQPushConsumer consumer = consumer(request);
        if (request.getBooleanValue("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(message -> client.received.add(Driver.row(message)));
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(message -> client.received.add(Driver.row(message)));
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        client.close = consumer::shutdown;
        Driver.CLIENTS.put(request.getString("name"), client);
        return true;
    }

    /** Everything of one queue by name; light queues have no route, so their broker's is asked for with `route`. */
    static Object pullQueue(JSONObject request) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(request.getString("group"));
        Driver.servers(consumer, request);
        consumer.setInstanceName(request.getString("name"));
        consumer.setVipChannelEnabled(false);
        consumer.start();
        List<Object> rows = new ArrayList<>();
        try {
            consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory()
                .updateTopicRouteInfoFromNameServer(request.getString("route"));
            MessageQueue queue = new MessageQueue(request.getString("topic"), request.getString("broker"), 0);
            long offset = 0;
            while (true) {
                PullResult result = consumer.pull(queue, "*", offset, 32);
                if (result.getMsgFoundList() == null) {
                    return rows;
                }
                result.getMsgFoundList().forEach(message -> rows.add(Driver.row(message)));
                offset = result.getNextBeginOffset();
            }
        } finally {
            consumer.shutdown();
        }
    }
}
