"""Send ten messages and read them back: the shortest complete program."""

from examples.clients import name_server
from maxq.api import ConsumeFromWhere, LitePullConsumer, Message, Producer

TOPIC = "ExampleGreetings"


def main() -> None:
    with Producer("example-senders", name_server()) as producer:
        for number in range(10):
            result = producer.send(Message(TOPIC, b"hello %d" % number, {"KEYS": f"greeting-{number}"}))
            print("sent", result.msg_id, result.send_status.name)

    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET  # without it a new group begins at the end of the topic
    with LitePullConsumer("example-readers", name_server(), consume_from_where=first) as consumer:
        consumer.subscribe(TOPIC)
        count = 0
        while count < 10:
            for message in consumer.poll(timeout_ms=1000):
                print("received", message.body.decode(), "from queue", message.queue_id)
                count += 1
        consumer.commit()


if __name__ == "__main__":
    main()
