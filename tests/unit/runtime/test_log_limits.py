"""Lines that others can cause at will have a bound, and what was left out is counted."""

import logging

from maxq.runtime.log_limits import INTERVAL_MS, LineLimit, LogThrottle
from maxq.testing.sim_clock import SimClock


def line(text: str, place: int = 1, name: str = "maxq.broker") -> logging.LogRecord:
    return logging.LogRecord(name, logging.WARNING, "a.py", place, "%s", (text,), None)


def test_one_of_a_kind_an_interval_and_the_next_tells_of_those_left_out() -> None:
    clock = SimClock()
    throttle = LogThrottle(clock)
    assert [throttle.admits("a") for _ in range(5)] == [0, None, None, None, None]
    assert throttle.admits("b") == 0
    clock.advance_ms(INTERVAL_MS)
    assert [throttle.admits("a"), throttle.admits("a")] == [4, None]


def test_kinds_that_a_peer_makes_up_are_one_kind_in_the_end_and_not_kept_for_ever() -> None:
    clock = SimClock()
    throttle = LogThrottle(clock)
    said = sum(throttle.admits(name) is not None for name in range(100_000))
    assert said == 1001
    assert len(throttle._kinds) == 1001
    clock.advance_ms(INTERVAL_MS)
    throttle.admits("new")
    assert len(throttle._kinds) == 1


def test_a_full_table_is_looked_through_once_in_an_interval_and_not_for_each_kind_that_a_peer_makes_up() -> None:
    clock = SimClock()
    throttle = LogThrottle(clock)
    for name in range(1000):
        throttle.admits(name)
    clock.advance_ms(INTERVAL_MS - 1)
    throttle.admits("too many")
    table = throttle._kinds
    assert all(throttle.admits(f"more-{name}") is None for name in range(100))
    assert throttle._kinds is table
    clock.advance_ms(1)
    assert throttle.admits("new") == 0
    assert set(throttle._kinds) == {None, "new"}


def test_a_place_of_the_program_that_floods_the_log_is_cut_and_others_are_heard() -> None:
    clock = SimClock()
    limit = LineLimit(clock)
    assert sum(limit.filter(line("flood")) for _ in range(100_000)) == 100
    assert limit.filter(line("another", place=2))
    clock.advance_ms(INTERVAL_MS)
    again = line("flood")
    assert limit.filter(again)
    assert again.getMessage() == "flood (99900 more since the last line)"


def test_a_line_has_a_length() -> None:
    long = line("x" * 1_000_000)
    assert LineLimit(SimClock()).filter(long)
    assert len(long.getMessage()) < 4100
    assert "996000 characters" in long.getMessage()


def test_no_line_of_the_audit_is_missing() -> None:
    limit = LineLimit(SimClock(), frozenset({"maxq.audit"}))
    assert all(limit.filter(line("allowed", name="maxq.audit")) for _ in range(1000))
