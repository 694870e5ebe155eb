"""A program: RocketMQ's official Python client of 5.x does one thing and prints JSON.

usage: grpc_python_driver.py ENDPOINTS ACCESS_KEY SECRET_KEY normal|fifo|delay|recall|transaction|push GROUP TOPIC
"""

import json
import sys
import threading
import time

from rocketmq import (  # type: ignore[import-not-found]
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)

SECONDS = 60


def main() -> None:
    endpoints, access_key, secret_key, what, group, topic = sys.argv[1:7]
    configuration = ClientConfiguration(endpoints, Credentials(access_key, secret_key))
    print("@@" + json.dumps(globals()[what](configuration, group, topic)), flush=True)


def message(topic, body, **fields):  # type: ignore[no-untyped-def]
    made = Message()
    made.topic, made.body = topic, body.encode()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


class Client:
    """A producer and a simple consumer, whose group begins before anything is sent."""

    def __init__(self, configuration, group, topic, **producer):  # type: ignore[no-untyped-def]
        self.consumer = SimpleConsumer(configuration, group, {topic: FilterExpression()}, 5)
        self.consumer.startup()
        self.consumer.receive(1, 10)
        self.producer = Producer(configuration, (topic,), **producer)
        self.producer.startup()

    def take(self, count):  # type: ignore[no-untyped-def]
        got, ends = [], time.monotonic() + SECONDS
        while len(got) < count and time.monotonic() < ends:
            for each in self.consumer.receive(16, 10) or []:
                self.consumer.ack(each)
                got.append(each)
        return got

    def end(self) -> None:
        self.producer.shutdown()
        self.consumer.shutdown()


def normal(configuration, group, topic):  # type: ignore[no-untyped-def]
    client = Client(configuration, group, topic)
    sent = message(topic, "hello", tag="green", keys="k1")
    sent.add_property("colour", "green")
    receipt = client.producer.send(sent)
    for number in range(4):
        client.producer.send(message(topic, f"{number}"))
    rows = [
        {"body": each.body.decode(), "tag": each.tag, "keys": list(each.keys or []), "id": each.message_id,
         "properties": dict(each.properties or {}), "attempt": each.delivery_attempt}
        for each in client.take(5)
    ]  # fmt: skip
    client.end()
    return {"sent": receipt.message_id, "got": rows}


def fifo(configuration, group, topic):  # type: ignore[no-untyped-def]
    client = Client(configuration, group, topic)
    for number in range(8):
        client.producer.send(message(topic, f"{number}", message_group="customer-7"))
    bodies = [each.body.decode() for each in client.take(8)]
    client.end()
    return bodies


def delay(configuration, group, topic):  # type: ignore[no-untyped-def]
    client = Client(configuration, group, topic)
    due = int(time.time()) + 3
    client.producer.send(message(topic, "late", delivery_timestamp=due))
    bodies = [each.body.decode() for each in client.take(1)]
    early = time.time() < due
    client.end()
    return {"got": bodies, "early": early}


def recall(configuration, group, topic):  # type: ignore[no-untyped-def]
    client = Client(configuration, group, topic)
    receipt = client.producer.send(message(topic, "never", delivery_timestamp=int(time.time()) + 30))
    recalled = client.producer.recall_message(topic, receipt.recall_handle)
    client.end()
    return {"sent": receipt.message_id, "recalled": recalled}


def transaction(configuration, group, topic):  # type: ignore[no-untyped-def]
    asked = []

    class Checker(TransactionChecker):  # type: ignore[misc]
        def check(self, checked):  # type: ignore[no-untyped-def]
            asked.append(checked.body.decode())
            return TransactionResolution.COMMIT

    client = Client(configuration, group, topic, checker=Checker())
    for what in ("commit", "rollback", "open"):
        begun = client.producer.begin_transaction()
        client.producer.send(message(topic, what), begun)
        if what != "open":
            getattr(begun, what)()
    bodies = sorted(each.body.decode() for each in client.take(2))
    client.end()
    return {"got": bodies, "asked": asked}


def push(configuration, group, topic):  # type: ignore[no-untyped-def]
    rows, done = [], threading.Event()

    class Listener(MessageListener):  # type: ignore[misc]
        def consume(self, consumed):  # type: ignore[no-untyped-def]
            rows.append([consumed.body.decode(), consumed.delivery_attempt])
            if len(rows) >= 5:
                done.set()
            is_first_try = consumed.body == b"again" and consumed.delivery_attempt == 1
            return ConsumeResult.FAILURE if is_first_try else ConsumeResult.SUCCESS

    begins = SimpleConsumer(configuration, group, {topic: FilterExpression()}, 5)
    begins.startup()
    begins.receive(1, 10)
    begins.shutdown()
    consumer = PushConsumer(configuration, group, Listener(), {topic: FilterExpression()})
    consumer.startup()
    producer = Producer(configuration, (topic,))
    producer.startup()
    for body in ("a", "b", "c", "again"):
        producer.send(message(topic, body))
    done.wait(SECONDS)
    producer.shutdown()
    consumer.shutdown()
    return sorted(rows)


main()
