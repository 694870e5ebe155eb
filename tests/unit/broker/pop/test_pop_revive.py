"""What becomes of check points and acks that come to the revive topic: who is revived when, and how far it is
committed."""

from typing import Any

import pytest

from maxq.broker.identity.broker_identity import BrokerAddress
from maxq.broker.pop import pop_revive
from maxq.broker.pop.check_point_buffer import LateAck
from maxq.broker.pop.pop_counts import PopCounts
from maxq.broker.pop.pop_revive import REVIVE_GROUP, PopReviveService
from maxq.config.settings import BrokerSettings
from maxq.protocol.body.pop import AckMsg, PopCheckPoint
from maxq.protocol.message.message import MessageExt, encode_record
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.store_results import PutMessageResult, PutMessageStatus
from tests.unit.broker.bundles_of import environment, messages, tables
from tests.unit.broker.pop.test_check_point_buffer import Clock

TOPIC = "rmq_sys_REVIVE_LOG_C"
NOW = 1_000  # the wall clock of Clock
POP_TIME, INVISIBLE = 1_000, 10_000
DUE = POP_TIME + INVISIBLE + 2_000  # so long acks may come late


class Store:
    """The revive topic, and how far the log is safe."""

    def __init__(self) -> None:
        self.queues: dict[int, list[bytes]] = {}
        self.first: dict[int, int] = {}
        self.unreadable: set[int] = set()
        self.appended_offset = self.confirm_offset = 0
        self.is_final = True
        self.marks = self
        self.marked: list[object] = []

    def put(self, body: bytes, tag: str, queue_id: int = 0, stored_ms: int = 0) -> int:
        record = MessageExt(
            topic=TOPIC, queue_id=queue_id, body=body, properties={"TAGS": tag} if tag else {},
            store_timestamp=stored_ms,
        )  # fmt: skip
        self.queues.setdefault(queue_id, []).append(bytes(encode_record(record)))
        return len(self.queues[queue_id]) - 1

    def min_offset(self, topic: str, queue_id: int) -> int:
        assert topic == TOPIC
        return self.first.get(queue_id, 0) if queue_id in self.queues else -1

    def max_offset(self, topic: str, queue_id: int) -> int:
        assert topic == TOPIC
        return len(self.queues.get(queue_id, ()))

    def record_in_queue(self, topic: str, queue_id: int, queue_offset: int) -> memoryview | None:
        assert topic == TOPIC
        return None if queue_offset in self.unreadable else memoryview(self.queues[queue_id][queue_offset])

    def mark(self) -> object:
        return self.marked

    async def make_final(self, mark: object) -> bool:
        assert mark is self.marked
        return self.is_final


class Offsets:
    def __init__(self) -> None:
        self.committed: dict[int, int] = {}

    def query_offset(self, group: str, topic: str, queue_id: int) -> int:
        assert (group, topic) == (REVIVE_GROUP, TOPIC)
        return self.committed.get(queue_id, -1)

    def commit_offset(self, host: str, group: str, topic: str, queue_id: int, offset: int) -> None:
        assert (group, topic) == (REVIVE_GROUP, TOPIC)
        self.committed[queue_id] = offset


class Journal:
    def __init__(self) -> None:
        self.end = 40
        self.records: list[dict[str, Any]] = []
        self.writes = True

    def write(self, entries: dict[str, Any]) -> tuple[int, int]:
        if not self.writes:
            return -1, 0
        self.records.append(entries)
        self.end += 1
        return self.end - 1, 0


class Buffer:
    def __init__(self) -> None:
        self.journal = Journal()
        self.kept: dict[Any, set[int]] = {}
        self.for_master: list[LateAck] = []

    def kept_for_master(self) -> dict[Any, set[int]]:
        return self.kept

    def keep_for_master(self, late: LateAck) -> None:
        self.for_master.append(late)


class Reviver:
    """Revives all but those that fail; of `unknown` topics it knows nothing."""

    def __init__(self) -> None:
        self.failing: set[int] = set()
        self.unknown: set[str] = set()
        self.error: Exception | None = None
        self.revived: list[int] = []

    async def revive(self, point: PopCheckPoint) -> list[int]:
        if self.error is not None:
            raise self.error
        given = point.open_offsets()
        self.revived += [offset for offset in given if offset not in self.failing]
        return [offset for offset in given if offset in self.failing]

    def knows(self, point: PopCheckPoint) -> bool:
        return point.topic not in self.unknown


