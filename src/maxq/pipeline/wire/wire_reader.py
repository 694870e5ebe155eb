"""The batches that a task over the wire yields: Arrow batches of the ranges of a partition."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from maxq.arrow.schemas import BODY_FAULT, base_column
from maxq.pipeline.options.read_options import ReadOptions
from maxq.pipeline.records.losses import Losses
from maxq.pipeline.records.record_batches import POSITION_COLUMNS, RecordBatches, Rows, scan_rows
from maxq.pipeline.records.row_filter import with_tags
from maxq.pipeline.wire.pulls import Chunk, PullSettings, RangePull, SelectionHint
from maxq.pipeline.wire.queue_range import QueueRange
from maxq.pipeline.wire.wire_client import TOOLS_GROUP, WireClient
from maxq.protocol.body.static_topic import is_mock_broker
from maxq.protocol.message import record_layout as layout
from maxq.protocol.message.message import MessageExt, decode_inner_batch, decode_record, encode_record
from maxq.protocol.message.message_sys_flag import MessageSysFlag
from maxq.protocol.offset_runs import runs
from maxq.store.log import record_cy as rc

#: Ranges of lost offsets: first, one past the last, and the reason.
_Lost = list[tuple[int, int, str]]

_GATHER_BYTES: Final = 1 << 20  # chunks below it are put together: a batch costs as much as some hundred rows
_PASSED_OVER: Final = "the broker has no whole record at these offsets and passes over them"
_FROM_PROPERTIES: Final = frozenset({"tags", "keys", "uniqKey", "properties"})
_INNER_BATCH: Final = MessageSysFlag.INNER_BATCH | MessageSysFlag.NEED_UNWRAP


def pull_settings(options: ReadOptions, *, hint: SelectionHint | None = None) -> PullSettings:
    """Choose how the ranges of a read are pulled: with as little of each record as the columns need."""
    wanted = set(map(base_column, options.columns))
    omit = ""
    if wanted.isdisjoint(("body", BODY_FAULT)):
        needs_properties = wanted & _FROM_PROPERTIES or exact_tags(options.sub_expression, options.sub_expression_type)
        omit = "body" if needs_properties else "body,properties"
    return PullSettings(
        options.group_id or TOOLS_GROUP,
        options.sub_expression,
        options.sub_expression_type,
        hint,
        omit,
        options.fetch_bytes,
    )


class WireReader:
    """Reads ranges over the wire. It makes no connection before the first batch is asked for."""

    def __init__(self, options: ReadOptions, *, hint: SelectionHint | None = None, broker_selects: bool = True) -> None:
        """
        Args:
            options: of the read.
            hint: a condition that all wanted rows meet; brokers that can use it to send less.
            broker_selects: put the tags of `subExpression` to the broker; else only this side looks at them.
        """
        self._options = options
        self._tags = exact_tags(options.sub_expression, options.sub_expression_type)
        self._settings = pull_settings(options, hint=hint)
        if not broker_selects and self._tags:
            self._settings = replace(self._settings, expression="*", hint=None)

    def read(self, ranges: Sequence[QueueRange]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all ranges, each once, in their order.

        Raises:
            DataLossError: messages of a range are gone or damaged, and that is to be an error (failOnDataLoss).
            PipelineError, BrokerError: see RangePull.chunks.
        """
        losses = Losses(fail=self._options.fail_on_data_loss)
        try:
            with WireClient(self._options.connection, prefer_slave=self._options.read_from == "slave") as client:
                yield from self._read(client, ranges, losses)
        finally:
            losses.tell()

    def _read(self, client: WireClient, ranges: Sequence[QueueRange], losses: Losses) -> Iterator[pa.RecordBatch]:
        batches: dict[str, RecordBatches] = {}
        kept, broker = _Gathered(), ""
        for one in ranges:
            if one.broker_name != broker and kept.size:
                yield from self._batches(batches[broker], *kept.take())
            broker = one.broker_name
            made = batches.setdefault(broker, RecordBatches(self._options.columns, broker))
            pull = RangePull(client, self._settings_of(client, one), one, losses)
            for chunk in pull.chunks():
                view, rows, lost = self._whole(client, chunk, one)
                if lost and not chunk.is_master:
                    pull.give_back(chunk)
                    continue
                for first, end, reason in lost:
                    losses.offsets(one.name, first, end, chunk.available, reason)
                is_small = len(view) < _GATHER_BYTES
                if is_small:
                    kept.add(view, rows)
                if kept.size and not (is_small and kept.size < _GATHER_BYTES):
                    yield from self._batches(made, *kept.take())
                if not is_small:
                    yield from self._batches(made, view, rows)
        if kept.size:
            yield from self._batches(batches[broker], *kept.take())

    def _whole(self, client: WireClient, chunk: Chunk, wanted: QueueRange) -> tuple[memoryview, Rows, _Lost]:
        """Return the messages of a chunk that belong to the range, and the offsets that are missing among them."""
        view, rows, damage = _of_range(chunk, wanted, check_crc=not self._settings.omit)
        first, end = max(chunk.first, wanted.first), min(chunk.next, wanted.last)
        if len(rows) == end - first:
            return view, rows, []
        lost = [(offset, offset + 1, reason) for offset, reason in damage if first <= offset < end]
        # Ranges that brokers report as skipped are lost even where a filter omits other messages.
        delta = chunk.delta or 0
        named = [(max(start + delta, first), min(stop + delta, end)) for start, stop in chunk.passed_over]
        lost += [(start, stop, _PASSED_OVER) for start, stop in named if start < stop]
        # A chunk without records leads from one part of a static topic's queue to the next: there are no messages at
        # the offsets between.
        is_way = is_mock_broker(wanted.broker_name) and not len(chunk.view)
        if not self._settings.selects and not is_way and not client.may_have_holes(wanted.queue):
            there = {*rows[:, rc.C_QUEUE_OFFSET].tolist(), *(offset for offset, _ in damage)}
            there.update(offset for one in named for offset in range(*one))
            missing = runs(offset for offset in range(first, end) if offset not in there)
            lost += [(start, stop, _PASSED_OVER) for start, stop in missing]
        return view, rows, lost

    def _settings_of(self, client: WireClient, one: QueueRange) -> PullSettings:
        """Return the settings of a pull, without the hint if it would leave out wanted messages."""
        if self._settings.hint is None or client.selects_messages(one.queue):
            return self._settings
        return replace(self._settings, hint=None)

    def _batches(self, made: RecordBatches, view: memoryview, rows: Rows) -> Iterator[pa.RecordBatch]:
        if self._tags:
            rows = with_tags(view, rows, self._tags)
        for batch in made.batches(view, rows):
            yield _with_batch_faults(batch, view, rows)
            rows = rows[batch.num_rows :]


