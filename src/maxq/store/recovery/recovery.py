"""From files on disk to a store that can be written (DefaultMessageStore.load and recover, CommitLog.recover*).

The order, with the mission's ids:

1. exit kind by the abort file (LR-03); CommitLog files (LR-05); ConsumeQueue folders (LR-06); checkpoint, inventory;
   index files (LR-07).
2. The end of the log (log_recovery.py; LR-09, LR-10). A torn tail is cut; damage in the middle is filled and stepped
   over (log_scanner.py, damage.py).
3. Where dispatch must start so that queues and index lack nothing (LR-13): see `_dispatch_start`.
4. Every queue is cut there (LR-08; if that is the start of the log, its files are written over: queue_rebuild.py) and
   what follows is dispatched again, through the same `Dispatcher.run` as every day. So units of the queues above that
   offset are never trusted, and the log is the only truth.
5. Next offsets and minimum offsets follow from the queues (LR-11).
"""

import logging

from maxq.store.dispatch.dispatch_cy import Dispatcher
from maxq.store.files.store_inventory import NOT_WHOLE, StoreInventory
from maxq.store.index.index_file import IndexFile
from maxq.store.queue.batch_consume_queue import BatchConsumeQueue
from maxq.store.queue.consume_queue import CQ_STORE_UNIT_SIZE, ConsumeQueue
from maxq.store.queue.queue_loader import QueueFault
from maxq.store.queue.unit_scan_cy import DAMAGED_TAGS_CODE
from maxq.store.recovery.damage import DamagedRange, replace_with_filler
from maxq.store.recovery.log_recovery import LogRecovery
from maxq.store.recovery.log_scanner import LogScan, LogScanner
from maxq.store.recovery.queue_rebuild import QueueRebuild, cut_point
from maxq.store.recovery.recovery_report import RecoveryReport
from maxq.store.recovery.restore_places import has_message
from maxq.store.store_parts import StoreParts

log = logging.getLogger(__name__)

_DISPATCHING = "building queues and index"  # title of this step for listeners of progress