class Records:
    topic = TOPIC

    def __init__(self) -> None:
        self.counts = PopCounts()
        self.points: list[tuple[PopCheckPoint, int]] = []
        self.ok = True

    async def put_check_point(self, point: PopCheckPoint, revive_qid: int) -> PutMessageResult:
        self.points.append((point, revive_qid))
        return PutMessageResult(PutMessageStatus.PUT_OK if self.ok else PutMessageStatus.SERVICE_NOT_AVAILABLE)


class World:
    def __init__(self, broker_id: int = 0, **properties: str) -> None:
        self.clock, self.store, self.offsets = Clock(), Store(), Offsets()
        self.buffer, self.reviver, self.records = Buffer(), Reviver(), Records()
        self.delivered_until = 0
        self.doubt: str | None = None
        settings, _ = BrokerSettings.from_properties({"reviveQueueNum": "2", **properties}, source="test")
        own = BrokerAddress("C", "broker-a", broker_id, "10.0.0.1", 10911)
        self.service = PopReviveService(
            environment(settings, own=own, clock=self.clock), tables(offsets=self.offsets), messages(store=self.store),
            self.records, self.reviver, self.buffer, lambda: self.delivered_until, lambda: self.doubt,
        )  # type: ignore[arg-type]  # fmt: skip

    def point(self, offset: int = 40, count: int = 2, queue_id: int = 0, **more: Any) -> int:
        """A check point comes; where in its revive queue."""
        fields = {"pop_time": POP_TIME, "invisible_time": INVISIBLE, "broker_name": "broker-a", **more}
        point = PopCheckPoint("T", "G", 3, offset, diffs=list(range(count)), num=count, **fields)
        return self.store.put(point.encode(), "ck", queue_id)

    def ack(
        self,
        *offsets: int,
        start: int = 40,
        batch: bool = False,
        name: str = "broker-a",
        queue_id: int = 0,
        stored_ms: int = 0,
    ) -> int:
        ack = AckMsg("T", "G", 3, start, POP_TIME, name, list(offsets), is_batch=batch)
        return self.store.put(ack.encode(), ack.tag, queue_id, stored_ms)

    async def run_at(self, until_ms: int) -> int:
        self.delivered_until = until_ms
        return await self.service.run_once()


@pytest.fixture
def world() -> World:
    return World()


# --- who is revived ---


async def test_what_is_open_when_all_its_acks_must_have_come_is_revived_and_committed(world: World) -> None:
    world.point()
    world.ack(41)
    world.service.start()
    assert await world.run_at(DUE) == 2
    assert (world.reviver.revived, world.service.waiting) == ([], 1)
    assert world.offsets.committed == {}, "its record is the first that is needed"
    assert await world.run_at(DUE + 1) == 1
    assert world.reviver.revived == [40]
    assert (world.service.waiting, world.service.revived) == (0, 1)
    assert world.buffer.journal.records == [{"d": [[0, 0]]}]
    assert world.offsets.committed == {0: 1}
    assert await world.run_at(DUE + 2) == 0


async def test_what_was_acknowledged_is_not_revived(world: World) -> None:
    world.point()
    world.ack(40, 41, batch=True)
    world.point(50)
    world.ack(50, start=50)
    world.ack(51, start=50, name="")  # an older broker names none
    world.service.start()
    await world.run_at(DUE + 1)
    assert (world.reviver.revived, world.service.waiting) == ([], 0)
    assert world.offsets.committed == {0: 4}


@pytest.mark.parametrize("restarts", [False, True])
async def test_an_ack_that_comes_before_its_check_point_counts(world: World, restarts: bool) -> None:
    """A master writes what its slave was told; its timer has yet to deliver the check point, which was due before."""
    world.ack(40, stored_ms=DUE + 5_000)
    world.ack(41, stored_ms=DUE + 5_000)
    world.service.start()
    await world.run_at(DUE - 5_000)
    assert world.offsets.committed == {}
    if restarts:
        world.service.stop()
        world.service.start()
    world.point(count=3)
    await world.run_at(DUE + 1)
    assert world.reviver.revived == [42]
    assert world.offsets.committed == {0: 2}


