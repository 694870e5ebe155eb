// RocketMQ's own Java clients behind a line protocol: one JSON request a line on standard input, one JSON answer a line
// on standard output (marked "@@"). One JVM serves many tests; a named client lives until it is closed.
import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.tools.command.MQAdminStartup;

public class Driver {
    interface Handler {
        Object handle(JSONObject request) throws Exception;
    }

    static final PrintStream ANSWERS = System.out;
    static final Map<String, Handler> HANDLERS = new HashMap<>();
    static final Map<String, Client> CLIENTS = new ConcurrentHashMap<>();

    /** A running client, what it received, and how to end it. */
    static class Client {
        DefaultMQProducer producer;
        DefaultLitePullConsumer pull;
        final List<Object> received = Collections.synchronizedList(new ArrayList<>());
        Runnable close;
    }

    public static void main(String[] args) throws Exception {
        System.setOut(new PrintStream(System.err, true, "UTF-8"));
        HANDLERS.put("producer", Driver::startProducer);
        HANDLERS.put("send", Driver::send);
        HANDLERS.put("consumer", Driver::startConsumer);
        HANDLERS.put("received", Driver::received);
        HANDLERS.put("pull", Driver::startPull);
        HANDLERS.put("poll", Driver::poll);
        HANDLERS.put("seek", Driver::seek);
        HANDLERS.put("pause", Driver::pause);
        HANDLERS.put("commit", Driver::commit);
        HANDLERS.put("queues", Driver::queues);
        HANDLERS.put("close", Driver::close);
        HANDLERS.put("mqadmin", Driver::mqadmin);
        Kinds.register();
        Digests.register();
        Pops.register();
        SteadySends.register();
        Timers.register();
        HANDLERS.put("transactionProducer", Transactions::start);
        HANDLERS.put("sendInTransaction", Transactions::send);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        answer(Map.of("ready", true));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JSONObject request = JSON.parseObject(line);
            try {
                answer(Map.of("result", HANDLERS.get(request.getString("op")).handle(request)));
            } catch (Throwable e) {
                answer(Map.of("error", String.valueOf(e)));
            }
        }
        System.exit(0);
    }

    static void answer(Object value) {
        ANSWERS.println("@@" + JSON.toJSONString(value));
        ANSWERS.flush();
    }

    static Client client(JSONObject request) {
        return CLIENTS.get(request.getString("name"));
    }

    /** Gives a client its name server, and 30 s for a route: after Java's 3 s a send ends with an exception. */
    static void servers(ClientConfig client, JSONObject request) {
        client.setNamesrvAddr(request.getString("namesrv"));
        client.setMqClientApiTimeout(30000);
    }

    /** Traces its messages in the topic `traceTopic`, if there is one. */
    static void trace(ClientConfig client, JSONObject request) {
        if (request.containsKey("traceTopic")) {
            client.setEnableTrace(true);
            client.setTraceTopic(request.getString("traceTopic"));
        }
    }

    static Object startProducer(JSONObject request) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(request.getString("group"));
        servers(producer, request);
        producer.setInstanceName(request.getString("name"));
        producer.setVipChannelEnabled(request.getBooleanValue("vip"));
        producer.setSendMsgTimeout(30000);
        producer.setUseTLS(request.getBooleanValue("tls"));
        trace(producer, request);
        producer.start();
        Client client = new Client();
        client.producer = producer;
        client.close = producer::shutdown;
        CLIENTS.put(request.getString("name"), client);
        return true;
    }

    static Message message(JSONObject request, int number) {
        String text = request.getString("text") + "|" + number + "|";
        int size = request.getIntValue("size", 0);
        if (text.length() < size) {
            text += "x".repeat(size - text.length());
        }
        Message message = new Message(request.getString("topic"), text.getBytes(StandardCharsets.UTF_8));
        if (request.containsKey("tag")) {
            message.setTags(request.getString("tag"));
        }
        message.setKeys(request.getString("text") + "-key-" + number);
        message.putUserProperty("number", String.valueOf(number));
        message.setFlag(number % 7);
        if (request.containsKey("delayLevel")) {
            message.setDelayTimeLevel(request.getIntValue("delayLevel"));
        }
        return message;
    }

    static Map<String, Object> sent(SendResult result) {
        Map<String, Object> row = new HashMap<>();
        row.put("status", String.valueOf(result.getSendStatus()));
        row.put("msgId", result.getMsgId());
        row.put("offsetMsgId", result.getOffsetMsgId());
        row.put("queueOffset", result.getQueueOffset());
        row.put("queueId", result.getMessageQueue().getQueueId());
        row.put("broker", result.getMessageQueue().getBrokerName());
        return row;
    }

    static Object send(JSONObject request) throws Exception {
        DefaultMQProducer producer = client(request).producer;
        int count = request.getIntValue("count");
        String mode = request.getString("mode");
        List<Object> rows = Collections.synchronizedList(new ArrayList<>());
        if (mode.equals("batch")) {
            List<Message> messages = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                messages.add(message(request, i));
            }
            rows.add(sent(producer.send(messages)));
        } else if (mode.equals("async")) {
            CountDownLatch latch = new CountDownLatch(count);
            for (int i = 0; i < count; i++) {
                producer.send(message(request, i), new SendCallback() {
                    @Override
                    public void onSuccess(SendResult result) {
                        rows.add(sent(result));
                        latch.countDown();
                    }

                    @Override
                    public void onException(Throwable e) {
                        rows.add(Map.of("error", String.valueOf(e)));
                        latch.countDown();
                    }
                });
            }
            latch.await(60, TimeUnit.SECONDS);
        } else {
            for (int i = 0; i < count; i++) {
                Message message = message(request, i);
                if (mode.equals("oneway")) {
                    producer.sendOneway(message);
                } else if (mode.equals("orderly")) {
                    rows.add(sent(producer.send(message, (queues, m, key) -> queues.get((int) key % queues.size()), i % 4)));
                } else {
                    rows.add(sent(producer.send(message)));
                }
            }
        }
        return rows;
    }

    static Map<String, Object> row(MessageExt message) {
        Map<String, Object> row = new HashMap<>();
        row.put("topic", message.getTopic());
        row.put("queueId", message.getQueueId());
        row.put("queueOffset", message.getQueueOffset());
        row.put("physicalOffset", message.getCommitLogOffset());
        row.put("msgId", message.getMsgId());
        row.put("offsetMsgId", message instanceof MessageClientExt ? ((MessageClientExt) message).getOffsetMsgId() : null);
        row.put("keys", message.getKeys());
        row.put("tags", message.getTags());
        row.put("flag", message.getFlag());
        row.put("body", new String(message.getBody(), StandardCharsets.UTF_8));
        row.put("bornHost", String.valueOf(message.getBornHost()).replaceAll("^.*/", ""));
        row.put("storeHost", String.valueOf(message.getStoreHost()).replaceAll("^.*/", ""));
        row.put("reconsumeTimes", message.getReconsumeTimes());
        row.put("bornTimestamp", message.getBornTimestamp());
        row.put("storeTimestamp", message.getStoreTimestamp());
        row.put("properties", message.getProperties());
        row.put("thread", Thread.currentThread().getName());
        return row;
    }

    /** By `sql` if there is one, else by the tags of `expression`. */
    static MessageSelector selector(JSONObject request) {
        String sql = request.getString("sql");
        return sql == null ? MessageSelector.byTag(request.getString("expression")) : MessageSelector.bySql(sql);
    }

    static Object startConsumer(JSONObject request) throws Exception {
        Client client = new Client();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(request.getString("group"));
        servers(consumer, request);
        consumer.setInstanceName(request.getString("name"));
        consumer.setVipChannelEnabled(request.getBooleanValue("vip"));
        consumer.setUseTLS(request.getBooleanValue("tls"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        trace(consumer, request);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        if (request.getBooleanValue("broadcast")) {
            consumer.setMessageModel(MessageModel.BROADCASTING);
        }
        consumer.subscribe(request.getString("topic"), selector(request));
        consumer.setMaxReconsumeTimes(request.getIntValue("maxReconsumeTimes", -1));
        consumer.setSuspendCurrentQueueTimeMillis(request.getIntValue("suspendMs", 1000));
        int failTimes = request.getIntValue("failTimes", 0); // a message is handled when it has failed so often
        int retryLevel = request.getIntValue("retryLevel", 0);
        if (request.getBooleanValue("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(message -> client.received.add(row(message)));
                return messages.get(0).getReconsumeTimes() < failTimes
                    ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(message -> client.received.add(row(message)));
                context.setDelayLevelWhenNextConsume(retryLevel);
                return messages.get(0).getReconsumeTimes() < failTimes
                    ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        client.close = consumer::shutdown;
        CLIENTS.put(request.getString("name"), client);
        return true;
    }

    /** What a consumer has received, once there are `count` messages or `seconds` have passed. */
    static Object received(JSONObject request) throws Exception {
        List<Object> received = client(request).received;
        long end = System.currentTimeMillis() + request.getIntValue("seconds") * 1000L;
        while (received.size() < request.getIntValue("count") && System.currentTimeMillis() < end) {
            Thread.sleep(10);
        }
        synchronized (received) {
            return new ArrayList<>(received);
        }
    }

    static Object startPull(JSONObject request) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(request.getString("group"));
        servers(consumer, request);
        consumer.setInstanceName(request.getString("name"));
        consumer.setVipChannelEnabled(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        if (request.getBooleanValue("assign")) {
            consumer.start();
            consumer.assign(consumer.fetchMessageQueues(request.getString("topic")));
        } else {
            consumer.subscribe(request.getString("topic"), selector(request));
            consumer.start();
        }
        Client client = new Client();
        client.pull = consumer;
        client.close = consumer::shutdown;
        CLIENTS.put(request.getString("name"), client);
        return true;
    }

    static Object poll(JSONObject request) throws Exception {
        List<Object> rows = new ArrayList<>();
        long end = System.currentTimeMillis() + request.getIntValue("seconds") * 1000L;
        while (rows.size() < request.getIntValue("count") && System.currentTimeMillis() < end) {
            client(request).pull.poll(200).forEach(message -> rows.add(row(message)));
        }
        return rows;
    }

    static MessageQueue queue(JSONObject request) throws Exception {
        for (MessageQueue queue : client(request).pull.fetchMessageQueues(request.getString("topic"))) {
            if (queue.getQueueId() == request.getIntValue("queueId")) {
                return queue;
            }
        }
        throw new IllegalArgumentException("no such queue");
    }

    static Object seek(JSONObject request) throws Exception {
        client(request).pull.seek(queue(request), request.getLongValue("offset"));
        return true;
    }

    static Object pause(JSONObject request) throws Exception {
        client(request).pull.pause(Set.of(queue(request)));
        return true;
    }

    static Object commit(JSONObject request) throws Exception {
        client(request).pull.commit();
        return client(request).pull.committed(queue(request));
    }

    static Object queues(JSONObject request) throws Exception {
        return client(request).producer.fetchPublishMessageQueues(request.getString("topic")).size();
    }

    /** What it had received until its end. */
    static Object close(JSONObject request) {
        Client client = CLIENTS.remove(request.getString("name"));
        if (client == null) {
            return List.of();
        }
        client.close.run();
        synchronized (client.received) {
            return new ArrayList<>(client.received);
        }
    }

    /** mqadmin keeps its commands, and they keep clients that were shut down, or that know another name server. */
    static final class Commands extends MQAdminStartup {
        static void forget() {
            SUB_COMMANDS.clear();
        }
    }

    /** One mqadmin command in this JVM: its standard output, and its stack trace if it has one. */
    static Object mqadmin(JSONObject request) throws Exception {
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        ByteArrayOutputStream failed = new ByteArrayOutputStream();
        PrintStream out = System.out;
        PrintStream err = System.err;
        System.setOut(new PrintStream(said, true, "UTF-8"));
        System.setErr(new PrintStream(failed, true, "UTF-8"));
        Commands.forget();
        try {
            MQAdminStartup.main0(((JSONArray) request.get("args")).toArray(new String[0]), null);
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        String trace = failed.toString("UTF-8");
        return said.toString("UTF-8") + (trace.contains("Exception") ? trace : "");
    }
}
