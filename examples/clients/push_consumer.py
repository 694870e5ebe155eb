"""A function is called with each message. A message that failed comes again later."""

import threading

from examples.clients import name_server
from maxq.api import ConsumeContext, ConsumeFromWhere, ConsumeResult, Message, MessageExt, Producer, PushConsumer

TOPIC = "ExampleJobs"


def main() -> None:
    done = threading.Event()
    left = {b"job %d" % number for number in range(5)}

    def work(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        for message in messages:
            print("working on", message.body.decode(), "try", message.reconsume_times + 1)
            left.discard(message.body)
        if not left:
            done.set()
        return ConsumeResult.SUCCESS  # RECONSUME_LATER, or an exception: deliver them again

    with Producer("example-clerks", name_server()) as producer:
        producer.send_many(Message(TOPIC, b"job %d" % number) for number in range(5))

    consumer = PushConsumer(
        "example-workers", name_server(), work, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    consumer.subscribe(TOPIC)
    with consumer:
        if not done.wait(60):
            raise TimeoutError(f"not done within 60 s: {left}")
    print("all done")


if __name__ == "__main__":
    main()
