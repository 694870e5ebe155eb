"""Acks, commits and messages that come back, with access control: on the batch paths once the guard has seen one."""

import pytest

from maxq.auth.signature import Credentials
from maxq.client.results.pop_result import decode_pop_answer, handle_of
from maxq.codes import RequestCode as Code
from maxq.codes import ResponseCode
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.pull import AckMessageRequestHeader
from maxq.protocol.header.send import ConsumerSendMsgBackRequestHeader
from maxq.protocol.message.message import MessageExt
from tests.integration.access.world import ALICE, ROOT, WRONG, GuardedBroker, SeenByGuard, signed, until
from tests.integration.broker.pop.pop_world import pop_request
from tests.integration.broker.transactions.transaction_world import COMMIT, Half, TransactionClient, half_of

COUNT = 4


@pytest.fixture
async def alice(broker: GuardedBroker) -> GuardedBroker:
    """She may send to T and read it as G."""
    await broker.make_alice()
    await broker.allow_alice("Topic:T", "Pub", "Sub")
    await broker.allow_alice("Group:G", "Sub")
    broker.create_topic("T", 1)
    return broker


async def _sent(broker: GuardedBroker) -> list[int]:
    """Physical offsets of messages of T."""
    for number in range(COUNT):
        command = broker.send_request("T", b"x", UNIQ_KEY=f"U{number}")
        assert (await broker.invoke(signed(command, ALICE))).code == 0
    return [unit[0] for unit in broker.controller.store.queue_units("T", 0, 0, COUNT)]


def _ack(message: MessageExt, credentials: Credentials | None, topic: str = "T") -> RemotingCommand:
    handle = handle_of(message)
    header = AckMessageRequestHeader("G", topic, handle.queue_id or 0, str(handle), handle.queue_offset or 0)
    return signed(RemotingCommand(Code.ACK_MESSAGE, header.encode()), credentials)


async def test_acks_of_one_who_may_take_the_batch_path_after_the_first(alice: GuardedBroker) -> None:
    await _sent(alice)
    answer = await alice.invoke(signed(pop_request(), ALICE))
    result = decode_pop_answer(answer, "T", "broker-a", order=False)
    assert result is not None and len(result.messages) == COUNT
    seen = SeenByGuard(alice)
    first, second, third, last = result.messages
    assert [(await alice.invoke(_ack(message, ALICE))).code for message in (first, second)] == [0, 0]
    assert seen.codes == [Code.ACK_MESSAGE]
    for refused in (_ack(third, WRONG), _ack(third, None), _ack(third, ALICE, "U")):
        assert (await alice.invoke(refused)).code == ResponseCode.NO_PERMISSION
    altered = _ack(third, ALICE)
    altered.ext["offset"] = str(handle_of(last).queue_offset)
    assert (await alice.invoke(altered)).code == ResponseCode.NO_PERMISSION
    assert (await alice.ask(Code.AUTH_DELETE_ACL, ROOT, subject="User:alice", resource="Group:G")).code == 0
    assert (await alice.invoke(_ack(third, ALICE))).code == ResponseCode.NO_PERMISSION
    await alice.allow_alice("Group:G", "Sub")
    open_points = alice.controller.popping.buffer
    assert (await alice.invoke(_ack(last, ALICE))).code == 0
    assert len(open_points) == 1  # none of the refused ones counted
    assert (await alice.invoke(_ack(third, ALICE))).code == 0
    assert len(open_points) == 0


def _back(physical_offset: int, credentials: Credentials | None, group: str = "G") -> RemotingCommand:
    header = ConsumerSendMsgBackRequestHeader(physical_offset, group, 9, "", "T", False, 16)
    return signed(RemotingCommand(Code.CONSUMER_SEND_MSG_BACK, header.encode()), credentials)


async def test_messages_that_come_back_take_the_batch_path_after_the_first(alice: GuardedBroker) -> None:
    first, second, third, _ = await _sent(alice)
    seen = SeenByGuard(alice)
    assert [(await alice.invoke(_back(offset, ALICE))).code for offset in (first, second)] == [0, 0]
    assert seen.codes == [Code.CONSUMER_SEND_MSG_BACK]
    for refused in (_back(third, WRONG), _back(third, None), _back(third, ALICE, "H")):
        assert (await alice.invoke(refused)).code == ResponseCode.NO_PERMISSION
    assert (await alice.ask(Code.AUTH_DELETE_ACL, ROOT, subject="User:alice", resource="Group:G")).code == 0
    assert (await alice.invoke(_back(third, ALICE))).code == ResponseCode.NO_PERMISSION
    assert alice.controller.store.max_offset("SCHEDULE_TOPIC_XXXX", 8) == 2


async def _prepare(broker: GuardedBroker, body: bytes) -> Half:
    command = broker.send_request("T", body, sys_flag=4, UNIQ_KEY=body.decode(), TRAN_MSG="true", PGROUP="PG")
    return half_of(await broker.invoke(signed(command, ALICE)))


async def test_commits_take_the_batch_path_after_the_first(alice: GuardedBroker) -> None:
    producer = TransactionClient(alice)

    async def commit(half: Half, credentials: Credentials | None, topic: str = "T") -> None:
        request = producer.end_request(half, COMMIT)
        request.ext["topic"] = topic
        await alice.client.invoke_oneway(alice.address, signed(request, credentials))

    def committed() -> int:
        return alice.controller.store.max_offset("T", 0)

    halves = [await _prepare(alice, b"U%d" % number) for number in range(3)]
    seen = SeenByGuard(alice)
    await commit(halves[0], ALICE)
    await commit(halves[1], ALICE)
    await until(lambda: committed() == 2)
    assert seen.codes == [Code.END_TRANSACTION]
    for credentials, topic in ((WRONG, "T"), (None, "T"), (ALICE, "U")):
        await commit(halves[2], credentials, topic)
    await until(lambda: len(seen.codes) == 4)
    assert committed() == 2
    await commit(halves[2], ALICE)
    await until(lambda: committed() == 3)
