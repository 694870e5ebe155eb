"""Many senders on connections of their own: their sends are taken together, each is answered as if it were alone."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest

from maxq.codes import RequestCode
from maxq.protocol.frame.remoting_command import RemotingCommand, SerializeType
from maxq.protocol.message.message import decode_message_id
from maxq.runtime.files.system import SystemDisk
from maxq.store.context.running_flags import DISK_FULL
from maxq.store.tools.check import StoreCheck
from maxq.store.tools.store_files import StoreFiles
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import RunningBroker, until
from tests.integration.broker.sends.test_send import StuckDisk
from tests.unit.remoting.peers import RawPeer, connected

SENDERS = 12
WARM = 6  # sends of each before it is read together with the others


def frame(broker: RunningBroker, name: str, *, queue_id: int = 0, **properties: str) -> RemotingCommand:
    """A fast-path send, opaque and body from its name."""
    request = broker.send_request("T", name.encode() * 20, queue_id=queue_id, UNIQ_KEY=f"U{name}", **properties)
    request.opaque = sum(name.encode())
    return request


@pytest.fixture(params=["SYNC_FLUSH", "ASYNC_FLUSH"])
async def sent_to(request: pytest.FixtureRequest, start_broker: Start) -> RunningBroker:
    broker: RunningBroker = await start_broker(flushDiskType=request.param)
    broker.create_topic("T", queues=4)
    return broker


@pytest.fixture
async def peers(sent_to: RunningBroker) -> AsyncIterator[list[RawPeer]]:
    async with AsyncExitStack() as stack:
        yield await senders(stack, sent_to, SENDERS)


async def senders(stack: AsyncExitStack, broker: RunningBroker, count: int) -> list[RawPeer]:
    """Connections that have sent often enough to be read together."""
    made = [await stack.enter_async_context(connected(broker.controller.port, limit=1 << 24)) for _ in range(count)]
    for number, peer in enumerate(made):
        for i in range(WARM):
            assert (await peer.ask(frame(broker, f"warm{number}.{i}"))).code == 0
    assert len(broker.controller.server.batched_reads) == count
    return made


async def test_each_message_is_stored_once_with_its_senders_address(
    sent_to: RunningBroker, peers: list[RawPeer]
) -> None:
    rounds = 30
    for number in range(rounds):
        for sender, peer in enumerate(peers):
            peer.send(frame(sent_to, f"{sender}.{number}", queue_id=sender % 4))
        for sender, peer in enumerate(peers):
            reply = await peer.receive()
            assert (reply.code, reply.opaque) == (0, sum(f"{sender}.{number}".encode()))
            assert reply.ext["queueId"] == str(sender % 4)
            _, offset = decode_message_id(reply.ext["msgId"])
            stored = sent_to.controller.store.look_message_by_offset(offset)
            assert stored is not None
            assert (stored.body, stored.queue_id) == (f"{sender}.{number}".encode() * 20, sender % 4)
            assert str(stored.queue_offset) == reply.ext["queueOffset"]
            own = peer.writer.get_extra_info("sockname")
            assert stored.born_host_text == f"{own[0]}:{own[1]}"
    store = sent_to.controller.store
    assert sum(store.max_offset("T", queue) for queue in range(4)) == SENDERS * (rounds + WARM)
    assert len(sent_to.controller.server.batched_reads) == SENDERS


@pytest.mark.parametrize("serialize_type", list(SerializeType))
async def test_answers_of_one_connection_come_in_the_order_of_its_sends(
    sent_to: RunningBroker, peers: list[RawPeer], serialize_type: SerializeType
) -> None:
    for number in range(5):
        for sender, peer in enumerate(peers):
            requests = [frame(sent_to, f"{sender}.{number}.{i}") for i in range(9)]
            for opaque, request in enumerate(requests):
                request.opaque, request.serialize_type = opaque, serialize_type
            peer.send(*requests)
        for peer in peers:
            replies = [await peer.receive() for _ in range(9)]
            assert [(reply.code, reply.opaque) for reply in replies] == [(0, opaque) for opaque in range(9)]
            assert {reply.serialize_type for reply in replies} == {serialize_type}
            offsets = [int(reply.ext["queueOffset"]) for reply in replies]
            assert offsets == sorted(offsets)


async def test_what_is_not_plain_is_answered_as_on_a_connection_of_its_own(
    sent_to: RunningBroker, peers: list[RawPeer]
) -> None:
    """Between fast-path sends: WAIT=false, one way, a queue that is not there, an odd property, another request."""
    hurried = frame(sent_to, "hurried", WAIT="false")
    silent = frame(sent_to, "silent")
    silent.flag |= 2
    lost = frame(sent_to, "lost", queue_id=77)
    odd = frame(sent_to, "odd", POP_CK="forged")
    other = RemotingCommand(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"}, opaque=9)
    for request in (hurried, silent, lost, odd, other):
        first, last = frame(sent_to, "first"), frame(sent_to, "last")
        for peer in peers:
            peer.send(first, request, last)
        wanted = {first.opaque: 0, last.opaque: 0}
        if request is not silent:
            wanted[request.opaque] = 29 if request is lost else 0
        for peer in peers:
            replies = [await peer.receive() for _ in wanted]
            assert {reply.opaque: reply.code for reply in replies} == wanted
    stored = sent_to.controller.store.max_offset("T", 0)
    assert stored == SENDERS * (WARM + 5 * 2 + 3)


async def test_frames_in_pieces_and_an_end_in_the_middle(sent_to: RunningBroker, peers: list[RawPeer]) -> None:
    whole = b"".join(frame(sent_to, f"piece{i}").encode() for i in range(3))
    cut = len(whole) // 2
    seen = {connection: connection.arrivals for connection in sent_to.controller.server.connections}
    for peer in peers:
        peer.send(whole[:cut])
    await until(lambda: all(connection.arrivals > count for connection, count in seen.items()))
    peers[0].writer.close()
    await until(lambda: len(sent_to.controller.server.connections) == SENDERS - 1)
    for peer in peers[1:]:
        peer.send(whole[cut:])
    for peer in peers[1:]:
        assert [(await peer.receive()).code for _ in range(3)] == [0, 0, 0]


async def test_files_roll_and_the_store_is_whole(sent_to: RunningBroker, peers: list[RawPeer]) -> None:
    for number in range(60):
        for sender, peer in enumerate(peers):
            request = frame(sent_to, f"{sender}.{number}")
            request.body = bytes(4000)
            peer.send(request)
        for peer in peers:
            assert (await peer.receive()).code == 0
    assert len(sent_to.controller.store.commit_log.files.files) > 2
    await sent_to.stop()
    report = StoreCheck(StoreFiles(SystemDisk(), sent_to.folder, hash_slots=1000, index_entries=5000)).run()
    assert report.faults == []
    assert (report.records, report.units) == (SENDERS * (60 + WARM), SENDERS * (60 + WARM))


@pytest.fixture
def disk() -> Iterator[StuckDisk]:
    """A disk that is free again at the end, before the broker is stopped."""
    made = StuckDisk()
    yield made
    made.let_go.set()


async def test_nobody_is_answered_before_the_disk_has_it_and_all_are_told_when_it_is_too_slow(
    start_broker: Start, disk: StuckDisk
) -> None:
    broker = await start_broker(disk=disk, flushDiskType="SYNC_FLUSH", syncFlushTimeout=1_000)
    broker.create_topic("T", queues=4)
    async with AsyncExitStack() as stack:
        peers = await senders(stack, broker, SENDERS)
        disk.let_go.clear()
        for sender, peer in enumerate(peers):
            peer.send(frame(broker, f"slow{sender}"), frame(broker, f"more{sender}"))
        await until(lambda: broker.controller.fast_failure.sends.count == SENDERS)
        for sender, peer in enumerate(peers):
            replies = [await peer.receive(), await peer.receive()]
            assert [(reply.code, reply.opaque) for reply in replies] == [
                (10, sum(f"{name}{sender}".encode())) for name in ("slow", "more")
            ]
            assert set(replies[0].ext) >= {"msgId", "queueId", "queueOffset", "transactionId"}
        assert broker.controller.fast_failure.sends.count == 0
        assert broker.controller.store.max_offset("T", 0) == SENDERS * WARM  # nobody reads what is not durable
        disk.let_go.set()
        await until(lambda: broker.controller.store.max_offset("T", 0) == SENDERS * (WARM + 2))


async def test_a_sender_that_leaves_while_the_disk_is_busy_costs_the_others_nothing(
    start_broker: Start, disk: StuckDisk
) -> None:
    broker = await start_broker(disk=disk, flushDiskType="SYNC_FLUSH")
    broker.create_topic("T", queues=4)
    async with AsyncExitStack() as stack:
        peers = await senders(stack, broker, SENDERS)
        disk.let_go.clear()
        for sender, peer in enumerate(peers):
            peer.send(frame(broker, f"wait{sender}"))
        await until(lambda: broker.controller.fast_failure.sends.count == SENDERS)
        peers[3].writer.transport.abort()
        await until(lambda: len(broker.controller.server.connections) == SENDERS - 1)
        late = await stack.enter_async_context(connected(broker.controller.port))  # it may get the same descriptor
        disk.let_go.set()
        for sender, peer in enumerate(peers):
            if sender != 3:
                assert (await peer.receive()).opaque == sum(f"wait{sender}".encode())
        assert (await late.ask(frame(broker, "late"))).opaque == sum(b"late")


async def test_sends_are_refused_together_with_the_cause(start_broker: Start) -> None:
    broker = await start_broker()
    broker.create_topic("T", queues=4)
    async with AsyncExitStack() as stack:
        peers = await senders(stack, broker, SENDERS)
        broker.controller.store.flags.set(DISK_FULL, "a test says so")
        for peer in peers:
            reply = await peer.ask(frame(broker, "refused"))
            assert (reply.code, "a test says so" in (reply.remark or "")) == (14, True)
        broker.controller.store.flags.clear(DISK_FULL)
        assert (await peers[0].ask(frame(broker, "taken"))).code == 0
