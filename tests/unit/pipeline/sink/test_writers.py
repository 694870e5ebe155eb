"""What Spark's writers refuse before anything is sent."""

import pytest
from pyspark.sql.types import BinaryType, StructType, TimestampNTZType, TimestampType

from maxq.errors import PipelineError
from maxq.pipeline.options.write_options import WriteOptions
from maxq.pipeline.sink.writers import BatchSink


@pytest.mark.parametrize("column", ["deliverTimestamp", "SENDAT"])
def test_a_time_without_zone_is_no_moment(column: str) -> None:
    """It was taken as UTC, whatever the time zone of the session is."""
    options = WriteOptions.parse({"rocketmq.namesrv": "127.0.0.1:1", "topic": "T"})
    with pytest.raises(PipelineError, match=f"column {column} is timestamp_ntz, .* cast it to timestamp"):
        BatchSink(options, body().add(column, TimestampNTZType()), overwrite=False)
    BatchSink(options, body().add(column, TimestampType()), overwrite=False)


def body() -> StructType:
    return StructType().add("body", BinaryType())
