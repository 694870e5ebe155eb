"""What a task does with its partition, without Spark: over the wire or out of files."""

from collections.abc import Iterator

import pyarrow as pa

from maxq.pipeline.options.read_options import ReadOptions
from maxq.pipeline.source.files import FilesReader
from maxq.pipeline.source.scan import ScanPartition
from maxq.pipeline.wire.pulls import Hint
from maxq.pipeline.wire.wire_reader import WireReader, exact_tags


def read_scan(options: ReadOptions, scan: ScanPartition, hint: Hint | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of one partition. What files do not give comes over the wire, behind the rest.

    Args:
        hint: a condition that all wanted rows meet.
    """
    if scan.files is None:
        yield from WireReader(options, hint=hint).read(scan.ranges)
        return
    reader = FilesReader(options.columns, tags=exact_tags(options.sub_expression, options.sub_expression_type))
    yield from reader.read(scan.files)
    if reader.missing:
        yield from WireReader(options, broker_selects=False).read(reader.missing)
