"""Processor time of one Python client at work.

python benches/client_load.py CLIENT send|receive ADDRESS COUNT BYTES [TOPIC]

CLIENT is maxq_many (`send_many`), maxq_batch (`send_batch` of 32), maxq_gather (256 tasks that await `send`),
maxq_poll, maxq_push (batches of 32), confluent, aiokafka or nats. Stands alone, because the peers' clients have an
environment of their own (client_peers.py). The client is warm: one message is sent, or the first ones have come, before
it counts. Every message that is sent has a body and a tag (a key with Kafka's clients). Of every one that is received
the body's length is looked at. NATS acknowledges each message, the others commit offsets. Prints one JSON line: µs of
the wall clock and of this process's processors a message.
"""

import asyncio
import contextlib
import json
import sys
import threading
import time
from typing import Any

_FIRST_SECONDS = 30.0  # for the first message that a receiver gets
_MORE_SECONDS = 5.0  # for each later one
_TASKS = 256
_WAITING = 5_000  # sends of aiokafka that are gathered at a time


class Meter:
    """Counts from `begin` to `end`, wall clock and processor time."""

    def __init__(self) -> None:
        self._began = (time.perf_counter(), time.process_time())

    def begin(self) -> None:
        self._began = (time.perf_counter(), time.process_time())

    def end(self, messages: int) -> None:
        """Print the result; exits if no message was counted."""
        wall, cpu = time.perf_counter() - self._began[0], time.process_time() - self._began[1]
        if not messages:
            sys.exit("no message came")
        print(
            json.dumps(
                {
                    "client": sys.argv[1], "what": sys.argv[2], "size": int(sys.argv[5]), "messages": messages,
                    "per_s": round(messages / wall), "wall_us": round(wall / messages * 1e6, 2),
                    "cpu_us": round(cpu / messages * 1e6, 2),
                }
            )
        )  # fmt: skip


def topic_of(size: int) -> str:
    """Return the topic that the command line names; without, one for each size."""
    return sys.argv[6] if len(sys.argv) > 6 else f"Bench{size}"


class Client:
    """What all clients have: how they work, with whom, how many messages of which size, and what counts."""

    def __init__(self, way: str, address: str, count: int, size: int) -> None:
        self.way, self.address, self.count, self.size = way, address, count, size
        self.topic, self.meter = topic_of(size), Meter()


class AsyncClient(Client):
    """A client of asyncio that runs on uvloop."""

    def send(self) -> None:
        import uvloop

        uvloop.run(self._send())

    def receive(self) -> None:
        import uvloop

        uvloop.run(self._receive())

    async def _send(self) -> None:
        raise NotImplementedError

    async def _receive(self) -> None:
        raise NotImplementedError


