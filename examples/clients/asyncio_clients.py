"""The same in asyncio: many sends at a time, and a loop over the messages as they come."""

import asyncio

from examples.clients import name_server
from maxq.aio import ConsumeFromWhere, LitePullConsumer, Message, Producer

TOPIC = "ExampleEvents"


async def main() -> None:
    async with Producer("example-sensors", name_server()) as producer:
        results = await asyncio.gather(*(producer.send(Message(TOPIC, b"event %d" % n)) for n in range(100)))
        print(len(results), "events sent")

    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    async with LitePullConsumer("example-watchers", name_server(), consume_from_where=first) as consumer:
        await consumer.subscribe(TOPIC)
        seen: set[bytes] = set()
        async for message in consumer:
            seen.add(message.body)
            if len(seen) == 100:
                break
    print(len(seen), "events received")


if __name__ == "__main__":
    asyncio.run(main())
