"""What static topics' chains lose, and what stays."""

import asyncio
from dataclasses import replace
from typing import cast

import pytest

from maxq.broker.tables.static_topic.other_brokers import OtherBrokers
from maxq.broker.tables.static_topic.topic_queue_mapping_clean_service import TopicQueueMappingCleanService
from maxq.broker.tables.static_topic.topic_queue_mapping_manager import TopicQueueMappingManager
from maxq.codes import RequestCode, ResponseCode
from maxq.config.message_store_config import MessageStoreConfig
from maxq.errors import RequestRefusedError
from maxq.protocol.body.offsets import TopicOffset, TopicStatsTable
from maxq.protocol.body.route import GroupList, TopicRouteData
from maxq.protocol.body.static_topic import LogicQueueMappingItem, TopicQueueMappingDetail
from maxq.protocol.body.topic_config import TopicConfigAndQueueMapping
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message.message_queue import MessageQueue
from tests.unit.broker.broker_world import BrokerWorld

A, B, C = "wire-broker", "broker-b", "broker-c"
Item = LogicQueueMappingItem


class Brokers:
    """What the brokers of a static topic T answer."""

    def __init__(self) -> None:
        self.ends: dict[tuple[str, int], tuple[int, int]] = {}  # broker, queue → min and max offset
        self.progress: dict[tuple[str, int, str], int] = {}  # broker, queue, group → committed offset
        self.mappings: dict[str, TopicQueueMappingDetail] = {}
        self.down: set[str] = set()

    async def ask(
        self, name: str, topic: str, code: int, ext: dict[str, str], *, physical: bool = True
    ) -> RemotingCommand:
        if name in self.down:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, f"{name} is down")
        group, queue = ext.get("consumerGroup", ""), int(ext.get("queueId", "-1"))
        if code == RequestCode.GET_TOPIC_STATS_INFO:
            table = {
                MessageQueue(topic, name, number): TopicOffset(*ends)
                for (broker, number), ends in self.ends.items()
                if broker == name
            }
            return RemotingCommand(0, body=TopicStatsTable(table).encode())
        if code == RequestCode.QUERY_TOPIC_CONSUME_BY_WHO:
            groups = sorted({group for broker, _, group in self.progress if broker == name})
            return RemotingCommand(0, body=GroupList(groups).encode())
        if code == RequestCode.QUERY_CONSUMER_OFFSET:
            assert ext["setZeroIfNotFound"] == "false"
            found = self.progress.get((name, queue, group))
            return RemotingCommand(ResponseCode.QUERY_NOT_FOUND if found is None else 0, {"offset": str(found)})
        if code == RequestCode.UPDATE_CONSUMER_OFFSET:
            self.progress[name, queue, group] = int(ext["commitOffset"])
            return RemotingCommand(0)
        assert code == RequestCode.GET_TOPIC_CONFIG and not physical
        both = TopicConfigAndQueueMapping("T", mapping_detail=self.mappings[name].to_json())
        return RemotingCommand(0, body=both.encode())

    async def route(self, topic: str) -> TopicRouteData:
        infos = {name: detail.info() for name, detail in self.mappings.items()}
        return TopicRouteData(topic_queue_mapping_by_broker=infos)


class Cleaning:
    def __init__(self, items: list[Item], epoch: int = 10) -> None:
        world = BrokerWorld()
        self.clock = world.clock
        self.table = TopicQueueMappingManager(world.disk, world.mappings._file, broker_name=A, clock=world.clock)
        self.table.update(mapping(A, items, epoch), force=False)
        self.brokers = Brokers()
        self.config = MessageStoreConfig()
        self.service = TopicQueueMappingCleanService(
            self.table,
            cast(OtherBrokers, self.brokers),
            self.brokers.route,
            config=lambda: self.config,
            clock=world.clock,
        )

    def clean(self) -> list[Item] | None:
        """What is left of the chain of global queue 0."""
        asyncio.run(self.service.clean())
        return self.table.table["T"].hosted_queues.get(0)


def mapping(name: str, items: list[Item], epoch: int = 10) -> TopicQueueMappingDetail:
    return TopicQueueMappingDetail("T", "__global__", 1, name, epoch, False, None, {0: items})


def led(*, second_at: int = 10_000) -> list[Item]:
    return [Item(0, 3, B, 0), Item(1, 5, C, second_at, 7), Item(2, 7, A, 20_000)]


@pytest.mark.parametrize(
    ("ends", "left"),
    [((100, 100), 2), ((0, 0), 2), ((99, 100), 3), ((0, 100), 3), (None, 3)],
    ids=["expired", "never used", "one left", "all left", "unknown"],
)
def test_a_first_part_goes_when_its_messages_have_expired(ends: tuple[int, int] | None, left: int) -> None:
    cleaning = Cleaning(led())
    if ends is not None:
        cleaning.brokers.ends[B, 3] = ends
    before = cleaning.table.data_version
    assert cleaning.clean() == led()[-left:]
    assert (cleaning.table.data_version.counter > before.counter) == (left == 2)


