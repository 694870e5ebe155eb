"""What a slave hands back is taken in whole, once or twice, or not at all."""

from dataclasses import replace
from pathlib import PurePath
from typing import Any, cast

import orjson
import pytest

from maxq.broker.identity.broker_identity import SlaveSign
from maxq.broker.pop.check_point_buffer import CheckPointBuffer, LateAck, point_of
from maxq.broker.pop.hand_back import (
    GroupOfSlave,
    HandBackProcessor,
    PopState,
    encode,
    known_end,
    take_in,
    within,
    without,
)
from maxq.broker.pop.order_service import OrderService
from maxq.broker.pop.pop_journal import PopJournal
from maxq.codes import RequestCode
from maxq.errors import RequestRefusedError
from maxq.protocol.body.pop import PopCheckPoint
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.connection import Connection as RemotingConnection
from maxq.runtime.interfaces import Disk
from maxq.store.log.deletions import Deletions
from tests.unit.broker.pop.test_check_point_buffer import Clock, Journal, Offsets

OWN = PopCheckPoint("T", "G", 0, 0, 1_000, 60_000, "b", [0, 1], 2)
THEIRS = PopCheckPoint("T", "G", 0, 2, 2_000, 60_000, "b", [0, 1], 2)
FIRST = PopCheckPoint("T", "G", 0, 0, 1_000, 60_000, "b", [0], 1)
RENEWED = PopCheckPoint("T", "G", 0, 0, 10_000, 60_000, "b", [0], 1)


class Orders:
    """Queues in order; `rows` is handed back, `taken` was taken back."""

    def __init__(self, rows: list[list[Any]] | None = None) -> None:
        self.rows = rows or []
        self.taken: list[list[Any]] = []

    def hand_back(self) -> list[list[Any]]:
        return self.rows

    def take_back(self, rows: list[list[Any]]) -> None:
        self.taken += rows


def _buffer(*points: PopCheckPoint) -> CheckPointBuffer:
    buffer = CheckPointBuffer(Offsets(), Journal(), Clock())  # type: ignore[arg-type]
    buffer.is_open = True
    for point in points:
        buffer.add([(replace(point), 0, point.start_offset + 2)])
    return buffer


def _encode(end: int, buffer: CheckPointBuffer, orders: Orders | None = None, log_end: int = 100) -> bytes:
    return encode(end, buffer, cast(OrderService, orders or Orders()), log_end)


def _told() -> dict[str, Any]:
    rows = [["T", "O", 0, 3, {"popTime": 5, "i": 60_000, "o": [3]}]]
    told: dict[str, Any] = orjson.loads(_encode(0, _buffer(THEIRS), Orders(rows)))
    return {**told, "end": 1}  # the slave had read of OWN, and of its end


class Queues:
    """The master's: topics that were deleted, and where every queue ends."""

    def __init__(self, end: int = 1_000) -> None:
        self.deletions = Deletions(cast(Disk, None), PurePath("/store"))
        self.end = end

    def taken_offset(self, topic: str, queue_id: int) -> int:
        return self.end


def _take_in(buffer: CheckPointBuffer, body: bytes, queues: Queues | None = None) -> Orders:
    orders = Orders()
    queues = queues or Queues()
    take_in(within(body, queues.taken_offset), 1, buffer, cast(OrderService, orders), queues.deletions)
    return orders


def _rows(buffer: CheckPointBuffer) -> list[list[Any]]:
    return [row[1:] for row in buffer.hand_back()]


def test_an_answer_that_comes_twice_is_taken_in_once() -> None:
    buffer = _buffer(OWN)
    for _ in range(2):
        assert _take_in(buffer, orjson.dumps(_told())).taken
        assert _rows(buffer) == [row[1:] for row in _told()["live"]]


def _acked_at_the_slave(end: int) -> bytes:
    """It had read of THEIRS in the journal, and was told one ack of it."""
    told = _told()
    (row,) = told["live"]
    return orjson.dumps({**told, "end": end, "live": [[*row[:12], 1]], "noted": [row[0]]})


