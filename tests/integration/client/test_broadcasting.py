"""Broadcasting: every member gets every message, and remembers by itself how far it is."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from maxq.api import Message, MessageModel, async_producer, async_push_consumer
from maxq.client.consumer.push_consumer import PushConsumer
from maxq.errors import ClientError
from tests.integration.client.helpers import FROM_FIRST, Collector

Name = Callable[[str], str]


def member(namesrv: str, group: str, topic: str, got: Collector, folder: Path, instance: str) -> PushConsumer:
    consumer = async_push_consumer(
        group,
        namesrv,
        got,
        message_model=MessageModel.BROADCASTING,
        instance_name=instance,
        local_offset_store_dir=str(folder),
        consume_from_where=FROM_FIRST,
    )
    consumer.subscribe(topic)
    return consumer


async def test_every_member_gets_every_message(namesrv: str, name: Name, tmp_path: Path) -> None:
    topic, group, got = name("T"), name("G"), [Collector(), Collector()]
    async with async_producer(name("P"), namesrv) as producer:
        await producer.send_many([Message(topic, b"%d" % n) for n in range(40)])
        async with (
            member(namesrv, group, topic, got[0], tmp_path, "one"),
            member(namesrv, group, topic, got[1], tmp_path, "two"),
        ):
            for collector in got:
                await collector.wait_for(40)
    expected = Counter(b"%d" % n for n in range(40))
    assert got[0].counts() == expected
    assert got[1].counts() == expected


async def test_two_members_do_not_keep_their_offsets_in_one_file(namesrv: str, name: Name, tmp_path: Path) -> None:
    """The one that comes back would go on where the other is, and miss what that had got meanwhile."""
    topic, group, got = name("T"), name("G"), Collector()
    async with async_producer(name("P"), namesrv) as producer:
        await producer.send(Message(topic, b"0"))
        one, two = (member(namesrv, group, topic, got, tmp_path, "same") for _ in range(2))
        async with one:
            with pytest.raises(ClientError, match="instance_name"):
                await two.start()
            await got.wait_for(1)
        async with two:
            await producer.send(Message(topic, b"1"))
            await got.wait_for(2)
    assert got.counts() == Counter([b"0", b"1"])


async def test_a_member_goes_on_from_its_local_file(namesrv: str, name: Name, tmp_path: Path) -> None:
    topic, group, first, second = name("T"), name("G"), Collector(), Collector()
    async with async_producer(name("P"), namesrv) as producer:
        await producer.send_many([Message(topic, b"a%d" % n) for n in range(20)])
        async with member(namesrv, group, topic, first, tmp_path, "one") as one:
            await first.wait_for(20)
            await one.shutdown(10_000)  # calls of the listener may not have ended yet on a busy machine
        (stored,) = tmp_path.rglob("offsets.json")
        assert b'"offsetTable":{' in stored.read_bytes()
        await producer.send_many([Message(topic, b"b%d" % n) for n in range(20)])
        async with member(namesrv, group, topic, second, tmp_path, "one"):
            await second.wait_for(20)
    assert second.counts() == Counter(b"b%d" % n for n in range(20))
