"""Units and index entries of one piece of the log, made by the compiled Dispatcher of the broker itself.

A broker's Dispatcher writes into files that it takes one after the other. Here each piece is dispatched alone, maybe on
another machine, so units go into memory, by queue, and index entries into one list in log order. A record says itself
which place in its queue it has, so pieces need to know nothing of each other; that their runs of units join without a
gap is for the caller to see (`rebuild_plan.py`).

Records that a broker gives no plain unit come back from the Dispatcher one by one: light queues (multi-dispatch), inner
batches, and the fillers over damage that a start has filled.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from maxq.pipeline.records.record_batches import Rows
from maxq.pipeline.store.log_pieces import Corruption, LogPiece, PieceReader
from maxq.protocol.message.message import MessageExt, decode_record
from maxq.protocol.message.message_const import (
    PROPERTY_INNER_MULTI_DISPATCH,
)
from maxq.protocol.message.message_sys_flag import MessageSysFlag, is_rolled_back
from maxq.runtime.interfaces import Disk
from maxq.store.dispatch.dispatch_cy import Dispatcher
from maxq.store.dispatch.record_units import batch_unit, light_places, tags_code
from maxq.store.log import record_cy as rc
from maxq.store.log.deletions import DELETED_TOPIC, FILE_NAME, deleted_names
from maxq.store.log.tails_cy import IndexCollector, QueueTail, TopicWriteState
from maxq.store.queue.batch_consume_queue import BatchUnit
from maxq.store.queue.consume_queue import CQ_STORE_UNIT_SIZE
from maxq.store.queue.consume_queue_store import (
    DELAY_TOPIC,
    is_folder_name,
    may_name_queues,
)
from maxq.store.queue.unit_scan_cy import DAMAGED_TAGS_CODE
from maxq.store.recovery.damage_names import DAMAGED_TOPIC, is_filler

ENTRY_SIZE: Final = 20  # bytes of an entry in IndexCollector
_FIRST_UNITS, _MOST_UNITS = 64, 65_536
_FIRST_ENTRIES, _MOST_ENTRIES = 4_096, 1 << 20
_MOST_FAULTS: Final = 10
_MOST_QUEUE_OFFSET: Final = 1 << 48


@dataclass(frozen=True, slots=True)
class DispatchSettings:
    """The settings of dispatch that a record does not contain.

    Attributes:
        delay_levels_ms: of level 1, 2, …
        batch_topics: topics whose every record has a unit of a BatchConsumeQueue.
        indexed: are keys indexed at all?
        index_tags: are tags, too, as RocketMQ 5.5 does?
        deletions: topic → physical offset of the record that deleted it last (store/log/deletions.py).
    """

    delay_levels_ms: tuple[int, ...]
    batch_topics: frozenset[str] = frozenset()
    indexed: bool = True
    index_tags: bool = False
    deletions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UnitSegment:
    """Consecutive units, 20 bytes each, of which the first has queue offset `first`."""

    first: int
    chunks: tuple[memoryview, ...]

    @property
    def units(self) -> int:
        """Return the number of units."""
        return sum(map(len, self.chunks)) // CQ_STORE_UNIT_SIZE


class UnitRun:
    """Units of one queue, of which the first has queue offset `first`, without a gap unless `is_broken`."""

    def __init__(self, topic: str, queue_id: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.tail = QueueTail(topic, queue_id, self)
        self.first = -1  # none yet
        self.first_physical_offset = -1
        self.is_broken = False  # a later record did not continue the run
        self._chunks: list[bytearray] = []
        self._start = 0  # queue offset of the first unit in _chunks
        self._closed: list[UnitSegment] = []  # segments before the last gap

    @property
    def end(self) -> int:
        """Return the queue offset behind the last unit."""
        return self.tail.write_offset // CQ_STORE_UNIT_SIZE

    def begin(self, queue_offset: int, physical_offset: int) -> None:
        """Begin the run, or continue it behind a gap, with a unit at `queue_offset`."""
        if self.first < 0:
            self.first, self.first_physical_offset = queue_offset, physical_offset
        else:
            self._closed.append(self._segment())
            self._chunks = []
            self.is_broken = True
        self._start = queue_offset
        self.tail.write_offset = queue_offset * CQ_STORE_UNIT_SIZE
        self.extend()

    def extend(self) -> None:
        """Make room in memory for more units."""
        units = min(_MOST_UNITS, _FIRST_UNITS << len(self._chunks))
        self._chunks.append(bytearray(units * CQ_STORE_UNIT_SIZE))
        self.tail.attach(memoryview(self._chunks[-1]), self.tail.write_offset, 0)

    def segments(self) -> list[UnitSegment]:
        """Return the units; more than one segment if there are gaps."""
        return [*self._closed, self._segment()]

    def _segment(self) -> UnitSegment:
        left = (self.end - self._start) * CQ_STORE_UNIT_SIZE
        chunks: list[memoryview] = []
        for chunk in self._chunks:
            chunks.append(memoryview(chunk)[:left])
            left -= min(left, len(chunk))
        return UnitSegment(self._start, tuple(chunks))


@dataclass(slots=True)
class PieceResult:
    """Outcome of one piece.

    Attributes:
        runs: units, by (topic, queue id).
        batch_units: of BatchConsumeQueues, in log order.
        entries: index entries as IndexCollector keeps them, in log order, `entry_count` of them.
        end_offset: physical offset behind the last record; -1 without one.
        last_store_timestamp: of the last record.
        corruption: bytes of the piece that are not records.
        torn_tail: those behind the last record of the log, in words.
        faults: why these units are not what a broker has, in words.
    """

    runs: dict[tuple[str, int], UnitRun] = field(default_factory=dict)
    batch_units: dict[tuple[str, int], list[BatchUnit]] = field(default_factory=dict)
    entries: list[memoryview] = field(default_factory=list)
    entry_count: int = 0
    records: int = 0
    end_offset: int = -1
    last_store_timestamp: int = 0
    corruption: list[Corruption] = field(default_factory=list)
    torn_tail: str = ""
    faults: list[str] = field(default_factory=list)


def dispatch_piece(disk: Disk, piece: LogPiece, settings: DispatchSettings) -> PieceResult:
    """Read a piece, CRCs checked, and dispatch its records."""
    reader = PieceReader(disk, piece)
    dispatch = PieceDispatch(settings)
    for view, rows in reader.rows():
        dispatch.put(view, rows, piece.from_offset)
    result = dispatch.finish()
    result.corruption = reader.corruption
    damages: list[str] = []
    for damage in reader.corruption:
        text = f"{damage.file}: byte {damage.position} (up to {damage.end}): {damage.reason}"
        if damage.reason.startswith("torn tail"):
            result.torn_tail = text
        else:
            damages.append(f"the log is damaged: {text}")
    result.faults[:0] = damages[:_MOST_FAULTS]  # listed first, because gaps in queues follow from damage
    return result


class PieceDispatch:
    """Dispatches one piece: `put` its records in order, then `finish`. It is the Dispatcher's owner."""

    def __init__(self, settings: DispatchSettings) -> None:
        self._settings = settings
        self._result = PieceResult()
        self._topics: dict[bytes, TopicWriteState] = {}
        self._index = IndexCollector() if settings.indexed else None
        self._chunk = bytearray()
        self._dispatcher = Dispatcher(self._topics, self._index, self)
        self._dispatcher.delay_table = list(settings.delay_levels_ms)
        self._dispatcher.index_tags = settings.index_tags
        if self._index is not None:
            self._more_entries(self._index)

    def put(self, view: memoryview, rows: Rows, from_offset: int) -> None:
        """Dispatch scanned records.

        Args:
            view: their file.
            rows: of record_cy.scan, in order.
            from_offset: physical offset of the file's first byte.
        """
        starts = rows[:, rc.C_POSITION]
        ends = starts + rows[:, rc.C_SIZE]
        breaks = (ends[:-1] != starts[1:]).nonzero()[0]  # heads of DLedger entries, damage
        firsts, lasts = [0, *(breaks + 1).tolist()], [*breaks.tolist(), len(rows) - 1]
        for first, last in zip(firsts, lasts, strict=True):
            start, end = int(starts[first]), int(ends[last])
            stopped = self._dispatcher.run(view, start, end, from_offset)
            if stopped != end:
                self.fault(f"physical offset {from_offset + stopped}: a broker's dispatch takes this for no record")
        self._result.end_offset = from_offset + int(ends[-1])

    def finish(self) -> PieceResult:
        """Return the result when all records were put."""
        result = self._result
        self._keep_entries()
        result.records = self._dispatcher.records
        result.last_store_timestamp = self._dispatcher.last_store_timestamp
        result.runs = {key: run for key, run in result.runs.items() if run.first >= 0}
        return result

    def fault(self, text: str) -> None:
        """Note a fault; only the first ones are kept."""
        if len(self._result.faults) < _MOST_FAULTS:
            self._result.faults.append(text)

    # -- called by the compiled Dispatcher --

    def open_queue(self, topic: bytes, queue_id: int) -> QueueTail:
        return self._run_of(topic.decode("utf-8", "replace"), queue_id, topic).tail

    def roll_queue(self, tail: QueueTail, queue_offset: int, physical_offset: int, size: int) -> bool:
        return self._make_room(tail.owner, queue_offset, physical_offset)

    def roll_index(self, physical_offset: int, store_timestamp: int) -> None:
        assert self._index is not None
        self._more_entries(self._index)

    def dispatch_uncommon(self, position: int, size: int, physical_offset: int, view: memoryview) -> None:
        message = decode_record(view[position : position + size])
        if is_rolled_back(message.sys_flag):
            if message.topic == DELETED_TOPIC:
                self._check_deletion(message, physical_offset)
            elif message.topic != DAMAGED_TOPIC and is_filler(message.sys_flag, message.properties):
                self._put_unit(
                    message.topic, message.queue_id, message.queue_offset, physical_offset, size, DAMAGED_TAGS_CODE
                )
            return
        if message.sys_flag & MessageSysFlag.INNER_BATCH or message.topic in self._settings.batch_topics:
            self._put_batch_unit(message, physical_offset, size)
        if PROPERTY_INNER_MULTI_DISPATCH in message.properties:
            self._multi_dispatch(message, physical_offset, size)

    # -- queues --

    def _check_deletion(self, message: MessageExt, physical_offset: int) -> None:
        unknown = [name for name in deleted_names(message) if self._settings.deletions.get(name, -1) < physical_offset]
        if unknown:
            names = ", ".join(unknown[:3])
            self.fault(f"physical offset {physical_offset}: {names} were deleted here, which {FILE_NAME} does not know")

    def _run_of(self, topic: str, queue_id: int, name: bytes = b"") -> UnitRun:
        run = self._result.runs.get((topic, queue_id))
        if run is None:
            run = self._result.runs[topic, queue_id] = UnitRun(topic, queue_id)
            # records that end before it get no unit
            run.tail.max_physical_offset = self._settings.deletions.get(topic, -1)
            name = name or topic.encode()
            state = self._topics.get(name)
            if state is None:
                state = self._topics[name] = TopicWriteState(topic)
                state.is_delay_topic = topic == DELAY_TOPIC
                state.has_batch_queues = topic in self._settings.batch_topics
            state.set_queue(queue_id, run.tail)
        return run

    def _make_room(self, run: UnitRun, queue_offset: int, physical_offset: int) -> bool:
        """Make room for a unit at this queue offset. Returns False if no queue can have this offset."""
        if run.first >= 0 and queue_offset == run.end:
            run.extend()
            return True
        if not 0 <= queue_offset < _MOST_QUEUE_OFFSET or not is_folder_name(run.topic) or run.queue_id < 0:
            name = f"{run.topic}-{run.queue_id}"
            self.fault(f"physical offset {physical_offset}: no queue has a message {queue_offset} of {name!r}")
            return False
        if run.first >= 0 and not run.is_broken:
            self.fault(gap_text(run.topic, run.queue_id, run.end, queue_offset, physical_offset))
        run.begin(queue_offset, physical_offset)
        return True

    def _put_unit(
        self, topic: str, queue_id: int, queue_offset: int, physical_offset: int, size: int, tags_code: int
    ) -> None:
        run = self._run_of(topic, queue_id)
        tail = run.tail
        if physical_offset + size <= tail.max_physical_offset:
            return  # as in the broker's dispatch, a record has at most one unit in a queue
        if run.first >= 0 and queue_offset == run.end and tail.append(physical_offset, size, tags_code):
            return
        if self._make_room(run, queue_offset, physical_offset):
            tail.append(physical_offset, size, tags_code)

    def _put_batch_unit(self, message: MessageExt, physical_offset: int, size: int) -> None:
        unit = batch_unit(message, physical_offset, size)
        if unit is not None and physical_offset >= self._settings.deletions.get(message.topic, 0):
            self._result.batch_units.setdefault((message.topic, message.queue_id), []).append(unit)

    def _multi_dispatch(self, message: MessageExt, physical_offset: int, size: int) -> None:
        code = tags_code(message) if may_name_queues(message.topic) else DAMAGED_TAGS_CODE
        for topic, queue_id, queue_offset in light_places(message) or ():
            self._put_unit(topic, queue_id, queue_offset, physical_offset, size, code)

    # -- index --

    def _more_entries(self, index: IndexCollector) -> None:
        self._keep_entries()
        room = min(_MOST_ENTRIES, _FIRST_ENTRIES << len(self._result.entries))
        self._chunk = bytearray(room * ENTRY_SIZE)
        index.collect_into(memoryview(self._chunk))

    def _keep_entries(self) -> None:
        if self._index is not None and self._index.count:
            self._result.entries.append(memoryview(self._chunk)[: self._index.count * ENTRY_SIZE])
            self._result.entry_count += self._index.count


def gap_text(topic: str, queue_id: int, end: int, queue_offset: int, physical_offset: int) -> str:
    """Return the fault of a queue whose next record does not continue it."""
    return (
        f"queue {topic}-{queue_id}: message {queue_offset} at physical offset {physical_offset} follows message "
        f"{end - 1}"
    )