class _Gathered:
    """Small chunks put together, with the rows of their records.

    Attributes:
        size: bytes of the records that are here.
    """

    def __init__(self) -> None:
        self._data = bytearray()
        self._rows: list[Rows] = []
        self.size = 0

    def add(self, view: memoryview, rows: Rows) -> None:
        """Copy records to the end. `rows` are all of them, with positions in `view`, and are changed."""
        self._rows.append(_shifted(rows, self.size))
        self._data += view
        self.size += len(view)

    def take(self) -> tuple[memoryview, Rows]:
        """Return everything added, as one piece, and start empty."""
        view, rows = memoryview(self._data), np.concatenate(self._rows)
        self._data, self._rows, self.size = bytearray(), [], 0
        return view, rows


def _shifted(rows: Rows, distance: int) -> Rows:
    """Add `distance` bytes to all positions of a table, in place, because its records lie elsewhere in a buffer."""
    if distance:
        for column in POSITION_COLUMNS:
            rows[:, column] += distance
    return rows


def exact_tags(expression: str, kind: str) -> frozenset[str]:
    """Return the tags of which a row must have one, because brokers compare only hashes of tags. Empty: any tag will
    do."""
    if kind != "TAG" or expression == "*":
        return frozenset()
    return frozenset(tag.strip() for tag in expression.split("||")) - {""}


def _rows(view: memoryview) -> Rows:
    """Scan bytes that hold good records and nothing else."""
    return _good_rows(view, check_crc=False)[0]


#: A damaged record's queue offset (-1: not even that is known), and what is wrong with it.
_Damage = list[tuple[int, str]]


def _good_rows(view: memoryview, *, check_crc: bool) -> tuple[Rows, _Damage]:
    """Scan the good records, and report the faults of the others."""
    rows, position, stop = scan_rows(view, 0, len(view), 0, _room(view), check_crc=check_crc, check_offset=False)
    if position == len(view):
        return rows, []
    parts, damage = [rows], _Damage()
    while position < len(view):
        offset = layout.queue_offset_of(view, position) if stop == rc.STOP_BAD_CRC else -1
        what = "the CRC of its body is wrong" if stop == rc.STOP_BAD_CRC else "its bytes are none"
        damage.append((offset, f"the record that the broker sent is damaged: {what}"))
        position = _next_record(view, position, stop)
        rows, position, stop = scan_rows(
            view, position, len(view), 0, _room(view[position:]), check_crc=check_crc, check_offset=False
        )
        parts.append(rows)
    return np.concatenate(parts), damage