async def test_an_ack_whose_check_point_does_not_come_is_forgotten(world: World) -> None:
    world.ack(40, stored_ms=DUE)
    world.service.start()
    await world.run_at(DUE + 2_000)
    assert world.offsets.committed == {}
    await world.run_at(DUE + 2_001)
    assert world.offsets.committed == {0: 0}
    assert await world.run_at(DUE + 2_001) == 0


async def test_acks_of_others_change_nothing(world: World) -> None:
    world.point()
    world.ack(40, start=39)
    world.ack(99)
    world.ack(40, name="broker-b")
    world.service.start()
    await world.run_at(DUE + 1)
    assert world.reviver.revived == [40, 41]


async def test_records_that_are_none_are_passed_over(world: World) -> None:
    world.store.put(b"{", "ck")
    world.store.put(b"rubbish", "ack")
    world.store.put(b"plain", "")
    world.point()
    world.service.start()
    await world.run_at(DUE + 1)
    assert world.reviver.revived == [40, 41]
    assert world.offsets.committed == {0: 3}


async def test_a_place_without_a_record_is_passed_over(world: World) -> None:
    world.point(10)
    world.point()
    world.store.unreadable = {0}
    world.service.start()
    await world.run_at(DUE + 1)
    assert world.reviver.revived == [40, 41]


async def test_records_are_counted_as_they_come(world: World) -> None:
    world.point()
    world.point(60)
    world.ack(40)
    world.ack(41)
    world.ack(41, queue_id=1)
    world.service.start()
    await world.run_at(0)
    assert world.records.counts.got == {
        ("G", "T", "0", "CK"): 2, ("G", "T", "0", "ACK"): 2, ("G", "T", "1", "ACK"): 1,
    }  # fmt: skip


async def test_nothing_is_revived_while_acks_before_it_may_be_unread(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pop_revive, "_SHOWN_TRIES", 2)
    monkeypatch.setattr(pop_revive, "_SHOWN_SECONDS", 0)
    world.point()
    world.store.appended_offset, world.store.confirm_offset = 100, 99
    world.service.start()
    await world.run_at(DUE + 1)
    assert world.reviver.revived == []
    world.store.confirm_offset = 100
    await world.run_at(DUE + 1)
    assert world.reviver.revived == [40, 41]


async def test_a_broker_in_doubt_revives_nothing(world: World) -> None:
    world.point()
    world.service.start()
    world.doubt = "another one may be master"
    await world.run_at(DUE + 1)
    assert (world.reviver.revived, world.service.waiting) == ([], 1)
    world.doubt = None
    await world.run_at(DUE + 1)
    assert world.reviver.revived == [40, 41]


async def test_a_broker_that_is_no_longer_active_reads_nothing(world: World) -> None:
    world.point()
    world.service.start()
    world.service.stop()
    assert await world.run_at(DUE + 1) == 0
    assert world.reviver.revived == []


# --- what cannot be revived ---


async def test_messages_that_cannot_be_revived_get_a_check_point_of_their_own_with_more_time(world: World) -> None:
    world.point(count=3, suspend=True, re_put_times=2)
    world.reviver.failing = {41, 42}
    world.clock.now_ms += DUE
    world.service.start()
    await world.run_at(DUE + 1)
    assert world.reviver.revived == [40]
    assert [(p.start_offset, p.diffs, p.num, p.re_put_times, queue) for p, queue in world.records.points] == [
        (41, [0], 1, 3, 0), (42, [0], 1, 3, 0),
    ]  # fmt: skip
    again = world.records.points[0][0]
    assert (again.topic, again.group, again.queue_id, again.broker_name) == ("T", "G", 3, "broker-a")
    assert (again.pop_time, again.invisible_time, again.suspend) == (POP_TIME, INVISIBLE + 30_000, True)
    assert world.offsets.committed == {0: 0}


@pytest.mark.parametrize(("times", "seconds"), [(0, 10), (1, 20), (16, 7200), (17, 7200), (40, 7200)])
async def test_the_time_grows_up_to_two_hours(times: int, seconds: int) -> None:
    world = World(skipWhenCKRePutReachMaxTimes="false")
    world.point(count=1, re_put_times=times)
    world.reviver.failing = {40}
    world.clock.now_ms += DUE
    world.service.start()
    await world.run_at(DUE + 1)
    (again,) = [point for point, _ in world.records.points]
    assert again.invisible_time == INVISIBLE + seconds * 1000
    assert again.re_put_times == times + 1


