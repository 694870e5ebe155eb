"""Rows of small results as dictionaries."""

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

Rows = list[dict[str, Any]]


def rows_of(frame: DataFrame, most: int | None = None) -> Rows:
    """The rows, the first `most` of them; timestamps are milliseconds since 1970, whatever the session's time zone."""
    columns = [
        F.unix_millis(field.name).alias(field.name) if isinstance(field.dataType, TimestampType) else F.col(field.name)
        for field in frame.schema.fields
    ]
    plain = frame.select(*columns)
    return [row.asDict(recursive=True) for row in (plain if most is None else plain.limit(most)).collect()]
