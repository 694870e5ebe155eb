import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.ProducerBuilder;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionChecker;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * RocketMQ's official Java client of 5.x does one thing and prints JSON behind "@@".
 * usage: GrpcDriver ENDPOINTS -tls|-plain normal|fifo|delay|transaction|push GROUP TOPIC
 */
public class GrpcDriver {
    static final int SECONDS = 60;
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    static ClientConfiguration configuration;
    static String group;
    static String topic;

    public static void main(String[] arguments) throws Exception {
        configuration = ClientConfiguration.newBuilder().setEndpoints(arguments[0])
            .enableSsl(arguments[1].equals("-tls")).build();
        String what = arguments[2];
        group = arguments[3];
        topic = arguments[4];
        String answer;
        switch (what) {
            case "normal": answer = normal(); break;
            case "fifo": answer = fifo(); break;
            case "delay": answer = delay(); break;
            case "transaction": answer = transaction(); break;
            case "push": answer = push(); break;
            default: throw new IllegalArgumentException(what);
        }
        System.out.println("@@" + answer);
        System.exit(0);
    }

    static SimpleConsumer consumer() throws Exception {
        SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(group).setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(Collections.singletonMap(topic, FilterExpression.SUB_ALL)).build();
        for (int queue = 0; queue < 4; queue++) {
            consumer.receive(1, Duration.ofSeconds(10));
        }
        return consumer;
    }

    static ProducerBuilder producer() {
        return PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic);
    }

    static MessageBuilder message(String body) {
        return PROVIDER.newMessageBuilder().setTopic(topic).setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    static List<MessageView> take(SimpleConsumer consumer, int count) throws Exception {
        List<MessageView> got = new ArrayList<>();
        long ends = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS);
        while (got.size() < count && System.nanoTime() < ends) {
            for (MessageView each : consumer.receive(16, Duration.ofSeconds(10))) {
                consumer.ack(each);
                got.add(each);
            }
        }
        return got;
    }

    static String body(MessageView message) {
        ByteBuffer body = message.getBody();
        return StandardCharsets.UTF_8.decode(body).toString();
    }

    static String quoted(Collection<String> texts) {
        List<String> parts = new ArrayList<>();
        for (String text : texts) {
            parts.add(text == null ? "null" : '"' + text + '"');
        }
        return "[" + String.join(",", parts) + "]";
    }

    static String normal() throws Exception {
        SimpleConsumer consumer = consumer();
        Producer producer = producer().build();
        Message hello = message("hello").setTag("green").setKeys("k1").addProperty("colour", "green").build();
        String sent = producer.send(hello).getMessageId().toString();
        for (int number = 0; number < 4; number++) {
            producer.send(message("" + number).build());
        }
        List<String> rows = new ArrayList<>();
        for (MessageView each : take(consumer, 5)) {
            List<String> properties = new ArrayList<>();
            for (Map.Entry<String, String> property : each.getProperties().entrySet()) {
                properties.add('"' + property.getKey() + "\":\"" + property.getValue() + '"');
            }
            rows.add("{\"body\":\"" + body(each) + "\",\"tag\":\"" + each.getTag().orElse("") + "\",\"keys\":"
                + quoted(each.getKeys()) + ",\"id\":\"" + each.getMessageId() + "\",\"properties\":{"
                + String.join(",", properties) + "},\"attempt\":" + each.getDeliveryAttempt() + "}");
        }
        producer.close();
        consumer.close();
        return "{\"sent\":\"" + sent + "\",\"got\":[" + String.join(",", rows) + "]}";
    }

    static String fifo() throws Exception {
        SimpleConsumer consumer = consumer();
        Producer producer = producer().build();
        for (int number = 0; number < 8; number++) {
            producer.send(message("" + number).setMessageGroup("customer-7").build());
        }
        List<String> bodies = new ArrayList<>();
        for (MessageView each : take(consumer, 8)) {
            bodies.add(body(each));
        }
        producer.close();
        consumer.close();
        return quoted(bodies);
    }

    static String delay() throws Exception {
        SimpleConsumer consumer = consumer();
        Producer producer = producer().build();
        long due = System.currentTimeMillis() + 3000;
        producer.send(message("late").setDeliveryTimestamp(due).build());
        List<String> bodies = new ArrayList<>();
        for (MessageView each : take(consumer, 1)) {
            bodies.add(body(each));
        }
        boolean early = System.currentTimeMillis() < due - 1000;
        producer.close();
        consumer.close();
        return "{\"got\":" + quoted(bodies) + ",\"early\":" + early + "}";
    }

    static String transaction() throws Exception {
        List<String> asked = Collections.synchronizedList(new ArrayList<>());
        TransactionChecker checker = message -> {
            asked.add(body(message));
            return TransactionResolution.COMMIT;
        };
        SimpleConsumer consumer = consumer();
        Producer producer = producer().setTransactionChecker(checker).build();
        for (String what : new String[] {"commit", "rollback", "open"}) {
            Transaction transaction = producer.beginTransaction();
            producer.send(message(what).build(), transaction);
            if (what.equals("commit")) {
                transaction.commit();
            } else if (what.equals("rollback")) {
                transaction.rollback();
            }
        }
        TreeSet<String> bodies = new TreeSet<>();
        for (MessageView each : take(consumer, 2)) {
            bodies.add(body(each));
        }
        producer.close();
        consumer.close();
        return "{\"got\":" + quoted(bodies) + ",\"asked\":" + quoted(asked) + "}";
    }

    static String push() throws Exception {
        consumer().close();
        TreeSet<String> rows = new TreeSet<>();
        CountDownLatch done = new CountDownLatch(5);
        PushConsumer consumer = PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(group)
            .setSubscriptionExpressions(Collections.singletonMap(topic, FilterExpression.SUB_ALL))
            .setMessageListener(message -> {
                String body = body(message);
                synchronized (rows) {
                    rows.add("[\"" + body + "\"," + message.getDeliveryAttempt() + "]");
                }
                done.countDown();
                boolean isFirstTry = body.equals("again") && message.getDeliveryAttempt() == 1;
                return isFirstTry ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            }).build();
        Producer producer = producer().build();
        for (String body : new String[] {"a", "b", "c", "again"}) {
            producer.send(message(body).build());
        }
        done.await(SECONDS, TimeUnit.SECONDS);
        producer.close();
        consumer.close();
        return "[" + String.join(",", rows) + "]";
    }
}
