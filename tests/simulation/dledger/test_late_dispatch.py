"""A member of a DLedger group leads while its disk has no room for queues: its log has what was promised, its queues do
not tell of it yet.
"""

import asyncio
import errno

import pytest

from maxq.broker.tables.topic.topic_validator import JOURNAL_TOPIC, TRANS_OP_HALF_TOPIC
from maxq.client.producer.transaction_producer import TransactionProducer
from maxq.client.results.local_transaction_state import LocalTransactionState
from maxq.client.results.pop_result import decode_pop_answer, handle_of
from maxq.codes import RequestCode, ResponseCode
from maxq.protocol.body.subscription import SubscriptionGroupConfig
from maxq.protocol.header.pull import AckMessageRequestHeader, PopMessageRequestHeader
from maxq.protocol.message.message import Message, MessageExt
from maxq.testing.sim_rng import SimRng
from tests.simulation.dledger.dledger_servers import Server
from tests.simulation.dledger.test_dledger_promises import Group, _until, leads, run
from tests.simulation.servers.sim_server import TOPIC

pytestmark = pytest.mark.usefixtures("quiet")

READERS = "Readers"


def _without_room_for(group: Group, topic: str) -> list[Server]:
    """The members that follow: their queues of this topic cannot be made."""
    followers = [server for server in group.brokers if server is not group.leader]
    for server in followers:
        server.machine.disk.faults = lambda kind, path: errno.ENOSPC if f"consumequeue/{topic}" in path else 0
    return followers


async def _another_leads(group: Group, followers: list[Server]) -> None:
    """One of the followers leads for a while before there is room."""
    group.leader.machine.power_off()
    await _until(lambda: any(leads(server) for server in followers))
    (group.leader,) = [server for server in followers if leads(server)]
    await asyncio.sleep(3)
    assert group.leader.broker.store.dispatch_behind_bytes > 0
    for server in followers:
        server.machine.disk.faults = lambda kind, path: 0


async def _pop(group: Group, invisible_ms: int) -> list[MessageExt]:
    born_ms = group.leader.machine.clock.wall_ms()
    header = PopMessageRequestHeader(READERS, TOPIC, -1, 32, invisible_ms, 0, born_ms, 0, "TAG", "*")
    answer = await group.ask(RequestCode.POP_MESSAGE, header.encode())
    result = decode_pop_answer(answer, TOPIC, "broker-a", order=False)
    return [] if result is None else list(result.messages)


async def _ack(group: Group, message: MessageExt) -> None:
    handle = handle_of(message)
    assert handle.queue_id is not None and handle.queue_offset is not None
    header = AckMessageRequestHeader(READERS, TOPIC, handle.queue_id, str(handle), handle.queue_offset)
    assert (await group.ask(RequestCode.ACK_MESSAGE, header.encode())).code == ResponseCode.SUCCESS


def test_what_was_popped_and_acknowledged_does_not_come_again_and_the_rest_comes_once() -> None:
    async def scene(group: Group) -> None:
        readers = SubscriptionGroupConfig(READERS).encode()
        assert (await group.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, readers)).code == 0
        for number in range(4):
            await group.send(Message(TOPIC, b"%d" % number))
        followers = _without_room_for(group, JOURNAL_TOPIC)
        popped: dict[bytes, MessageExt] = {}
        while len(popped) < 4:
            popped |= {message.body: message for message in await _pop(group, 30_000)}
        for body in (b"0", b"1", b"2"):
            await _ack(group, popped[body])
        await _another_leads(group, followers)
        came: list[bytes] = []
        for _ in range(60):
            came += [message.body for message in await _pop(group, 100_000)]
            await asyncio.sleep(1)
        assert came == [b"3"]

    run(scene)


def test_a_transaction_that_was_rolled_back_is_not_asked_for_again() -> None:
    asked: list[bytes] = []

    class Listener:
        def execute_local_transaction(self, message: Message, arg: object) -> LocalTransactionState:
            return LocalTransactionState.ROLLBACK_MESSAGE

        def check_local_transaction(self, message: Message) -> LocalTransactionState:
            asked.append(message.body)
            return LocalTransactionState.UNKNOW

    async def scene(group: Group) -> None:
        followers = _without_room_for(group, TRANS_OP_HALF_TOPIC)
        producer = TransactionProducer(group.clients._config("T"), group.clients._environment(SimRng(8), 4), Listener())

        async def roll_back() -> None:
            half = await producer.send_half(Message(TOPIC, b"x"))
            await producer.end(half, LocalTransactionState.ROLLBACK_MESSAGE)

        await group.machine.call(producer.start)
        await group.machine.call(roll_back)
        await asyncio.sleep(2)
        await _another_leads(group, followers)
        await asyncio.sleep(60)
        assert asked == []
        await group.machine.call(producer.shutdown)

    run(scene)


@pytest.mark.parametrize("pops", [False, True], ids=["pull", "pop"])
def test_a_group_that_has_read_further_is_not_sent_back(pops: bool) -> None:
    async def scene(group: Group) -> None:
        readers = SubscriptionGroupConfig(READERS).encode()
        assert (await group.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, readers)).code == 0
        followers = _without_room_for(group, TOPIC)
        await group.send(Message(TOPIC, b"x"))
        (queue_id,) = [at for at in range(4) if group.leader.broker.store.max_offset(TOPIC, at)]
        place = {"consumerGroup": READERS, "topic": TOPIC, "queueId": str(queue_id)}
        pull = {
            **place, "queueOffset": "1", "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0",
            "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG",
        }  # fmt: skip
        told = await group.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**place, "commitOffset": "1"})
        assert told.code == ResponseCode.SUCCESS
        await asyncio.sleep(15)  # slaves have copied it
        group.leader.machine.power_off()
        await _until(lambda: any(leads(server) for server in followers))
        (group.leader,) = [server for server in followers if leads(server)]
        if pops:
            assert await _pop(group, 30_000) == []
        else:
            answer = await group.ask(RequestCode.PULL_MESSAGE, pull)
            assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, "1")
        for server in followers:
            server.machine.disk.faults = lambda kind, path: 0
        await asyncio.sleep(10)
        assert group.leader.broker.store.max_offset(TOPIC, queue_id) == 1
        assert await _pop(group, 30_000) == []

    run(scene)


def test_what_is_read_of_a_topic_that_was_made_again_is_committed_while_dispatch_waits() -> None:
    """The leader before has shown it: a commit that is passed over is one that was answered with success, and lost."""

    async def scene(group: Group) -> None:
        readers = SubscriptionGroupConfig(READERS).encode()
        assert (await group.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, readers)).code == 0
        topic = {
            "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
        }  # fmt: skip
        await group.send(Message(TOPIC, b"old"))
        assert (await group.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC})).code == 0
        assert (await group.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic)).code == 0
        followers = _without_room_for(group, TOPIC)
        await group.send(Message(TOPIC, b"new"))
        group.leader.machine.power_off()
        await _until(lambda: any(leads(server) for server in followers))
        (group.leader,) = [server for server in followers if leads(server)]
        await asyncio.sleep(3)
        assert group.leader.broker.store.dispatch_behind_bytes > 0
        place = {"consumerGroup": READERS, "topic": TOPIC, "queueId": "0"}
        told = await group.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**place, "commitOffset": "1"})
        assert told.code == ResponseCode.SUCCESS
        known = await group.ask(RequestCode.QUERY_CONSUMER_OFFSET, place)
        assert known.ext["offset"] == "1"

    run(scene)
