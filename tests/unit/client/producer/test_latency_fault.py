"""Fault latency: penalties by latency, reachability by outcome."""

import pytest

from maxq.client.producer.latency_fault import LatencyFaultTolerance


@pytest.mark.parametrize(
    ("latency_ms", "penalty_ms"),
    [(0, 0), (49, 0), (50, 0), (549, 0), (550, 2000), (1799, 2000), (1800, 5000), (3000, 6000), (5000, 10000),
     (14999, 10000), (15000, 30000), (99999, 30000)],
)  # fmt: skip
def test_penalty_follows_the_table(latency_ms: int, penalty_ms: int) -> None:
    assert LatencyFaultTolerance(enabled=True).not_available_duration(latency_ms) == penalty_ms


def test_switched_off_every_broker_stays_available() -> None:
    faults = LatencyFaultTolerance(enabled=False)
    faults.update("a", 99_999, 0, isolation=True, reachable=False)
    assert faults.is_available("a", 0)
    assert faults.is_reachable("a")


def test_a_slow_broker_is_avoided_until_its_penalty_is_over() -> None:
    faults = LatencyFaultTolerance(enabled=True)
    faults.update("a", 600, 1000, isolation=False, reachable=True)
    assert not faults.is_available("a", 2999)
    assert faults.is_available("a", 3000)
    assert faults.is_available("b", 0)


def test_a_failed_call_counts_as_ten_seconds() -> None:
    faults = LatencyFaultTolerance(enabled=True)
    faults.update("a", 3, 0, isolation=True, reachable=False)
    assert not faults.is_available("a", 9_999)
    assert faults.is_available("a", 10_000)
    assert not faults.is_reachable("a")


def test_a_later_small_penalty_does_not_shorten_a_longer_one() -> None:
    faults = LatencyFaultTolerance(enabled=True)
    faults.update("a", 3, 0, isolation=True, reachable=False)
    faults.update("a", 600, 100, isolation=False, reachable=True)
    assert not faults.is_available("a", 9_999)
    assert faults.is_reachable("a")


def test_probes_are_due_for_bad_brokers_only_and_at_intervals() -> None:
    faults = LatencyFaultTolerance(enabled=True)
    faults.update("good", 1, 0, isolation=False, reachable=True)
    faults.update("bad", 1, 0, isolation=True, reachable=False)
    assert faults.due_probes(5_000, 2_000) == ["bad"]
    assert faults.due_probes(6_999, 2_000) == []
    faults.on_probe("bad", reached=True)
    assert faults.is_reachable("bad")
    assert faults.due_probes(20_000, 2_000) == []
