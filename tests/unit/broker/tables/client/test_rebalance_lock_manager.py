"""Locks of queues for consumption in order."""

from maxq.broker.tables.client.rebalance_lock_manager import LOCK_MAX_LIVE_MS, RebalanceLockManager
from maxq.protocol.message.message_queue import MessageQueue
from maxq.testing.sim_clock import SimClock

QUEUES = [MessageQueue("T", "broker-a", queue_id) for queue_id in range(3)]


def test_a_lock_has_one_owner_who_may_take_it_again() -> None:
    locks = RebalanceLockManager(clock=SimClock())
    assert locks.try_lock_batch("G", QUEUES[:2], "a") == set(QUEUES[:2])
    assert locks.try_lock_batch("G", QUEUES, "b") == {QUEUES[2]}
    assert locks.try_lock_batch("G", QUEUES, "a") == set(QUEUES[:2])


def test_groups_do_not_hinder_each_other() -> None:
    locks = RebalanceLockManager(clock=SimClock())
    locks.try_lock_batch("G", QUEUES, "a")
    assert locks.try_lock_batch("H", QUEUES, "b") == set(QUEUES)


def test_a_lock_lives_60_seconds_after_its_last_refresh() -> None:
    clock = SimClock()
    locks = RebalanceLockManager(clock=clock)
    locks.try_lock_batch("G", QUEUES[:1], "a")
    clock.advance_ms(40_000)
    locks.try_lock_batch("G", QUEUES[:1], "a")
    clock.advance_ms(LOCK_MAX_LIVE_MS)
    assert locks.try_lock_batch("G", QUEUES[:1], "b") == set()
    assert not locks.is_lock_all_expired("G")
    clock.advance_ms(1)
    assert locks.is_lock_all_expired("G")
    assert locks.try_lock_batch("G", QUEUES[:1], "b") == {QUEUES[0]}


def test_only_the_owner_unlocks() -> None:
    locks = RebalanceLockManager(clock=SimClock())
    locks.try_lock_batch("G", QUEUES, "a")
    locks.unlock_batch("G", QUEUES, "b")
    assert locks.try_lock_batch("G", QUEUES, "b") == set()
    locks.unlock_batch("G", QUEUES, "a")
    assert locks.is_lock_all_expired("G")
    assert locks.try_lock_batch("G", QUEUES, "b") == set(QUEUES)


def test_locks_of_clients_that_are_gone_are_forgotten() -> None:
    clock = SimClock()
    locks = RebalanceLockManager(clock=clock)
    locks.try_lock_batch("G", QUEUES, "a")
    clock.advance_ms(LOCK_MAX_LIVE_MS + 1)
    locks.try_lock_batch("H", QUEUES, "a")
    locks.drop_expired()
    assert locks.is_lock_all_expired("G")
    assert not locks.is_lock_all_expired("H")
