"""Ask a question through a topic, and wait for the answer."""

from examples.clients import name_server
from maxq.api import (
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    create_reply_message,
)

TOPIC = "ExampleQuestions"


def main() -> None:
    with Producer("example-teachers", name_server()) as answering:

        def answer(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
            for message in messages:
                answering.send(create_reply_message(message, message.body.upper()))
            return ConsumeResult.SUCCESS

        first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        teacher = PushConsumer("example-school", name_server(), answer, consume_from_where=first)
        teacher.subscribe(TOPIC)
        with teacher, Producer("example-pupils", name_server()) as asking:
            reply = asking.request(Message(TOPIC, b"how do you do"), timeout_ms=60_000)
            print("the answer:", reply.body.decode())


if __name__ == "__main__":
    main()
