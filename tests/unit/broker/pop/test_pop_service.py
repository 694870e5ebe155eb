"""What goes on by itself: a start from the journal, messages whose time is over, and what a slave hands back."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, cast

import orjson
import pytest

from maxq.broker.failover.assembly import Failover
from maxq.broker.failover.group_api import Sign
from maxq.broker.pop.hand_back import HELD_MS
from maxq.broker.pop.pop_journal import PopJournal
from maxq.broker.pop.pop_revive import PopReviveService
from maxq.broker.pop.pop_service import PopService
from maxq.broker.tables.offset.operator_changes import OperatorChanges
from maxq.broker.tables.topic.topic_validator import JOURNAL_SET_GROUP, JOURNAL_TOPIC
from maxq.codes import ResponseCode
from maxq.errors import MaxQError, RequestRefusedError
from maxq.protocol.body.pop import CK_TAG, AckMsg, PopCheckPoint
from maxq.protocol.message.message import MessageExt
from maxq.store.context.running_flags import DISK_FULL
from maxq.store.store_results import PutMessageStatus
from tests.unit.broker.pop.pop_parts import GROUP, NAME, PopParts

RETRY = "%RETRY%G_T"
REVIVE = "rmq_sys_REVIVE_LOG_C"


class Group:
    """The broker's part in its group.

    Attributes:
        is_running: this broker is the active one.
        is_acting_master: it is so as a slave.
        why: why it is not sure of that.
        master: what its master answers.
        begun_again: how often its services were begun anew.
        told: what slaves handed back.
    """

    def __init__(self) -> None:
        self.is_running, self.is_acting_master = True, False
        self.why: str | None = None
        self.master = Sign.GONE
        self.begun_again = 0
        self.told: list[bytes] = []

    acting = services = metadata = property(lambda self: self)

    def doubt(self) -> str | None:
        return self.why

    async def hear_returning_master(self) -> Sign:
        return self.master

    def begin_again(self) -> None:
        self.begun_again += 1

    def take_pops(self) -> list[bytes]:
        told, self.told = self.told, []
        return told


class Service(PopService):
    """The service of `parts`, and its broker's group."""

    def __init__(self, parts: PopParts) -> None:
        self.group = Group()
        self.group.is_acting_master = not parts.own.is_master
        revive = PopReviveService(
            parts.env, parts.tables, parts.messages, parts.records, parts.reviver, parts.buffer,
            parts.clock.wall_ms, self.group.doubt,
        )  # fmt: skip
        failover = cast(Failover, self.group)
        super().__init__(parts.env, parts.tables, parts.messages, failover, parts.buffer, parts.orders, revive)


@pytest.fixture
async def serve() -> AsyncIterator[Callable[[PopParts], Service]]:
    """Make the service of a broker; it is stopped in the end."""
    made: list[Service] = []

    def make(parts: PopParts) -> Service:
        parts.buffer.is_open = False
        made.append(Service(parts))
        return made[-1]

    yield make
    for service in made:
        service.stop()


async def _until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)


async def _started(service: Service) -> Service:
    service.start()
    await _until(lambda: service.not_ready() is None)
    return service


def _popped(parts: PopParts, start: int, count: int, **more: Any) -> PopCheckPoint:
    parts.fill(b"%d" % number for number in range(start, start + count))
    parts.clock.now_ms += 10
    point = parts.point(start, count, **more)
    parts.buffer.add([(point, 0, start + count)])
    return point


def _copies(parts: PopParts) -> list[bytes]:
    return [copy.body for copy in parts.stored(RETRY)]


def _handed_over(parts: PopParts) -> list[PopCheckPoint]:
    return [PopCheckPoint.decode(record.body) for record in parts.stored(REVIVE) if record.tags == CK_TAG]


def _acks(parts: PopParts) -> list[tuple[Any, list[int]]]:
    """Keys of check points and queue offsets."""
    acks = [AckMsg.decode(record.body, is_batch=True) for record in parts.stored(REVIVE, 3) if record.tags == "bAck"]
    return [(ack.key, ack.offsets) for ack in acks]


