"""First and next offset of every queue, as a broker that starts on this store would know them.

The log decides: a queue's first offset is that of its oldest message in the log, its next one that behind its newest.
The ConsumeQueue files add what the log has no more: a queue whose messages have all expired keeps its next offset.
"""

import contextlib
from dataclasses import dataclass
from typing import Any, Final

from maxq.errors import MaxQError
from maxq.protocol.json import json_dialect
from maxq.store.context.progress import Progress, no_progress
from maxq.store.log import record_cy as rc
from maxq.store.tools.expectation import LMQ_PREFIX, Expectation, expectation_of
from maxq.store.tools.log_walk import LogWalk
from maxq.store.tools.queue_files import PRE_BLANK_SIZE, BatchQueueFiles, QueueFiles
from maxq.store.tools.store_files import StoreFiles

_QUEUES_MAX: Final = 1 << 16  # queue ids are below this; a larger one is damage


@dataclass(slots=True)
class QueueOffsets:
    """The queue offsets [min_offset, max_offset) of which the log has messages, of one queue."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int

    def to_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "queueId": self.queue_id,
            "minOffset": self.min_offset,
            "maxOffset": self.max_offset,
        }


class OffsetTable:
    """Finds the smallest and largest offset of each queue from the records of the log."""

    def __init__(self) -> None:
        self.queues: dict[tuple[str, int], QueueOffsets] = {}

    def add(self, expected: Expectation) -> None:
        """Note the queue entries of one record."""
        for place, unit in enumerate(expected.units):
            count = expected.batch_size if expected.batch_size and place == 0 else 1
            self.widen(unit.topic, unit.queue_id, unit.queue_offset, unit.queue_offset + count)

    def widen(self, topic: str, queue_id: int, low: int, high: int) -> None:
        """Extend the queue's range to include [low, high)."""
        known = self.queues.setdefault((topic, queue_id), QueueOffsets(topic, queue_id, low, high))
        known.min_offset = min(known.min_offset, low)
        known.max_offset = max(known.max_offset, high)

    def sorted(self) -> list[QueueOffsets]:
        return [self.queues[key] for key in sorted(self.queues)]


def queue_offsets(files: StoreFiles, progress: Progress = no_progress) -> list[QueueOffsets]:
    """Return the offsets of every queue, sorted by topic and queue id. Reads the whole log."""
    table = OffsetTable()
    walk = LogWalk(files, progress)
    for batch in walk.batches():
        for start in range(0, batch.count * rc.SCAN_WIDTH, rc.SCAN_WIDTH):
            row = batch.rows[start : start + rc.SCAN_WIDTH]
            table.add(expectation_of(batch.view, row, files.settings.delay_levels_ms))
    walk.close()
    _forget_deleted_topics(files, table)
    for key in files.queues:
        _add_from_files(files, table, key, walk)
    for key in files.batch_queues:
        _add_from_batch_files(files, table, key, walk)
    return table.sorted()


class TopicNames:
    """Topics according to topics.json and the folders."""

    def __init__(self, files: StoreFiles) -> None:
        table = _topic_table(files)
        self._known = None if table is None else set(table)
        self._of_batch_type: set[str] = set()
        self._folders = {topic for topic, _ in files.queues} | {topic for topic, _ in files.batch_queues}
        self.batch = {topic for topic, _ in files.batch_queues}
        compacted: set[str] = set()
        for topic, config in (table or {}).items():
            attributes = (config.get("attributes") or {}) if isinstance(config, dict) else {}
            if attributes.get("queue.type") == "BatchCQ":
                self.batch.add(topic)
                self._of_batch_type.add(topic)
            if attributes.get("cleanup.policy") == "COMPACTION":
                compacted.add(topic)
        lmq = {topic for topic in self._folders if topic.startswith(LMQ_PREFIX)}
        #: Topics whose records are not simply those that their queues' units point to.
        self.special = frozenset(self.batch | compacted | lmq)

    def has_batch_type(self, topic: str) -> bool | None:
        """Return whether topics.json gives the topic queue.type=BatchCQ; None if it does not know the topic."""
        return None if self._known is None or topic not in self._known else topic in self._of_batch_type

    def is_deleted(self, topic: str) -> bool:
        """Returns whether the topic was deleted while its messages are still in the log."""
        if self._known is None or topic in self._known or topic in self._folders:
            return False
        return not topic.startswith(LMQ_PREFIX)


def _topic_table(files: StoreFiles) -> dict[str, Any] | None:
    for name in ("topics.json", "topics.json.bak"):
        with contextlib.suppress(FileNotFoundError, MaxQError, AttributeError):
            found = json_dialect.loads(files.disk.read(files.root / "config" / name))
            return dict(found.get("topicConfigTable", {}))
    return None


def known_queues(files: StoreFiles) -> set[tuple[str, int]]:
    """Return topic and queue id of every queue: those that topics.json gives a topic, and those that have files."""
    found = {*files.queues, *files.batch_queues}
    for topic, config in (_topic_table(files) or {}).items():
        count = config.get("readQueueNums") if isinstance(config, dict) else None
        if isinstance(count, int):
            found.update((topic, number) for number in range(min(count, _QUEUES_MAX)))
    return found


def purged_offsets(files: StoreFiles) -> dict[tuple[str, int], int]:
    """Return for each queue that `purgeTopic` has purged, according to topics.json, the first offset that was left."""
    found = {}
    for topic, config in (_topic_table(files) or {}).items():
        attributes = (config.get("attributes") or {}) if isinstance(config, dict) else {}
        for part in str(attributes.get("purged.offsets", "")).split():
            queue, _, offset = part.partition(":")
            if queue.isdecimal() and offset.isdecimal():
                found[topic, int(queue)] = int(offset)
    return found


def _forget_deleted_topics(files: StoreFiles, table: OffsetTable) -> None:
    topics = TopicNames(files)
    for key in list(table.queues):
        if topics.is_deleted(key[0]):
            del table.queues[key]


def _add_from_files(files: StoreFiles, table: OffsetTable, key: tuple[str, int], walk: LogWalk) -> None:
    queue = QueueFiles(files, files.queues[key])
    first, last = -1, -1
    for index, unit in _last_units(queue):
        if unit.physical_offset + unit.size <= walk.end_offset or unit.size == PRE_BLANK_SIZE:
            last = index
            first = index if first < 0 else first
    queue.close()
    if last < 0:
        if key not in table.queues and queue.sequence:
            table.widen(*key, queue.first_index, queue.first_index)
        return
    if key in table.queues:
        table.queues[key].max_offset = max(table.queues[key].max_offset, last + 1)
    else:
        # the log has no message of it any more: numbering continues behind the last
        table.widen(*key, last + 1, last + 1)


def _last_units(queue: QueueFiles) -> Any:
    """Return the units of the last file that has any."""
    for file in reversed(queue.sequence):
        index = file.from_offset // 20
        unit = queue.unit(index)
        if unit is not None and unit.is_good:
            return queue.units(index)
    return ()


def _add_from_batch_files(files: StoreFiles, table: OffsetTable, key: tuple[str, int], walk: LogWalk) -> None:
    queue = BatchQueueFiles(files, files.batch_queues[key])
    end = -1
    for _, unit in queue.units():
        if unit.physical_offset + unit.size <= walk.end_offset:
            end = unit.base_offset + unit.batch_size
    queue.close()
    if end >= 0 and key in table.queues:
        table.queues[key].max_offset = max(table.queues[key].max_offset, end)
    elif end >= 0:
        table.widen(*key, end, end)