def test_acks_of_what_this_broker_has_handed_over_since_go_where_it_was_handed_over() -> None:
    buffer = _buffer(OWN)
    late = take_in(_acked_at_the_slave(1), 2, buffer, cast(OrderService, Orders()), Queues().deletions)
    assert [(ack.point.key, ack.offsets) for ack in late] == [(THEIRS.key, [2])]
    assert _rows(buffer) == [], "THEIRS is in the revive topic; taken in again, its messages would come twice"


def test_a_check_point_that_this_brokers_journal_has_lost_is_taken_in() -> None:
    buffer = _buffer()
    assert take_in(_acked_at_the_slave(3), 2, buffer, cast(OrderService, Orders()), Queues().deletions) == []
    assert [row[12 - 1] for row in _rows(buffer)] == [1]


def test_what_ended_behind_an_open_check_point_is_not_given_again_by_the_master() -> None:
    open_one = PopCheckPoint("T", "G", 0, 0, 1_000, 60_000, "b", [0, 1], 2)
    ended = PopCheckPoint("T", "G", 0, 2, 2_000, 60_000, "b", [0, 1], 2)
    slave, master = _buffer(open_one, ended), _buffer()
    live = slave.find(ended.key)
    assert live is not None
    slave.ack(live, [2, 3])
    body = _encode(0, slave)
    for _ in range(2):
        _take_in(master, body)
        assert master.latest_offset("T", "G", 0) == slave.latest_offset("T", "G", 0) == 4
        assert master.in_flight == {("T", "G", 0): 2}
        assert len(master) == 1
    kept = master.find(open_one.key)
    assert kept is not None
    master.ack(kept, [0, 1])
    assert master.latest_offset("T", "G", 0) == -1
    assert master._offsets.query_offset("G", "T", 0) == 4


# --- messages that the master gave, which its slave did not learn of, and gave to somebody else ---------------------

SLAVES = PopCheckPoint("T", "G", 0, 0, 9_000, 60_000, "b", [0, 1, 2], 3)


def _acting(*points: PopCheckPoint) -> CheckPointBuffer:
    """A slave that acts, and has given these."""
    buffer = _buffer()
    buffer.keep_ended(0)
    for point in points:
        buffer.add([(replace(point), 0, point.start_offset + point.num)])
    return buffer


def _ack(buffer: CheckPointBuffer, point: PopCheckPoint, *offsets: int) -> None:
    live = buffer.find(point.key)
    assert live is not None
    buffer.ack(live, list(offsets))


def _open(buffer: CheckPointBuffer) -> list[tuple[int, list[int]]]:
    """Pop time, and queue offsets that are open, of all check points."""
    return [(point.pop_time, point.open_offsets()) for row in buffer.hand_back() for point in (_point(row),)
            if point.open_offsets()]  # fmt: skip


def _point(row: list[Any]) -> PopCheckPoint:
    point = point_of(row)
    point.bit_map = row[12]
    return point


@pytest.mark.parametrize("acked", [(0, 1, 2), (0, 1), (1,)])
def test_what_was_acknowledged_at_the_slave_is_open_at_the_master_no_more_whoever_it_was_given_to(
    acked: tuple[int, ...],
) -> None:
    master, slave = _buffer(OWN), _acting(SLAVES)
    _ack(slave, SLAVES, *acked)
    _take_in(master, _encode(0, slave))
    left = [offset for offset in (0, 1) if offset not in acked]
    assert [of for _, of in _open(master) if set(of) <= {0, 1}] == ([left] if left else [])
    if len(acked) == 3:
        assert master._offsets.query_offset("G", "T", 0) == 3, "the slave's group has come so far"


@pytest.mark.parametrize("first", [OWN, SLAVES])
def test_a_message_that_two_hold_is_acknowledged_by_either_receipt_also_after_a_start(first: PopCheckPoint) -> None:
    master = _buffer(OWN)
    _take_in(master, _encode(0, _acting(SLAVES)))
    started = _buffer()
    for at, record in enumerate(cast(Journal, master.journal).records):
        started.replay(at, record)
    for buffer in (master, started):
        _ack(buffer, first, 0, 1)
        assert _open(buffer) == [(SLAVES.pop_time, [2])]