@pytest.fixture
def slave(make_parts: Callable[..., PopParts]) -> PopParts:
    made = make_parts(broker_id=1)
    made.create()
    return made


# --- the active broker -----------------------------------------------------------------------------------------------


async def test_nothing_is_given_before_the_journal_is_read_and_never_by_who_is_not_the_active_one(
    parts: PopParts, serve: Callable[[PopParts], Service]
) -> None:
    service = serve(parts)
    busy = service.not_ready()
    assert busy is not None and busy.code == ResponseCode.SYSTEM_BUSY
    service.start()
    await service.ready()
    assert service.not_ready() is None
    parts.store.flags.set(DISK_FULL, "the disk is full")
    full = service.not_ready()
    assert full is not None and full.code == ResponseCode.SYSTEM_BUSY and "disk" in full.remark
    parts.store.flags.clear(DISK_FULL)
    service.group.why = "no name server answers"
    unsure = service.not_ready()
    assert unsure is not None and unsure.code == ResponseCode.SERVICE_NOT_AVAILABLE and "no name" in unsure.remark
    service.group.why = None
    service.stop()
    service.group.is_running = False
    with pytest.raises(RequestRefusedError) as refused:
        await service.ready()
    assert refused.value.response_code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_what_was_taken_under_another_reign_is_given_to_nobody(
    parts: PopParts, serve: Callable[[PopParts], Service]
) -> None:
    service = await _started(serve(parts))
    reign = service.reign
    assert service.is_as_in(reign)
    service.stop()
    assert not service.is_as_in(reign)
    await _started(service)
    assert not service.is_as_in(reign)


async def test_a_start_knows_what_was_given_and_acknowledged(
    parts: PopParts, serve: Callable[[PopParts], Service]
) -> None:
    first, second = _popped(parts, 0, 3), _popped(parts, 3, 2)
    for point, offsets in ((first, [0, 2]), (second, [3, 4])):
        (live,) = parts.buffer.those([point.key])
        parts.buffer.ack(live, offsets)
    await _started(serve(parts))
    assert parts.buffer.in_flight == {("T", GROUP, 0): 1}
    assert parts.buffer.latest_offset("T", GROUP, 0) == 5
    (live,) = parts.buffer.those([first.key])
    parts.buffer.ack(live, [1])
    assert parts.offsets.query_offset(GROUP, "T", 0) == 5


async def test_messages_whose_time_is_over_come_once_and_the_group_passes_them(
    parts: PopParts, serve: Callable[[PopParts], Service]
) -> None:
    service = await _started(serve(parts))
    point = _popped(parts, 0, 2, invisible_time=1_000)
    (live,) = parts.buffer.those([point.key])
    parts.buffer.ack(live, [0])
    parts.clock.now_ms += 1_100
    await _until(lambda: _copies(parts) == [b"1"])
    await _until(lambda: not parts.buffer.those([point.key]))
    parts.clock.now_ms += 2_000
    await _until(lambda: parts.offsets.query_offset(GROUP, "T", 0) == 2)
    service.stop()
    await _started(serve(parts))
    assert len(parts.buffer) == 0 and _copies(parts) == [b"1"]


async def test_what_is_noted_while_a_start_reads_the_journal_hides_no_copy_that_a_kill_left(
    parts: PopParts, serve: Callable[[PopParts], Service]
) -> None:
    """An operator resets another group, say. The copy was made once more."""
    service = await _started(serve(parts))
    point = _popped(parts, 0, 1, invisible_time=1_000)
    await parts.reviver.revive(point)
    service.stop()
    successor = serve(parts)
    successor.start()
    parts.buffer.set_cursors({("T", "Other", 0): 0})
    await _until(lambda: successor.not_ready() is None)
    assert len(parts.buffer) == 1
    parts.clock.now_ms += 1_100
    await _until(lambda: len(parts.buffer) == 0)
    assert _copies(parts) == [b"0"]