class Recovery:
    """Recovers log, queues and index of one store after its start."""

    def __init__(
        self,
        parts: StoreParts,
        inventory: StoreInventory | None,
        queue_faults: list[QueueFault],
        report: RecoveryReport,
    ) -> None:
        """`queue_faults` are the faults that `load_queues` found; `report` receives findings and repairs."""
        context, commit_log, queues, checkpoint = parts.context, parts.commit_log, parts.queues, parts.checkpoint
        self._context, self._commit_log, self._queues, self._checkpoint = context, commit_log, queues, checkpoint
        self._index = parts.index
        self._dispatch = parts.dispatch
        self._filled_ranges = parts.filled_ranges
        self._deletions = parts.deletions
        self._inventory_file = parts.inventory_file
        self._inventory = inventory
        queues.note_topics(inventory.queues if inventory is not None else ())
        self._queue_faults = queue_faults
        self._report = report
        self._log_recovery = LogRecovery(context, commit_log, queues, checkpoint, inventory, report)
        self._last_ends: dict[ConsumeQueue, int] = {}  # queue → end of the record of its last unit in the inventory
        self._rebuild: QueueRebuild | None = None
        self._numbers: dict[ConsumeQueue, int] = {}  # queue without messages → next queue offset

    def run(self) -> None:
        """Recover; the log is then open for writing and everything in it is dispatched. Blocks."""
        if not self._commit_log.files.files:
            self._without_log()
            return
        if not self._report.clean_exit:
            self._filled_ranges.write_again()
        scan = self._scan()
        if not self._report.clean_exit:
            self._checkpoint.not_later_than(scan.last_store_timestamp)
        end = scan.end_offset
        if self._context.config.broker_role == "SLAVE" and end <= self._commit_log.min_offset:
            self._without_log()  # there is no record: an empty slave, whose log may begin at any offset
            return
        self._report.min_offset, self._report.end_offset = self._commit_log.min_offset, end
        start = self._dispatch_start(end)
        if scan.damages:  # the units of damaged messages are written again, as places
            start = max(self._commit_log.min_offset, min(start, scan.damages[0].physical_offset))
        orphans = self._units_in(scan.damages)
        self._number_behind(scan.damages)
        if end == 0:  # no record is left: queues without a log would be refused as those of a lost log
            self._inventory_file.remove()
            self._forget_queues()
        if self._inventory is not None and start < self._inventory.dispatched_offset:
            # Before files of the log may be removed: a log that ends below a complete inventory counts as damaged.
            self._inventory_file.save(self._inventory.numbers())
        self._cut_log(scan)
        for damage in scan.damages:
            self._seal(damage)
        index_start = self._index_start(end)
        if start < end or not self._complete(end):
            self._cut_queues(start)
        self._replay(start, index_start, end, scan.damages)
        for queue, index, damage in orphans:
            while not self._deletions.is_gone(queue.topic, damage.physical_offset) and queue.max_offset <= index:
                queue.append(damage.physical_offset, damage.size, DAMAGED_TAGS_CODE)
        self._dispatch.on_deleted = None
        if self._rebuild is not None:
            self._finish_rebuild(self._rebuild)
        if not self._report.clean_exit:
            self._hide_filled()
        self._set_queue_offsets()
        self._queues.take_kinds()
        self._report.faults += self._dispatch.faults[:100]
        self._dispatch.faults.clear()

    # --- the log ---

    def _scan(self) -> LogScan:
        return self._log_recovery.scan()

    def _cut_log(self, scan: LogScan) -> None:
        self._log_recovery.cut(scan)

    def _without_log(self) -> None:
        """Handle a store without a log: its queues and index belong to another log, or the log is gone."""
        self._inventory_file.remove()  # first: with an inventory and no log, the next start would report a lost log
        self._forget_queues()
        self._deletions.replay_from(0)
        self._commit_log.open_at(0)
        self._dispatch.dispatcher.dispatched_offset = 0

    def _forget_queues(self) -> None:
        for queue in list(self._queues):
            self._queues.remove(queue)
        for batch in self._queues.batch_queues.values():
            batch.destroy()
        self._index.destroy()
        self._checkpoint.not_later_than(0)

    # --- queues ---

    def _dispatch_start(self, end: int) -> int:
        """Return the physical offset from which the queues are rebuilt.

        Usually the inventory's offset: below it the queues were complete and durable. After an unclean exit not above
        the file that the checkpoint selected. The start of the log if there is no inventory (a Java broker wrote the
        store last before the first start of this one), or if a queue has less than it had.
        """
        oldest = self._commit_log.min_offset
        inventory = self._inventory
        if inventory is None or len(self._deletions) < inventory.deletions:
            self._deletions.begins_at(max(0, oldest))
        if inventory is None:
            if end > oldest:
                self._report.rebuild_reasons.append(
                    "there is no inventory of the queues: all queues, from the whole log"
                )
            return oldest
        lacking = [fault.text for fault in self._queue_faults]
        lacking += [f"topic {topic} has files of both kinds of queues" for topic in self._queues.mixed_topics()]
        if not inventory.is_whole and end > oldest:
            lacking.append("the inventory tells only how far queues were numbered: all queues, from the whole log")
        if len(self._deletions) < inventory.deletions:
            lacking.append(f"{self._deletions.path} has lost some of its {inventory.deletions} deleted topics")
        if inventory.dispatched_offset > end:
            lacking.append(f"the log ends at {end}, but queues were complete up to {inventory.dispatched_offset}")
        else:
            lacking += self._lacking(inventory)
        if lacking:
            self._report.rebuild_reasons += lacking[:20]
            return oldest
        start = max(oldest, inventory.dispatched_offset)
        return start if self._report.clean_exit else max(oldest, min(start, self._report.checked_from))

    def _lacking(self, inventory: StoreInventory) -> list[str]:
        """Return, as one line each, the queues that have fewer units than the inventory says."""
        found: list[str] = []
        for topic, bounds in inventory.queues.items():
            for queue_id, (first, recorded) in bounds.items():
                if first == recorded:
                    continue  # all messages of the queue have left the log, and their files with them
                queue = self._queues.find(topic, queue_id)
                unit = None if queue is None else queue.unit(recorded - 1)
                if queue is not None and queue.files.min_offset > first * CQ_STORE_UNIT_SIZE:
                    found.append(
                        f"queue {topic}-{queue_id} has lost its files below unit {queue.files.min_offset // 20}"
                    )
                elif unit is None or unit[1] <= 0 or not 0 <= unit[0] < inventory.dispatched_offset:
                    found.append(f"queue {topic}-{queue_id} has lost units below {recorded}")
                elif queue is not None and not self._points_home(queue, recorded - 1, unit):
                    found.append(f"queue {topic}-{queue_id}: unit {recorded - 1} {unit} is not of its record")
                if queue is not None:
                    self._queues.release(queue)
                    if unit is not None:
                        self._last_ends[queue] = unit[0] + unit[1]
        for topic, batches in inventory.batch_queues.items():
            for queue_id, (begin, count, _) in batches.items():
                batch = self._queues.batch_queues.get((topic, queue_id))
                if begin < count and (batch is None or not batch.has_units(begin, count, inventory.dispatched_offset)):
                    found.append(f"queue of batches {topic}-{queue_id} has lost units below {count}")
        return found

    def _points_home(self, queue: ConsumeQueue, queue_offset: int, unit: tuple[int, int, int]) -> bool:
        """Return whether the record to which a unit points really has this size. Units of records that retention
        deleted, and of damaged records, are trusted."""
        if unit[0] < self._commit_log.min_offset or unit[2] == DAMAGED_TAGS_CODE:
            return True
        file = self._commit_log.files.find(unit[0])
        if file is None:
            return False
        position = unit[0] - file.file_from_offset
        return int.from_bytes(file.view[position : position + 4], "big") == unit[1]

    def _complete(self, end: int) -> bool:
        """Returns whether the queues hold exactly what a clean shutdown at this end of the log left."""
        inventory = self._inventory
        return (
            inventory is not None
            and self._report.clean_exit
            and inventory.log_end == inventory.dispatched_offset == end
            and self._adopt(inventory)
        )

    def _adopt(self, inventory: StoreInventory) -> bool:
        """Take the ends of all queues from the inventory, which `_lacking` has compared already. Returns False if the
        disk holds more than a clean shutdown left."""
        for queue in self._queues:
            recorded = inventory.end_of(queue.topic, queue.queue_id)
            last = queue.files.last
            if last is not None and not last.file_from_offset < recorded * CQ_STORE_UNIT_SIZE <= last.end_offset:
                return False
        for queue in self._queues:
            queue.adopt(inventory.end_of(queue.topic, queue.queue_id), self._last_ends.get(queue, -1))
        for batch in self._queues.batch_queues.values():
            batch.cut(inventory.dispatched_offset, self._most_units(batch))
        return True

    def _cut_queues(self, start: int) -> None:
        """Cut every queue before its first unit at or behind the log position `start`.

        The inventory's numbers of units are trusted, because `_lacking` has compared them; units that it does not know
        are younger than `start`. When everything is built anew, it is written over what the files hold.
        """
        inventory = self._inventory
        if start <= self._commit_log.min_offset:
            self._rebuild = QueueRebuild(self._queues)
            self._dispatch.resolver.place_before = self._rebuild.place_before
            self._dispatch.on_deleted = self._rebuild.forget
        else:
            for queue in self._queues:
                recorded = 0 if inventory is None else inventory.end_of(queue.topic, queue.queue_id)
                queue.end_at(*cut_point(queue, start, recorded))
                self._queues.release(queue)
        for batch in self._queues.batch_queues.values():
            batch.cut(start, self._most_units(batch))
            batch.release()
        if self._rebuild is not None:
            self._queues.begin_with_kinds()

    def _most_units(self, batch: BatchConsumeQueue) -> int | None:
        """Return the unit number behind the last one that a queue of batches had when the inventory was written; None
        if the inventory does not tell. Units that came later are dispatched again."""
        inventory = self._inventory
        if inventory is None or not inventory.is_whole:
            return None
        bounds = inventory.batch_queues.get(batch.topic, {}).get(batch.queue_id)
        return None if bounds is None else bounds[1]

    def _finish_rebuild(self, rebuild: QueueRebuild) -> None:
        """Delete the units of old files behind the rebuilt queues. If only those units tell the next queue offset, it
        is noted in the inventory first."""
        self._dispatch.resolver.place_before = None
        self._numbers = rebuild.finish(self._commit_log.min_offset)
        if self._numbers:
            kept = StoreInventory() if self._inventory is None else self._inventory.numbers()
            kept.dispatched_offset = NOT_WHOLE
            for queue, end in self._numbers.items():
                ends = kept.queues.setdefault(queue.topic, {})
                ends[queue.queue_id] = (max(end, kept.end_of(queue.topic, queue.queue_id)),) * 2
            self._inventory_file.save(kept)
            self._queues.delete_folders(self._numbers)

    def _replay(self, start: int, index_start: int, end: int, damages: list[DamagedRange]) -> None:
        dispatch = self._dispatch
        begin = min(start, index_start)
        self._report.dispatch_from = begin
        self._deletions.replay_from(begin)
        plain, indexed = dispatch.unindexed, dispatch.dispatcher
        if begin < index_start and self._context.config.message_index_enable:
            self._advance(plain, begin, index_start, damages)
            begin = max(index_start, plain.dispatched_offset)  # dispatch may have passed damage that reaches further
        self._advance(indexed, begin, end, damages)
        self._report.dispatched_records = plain.records + indexed.records
        indexed.records = 0
        indexed.dispatched_offset = end

    def _advance(self, dispatcher: Dispatcher, begin: int, end: int, damages: list[DamagedRange]) -> None:
        """Dispatch [begin, end); damaged ranges, and bytes that are not records in files that were not scanned, are
        skipped."""
        holes = sorted(
            (damage for damage in damages if damage.end_offset > begin), key=lambda damage: damage.physical_offset
        )
        dispatcher.dispatched_offset = begin
        while dispatcher.dispatched_offset < end:
            if holes and dispatcher.dispatched_offset >= holes[0].physical_offset:
                damage = holes.pop(0)
                dispatcher.dispatched_offset = max(dispatcher.dispatched_offset, damage.end_offset)
                self._keep_place(damage)
                continue
            stop = min(holes[0].physical_offset if holes else end, end)
            file = self._commit_log.file_at(dispatcher.dispatched_offset)
            if file is not None:  # one file after the other, so that progress can be reported
                stop = min(stop, file.end_offset)
            stopped = self._dispatch.advance(dispatcher, stop)
            if stopped < stop:
                dispatcher.dispatched_offset = self._step_over(stopped)
            self._context.progress(_DISPATCHING, dispatcher.dispatched_offset - begin, end - begin)

    def _step_over(self, offset: int) -> int:
        """Replace the bytes at `offset`, which are not a record and lie in a file that was not scanned, by a filler.
        Returns where the next record begins."""
        scan = LogScanner(self._commit_log, check_crc=False, check_prop_crc=False)
        damage = scan.damage_at(offset)
        log.error("damage in the middle of the log: %s", damage)
        self._report.damages.append(damage)
        self._seal(damage)
        return damage.end_offset

    def _seal(self, damage: DamagedRange) -> None:
        """Replace a damaged range by a filler. The list is written first, so that slaves learn of the filler even if
        this start fails."""
        self._filled_ranges.add([(damage.physical_offset, damage.end_offset)])
        replace_with_filler(self._context, self._commit_log, damage)

    # --- damaged places ---

    def _units_in(self, damages: list[DamagedRange]) -> list[tuple[ConsumeQueue, int, DamagedRange]]:
        """Return the queue units on disk that point into damaged ranges: they tell which queue offsets the damaged
        messages had."""
        found: list[tuple[ConsumeQueue, int, DamagedRange]] = []
        for damage in damages:
            if damage.place is not None:
                continue
            for queue in self._queues:
                index, _ = cut_point(queue, damage.physical_offset, None)
                unit = queue.unit(index)
                while unit is not None and damage.physical_offset <= unit[0] < damage.end_offset and unit[1] > 0:
                    found.append((queue, index, damage))
                    index += 1
                    unit = queue.unit(index)
                self._queues.release(queue)
        return found

    def _number_behind(self, damages: list[DamagedRange]) -> None:
        """Have queues of batches give no queue offset again that a damaged message had, as the units on disk tell."""
        ranges = [(damage.physical_offset, damage.end_offset) for damage in damages]
        for batch in self._queues.batch_queues.values() if ranges else ():
            batch.number_on(batch.end_in(ranges))

    def _hide_filled(self) -> None:
        """Make places of units that point to no message in filled ranges: they are of messages that were back
        (repair.py), and a loss of power has kept the units without the records."""
        ranges = self._filled_ranges.still_filled()
        for queue in self._queues if ranges else ():
            for start, end in ranges:
                index, _ = cut_point(queue, start, None)
                unit = queue.unit(index)
                while unit is not None and index < queue.max_offset and start <= unit[0] < end:
                    if unit[2] != DAMAGED_TAGS_CODE and not has_message(self._commit_log, unit[0], unit[1]):
                        queue.put_unit(index, (unit[0], unit[1], DAMAGED_TAGS_CODE))
                    index += 1
                    unit = queue.unit(index)

    def _keep_place(self, damage: DamagedRange) -> None:
        """Write a unit for a damaged message whose header names its queue and offset. Topics stay deleted even if the
        record that deletes them is damaged."""
        for topic, at in self._deletions.lost_in(damage.physical_offset, damage.end_offset):
            self._dispatch.delete_topics([topic], at)
        place = damage.place
        if place is not None:
            self._dispatch.put_unit(
                place.topic, place.queue_id, place.queue_offset, damage.physical_offset, damage.size, DAMAGED_TAGS_CODE
            )

    def _set_queue_offsets(self) -> None:
        """Set the next queue offsets from the queues. An offset is never given twice: where all messages of a queue
        were deleted and its files are gone, its numbering continues."""
        recorded = self._inventory.queues if self._inventory is not None else {}
        begin = self._report.dispatch_from
        for queue in [queue for queue in self._numbers if self._deletions.is_deleted_since(queue.topic, begin)]:
            del self._numbers[queue]
        for topic, bounds in recorded.items():
            if self._deletions.is_deleted_since(topic, begin):
                continue  # these queues belonged to a topic that was deleted since
            for queue_id, (_, end) in bounds.items():
                queue = self._queues.open(topic, queue_id)
                self._numbers[queue] = max(self._numbers.get(queue, 0), end)
        for queue in self._queues:
            if not queue.files.files:
                queue.tail.write_offset = max(queue.tail.write_offset, self._numbers.get(queue, 0) * CQ_STORE_UNIT_SIZE)
            queue.tail.next_queue_offset = queue.end_at_start = queue.max_offset
            queue.reset_min()
        self._set_batch_offsets(begin)

    def _set_batch_offsets(self, begin: int) -> None:
        recorded = self._inventory.batch_queues if self._inventory is not None else {}
        for topic, batches in recorded.items():
            if not self._deletions.is_deleted_since(topic, begin):
                for queue_id, (_, _, end) in batches.items():
                    self._queues.load_batch(topic, queue_id).number_on(end)
        for batch in self._queues.batch_queues.values():
            batch.end_at_start = batch.max_offset
            batch.next_queue_offset = max(batch.next_queue_offset, batch.max_offset)

    # --- index ---

    def _index_start(self, end: int) -> int:
        """Return the physical offset from which the index is rebuilt. With messageIndexEnable=false the index stays as
        it is, without entries of lost records: a later start that continues it would not know that other records have
        taken their places."""
        if not self._context.config.message_index_enable:
            if self._index.files and self._index.files[-1].end_physical_offset >= end:
                self._index.destroy()
            return end
        self._index.attach_last()
        if self._index_is_complete(end):
            return end
        if not self._index.files:
            return self._commit_log.min_offset
        newest = self._index.files[-1]
        if newest.end_physical_offset >= end or newest.end_physical_offset < self._commit_log.min_offset:
            self._report.rebuild_reasons.append(
                f"the index ends at physical offset {newest.end_physical_offset}, the log is "
                f"{self._commit_log.min_offset} … {end}: the whole index"
            )
            self._index.destroy()
            return self._commit_log.min_offset
        return self._finish_last_indexed(newest)

    def _index_is_complete(self, end: int) -> bool:
        """Returns whether the index is exactly what a clean shutdown at this end of the log left."""
        inventory = self._inventory
        if inventory is None or not self._report.clean_exit or inventory.log_end != end:
            return False
        files = self._index.files
        count = files[-1].index_count if files else 0
        return inventory.index_files == [file.name for file in files] and inventory.index_count == count

    def _finish_last_indexed(self, newest: IndexFile) -> int:
        """Add the keys that the last record of the newest index file may lack, because they would have gone into the
        next file. Returns where the record behind it starts."""
        from_offset = newest.end_physical_offset
        return self._dispatch.finish_index(from_offset, newest.trailing_entries(from_offset))
