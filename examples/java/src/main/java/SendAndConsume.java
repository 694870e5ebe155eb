import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends orders with RocketMQ's own Java client, and consumes those that are paid.
 *
 * <p>NAMESRV_ADDR names another server than that of `maxq standalone`.
 */
public final class SendAndConsume {
    private static final String TOPIC = "ExampleJavaOrders";
    private static final int ORDERS = 10;

    public static void main(String[] arguments) throws Exception {
        String nameServer = System.getenv().getOrDefault("NAMESRV_ADDR", "127.0.0.1:9876");
        send(nameServer);
        consume(nameServer);
    }

    /** Every second order is paid. */
    private static void send(String nameServer) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("example-java-shop");
        producer.setNamesrvAddr(nameServer);
        producer.start();
        try {
            int stored = 0;
            for (int number = 0; number < ORDERS; number++) {
                String tag = number % 2 == 0 ? "paid" : "open";
                byte[] body = ("order " + number).getBytes(StandardCharsets.UTF_8);
                Message message = new Message(TOPIC, tag, "order-" + number, body);
                if (producer.send(message).getSendStatus() == SendStatus.SEND_OK) {
                    stored++;
                }
            }
            System.out.println("sent " + stored + " orders");
        } finally {
            producer.shutdown();
        }
    }

    /** The broker selects by tag: orders with the tag "open" do not come here. */
    private static void consume(String nameServer) throws Exception {
        int wanted = ORDERS / 2;
        Map<String, MessageExt> paid = new ConcurrentSkipListMap<>();
        CountDownLatch done = new CountDownLatch(1);

        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("example-java-packers");
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(TOPIC, "paid");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                paid.put(new String(message.getBody(), StandardCharsets.UTF_8), message);
            }
            if (paid.size() >= wanted) {
                done.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            if (!done.await(60, TimeUnit.SECONDS)) {
                throw new IllegalStateException("within 60 s only " + paid.keySet());
            }
        } finally {
            consumer.shutdown();
        }
        paid.forEach((body, message) ->
            System.out.println(body + ", tag " + message.getTags() + ", key " + message.getKeys()));
    }
}