@pytest.mark.parametrize("more", ["nothing", "an operator's order", "an ack"])
async def test_a_message_whose_time_was_changed_as_its_broker_was_killed_comes_once(
    parts: PopParts, serve: Callable[[PopParts], Service], more: str
) -> None:
    """It was handed over to the revive topic, and the kill came between its new check point and the ack of the old
    one."""
    service = await _started(serve(parts))
    old = _popped(parts, 0, 1, invisible_time=10_000)
    parts.buffer.handed_over(parts.buffer.those([old.key]))
    parts.clock.now_ms += 1_000
    new = parts.point(0, 1, invisible_time=20_000)
    parts.buffer.add_renewed(new, 3, by=old.key, until_ms=old.revive_time)
    if more == "an operator's order":
        parts.buffer.set_cursors({("T", "Other", 0): 0})
    elif more == "an ack":  # the broker has lived on
        (live,) = parts.buffer.those([_popped(parts, 1, 1).key])
        parts.buffer.ack(live, [1])
    service.stop()
    await _started(serve(parts))
    assert _acks(parts) == ([] if more == "an ack" else [(old.key, [0])])
    assert len(parts.buffer.those([new.key])) == 1


@pytest.mark.parametrize("end", ["lives on", "is killed later", "is killed at once"])
async def test_the_ack_of_a_changed_message_that_a_start_could_not_write_is_written_later(
    parts: PopParts, serve: Callable[[PopParts], Service], end: str
) -> None:
    """By the next start if this one is killed: when it has noted what else the kill before had interrupted, or when it
    has given out other messages."""
    service = await _started(serve(parts))
    old, other = _popped(parts, 0, 1, invisible_time=10_000), _popped(parts, 1, 1)
    parts.buffer.handed_over(parts.buffer.those([old.key]))
    parts.buffer.add_renewed(parts.point(0, 1, invisible_time=20_000), 3, by=old.key, until_ms=old.revive_time)
    assert (await parts.records.put_check_point(other, 3)).ok
    parts.fill([b"copy"], RETRY)
    service.stop()
    parts.refused, parts.refused_topic = PutMessageStatus.SERVICE_NOT_AVAILABLE, REVIVE
    parts.hanging = end == "is killed at once"
    second = serve(parts)
    second.start()
    await _until(lambda: [*_noted(parts)[-1]] == ["e"] if parts.hanging else not second.not_ready())
    if parts.hanging:
        assert [*_noted(parts)[-2]] == ["u"]
    else:
        _popped(parts, 2, 1)
    if end == "lives on":
        parts.refused = None
        parts.clock.now_ms += 1_000
        await _until(lambda: _acks(parts))
    else:
        second.stop()
        parts.refused = None
        await _started(serve(parts))
    assert _acks(parts) == [(old.key, [0])]


def _noted(parts: PopParts) -> list[dict[str, list[Any]]]:
    """The records of the journal."""
    return [entries for batch in parts.journal.read() for _, entries in batch]


@pytest.mark.parametrize("lives_on", [True, False])
async def test_acks_told_by_a_slave_that_the_log_did_not_take_are_written_later(
    parts: PopParts, serve: Callable[[PopParts], Service], lives_on: bool
) -> None:
    """Of messages whose check points are in the revive topic, also when the disk fails at one of them, and when the
    broker has noted other pops before it is killed. They came again."""
    points = [parts.point(at, 1) for at in range(3)]
    rows = [[at, "T", GROUP, 0, point.pop_time, point.invisible_time, 3, at, [0], at + 1, 0, NAME, 1]
            for at, point in enumerate(points)]  # fmt: skip
    service = serve(parts)
    service.group.told = [orjson.dumps({"end": 0, "live": rows, "noted": [0, 1, 2], "done": [], "orders": []})]
    parts.refused, parts.refused_topic, parts.failing = PutMessageStatus.SERVICE_NOT_AVAILABLE, REVIVE, 1
    await _started(service)
    _popped(parts, 0, 3)
    parts.failing = 1
    parts.clock.now_ms += 1_000
    await _until(lambda: not parts.failing)
    parts.refused = None
    if lives_on:
        parts.clock.now_ms += 1_000
        await _until(lambda: len(_acks(parts)) == 3)
    else:
        service.stop()
        await _started(serve(parts))
    assert sorted(_acks(parts)) == [(point.key, [at]) for at, point in enumerate(points)]


