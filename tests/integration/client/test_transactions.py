"""TransactionProducer: a message and a local transaction, both or neither."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from maxq.api import (
    LocalTransactionState,
    Message,
    MessageExt,
    SendStatus,
    TransactionProducer,
    async_push_consumer,
    async_transaction_producer,
)
from maxq.client.errors import MessageRefusedError
from maxq.standalone import Standalone
from tests.integration.client.helpers import FROM_FIRST, Collector, eventually

Name = Callable[[str], str]
COMMIT, ROLLBACK = LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.ROLLBACK_MESSAGE
UNKNOW = LocalTransactionState.UNKNOW
STATE_OF = {b"c": COMMIT, b"r": ROLLBACK, b"u": UNKNOW}


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A name server whose broker soon asks for transactions."""
    settings = {"transactionTimeOut": "50", "transactionCheckInterval": "50"}
    with Standalone(tmp_path_factory.mktemp("store"), settings=settings) as server:
        yield server.namesrv_address


class Local:
    """Local transactions: a body says by its letters how its transaction ends when executed, and when asked for."""

    def __init__(self) -> None:
        self.executed: list[tuple[bytes, Any]] = []
        self.checked: list[MessageExt] = []

    def execute_local_transaction(self, message: Message, arg: Any) -> LocalTransactionState | None:
        self.executed.append((message.body, arg))
        if message.body[:1] == b"!":
            raise ValueError("the database is away")
        return STATE_OF[message.body[:1]]

    def check_local_transaction(self, message: MessageExt) -> LocalTransactionState | None:
        self.checked.append(message)
        return STATE_OF.get(message.body[1:2], UNKNOW)


class AsyncLocal(Local):
    async def execute_local_transaction(  # type: ignore[override]
        self, message: Message, arg: Any
    ) -> LocalTransactionState | None:
        await asyncio.sleep(0)
        return super().execute_local_transaction(message, arg)

    async def check_local_transaction(  # type: ignore[override]
        self, message: MessageExt
    ) -> LocalTransactionState | None:
        await asyncio.sleep(0)
        return super().check_local_transaction(message)


@pytest.mark.parametrize("kind", [Local, AsyncLocal])
async def test_what_is_committed_is_delivered_and_nothing_else(quick: str, name: Name, kind: type[Local]) -> None:
    topic, got, local = name("T"), Collector(), kind()
    consumer = async_push_consumer(name("G"), quick, got, consume_from_where=FROM_FIRST)
    consumer.subscribe(topic)
    async with async_transaction_producer(name("P"), quick, local) as producer:
        results = {
            body: await producer.send_message_in_transaction(Message(topic, body), body.decode())
            for body in (b"c", b"r", b"uc", b"ur", b"!c", b"uuc")
        }
        async with consumer:
            await got.wait_for(3)
            undecided = {b"uc", b"ur", b"!c", b"uuc"}
            await eventually(lambda: undecided <= {m.body for m in local.checked}, "all four were asked for")
    assert {body: result.local_transaction_state for body, result in results.items()} == {
        b"c": COMMIT, b"r": ROLLBACK, b"uc": UNKNOW, b"ur": UNKNOW, b"!c": UNKNOW, b"uuc": UNKNOW,
    }  # fmt: skip
    assert all(result.end_error is None for result in results.values())
    assert all(result.send_status is SendStatus.SEND_OK for result in results.values())
    assert sorted(got.bodies) == [b"!c", b"c", b"uc"]
    assert local.executed == [(body, body.decode()) for body in results]
    asked = next(message for message in local.checked if message.body == b"uc")
    assert (asked.topic, asked.uniq_key) == (topic, results[b"uc"].msg_id)


async def test_any_producer_of_the_group_is_asked(quick: str, name: Name) -> None:
    topic, group, got = name("T"), name("P"), Collector()
    gone, there = Local(), Local()
    async with async_transaction_producer(group, quick, gone) as producer:
        await producer.send_message_in_transaction(Message(topic, b"uc"))
        async with async_transaction_producer(group, quick, there, instance_name="other") as other:
            await other.send_message_in_transaction(Message(topic, b"c"))
            await producer.shutdown()
            consumer = async_push_consumer(name("G"), quick, got, consume_from_where=FROM_FIRST)
            consumer.subscribe(topic)
            async with consumer:
                await got.wait_for(2)
    assert sorted(got.bodies) == [b"c", b"uc"]


async def test_a_large_message_is_checked_inflated(quick: str, name: Name) -> None:
    topic, got, local = name("T"), Collector(), Local()
    body = b"uc" + b"x" * 20_000
    async with async_transaction_producer(name("P"), quick, local) as producer:
        await producer.send_message_in_transaction(Message(topic, body))
        consumer = async_push_consumer(name("G"), quick, got, consume_from_where=FROM_FIRST)
        consumer.subscribe(topic)
        async with consumer:
            await got.wait_for(1)
    assert local.checked[0].body == got.messages[0].body == body


async def test_delayed_messages_are_refused(quick: str, name: Name) -> None:
    async with async_transaction_producer(name("P"), quick, Local()) as producer:
        with pytest.raises(MessageRefusedError, match="cannot be delayed"):
            await producer.send_message_in_transaction(Message(name("T"), b"c", {"DELAY": "3"}))


def test_blocking_producer_executes_in_the_senders_thread(quick: str, name: Name) -> None:
    threads: dict[str, str] = {}

    class Where(Local):
        def execute_local_transaction(self, message: Message, arg: Any) -> LocalTransactionState | None:
            threads["execute"] = threading.current_thread().name
            return super().execute_local_transaction(message, arg)

        def check_local_transaction(self, message: MessageExt) -> LocalTransactionState | None:
            threads["check"] = threading.current_thread().name
            asked.set()
            return super().check_local_transaction(message)

    asked = threading.Event()
    with TransactionProducer(name("P"), quick, Where()) as producer:
        committed = producer.send_message_in_transaction(Message(name("T"), b"c"))
        result = producer.send_message_in_transaction(Message(name("T"), b"uc"), "arg")
        assert asked.wait(20)
    assert (committed.local_transaction_state, result.local_transaction_state) == (COMMIT, UNKNOW)
    assert threads["execute"] == threading.current_thread().name
    assert threads["check"].startswith("maxq-check")


async def test_an_end_that_the_broker_refuses_is_told(tmp_path: Path, name: Name) -> None:
    """The immunity time of the message is over when the local transaction ends."""
    settings = {"transactionTimeOut": "0", "transactionCheckInterval": "3600000"}

    class Slow(Local):
        async def execute_local_transaction(  # type: ignore[override]
            self, message: Message, arg: Any
        ) -> LocalTransactionState | None:
            await asyncio.sleep(0.02)
            return COMMIT

    with Standalone(tmp_path / "store", settings=settings) as server:
        async with async_transaction_producer(name("P"), server.namesrv_address, Slow()) as producer:
            message = Message(name("T"), b"c", {"CHECK_IMMUNITY_TIME_IN_SECONDS": "0"})
            result = await producer.send_message_in_transaction(message)
    assert "only the answer to a check ends its transaction now" in str(result.end_error)
