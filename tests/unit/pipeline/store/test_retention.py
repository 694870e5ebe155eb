"""What becomes of a log that goes on growing."""

import pytest

from maxq.pipeline.store.retention import HOUR_MS, BrokerDisk, disk_of_broker, forecast

GIB = 1 << 30


def disk(**changes: float) -> BrokerDisk:
    given = {
        "log_bytes": 10 * GIB,
        "total_bytes": 100 * GIB,
        "free_bytes": 80 * GIB,
        "ratio": 0.75,
        "reserved_hours": 72,
    }
    return BrokerDisk("a", **{**given, **changes})  # type: ignore[arg-type]


def test_room_of_the_log_is_what_other_files_leave() -> None:
    assert forecast(disk(), 0).limit_bytes == 65 * GIB  # 75 less the 10 of others
    assert forecast(disk(free_bytes=0), 0).limit_bytes == 0


def test_slow_growth_stops_below_the_limit() -> None:
    found = forecast(disk(), 60 * GIB / (72 * 3600))
    assert found.steady_bytes == pytest.approx(60 * GIB, rel=1e-6)
    assert (found.full_in_ms, found.kept_ms) == (None, 72 * HOUR_MS)


def test_fast_growth_meets_the_limit_and_keeps_less() -> None:
    found = forecast(disk(), GIB / 3600)  # a GiB an hour
    assert found.full_in_ms == pytest.approx(55 * HOUR_MS, rel=1e-6)
    assert found.kept_ms == pytest.approx(65 * HOUR_MS, rel=1e-6)
    late = forecast(disk(log_bytes=70 * GIB, free_bytes=30 * GIB, reserved_hours=100), GIB / 3600)
    assert late.full_in_ms == pytest.approx(5 * HOUR_MS)


def test_full_disk_is_at_its_limit_now() -> None:
    assert forecast(disk(log_bytes=80 * GIB, free_bytes=20 * GIB), 0).full_in_ms == 0
    assert forecast(disk(log_bytes=80 * GIB, free_bytes=20 * GIB), GIB).full_in_ms == 0


def test_broker_tells_its_disk() -> None:
    runtime = {
        "commitLogMinOffset": "1024", "commitLogMaxOffset": "4096",
        "commitLogDirCapacity": "Total : 49.5 GiB, Free : 512.0 MiB.",
    }  # fmt: skip
    found = disk_of_broker("b", runtime, {"diskMaxUsedSpaceRatio": "88", "fileReservedTime": "48"})
    assert found == BrokerDisk("b", 3072, int(49.5 * GIB), GIB // 2, 0.88, 48)
    reserved = disk_of_broker("b", runtime | {"commitLogDiskRatio": "0.75"}, {})  # 2 GiB are not for everybody
    assert reserved is not None and reserved.total_bytes == 2 * GIB
    assert disk_of_broker("b", {}, {}) is None
    assert disk_of_broker("b", {**runtime, "commitLogDirCapacity": "?"}, {}) is None
