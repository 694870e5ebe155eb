"""Writes that cannot wait for the master go to another broker group."""

import asyncio
from dataclasses import replace
from pathlib import PurePosixPath
from typing import cast

import pytest

from maxq.broker.failover.escape_bridge import EscapeBridge, remote_queues
from maxq.broker.identity.broker_identity import BrokerAddress
from maxq.broker.tables.static_topic.topic_queue_mapping_manager import TopicQueueMappingManager
from maxq.codes import RequestCode
from maxq.config.settings import BrokerSettings
from maxq.errors import RemotingConnectError, RemotingTimeoutError
from maxq.protocol.body.route import BrokerData, QueueData, TopicRouteData
from maxq.protocol.body.static_topic import LogicQueueMappingItem, TopicQueueMappingDetail
from maxq.protocol.body.topic_config import TopicQueueMappingInfo
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.send import SendMessageRequestHeader, SendMessageResponseHeader
from maxq.protocol.message.message_properties import decode_properties
from maxq.protocol.message.message_sys_flag import MessageSysFlag
from maxq.remoting.client import RemotingClient
from maxq.runtime.interfaces import Disk
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.message_store import MessageStore
from maxq.store.store_results import PutMessageResult, PutMessageStatus
from maxq.testing.sim_clock import SimClock

ESCAPES = {"enableSlaveActingMaster": "true", "enableRemoteEscape": "true"}
ROUTE = TopicRouteData(
    queue_datas=[
        QueueData("broker-c", 2, 2, 6, 0),
        QueueData("broker-a", 4, 4, 6, 0),
        QueueData("broker-b", 4, 1, 6, 0),
        QueueData("broker-d", 4, 4, 4, 0),
        QueueData("broker-e", 4, 4, 6, 0),
    ],
    broker_datas=[
        BrokerData("C", "broker-a", {0: "a:1"}),
        BrokerData("C", "broker-b", {0: "b:1", 1: "b:2"}),
        BrokerData("C", "broker-c", {0: "c:1"}),
        BrokerData("C", "broker-d", {0: "d:1"}),
        BrokerData("C", "broker-e", {1: "e:2"}),
    ],
)
MESSAGE = MessageExtBrokerInner(
    "T", 3, b"body", {"TAGS": "x", "PGROUP": "PG"}, flag=7, sys_flag=1, born_timestamp=123, reconsume_times=2
)


