"""MovedMessages: which units of moved messages count."""

from maxq.protocol.body.timer_checkpoint import MovedMessage
from maxq.store.timer.moved_messages import MovedMessages
from maxq.store.timer.timer_log import MAGIC_DEFAULT, MAGIC_MOVED, TimerUnit

M = MovedMessage(4711, 200, 10_000)
N = MovedMessage(9000, 200, 12_000)


def unit(message: MovedMessage, *, position: int = 520, moved: bool = True, later_ms: int = 0) -> TimerUnit:
    magic = MAGIC_DEFAULT | (MAGIC_MOVED if moved else 0)
    return TimerUnit(position, -1, magic, 0, message.slot_ms + later_ms, message.physical_offset, message.size, 0)


def test_a_moved_unit_counts_in_the_slot_that_is_named_and_every_other_unit_counts() -> None:
    moved = MovedMessages()
    moved.take((M,), 0)
    assert moved.counts(unit(M))
    assert not moved.counts(unit(M, later_ms=1_000))
    assert not moved.counts(unit(N))
    assert moved.counts(unit(N, moved=False))
    moved.forget(M.physical_offset)
    assert not moved.counts(unit(M))


def test_units_from_before_a_java_broker_had_the_store_count() -> None:
    moved = MovedMessages()
    moved.take(None, 1040)
    assert moved.all() is None
    moved.begin()
    moved.add(M)
    assert moved.all() == (M,)
    assert moved.counts(unit(N, position=520))
    assert not moved.counts(unit(N, position=1040))


def test_what_a_deposed_leader_had_delivered_counts_again() -> None:
    moved = MovedMessages()
    moved.take((M,), 0)
    moved.forget(M.physical_offset)
    moved.add(N)
    moved.take_again((M, N._replace(slot_ms=1)))
    assert moved.counts(unit(M)) and moved.counts(unit(N))