@pytest.mark.parametrize("is_noted", [True, False])
async def test_a_slave_that_acts_knows_of_an_ack_that_its_master_could_not_write(
    parts: PopParts, slave: PopParts, serve: Callable[[PopParts], Service], is_noted: bool
) -> None:
    """The check point that comes to it, or that its master has, is acknowledged: its message was given again."""
    service = await _started(serve(parts))
    old = _popped(parts, 0, 1, invisible_time=10_000)
    parts.buffer.handed_over(parts.buffer.those([old.key]))
    parts.buffer.add_renewed(parts.point(0, 1, invisible_time=20_000), 3, by=old.key, until_ms=old.revive_time)
    service.stop()
    if is_noted:
        parts.refused = PutMessageStatus.SERVICE_NOT_AVAILABLE
        (await _started(serve(parts))).stop()
    copied = PopJournal(slave.store, parts.offsets, slave.clock, may_write=lambda: True)
    slave.fill([b"0"])
    for entries in _noted(parts):
        copied.write(entries)
    acting = await _started(serve(slave))
    assert slave.buffer.kept_for_master() == {old.key: {0}}
    parts.refused = None
    master = serve(parts)
    master.group.told = [acting.hand_back("1")]
    await _started(master)
    assert set(map(str, _acks(parts))) == {str((old.key, [0]))}


async def test_who_is_not_sure_of_its_role_gives_nothing_again(
    parts: PopParts, serve: Callable[[PopParts], Service]
) -> None:
    service = await _started(serve(parts))
    service.group.why = "no name server answers"
    point = _popped(parts, 0, 1, invisible_time=1_000)
    other = _popped(parts, 1, 1)
    parts.clock.now_ms += 1_100
    await asyncio.sleep(0.3)
    assert _copies(parts) == [] and len(parts.buffer.those([point.key, other.key])) == 2
    service.group.why = None
    await _until(lambda: _copies(parts) == [b"0"])


async def test_what_is_open_for_long_is_handed_over_with_its_open_messages_only(
    make_parts: Callable[..., PopParts], serve: Callable[[PopParts], Service]
) -> None:
    parts = make_parts(timerWheelEnable="true", popCkStayBufferTime="1000", popCkStayBufferTimeOut="1000")
    parts.create()
    await _started(serve(parts))
    point, soon = _popped(parts, 0, 3), _popped(parts, 3, 1, invisible_time=2_500)
    (live,) = parts.buffer.those([point.key])
    parts.buffer.ack(live, [1])
    parts.clock.now_ms += 1_600
    await _until(lambda: not parts.buffer.those([point.key]))
    (record,) = _handed_over(parts)
    assert (record.key, record.revive_time) == (point.key, point.revive_time)
    assert (record.num, record.open_offsets()) == (2, [0, 2])
    assert parts.buffer.those([soon.key]), "its time is over before the timer would have it"


async def test_an_end_in_order_hands_over_everything(
    make_parts: Callable[..., PopParts], serve: Callable[[PopParts], Service]
) -> None:
    parts = make_parts(timerWheelEnable="true")
    parts.create()
    service = await _started(serve(parts))
    points = [_popped(parts, 0, 2), _popped(parts, 2, 1)]
    await service.shutdown()
    assert [record.key for record in _handed_over(parts)] == [point.key for point in points]
    assert parts.offsets.query_offset(GROUP, "T", 0) == 3
    await _started(serve(parts))
    assert len(parts.buffer) == 0


async def test_a_topic_that_is_deleted_keeps_nothing_open(
    parts: PopParts, serve: Callable[[PopParts], Service]
) -> None:
    await _started(serve(parts))
    point = parts.point(0, 2, topic="Gone")
    parts.buffer.add([(point, 0, 2)])
    parts.clock.now_ms += 31_000
    await _until(lambda: len(parts.buffer) == 0)
    assert _copies(parts) == []


# --- a slave and its master ------------------------------------------------------------------------------------------