class World:
    """A slave of broker-a, its name servers and the other groups."""

    def __init__(self, broker_id: int = 1, route: TopicRouteData | None = ROUTE, **settings: str) -> None:
        self.route = route
        self.routes_asked = 0
        self.sent: list[tuple[str, RemotingCommand]] = []
        self.answer: RemotingCommand | Exception = RemotingCommand(0, SendMessageResponseHeader("ID", 0, 5).encode())
        self.stored: list[MessageExtBrokerInner] = []
        self.clock = SimClock()
        self.mappings = TopicQueueMappingManager(
            cast(Disk, None), PurePosixPath("/m.json"), broker_name="broker-a", clock=self.clock
        )
        given, _ = BrokerSettings.from_properties({"brokerName": "broker-a", **ESCAPES, **settings}, source="test")
        self.bridge = EscapeBridge(
            settings=given,
            own=BrokerAddress("C", "broker-a", broker_id, "a", 2),
            store=cast(MessageStore, self),
            mappings=self.mappings,
            client=cast(RemotingClient, self),
            topic_route=self.topic_route,
            clock=self.clock,
        )

    async def topic_route(self, topic: str) -> TopicRouteData | None:
        self.routes_asked += 1
        return self.route

    def put_message(self, message: MessageExtBrokerInner) -> PutMessageResult:
        self.stored.append(message)
        return PutMessageResult(PutMessageStatus.PUT_OK)

    async def invoke(self, address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        self.sent.append((address, command))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_only_writable_queues_of_other_groups_with_a_master_count() -> None:
    found = [(queue.broker_name, queue.address, queue.queue_id) for queue in remote_queues("T", ROUTE, "broker-a")]
    assert found == [("broker-b", "b:1", 0), ("broker-c", "c:1", 0), ("broker-c", "c:1", 1)]


def test_ordinary_queues_count_beside_the_global_ones_that_another_group_announces() -> None:
    mapping = TopicQueueMappingInfo("T", "__global__", 1, "broker-b", 1, False, {0: 3})
    route = replace(ROUTE, topic_queue_mapping_by_broker={"broker-b": mapping})
    found = [(queue.broker_name, queue.queue_id) for queue in remote_queues("T", route, "broker-a")]
    assert found == [("broker-b", 0), ("broker-c", 0), ("broker-c", 1)]


async def test_a_master_stores_the_message_itself() -> None:
    world = World(broker_id=0)
    assert (await world.bridge.put_message(MESSAGE)).ok
    assert (world.stored, world.sent) == ([MESSAGE], [])


@pytest.mark.parametrize("off", list(ESCAPES))
async def test_without_both_settings_a_slave_refuses_and_names_them(off: str) -> None:
    world = World(1, ROUTE, **{off: "false"})
    result = await world.bridge.put_message(MESSAGE)
    assert result.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert "enableSlaveActingMaster and enableRemoteEscape" in result.remark
    assert (world.stored, world.sent) == ([], [])


async def test_the_message_keeps_what_it_is_and_gets_a_queue_of_the_other_group() -> None:
    world = World()
    result = await world.bridge.put_message(MESSAGE)
    assert (result.status, result.msg_id, result.queue_offset) == (PutMessageStatus.PUT_OK, "ID", 5)
    ((address, command),) = world.sent
    header = SendMessageRequestHeader.decode_for(command.code, command.ext)
    assert (command.code, command.body_bytes) == (RequestCode.SEND_MESSAGE_V2, b"body")
    assert (address, header.queue_id) in [("b:1", 0), ("c:1", 0), ("c:1", 1)]
    assert (header.topic, header.flag, header.born_timestamp, header.reconsume_times) == ("T", 7, 123, 2)
    assert (header.producer_group, header.sys_flag) == ("PG", 1)
    assert decode_properties(header.properties or "") == {"TAGS": "x", "PGROUP": "PG"}


async def test_a_slave_whose_master_comes_back_sends_nothing_more_and_waits_for_what_is_under_way() -> None:
    world, answered = World(), asyncio.Event()
    answer = world.invoke

    async def slow(address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        await answered.wait()
        return await answer(address, command, timeout_ms)

    world.invoke = slow  # type: ignore[method-assign]
    sending = asyncio.create_task(world.bridge.put_message(MESSAGE))
    await asyncio.sleep(0)
    world.bridge.rests = lambda: True
    settling = asyncio.create_task(world.bridge.wait_idle())
    result = await world.bridge.put_message(MESSAGE)
    assert result.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert not settling.done()
    answered.set()
    await settling
    assert sending.done() and (await sending).ok
    assert len(world.sent) == 1


async def test_what_is_for_the_revive_topic_goes_to_one_queue() -> None:
    world = World()
    for _ in range(4):
        assert (await world.bridge.put_message(replace(MESSAGE, topic="rmq_sys_REVIVE_LOG_C"))).ok
    headers = [SendMessageRequestHeader.decode_v2(command.ext) for _, command in world.sent]
    assert len({(address, header.queue_id) for (address, _), header in zip(world.sent, headers, strict=True)}) == 1


async def test_a_message_from_an_ipv6_host_is_not_called_one_where_the_host_is_another() -> None:
    world = World()
    flags = MessageSysFlag.COMPRESSED | MessageSysFlag.BORN_HOST_V6 | MessageSysFlag.STORE_HOST_V6
    await world.bridge.put_message(MessageExtBrokerInner("T", 0, b"b", sys_flag=flags, born_host=bytes(20)))
    ((_, command),) = world.sent
    assert SendMessageRequestHeader.decode_for(command.code, command.ext).sys_flag == MessageSysFlag.COMPRESSED


async def test_a_message_of_a_committed_transaction_is_an_ordinary_one_there() -> None:
    """A delayed one keeps TRAN_MSG, by which the other group would take it for one that opens a transaction."""
    properties = {**MESSAGE.properties, "TRAN_MSG": "true"}
    committed = replace(MESSAGE, sys_flag=MessageSysFlag.TRANSACTION_COMMIT | 1, properties=properties)
    world = World()
    assert (await world.bridge.put_message(committed)).ok
    header = SendMessageRequestHeader.decode_v2(world.sent[0][1].ext)
    assert header.sys_flag == 1 and "TRAN_MSG" not in decode_properties(header.properties)
    opened = replace(committed, sys_flag=MessageSysFlag.TRANSACTION_PREPARED)
    assert (await world.bridge.put_message(opened)).ok
    header = SendMessageRequestHeader.decode_v2(world.sent[1][1].ext)
    assert header.sys_flag == 4 and decode_properties(header.properties)["TRAN_MSG"] == "true"


async def test_a_message_of_no_producer_group_goes_under_the_brokers_own() -> None:
    world = World()
    await world.bridge.put_message(MessageExtBrokerInner("T", 0, b"b"))
    assert world.sent[0][1].ext["a"] == "InnerProducerGroup_broker-a_1"


async def test_all_remote_queues_take_their_turn_over_one_route_until_it_is_old() -> None:
    world = World(loadBalancePollNameServerInterval="30000")
    for _ in range(5):
        await world.bridge.put_message(MESSAGE)
    assert world.routes_asked == 1
    world.clock.advance_ms(30_001)
    await world.bridge.put_message(MESSAGE)
    assert world.routes_asked == 2
    places = [(address, command.ext["e"]) for address, command in world.sent]
    assert sorted(places) == sorted([("b:1", "0"), ("c:1", "0"), ("c:1", "1")] * 2)


@pytest.mark.parametrize("route", [None, TopicRouteData()])
async def test_no_other_group_with_the_topic_is_told_and_asked_for_again(route: TopicRouteData | None) -> None:
    world = World(route=route)
    result = await world.bridge.put_message(MESSAGE)
    assert result.status is PutMessageStatus.PUT_TO_REMOTE_BROKER_FAIL
    assert "no broker group but broker-a" in result.remark
    world.route = ROUTE
    assert (await world.bridge.put_message(MESSAGE)).ok


async def test_a_topic_that_no_other_group_has_is_told_from_there_being_no_other_group() -> None:
    world = World(route=replace(ROUTE, queue_datas=[]))
    result = await world.bridge.put_message(MESSAGE)
    assert result.status is PutMessageStatus.NO_REMOTE_BROKER_TAKES_IT


@pytest.mark.parametrize("code", [13, 16, 17])
async def test_a_message_that_the_other_group_refuses_is_told_from_a_group_that_takes_nothing(code: int) -> None:
    """A level of delays goes on without the one, and waits for the other."""
    world = World()
    world.answer = RemotingCommand(code, remark="wrong type")
    result = await world.bridge.put_message(MESSAGE)
    assert (result.status, "wrong type" in result.remark) == (PutMessageStatus.NO_REMOTE_BROKER_TAKES_IT, True)


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (RemotingCommand(14, remark="disk full"), "answered 14 disk full"),
        (RemotingCommand(9999, remark="new code"), "answered 9999 new code"),
        (RemotingConnectError("connect to <b:1> failed", address="b:1"), "connect to <b:1> failed"),
        (RemotingTimeoutError("no answer", address="b:1", timeout_ms=3000), "no answer"),
    ],
    ids=["refused", "unknown code", "unreachable", "silent"],
)
async def test_a_failure_is_a_result_with_its_cause_and_the_route_is_asked_anew(
    answer: RemotingCommand | Exception, cause: str
) -> None:
    world = World()
    world.answer = answer
    result = await world.bridge.put_message(MESSAGE)
    assert result.status is PutMessageStatus.PUT_TO_REMOTE_BROKER_FAIL
    assert cause in result.remark
    await world.bridge.put_message(MESSAGE)
    assert world.routes_asked == 2


