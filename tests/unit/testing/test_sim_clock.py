import pytest

from maxq.runtime.interfaces import Clock
from maxq.testing.sim_clock import SimClock


def test_wall_time_jumps_and_monotonic_time_does_not() -> None:
    clock = SimClock(epoch_ms=5_000_000)
    face: Clock = clock
    started = face.monotonic_ms()
    clock.advance_ms(1500)
    assert (face.wall_ms(), face.monotonic_ms() - started) == (5_001_500, 1500)
    clock.jump_wall_ms(-60_000)
    assert (face.wall_ms(), face.monotonic_ms() - started) == (4_941_500, 1500)
    assert face.monotonic_ns() == face.monotonic_ms() * 1_000_000


def test_time_cannot_be_turned_back() -> None:
    with pytest.raises(ValueError, match="does not go back"):
        SimClock().advance_ns(-1)
