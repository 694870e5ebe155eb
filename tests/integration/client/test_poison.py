"""Messages whose producer calls their body compressed although it is not: they keep no consumer from their
neighbours."""

import asyncio
import zlib
from collections.abc import Callable

import pytest

from maxq.api import (
    ConsumeFromWhere,
    Message,
    MessageExt,
    async_admin,
    async_lite_pull_consumer,
    async_producer,
    async_push_consumer,
    async_simple_consumer,
)
from maxq.protocol.body.consumer_info import SetMessageRequestModeRequestBody
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.enums import MessageRequestMode
from maxq.protocol.message.message_sys_flag import MessageSysFlag

Name = Callable[[str], str]
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
_BOMB = zlib.compress(bytes(65 << 20), 9)  # inflates to more than 64 MiB
POISON = [
    (b"not zlib", MessageSysFlag.COMPRESSED),
    (b"not lz4", 0x101),
    (b"not zstd", 0x201),
    (b"of no kind", 0x501),
    (zlib.compress(b"cut short")[:-2], MessageSysFlag.COMPRESSED),
    (_BOMB, MessageSysFlag.COMPRESSED),
]


async def _poisoned(namesrv: str, topic: str) -> set[bytes]:
    """A good message before and behind each bad one, all in one queue."""
    async with async_admin(namesrv) as admin:
        for address in await admin.brokers.masters_of_cluster("DefaultCluster"):
            await admin.topics.create(address, TopicConfig(topic, 1, 1))
    async with async_producer("PG", namesrv) as producer:
        sender = producer._sender
        for number, (body, flag) in enumerate(POISON):
            await producer.send(Message(topic, b"good %d" % number))
            prepared = sender.preparer.prepare(Message(topic, body, {"KEYS": "poison"}))
            prepared.body, prepared.sys_flag = body, flag
            await sender.send(prepared, 3_000, 0)
        await producer.send(Message(topic, b"last"))
    return {b"last", *(b"good %d" % number for number in range(len(POISON))), *(body for body, _ in POISON)}


def _check(found: list[MessageExt], wanted: set[bytes]) -> None:
    assert sorted(message.body for message in found) == sorted(wanted)
    good = {message.body for message in found if not message.body_fault}
    assert good == {body for body in wanted if body.startswith((b"good", b"last"))}
    faults = {message.body: message.body_fault for message in found if message.body_fault}
    assert faults[b"not zlib"].startswith("a body of 8 bytes is not ZLIB")
    assert "inflates to more than 67108864 bytes" in faults[_BOMB]


@pytest.mark.parametrize("kind", ["push", "orderly", "pop"])
async def test_listeners_get_what_does_not_decompress_as_it_is(namesrv: str, name: Name, kind: str) -> None:
    topic, group = name("T"), name("G")
    wanted = await _poisoned(namesrv, topic)
    if kind == "pop":
        async with async_admin(namesrv) as admin:
            (address,) = await admin.brokers.masters_of_cluster("DefaultCluster")
            body = SetMessageRequestModeRequestBody(topic, group, MessageRequestMode.POP, 0)
            await admin.groups.set_message_request_mode(address, body)
    found: list[MessageExt] = []
    done = asyncio.Event()

    async def listener(messages: list[MessageExt], context: object) -> None:
        found.extend(messages)
        if len(found) == len(wanted):
            done.set()

    consumer = async_push_consumer(
        group, namesrv, listener, orderly=kind == "orderly", consume_from_where=FIRST, client_rebalance=kind != "pop"
    )
    consumer.subscribe(topic)
    async with consumer, asyncio.timeout(20):
        await done.wait()
    _check(found, wanted)


async def test_those_who_ask_for_messages_get_it_as_it_is(namesrv: str, name: Name) -> None:
    topic = name("T")
    wanted = await _poisoned(namesrv, topic)
    found: list[MessageExt] = []
    lite = async_lite_pull_consumer(name("L"), namesrv, consume_from_where=FIRST)
    await lite.subscribe(topic)
    async with lite, asyncio.timeout(20):
        while len(found) < len(wanted):
            found += await lite.poll(500)
    _check(found, wanted)
    rows: list[dict[str, object]] = []
    table = async_lite_pull_consumer(name("A"), namesrv, consume_from_where=FIRST)
    await table.subscribe(topic)
    async with table, asyncio.timeout(20):
        while len(rows) < len(wanted):
            rows += (await table.poll_arrow(500, columns=["body", "bodyFault"])).to_pylist()
    told = {message.body: message.body_fault or None for message in found}
    assert {row["body"]: row["bodyFault"] for row in rows} == told
    found.clear()
    simple = async_simple_consumer(name("S"), namesrv, consume_from_where=FIRST)
    await simple.subscribe(topic)
    async with simple, asyncio.timeout(20):
        while len(found) < len(wanted):
            messages = await simple.receive(4, wait_ms=500)
            await simple.ack_all(messages)
            found += messages
    _check(found, wanted)
    async with async_admin(namesrv) as admin:
        keyed = await admin.messages.query_by_key(topic, "poison")
        assert len(keyed) == len(POISON) and sum(bool(message.body_fault) for message in keyed) >= len(POISON) - 1
        one = await admin.messages.view_by_offset_id(found[1].offset_msg_id, topic)
        assert (one.body, one.body_fault) == (found[1].body, found[1].body_fault)