async def test_stored_but_not_yet_durable_there_is_said() -> None:
    world = World()
    world.answer = RemotingCommand(10, SendMessageResponseHeader("ID", 0, 5).encode())
    assert (await world.bridge.put_message(MESSAGE)).status is PutMessageStatus.FLUSH_DISK_TIMEOUT


# --- static topics ---

Item = LogicQueueMappingItem


def led_by(name: str, chains: dict[int, list[LogicQueueMappingItem]]) -> TopicQueueMappingDetail:
    return TopicQueueMappingDetail("T", "__global__", 3, name, 2, False, None, chains)


def moved(broker_id: int = 0) -> World:
    """Of T, broker-a has passed queue 0 (physical 3) on to broker-b, and moved queue 1 from physical 4 to 5; broker-c
    leads queue 2."""
    chain = [Item(0, 3, "broker-a", 0), Item(1, 0, "broker-b", 10_000)]
    own = led_by("broker-a", {0: chain, 1: [Item(0, 4, "broker-a", 0), Item(1, 5, "broker-a", 10_000)]})
    others = led_by("broker-b", {0: chain}), led_by("broker-c", {2: [Item(0, 1, "broker-c", 0)]})
    route = TopicRouteData(
        queue_datas=ROUTE.queue_datas,
        broker_datas=ROUTE.broker_datas,
        topic_queue_mapping_by_broker={part.bname or "": part.info() for part in (own, *others)},
    )
    world = World(broker_id, route)
    world.mappings.update(own, force=False)
    return world


