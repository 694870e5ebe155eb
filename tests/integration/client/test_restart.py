"""The servers go away and come back; nobody loses a message."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from maxq.api import Message, async_admin, async_lite_pull_consumer, async_producer, async_push_consumer
from maxq.errors import MaxQError
from maxq.standalone import Standalone
from tests.integration.client.helpers import FROM_FIRST, Collector, eventually

Name = Callable[[str], str]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Standalone]:
    """A server of this test's own, with a store that outlives a stop."""
    standalone = Standalone(tmp_path / "store")
    standalone.start()
    try:
        yield standalone
    finally:
        standalone.stop()


def restart(server: Standalone) -> None:
    server.stop()
    server.start()


async def test_a_group_reads_on_from_its_committed_offset_after_a_broker_restart(
    server: Standalone, name: Name
) -> None:
    topic, group, before, after = name("T"), name("G"), Collector(), Collector()
    namesrv = server.namesrv_address
    async with async_producer(name("P"), namesrv) as producer:
        await producer.send_many([Message(topic, b"a%d" % n) for n in range(200)])
    consumer = async_push_consumer(group, namesrv, before, consume_from_where=FROM_FIRST)
    consumer.subscribe(topic)
    async with consumer:
        await before.wait_for(200)
        await consumer.shutdown(10_000)  # calls of the listener may not have ended yet on a busy machine
    async with async_producer(name("P"), namesrv) as producer:
        await producer.send_many([Message(topic, b"b%d" % n) for n in range(50)])
    await asyncio.to_thread(restart, server)
    again = async_push_consumer(group, namesrv, after, consume_from_where=FROM_FIRST)
    again.subscribe(topic)
    async with again:
        await after.wait_for(50)
    assert before.counts() == Counter(b"a%d" % n for n in range(200))
    assert after.counts() == Counter(b"b%d" % n for n in range(50))


async def test_running_clients_go_on_by_themselves_after_a_restart(server: Standalone, name: Name) -> None:
    topic, got = name("T"), Collector()
    namesrv = server.namesrv_address
    consumer = async_push_consumer(name("G"), namesrv, got, consume_from_where=FROM_FIRST)
    consumer.subscribe(topic)
    async with async_producer(name("P"), namesrv) as producer, consumer:
        await producer.send(Message(topic, b"before"))
        await eventually(lambda: b"before" in got.bodies, "the message before the restart", 40)
        await asyncio.to_thread(restart, server)
        await producer.send(Message(topic, b"after"), timeout_ms=10_000)
        await eventually(lambda: b"after" in got.bodies, "the message after the restart")


async def test_a_dead_broker_is_an_error_in_time_and_its_messages_are_still_there(
    server: Standalone, name: Name
) -> None:
    topic, namesrv = name("T"), server.namesrv_address
    loop = asyncio.get_running_loop()
    async with async_producer(name("P"), namesrv) as producer:
        sent = await producer.send(Message(topic, b"stored"))
        await asyncio.to_thread(server.stop)
        started = loop.time()
        with pytest.raises(MaxQError):
            await producer.send(Message(topic, b"lost"), timeout_ms=2_000)
        assert loop.time() - started < 4
        await asyncio.to_thread(server.start)
    async with async_admin(namesrv) as admin:
        assert (await admin.messages.view(topic, sent.offset_msg_id)).body == b"stored"
        assert (await admin.messages.view(topic, sent.msg_id)).body == b"stored"


async def test_a_lite_pull_consumer_goes_on_after_a_restart(server: Standalone, name: Name) -> None:
    topic, namesrv = name("T"), server.namesrv_address
    async with async_producer(name("P"), namesrv) as producer:
        await producer.send(Message(topic, b"first"))
        consumer = async_lite_pull_consumer(name("G"), namesrv, consume_from_where=FROM_FIRST)
        await consumer.subscribe(topic)
        async with consumer:
            assert [m.body for m in await consumer.poll(10_000)] == [b"first"]
            await consumer.commit()
            await asyncio.to_thread(restart, server)
            await producer.send(Message(topic, b"second"), timeout_ms=10_000)
            assert [m.body for m in await consumer.poll(20_000)] == [b"second"]
