"""Tables in the log: what a leader writes, and what a member takes."""

import json
import zlib
from collections.abc import Callable
from pathlib import PurePath
from types import SimpleNamespace
from typing import Any, cast

import pytest

from maxq.broker.dledger.table_records import TableRecords
from maxq.broker.processors.acknowledgement import Acknowledgement
from maxq.broker.slave.replicated_config_files import ReplicatedConfigFiles
from maxq.broker.slave.slave_synchronize import SlaveTables
from maxq.protocol.body.subscription import SubscriptionGroupConfig
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.message.message import MessageExt
from maxq.store.log.deletions import Deletions
from maxq.store.message_store import MessageStore
from maxq.store.store_results import PutMessageResult, PutMessageStatus
from tests.unit.broker.broker_world import CONFIG_DIR, BrokerWorld

FOLDER = PurePath("/more")


class Log:
    """What TableRecords uses of a store: a log of records and who leads it."""

    def __init__(self) -> None:
        self.leading_term = -1
        self.newest_file = 0
        self.refuses = False
        self.deletions: Deletions | None = None
        self.records: list[MessageExt] = []
        self.listener: Callable[[MessageExt], None] = lambda message: None

    def set_table_listener(self, listener: Callable[[MessageExt], None], persist: Callable[[], None]) -> None:
        self.listener, self.persist = listener, persist

    def is_gone(self, topic: str, physical_offset: int) -> bool:
        return self.deletions is not None and self.deletions.is_gone(topic, physical_offset)

    @property
    def commit_log(self) -> SimpleNamespace:
        return SimpleNamespace(max_offset=100 * len(self.records))

    def put_tables(self, body: bytes) -> PutMessageResult:
        if self.refuses:
            return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE)
        at = 100 * len(self.records)
        self.records.append(MessageExt(topic="", body=body, physical_offset=at))
        return PutMessageResult(PutMessageStatus.PUT_OK, at, at + 100)

    def said(self, number: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(zlib.decompress(self.records[number].body))
        return found


class Agreeing:
    def refusal(self) -> None:
        return None

    def outcome(self, end_offset: int) -> None:
        return None


class Member:
    def __init__(self, world: BrokerWorld | None = None, log: Log | None = None) -> None:
        self.world, self.log = world or BrokerWorld(), log or Log()
        world = self.world
        self.deletions = Deletions(world.disk, FOLDER)
        tables = SlaveTables(
            topics=world.topics, mappings=world.mappings, groups=world.groups, offsets=world.offsets,
            request_modes=world.modes, files=ReplicatedConfigFiles(world.disk, FOLDER), deletions=self.deletions,
        )  # fmt: skip
        self.records = TableRecords(cast(MessageStore, self.log), cast(Acknowledgement, Agreeing()), tables)
        self.log.set_table_listener(self.records.dispatched, self.records.persist)
        for table in (world.topics, world.groups, world.mappings, world.modes):
            table.when_changed.append(self.records.table_changed)
        world.offsets.when_set.append(self.records.offsets_set)
        self.records.start()

    def lead(self, term: int) -> None:
        self.log.leading_term = term
        self.records.write()

    def make(self, topic: str) -> None:
        self.world.topics.update_topic_config(TopicConfig(topic))

    def hears(self, other: "Member", start: int = 0) -> None:
        for record in other.log.records[start:]:
            self.log.listener(record)


async def test_all_rows_at_the_begin_of_a_term_and_of_a_file_then_changes() -> None:
    leader = Member()
    leader.make("Early")
    assert not leader.log.records
    leader.lead(3)
    leader.make("T")
    leader.world.groups.update_subscription_group_config(SubscriptionGroupConfig("G"))
    leader.world.topics.delete_topic_configs(["Early"])
    assert [leader.log.said(n)["whole"] for n in range(4)] == [True, False, False, False]
    assert "Early" in leader.log.said(0)["topics"]["rows"]
    assert list(leader.log.said(1)["topics"]["rows"]) == ["T"] and not leader.log.said(1)["groups"]["rows"]
    assert list(leader.log.said(2)["groups"]["rows"]) == ["G"]
    assert leader.log.said(3)["topics"]["gone"] == ["Early"]
    leader.records.write()
    assert len(leader.log.records) == 4
    leader.log.newest_file = 1000
    leader.records.write()
    leader.lead(5)
    assert [leader.log.said(n)["whole"] for n in (4, 5)] == [True, True]
    await leader.records.stop()


async def test_members_take_what_is_committed_and_a_leader_does_not_go_back_to_its_own_records() -> None:
    leader, member = Member(), Member()
    member.make("Alone")  # by a leader that lost the lead before it was committed
    leader.lead(1)
    leader.make("T")
    leader.world.groups.update_forbidden("G", "T", 2, forbidden=True)
    leader.world.topics.delete_topic_configs(["T"])
    leader.make("U")
    leader.hears(leader)
    assert leader.world.topics.contains_topic("U") and not leader.world.topics.contains_topic("T")
    member.hears(leader)
    assert member.world.topics.topic_config_table == leader.world.topics.topic_config_table
    assert member.world.topics.data_version == leader.world.topics.data_version
    assert member.world.groups.is_forbidden("G", "T", 2)
    member.log.listener(MessageExt(topic="", body=b"no record", physical_offset=1))
    leader.log.leading_term = -1  # what it wrote is the group's now, and may be older than what it has
    leader.world.topics.delete_topic_configs(["U"])
    leader.hears(leader)
    assert leader.world.topics.contains_topic("U")
    for one in (leader, member):
        await one.records.stop()


async def test_members_take_the_offsets_that_operators_set_but_not_those_of_a_topic_that_was_deleted_since() -> None:
    leader, member = Member(), Member()
    leader.lead(1)
    leader.world.offsets.commit_offset("a consumer", "G", "T", 0, 9)
    leader.records.write()
    assert len(leader.log.records) == 1, "consumers commit without a record"
    for queue in range(2):
        leader.world.offsets.assign_reset_offsets("T", "G", {queue: 4 + queue})
    leader.world.offsets.assign_reset_offsets("Deleted", "G", {0: 7})
    leader.world.offsets.clone_offset("G", "H", "T")
    assert await leader.records.are_safe()
    assert len(leader.log.records) == 2
    member.log.deletions = member.deletions
    member.deletions.put("Deleted", 500)
    member.hears(leader)
    offsets = member.world.offsets
    assert offsets.query_offsets("G", "T") == {0: 4, 1: 5} == offsets.query_offsets("H", "T")
    assert offsets.query_offsets("G", "Deleted") == {}
    assert not offsets.any_reset, "consumers were sent there by the leader that was asked"
    member.log.persist()
    assert b"T@H" in member.world.disk.read(CONFIG_DIR / "consumerOffset.json")
    assert "offsets" not in leader.log.said(0) and await leader.records.are_safe()
    assert len(leader.log.records) == 2
    for one in (leader, member):
        await one.records.stop()


async def test_offsets_out_of_the_log_go_with_their_topic() -> None:
    leader, member = Member(), Member()
    leader.lead(1)
    leader.world.offsets.assign_reset_offsets("T", "G", {0: 4})
    assert await leader.records.are_safe()
    member.hears(leader)
    assert member.world.offsets.which_topic_by_consumer("G") == {"T"}
    member.world.offsets.take_deletion(["T"], 900)
    assert member.world.offsets.query_offset("G", "T", 0) == -1, "messages of a new topic of this name would be skipped"
    for one in (leader, member):
        await one.records.stop()


async def test_an_operators_record_that_is_read_again_takes_no_later_commit_back() -> None:
    leader, member = Member(), Member()
    leader.lead(1)
    leader.world.offsets.assign_reset_offsets("T", "G", {0: 4})
    assert await leader.records.are_safe()
    member.hears(leader)
    leader.hears(leader)
    assert leader.world.offsets.set_up_to == member.world.offsets.set_up_to == leader.log.records[-1].physical_offset
    for one in (leader, member):
        one.world.offsets.commit_offset("a consumer", "G", "T", 0, 90)
        one.world.offsets.persist()
        await one.records.stop()
        one.world.offsets.load()
        one.log.leading_term = -1
        again = Member(one.world, leader.log)
        again.hears(leader)
        assert one.world.offsets.query_offsets("G", "T") == {0: 90}
        await again.records.stop()
    slave = Member()
    slave.world.offsets.take_from_master(leader.world.offsets.to_json())
    slave.world.offsets.took_from_master(leader.world.offsets.to_json())
    slave.hears(leader)
    assert slave.world.offsets.query_offset("G", "T", 0) == 90, "the leader's table was newer than its log"
    await slave.records.stop()
    shorter = Log()
    restarted = Member(member.world, shorter)
    assert restarted.world.offsets.set_up_to == -1, "new records may stand where lost ones stood"
    await restarted.records.stop()


async def test_what_could_not_be_written_in_time_is_written_as_the_groups_have_gone_on_since() -> None:
    leader, member = Member(), Member()
    leader.lead(1)
    leader.log.refuses = True
    leader.world.offsets.assign_reset_offsets("T", "G", {0: 4})
    assert not await leader.records.are_safe()
    leader.world.offsets.commit_offset("a consumer", "G", "T", 0, 90)
    leader.log.refuses = False
    leader.lead(7)
    member.hears(leader)
    assert member.world.offsets.query_offset("G", "T", 0) == 90
    for one in (leader, member):
        await one.records.stop()


async def test_offsets_that_a_full_disk_did_not_take_are_written_before_the_next_inventory() -> None:
    leader, member = Member(), Member()
    leader.lead(1)
    leader.world.offsets.assign_reset_offsets("T", "G", {0: 4})
    assert await leader.records.are_safe()
    member.hears(leader)
    offsets, persist = member.world.offsets, member.world.offsets.persist

    def refuse() -> None:
        raise OSError(28, "no space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offsets, "persist", refuse)
        with pytest.raises(OSError, match="no space"):
            member.log.persist()
    assert offsets.persist == persist
    member.log.persist()
    assert b"T@G" in member.world.disk.read(CONFIG_DIR / "consumerOffset.json")
    for one in (leader, member):
        await one.records.stop()


async def test_light_groups_stand_where_operators_set_them() -> None:
    leader, member = (Member(BrokerWorld({"enableLmq": "true"})) for _ in range(2))
    leader.lead(1)
    leader.world.offsets.assign_reset_offsets("T", "%LMQ%G", {0: 4})
    assert await leader.records.are_safe()
    member.hears(leader)
    assert member.world.offsets.query_offset("%LMQ%G", "T", 0) == 4
    member.world.offsets.take_deletion(["T"], 900)
    assert member.world.offsets.query_offset("%LMQ%G", "T", 0) == -1
    for one in (leader, member):
        await one.records.stop()


async def test_a_change_that_the_log_does_not_take_is_not_safe() -> None:
    leader = Member()
    assert not await leader.records.are_safe()  # nobody leads
    leader.lead(1)
    assert await leader.records.are_safe()
    leader.log.refuses = True
    leader.make("T")
    assert not await leader.records.are_safe()
    leader.log.refuses = False
    assert await leader.records.are_safe()
    assert list(leader.log.said(1)["topics"]["rows"]) == ["T"]
    await leader.records.stop()


@pytest.mark.parametrize("unknown_before, known", [(0, 0), (600, 500)])
async def test_a_member_whose_log_begins_late_learns_of_deletions(unknown_before: int, known: int) -> None:
    leader, member = Member(), Member()
    leader.deletions.put("T", 500)
    member.deletions.begins_at(unknown_before)
    leader.lead(1)
    member.hears(leader)
    assert member.deletions.at("T") == known
    assert member.world.offsets.deleted_up_to == known
    for one in (leader, member):
        await one.records.stop()


async def test_what_was_dispatched_is_on_the_disk_before_the_store_says_so() -> None:
    leader, member = Member(), Member()
    leader.lead(1)
    leader.make("T")
    member.hears(leader)
    path = CONFIG_DIR / "topics.json"
    assert not member.world.disk.exists(path)
    member.log.persist()
    assert b'"T"' in member.world.disk.read(path)
    for one in (leader, member):
        await one.records.stop()


async def test_members_have_the_leaders_versions_also_where_no_row_has_changed() -> None:
    leader, member = Member(), Member()
    leader.lead(1)
    leader.log.refuses = True
    leader.make("T")
    leader.world.groups.update_subscription_group_config(SubscriptionGroupConfig("G"))
    leader.world.topics.delete_topic_configs(["T"])
    leader.world.groups.delete_subscription_group_config("G")
    leader.log.refuses = False
    leader.records.write()
    member.hears(leader)
    assert leader.log.said(1)["whole"] is False
    assert member.world.topics.data_version == leader.world.topics.data_version
    assert member.world.groups.data_version == leader.world.groups.data_version