def test_a_message_that_two_hold_comes_again_when_the_later_time_is_over() -> None:
    master = _buffer(OWN)
    _take_in(master, _encode(0, _acting(SLAVES)))
    early, late = (live for point in (OWN, SLAVES) for live in master.those([point.key]))
    master.leave_to_twins(early)
    assert early.ended and not late.ended
    master.leave_to_twins(late)
    assert _open(master) == [(SLAVES.pop_time, [0, 1, 2])]
    assert not late.has_twins
    master.finish([late])  # handed over
    started = _buffer()
    for at, record in enumerate(cast(Journal, master.journal).records):
        started.replay(at, record)
    assert _open(started) == []


@pytest.mark.parametrize("diffs", [[0, 1], []])
def test_acks_that_come_to_the_slave_of_what_its_master_had_handed_over_go_where_it_was_handed_over(
    diffs: list[int],
) -> None:
    slave = _acting()
    slave.keep_for_master(LateAck(replace(OWN, diffs=diffs), [1], 7))
    orders = cast(OrderService, Orders())
    (late,) = take_in(_encode(0, slave), 1, _buffer(THEIRS), orders, Queues().deletions)
    assert (late.point.key, late.offsets, late.revive_qid) == (OWN.key, [1], 7)


def _slave_of(master: CheckPointBuffer) -> CheckPointBuffer:
    """A slave that acts, and has read all of the master's journal. The master then hands over what is open and ends,
    which the slave does not hear any more."""
    slave = _buffer()
    records = cast(Journal, master.journal).records
    for at, record in enumerate(records):
        slave.replay(at, record)
    slave.journal = cast(PopJournal, SlavesJournal(len(records)))
    slave.keep_ended(len(records))
    master.handed_over(master.those([point_of(row).key for row in master.hand_back()]))
    return slave


class SlavesJournal(Journal):
    """It writes none."""

    def __init__(self, end: int) -> None:
        super().__init__()
        self.end = end

    def write(self, entries: dict[str, list[Any]]) -> tuple[int, int]:
        return -1, 0


def _late(slave: CheckPointBuffer, master: CheckPointBuffer, known_end: int) -> list[tuple[object, list[int]]]:
    """What the master writes to the revive topic of what the slave hands back."""
    late = take_in(_encode(known_end, slave), 1_000, master, cast(OrderService, Orders()), Queues().deletions)
    return [(ack.point.key, ack.offsets) for ack in late]


@pytest.mark.parametrize("behind_an_open_one", [False, True])
def test_all_acks_of_what_its_master_had_handed_over_go_where_it_was_handed_over(behind_an_open_one: bool) -> None:
    """Also when nothing of it is open any more."""
    master = _buffer(*([OWN] if behind_an_open_one else []), THEIRS)
    end = len(cast(Journal, master.journal).records)
    slave = _slave_of(master)
    _ack(slave, THEIRS, 2, 3)
    assert _late(slave, master, end) == [(THEIRS.key, [2, 3])]
    assert _rows(master) == [], "it is in the revive topic; taken in again, its messages would come twice"


def test_a_message_of_which_the_slave_has_changed_the_time_does_not_come_at_the_time_that_its_master_knew() -> None:
    master = _buffer(FIRST)
    slave = _slave_of(master)
    (live,) = slave.those([FIRST.key])
    slave.replace(replace(RENEWED), 0, live, 0, by=FIRST.key)
    assert _late(slave, master, 1) == [(FIRST.key, [0])]
    assert _open(master) == [(RENEWED.pop_time, [0])]


def test_of_what_its_master_had_handed_over_only_what_was_acknowledged_is_done() -> None:
    """The slave acts again, and has read by now that it has ended at the master; a message before it is open."""
    slave = _slave_of(_buffer(OWN, THEIRS))
    _ack(slave, THEIRS, 2)
    told = _encode(2, slave)
    master = _buffer(OWN, THEIRS)
    master.handed_over(master.those([THEIRS.key]))
    again = _slave_of(master)
    assert take_in(told, 3, again, cast(OrderService, Orders()), Queues().deletions) == [], "a slave writes nothing"
    assert _late(again, master, 3) == [(THEIRS.key, [2])]


