// A client of any release that signs: NAMESRV TOPIC GROUP ACCESS_KEY SECRET_KEY COUNT. Sends COUNT messages and consumes
// them; every line of standard output that begins with @@ is a fact: sent N, received N, or what was thrown.
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.RPCHook;

public class AclClient {
    public static void main(String[] args) throws Exception {
        RPCHook hook = new AclClientRPCHook(new SessionCredentials(args[3], args[4]));
        int count = Integer.parseInt(args[5]);
        DefaultMQProducer producer = new DefaultMQProducer(args[2] + "_P", hook);
        producer.setNamesrvAddr(args[0]);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setSendMsgTimeout(10000);
        producer.start();
        int sent = 0;
        try {
            for (int i = 0; i < count; i++) {
                Message message = new Message(args[1], "TagA", "k" + i, ("body " + i).getBytes("UTF-8"));
                message.putUserProperty("who", "\"é\"");
                producer.send(message);
                sent++;
            }
        } catch (Exception error) {
            System.out.println("@@" + (error + " / " + error.getCause()).replace('\n', ' '));
        }
        System.out.println("@@sent " + sent);
        producer.shutdown();
        if (sent > 0) {
            consume(args, hook, sent);
        }
        System.exit(0);
    }

    static void consume(String[] args, RPCHook hook, int count) throws Exception {
        Set<String> seen = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[2], hook, new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> seen.add(new String(message.getBody())));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        for (int i = 0; i < 400 && seen.size() < count; i++) {
            Thread.sleep(100);
        }
        System.out.println("@@received " + seen.size());
        consumer.shutdown();
    }
}
