"""Offsets of global queues, from those of physical ones."""

from typing import cast

from maxq.client.admin.context import AdminContext
from maxq.client.admin.global_progress import chains_of, global_offsets, global_progress
from maxq.client.admin.groups import GroupAdmin
from maxq.client.instance.client_api import MQClientAPI
from maxq.codes import RequestCode
from maxq.protocol.body.offsets import ConsumeStats, OffsetWrapper, TopicOffset
from maxq.protocol.body.route import BrokerData, TopicRouteData
from maxq.protocol.body.static_topic import LogicQueueMappingItem, TopicQueueMappingDetail
from maxq.protocol.body.topic_config import TopicConfigAndQueueMapping, TopicQueueMappingInfo
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message.message_queue import MessageQueue
from maxq.runtime.files.system import SystemClock

A, B = "broker-a", "broker-b"
Item = LogicQueueMappingItem
GLOBAL = MessageQueue("T", "__syslo__global__", 0)
FIRST, SECOND, THIRD = MessageQueue("T", A, 3), MessageQueue("T", B, 5), MessageQueue("T", A, 7)


def chain() -> list[Item]:
    return [Item(0, 3, A, 0, 0, 100), Item(1, 5, B, 10_000)]


def mapping(name: str, items: list[Item], epoch: int = 1) -> TopicQueueMappingDetail:
    return TopicQueueMappingDetail("T", "__global__", 1, name, epoch, False, None, {0: items})


def test_a_queues_chain_is_what_its_newest_leader_says() -> None:
    moved = [*chain(), Item(2, 7, A, -1)]
    assert chains_of("T", [mapping(A, chain()), mapping(B, chain())]) == {GLOBAL: chain()}
    both = [mapping(A, moved, 2), mapping(B, chain(), 1)]
    assert chains_of("T", both) == chains_of("T", both[::-1]) == {GLOBAL: chain()}  # the new part has no place yet
    assert chains_of("T", [mapping(A, [Item(0, 0, A, -1)])]) == {}


def test_a_global_queue_reaches_from_its_first_part_to_its_last() -> None:
    physical = {FIRST: TopicOffset(20, 100, 1), SECOND: TopicOffset(0, 7, 2)}
    assert global_offsets({GLOBAL: chain()}, physical) == {GLOBAL: TopicOffset(20, 10_007, 2)}
    assert global_offsets({GLOBAL: chain()}, {SECOND: physical[SECOND]}) == {}


def test_a_group_is_where_its_newest_offset_is() -> None:
    chains = {GLOBAL: chain()}
    old = OffsetWrapper(100, 40, 60, 11)
    none_yet, some = OffsetWrapper(7, -1, -1, 0), OffsetWrapper(7, 0, 3, 12)
    assert global_progress(chains, {FIRST: old, SECOND: none_yet}) == {GLOBAL: OffsetWrapper(10_007, 40, 60, 11)}
    assert global_progress(chains, {FIRST: old, SECOND: some}) == {GLOBAL: OffsetWrapper(10_007, 10_000, 10_003, 12)}
    assert global_progress(chains, {SECOND: none_yet}) == {GLOBAL: OffsetWrapper(10_007, 0, 0, 0)}
    assert global_progress(chains, {FIRST: old}) == {}


class TwoBrokers:
    """The name server and two brokers of a static topic that moved to B, where the group has committed nothing yet."""

    async def topic_route(self, topic: str) -> TopicRouteData:
        brokers = [BrokerData("cluster", name, {0: name}) for name in (A, B)]
        return TopicRouteData(None, [], brokers, {}, {B: TopicQueueMappingInfo("T")} if topic == "T" else None)

    async def call(self, address: str, code: int, ext: dict[str, str]) -> RemotingCommand:
        if code == RequestCode.GET_TOPIC_CONFIG:
            detail = mapping(address, chain()).to_json()
            return RemotingCommand(0, body=TopicConfigAndQueueMapping("T", mapping_detail=detail).encode())
        here = {FIRST: OffsetWrapper(100, 40, 60, 11)} if address == A else {SECOND: OffsetWrapper(7, -1, -1, 0)}
        has_committed = address == A
        return RemotingCommand(0, body=ConsumeStats(here if has_committed or "topic" in ext else {}, 1.0).encode())


async def test_a_group_that_has_not_consumed_since_a_queue_moved_is_where_it_was() -> None:
    servers = cast(MQClientAPI, TwoBrokers())
    stats = await GroupAdmin(AdminContext(servers, [], SystemClock())).consume_stats("group")
    assert stats.offset_table == {GLOBAL: OffsetWrapper(10_007, 40, 60, 11)}
    assert stats.consume_tps == 2