async def test_a_clock_that_was_set_back_gives_no_more_time(world: World) -> None:
    world.point(count=1)
    world.reviver.failing = {40}
    world.service.start()
    await world.run_at(DUE + 1)
    assert world.records.points[0][0].invisible_time == INVISIBLE


@pytest.mark.parametrize(("times", "given_up"), [(16, False), (17, True)])
async def test_a_message_is_given_up_after_seventeen_tries_if_the_operator_wants_that(
    times: int, given_up: bool
) -> None:
    world = World(skipWhenCKRePutReachMaxTimes="true")
    world.point(count=1, re_put_times=times)
    world.reviver.failing = {40}
    world.service.start()
    await world.run_at(DUE + 1)
    assert len(world.records.points) == (not given_up)
    assert world.offsets.committed == {0: 0}


async def test_a_message_that_can_neither_be_revived_nor_put_again_is_tried_again_alone(world: World) -> None:
    world.point()
    world.point(60)
    world.reviver.failing, world.records.ok = {41}, False
    world.service.start()
    await world.run_at(DUE + 1)
    assert (world.reviver.revived, world.service.waiting) == ([40], 2)
    assert world.offsets.committed == {}
    world.reviver.failing = set()
    await world.run_at(DUE + 1)
    assert world.reviver.revived == [40, 41, 60, 61]
    assert world.offsets.committed == {0: 1}


async def test_a_check_point_whose_reviving_fails_is_put_again_whole(world: World) -> None:
    world.point()
    world.reviver.error = ValueError("a bug")
    world.service.start()
    await world.run_at(DUE + 1)
    assert [point.start_offset for point, _ in world.records.points] == [40, 41]
    assert world.service.waiting == 0


# --- where a start goes on ---


async def test_a_start_goes_on_behind_the_committed_record(world: World) -> None:
    for offset in (10, 20, 30):
        world.point(offset, 1)
    world.offsets.committed[0] = 0
    world.service.start()
    await world.run_at(DUE + 1)
    assert world.reviver.revived == [20, 30]


async def test_a_committed_offset_behind_the_end_is_not_believed(world: World) -> None:
    world.point(10, 1)
    world.offsets.committed[0] = 7
    world.service.start()
    world.point(20, 1)
    await world.run_at(DUE + 1)
    assert world.reviver.revived == [20]


async def test_records_that_retention_has_deleted_are_passed_over(world: World) -> None:
    for offset in (10, 20, 30):
        world.point(offset, 1)
    world.store.first[0] = 2
    world.service.start()
    await world.run_at(DUE + 1)
    assert world.reviver.revived == [30]
    assert world.offsets.committed == {0: 2}


async def test_what_the_journal_tells_as_revived_is_not_revived_again(world: World) -> None:
    for offset in (10, 20, 30):
        world.point(offset, 1)
    world.point(40, 1, queue_id=1)
    world.service.replay(7, {"d": [[0, 1], [1, 5]]})
    world.service.replay(8, {"c": [[0, 2]]})
    world.service.replay(9, {"d": [[0, 2]]})
    world.service.start()
    assert world.service.oldest_needed() == 7
    await world.run_at(0)
    assert world.service.waiting == 2
    await world.run_at(DUE + 1)
    assert world.reviver.revived == [10, 40]
    assert world.offsets.committed == {0: 2, 1: 0}


async def test_the_journal_is_needed_from_the_oldest_record_above_the_committed_offset(world: World) -> None:
    world.service.start()
    assert world.service.oldest_needed() == -1
    world.point(10, 1, invisible_time=INVISIBLE + 5_000)
    world.point(20, 1)
    world.service.start()
    await world.run_at(DUE + 1)
    assert world.reviver.revived == [20]
    assert world.service.oldest_needed() == 40
    await world.run_at(DUE + 5_001)
    assert world.offsets.committed == {0: 1}
    assert world.service.oldest_needed() == -1


async def test_an_end_in_good_order_still_needs_the_record_of_what_was_revived_above_the_committed_offset(
    world: World,
) -> None:
    world.point(10, 1, invisible_time=INVISIBLE + 5_000)
    world.point(20, 1)
    world.service.start()
    await world.run_at(DUE + 1)
    for _ in range(2):  # for its role, and for the end
        world.service.stop()
        assert world.service.oldest_needed() == 40
    world.service.start()
    assert world.service.oldest_needed() == -1, "what the journal says was not read"


