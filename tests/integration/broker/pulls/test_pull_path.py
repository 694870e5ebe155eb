"""Pulls that repeat are answered from what is remembered of the first: byte for byte as the processor answers them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from maxq.codes import RequestCode
from maxq.protocol.frame.remoting_command import RemotingCommand, SerializeType
from maxq.protocol.header.pull import PullMessageRequestHeader
from maxq.protocol.message.message import decode_records
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import SUBSCRIPTION, SUSPEND, Asked, RunningBroker, until
from tests.integration.broker.operators.test_metrics import scrape
from tests.unit.remoting.peers import RawPeer, connected

HOLD = SUSPEND | SUBSCRIPTION
COMMIT = 1
PULLS = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)


@pytest.fixture
async def topic(broker: RunningBroker) -> str:
    """Queues 0 and 1 hold messages in turn, with tags TagA, TagB and without, of sizes up to 40 KB."""
    broker.create_topic("T", queues=3)
    for i in range(60):
        tags = {"TAGS": f"Tag{'AB'[i % 3]}"} if i % 3 < 2 else {}
        await broker.send("T", bytes([65 + i % 26]) * (i * 11 if i % 20 else 40_000), queue_id=i % 2, **tags)
    return "T"


@pytest.fixture
async def peer(broker: RunningBroker) -> AsyncIterator[RawPeer]:
    async with connected(broker.controller.port, limit=1 << 24) as one:
        yield one


def pull(
    offset: int = 0,
    *,
    queue_id: int = 0,
    tags: str = "*",
    sys_flag: int = SUBSCRIPTION,
    max_nums: int = 32,
    wait_ms: int = 0,
    commit: int = 0,
    group: str = "G",
    code: int = RequestCode.PULL_MESSAGE,
    opaque: int = 7,
) -> RemotingCommand:
    header = PullMessageRequestHeader(
        group, "T", queue_id, offset, max_nums, sys_flag, commit, wait_ms, 0, tags, "TAG"
    )  # fmt: skip
    return RemotingCommand(code, header.encode(), opaque=opaque)


async def frame_of(peer: RawPeer) -> bytes:
    length = await peer.reader.readexactly(4)
    return length + await peer.reader.readexactly(int.from_bytes(length, "big"))


async def processors_answer(broker: RunningBroker, peer: RawPeer, request: RemotingCommand) -> bytes:
    """What the processor says, who is asked because nothing is remembered."""
    server = broker.controller.server
    batch_path, server.batch_path = server.batch_path, None
    arrivals_path, server.batched_reads.path = server.batched_reads.path, None
    try:
        peer.send(request)
        return await frame_of(peer)
    finally:
        server.batch_path, server.batched_reads.path = batch_path, arrivals_path


@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE])
@pytest.mark.parametrize("tags", ["*", "TagA", "TagA || TagB"])
async def test_remembered_pulls_are_answered_as_the_processor_answers_them(
    broker: RunningBroker, topic: str, peer: RawPeer, tags: str, code: int
) -> None:
    asked = Asked(broker, *PULLS)
    peer.send(pull(tags=tags, code=code))
    await frame_of(peer)
    for offset in range(30):
        request = pull(offset, tags=tags, code=code, opaque=1000 + offset)
        seen = asked.count
        peer.send(request)
        answer = await frame_of(peer)
        assert (asked.count == seen) == (b'"remark":"FOUND"' in answer), offset
        assert answer == await processors_answer(broker, peer, request)


async def test_pulls_behind_each_other_are_answered_in_order(broker: RunningBroker, topic: str, peer: RawPeer) -> None:
    peer.send(pull())
    await frame_of(peer)
    requests = [pull(offset, opaque=offset, max_nums=3) for offset in range(20)]
    requests[0:0] = [pull(max_nums=3)]
    odd = RemotingCommand(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"}, opaque=99)
    peer.send(*requests[:11], odd, *requests[11:])
    got = [await peer.receive() for _ in range(22)]
    assert [reply.opaque for reply in got] == [7, *range(10), 99, *range(10, 20)]
    assert all(reply.code == 0 for reply in got)


async def test_a_peer_that_reads_late_gets_everything(broker: RunningBroker, topic: str, peer: RawPeer) -> None:
    whole = (await peer.ask(pull())).body_bytes
    assert len(whole) > 40_000
    transport, count = peer.writer.transport, 400
    assert isinstance(transport, asyncio.Transport)
    transport.pause_reading()
    for i in range(count):
        peer.send(pull(opaque=i))
    await until(lambda: any(one.unsent_bytes for one in broker.controller.server.connections))
    transport.resume_reading()
    for i in range(count):
        reply = await peer.receive()
        assert (reply.code, reply.opaque, reply.body_bytes) == (0, i, whole)


async def test_what_is_remembered_is_counted_and_committed_as_by_the_processor(
    broker: RunningBroker, topic: str, peer: RawPeer
) -> None:
    controller = broker.controller

    def counted(group: str) -> tuple[object, ...]:
        item = controller.stats.view("GROUP_GET_NUMS", f"T@{group}")
        offsets = controller.offsets
        return (
            None if item is None else (item.value, item.times),
            offsets.query_offset(group, "T", 0),
            offsets.query_pull_offset(group, "T", 0),
            controller.stats.get_counter(group, "T", 0).fall_behind_bytes,
        )

    flags = SUBSCRIPTION | COMMIT
    for offset in (0, 5, 9, 30):
        peer.send(pull(offset, sys_flag=flags, commit=offset + 1, group="Path", max_nums=4))
        await frame_of(peer)
        await processors_answer(broker, peer, pull(offset, sys_flag=flags, commit=offset + 1, group="Slow", max_nums=4))
        assert counted("Path") == counted("Slow")


# ---- whatever changed is seen -------------------------------------------------------------------------------------


async def test_a_change_is_seen_by_the_next_pull(broker: RunningBroker, topic: str, peer: RawPeer) -> None:
    controller = broker.controller

    async def code() -> int:
        return (await peer.ask(pull())).code

    assert [await code(), await code()] == [0, 0]
    controller.offsets.assign_reset_offsets("T", "G", {0: 2})
    assert [await code(), await code()] == [21, 0]
    controller.groups.disable_consume("G", "because")
    assert await code() == 16
    config = controller.groups.find_subscription_group_config("G")
    assert config is not None
    controller.groups.update_subscription_group_config(replace(config, consume_enable=True))
    assert [await code(), await code()] == [0, 0]
    broker.create_topic("T", queues=3, perm=2)
    assert await code() == 16
    broker.create_topic("T", queues=3)
    assert [await code(), await code()] == [0, 0]
    broker.settings.update({"brokerPermission": "2"})
    assert await code() == 16
    broker.settings.update({"brokerPermission": "6"})
    assert [await code(), await code()] == [0, 0]


async def test_lite_pulls_can_be_switched_off_although_pulls_like_it_are_remembered(
    start_broker: Start,
) -> None:
    broker = await start_broker(litePullMessageEnable="false")
    broker.create_topic("T")
    await broker.send("T", b"x")
    async with connected(broker.controller.port) as peer:
        assert [(await peer.ask(pull())).code for _ in range(2)] == [0, 0]
        assert (await peer.ask(pull(code=RequestCode.LITE_PULL_MESSAGE))).code == 16


async def test_heartbeats_that_change_the_subscription_are_seen(
    broker: RunningBroker, topic: str, peer: RawPeer
) -> None:
    async def tags() -> set[str]:
        request = pull(sys_flag=0, tags="")
        request.ext["subVersion"] = "0"
        reply = await peer.ask(request)
        return {record.properties.get("TAGS", "") for record in decode_records(reply.body_bytes)}

    await broker.heartbeat("G", {"T": "TagA"}, sub_version=5)
    assert [await tags(), await tags()] == [{"TagA"}] * 2
    await broker.heartbeat("G", {"T": "TagB"}, sub_version=6)
    assert [await tags(), await tags()] == [{"TagB"}] * 2


# ---- waiting ------------------------------------------------------------------------------------------------------


def waiting(offset: int, **more: object) -> RemotingCommand:
    return pull(offset, queue_id=2, sys_flag=HOLD, wait_ms=20_000, **more)  # type: ignore[arg-type]


@pytest.fixture
async def known(broker: RunningBroker, topic: str, peer: RawPeer) -> RunningBroker:
    """Queue 2 has one message, and pulls of it are remembered."""
    await broker.send("T", b"zero", queue_id=2)
    assert (await peer.ask(waiting(0))).code == 0
    return broker


async def test_a_remembered_pull_waits_and_is_answered_as_the_processor_does(
    known: RunningBroker, peer: RawPeer
) -> None:
    asked = Asked(known, *PULLS)
    for offset in range(1, 6):
        request = waiting(offset, opaque=100 + offset)
        peer.send(request)
        await known.until_held("T", 2)
        (held,) = known.controller.hold_service._by_queue["T", 2]
        assert (held.plan is not None, held.request, asked.count) == (True, None, 0)
        await known.send("T", b"m%d" % offset, queue_id=2, UNIQ_KEY=f"U{offset}")
        answer = await frame_of(peer)
        assert answer == await processors_answer(known, peer, request)
        asked.count = 0
    assert known.controller.hold_service.held_count == 0


async def test_its_wait_is_counted_as_long_polling(start_broker: Start) -> None:
    broker = await start_broker(metricsExporterType="PROM", metricsPromExporterPort=0)
    broker.create_topic("T", queues=3)
    await broker.send("T", b"zero", queue_id=2)
    async with connected(broker.controller.port) as peer:
        assert (await peer.ask(waiting(0))).code == 0
        for i in range(3):
            peer.send(waiting(1 + i))
            await broker.until_held("T", 2)
            await broker.send("T", b"new", queue_id=2)
            assert (await peer.receive()).code == 0
    counts = {
        labels["is_long_polling"]: value
        for labels, value in (await scrape(broker))["rocketmq_rpc_latency_milliseconds_count"]
        if labels["request_code"] == "pull_message"
    }
    assert counts == {"false": 1, "true": 3}
    item = broker.controller.stats.view("GROUP_GET_NUMS", "T@G")
    assert item is not None
    assert (item.value, item.times) == (4, 4)


async def test_messages_that_its_filter_rejects_leave_it_waiting(known: RunningBroker, peer: RawPeer) -> None:
    hold_service = known.controller.hold_service
    peer.send(waiting(1, tags="TagC"))
    await known.until_held("T", 2)
    await known.send("T", b"one", queue_id=2, TAGS="TagC")
    assert (await peer.receive()).code == 0
    peer.send(waiting(2, tags="TagC"))
    await known.until_held("T", 2)
    (held,) = hold_service._by_queue["T", 2]
    assert held.plan is not None
    await known.send("T", b"two", queue_id=2, TAGS="TagA")
    assert (hold_service.held_count, held.first_offset, held.offset) == (1, 2, 3)
    await known.send("T", b"three", queue_id=2, TAGS="TagC")
    reply = await peer.receive()
    assert [record.body for record in decode_records(reply.body_bytes)] == [b"three"]
    assert reply.ext["nextBeginOffset"] == "4"


async def test_what_changed_while_it_waited_is_seen(known: RunningBroker, peer: RawPeer) -> None:
    peer.send(waiting(1))
    await known.until_held("T", 2)
    known.controller.groups.disable_consume("G", "because")
    await known.send("T", b"new", queue_id=2)
    assert (await peer.receive()).code == 16


async def test_its_time_is_over(known: RunningBroker, peer: RawPeer) -> None:
    request = pull(1, queue_id=2, sys_flag=HOLD, wait_ms=1)
    for _ in range(2):
        reply = await peer.ask(request)
        assert (reply.code, reply.remark, reply.opaque) == (19, "OFFSET_OVERFLOW_ONE", 7)


async def test_remembered_pulls_that_wait_are_bounded(start_broker: Start) -> None:
    broker = await start_broker(pullThreadPoolQueueCapacity=1)
    broker.create_topic("T", queues=3)
    await broker.send("T", b"zero", queue_id=2)
    async with connected(broker.controller.port) as peer:
        assert (await peer.ask(waiting(0))).code == 0
        peer.send(waiting(1, opaque=1), waiting(1, opaque=2))
        reply = await peer.receive()
        assert (reply.code, reply.opaque) == (19, 2)


async def test_a_connection_that_closes_takes_it_along(known: RunningBroker) -> None:
    async with connected(known.controller.port) as other:
        other.send(waiting(1))
        await known.until_held("T", 2)
    await until(lambda: known.controller.hold_service.held_count == 0)


# ---- many readers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("serialize_type", list(SerializeType))
async def test_readers_and_senders_read_together_are_answered_each_for_itself(
    broker: RunningBroker, topic: str, serialize_type: SerializeType
) -> None:
    async with AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(connected(broker.controller.port, limit=1 << 24)) for _ in range(6)]
        for number, peer in enumerate(peers):
            for _ in range(6):
                assert (await peer.ask(pull(group=f"G{number}"))).code == 0
        assert len(broker.controller.server.batched_reads) == len(peers)
        for offset in range(25):
            for number, peer in enumerate(peers):
                send = broker.send_request("T", b"new", queue_id=2, UNIQ_KEY=f"U{offset}.{number}")
                send.serialize_type, send.opaque = serialize_type, 5
                request = pull(offset, group=f"G{number}", max_nums=1 + number, opaque=6)
                request.serialize_type = serialize_type
                peer.send(*([send, request] if number % 2 else [request, send]))
            for number, peer in enumerate(peers):
                replies = [await peer.receive() for _ in range(2)]
                assert [reply.opaque for reply in replies] == ([5, 6] if number % 2 else [6, 5])
                assert [reply.code for reply in replies] == [0, 0]
                found = next(reply for reply in replies if reply.opaque == 6)
                records = decode_records(found.body_bytes)
                assert [record.queue_offset for record in records][:1] == [offset]
                assert len(records) <= 1 + number
        assert broker.controller.store.max_offset("T", 2) == 25 * len(peers)