def _room(view: memoryview) -> int:
    return len(view) // layout.MIN_RECORD_SIZE + 1


def _next_record(view: memoryview, position: int, stop: int) -> int:
    """Return where a good record begins behind a damaged one, or the end if there is none."""
    if stop == rc.STOP_BAD_CRC:
        return position + layout.size_of(view, position)
    data = bytes(view)
    at = data.find(layout.MAGIC_START, position + 5)
    while at >= 4:
        if len(scan_rows(view, at - 4, len(view), 0, 1, check_offset=False)[0]):
            return at - 4
        at = data.find(layout.MAGIC_START, at + 1)
    return len(view)


def _of_range(chunk: Chunk, wanted: QueueRange, *, check_crc: bool) -> tuple[memoryview, Rows, _Damage]:
    """Return the messages of a chunk that belong to the range, as consumers get them: their bytes, their rows, and the
    faults of others."""
    view = chunk.view
    rows, damage = _good_rows(view, check_crc=check_crc)
    if damage:
        view = memoryview(b"".join(view[at : at + size] for at, size in rows[:, (rc.C_POSITION, rc.C_SIZE)].tolist()))
        rows = _rows(view)
    flags = rows[:, rc.C_SYS_FLAG]
    if chunk.delta is not None:
        view = _moved(view, rows, chunk.delta, wanted.queue_id)
        damage = [(offset + chunk.delta, reason) for offset, reason in damage]
    elif np.any((flags & _INNER_BATCH) == _INNER_BATCH):
        view = _unpacked(view, rows)
        rows = _rows(view)
    offsets = rows[:, rc.C_QUEUE_OFFSET]  # they ascend
    first, end = (int(place) for place in np.searchsorted(offsets, (chunk.first, wanted.last)))
    if first == 0 and end == len(rows):
        return view, rows, damage
    start_position = int(rows[first, rc.C_POSITION]) if first < len(rows) else len(view)
    end_position = int(rows[end, rc.C_POSITION]) if end < len(rows) else len(view)
    view = view[start_position:end_position]
    return view, _shifted(rows[first:end], -start_position), damage


def _moved(view: memoryview, rows: Rows, delta: int, queue_id: int) -> memoryview:
    """Copy records of a static topic, whose positions refer to one broker, and replace these by global ones; `rows` are
    changed in the same way."""
    copy = bytearray(view)
    rows[:, rc.C_QUEUE_ID] = queue_id
    rows[:, rc.C_QUEUE_OFFSET] += delta
    for at, offset in rows[:, (rc.C_POSITION, rc.C_QUEUE_OFFSET)].tolist():
        copy[at + layout.QUEUE_ID : at + layout.QUEUE_ID + 4] = queue_id.to_bytes(4, "big")
        copy[at + layout.QUEUE_OFFSET : at + layout.QUEUE_OFFSET + 8] = offset.to_bytes(8, "big")
    return memoryview(copy)


def _with_batch_faults(batch: pa.RecordBatch, view: memoryview, rows: Rows) -> pa.RecordBatch:
    """Return a batch whose column bodyFault, if it has one, also tells of messages that are wrongly marked as an inner
    batch. It has the first of `rows`."""
    place = batch.schema.get_field_index(BODY_FAULT)
    marked = np.flatnonzero((rows[: batch.num_rows, rc.C_SYS_FLAG] & _INNER_BATCH) == _INNER_BATCH)
    if place < 0 or not len(marked):
        return batch
    faults = batch.column(place).to_pylist()
    for row in marked.tolist():
        at, size = rows[row, (rc.C_POSITION, rc.C_SIZE)].tolist()
        message = decode_record(view[at : at + size], inflate=True)
        decode_inner_batch(message)
        faults[row] = message.body_fault or None
    return batch.set_column(place, batch.schema.field(place), pa.array(faults, pa.string()))


def _unpacked(view: memoryview, rows: Rows) -> memoryview:
    """Copy records, with one record for each message of an inner batch, as consumers get them."""
    found = bytearray()
    for at, size, flag in rows[:, (rc.C_POSITION, rc.C_SIZE, rc.C_SYS_FLAG)].tolist():
        if flag & _INNER_BATCH != _INNER_BATCH:
            found += view[at : at + size]
            continue
        outer = decode_record(view[at : at + size], inflate=True)
        batch = decode_inner_batch(outer)
        if not batch:  # wrongly marked as a batch, or its body is unreadable or not read: it is one message
            found += view[at : at + size]
            continue
        for place, inner in enumerate(batch):
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
