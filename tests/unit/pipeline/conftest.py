"""A MaxQ server in a thread, and messages in it; gone after the last test here, for others change what it runs on."""

from collections.abc import Callable, Iterator

import pytest

from maxq.api import Admin, Message, MessageQueue, Producer
from maxq.standalone import Standalone

Fill = Callable[..., None]


@pytest.fixture(scope="package")
def server() -> Iterator[Standalone]:
    """One for all tests that give their topics names of their own."""
    with Standalone(settings={"enablePropertyFilter": "true", "mappedFileSizeCommitLog": str(64 << 20)}) as server:
        yield server


@pytest.fixture(scope="package")
def admin(server: Standalone) -> Iterator[Admin]:
    with Admin(server.namesrv_address) as admin:
        yield admin


@pytest.fixture(scope="package")
def producer(server: Standalone) -> Iterator[Producer]:
    with Producer("tests", server.namesrv_address) as producer:
        yield producer


@pytest.fixture
def fill(server: Standalone, producer: Producer) -> Fill:
    """`fill(topic, queue_id, count)`: messages `topic/queue/n` with key n and tag TagA or TagB in turn."""

    def send(topic: str, queue_id: int, count: int, first: int = 0, size: int = 0, **properties: str) -> None:
        queue = MessageQueue(topic, "broker-a", queue_id)
        for start in range(first, first + count, 50):
            batch = []
            for n in range(start, min(start + 50, first + count)):
                message = Message(topic, f"{topic}/{queue_id}/{n}".encode() + bytes(size), dict(properties))
                message.tags, message.keys = ("TagA" if n % 2 else "TagB"), [str(n)]
                batch.append(message)
            producer.send_batch(batch, queue=queue)

    return send