# --- a loss of power, or a kill, right when the master has taken it in -----------------------------------------------


def test_a_group_goes_to_where_it_was_at_the_slave_when_its_open_messages_cannot_be_lost_any_more() -> None:
    """One of them may stand before the group's place, for its time was changed."""
    slave, master = _acting(SLAVES), _buffer()
    (live,) = slave.those([SLAVES.key])
    slave.replace(replace(RENEWED), 0, live, 0, by=SLAVES.key)
    slave.ack(live, [1, 2])
    journal = cast(Journal, master.journal)
    journal.final = 0
    _take_in(master, _encode(0, slave))
    offsets = cast(Offsets, master._offsets)
    assert (offsets.committed, master.is_settled, master.latest_offset("T", "G", 0)) == (0, False, 3)
    journal.final = len(journal.records)
    master.settle()
    assert (offsets.committed, master.is_settled, master.latest_offset("T", "G", 0)) == (3, True, -1)
    assert _open(master) == [(RENEWED.pop_time, [0])]


def test_a_group_that_began_at_the_end_at_the_slave_goes_on_there_though_it_was_given_nothing() -> None:
    slave, master = _acting(), _buffer()
    for buffer, offset in ((slave, 7), (master, -1)):
        cast(Offsets, buffer._offsets).committed = offset
    slave.begins(("T", "G", 0), 7, at_end=True)
    _take_in(master, _encode(0, slave))
    assert cast(Offsets, master._offsets).committed == 7


def test_what_a_slave_put_in_the_place_of_a_check_point_is_noted_before_its_end() -> None:
    master, slave = _buffer(OWN), _acting(OWN)
    (live,) = slave.those([OWN.key])
    live.journal_offset = 0  # the master's journal told of it
    slave.replace(replace(RENEWED), 0, live, 0, by=OWN.key)
    slave.ack(live, [1])
    journal = cast(Journal, master.journal)
    journal.final = 0
    noted = len(journal.records)
    _take_in(master, _encode(1, slave))
    assert cast(Offsets, master._offsets).committed == 0
    kinds = [name for record in journal.records[noted:] for name in record]
    assert kinds.index("p") < kinds.index("e")


OF_ONE = PopCheckPoint("T", "G", 0, 0, 20_000, 60_000, "b", [0], 1)


@pytest.mark.parametrize("first", [OWN, OF_ONE])
def test_a_message_that_two_hold_is_acknowledged_by_either_though_one_has_changed_its_time(
    first: PopCheckPoint,
) -> None:
    master = _buffer(OWN)
    _take_in(master, _encode(0, _acting(SLAVES)))
    (of_the_slave,) = master.those([SLAVES.key])
    master.replace(replace(OF_ONE), 0, of_the_slave, 0, by=SLAVES.key)
    started = _buffer()
    for at, record in enumerate(cast(Journal, master.journal).records):
        started.replay(at, record)
    for buffer in (master, started):
        assert _open(buffer) == [(OWN.pop_time, [0, 1]), (SLAVES.pop_time, [1, 2]), (OF_ONE.pop_time, [0])]
        _ack(buffer, first, 0)
        assert _open(buffer) == [(OWN.pop_time, [1]), (SLAVES.pop_time, [1, 2])]


def test_a_message_that_was_acknowledged_by_one_of_two_does_not_come_because_the_other_changes_its_time() -> None:
    master = _buffer(OWN)
    _take_in(master, _encode(0, _acting(SLAVES)))
    _ack(master, OWN, 0)
    (of_the_slave,) = master.those([SLAVES.key])
    master.replace(replace(OF_ONE), 0, of_the_slave, 0, by=SLAVES.key)
    assert _open(master) == [(OWN.pop_time, [1]), (SLAVES.pop_time, [1, 2])]


