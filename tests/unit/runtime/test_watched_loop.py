"""The watchdog of servers under test."""

import gc
import time

from maxq.runtime.holds import Holds
from maxq.testing.sim_clock import SimClock
from tests.watched_loop import fair_ns, watch


def busy(milliseconds: int) -> None:
    """Take so much processor time."""
    until = time.thread_time_ns() + milliseconds * 1_000_000
    while time.thread_time_ns() < until:
        pass


def test_long_work_counts_and_short_work_and_waiting_do_not() -> None:
    holds = Holds(SimClock())
    watch(holds)
    for work in (lambda: busy(2), lambda: time.sleep(0.3), lambda: busy(1_500)):
        began = holds.now()
        work()
        holds.ended(11, began)
    assert holds.by_cause[11].count == 1


def test_what_the_cycle_collector_takes_is_left_out() -> None:
    watch(Holds(SimClock()))
    kept = [[{}] for _ in range(200_000)]
    began = time.thread_time_ns()
    gc.collect()
    took = time.thread_time_ns() - began
    assert fair_ns(took) < took / 2 and kept


def test_a_test_may_give_it_a_clock_of_its_own() -> None:
    holds, clock = Holds(SimClock()), SimClock()
    watch(holds)
    holds.now = clock.monotonic_ns
    began = holds.now()
    clock.advance_ms(51)
    holds.ended(202, began)
    assert holds.by_cause[202].longest_ns == 51_000_000
