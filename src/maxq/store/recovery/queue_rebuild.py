"""All queues from the whole log, written over the files that are there.

Nothing on disk is believed, and little of it changes: after a kill -9 the units written are those that stand there
already. Deleting and making 20 000 files, durably, takes ten times as long (and ext4 does not hand out the inodes of
files deleted in the last half minute, but looks at each of them for every new file).

A crash in the middle leaves a mixture of old and new units. The inventory speaks for none of it, so the next start
builds everything anew again.

One thing is read in the old files before they are written over: where a record whose own queue offset is in doubt had
its place (`place_before`). A unit that points exactly to the record can hardly stand in a wrong place: its place is not
in its bytes.
"""

from bisect import bisect_left

from maxq.store.files.mapped_file import MappedFile
from maxq.store.queue.consume_queue import BLANK_UNIT_SIZE, CQ_STORE_UNIT_SIZE, UNIT, ConsumeQueue
from maxq.store.queue.consume_queue_store import ConsumeQueueStore
from maxq.store.queue.unit_scan_cy import DAMAGED_TAGS_CODE


class QueueRebuild:
    """Rebuilds all queues. Its constructor empties them, dispatch fills them again, and `finish` cuts off what the
    files held beyond that."""

    def __init__(self, queues: ConsumeQueueStore) -> None:
        self._queues = queues
        self._before = queues.forget_all()
        queues.before_release = ConsumeQueue.clear_rest

    def place_before(self, queue: ConsumeQueue, claimed: int, physical_offset: int, size: int) -> int | None:
        """Return the queue offset of the unit that pointed to a record, preferably `claimed`. None if no unit did, or
        if it may have been overwritten."""
        files = self._before.get(queue)
        if not files:
            return None
        units = _OldUnits(files)
        try:
            place = claimed if units.is_of(claimed, physical_offset, size) else units.find(physical_offset, size)
        finally:
            units.release()
        return place if place is not None and place >= queue.max_offset else None

    def forget(self, topics: list[str], physical_offset: int) -> None:
        """Forget the old files of these topics, which the record at `physical_offset` deletes."""
        for queue in [queue for queue in self._before if queue.topic in topics]:
            del self._before[queue]

    def finish(self, min_physical_offset: int) -> dict[ConsumeQueue, int]:
        """Delete the rest of the old files after all records were dispatched, except those of the returned queues,
        which the caller deletes later. Blocks.

        Args:
            min_physical_offset: where the log begins.

        Returns:
            For each queue of which the log has no message any more: how far its files say numbering had come.
        """
        self._queues.before_release = None
        for queue in self._queues.mapped():  # queues that were unmapped meanwhile were cleared then
            queue.clear_rest()
        numbers: dict[ConsumeQueue, int] = {}
        for queue, files in self._before.items():
            if self._queues.find(queue.topic, queue.queue_id) is not queue:
                continue  # the topic turned out to be one of batches, and its files are set aside
            if files and not queue.files.files:
                queue.files.files = files
                numbers[queue] = cut_point(queue, min_physical_offset, None)[0]
                self._queues.release(queue)
                queue.forget()
            elif len(files) > 1 or (files and files[0].file_from_offset != queue.files.min_offset):
                kept = {file.file_from_offset for file in queue.files.files}
                for file in files:
                    if file.file_from_offset not in kept:
                        file.destroy()
        return numbers


class _OldUnits:
    """The units of one queue as its old files have them. Loading the files has checked that there are no gaps between
    them."""

    def __init__(self, files: list[MappedFile]) -> None:
        self._files = files
        self._file_size = files[0].file_size
        self._first = files[0].file_from_offset // CQ_STORE_UNIT_SIZE
        self._end = files[-1].end_offset // CQ_STORE_UNIT_SIZE

    def find(self, physical_offset: int, size: int) -> int | None:
        """Return the queue offset of the unit of a record; None if there is none."""
        place = bisect_left(range(self._end), physical_offset, self._first, key=self._physical_offset)
        while place < self._end and self._unit(place) == (physical_offset, size, DAMAGED_TAGS_CODE):
            place += 1  # the places of lost messages point to the message behind them
        return place if self.is_of(place, physical_offset, size) else None

    def is_of(self, queue_offset: int, physical_offset: int, size: int) -> bool:
        """Returns whether this unit points to that record."""
        if not self._first <= queue_offset < self._end:
            return False
        unit = self._unit(queue_offset)
        return unit[:2] == (physical_offset, size) and unit[2] != DAMAGED_TAGS_CODE

    def release(self) -> None:
        for file in self._files:
            file.release()

    def _unit(self, queue_offset: int) -> tuple[int, int, int]:
        number, position = divmod((queue_offset - self._first) * CQ_STORE_UNIT_SIZE, self._file_size)
        unit: tuple[int, int, int] = UNIT.unpack_from(self._files[number].view, position)
        return unit

    def _physical_offset(self, queue_offset: int) -> int:
        """Return the physical offset of a unit for the binary search; for a unit that was never written, a value above
        all others."""
        unit = self._unit(queue_offset)
        return unit[0] if unit[1] > 0 else 1 << 63


def cut_point(queue: ConsumeQueue, physical_offset: int, most: int | None) -> tuple[int, int]:
    """Count the units of a queue, as its files hold them, whose records lie below `physical_offset`.

    Args:
        most: it can be no more than this many; None if nothing is known.

    Returns:
        (queue offset behind the last of them, end of that one's record or -1).
    """
    last = queue.files.last
    if last is None:
        return queue.max_offset, -1
    low = first = queue.files.min_offset // CQ_STORE_UNIT_SIZE
    high = last.end_offset // CQ_STORE_UNIT_SIZE
    if most is not None:
        high = max(low, min(high, most))
        # the last unit is old, so nothing was added since: no search is needed
        if _is_below(queue.unit(high - 1), physical_offset):
            low = high
    while low < high:
        middle = (low + high) // 2
        if _is_below(queue.unit(middle), physical_offset):
            low = middle + 1
        else:
            high = middle
    unit = queue.unit(low - 1) if low > first else None
    if unit is None:
        return low, -1
    if unit[1] == BLANK_UNIT_SIZE:  # the queue has only pre-blank units, so it begins with its first message
        return first, -1
    return low, unit[0] if unit[2] == DAMAGED_TAGS_CODE else unit[0] + unit[1]


def _is_below(unit: tuple[int, int, int] | None, physical_offset: int) -> bool:
    """Returns whether this is a unit of a record below `physical_offset`."""
    return unit is not None and unit[1] > 0 and 0 <= unit[0] < physical_offset
