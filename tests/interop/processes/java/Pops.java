// Pop consumption by RocketMQ's own clients: the push consumer that lets the broker assign its queues, and the calls that
// the proxy makes.
import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.impl.ClientRemotingProcessor;
import org.apache.rocketmq.client.impl.mqclient.MQClientAPIExt;
import org.apache.rocketmq.common.constant.ConsumeInitMode;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ChangeInvisibleTimeRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.NotificationRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;

class Pops {
    static MQClientAPIExt api;

    static void register() {
        Driver.HANDLERS.put("popConsumer", Pops::startConsumer);
        Driver.HANDLERS.put("pop", Pops::pop);
        Driver.HANDLERS.put("ack", Pops::ack);
        Driver.HANDLERS.put("batchAck", Pops::batchAck);
        Driver.HANDLERS.put("changeInvisibleTime", Pops::changeInvisibleTime);
        Driver.HANDLERS.put("notification", Pops::notification);
    }

    /** clientRebalance=false; each message whose number is in `fail` fails the first time. */
    static Object startConsumer(JSONObject request) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(request.getString("group"));
        Driver.servers(consumer, request);
        consumer.setInstanceName(request.getString("name"));
        consumer.setVipChannelEnabled(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setClientRebalance(false);
        consumer.setPopInvisibleTime(request.getLongValue("invisibleMs", 60000));
        consumer.subscribe(request.getString("topic"), (String) request.getOrDefault("expression", "*"));
        Set<String> fail = new HashSet<>(request.containsKey("fail") ? request.getList("fail", String.class) : List.of());
        Set<String> failed = Collections.synchronizedSet(new HashSet<>());
        Driver.Client client = new Driver.Client();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                String number = message.getProperty("number");
                if (fail.contains(number) && failed.add(number)) {
                    context.setDelayLevelWhenNextConsume(1);
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
                Map<String, Object> row = Driver.row(message);
                row.put("handle", String.valueOf(message.getProperty(MessageConst.PROPERTY_POP_CK)));
                client.received.add(row);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        client.close = consumer::shutdown;
        Driver.CLIENTS.put(request.getString("name"), client);
        return true;
    }

    static synchronized MQClientAPIExt api() {
        if (api == null) {
            ClientConfig config = new ClientConfig();
            api = new MQClientAPIExt(config, new NettyClientConfig(), new ClientRemotingProcessor(null), null);
            api.start();
        }
        return api;
    }

    static Object pop(JSONObject request) throws Exception {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setConsumerGroup(request.getString("group"));
        header.setTopic(request.getString("topic"));
        header.setQueueId(request.getIntValue("queueId", -1));
        header.setMaxMsgNums(request.getIntValue("count", 32));
        header.setInvisibleTime(request.getLongValue("invisibleMs", 60000));
        header.setPollTime(request.getLongValue("pollMs", 0));
        header.setBornTime(System.currentTimeMillis());
        header.setInitMode(ConsumeInitMode.MIN);
        header.setExpType("TAG");
        header.setExp("*");
        header.setOrder(request.getBooleanValue("order"));
        header.setAttemptId(request.getString("attemptId"));
        PopResult result = api().popMessageAsync(request.getString("address"), "broker-a", header, 15000)
            .get(20, TimeUnit.SECONDS);
        List<Object> rows = new ArrayList<>();
        if (result.getMsgFoundList() != null) {
            for (MessageExt message : result.getMsgFoundList()) {
                Map<String, Object> row = new HashMap<>();
                row.put("topic", message.getTopic());
                row.put("body", new String(message.getBody(), StandardCharsets.UTF_8));
                row.put("handle", message.getProperty(MessageConst.PROPERTY_POP_CK));
                row.put("times", message.getReconsumeTimes());
                row.put("firstPopTime", message.getProperty(MessageConst.PROPERTY_FIRST_POP_TIME));
                rows.add(row);
            }
        }
        return Map.of("status", result.getPopStatus().name(), "restNum", result.getRestNum(), "messages", rows);
    }

    static String realTopic(JSONObject request, String[] handle) {
        return ExtraInfoUtil.getRealTopic(handle, request.getString("topic"), request.getString("group"));
    }

    static Map<String, Object> acked(AckResult result) {
        Map<String, Object> row = new HashMap<>();
        row.put("status", result.getStatus().name());
        row.put("handle", result.getExtraInfo());
        return row;
    }

    static Object ack(JSONObject request) throws Exception {
        String[] handle = ExtraInfoUtil.split(request.getString("handle"));
        AckMessageRequestHeader header = new AckMessageRequestHeader();
        header.setConsumerGroup(request.getString("group"));
        header.setTopic(realTopic(request, handle));
        header.setQueueId(ExtraInfoUtil.getQueueId(handle));
        header.setOffset(ExtraInfoUtil.getQueueOffset(handle));
        header.setExtraInfo(request.getString("handle"));
        return acked(api().ackMessageAsync(request.getString("address"), header, 5000).get(10, TimeUnit.SECONDS));
    }

    static Object batchAck(JSONObject request) throws Exception {
        JSONArray handles = request.getJSONArray("handles");
        return acked(api().batchAckMessageAsync(request.getString("address"), request.getString("topic"),
            request.getString("group"), handles.toList(String.class), 5000).get(10, TimeUnit.SECONDS));
    }

    static Object changeInvisibleTime(JSONObject request) throws Exception {
        String[] handle = ExtraInfoUtil.split(request.getString("handle"));
        ChangeInvisibleTimeRequestHeader header = new ChangeInvisibleTimeRequestHeader();
        header.setConsumerGroup(request.getString("group"));
        header.setTopic(realTopic(request, handle));
        header.setQueueId(ExtraInfoUtil.getQueueId(handle));
        header.setOffset(ExtraInfoUtil.getQueueOffset(handle));
        header.setExtraInfo(request.getString("handle"));
        header.setInvisibleTime(request.getLongValue("invisibleMs"));
        return acked(api().changeInvisibleTimeAsync(request.getString("address"), "broker-a", header, 5000)
            .get(10, TimeUnit.SECONDS));
    }

    static Object notification(JSONObject request) throws Exception {
        NotificationRequestHeader header = new NotificationRequestHeader();
        header.setConsumerGroup(request.getString("group"));
        header.setTopic(request.getString("topic"));
        header.setQueueId(-1);
        header.setPollTime(request.getLongValue("pollMs", 0));
        header.setBornTime(System.currentTimeMillis());
        return api().notification(request.getString("address"), header, 15000).get(20, TimeUnit.SECONDS);
    }
}
