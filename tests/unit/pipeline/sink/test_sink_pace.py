"""When rows are due."""

import pyarrow as pa
import pytest

from maxq.errors import ConfigError, PipelineError
from maxq.pipeline.options.write_options import WriteOptions
from maxq.pipeline.sink.sink_task import SinkPace


class Watch:
    """A clock that sleeping moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def wall_ms(self) -> int:
        return round(self.now)

    def monotonic_ms(self) -> int:
        return round(self.now)

    def sleep(self, seconds: float) -> None:
        self.now += seconds * 1000


def left(pace: SinkPace, watch: Watch, rows: int, times: list[int | None] | None = None) -> list[int]:
    """When each row leaves."""
    columns = {"body": pa.array([b"%d" % n for n in range(rows)])}
    if times is not None:
        columns["sendAt"] = pa.array(times, pa.int64())
    found: list[int] = []
    bodies: list[bytes] = []
    for piece in pace.due(pa.record_batch(columns)):
        found += [watch.wall_ms()] * len(piece)
        bodies += piece.column("body").to_pylist()
    assert bodies == [b"%d" % n for n in range(rows)]
    return found


def test_a_rate_is_kept_over_batches_and_what_is_late_catches_up() -> None:
    watch = Watch()
    pace = SinkPace({"body": "body"}, 10, watch, watch.sleep)
    assert left(pace, watch, 5) == [1000, 1100, 1200, 1300, 1400]
    assert left(pace, watch, 2) == [1500, 1600]
    watch.now += 1000  # the brokers were slow: what is late leaves at once
    assert left(pace, watch, 10) == [2600] * 10


def test_a_long_delay_is_not_made_up_for_at_once() -> None:
    watch = Watch()
    pace = SinkPace({"body": "body"}, 10, watch, watch.sleep)
    assert left(pace, watch, 2) == [1000, 1100]
    watch.now += 60_000
    assert left(pace, watch, 14) == [61_100] * 11 + [61_200, 61_300, 61_400]


def test_many_a_second_leave_together_every_ten_milliseconds() -> None:
    watch = Watch()
    times = left(SinkPace({"body": "body"}, 5000, watch, watch.sleep), watch, 500)
    assert times[0] == 1000 and times[-1] in range(1098, 1111)
    assert 9 <= len(set(times)) <= 12


def test_rows_leave_at_their_times_and_not_before_those_ahead_of_them() -> None:
    watch = Watch()
    pace = SinkPace({"body": "body", "sendAt": "sendAt"}, None, watch, watch.sleep)
    assert left(pace, watch, 5, [None, 1100, 1050, 5000, 1]) == [1000, 1100, 1100, 5000, 5000]


def test_a_time_that_nobody_waits_for_is_refused() -> None:
    watch = Watch()
    pace = SinkPace({"body": "body", "sendAt": "sendAt"}, None, watch, watch.sleep)
    with pytest.raises(PipelineError, match=r"sendAt is 253402300799000 ms .* at most 31 days .* deliverTimestamp"):
        left(pace, watch, 2, [None, 253_402_300_799_000])
    assert watch.now == 1000


def test_without_either_rows_leave_at_once_and_whole() -> None:
    watch = Watch()
    pace = SinkPace({"body": "body"}, None, watch, watch.sleep)
    assert pace.is_any
    assert left(pace, watch, 3) == [1000] * 3


@pytest.mark.parametrize("rate", ["0", "-1", "fast", "inf", "nan"])
def test_a_rate_that_means_nothing_is_refused(rate: str) -> None:
    with pytest.raises(ConfigError, match="rowsPerSecond"):
        WriteOptions.parse({"rocketmq.namesrv": "h:1", "topic": "T", "rowsPerSecond": rate})
