"""The servers go away and come back; nobody loses a message."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from maxq.api import Message, async_admin, async_lite_pull_consumer, async_producer, async_push_consumer
from maxq.errors import MaxQError
from maxq.protocol.body.topic_config import TopicConfig
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


def lose_power(server: Standalone, first_lost: bytes) -> None:
    """Stop the server, let its log end before the message with this body, as if nothing behind was on the disk yet, and
    start it again."""
    server.stop()
    (path,) = [path for path in (server.store / "commitlog").iterdir() if first_lost in path.read_bytes()]
    log = path.read_bytes()
    body = log.index(first_lost)
    start = log.rindex(b"\xda\xa3\x20\xa7", 0, body) - 4  # a record begins with its size and this number
    path.write_bytes(log[:start] + bytes(len(log) - start))
    (server.store / "abort").write_bytes(b"")
    server.start()


async def test_messages_that_take_the_place_of_lost_ones_are_new_to_groups_that_had_those(
    server: Standalone, name: Name
) -> None:
    topic, namesrv = name("T"), server.namesrv_address
    gone, paused, again = Collector(), Collector(), Collector()
    async with async_admin(namesrv) as admin:
        await admin.topics.create_in_cluster("DefaultCluster", TopicConfig(topic, 1, 1))
    async with async_producer(name("P"), namesrv) as producer:
        for n in range(20):
            await producer.send(Message(topic, b"old %02d;" % n))
    running = async_push_consumer(name("R"), namesrv, paused, consume_from_where=FROM_FIRST, instance_name="running")
    running.subscribe(topic)
    async with running:
        stopped = async_push_consumer(name("S"), namesrv, gone, consume_from_where=FROM_FIRST)
        stopped.subscribe(topic)
        async with stopped:
            await gone.wait_for(20)
            await paused.wait_for(20)
        await running.persist_consumer_offset()
        running.suspend()
        await asyncio.to_thread(lose_power, server, b"old 10;")
        async with async_producer(name("P"), namesrv) as producer:
            for n in range(15):  # more than were lost: the offsets of both groups lie within the queue again
                await producer.send(Message(topic, b"new %02d;" % n), timeout_ms=10_000)
        running.resume()
        stopped = async_push_consumer(name("S"), namesrv, again, consume_from_where=FROM_FIRST)
        stopped.subscribe(topic)
        async with stopped:
            await again.wait_for(15)
            await paused.wait_for(35)
    new = Counter(b"new %02d;" % n for n in range(15))
    assert again.counts() == new
    assert paused.counts() - Counter(gone.bodies) == new


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


async def test_a_changed_setting_of_the_name_server_outlives_a_restart(server: Standalone) -> None:
    async with async_admin(server.namesrv_address) as admin:
        await admin.name_servers.update_config({"orderMessageEnable": "true"})
        await asyncio.to_thread(restart, server)
        (config,) = (await admin.name_servers.config()).values()
        assert config["orderMessageEnable"] == "true"


async def test_a_dead_broker_is_an_error_in_time_and_its_messages_are_still_there(
    server: Standalone, name: Name
) -> None:
    topic, namesrv = name("T"), server.namesrv_address
    async with async_producer(name("P"), namesrv) as producer:
        sent = await producer.send(Message(topic, b"stored"))
        await asyncio.to_thread(server.stop)
        async with asyncio.timeout(30):
            with pytest.raises(MaxQError):
                await producer.send(Message(topic, b"lost"), timeout_ms=2_000)
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
