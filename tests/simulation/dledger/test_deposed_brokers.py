"""A DLedger leader that stood still while another was elected, and goes on with what waits in its sockets: it does not
know yet that nobody follows it, and must promise nothing.
"""

import asyncio

import pytest

from maxq.codes import RequestCode, ResponseCode
from maxq.protocol.body.offsets import LockBatchRequestBody, LockBatchResponseBody
from maxq.protocol.body.subscription import SubscriptionGroupConfig
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message.message import Message
from maxq.protocol.message.message_queue import MessageQueue
from tests.simulation.dledger.test_dledger_promises import Group, _until, run
from tests.simulation.servers.sim_server import TOPIC

pytestmark = pytest.mark.usefixtures("quiet")

Request = tuple[int, dict[str, str], bytes]

_QUEUE = {"topic": TOPIC, "queueId": "0"}
_NEW = {"topic": "New", "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "2", "perm": "6",
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}  # fmt: skip


def lock(client: str = "client-1") -> Request:
    body = LockBatchRequestBody("G", client, mq_set=[MessageQueue(TOPIC, "broker-a", 0)]).encode()
    return RequestCode.LOCK_BATCH_MQ, {}, body


def commit(offset: int) -> Request:
    ext = {"consumerGroup": "G", **_QUEUE, "commitOffset": str(offset)}
    return RequestCode.UPDATE_CONSUMER_OFFSET, ext, b""


#: What a client may ask of a leader that has never heard of the other one; name → request.
ASKED: dict[str, Request] = {
    "queue lock": lock("client-2"),
    "unlock": (RequestCode.UNLOCK_BATCH_MQ, {}, lock("client-2")[2]),
    "offset commit": commit(1),
    "offset": (RequestCode.QUERY_CONSUMER_OFFSET, {"consumerGroup": "G", **_QUEUE}, b""),
    "end of a queue": (RequestCode.GET_MAX_OFFSET, dict(_QUEUE), b""),
    "offset by time": (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {**_QUEUE, "timestamp": "1"}, b""),
    "all offsets": (RequestCode.GET_ALL_CONSUMER_OFFSET, {}, b""),
    "topic made": (RequestCode.UPDATE_AND_CREATE_TOPIC, _NEW, b""),
    "topic deleted": (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC}, b""),
    "group made": (
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, SubscriptionGroupConfig("Readers").encode()
    ),
    "group deleted": (RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "G"}, b""),
    "offsets reset": (
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        {"topic": TOPIC, "group": "G", "timestamp": "1", "isForce": "true"}, b"",
    ),
    "offsets cloned": (RequestCode.CLONE_GROUP_OFFSET, {"srcGroup": "G", "destGroup": "H", "topic": TOPIC}, b""),
    "pull": (
        RequestCode.PULL_MESSAGE,
        {"consumerGroup": "G", **_QUEUE, "queueOffset": "9", "maxMsgNums": "1", "sysFlag": "5", "commitOffset": "9",
         "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG"}, b"",
    ),
    "send": (
        RequestCode.SEND_MESSAGE,
        {"producerGroup": "P", **_QUEUE, "defaultTopic": "TBW102", "defaultTopicQueueNums": "2", "sysFlag": "0",
         "bornTimestamp": "1", "flag": "0", "properties": ""}, b"late",
    ),
    "pop": (
        RequestCode.POP_MESSAGE,
        {"consumerGroup": "G", "topic": TOPIC, "queueId": "-1", "maxMsgNums": "1", "invisibleTime": "60000",
         "pollTime": "0", "bornTime": "0", "initMode": "0"}, b"",
    ),
}  # fmt: skip


async def _prepared(group: Group) -> None:
    """Two messages of a topic, a group that has read one of them and holds the lock."""
    for body in (b"x", b"y"):
        await group.send(Message(TOPIC, body))
    made = await group.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, SubscriptionGroupConfig("G").encode())
    for reply in (made, await group.ask(*commit(0)), await group.ask(*lock())):
        assert reply.code == ResponseCode.SUCCESS, reply.remark


async def _asked_of_the_deposed(group: Group, asked: dict[str, Request]) -> dict[str, RemotingCommand]:
    """What the leader answers to what came while it stood still, and another one led."""
    old = group.leader
    pause = asyncio.ensure_future(old.machine.pause(40))
    await _until(lambda: any(server.is_leader for server in group.brokers if server is not old))
    (new,) = [server for server in group.brokers if server.is_leader and server is not old]
    await _until(lambda: new.broker.address.broker_id == 0)
    address = old.machine.address
    waiting = {name: asyncio.ensure_future(_ask(group, address, request)) for name, request in asked.items()}
    await pause
    answers = {name: await answer for name, answer in waiting.items()}
    group.leader = new
    return answers


async def _ask(group: Group, address: str, request: Request) -> RemotingCommand:
    code, ext, body = request
    command = RemotingCommand(code, dict(ext), body)
    return await group.machine.call(lambda: group.client.invoke(f"{address}:10911", command, 90_000))


def test_a_leader_that_was_replaced_while_it_stood_still_promises_nothing() -> None:
    async def scene(group: Group) -> None:
        await _prepared(group)
        answers = await _asked_of_the_deposed(group, ASKED)
        promised = {name for name, reply in answers.items() if reply.code == ResponseCode.SUCCESS}
        assert promised == set()
        (granted,) = [LockBatchResponseBody.decode((await group.ask(*lock("client-2"))).body_bytes).lock_ok_mq_set]
        assert granted, "the new leader grants it"

    run(scene)


def test_a_leader_that_nobody_hears_promises_nothing_when_its_lease_is_over() -> None:
    """The lease is three quarters of the time after which it steps down."""

    async def scene(group: Group) -> None:
        await _prepared(group)
        group.isolate()
        member = group.leader.member
        await _until(lambda: member is not None and member.append_refusal() is not None)
        address = group.leader.machine.address
        asked = {name: asyncio.ensure_future(_ask(group, address, request)) for name, request in ASKED.items()}
        await asyncio.sleep(0.5)
        assert group.leader.is_leader, "it has not stepped down meanwhile"
        answers = {name: await answer for name, answer in asked.items()}
        promised = {name for name, reply in answers.items() if reply.code == ResponseCode.SUCCESS}
        assert promised == set()

    run(scene)


def test_what_a_leader_answers_late_is_not_said_when_it_leads_no_more() -> None:
    """A topic is on its disk, and its table is another's to say."""

    async def scene(group: Group) -> None:
        await _prepared(group)
        old = group.leader
        persisted = old.broker.topics.persisted

        async def slowly() -> None:
            await persisted()
            await asyncio.sleep(30)

        old.broker.topics.persisted = slowly  # type: ignore[method-assign]
        waiting = asyncio.ensure_future(_ask(group, old.machine.address, ASKED["topic made"]))
        await asyncio.sleep(1)
        group.isolate()
        reply = await waiting
        assert reply.code != ResponseCode.SUCCESS

    run(scene)
