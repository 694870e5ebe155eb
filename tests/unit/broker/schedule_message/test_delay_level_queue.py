"""When a delayed message is due, whatever happens to the clock."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxq.broker.schedule_message.delay_level_queue import DelayLevelQueue
from maxq.broker.schedule_message.delay_levels import DelayLevels, delay_level_of

DELAY_MS = 10_000


@dataclass
class _Clock:
    wall: int = 1_000_000
    steady: int = 5_000

    def wall_ms(self) -> int:
        return self.wall

    def monotonic_ms(self) -> int:
        return self.steady

    def monotonic_ns(self) -> int:
        return self.steady * 1_000_000

    def pass_ms(self, ms: int) -> None:
        self.wall += ms
        self.steady += ms


@dataclass
class _Queue:
    """Units as dispatch writes them; None is a gap."""

    clock: _Clock
    min_offset: int = 0
    entries: list[tuple[int, int, int] | None] = field(default_factory=list)
    stored_ms: list[int] = field(default_factory=list)  # steady clock

    @property
    def max_offset(self) -> int:
        return self.min_offset + len(self.entries)

    def units(self, offset: int, most: int) -> list[tuple[int, int, int] | None]:
        return self.entries[offset - self.min_offset :][:most]

    def store(self, delay_ms: int = DELAY_MS) -> None:
        self.entries.append((len(self.entries) * 100, 100, self.clock.wall + delay_ms))
        self.stored_ms.append(self.clock.steady)


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


@pytest.fixture
def queue(clock: _Clock) -> _Queue:
    return _Queue(clock)


def _taken(level: DelayLevelQueue) -> list[int]:
    taken = []
    while (unit := level.take_due()) is not None:
        taken.append(unit.queue_offset)
    return taken


def test_messages_are_due_after_the_delay_in_their_order(clock: _Clock, queue: _Queue) -> None:
    level = DelayLevelQueue(queue, DELAY_MS, clock, 0)
    assert level.wait_ms() is None
    queue.store()
    clock.pass_ms(4_000)
    queue.store()
    assert (level.wait_ms(), _taken(level)) == (6_000, [])
    clock.pass_ms(5_999)
    assert (level.wait_ms(), _taken(level)) == (1, [])
    clock.pass_ms(1)
    assert (_taken(level), level.wait_ms(), level.next_offset) == ([0], 4_000, 1)
    clock.pass_ms(4_000)
    assert (_taken(level), level.wait_ms()) == ([1], None)


def test_gaps_and_what_the_log_no_longer_has_are_passed_over(clock: _Clock, queue: _Queue) -> None:
    queue.min_offset = 7
    queue.entries.append(None)
    queue.store()
    queue.entries.append(None)
    queue.store()
    level = DelayLevelQueue(queue, DELAY_MS, clock, 3)
    clock.pass_ms(DELAY_MS)
    assert _taken(level) == [8, 10]
    queue.entries.append(None)
    assert _taken(level) == []
    assert level.next_offset == 12


def test_clock_set_back_delays_each_message_by_one_delay_at_most_and_none_comes_early(
    clock: _Clock, queue: _Queue
) -> None:
    level = DelayLevelQueue(queue, DELAY_MS, clock, 0)
    for _ in range(3):
        queue.store()
    clock.wall -= 3_600_000
    assert (level.wait_ms(), _taken(level)) == (DELAY_MS, [])
    clock.pass_ms(9_999)
    queue.store()  # under the new time: not one of those
    assert _taken(level) == []
    clock.pass_ms(1)
    assert _taken(level) == [0, 1, 2]
    assert level.wait_ms() == 9_999


def test_clock_set_forward_makes_messages_due(clock: _Clock, queue: _Queue) -> None:
    level = DelayLevelQueue(queue, DELAY_MS, clock, 0)
    queue.store()
    clock.wall += 3_600_000
    assert _taken(level) == [0]


def test_shorter_delay_than_before_counts_from_when_it_is_seen(clock: _Clock, queue: _Queue) -> None:
    for _ in range(200):
        queue.store(delay_ms=7_200_000)
    level = DelayLevelQueue(queue, DELAY_MS, clock, 0)
    assert level.wait_ms() == DELAY_MS
    clock.pass_ms(DELAY_MS)
    assert _taken(level) == list(range(200))


@given(st.lists(st.one_of(st.just("store"), st.integers(0, 20_000), st.integers(-50_000, -1)), max_size=40))
def test_no_message_comes_before_its_delay_however_the_clock_is_set_back(steps: list[str | int]) -> None:
    """Positive steps: time passes; negative ones: the wall clock is set back."""
    clock = _Clock()
    queue = _Queue(clock)
    level = DelayLevelQueue(queue, DELAY_MS, clock, 0)
    taken: list[int] = []
    for step in [*steps, DELAY_MS, DELAY_MS]:
        if isinstance(step, str):
            queue.store()
        elif step < 0:
            clock.wall += step
        else:
            clock.pass_ms(step)
        for offset in _taken(level):
            assert clock.steady - queue.stored_ms[offset] >= DELAY_MS
            taken.append(offset)
    assert taken == sorted(set(taken))
    clock.pass_ms(DELAY_MS)
    _taken(level)
    clock.pass_ms(DELAY_MS)
    _taken(level)
    assert level.next_offset == queue.max_offset  # none is forgotten, each is late by one delay at most


@pytest.mark.parametrize(
    ("delay_ms", "level"), [(0, 1), (1_000, 1), (1_001, 3), (3_001, 2), (6_000, 4), (7_200_000, 4), (9_999_999, 4)]
)
def test_level_that_is_not_shorter(delay_ms: int, level: int) -> None:
    assert DelayLevels("1s 5s 3s 2h").not_shorter_than(delay_ms) == level


@pytest.mark.parametrize(
    ("text", "level"), [("3", 3), ("-1", -1), ("", 0), ("x", 0), ("1_0", 0), ("٣", 0), ("99999999999", 0), ("--1", 0)]
)
def test_level_of_a_message(text: str, level: int) -> None:
    assert delay_level_of({"DELAY": text}) == level


@pytest.mark.parametrize("first", [0, 3])
def test_messages_that_retention_deleted_before_they_were_due_are_counted_in_the_log(
    clock: _Clock, caplog: pytest.LogCaptureFixture, first: int
) -> None:
    queue = _Queue(clock, min_offset=7)
    level = DelayLevelQueue(queue, DELAY_MS, clock, first)
    assert level.wait_ms() is None
    queue.store()
    assert level.wait_ms() == DELAY_MS
    assert [record.getMessage().split(" are lost")[0] for record in caplog.records] == [
        f"{7 - first} delayed messages of the level of 10 s (queue offsets {first} to 6)"
    ]