@pytest.mark.parametrize("messages", [1, 3])
def test_a_message_of_which_the_slave_changes_the_time_is_acknowledged_by_the_masters_receipt(messages: int) -> None:
    """Also where the slave's check point has ended with that, for it held no other message."""
    theirs = PopCheckPoint("T", "G", 0, 0, 9_000, 60_000, "b", list(range(messages)), messages)
    slave = _acting(theirs)
    (of_the_slave,) = slave.those([theirs.key])
    slave.replace(replace(OF_ONE), 0, of_the_slave, 0, by=theirs.key)
    master = _buffer(OWN)
    _take_in(master, _encode(0, slave))
    assert (OF_ONE.pop_time, [0]) in _open(master) and (OWN.pop_time, [0, 1]) in _open(master)
    _ack(master, OWN, 0)
    assert not {0} & {at for _, open_offsets in _open(master) for at in open_offsets}


def test_a_check_point_that_a_slave_takes_back_ends_no_message() -> None:
    """Its receipt was given to nobody: the message is the master's, which gave it to somebody that the slave does not
    know."""
    slave = _acting()
    slave.add([(replace(OF_ONE), 0, -1)])
    slave.take_away(OF_ONE)
    assert len(slave) == 0
    master = _buffer(OWN)
    _take_in(master, _encode(0, slave))
    assert _open(master) == [(OWN.pop_time, [0, 1])]


def test_the_cursor_is_behind_all_that_was_given_also_after_a_start() -> None:
    """The slave names what is open first, and what has ended behind it after that."""
    first, second = OWN, PopCheckPoint("T", "G", 0, 4, 3_000, 60_000, "b", [0, 1], 2)
    slave = _acting(first, THEIRS, second)
    _ack(slave, THEIRS, 2, 3)
    master = _buffer()
    _take_in(master, _encode(0, slave))
    started = _buffer()
    for at, record in enumerate(cast(Journal, master.journal).records):
        started.replay(at, record)
    assert master.latest_offset("T", "G", 0) == started.latest_offset("T", "G", 0) == 6


def test_what_a_slave_tells_of_a_topic_that_was_deleted_since_counts_for_nothing() -> None:
    queues = Queues()
    queues.deletions.put("T", 100)
    slave = _acting(SLAVES, PopCheckPoint("T", "G", 0, 3, 9_001, 60_000, "b", [0], 1))
    _ack(slave, SLAVES, 0, 1, 2)
    for log_end, is_taken in ((100, False), (101, True)):
        master = _buffer(OWN)
        _take_in(master, _encode(0, slave, log_end=log_end), queues)
        assert (master._offsets.query_offset("G", "T", 0) == 3) is is_taken
        assert (_open(master) == [(OWN.pop_time, [0, 1])]) is not is_taken


@pytest.mark.parametrize(("end", "open_offsets"), [(7, [4, 6]), (6, [4]), (5, [4]), (3, []), (0, [])])
def test_what_a_slave_tells_of_messages_that_a_master_has_lost_counts_for_nothing(
    end: int, open_offsets: list[int]
) -> None:
    """Other messages will have these places in the queue, and the group is to get them."""
    slave = _acting(PopCheckPoint("T", "G", 0, 0, 9_000, 60_000, "b", [0, 1, 2, 3], 4))
    given = PopCheckPoint("T", "G", 0, 4, 9_001, 60_000, "b", [0, 1, 2], 3)
    slave.add([(given, 0, 7)])
    _ack(slave, PopCheckPoint("T", "G", 0, 0, 9_000, 60_000, "b", [0, 1, 2, 3], 4), 0, 1, 2, 3)
    _ack(slave, given, 5)
    rows = [["T", "O", 0, 7, {"popTime": 5, "i": 60_000, "o": [5, 1]}]]
    master = _buffer()
    orders = _take_in(master, _encode(0, slave, Orders(rows)), Queues(end))
    assert [offset for _, offsets in _open(master) for offset in offsets] == open_offsets
    assert master._offsets.query_offset("G", "T", 0) == min(4, end)
    assert master.latest_offset("T", "G", 0) <= end
    assert len(orders.taken) == (end == 7)


def test_a_slave_that_acts_again_keeps_acks_of_what_its_master_handed_over_meanwhile() -> None:
    slave = _acting()
    late = take_in(_acked_at_the_slave(1), 2, slave, cast(OrderService, Orders()), Queues().deletions)
    assert late == [], "a slave writes nothing"
    master = _buffer()
    late = take_in(_encode(2, slave), 2, master, cast(OrderService, Orders()), Queues().deletions)
    assert [(ack.point.key, ack.offsets) for ack in late] == [(THEIRS.key, [2])]


