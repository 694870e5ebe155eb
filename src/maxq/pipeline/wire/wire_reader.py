"""What a task over the wire yields: Arrow batches of the ranges of a partition."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from maxq.errors import RemoteProtocolError
from maxq.pipeline.options.read_options import ReadOptions
from maxq.pipeline.records.record_batches import RecordBatches, Rows, scan_rows
from maxq.pipeline.records.row_filter import with_tags
from maxq.pipeline.wire.pulls import Chunk, Hint, PullSettings, RangePull
from maxq.pipeline.wire.queue_range import QueueRange
from maxq.pipeline.wire.wire_client import TOOLS_GROUP, WireClient
from maxq.protocol.message import MessageExt, decode_batch, decode_record, encode_record
from maxq.protocol.message_sys_flag import MessageSysFlag
from maxq.store import record_cy as rc

_GATHER_BYTES: Final = 1 << 20  # chunks below it are put together: a batch costs as much as some hundred rows
_SMALLEST_RECORD: Final = 91
_FROM_PROPERTIES: Final = frozenset({"tags", "keys", "uniqKey", "properties"})
_INNER_BATCH: Final = MessageSysFlag.INNER_BATCH | MessageSysFlag.NEED_UNWRAP


def pull_settings(options: ReadOptions, *, hint: Hint | None = None) -> PullSettings:
    """How the ranges of a read are pulled: as little of each record as the columns need."""
    wanted = set(options.columns)
    omit = ""
    if "body" not in wanted:
        needs_properties = wanted & _FROM_PROPERTIES or exact_tags(options.sub_expression, options.sub_expression_type)
        omit = "body" if needs_properties else "body,properties"
    return PullSettings(
        options.group_id or TOOLS_GROUP,
        options.sub_expression,
        options.sub_expression_type,
        hint,
        omit,
        options.fetch_bytes,
        options.fail_on_data_loss,
    )


class WireReader:
    """Reads ranges over the wire. Makes no connection before the first batch is asked for."""

    def __init__(self, options: ReadOptions, *, hint: Hint | None = None) -> None:
        """
        Args:
            options: of the read.
            hint: a condition that all wanted rows meet; brokers that can use it to send less.
        """
        self._options = options
        self._settings = pull_settings(options, hint=hint)
        self._tags = exact_tags(options.sub_expression, options.sub_expression_type)

    def read(self, ranges: Sequence[QueueRange]) -> Iterator[pa.RecordBatch]:
        """The rows of all ranges, each once, in their order.

        Raises:
            DataLossError, PipelineError: see RangePull.chunks.
        """
        with WireClient(self._options.connection, prefer_slave=self._options.read_from == "slave") as client:
            batches: dict[str, RecordBatches] = {}
            kept, broker = bytearray(), ""
            for one in ranges:
                if one.broker_name != broker and kept:
                    yield from self._batches(batches[broker], memoryview(kept))
                    kept = bytearray()
                broker = one.broker_name
                made = batches.setdefault(broker, RecordBatches(self._options.columns, broker))
                for chunk in RangePull(client, self._settings, one).chunks():
                    view, rows = _of_range(chunk, one)
                    is_small = len(view) < _GATHER_BYTES
                    if is_small:
                        kept += view
                    if kept and not (is_small and len(kept) < _GATHER_BYTES):
                        yield from self._batches(made, memoryview(kept))
                        kept = bytearray()
                    if not is_small:
                        yield from self._batches(made, view, rows)
            if kept:
                yield from self._batches(batches[broker], memoryview(kept))

    def _batches(self, made: RecordBatches, view: memoryview, rows: Rows | None = None) -> Iterator[pa.RecordBatch]:
        if rows is None:
            rows = _rows(view)
        if self._tags:
            rows = with_tags(view, rows, self._tags)
        yield from made.batches(view, rows)


def exact_tags(expression: str, kind: str) -> frozenset[str]:
    """Tags that a row must have one of: brokers compare their hashes only. Empty: any."""
    if kind != "TAG" or expression == "*":
        return frozenset()
    return frozenset(tag.strip() for tag in expression.split("||")) - {""}


def _rows(view: memoryview) -> Rows:
    rows, position, reason = scan_rows(
        view, 0, len(view), 0, len(view) // _SMALLEST_RECORD + 1, check_crc=False, check_offset=False
    )
    if position != len(view):
        raise RemoteProtocolError(
            f"what a broker sent is no record {position} bytes into {len(view)} (reason {reason})"
        )
    return rows


def _of_range(chunk: Chunk, wanted: QueueRange) -> tuple[memoryview, Rows]:
    """The chunk's messages as consumers get them, those behind the range left out: the bytes and their rows."""
    view = chunk.view
    rows = _rows(view)
    flags = rows[:, rc.C_SYS_FLAG]
    if chunk.delta is not None:
        view = _moved(view, rows, chunk.delta, wanted.queue_id)
        rows = _rows(view)
    elif np.any((flags & _INNER_BATCH) == _INNER_BATCH):
        view = _unpacked(view, rows)
        rows = _rows(view)
    offsets = rows[:, rc.C_QUEUE_OFFSET]  # they ascend
    first, end = (int(place) for place in np.searchsorted(offsets, (chunk.first, wanted.last)))
    if first == 0 and end == len(rows):
        return view, rows
    start_position = int(rows[first, rc.C_POSITION]) if first < len(rows) else len(view)
    end_position = int(rows[end, rc.C_POSITION]) if end < len(rows) else len(view)
    view = view[start_position:end_position]
    return view, _rows(view)


def _moved(view: memoryview, rows: Rows, delta: int, queue_id: int) -> memoryview:
    """Records of a static topic tell their physical places: a copy that tells the global ones."""
    copy = bytearray(view)
    for at, offset in rows[:, (rc.C_POSITION, rc.C_QUEUE_OFFSET)].tolist():
        copy[at + 12 : at + 16] = queue_id.to_bytes(4, "big")
        copy[at + 20 : at + 28] = (offset + delta).to_bytes(8, "big")
    return memoryview(copy)


def _unpacked(view: memoryview, rows: Rows) -> memoryview:
    """The same with a record for each message of an inner batch, as consumers get them."""
    found = bytearray()
    for at, size, flag in rows[:, (rc.C_POSITION, rc.C_SIZE, rc.C_SYS_FLAG)].tolist():
        if flag & _INNER_BATCH != _INNER_BATCH:
            found += view[at : at + size]
            continue
        outer = decode_record(view[at : at + size], inflate=True)
        if outer.body_fault:  # the body is read as it is
            found += view[at : at + size]
            continue
        for place, inner in enumerate(decode_batch(outer.body, outer.topic)):
            message: MessageExt = replace(
                outer,
                body=inner.body,
                properties=inner.properties,
                flag=inner.flag,
                queue_offset=outer.queue_offset + place,
                sys_flag=outer.sys_flag & ~(_INNER_BATCH | MessageSysFlag.COMPRESSED),
            )
            found += encode_record(message)
    return memoryview(found)
