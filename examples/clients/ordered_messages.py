"""The steps of each order are handled in their order, while different orders are handled at the same time."""

import threading
from collections import defaultdict

from examples.clients import name_server
from maxq.api import ConsumeContext, ConsumeFromWhere, ConsumeResult, Message, MessageExt, Producer, PushConsumer

TOPIC = "ExampleOrderSteps"
STEPS = ("created", "paid", "packed", "sent")


def main() -> None:
    seen: defaultdict[str, list[str]] = defaultdict(list)
    done = threading.Event()

    def handle(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        for message in messages:
            order, _, step = message.body.decode().partition(" ")
            seen[order].append(step)
        if sum(map(len, seen.values())) >= 10 * len(STEPS):
            done.set()
        return ConsumeResult.SUCCESS

    with Producer("example-shop", name_server()) as producer:
        for step in STEPS:
            for order in range(10):  # equal keys go to one queue, and a queue keeps its order
                producer.send_orderly(
                    Message(TOPIC, f"{order} {step}".encode()), lambda queues, _, key: queues[key % len(queues)], order
                )

    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer = PushConsumer("example-packers", name_server(), handle, orderly=True, consume_from_where=first)
    consumer.subscribe(TOPIC)
    with consumer:
        if not done.wait(60):
            raise TimeoutError(f"within 60 s only {dict(seen)}")
    assert all(steps == list(STEPS) for steps in seen.values()), seen
    print("10 orders, each in the order", ", ".join(STEPS))


if __name__ == "__main__":
    main()