_CUT = [orjson.dumps(_told())[:size] for size in (1, 20, 80, -1)]
_WRONG = [
    {**_told(), "end": "1"},
    {**_told(), "live": [*_told()["live"], []]},
    {**_told(), "live": [_told()["live"][0][:12]]},
    {**_told(), "live": None},
    {**_told(), "orders": [["T", "O", 0, 3, {"popTime": "long ago"}]]},
    {**_told(), "orders": [["T", "O", 0]]},
    {"end": 1, "live": []},
    {**_told(), "noted": ["1"]},
    {**_told(), "noted": 1},
    {**_told(), "log": "1"},
    {**_told(), "done": [["T", "G", 0, 1]]},
    {**_told(), "done": [["T", "G", 0, 1, [1]]]},
    {**_told(), "done": [["T", "G", 0, 1, ["1", 2]]]},
    *({**_told(), "live": [[*_told()["live"][0][:n], {}, *_told()["live"][0][n + 1 :]]]} for n in range(13)),
]


@pytest.mark.usefixtures("caplog")
@pytest.mark.parametrize("body", [*_CUT, *map(orjson.dumps, _WRONG), b"[1]", b"7", b"\xff"])
def test_of_an_answer_that_is_cut_or_malformed_nothing_is_taken_in(body: bytes) -> None:
    buffer = _buffer(OWN)
    before = _rows(buffer)
    if known_end(body) is not None:
        assert without(body, {OWN.key}) == body
    assert _take_in(buffer, body).taken == []
    assert _rows(buffer) == before


class Connection:
    """What was answered."""

    def __init__(self) -> None:
        self.answers: list[RemotingCommand] = []

    def send(self, answer: RemotingCommand) -> None:
        self.answers.append(answer)


class Slave:
    """A slave's part in its group, and its pop consumption."""

    is_acting_master = True

    def __init__(self, *, log_is_another: bool) -> None:
        self.log_is_another = log_is_another
        self.has_given_way = False

    log_mark = "its own"

    def has_other_log(self, mark: str) -> bool:
        return mark == "another"

    def hear_master_mark(self, mark: str) -> None:
        self.log_is_another |= self.has_other_log(mark)

    def hear_return(self, master: str) -> None:
        """Nothing follows from it."""

    def give_way(self) -> None:
        self.has_given_way = True

    def hand_back(self, return_id: str) -> bytes:
        return b"what it knows"

    async def leave_to(self, slave_id: int, address: str) -> None:
        """Nothing follows from it."""

    def left(self) -> bytes:
        return b"what it knows"

    def copied_of(self, address: str) -> bytes:
        return b"what it has copied"

    async def rest(self) -> None:
        """It delivers nothing."""


_MASTER = {"masterAddress": "10.0.0.1:10911"}
_OTHER_SLAVE = {SlaveSign.ID: "1", SlaveSign.ADDRESS: "10.0.0.2:10911"}


@pytest.mark.parametrize("who", [_MASTER, _OTHER_SLAVE])
@pytest.mark.parametrize(("log_is_another", "mark"), [(False, "the same"), (True, "the same"), (False, "another")])
async def test_a_slave_whose_log_is_another_tells_nobody_anything(
    *, who: dict[str, str], log_is_another: bool, mark: str
) -> None:
    slave, connection = Slave(log_is_another=log_is_another), Connection()
    processor = HandBackProcessor(cast(GroupOfSlave, slave), cast(PopState, slave), slave.rest)
    question = RemotingCommand(RequestCode.MAXQ_HAND_BACK_POPS, {**who, SlaveSign.LOG_MARK: mark})
    answering = processor.answer(cast(RemotingConnection, connection), question)
    if log_is_another or mark == "another":
        with pytest.raises(RequestRefusedError, match="differs from its master's"):
            await answering
        assert not connection.answers
    else:
        await answering
        assert connection.answers[0].body_bytes == b"what it knows"
        assert connection.answers[0].ext == {SlaveSign.LOG_MARK: "its own"}
    assert slave.has_given_way