class Maxq(Client):
    """MaxQ's clients; `address` is a name server's."""

    def send(self) -> None:
        if self.way == "gather":
            asyncio.run(self._gather())
            return
        from maxq.api import Message, Producer

        body, tags = bytes(self.size), {"TAGS": "a"}
        with Producer("bench", self.address) as producer:
            producer.send(Message(self.topic, body))
            self.meter.begin()
            if self.way == "batch":
                for _ in range(self.count // 32):
                    producer.send_batch([Message(self.topic, body, tags) for _ in range(32)])
                self.meter.end(self.count // 32 * 32)
            else:
                self.meter.end(len(producer.send_many(Message(self.topic, body, tags) for _ in range(self.count))))

    async def _gather(self) -> None:
        from maxq.aio import Message, Producer

        body = bytes(self.size)
        left = iter(range(self.count))
        async with Producer("bench", self.address) as producer:

            async def work() -> None:
                for _ in left:
                    await producer.send(Message(self.topic, body, {"TAGS": "a"}))

            await producer.send(Message(self.topic, body))
            self.meter.begin()
            await asyncio.gather(*(work() for _ in range(_TASKS)))
            self.meter.end(self.count)

    def receive(self) -> None:
        if self.way == "push":
            self._push()
            return
        from maxq.api import ConsumeFromWhere, LitePullConsumer

        done, first = 0, ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        with LitePullConsumer(f"g{time.time_ns()}", self.address, consume_from_where=first) as consumer:
            consumer.subscribe(self.topic)
            consumer.poll(round(_FIRST_SECONDS * 1000))
            self.meter.begin()
            while done < self.count and (messages := consumer.poll(round(_MORE_SECONDS * 1000))):
                done += sum(len(message.body) == self.size for message in messages)
            self.meter.end(done)

    def _push(self) -> None:
        from maxq.api import ConsumeFromWhere, PushConsumer

        done, has_begun, is_over, lock = 0, False, threading.Event(), threading.Lock()

        def take(messages: Any, context: Any) -> None:
            nonlocal done, has_begun
            with lock:
                if not has_begun:
                    has_begun = True
                    self.meter.begin()
                done += sum(len(message.body) == self.size for message in messages)
                if done >= self.count:
                    is_over.set()

        first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        settings: Any = {"consume_from_where": first, "consume_message_batch_max_size": 32}
        consumer = PushConsumer(f"g{time.time_ns()}", self.address, take, **settings)
        consumer.subscribe(self.topic)
        with consumer:
            is_over.wait(_FIRST_SECONDS * 10)
        self.meter.end(done)


class Confluent(Client):
    """Confluent's client, which is librdkafka."""

    def send(self) -> None:
        from confluent_kafka import Producer

        failed = 0

        def told(error: Any, message: Any) -> None:
            nonlocal failed
            failed += error is not None

        producer = Producer({"bootstrap.servers": self.address, "queue.buffering.max.messages": 1_000_000})
        body = bytes(self.size)
        producer.produce(self.topic, body)
        producer.flush()
        self.meter.begin()
        for number in range(self.count):
            while True:
                try:
                    producer.produce(self.topic, body, key=b"a", callback=told)
                    break
                except BufferError:
                    producer.poll(0.01)
            if number % 256 == 0:
                producer.poll(0)
        producer.flush()
        self.meter.end(self.count - failed)

    def receive(self) -> None:
        from confluent_kafka import Consumer

        consumer = Consumer(
            {"bootstrap.servers": self.address, "group.id": f"g{time.time_ns()}", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([self.topic])
        consumer.consume(1, _FIRST_SECONDS)
        done = 0
        self.meter.begin()
        while done < self.count and (messages := consumer.consume(1000, _MORE_SECONDS)):
            done += sum(len(message.value()) == self.size for message in messages)
        self.meter.end(done)
        consumer.close()


class Aiokafka(AsyncClient):
    """aiokafka, on uvloop."""

    async def _send(self) -> None:
        from aiokafka import AIOKafkaProducer

        body = bytes(self.size)
        async with AIOKafkaProducer(bootstrap_servers=self.address) as producer:
            await producer.send_and_wait(self.topic, body)
            self.meter.begin()
            waiting = []
            for _ in range(self.count):
                waiting.append(await producer.send(self.topic, body, key=b"a"))
                if len(waiting) >= _WAITING:
                    await asyncio.gather(*waiting)
                    waiting.clear()
            await asyncio.gather(*waiting)
            self.meter.end(self.count)

    async def _receive(self) -> None:
        from aiokafka import AIOKafkaConsumer

        settings = {"group_id": f"g{time.time_ns()}", "auto_offset_reset": "earliest"}
        async with AIOKafkaConsumer(self.topic, bootstrap_servers=self.address, **settings) as consumer:
            await consumer.getmany(timeout_ms=round(_FIRST_SECONDS * 1000), max_records=1)
            done = 0
            self.meter.begin()
            while done < self.count:
                found = await consumer.getmany(timeout_ms=round(_MORE_SECONDS * 1000), max_records=2000)
                if not found:
                    break
                done += sum(len(record.value) == self.size for records in found.values() for record in records)
            self.meter.end(done)


class Nats(AsyncClient):
    """nats-py on JetStream, on uvloop."""

    async def _send(self) -> None:
        import nats

        connection = await nats.connect(self.address)
        stream = connection.jetstream()
        with contextlib.suppress(nats.js.errors.APIError):  # it is there
            await stream.add_stream(name=self.topic, subjects=[self.topic])
        body = bytes(self.size)
        left = iter(range(self.count))

        async def work() -> None:
            for _ in left:
                await stream.publish(self.topic, body, timeout=60)

        await stream.publish(self.topic, body)
        self.meter.begin()
        await asyncio.gather(*(work() for _ in range(_TASKS)))
        self.meter.end(self.count)
        await connection.close()

    async def _receive(self) -> None:
        import nats

        connection = await nats.connect(self.address)
        consumer = await connection.jetstream().pull_subscribe(self.topic, f"g{time.time_ns()}")
        done = 0
        self.meter.begin()
        while done < self.count:
            try:
                messages = await consumer.fetch(500, timeout=_MORE_SECONDS)
            except TimeoutError:
                break
            for message in messages:
                done += len(message.data) == self.size
                await message.ack()
        self.meter.end(done)
        await connection.close()


CLIENTS: dict[str, Any] = {"maxq": Maxq, "confluent": Confluent, "aiokafka": Aiokafka, "nats": Nats}


def main() -> None:
    """Measure what the command line names."""
    name, what, address, count, size = *sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5])
    which, _, way = name.partition("_")
    client = CLIENTS[which](way, address, count, size)
    client.send() if what == "send" else client.receive()


if __name__ == "__main__":
    main()
