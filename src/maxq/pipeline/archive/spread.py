"""Work on many small things: in this process, or as tasks of Spark where there are many."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession

_FEW: Final = 8  # most items that are handled in this process: starting a job costs more than these
_PARTS: Final = 64
_ROW: Final = pa.schema([pa.field("place", pa.int32()), pa.field("text", pa.string())])


def spread(spark: SparkSession, items: Sequence[Any], work: Callable[[Any], Any]) -> list[Any]:
    """Run `work` on each item on Spark's workers; returns the results in the order of the items.

    Args:
        items: values that JSON has.
        work: importable by workers, or pickled with what it holds; from such a value to such a value.
    """
    if len(items) <= _FEW:
        return [work(item) for item in items]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for place, text in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                done = json.dumps(work(json.loads(text)))
                yield pa.RecordBatch.from_pydict({"place": [place], "text": [done]}, _ROW)

    rows = [(place, json.dumps(item)) for place, item in enumerate(items)]
    frame = spark.createDataFrame(rows, "place INT, text STRING").repartition(min(_PARTS, len(rows)))
    found = frame.mapInArrow(run, "place INT, text STRING").collect()
    return [json.loads(row.text) for row in sorted(found, key=lambda row: int(row.place))]
