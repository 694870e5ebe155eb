"""Sends in the common way when a program, its threads or its callbacks do what is unusual."""

import asyncio
import contextvars
import gc
import tracemalloc
from collections.abc import Iterator
from itertools import count
from types import ModuleType
from typing import Any
from unittest import mock

import pytest

from maxq.client.errors import MessageRefusedError
from maxq.client.message_feed import MessageFeed
from maxq.client.results.send_result import SendResult
from maxq.codes import RequestCode, ResponseCode
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message.message import Message
from maxq.remoting.connection import Connection
from tests.unit.client.mock_broker import MockCluster, simulate
from tests.unit.client.producer.test_fast_sends import form, frames, make, warm

__all__ = ["form"]
SEND, BATCH = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE


# --- a feed whose next message does not come --------------------------------------------------------------------------


def test_a_failed_message_of_a_feed_is_tried_again_although_no_further_one_comes(form: ModuleType) -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start("broker-0", "broker-1")
        cluster.route("T", queues=2)
        async with make(cluster) as producer:
            await warm(cluster, producer, "T")
            told: list[tuple[int, SendResult]] = []
            feed = MessageFeed(asyncio.get_running_loop(), 10, lambda place, result: told.append((place, result)))
            many = asyncio.ensure_future(producer.send_many(feed))
            for broker in cluster.brokers.values():
                broker.scripts[SEND] = lambda request: request.reply(ResponseCode.SYSTEM_BUSY, "later")
            feed.put(Message("T", b"x"))
            await asyncio.sleep(0.01)
            for broker in cluster.brokers.values():
                broker.scripts.clear()
            feed.put(Message("T", b"y"))
            await asyncio.sleep(0.01)
            cluster.master("broker-0").scripts[SEND] = lambda request: request.reply(ResponseCode.SYSTEM_BUSY, "later")
            feed.put(Message("T", b"1"))
            feed.put(Message("T", b"2"))
            await asyncio.sleep(2)
            assert {place for place, _ in told} >= {1, 2, 3}, "each has its result while the feed waits"
            feed.end()
            await many

    simulate(story)


def test_what_a_feeds_callback_raises_ends_the_feed_although_no_further_message_comes(form: ModuleType) -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        async with make(cluster) as producer:
            await warm(cluster, producer, "T")

            def refuse(place: int, result: SendResult) -> None:
                raise ValueError("no more")

            feed = MessageFeed(asyncio.get_running_loop(), 10, refuse)
            many = asyncio.ensure_future(producer.send_many(feed))
            feed.put(Message("T", b"x"))
            done, _ = await asyncio.wait([many], timeout=2)
            assert done, "send_many ends"
            assert isinstance(many.exception(), ValueError)
            assert not feed.put(Message("T", b"y"))

    simulate(story)


# --- callbacks --------------------------------------------------------------------------------------------------------


def test_a_callback_that_is_cancelled_does_not_break_the_connection(form: ModuleType) -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        async with make(cluster) as producer:
            await warm(cluster, producer, "T")
            (_, connection), *_ = [c for c in producer._sender.instance.remoting.open_connections() if "10911" in c[0]]

            def refuse(result: SendResult) -> None:
                raise asyncio.CancelledError

            other = asyncio.ensure_future(producer.send(Message("T", b"other")))
            with pytest.raises(asyncio.CancelledError):
                await producer.send_many([Message("T", b"x")], on_result=refuse)
            await other
            assert not connection.is_closed
            assert sorted(message.body for message in cluster.broker.log[2:]) == [b"other", b"x"], (
                "nothing is sent twice"
            )

    simulate(story)


def test_a_callback_runs_in_the_context_of_its_send_many(form: ModuleType) -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="none")

    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        async with make(cluster) as producer:
            await warm(cluster, producer, "T")
            name.set("mine")
            seen: list[str] = []
            await producer.send_many([Message("T", b"x")] * 3, on_result=lambda result: seen.append(name.get()))
            assert seen == ["mine"] * 3

    simulate(story)


# --- what is refused, and limits --------------------------------------------------------------------------------------