async def test_a_slave_tells_its_master_and_promises_nothing_more(
    slave: PopParts, serve: Callable[[PopParts], Service]
) -> None:
    service = await _started(serve(slave))
    assert service.gives_way() is None
    point = _popped(slave, 0, 2)
    told = orjson.loads(service.hand_back("1"))
    assert [row[7] for row in told["live"]] == [point.start_offset]
    assert service.gives_way() is not None and slave.buffer.find(point.key) is None
    held = service.not_ready()
    assert held is not None and held.code == ResponseCode.SYSTEM_BUSY
    assert orjson.loads(service.hand_back("1")) == told, "the answer may have been lost"


async def test_a_slave_goes_on_when_its_master_did_not_come_but_not_while_it_lives(
    slave: PopParts, serve: Callable[[PopParts], Service]
) -> None:
    service = await _started(serve(slave))
    _popped(slave, 0, 1)
    service.group.master = Sign.LIVES
    service.hand_back("1")
    slave.clock.now_ms += HELD_MS
    await asyncio.sleep(0.3)
    assert service.group.begun_again == 0
    service.group.master = Sign.GONE
    slave.clock.now_ms += HELD_MS
    await _until(lambda: service.group.begun_again)


async def test_who_acts_no_longer_tells_what_it_knew_for_a_while_and_once_a_return(
    slave: PopParts, serve: Callable[[PopParts], Service]
) -> None:
    service = await _started(serve(slave))
    point = _popped(slave, 0, 1)
    service.stop()
    told = orjson.loads(service.hand_back("1"))
    assert [row[7] for row in told["live"]] == [point.start_offset]
    assert service.hand_back("1") == service.hand_back("2") != b"", "its journal says nothing of that yet"
    slave.clock.now_ms += HELD_MS
    assert service.hand_back("2") == b""


async def test_what_was_copied_beside_a_message_that_cannot_be_read_is_done(
    parts: PopParts, serve: Callable[[PopParts], Service]
) -> None:
    """The journal had no word of it: a kill made the copy once more, behind the ack of the first."""

    class Failing(dict[tuple[str, str, int, int], MessageExt]):
        """Another broker, which does not give message 0 until `is_well`."""

        is_well = False

        def get(self, key: Any, default: Any = None) -> Any:
            if key[3] == 0 and not self.is_well:
                raise MaxQError("not now")
            return MessageExt(topic="T", body=b"%d" % key[3])

    parts.create()
    parts.elsewhere = other = Failing()
    service = await _started(serve(parts))
    parts.fill([b"x"])
    point = parts.point(0, 2, broker_name="broker-b")
    parts.buffer.add([(point, 0, 2)])
    (live,) = parts.buffer.those([point.key])
    assert not await service._revive_one(live)
    assert parts.buffer.in_flight == {("T", GROUP, 0): 1}
    _popped(parts, 1, 1, broker_name="broker-c")  # the journal goes on
    service.stop()
    successor = await _started(serve(parts))
    other.is_well = True
    (live,) = parts.buffer.those([point.key])
    assert await successor._revive_one(live)
    assert _copies(parts) == [b"1", b"0"]


async def test_a_slave_that_has_left_the_group_to_another_tells_that_one_what_it_knew(
    slave: PopParts, serve: Callable[[PopParts], Service]
) -> None:
    service = await _started(serve(slave))
    point = _popped(slave, 0, 1)
    assert service.left() == b"", "it acts"
    service.give_way()
    service.stop()
    told = orjson.loads(service.left())
    assert [row[7] for row in told["live"]] == [point.start_offset]
    slave.clock.now_ms += HELD_MS
    assert service.left() == b""


async def test_a_slave_that_acts_again_believes_what_the_other_was_told_since(
    make_parts: Callable[..., PopParts], slave: PopParts, serve: Callable[[PopParts], Service]
) -> None:
    service = await _started(serve(slave))
    point = _popped(slave, 0, 2)
    service.stop()
    second = make_parts(broker_id=2)
    second.create()
    second.fill([b"0", b"1"])
    other = serve(second)
    other.group.told = [service.left()]
    await _started(other)
    (live,) = second.buffer.those([point.key])
    second.buffer.ack(live, [0, 1])
    other.stop()
    service.group.told = [other.left()]
    await _started(service)
    assert slave.buffer.those([point.key]) == []


