// RocketMQ's TransactionMQProducer for Driver.java. The text of a message says how its local transaction ends: the first
// letter when it is executed, the second when it is asked for; c commits, r rolls back, anything else is unknown.
import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

class Transactions {
    static LocalTransactionState state(Message message, int letter) {
        switch (new String(message.getBody(), StandardCharsets.UTF_8).charAt(letter)) {
            case 'c':
                return LocalTransactionState.COMMIT_MESSAGE;
            case 'r':
                return LocalTransactionState.ROLLBACK_MESSAGE;
            default:
                return LocalTransactionState.UNKNOW;
        }
    }

    /** A client whose "received" are the messages it was asked for. */
    static Object start(JSONObject request) throws Exception {
        Driver.Client client = new Driver.Client();
        TransactionMQProducer producer = new TransactionMQProducer(request.getString("group"));
        Driver.servers(producer, request);
        producer.setInstanceName(request.getString("name"));
        producer.setVipChannelEnabled(false);
        producer.setSendMsgTimeout(10000);
        Driver.trace(producer, request);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object arg) {
                return state(message, 0);
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                client.received.add(Driver.row(message));
                return state(message, 1);
            }
        });
        producer.start();
        client.producer = producer;
        client.close = producer::shutdown;
        Driver.CLIENTS.put(request.getString("name"), client);
        return true;
    }

    /** One message for each of `texts`. */
    static Object send(JSONObject request) throws Exception {
        List<Object> rows = new ArrayList<>();
        for (Object text : request.getJSONArray("texts")) {
            Message message = new Message(request.getString("topic"), String.valueOf(text).getBytes(StandardCharsets.UTF_8));
            TransactionMQProducer producer = (TransactionMQProducer) Driver.client(request).producer;
            TransactionSendResult result = producer.sendMessageInTransaction(message, null);
            java.util.Map<String, Object> row = Driver.sent(result);
            row.put("state", result.getLocalTransactionState().name());
            row.put("transactionId", result.getTransactionId());
            rows.add(row);
        }
        return rows;
    }
}