def test_a_batch_for_a_retry_topic_is_refused_also_when_the_topic_is_known(form: ModuleType) -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("%RETRY%g")
        async with make(cluster) as producer:
            await warm(cluster, producer, "%RETRY%g")
            with pytest.raises(MessageRefusedError, match="retry topic"):
                await producer.send_batch([Message("%RETRY%g", b"x"), Message("%RETRY%g", b"y")])

    simulate(story)


def test_send_many_has_no_more_bytes_on_their_way_also_of_large_uncompressed_bodies(form: ModuleType) -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        with mock.patch("maxq.client.producer.many_sends._MANY_BYTES", 4000):
            await limited(cluster)

    async def limited(cluster: MockCluster) -> None:
        async with make(cluster) as producer:
            await warm(cluster, producer, "T")
            most, now = 0, 0
            handle = cluster.broker._process

            async def counted(connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
                nonlocal most, now
                now += len(request.body_bytes)
                most = max(most, now)
                await asyncio.sleep(0.1)
                now -= len(request.body_bytes)
                return await handle(connection, request)

            cluster.broker.server.register_default(counted)
            results = await producer.send_many(Message("T", bytes(3000)) for _ in range(4))
            assert len(results) == 4
            assert most <= 4000

    simulate(story)


# --- other code that runs in the middle -------------------------------------------------------------------------------


def test_a_batch_is_read_once(form: ModuleType) -> None:
    class Growing(list[Message]):
        """A list that has other messages each time."""

        def __iter__(self) -> Iterator[Message]:
            self.turns = getattr(self, "turns", 0) + 1
            return iter([Message("T", bytes(100_000 * self.turns), {"UNIQ_KEY": "id"})])

    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        async with make(cluster) as producer:
            await warm(cluster, producer, "T")
            await producer.send_batch(Growing([Message("T", b"x")]))
            (request,) = cluster.broker.requests(BATCH)
            assert len(request.body_bytes) < 110_000

    simulate(story)


def test_a_flag_that_runs_code_is_not_asked(form: ModuleType) -> None:
    class Flag(int):
        def __ne__(self, other: object) -> bool:
            victim.properties["KEYS"] = "x" * 30_000
            return False

    victim = Message("T", b"x")

    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        async with make(cluster) as producer:
            await warm(cluster, producer, "T")
            with frames() as sent:
                await producer.send_batch([victim, Message("T", b"y", flag=Flag())])
            assert not sent

    simulate(story)


def test_a_send_that_begins_in_the_middle_of_another_one_is_a_send_of_its_own(form: ModuleType) -> None:
    """As a signal handler, a finalizer or another thread may."""

    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        async with make(cluster) as producer:
            await warm(cluster, producer, "T")
            remoting = producer._sender.instance.remoting
            next_opaque, calls = remoting.next_opaque, count()
            inner: list[asyncio.Future[SendResult]] = []

            def interrupted() -> int:
                if next(calls) == 0:
                    for n in range(30):  # so many that the buffer becomes another one
                        inner.append(producer.send_async(Message("T", b"inner%d" % n + bytes(4000))))
                return next_opaque()

            with mock.patch.object(remoting, "next_opaque", interrupted):
                outer = producer.send_async(Message("T", b"outer"))
            results = await asyncio.gather(outer, *inner)
            log = {message.body[:7].rstrip(b"\0") for message in cluster.broker.log[2:]}
            assert log == {b"outer", *(b"inner%d" % n for n in range(30))}
            assert len({result.msg_id for result in results}) == 31

    simulate(story)


def test_an_interrupt_after_a_message_was_encoded_does_not_break_the_connection(form: ModuleType) -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        async with make(cluster) as producer:
            await warm(cluster, producer, "T")
            await asyncio.sleep(10)  # the timer has ended
            loop: Any = asyncio.get_running_loop()
            with mock.patch.object(loop, "call_later", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
                producer._sender.fast.post(Message("T", b"x"), None, 3000)  # type: ignore[union-attr]
            (_, connection), *_ = [c for c in producer._sender.instance.remoting.open_connections() if "10911" in c[0]]
            await producer.send(Message("T", b"y"))
            await asyncio.sleep(1)
            assert not connection.is_closed

    simulate(story)


@pytest.mark.parametrize("several", [False, True])
def test_a_write_that_fails_is_tried_again_and_the_other_brokers_get_theirs(form: ModuleType, several: bool) -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start("broker-0", "broker-1", "broker-2")
        cluster.route("T", queues=2)
        async with make(cluster) as producer:
            await warm(cluster, producer, "T")
            broken: list[Connection] = []
            write = Connection.write

            def fail(self: Connection, buffers: Any) -> None:
                if not broken and b'"code":310' in b"".join(buffers):
                    broken.append(self)
                    self.abort("a write failed half way")
                    raise OSError("as scripted")
                write(self, buffers)

            with mock.patch.object(Connection, "write", fail):
                messages = [Message("T", b"%d" % n) for n in range(12)]
                if several:
                    results = await producer.send_many(messages)
                else:
                    results = await asyncio.gather(*map(producer.send, messages))
            assert broken
            assert len(results) == 12
            stored = [message.body for broker in cluster.brokers.values() for message in broker.log]
            assert sorted(body for body in stored if body != b"first") == sorted(message.body for message in messages)

    simulate(story)


def test_a_batch_whose_messages_change_each_other_while_it_is_read_is_whole(form: ModuleType) -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        async with make(cluster) as producer:
            await warm(cluster, producer, "T")
            first, second = Message("T", b"first"), Message("T", b"second")

            class Key:
                def __hash__(self) -> int:
                    return hash("UNIQ_KEY")

                def __eq__(self, other: object) -> bool:
                    second.properties.clear()
                    first.properties.update({f"k{n}": "v" * 300 for n in range(60)})
                    return False

            second.properties[Key()] = "x"  # type: ignore[index]
            await producer.send_batch([first, second])
            assert cluster.broker.log[-2].properties["k59"] == "v" * 300

    simulate(story)


def test_a_message_that_changes_while_another_one_is_written_is_whole(form: ModuleType) -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        async with make(cluster, compress_msg_body_over_howmuch=1 << 20) as producer:
            await warm(cluster, producer, "T")
            message = Message("T", b"x")
            send = Connection.send_requests

            def change(self: Connection, frames: bytes, count: int, body: bytes = b"") -> None:
                message.properties.update({f"k{n}": "v" * 300 for n in range(60)})
                send(self, frames, count, body)

            with mock.patch.object(Connection, "send_requests", change):
                await producer.send_many([Message("T", bytes(99_999)), message])
            assert [one.properties.get("k59") for one in cluster.broker.log if one.body == b"x"] == ["v" * 300]

    simulate(story)


@pytest.mark.parametrize(("count", "value"), [(20, "fine"), (9, "x" * 40_000)], ids=["too large", "a long property"])
def test_a_refused_batch_leaves_nothing_in_memory(form: ModuleType, count: int, value: str) -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        async with make(cluster) as producer:
            await warm(cluster, producer, "T")
            body = bytes(300_000)
            messages = [Message("T", body, {"name": "fine"}) for _ in range(count)]
            messages[-1].properties["name"] = value
            tracemalloc.start()
            try:
                with pytest.raises(MessageRefusedError):
                    await producer.send_batch(messages)
                gc.collect()
                assert tracemalloc.get_traced_memory()[0] < 1 << 20
            finally:
                tracemalloc.stop()

    simulate(story)


def test_large_batches_of_one_turn_do_not_wait_for_each_other(form: ModuleType) -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        async with make(cluster) as producer:
            await warm(cluster, producer, "T")
            sizes: list[int] = []

            def note(self: Connection, frames: bytes, count: int, body: bytes = b"") -> None:
                sizes.append(len(frames) + len(body))

            with mock.patch.object(Connection, "send_requests", note):
                fast: Any = producer._sender.fast
                for _ in range(20):
                    fast.post_batch([Message("T", bytes(300_000))], None, 3000)
                await asyncio.sleep(0)
            assert max(sizes) < 2 << 20
            assert sum(sizes) > 6_000_000

    simulate(story)