async def test_a_slave_leaves_what_it_does_not_know_to_its_master(
    slave: PopParts, serve: Callable[[PopParts], Service]
) -> None:
    """Its tables are copies of its master's, which may be older than the log, or lack a group that began here."""
    service = await _started(serve(slave))
    point = _popped(slave, 0, 1)
    slave.groups.subscription_group_table.pop(GROUP)
    slave.clock.now_ms += point.invisible_time + 40_000
    await _until(lambda: service._cleaned_ms == slave.clock.monotonic_ms())
    await service._revive_due()
    told = orjson.loads(service.hand_back("1"))
    assert [(row[7], row[12]) for row in told["live"]] == [(point.start_offset, 0)]


async def test_a_slave_that_acts_again_leaves_groups_where_they_have_come_since_an_operator_set_them(
    make_parts: Callable[..., PopParts], slave: PopParts, serve: Callable[[PopParts], Service]
) -> None:
    master = PopJournal(slave.store, make_parts().offsets, slave.clock, may_write=lambda: True)
    master.write({"r": [["T", GROUP, 0, 1], ["T", GROUP, 1, 2]]})
    slave.offsets.commit_offset("", GROUP, "T", 0, 5)
    service = await _started(serve(slave))
    assert slave.offsets.query_offset(GROUP, "T", 0) == 1
    slave.offsets.commit_offset("", GROUP, "T", 0, 7)
    service.stop()
    master.write({"r": [["T", GROUP, 1, 3]]})  # while it does not act
    service.start()
    await _until(lambda: service.not_ready() is None)
    assert [slave.offsets.query_offset(GROUP, "T", queue_id) for queue_id in range(2)] == [7, 3]


@pytest.mark.parametrize("has_heard", [True, False])
async def test_a_master_that_returns_leaves_groups_where_its_slave_tells_that_they_are(
    parts: PopParts, serve: Callable[[PopParts], Service], has_heard: bool
) -> None:
    """An operator had set a group at the master; who was killed before the table was in its file applies that from the
    journal, as the slave has."""
    parts.create()
    service = await _started(serve(parts))
    _popped(parts, 0, 9, invisible_time=3_600_000)
    older = parts.offsets.to_json()
    parts.offsets.assign_reset_offsets("T", GROUP, {0: 1})
    service.offsets_set(f"T@{GROUP}", [0])
    parts.offsets.query_then_erase_reset_offset("T", GROUP, 0)
    of_slave = parts.offsets.to_json()
    of_slave["offsetTable"][f"T@{GROUP}"] = {0: 7}
    service.stop()
    parts.offsets.from_json(parts.offsets.to_json() if has_heard else older)
    parts.offsets.take_back_from_slave(of_slave, OperatorChanges.from_json(of_slave))
    await _started(serve(parts))
    assert parts.offsets.query_offset(GROUP, "T", 0) == 7


async def test_a_group_goes_on_where_it_is_though_what_it_has_popped_since_an_operator_set_it_is_open(
    parts: PopParts, serve: Callable[[PopParts], Service]
) -> None:
    parts.create()
    service = await _started(serve(parts))
    parts.fill(b"%d" % number for number in range(9))
    parts.offsets.commit_offset("", GROUP, "T", 0, 5)
    _popped(parts, 5, 1)
    parts.offsets.assign_reset_offsets("T", GROUP, {0: 1})
    service.offsets_set(f"T@{GROUP}", [0])
    parts.offsets.query_then_erase_reset_offset("T", GROUP, 0)
    parts.buffer.add([(parts.point(1, 1), 0, 2)])
    parts.offsets.commit_offset("", GROUP, "T", 0, 4)  # by pulls
    service.stop()
    await _started(serve(parts))
    assert parts.offsets.query_offset(GROUP, "T", 0) == 4


