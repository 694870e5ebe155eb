"""Times as operators write them."""

import pytest

from maxq.cli.terminal.times import format_time, parse_time
from maxq.errors import ConfigError
from maxq.testing.sim_clock import SimClock


@pytest.fixture
def clock() -> SimClock:
    return SimClock()


@pytest.mark.parametrize("text", ["now", "currentTimeMillis"])
def test_now_is_the_clock(clock: SimClock, text: str) -> None:
    assert parse_time(text, clock) == clock.wall_ms()


def test_all_forms_of_one_moment_agree(clock: SimClock) -> None:
    moment = parse_time("2026-11-21T10:20:30.456", clock)
    assert parse_time("2026-11-21#10:20:30:456", clock) == moment
    assert parse_time("2026-11-21 10:20:30.456", clock) == moment
    assert parse_time(str(moment), clock) == moment
    assert format_time(moment) == "2026-11-21 10:20:30,456"


@pytest.mark.parametrize("text", ["1764300000", "17643000000"])
def test_seconds_are_not_taken_for_milliseconds(clock: SimClock, text: str) -> None:
    with pytest.raises(ConfigError, match=f"is 1970-.*if these are seconds, give {text}000"):
        parse_time(text, clock)
    assert parse_time(f"{text}000", clock) == int(text) * 1000


def test_a_zone_is_heeded(clock: SimClock) -> None:
    assert parse_time("1970-01-01T00:00:01+00:00", clock) == 1000


@pytest.mark.parametrize("text", ["", "yesterday", "12:00", "-5", "2026-13-01", "9" * 30])
def test_anything_else_is_refused_with_the_forms_that_are_taken(clock: SimClock, text: str) -> None:
    with pytest.raises(ConfigError, match="yyyy-MM-dd#HH:mm:ss:SSS"):
        parse_time(text, clock)


def test_no_time_is_shown_as_nothing() -> None:
    assert format_time(0) == format_time(-1) == ""
