"""ConsumeQueues and BatchConsumeQueues against the log, both ways: every message has its unit, every unit a message."""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

from maxq.store.log.tails_cy import jhash
from maxq.store.queue.unit_scan_cy import DAMAGED_TAGS_CODE
from maxq.store.tools.check_cy import CheckedTopic, Confirmation, ConfirmedUnits
from maxq.store.tools.expectation import SCHEDULE_TOPIC, Expectation, ExpectedUnit
from maxq.store.tools.offsets import TopicNames
from maxq.store.tools.queue_files import (
    BATCH_UNIT_SIZE,
    MAX_EXT_ADDRESS,
    UNIT_SIZE,
    BatchQueueFiles,
    ExtFiles,
    QueueEntry,
    QueueFiles,
    UnitFiles,
)
from maxq.store.tools.store_files import Fault, StoreFiles

_WRONG_MAX: Final = 1000  # wrong units remembered per queue
_REPAIR: Final = (
    "a restart rebuilds missing entries; for all others stop the broker and run `maxq store recover --rebuild`"
)


@dataclass(slots=True)
class _Missing:
    """Consecutive messages of one queue that have no unit."""

    first: int  # queue offsets
    last: int
    physical_offset: int  # physical offset of the first of them
    last_physical_offset: int


@dataclass(slots=True)
class _Wrong:
    queue_offset: int
    unit: QueueEntry
    expected: QueueEntry


@dataclass(slots=True)
class _Queue:
    """State of the check of one ConsumeQueue."""

    files: QueueFiles
    ext: ExtFiles
    confirmed: ConfirmedUnits
    missing: list[_Missing] = field(default_factory=list)
    wrong: list[_Wrong] = field(default_factory=list)
    wrong_count: int = 0

    def miss(self, queue_offset: int, physical_offset: int) -> None:
        if self.missing and self.missing[-1].last + 1 == queue_offset:
            self.missing[-1].last = queue_offset
            self.missing[-1].last_physical_offset = physical_offset
        else:
            self.missing.append(_Missing(queue_offset, queue_offset, physical_offset, physical_offset))