def message_for(queue_id: int, sys_flag: int = 0) -> MessageExtBrokerInner:
    return MessageExtBrokerInner("T", queue_id, b"body", {}, sys_flag=sys_flag)


async def test_a_master_gives_a_message_to_whoever_leads_its_queue_by_the_global_number() -> None:
    world = moved()
    assert (await world.bridge.put_message(message_for(3))).ok
    ((address, command),) = world.sent
    assert (address, SendMessageRequestHeader.decode_for(command.code, command.ext).queue_id) == ("b:1", 0)
    assert not world.stored


async def test_a_queue_that_moved_within_the_broker_goes_on_in_the_new_one() -> None:
    world = moved()
    for queue_id in (4, 5, 77):  # of 77 nobody knows what it was: the chain has been forgotten
        assert (await world.bridge.put_message(message_for(queue_id))).ok
    assert [message.queue_id for message in world.stored] == [5, 5, 5]
    assert not world.sent


async def test_while_the_leader_does_not_take_it_the_message_says_so_and_goes_nowhere_else() -> None:
    world = moved()
    world.answer = RemotingCommand(14, remark="a slave")
    result = await world.bridge.put_message(message_for(3))
    assert result.status is PutMessageStatus.QUEUE_HAS_MOVED
    assert "broker-b at b:1 answered 14 a slave" in result.remark
    world.route = None
    result = await world.bridge.put_message(message_for(3))
    assert "no broker group but broker-a has a master and queue 0 of this topic" in result.remark
    assert len(world.sent) == 1
    assert not world.stored


async def test_a_slave_gives_what_is_for_its_own_queues_to_global_queues_of_others() -> None:
    world = moved(broker_id=1)
    for _ in range(2):
        assert (await world.bridge.put_message(message_for(5))).ok
    queues = {(to, SendMessageRequestHeader.decode_for(sent.code, sent.ext).queue_id) for to, sent in world.sent}
    assert queues == {("b:1", 0), ("c:1", 2)}


@pytest.mark.parametrize("code", [10, 11, 12])
async def test_what_the_other_group_has_stored_is_not_sent_again(code: int) -> None:
    """Its disk or slaves were late: a repetition would be a second message."""
    world = moved()
    world.answer = RemotingCommand(code, SendMessageResponseHeader("ID", 0, 5).encode())
    result = await world.bridge.put_message(message_for(3))
    assert result.status in (PutMessageStatus.PUT_OK, PutMessageStatus.FLUSH_DISK_TIMEOUT)