async def test_a_slave_that_writes_no_journal_names_its_end(world: World) -> None:
    world.buffer.journal.writes = False
    world.point(10, 1, invisible_time=INVISIBLE + 5_000)
    world.point(20, 1)
    world.service.start()
    await world.run_at(DUE + 1)
    assert world.service.oldest_needed() == 40


async def test_nothing_is_committed_while_copies_can_be_lost(world: World) -> None:
    world.point(10, 1)
    world.service.start()
    world.store.is_final = False
    await world.run_at(DUE + 1)
    assert (world.reviver.revived, world.offsets.committed) == ([10], {})
    world.store.is_final = True
    await world.run_at(DUE + 1)
    assert world.offsets.committed == {0: 0}


async def test_how_far_a_queue_is_behind(world: World) -> None:
    world.point(10, 1)
    world.point(20, 1, invisible_time=INVISIBLE - 3_000)
    world.service.start()
    assert world.service.behind(0) == (2, 0)
    await world.run_at(0)
    world.point(30, 1)
    world.clock.now_ms += POP_TIME + INVISIBLE - NOW
    assert world.service.behind(0) == (1, 3_000)
    assert world.service.behind(1) == (0, 0)
    assert world.service.behind(2) == (0, 0)


# --- a slave that acts as master, and its master ---


async def test_a_slave_keeps_for_its_master_what_it_delivered_and_who_acknowledged(world: World) -> None:
    world = World(broker_id=1)
    world.point(10, 2)
    world.service.start()
    ack = AckMsg("T", "G", 3, 10, POP_TIME, "", [11])
    message = MessageExtBrokerInner(TOPIC, 0, ack.encode(), {"TAGS": "ack"})
    early = world.service.keep_ack(message)
    assert early is not None and early.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    await world.run_at(0)
    kept = world.service.keep_ack(message)
    assert kept is not None and kept.ok
    await world.run_at(DUE + 1)
    assert world.reviver.revived == [10]
    assert [(late.point.start_offset, late.offsets, late.revive_qid) for late in world.buffer.for_master] == [
        (10, [11], 0), (10, [10], 0),
    ]  # fmt: skip


async def test_a_slave_leaves_messages_of_topics_and_groups_that_it_does_not_know_to_its_master() -> None:
    world = World(broker_id=1)
    world.point(10, 2)
    world.reviver.unknown = {"T"}
    world.service.start()
    await world.run_at(DUE + 1)
    assert (world.reviver.revived, world.buffer.for_master, world.offsets.committed) == ([], [], {})


async def test_what_is_no_ack_of_a_check_point_here_goes_its_way(world: World) -> None:
    world.point(10, 2)
    world.service.start()
    await world.run_at(0)

    def kept(topic: str, tag: str, body: bytes, queue_id: int = 0) -> PutMessageResult | None:
        return world.service.keep_ack(MessageExtBrokerInner(topic, queue_id, body, {"TAGS": tag}))

    body = AckMsg("T", "G", 3, 10, POP_TIME, "broker-a", [10]).encode()
    assert kept("Other", "ack", body) is None
    assert kept(TOPIC, "ck", body) is None
    assert kept(TOPIC, "ack", b"{") is None
    assert kept(TOPIC, "ack", AckMsg("T", "G", 3, 99, POP_TIME, "broker-a", [99]).encode()) is None
    other_queue = kept(TOPIC, "ack", body, queue_id=9)
    assert other_queue is not None and not other_queue.ok
    assert world.buffer.for_master == []
    batch = AckMsg("T", "G", 3, 10, POP_TIME, "broker-a", [10, 11], is_batch=True)
    found = kept(TOPIC, "bAck", batch.encode())
    assert found is not None and found.ok
    assert world.service.waiting == 0


async def test_what_the_slave_knew_when_it_began_is_not_revived(world: World) -> None:
    world.point(10, 2)
    world.buffer.kept = {("T", "G", 3, 10, POP_TIME, "broker-a"): {10}}
    world.service.start()
    await world.run_at(DUE + 1)
    assert world.reviver.revived == [11]
