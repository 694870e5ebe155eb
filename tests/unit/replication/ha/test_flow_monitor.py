"""Bytes a second."""

from maxq.replication.ha.flow_monitor import FlowMonitor


def test_the_speed_is_that_of_the_last_whole_second() -> None:
    monitor = FlowMonitor(0)
    monitor.count(500, 100)
    assert monitor.bytes_per_second(999) == 0
    assert monitor.bytes_per_second(1000) == 500
    monitor.count(300, 1500)
    assert monitor.bytes_per_second(1999) == 500
    assert monitor.bytes_per_second(2000) == 300
    assert monitor.bytes_per_second(4000) == 0
    assert monitor.total == 800


def test_the_allowance_grows_with_time_to_a_tenth_of_a_second() -> None:
    monitor = FlowMonitor(0)
    assert monitor.allowance(1000, 0) == 0
    assert monitor.allowance(1000, 50) == 50
    assert monitor.allowance(1000, 60_000) == 100


def test_what_was_sent_beyond_the_allowance_is_paid_off() -> None:
    monitor = FlowMonitor(0)
    monitor.allowance(1000, 100)
    monitor.count(250, 100)
    assert monitor.allowance(1000, 100) == -150
    assert monitor.allowance(1000, 300) == 50
