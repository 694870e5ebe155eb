"""When a timer message that could not be delivered is tried again."""

from maxq.broker.timer.timer_failures import TimerFailures


def test_the_pause_doubles_from_ten_seconds_to_ten_minutes() -> None:
    failures = TimerFailures()
    pauses = []
    for _ in range(100):
        failures.put(7, failures.next(7, "no room"))
        found = failures.get(7)
        assert found is not None
        pauses.append(found.wait_ms)
    assert pauses[:7] == [10_000, 20_000, 40_000, 80_000, 160_000, 320_000, 600_000]
    assert set(pauses[7:]) == {600_000}


def test_a_delivery_ends_the_count() -> None:
    failures = TimerFailures()
    failures.put(7, failures.next(7, "no room"))
    failures.forget(7)
    assert failures.get(7) is None and failures.next(7, "again").times == 1


def test_of_more_failures_than_are_remembered_the_oldest_are_forgotten() -> None:
    failures = TimerFailures()
    for place in range(1_500):
        failures.put(place, failures.next(place, "no room"))
    assert len(failures.all()) == 1_000
    assert failures.get(499) is None and failures.get(500) is not None
