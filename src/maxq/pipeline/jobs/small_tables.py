"""Tables that a job keeps, or reads several times, in as many partitions as their rows need.

The result of a shuffle has `spark.sql.shuffle.partitions` partitions, 200 by default. Spark makes few of many by
itself, but not in the last step of what it keeps (which it then could not rely on any more to be spread as it was), and
a union of such tables has the sum. Every question is then asked of 800 partitions, nearly all of them empty: the report
of 4701 trace records, on two executors of one core, was at its second of twenty questions after 2017 tasks.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

ROWS_A_TASK: Final = 200_000


# Rows of small results as dictionaries.

Rows = list[dict[str, Any]]


def rows_of(frame: DataFrame, most: int | None = None) -> Rows:
    """Return the first `most` rows; timestamps are milliseconds since 1970, in every session time zone."""
    columns = [
        F.unix_millis(field.name).alias(field.name) if isinstance(field.dataType, TimestampType) else F.col(field.name)
        for field in frame.schema.fields
    ]
    plain = frame.select(*columns)
    return [row.asDict(recursive=True) for row in (plain if most is None else plain.limit(most)).collect()]


def in_few_partitions(frame: DataFrame, rows: int) -> DataFrame:
    """Return the frame in one partition for each ROWS_A_TASK of about `rows` rows, or in its present partitions if
    these are fewer."""
    return frame.coalesce(max(1, math.ceil(rows / ROWS_A_TASK)))


@contextmanager
def kept(frame: DataFrame) -> Iterator[DataFrame]:
    """Keep a frame, computed once, in memory and on disk, as long as the block lasts."""
    frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield frame
    finally:
        frame.unpersist()