async def test_where_an_operator_set_a_group_counts_when_the_loss_of_power_took_the_one_before(
    parts: PopParts, serve: Callable[[PopParts], Service]
) -> None:
    parts.create()
    parts.fill(b"%d" % number for number in range(9))
    service = await _started(serve(parts))
    _popped(parts, 0, 9)
    parts.offsets.commit_offset("", JOURNAL_SET_GROUP, JOURNAL_TOPIC, 0, 5)  # the log had more
    service.stop()
    parts.offsets.not_beyond(parts.store.max_offset)
    older = parts.offsets.to_json()
    service = await _started(serve(parts))
    parts.offsets.assign_reset_offsets("T", GROUP, {0: 1})
    service.offsets_set(f"T@{GROUP}", [0])
    parts.offsets.query_then_erase_reset_offset("T", GROUP, 0)
    service.stop()
    parts.offsets.from_json(older)  # it was killed, too
    await _started(serve(parts))
    assert parts.offsets.query_offset(GROUP, "T", 0) == 1


async def test_a_group_that_began_at_a_slave_gets_what_it_has_not_acknowledged_there(
    make_parts: Callable[..., PopParts], parts: PopParts, serve: Callable[[PopParts], Service]
) -> None:
    slave = make_parts(broker_id=1)
    for one in (parts, slave):
        one.create()
        one.fill([b"0"])
    acting = await _started(serve(slave))
    point = slave.point(0, 1)
    slave.buffer.add([(point, 0, 1)])
    parts.groups.subscription_group_table.pop(GROUP)
    master = serve(parts)
    master.group.told = [acting.hand_back("1")]
    await _started(master)
    parts.clock.now_ms += point.invisible_time + 1_000
    await _until(lambda: _copies(parts))
    assert _copies(parts) == [b"0"]


async def test_a_deleted_group_has_popped_nothing_and_goes_on_before_it_if_it_is_made_again(
    parts: PopParts, serve: Callable[[PopParts], Service]
) -> None:
    parts.create()
    service = await _started(serve(parts))
    parts.groups.add_change_listener(service.groups_changed)
    point = _popped(parts, 0, 2)
    other = replace(point, group="Other")
    parts.buffer.add([(other, 0, 2)])
    parts.groups.delete_subscription_group_config(GROUP)
    assert [live.point.key for live in parts.buffer.those([other.key])] == [other.key] and len(parts.buffer) == 1
    service.stop()
    await _started(serve(parts))
    assert not parts.groups.contains_subscription_group(GROUP)
    parts.groups.find_subscription_group_config(GROUP)
    assert max(parts.offsets.query_offset(GROUP, "T", 0), parts.buffer.latest_offset("T", GROUP, 0)) <= 0


async def test_a_group_whose_offsets_went_with_the_power_goes_on_behind_what_is_open_at_each_start(
    parts: PopParts, serve: Callable[[PopParts], Service]
) -> None:
    parts.create()
    service = await _started(serve(parts))
    _popped(parts, 0, 2)
    assert parts.offsets.query_offset(GROUP, "T", 0) == -1
    parts.buffer.begins(("T", GROUP, 0), 0)
    service.stop()
    await _started(serve(parts))
    assert parts.buffer.latest_offset("T", GROUP, 0) == 2


async def test_a_master_tells_nothing_whoever_asks(parts: PopParts, serve: Callable[[PopParts], Service]) -> None:
    service = await _started(serve(parts))
    _popped(parts, 0, 1)
    assert service.hand_back("1") == b""
    assert service.not_ready() is None and service.gives_way() is None


async def test_a_master_goes_on_with_what_its_slave_gave(
    make_parts: Callable[..., PopParts], parts: PopParts, serve: Callable[[PopParts], Service]
) -> None:
    slave = make_parts(broker_id=1)
    for one in (parts, slave):
        one.create()
        one.fill([b"0", b"1", b"2"])
    acting = await _started(serve(slave))
    point = slave.point(0, 3)
    slave.buffer.add([(point, 0, 3)])
    (live,) = slave.buffer.those([point.key])
    slave.buffer.ack(live, [1])
    master = serve(parts)
    master.group.told = [acting.hand_back("1")]
    await _started(master)
    (taken,) = parts.buffer.those([point.key])
    assert taken.point.open_offsets() == [0, 2] and taken.point.broker_name == NAME
    assert parts.buffer.latest_offset("T", GROUP, 0) == 3
    successor = serve(parts)
    master.stop()
    await _started(successor)
    assert parts.buffer.in_flight == {("T", GROUP, 0): 2}
