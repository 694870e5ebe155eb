"""The buffer of check points against a naive model: offsets, what is hidden, and what a journal gives back."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxq.broker.pop.check_point_buffer import CheckPointBuffer
from maxq.broker.pop.pop_journal import NO_SLAVE
from maxq.protocol.body.pop import PopCheckPoint
from maxq.store.durability.log_marks import LogMark
from tests.short_form import times

QUEUE = ("T", "G", 0)


class Offsets:
    """Committed offset of the one queue."""

    def __init__(self) -> None:
        self.committed = 0

    def query_offset(self, group: str, topic: str, queue_id: int) -> int:
        assert (type(group), type(topic), type(queue_id)) == (str, str, int)
        return self.committed

    def commit_offset(self, host: str, group: str, topic: str, queue_id: int, offset: int) -> None:
        assert (type(group), type(topic), type(queue_id)) == (str, str, int)
        self.committed = offset


class Journal:
    """Remembers what it was told. `final`: so much of it can be lost no more. `copied`: so much of it slaves have."""

    def __init__(self) -> None:
        self.records: list[dict[str, list[Any]]] = []
        self.final = 1 << 62
        self.copied = NO_SLAVE

    def write(self, entries: dict[str, list[Any]]) -> tuple[int, int]:
        self.records.append(entries)
        return len(self.records) - 1, len(self.records)

    def noted_end(self) -> int:
        return len(self.records)

    def copied_end(self) -> int:
        return self.copied

    def tells_of(self, topic: str, group: str, queue_id: int) -> bool:
        return False

    def mark(self) -> LogMark:
        return LogMark(len(self.records), 0)

    def is_final(self, mark: LogMark) -> bool:
        return mark.end <= self.final


class Clock:
    """Stands still until it is moved, or set."""

    def __init__(self) -> None:
        self.now_ms, self.set_by_ms = 5_000, -4_000

    def wall_ms(self) -> int:
        return self.now_ms + self.set_by_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


def _buffer(clock: Clock | None = None) -> tuple[CheckPointBuffer, Offsets, Journal]:
    offsets, journal = Offsets(), Journal()
    buffer = CheckPointBuffer(offsets, journal, clock or Clock())  # type: ignore[arg-type]
    buffer.is_open = True
    return buffer, offsets, journal


def _pop(buffer: CheckPointBuffer, start: int, count: int, pop_time: int, invisible: int = 60_000) -> PopCheckPoint:
    point = PopCheckPoint("T", "G", 0, start, pop_time, invisible, "b", list(range(count)), count)
    buffer.add([(point, 0, start + count)])
    return point


# pops of 1 to 4 messages, acks of any message, revivals of any check point
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("pop"), st.integers(1, 4)),
        st.tuples(st.just("ack"), st.integers(0, 30)),
        st.tuples(st.just("end"), st.integers(0, 10)),
    ),
    max_size=40,
)


@settings(max_examples=times(150), deadline=None)
@given(STEPS)
def test_the_committed_offset_is_the_first_open_check_point_and_a_replay_finds_the_same(
    steps: list[tuple[str, int]],
) -> None:
    buffer, offsets, journal = _buffer()
    points: list[PopCheckPoint] = []
    open_offsets: dict[int, set[int]] = {}  # by start offset: the model
    for kind, number in steps:
        if kind == "pop":
            start = sum(point.num for point in points)
            points.append(_pop(buffer, start, number, 1_000 + len(points)))
            open_offsets[start] = set(range(start, start + number))
        elif kind == "ack":
            for point in points:
                live = buffer.find(point.key)
                if live is not None and point.index_of(number) >= 0:
                    buffer.ack(live, [number])
                    open_offsets[point.start_offset].discard(number)
        elif number < len(points):
            live = buffer.find(points[number].key)
            buffer.finish([] if live is None else [live])
            open_offsets[points[number].start_offset] = set()
        still_open = sorted(start for start, left in open_offsets.items() if left)
        end = sum(point.num for point in points)
        assert offsets.committed == (still_open[0] if still_open else end)
        assert sum(buffer.in_flight.values()) == sum(map(len, open_offsets.values()))
        assert max(offsets.committed, buffer.latest_offset(*QUEUE)) == end
    again, offsets_again, _ = _buffer()
    for at, record in enumerate(journal.records):
        again.replay(at, record)
    assert offsets_again.committed == offsets.committed
    assert again.latest_offset(*QUEUE) == buffer.latest_offset(*QUEUE)
    assert again.in_flight == buffer.in_flight and len(again) == len(buffer)
    assert again.oldest_needed() == buffer.oldest_needed()


def test_a_check_point_is_due_when_its_time_is_over_and_not_before() -> None:
    clock = Clock()
    buffer, _, _ = _buffer(clock)
    _pop(buffer, 0, 2, 1_000, invisible=250)
    clock.now_ms += 249
    assert buffer.take_due() == []
    clock.now_ms += 51
    assert [live.point.start_offset for live in buffer.take_due()] == [0]


@pytest.mark.parametrize("years", [-50, 50])
def test_a_clock_that_is_set_neither_ends_a_check_point_nor_makes_it_longer(years: int) -> None:
    clock = Clock()
    buffer, _, journal = _buffer(clock)
    _pop(buffer, 0, 2, 1_000, invisible=1_000)
    clock.set_by_ms += years * 365 * 24 * 3_600_000
    clock.now_ms += 900
    assert buffer.take_due() == []
    again, _, _ = _buffer(clock)  # a start knows only what the wall clock says
    again.replay(0, journal.records[0])
    clock.now_ms += 100
    assert len(buffer.take_due()) == 1
    assert len(again.take_due()) == (years > 0)
    clock.now_ms += 900
    assert len(again.take_due()) == 1


def test_the_oldest_go_when_there_are_too_many() -> None:
    buffer, _, _ = _buffer()
    for number in range(5):
        _pop(buffer, number, 1, 1_000 + number)
    assert [live.point.start_offset for live in buffer.take_old(1_002, 100)] == [0, 1]
    assert [live.point.start_offset for live in buffer.take_old(0, 2)] == [0, 1, 2]


def test_a_cursor_that_is_set_counts_and_acks_from_before_do_no_harm() -> None:
    buffer, offsets, _ = _buffer()
    point = _pop(buffer, 0, 2, 1_000)
    buffer.set_cursors({QUEUE: 0})
    assert buffer.latest_offset(*QUEUE) == -1
    live = buffer.find(point.key)
    assert live is not None
    buffer.ack(live, [0, 1])
    assert offsets.committed == 0 and len(buffer) == 0


@settings(max_examples=times(150), deadline=None)
@given(st.sets(st.integers(0, 40), min_size=1), st.sets(st.integers(0, 70)), st.sets(st.integers(0, 70)), st.booleans())
def test_bits_of_a_batch_mark_what_the_acks_of_its_messages_would(
    distances: set[int], before: set[int], batch: set[int], neighbours: bool
) -> None:
    diffs = list(range(len(distances))) if neighbours else sorted(distances)
    marked = []
    for at_once in (True, False):
        buffer, offsets, _ = _buffer()
        point = PopCheckPoint("T", "G", 0, 100, 1, 60_000, "b", diffs, len(diffs))
        buffer.add([(point, 0, 200)])
        (live,) = buffer.those([point.key])
        for distance in before:
            buffer.mark(live, 100 + distance)
        if at_once:
            mask = buffer.mark_those(live, sum(1 << distance for distance in batch))
        else:
            mask = sum(buffer.mark(live, 100 + distance) for distance in batch)
        marked.append((mask, point.bit_map, live.ended, offsets.committed, buffer.in_flight))
    assert marked[0] == marked[1]


def test_the_cursor_moves_behind_what_is_open_and_is_committed_when_that_has_ended() -> None:
    buffer, offsets, _ = _buffer()
    assert buffer.latest_offset(*QUEUE) == -1
    buffer.move_cursor(QUEUE, 3)
    assert (buffer.latest_offset(*QUEUE), offsets.committed) == (-1, 3)
    point = _pop(buffer, 3, 2, 1_000)
    assert buffer.latest_offset(*QUEUE) == 5
    for next_begin in (7, 9):
        buffer.move_cursor(QUEUE, next_begin)
        assert (buffer.latest_offset(*QUEUE), offsets.committed) == (next_begin, 3)
    assert buffer.hand_back() == [[*buffer.hand_back()[0][:-1], 0]], "a cursor that moved gave nothing away"
    (live,) = buffer.those([point.key])
    buffer.ack(live, [3, 4])
    assert (buffer.latest_offset(*QUEUE), offsets.committed) == (-1, 9)


def test_who_does_not_speak_for_the_group_finds_no_check_point_for_an_ack() -> None:
    buffer, _, _ = _buffer()
    point = _pop(buffer, 0, 2, 1_000)
    assert buffer.is_known(point)
    assert not buffer.is_known(PopCheckPoint("T", "G", 0, 5, 1_000, 60_000, "b", [0], 1))
    assert buffer.find(point.key) is not None
    buffer.is_open = False
    assert buffer.find(point.key) is None
    assert [live.point for live in buffer.those([point.key, (*point.key[:5], "other")])] == [point]


def test_the_first_to_come_and_each_that_ends_are_told() -> None:
    buffer, _, _ = _buffer()
    filled: list[int] = []
    ended: list[tuple[str, str, int]] = []
    buffer.on_filled = lambda: filled.append(len(buffer))
    buffer.on_ended = ended.append
    first, second = _pop(buffer, 0, 1, 1_000), _pop(buffer, 1, 1, 1_001)
    assert (filled, ended) == ([0], [])
    for point in (second, first):
        (live,) = buffer.those([point.key])
        assert buffer.mark(live, point.start_offset) == 1
        assert buffer.mark(live, point.start_offset) == 0, "it was acknowledged before"
        assert buffer.mark(live, 99) == 0, "it is another one's"
    assert ended == [QUEUE, QUEUE]
    _pop(buffer, 2, 1, 1_002)
    assert filled == [0, 0]


def test_acks_say_how_many_messages_they_were_of_and_what_must_be_safe() -> None:
    buffer, _, journal = _buffer()
    point = _pop(buffer, 0, 3, 1_000)
    (live,) = buffer.those([point.key])
    assert buffer.ack(live, [0, 2, 9]) == (2, 2)
    assert journal.records[1] == {"a": [[live.number, 0b101]]}
    assert buffer.ack(live, [0, 2]) == (0, 2), "as safe as what was noted before"
    assert buffer.ack(live, [1, 1]) == (1, 3)
    assert len(buffer) == 0


def test_what_the_journal_needs_begins_with_the_first_that_is_open() -> None:
    buffer, _, _ = _buffer()
    assert buffer.oldest_needed() == -1
    points = [_pop(buffer, number, 1, 1_000 + number) for number in range(3)]
    assert buffer.oldest_needed() == 0
    lives = buffer.those([point.key for point in points])
    buffer.finish([lives[1]])
    assert buffer.oldest_needed() == 0
    buffer.finish([lives[0]])
    assert buffer.oldest_needed() == 2
    buffer.finish(lives)
    assert buffer.oldest_needed() == -1


def test_deleted_topics_leave_nothing_behind() -> None:
    buffer, offsets, journal = _buffer()
    _pop(buffer, 0, 2, 1_000)
    other = PopCheckPoint("U", "G", 1, 0, 1_000, 60_000, "b", [0], 1)
    buffer.add([(other, 0, 1)])
    assert buffer.queues() == {QUEUE, ("U", "G", 1)}
    buffer.forget([QUEUE])
    assert buffer.queues() == {("U", "G", 1)}
    assert (offsets.committed, buffer.in_flight) == (0, {("U", "G", 1): 1})
    assert list(journal.records[-1]) == ["e"]
    buffer.clear()
    assert (len(buffer), buffer.queues(), buffer.in_flight, buffer.oldest_needed()) == (0, set(), {}, -1)


def test_one_message_gets_a_check_point_of_its_own() -> None:
    buffer, offsets, journal = _buffer()
    point = _pop(buffer, 0, 2, 1_000)
    (live,) = buffer.those([point.key])
    later = PopCheckPoint("T", "G", 0, 1, 2_000, 90_000, "b", [0], 1)
    assert buffer.replace(later, 5, live, 1, by=point.key) == (1, 2)
    assert (point.bit_map, buffer.in_flight, len(buffer)) == (0b10, {QUEUE: 2}, 2)
    (made,) = buffer.those([later.key])
    assert journal.records[-1] == {
        "p": [[made.number, "T", "G", 0, 2_000, 90_000, 5, 1, [0], -1, 0, "b"]], "a": [[live.number, 0b10]],
        "h": [[made.number, 0, 1_000, "b"]],
    }  # fmt: skip
    assert buffer.replace(later, 5, live, 1, by=point.key) == (0, 2), "it was acknowledged there"
    assert buffer.replace(later, 5, live, 7, by=point.key) == (0, 2), "it is another one's"
    buffer.ack(live, [0])
    assert (offsets.committed, buffer.latest_offset(*QUEUE)) == (2, -1), "the new one does not hold the offset"
    buffer.ack(made, [1])
    assert (len(buffer), buffer.in_flight) == (0, {})


def test_most_check_points_and_their_age_are_bounded_at_the_border() -> None:
    buffer, _, _ = _buffer()
    for number in range(3):
        _pop(buffer, number, 1, 1_000 + number)
    starts = lambda *bounds: [live.point.start_offset for live in buffer.take_old(*bounds)]  # noqa: E731
    assert starts(1_000, 3) == []
    assert starts(1_001, 3) == [0]
    assert starts(1_000, 2) == [0]


def test_what_slaves_do_not_know_is_handed_over_only_where_there_is_too_much() -> None:
    buffer, _, journal = _buffer()
    for number in range(3):
        _pop(buffer, number, 1, 1_000 + number)
    starts = lambda most: [live.point.start_offset for live in buffer.take_old(2_000, most)]  # noqa: E731
    journal.copied = 1
    assert (starts(3), starts(2), starts(1)) == ([0], [0], [0, 1])
    journal.copied = 3
    assert starts(3) == [0, 1, 2]


def _change(buffer: CheckPointBuffer, by: PopCheckPoint, offset: int, pop_time: int) -> PopCheckPoint:
    """The message at `offset` has a check point of its own since this moment; asked for with the receipt of `by`."""
    point = PopCheckPoint("T", "G", 0, offset, pop_time, 60_000, "b", [0], 1)
    live = buffer.holder(by.key, offset)
    assert live is not None
    buffer.replace(point, 0, live, offset, by=by.key)
    return point


def _replayed(journal: Journal) -> CheckPointBuffer:
    again, _, _ = _buffer()
    for at, record in enumerate(journal.records):
        again.replay(at, record)
    return again


@pytest.mark.parametrize("messages", [1, 2])
@pytest.mark.parametrize("changes", [1, 2, 3])
def test_the_receipt_from_before_a_change_of_time_names_who_has_the_message_now(messages: int, changes: int) -> None:
    """The answers were lost: the consumer asks once more with the receipt that it has, and acknowledges by it, or by
    one of the answers that came late."""
    for by_last in (False, True):
        buffer, offsets, journal = _buffer()
        first = _pop(buffer, 0, messages, 1_000)
        for change in range(changes):
            last = _change(buffer, first, 0, 2_000 + change)
        for known in (buffer, _replayed(journal)):
            assert len(known) == messages, "one check point has the message"
            live = known.holder(last.key if by_last else first.key, 0)
            assert live is not None
            known.ack(live, [0])
            assert len(known) == messages - 1
            assert not known.is_renewed(first.key) and not known.is_renewed(last.key)
        assert (offsets.committed == 1) is (messages == 1)


@pytest.mark.parametrize("invisible_ms", [30_000, 1 << 40])
def test_who_has_a_message_stays_in_memory_while_an_earlier_receipt_counts(invisible_ms: int) -> None:
    """The answer to the change may be lost. In the revive topic an ack by that receipt would not meet it."""
    buffer, _, _ = _buffer()
    point = PopCheckPoint("T", "G", 0, 0, 1_000, invisible_ms, "b", [0], 1)
    buffer.add([(point, 0, 1)])
    made = _change(buffer, point, 0, 2_000)
    until_ms = min(point.revive_time, made.pop_time + 60_000)
    starts = [[live.point.pop_time for live in buffer.take_old(*bounds)]
              for bounds in ((until_ms - 1, 10), (until_ms, 10), (1 << 62, 10), (0, 0))]  # fmt: skip
    assert starts == [[], [2_000], [2_000], [2_000]], "unless there is too much, or the broker ends"


def test_receipts_that_nobody_asks_with_are_forgotten() -> None:
    buffer, _, _ = _buffer()
    point = _pop(buffer, 0, 1, 1_000)
    for change in range(5):
        point = _change(buffer, point, 0, 2_000 + change)
    assert len(buffer.earlier_receipts()) == len(buffer) == 1


def test_a_check_point_that_is_not_here_has_ended_unless_it_was_handed_over() -> None:
    clock = Clock()
    buffer, _, _ = _buffer(clock)
    handed_over, acknowledged = _pop(buffer, 0, 1, clock.wall_ms() + 1), _pop(buffer, 1, 1, clock.wall_ms() + 2)
    assert not buffer.has_ended(clock.wall_ms()), "it may be of another process"
    assert buffer.has_ended(handed_over.pop_time)
    buffer.handed_over(buffer.those([handed_over.key]))
    assert not buffer.has_ended(handed_over.pop_time)
    assert buffer.has_ended(acknowledged.pop_time)


@pytest.mark.parametrize("end", ["revived", "replaced"])
def test_the_offset_waits_until_what_the_end_of_a_check_point_put_into_the_log_is_safe(end: str) -> None:
    buffer, offsets, journal = _buffer()
    journal.final = 1
    first, second = _pop(buffer, 0, 1, 1_000), _pop(buffer, 1, 1, 1_001)
    if end == "revived":
        journal.records.append({})  # the copy
        buffer.finish(buffer.those([first.key]))
    else:
        _change(buffer, first, 0, 2_000)
    buffer.ack(buffer.those([second.key])[0], [1])
    buffer.move_cursor(QUEUE, 5)
    buffer.settle()
    assert (offsets.committed, buffer.latest_offset(*QUEUE)) == (0, 5)
    assert buffer.oldest_needed() == 0, "a start finds the message only there"
    journal.final = len(journal.records)
    buffer.settle()
    assert offsets.committed == 5
    assert buffer.oldest_needed() == (-1 if end == "revived" else 2)


def test_of_three_that_hold_a_message_each_acknowledges_it_for_all() -> None:
    buffer, offsets, _ = _buffer()
    points = [_pop(buffer, 0, 1, 1_000 + number) for number in range(3)]
    lives = buffer.those([point.key for point in points])
    buffer.replay(9, {"t": [[lives[0].number, lives[2].number], [lives[1].number, lives[2].number]]})
    assert [live.has_twins for live in lives] == [True] * 3
    numbers = [live.number for live in lives]
    assert sorted(map(list, buffer.pairs_of_twins())) == [[numbers[0], numbers[2]], [numbers[1], numbers[2]]]
    buffer.ack(lives[2], [0])
    assert (len(buffer), buffer.in_flight, offsets.committed) == (0, {}, 1)


def test_messages_are_left_only_to_those_that_hold_them_for_longer_and_have_not_ended() -> None:
    def left(*ends: int, invisible: int) -> list[int]:
        """What is open of a check point after it left what it may to one with that invisible time."""
        buffer, _, _ = _buffer()
        point = _pop(buffer, 0, 2, 1_000, invisible=50_000)
        other = PopCheckPoint("T", "G", 0, 1, 1_000, invisible, "b", [0, 1], 2)
        buffer.add([(other, 0, 3)])
        live, twin = buffer.those([point.key, other.key])
        buffer.replay(9, {"t": [[live.number, twin.number]]})
        if ends:
            buffer.finish([twin])
        buffer.leave_to_twins(live)
        return point.open_offsets()

    assert left(invisible=60_000) == [0]
    assert left(invisible=50_000) == [0], "as long as that one"
    assert left(invisible=40_000) == [0, 1]
    assert left(1, invisible=60_000) == [0, 1], "it has been handed over"


def test_a_deleted_group_of_which_nothing_is_here_is_forgotten_too() -> None:
    buffer, _, journal = _buffer()
    _pop(buffer, 0, 1, 1_000)
    noted = len(journal.records)
    buffer.forget([("U", "G", 1)])
    assert (len(buffer), len(journal.records)) == (1, noted)


def test_no_number_in_the_journal_is_given_twice_also_after_a_start() -> None:
    clock = Clock()
    buffer, _, journal = _buffer(clock)
    points = [_pop(buffer, number, 1, 1_000 + number) for number in range(3)]
    numbers = [live.number for live in buffer.those([point.key for point in points])]
    assert numbers == sorted(set(numbers))
    clock.set_by_ms -= 3_600_000  # the next process begins to count below them
    again, _, _ = _buffer(clock)
    for at, record in enumerate(journal.records):
        again.replay(at, record)
    point = _pop(again, 3, 1, 1_003)
    (live,) = again.those([point.key])
    assert live.number > numbers[-1]


def test_what_a_slave_gave_and_tells_of_late_takes_its_place_in_the_queue() -> None:
    buffer, offsets, _ = _buffer()
    points = [_pop(buffer, start, count, 1_000 + start) for start, count in ((0, 2), (2, 2), (5, 1))]
    late = PopCheckPoint("T", "G", 0, 4, 900, 60_000, "b", [0], 1)
    buffer.add([(late, 0, 5)])
    assert buffer.latest_offset(*QUEUE) == 6
    for point, committed in ((points[0], 2), (points[1], 4), (points[2], 4), (late, 6)):
        (live,) = buffer.those([point.key])
        buffer.ack(live, point.open_offsets())
        assert offsets.committed == committed


def test_check_points_forget_messages_that_are_lost_and_a_start_knows_it() -> None:
    """They would give the messages again that got the places."""
    buffer, _, journal = _buffer()
    points = [_pop(buffer, start, 2, 1_000 + start) for start in (3, 5, 7)]
    buffer.not_beyond({QUEUE: 6, ("T", "other", 0): 0})
    again, _, _ = _buffer()
    for offset, entries in enumerate(journal.records):
        again.replay(offset, entries)
    for one in (buffer, again):
        lives = [one.find(point.key) for point in points]
        assert [live and live.point.open_offsets() for live in lives] == [[3, 4], [5], None]