@pytest.mark.parametrize(
    "items",
    [[Item(0, 3, B, 0), Item(1, 7, A, -1)], [Item(0, 3, B, 0)], [Item(0, 3, B, 0), Item(1, 7, C, 10_000)]],
    ids=["the next part has no place yet", "the only part", "led elsewhere"],
)
def test_a_first_part_stays_where_it_is_needed(items: list[Item]) -> None:
    cleaning = Cleaning(items)
    cleaning.brokers.ends[B, 3] = (100, 100)
    cleaning.brokers.mappings[C] = mapping(C, items)
    assert cleaning.clean() == items


def test_a_broker_that_is_down_keeps_its_part() -> None:
    cleaning = Cleaning(led())
    cleaning.brokers.down.add(B)
    assert cleaning.clean() == led()


def test_groups_that_stopped_in_it_go_on_with_the_next_part() -> None:
    cleaning = Cleaning(led())
    brokers = cleaning.brokers
    brokers.ends[B, 3] = (100, 100)
    brokers.progress = {(B, 3, "stopped"): 40, (B, 3, "further"): 100, (A, 7, "further"): 9, (B, 4, "elsewhere"): 1}
    cleaning.clean()
    later = {key: at for key, at in brokers.progress.items() if key[0] != B}
    assert later == {(C, 5, "stopped"): 7, (A, 7, "further"): 9}


def test_groups_that_stopped_in_it_go_on_behind_parts_that_never_had_a_message() -> None:
    """What is said there does not count for a group that has gone back from a later part."""
    cleaning = Cleaning([Item(0, 3, B, 0), Item(1, 5, C, 10_000, 7, 7), Item(2, 7, A, 20_000, 2)])
    cleaning.brokers.ends[B, 3] = (100, 100)
    cleaning.brokers.progress = {(B, 3, "stopped"): 40}
    cleaning.clean()
    assert cleaning.brokers.progress == {(B, 3, "stopped"): 40, (A, 7, "stopped"): 2}


def test_a_part_stays_while_the_groups_places_cannot_be_kept() -> None:
    cleaning = Cleaning(led())
    cleaning.brokers.ends[B, 3] = (100, 100)
    cleaning.brokers.progress = {(B, 3, "stopped"): 40}
    cleaning.brokers.down.add(C)
    assert cleaning.clean() == led()


def passed_to(name: str, epoch: int) -> TopicQueueMappingDetail:
    items = [Item(0, 3, A, 0), Item(1, 5, B, 10_000), Item(2, 7, name, 20_000)]
    return mapping(name, items, epoch)


def test_a_chain_is_forgotten_once_its_next_leader_has_passed_the_queue_on() -> None:
    cleaning = Cleaning(passed_to(B, 10).hosted_queues[0][:2])
    cleaning.brokers.mappings = {C: passed_to(C, 10)}
    assert cleaning.clean() is None


@pytest.mark.parametrize("why", ["still led there", "another epoch", "no answer", "no route"])
def test_a_chain_is_kept_while_it_may_be_needed(why: str) -> None:
    items = passed_to(B, 10).hosted_queues[0][:2]
    cleaning = Cleaning(items)
    brokers = cleaning.brokers
    if why == "still led there":
        brokers.mappings = {B: mapping(B, items)}
    elif why != "no route":
        brokers.mappings = {C: passed_to(C, 11 if why == "another epoch" else 10)}
    if why == "no answer":
        brokers.down.add(C)
    assert cleaning.clean() == items


EVERY_HOUR = ";".join(f"{hour:02}" for hour in range(24))


@pytest.mark.parametrize(
    ("role", "hours", "left"), [("ASYNC_MASTER", EVERY_HOUR, 2), ("SLAVE", EVERY_HOUR, 3), ("ASYNC_MASTER", "", 3)]
)
async def test_masters_clean_in_the_hours_of_delete_when(role: str, hours: str, left: int) -> None:
    cleaning = Cleaning(led())
    cleaning.brokers.ends[B, 3] = (100, 100)
    cleaning.config = replace(cleaning.config, broker_role=role, delete_when=hours)
    await cleaning.service._turn()
    assert len(cleaning.table.table["T"].hosted_queues[0]) == left


def test_a_mapping_that_changed_meanwhile_is_not_touched() -> None:
    cleaning = Cleaning(led())
    old = cleaning.table.table["T"]
    cleaning.table.update(mapping(A, led(), 11), force=False)
    cleaning.table.replace_chains(old, {})
    assert cleaning.table.table["T"].hosted_queues == {0: led()}