class QueueCheck:
    """Compares the queues with the log: call `expect` for each record of the log, then `finish`.

    Args:
        expectation_at: of the record at a physical offset, looked up in the log; None if no record starts there.
        is_damaged: does a physical offset lie in a damaged range of the log?
        is_lost_between: are bytes lost between two physical offsets?
        deleted: topic → physical offset of the record that deletes it, as far as a file knows.
        confirmation: what `expect` is not called for.
        open_queues: how many queues may be mapped at once; a mapped file takes two descriptors.
    """

    def __init__(
        self,
        files: StoreFiles,
        expectation_at: Callable[[int], Expectation | None],
        is_damaged: Callable[[int], bool],
        is_lost_between: Callable[[int, int], bool],
        deleted: dict[str, int],
        confirmation: Confirmation,
        open_queues: int,
    ) -> None:
        self.faults: list[Fault] = []
        self.notes: list[str] = []
        self.visible_end = 1 << 62  # in a DLedger log, entries behind this offset may not be committed
        self._files = files
        self._topics = TopicNames(files)
        self._expectation_at = expectation_at
        self._is_damaged = is_damaged
        self._is_lost_between = is_lost_between
        self._log_start = files.log[0].from_offset if files.log else 0
        self._queues = {key: self._new_queue(key) for key in files.queues}
        self._missing_folders: dict[tuple[str, int], _Missing] = {}
        self._open: OrderedDict[int, UnitFiles] = OrderedDict()
        self._deleted = deleted
        self._confirmation = confirmation
        self._open_queues = open_queues
        self._units = 0  # units that were confirmed here and not by `confirmation`
        self._end = 0  # physical offset behind the last record that has a unit
        self._batches: dict[tuple[str, int], dict[int, Expectation]] = {}

    @property
    def units(self) -> int:
        """Number of units that the log confirms."""
        return self._units + self._confirmation.units

    @property
    def _confirmed_end(self) -> int:
        return max(self._end, self._confirmation.confirmed_end)

    def expect(self, expected: Expectation) -> None:
        """Find the units of the next record of the log."""
        units = expected.units
        if units:
            self._know(units[0].topic)
        if self._deleted:
            units = tuple(unit for unit in units if expected.physical_offset >= self._deleted.get(unit.topic, 0))
        if units and (expected.batch_size or units[0].topic in self._topics.batch):
            key = (units[0].topic, units[0].queue_id)
            self._batches.setdefault(key, {})[expected.physical_offset] = expected
            units = units[1:]
        for unit in units:
            self._expect_unit(unit, expected)

    def delete(self, topics: Collection[str], physical_offset: int) -> None:
        """Discard the expectations for the queues of these topics, because the record at `physical_offset` deletes
        them."""
        for topic in topics:
            self._deleted[topic] = max(physical_offset, self._deleted.get(topic, 0))
        for key in [key for key in self._queues if key[0] in topics]:
            queue = self._queues[key]
            self._queues[key] = _queue(queue.files, queue.ext)
        self._confirmation.forget(topic.encode() for topic in topics)
        for table in (self._missing_folders, self._batches):
            for key in [key for key in table if key[0] in topics]:
                del table[key]

    def finish(self) -> None:
        """Finish at the end of the log: judge the units that the log did not confirm."""
        if self._files.has_abort:
            self._look_again()
        for key in sorted(self._queues):
            self._finish_queue(key, self._queues[key])
            self._queues[key].files.close()
            self._queues[key].ext.close()
        self._report_missing_folders()
        for key in sorted(self._batches.keys() | self._files.batch_queues.keys()):
            self._check_batch_queue(key)

    def _look_again(self) -> None:
        """Search again for units that were missing when the log was read: a running broker may have dispatched them
        meanwhile.

        Records found now do not move `_confirmed_end`, because it is also used for queues that were examined before,
        when dispatch had not come so far.
        """
        now = self._files.look_again()
        for key in [key for key in self._missing_folders if key in now.queues]:
            missing = self._missing_folders.pop(key)
            self._queues[key] = _queue(QueueFiles(now, now.queues[key]), ExtFiles(now, []))
            self._queues[key].missing.append(missing)
        for key, queue in self._queues.items():
            if queue.missing and key in now.queues:
                queue.files.close()
                queue.files = QueueFiles(now, now.queues[key])
                queue.missing = [left for missing in queue.missing for left in self._still_missing(key, queue, missing)]

    def _still_missing(self, key: tuple[str, int], queue: _Queue, missing: _Missing) -> list[_Missing]:
        for index in range(missing.first, missing.last + 1):
            unit = queue.files.unit(index)
            if unit is None or not unit.is_good or not self._may_stand(key, index, unit, False):
                place = missing.physical_offset if index == missing.first else missing.last_physical_offset
                return [_Missing(index, missing.last, place, missing.last_physical_offset)]
            queue.confirmed.add(index, unit.physical_offset)
            self._units += 1
        return []

    # -- one unit --

    def _new_queue(self, key: tuple[str, int]) -> _Queue:
        return _queue(
            QueueFiles(self._files, self._files.queues[key]),
            ExtFiles(self._files, self._files.ext_queues.get(key, [])),
        )

    def _know(self, topic: str) -> None:
        """Make `confirmation` check the records of this topic from now on."""
        name = topic.encode()
        if name in self._confirmation.topics or topic in self._topics.batch:
            return
        queues = {queue_id: queue.confirmed for (of, queue_id), queue in self._queues.items() if of == topic}
        self._confirmation.topics[name] = CheckedTopic(
            queues, jhash(f"{topic}#"), self._deleted.get(topic, 0), topic == SCHEDULE_TOPIC
        )

    def _expect_unit(self, unit: ExpectedUnit, expected: Expectation) -> None:
        key = (unit.topic, unit.queue_id)
        queue = self._queues.get(key)
        if queue is None:
            place = expected.physical_offset
            known = self._missing_folders.setdefault(key, _Missing(unit.queue_offset, unit.queue_offset, place, place))
            known.last, known.last_physical_offset = unit.queue_offset, place
            return
        found = self._unit(queue, unit.queue_offset)
        wanted = QueueEntry(expected.physical_offset, expected.size, unit.tags_code)
        if found is None or not any(found):
            queue.miss(unit.queue_offset, expected.physical_offset)
        elif self._equal(queue, found, wanted):
            queue.confirmed.add(unit.queue_offset, expected.physical_offset)
            self._end = max(self._end, expected.physical_offset + expected.size)
            self._units += 1
        else:
            queue.wrong_count += 1
            if len(queue.wrong) < _WRONG_MAX:
                queue.wrong.append(_Wrong(unit.queue_offset, found, wanted))

    def _unit(self, queue: _Queue, queue_offset: int) -> QueueEntry | None:
        self._open[id(queue)] = queue.files
        self._open.move_to_end(id(queue))
        if len(self._open) > self._open_queues:
            self._open.popitem(last=False)[1].close()
        return queue.files.unit(queue_offset)

    @staticmethod
    def _equal(queue: _Queue, found: QueueEntry, wanted: QueueEntry) -> bool:
        if found == wanted:
            return True
        if found[:2] != wanted[:2] or found.tags_code > MAX_EXT_ADDRESS:
            return False
        tags_code = queue.ext.tags_code(found.tags_code)
        return tags_code is None or tags_code == wanted.tags_code  # None: the reader filters by the message itself

    # -- one queue, after the log --

    def _finish_queue(self, key: tuple[str, int], queue: _Queue) -> None:
        elsewhere = self._standing_elsewhere(key, queue)
        for missing in queue.missing:
            if missing.first == missing.last and missing.physical_offset in elsewhere.values():
                continue
            # A queue that was deleted and began again at 0 leaves messages with its old numbers in the log.
            if missing.first > queue.confirmed.last and missing.physical_offset < queue.confirmed.last_physical:
                continue
            self._report_missing(key, queue, missing)
        for wrong in queue.wrong:
            is_elsewhere = wrong.expected.physical_offset in elsewhere.values()
            if not queue.confirmed.has(wrong.queue_offset) and not is_elsewhere:
                self._report_wrong(key, queue, wrong)
        if queue.wrong_count > len(queue.wrong):
            self.notes.append(f"{_title(key)}: {queue.wrong_count} wrong units in all")
        self._check_unconfirmed(key, queue, elsewhere)

    def _standing_elsewhere(self, key: tuple[str, int], queue: _Queue) -> dict[int, int]:
        """Return the messages that claim a place of their queue that others have, or that is behind its end: the queue
        offsets that dispatch gave them, and their physical offsets. The reason is that a topic was deleted and made
        again, but the record that deletes it is lost or a Java broker wrote none, or that a bit has changed. A start
        leaves such records unchanged."""
        found: dict[int, int] = {}
        for index, unit, _ in self._unconfirmed(queue):
            place = self._place_of(key, queue, index, unit) if index and unit.is_good else None
            if place is not None:
                found[index] = unit.physical_offset
                self._end = max(self._end, unit.physical_offset + unit.size)
                self._units += 1
                claim = f"number {place}" if place else "the first"
                self.notes.append(
                    f"{_title(key)}: the message at physical offset {unit.physical_offset} says that it is {claim}; "
                    f"it is kept at queue offset {index}, behind those that were there"
                )
        return found

    def _place_of(self, key: tuple[str, int], queue: _Queue, index: int, unit: QueueEntry) -> int | None:
        """Return the queue offset that the record of a unit claims, if a start may have left it unchanged at another
        place, and it is not at the one it claims too. It may if the record claims to be the first of its queue, or if
        bytes are lost between it and the one before it in the queue."""
        if unit.physical_offset < max(self._log_start, self._deleted.get(key[0], 0)):
            return None
        expected = self._expectation_at(unit.physical_offset)
        own = [one for one in expected.units if one[:2] == key and one.queue_offset != index] if expected else []
        if expected is None or not own:
            return None
        wanted = QueueEntry(expected.physical_offset, expected.size, own[0].tags_code)
        place = own[0].queue_offset
        if not self._equal(queue, unit, wanted) or self._unit(queue, place) == unit:
            return None
        before = self._unit(queue, index - 1) if place else None
        if place and (before is None or not self._is_lost_between(before.physical_offset, unit.physical_offset)):
            return None
        return place

    def _report_missing(self, key: tuple[str, int], queue: _Queue, missing: _Missing) -> None:
        count = missing.last - missing.first + 1
        if self.is_behind(missing.physical_offset):
            self.notes.append(
                f"{_title(key)}: the last {count} messages are not dispatched yet; "
                + (
                    "the next start does it"
                    if missing.physical_offset < self.visible_end
                    else "they are not known to be committed"
                )
            )
            return
        what = f"no units for {count} messages, queue offsets {missing.first} to {missing.last}"
        self._fault(key, queue, missing.first * UNIT_SIZE, what)

    def is_behind(self, physical_offset: int) -> bool:
        """Return whether a missing entry is one that a running broker is about to write, or that a killed one did not
        write.

        A DLedger member dispatches what is committed, so its queues may always end before its log. Where nothing at all
        is dispatched the queues are gone, unless a broker is just beginning.
        """
        if physical_offset >= self.visible_end:
            return True
        if self._confirmed_end <= self._log_start:
            return self._files.is_live and not self._files.index
        return (self._files.has_abort or self._files.dledger) and self._confirmed_end <= physical_offset

    def _report_wrong(self, key: tuple[str, int], queue: _Queue, wrong: _Wrong) -> None:
        if wrong.unit.tags_code == DAMAGED_TAGS_CODE:
            return
        what = f"unit {wrong.queue_offset} says {_words(wrong.unit)}, the log says {_words(wrong.expected)}"
        self._fault(key, queue, wrong.queue_offset * UNIT_SIZE, what)

    def _check_unconfirmed(self, key: tuple[str, int], queue: _Queue, elsewhere: Collection[int]) -> None:
        """Report units that matched no message of the walk over the log; neighbours are reported together."""
        reported = {wrong.queue_offset for wrong in queue.wrong}
        first: tuple[int, QueueEntry] | None = None  # first unit of a run of units that should not exist
        last = -1
        for index, unit, leading in self._unconfirmed(queue):
            stands = index in reported or index in elsewhere or self._may_stand(key, index, unit, leading)
            if first is not None and (stands or index != last + 1):
                self._report_units(key, queue, first, last)
                first = None
            if not stands:
                first = first or (index, unit)
                last = index
                if index > queue.confirmed.last and not unit.is_good:
                    break  # bytes behind the last good unit may be old
        if first is not None:
            self._report_units(key, queue, first, last)

    @staticmethod
    def _unconfirmed(queue: _Queue) -> Iterator[tuple[int, QueueEntry, bool]]:
        """Yield (queue offset, unit, whether no confirmed unit precedes it) without empty units; stops at the first
        empty one behind the last confirmed."""
        index = queue.files.first_index
        last_index = queue.files.end // UNIT_SIZE
        first, seen = queue.confirmed.first_index, queue.confirmed.seen
        leading = True
        while index < last_index:
            if 0 <= index - first < len(seen) and seen[index - first]:
                leading = False
                following = seen.find(0, index - first)
                index = first + (len(seen) if following < 0 else following)
                continue
            unit = queue.files.unit(index)
            if unit is not None and any(unit):
                yield index, unit, leading
            elif index > queue.confirmed.last:
                return
            index += 1

    def _may_stand(self, key: tuple[str, int], index: int, unit: QueueEntry, leading: bool) -> bool:
        if unit.tags_code == DAMAGED_TAGS_CODE or (unit.is_pre_blank and leading):
            return True
        if not unit.is_good or unit.physical_offset < self._deleted.get(key[0], 0):
            return False
        if unit.physical_offset < self._log_start or self._is_damaged(unit.physical_offset):
            return True
        expected = self._expectation_at(unit.physical_offset)
        return expected is not None and any(
            (other.topic, other.queue_id, other.queue_offset) == (*key, index) for other in expected.units
        )

    def _report_units(self, key: tuple[str, int], queue: _Queue, first: tuple[int, QueueEntry], last: int) -> None:
        index, unit = first
        what = f"unit {index} says {_words(unit)}: no message with this place in the queue starts there"
        if last > index:
            what += f"; nor for the units up to {last}"
        self._fault(key, queue, index * UNIT_SIZE, what)

    def _report_missing_folders(self) -> None:
        for key, missing in sorted(self._missing_folders.items()):
            if self._topics.is_deleted(key[0]):
                continue
            if self.is_behind(missing.physical_offset):
                self.notes.append(f"{_title(key)}: not there yet; the next start dispatches its messages")
                continue
            what = f"no ConsumeQueue, messages with queue offsets {missing.first} to {missing.last} are in the log"
            self.faults.append(Fault(f"consumequeue/{key[0]}/{key[1]}", 0, what, _REPAIR))

    def _fault(self, key: tuple[str, int], queue: _Queue, position: int, what: str) -> None:
        place = queue.files.place(position)
        file = self._files.name(place[0]) if place else f"consumequeue/{key[0]}/{key[1]}"
        self.faults.append(Fault(file, place[1] if place else position, what, _REPAIR))

    # -- batch queues --

    def _check_batch_queue(self, key: tuple[str, int]) -> None:
        expected = self._batches.get(key, {})
        queue = BatchQueueFiles(self._files, self._files.batch_queues.get(key, []))
        position = queue.start
        for position, unit in queue.units():
            record = expected.pop(unit.physical_offset, None)
            if record is None:
                is_gone = unit.physical_offset < self._deleted.get(key[0], 0)
                is_in_log = unit.physical_offset >= self._log_start
                if is_gone or (is_in_log and self._expectation_at(unit.physical_offset) is None):
                    what = f"unit says {_words(QueueEntry(*unit[:3]))}: no batch of this queue starts there"
                    self._batch_fault(key, queue, position, what)
                continue
            own = record.units[0]
            wanted = (
                record.physical_offset, record.size, own.tags_code, record.store_timestamp, own.queue_offset,
                max(record.batch_size, 1), -1, 0,
            )  # fmt: skip
            self._units += 1
            self._end = max(self._end, record.physical_offset + record.size)
            if tuple(unit) != wanted:
                self._batch_fault(key, queue, position, f"unit is {tuple(unit)}, the log says {wanted}")
        left = sorted(expected.values(), key=lambda record: record.physical_offset)
        if left and self.is_behind(left[0].physical_offset):
            self.notes.append(
                f"{_title(key)}: the last {len(left)} batches are not dispatched yet; the next start does it"
            )
        elif left:
            first = left[0].units[0].queue_offset
            at = position + BATCH_UNIT_SIZE if queue.sequence else 0
            self._batch_fault(key, queue, at, f"no units for {len(left)} batches from queue offset {first} on")
        queue.close()

    def _batch_fault(self, key: tuple[str, int], queue: BatchQueueFiles, position: int, what: str) -> None:
        place = queue.place(position)
        file = self._files.name(place[0]) if place else f"batchconsumequeue/{key[0]}/{key[1]}"
        self.faults.append(Fault(file, place[1] if place else position, what, _REPAIR))


def _queue(files: QueueFiles, ext: ExtFiles) -> _Queue:
    """Return the state of a queue's check before any unit is confirmed."""
    return _Queue(files, ext, ConfirmedUnits(files.first_index, files.window))


def _title(key: tuple[str, int]) -> str:
    return f"queue {key[0]}/{key[1]}"


def _words(unit: QueueEntry) -> str:
    return f"physical offset {unit.physical_offset}, {unit.size} bytes, tags code {unit.tags_code}"
