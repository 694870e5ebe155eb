"""A message that is delivered two seconds later, and one that is taken back in time.

To take messages back the broker needs recallMessageEnable=true: maxq standalone --set recallMessageEnable=true
"""

import time

from examples.clients import name_server
from maxq.api import ConsumeFromWhere, LitePullConsumer, Message, Producer

TOPIC = "ExampleReminders"


def main() -> None:
    with Producer("example-planners", name_server()) as producer:
        started = time.time()
        reminder = Message(TOPIC, b"tea is ready")
        reminder.delay_time_ms = 2_000
        producer.send(reminder)
        mistake = Message(TOPIC, b"never mind")
        mistake.delay_time_ms = 60_000
        handle = producer.send(mistake).recall_handle
        if handle is None:
            raise SystemExit("no message can be taken back: the broker needs recallMessageEnable=true")
        producer.recall_message(TOPIC, handle)

    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    with LitePullConsumer("example-drinkers", name_server(), consume_from_where=first) as consumer:
        consumer.subscribe(TOPIC)
        messages = consumer.poll(1000)
        while not messages:
            messages = consumer.poll(1000)
    print(f"{messages[0].body.decode()!r}, {time.time() - started:.1f} s after it was sent")


if __name__ == "__main__":
    main()
