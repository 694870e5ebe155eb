"""Where this log is not what was once written: ranges over which a start has put a filler (damage.py).

On a master the filler is a loss that its slaves know nothing of, and in a slave's copy of it nothing tells a BLANK that
is a filler from one that ends a file. So every store keeps a list of these ranges, `seals.json`: the ranges that its
own starts have filled, and those that the master it copies from has named (frames.py, ha_client.py). The next master
names them again. A range stays on the list when its true bytes are back: what counts is what the log holds there now,
which `CRC32` tells to the other side.
"""

import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from maxq.store.context.store_context import StoreContext
from maxq.store.dispatch.queue_offset_resolver import QueueOffsetResolver
from maxq.store.files.mapped_file_queue import is_offset_name
from maxq.store.log.commit_log import CommitLog
from maxq.store.log.deletions import Deletions
from maxq.store.queue.consume_queue_store import ConsumeQueueStore
from maxq.store.recovery.damage_names import DAMAGED_FOLDER
from maxq.store.recovery.filled_ranges_file import FILLED_RANGES_FILE, decode_ranges, encode_ranges
from maxq.store.recovery.restore_places import hold_last_places, is_restored


class FilledRange(NamedTuple):
    """Bytes [start, end) of the log, within one file, and the CRC-32 of one side's bytes."""

    start: int
    end: int
    crc: int


class FilledRanges:
    """The list of filled ranges of one store.

    Attributes:
        as_on_master: (start, end) of those where the connected master has said that it has the same bytes.
    """

    def __init__(
        self,
        context: StoreContext,
        commit_log: CommitLog,
        resolver: QueueOffsetResolver,
        queues: ConsumeQueueStore,
        deletions: Deletions,
    ) -> None:
        """`resolver` is told which bytes of messages may be missing."""
        self._context = context
        self._queues = queues
        self._deletions = deletions
        self._resolver = resolver
        self._commit_log = commit_log
        self._path = context.root / FILLED_RANGES_FILE
        self._ranges: set[tuple[int, int]] = set()
        self.as_on_master: frozenset[tuple[int, int]] = frozenset()

    def load(self) -> None:
        """Load the list, and find ranges that were replaced before the list existed. An unreadable file counts as
        missing. Blocks."""
        disk = self._context.disk
        listed = decode_ranges(disk.read(self._path)) if disk.exists(self._path) else set()
        own = {
            (int(entry.name), int(entry.name) + entry.size)
            for entry in disk.list(self._context.root / DAMAGED_FOLDER)
            if is_offset_name(entry.name) and entry.size
        }
        self._ranges = listed
        self._resolver.lose(listed)
        self.add(own)

    def add(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Add ranges to the list, durably. Blocks if any is new. Raises OSError if the disk refuses."""
        new = set(ranges) - self._ranges
        if not new:
            return
        kept = sorted(one for one in self._ranges | new if one[1] > self._commit_log.min_offset)
        self._context.disk.replace(self._path, encode_ranges(kept))
        self._ranges = set(kept)
        self._resolver.lose(kept)

    def ranges(self) -> list[tuple[int, int]]:
        """Returns the (start, end) of the ranges that lie in the log, in order."""
        low, high = self._commit_log.min_offset, self._commit_log.max_offset
        return sorted((start, end) for start, end in self._ranges if low <= start and end <= high)

    def write_again(self) -> None:
        """Write the bytes of all ranges again, durably, after an unclean end: they were written later than what lies
        around them, and no checkpoint tells whether their sync succeeded. Blocks."""
        for start, end in sorted(self._ranges):
            for file, first, behind in self._commit_log.ranges(start, end):
                file.region.write_again(first, behind)
                file.region.flush(first, behind)

    def named(self) -> list[FilledRange]:
        """Return what a master sends a slave about its ranges. Reads their bytes."""
        return [FilledRange(start, end, self._crc(start, end)) for start, end in self.ranges()]

    def still_filled(self) -> list[tuple[int, int]]:
        """Return the ranges that contain a filler, or the rest of restored records after a loss of power. Reads their
        bytes."""
        return [(start, end) for start, end in self.ranges() if not is_restored(self._commit_log, start, end - start)]

    def contradicting(self, named: Sequence[FilledRange]) -> list[FilledRange]:
        """Return the master's ranges in which this log has bytes that differ from the master's and are not a filler of
        its own."""
        low, high = self._commit_log.min_offset, self._commit_log.max_offset
        other = [
            one
            for one in named
            if one.end > low and one.start < high and (one.end > high or self._crc(one.start, one.end) != one.crc)
        ]
        if not other:
            return []
        fillers = self.still_filled()
        return [one for one in other if not any(start <= one.start and one.end <= end for start, end in fillers)]

    async def hold_last_places(self, ranges: Sequence[FilledRange]) -> bool:
        """Return whether this log has the last message of a queue in these ranges: a master that lost them may have
        given its place to another message."""
        spans = [(start, end) for start, end, _ in ranges]
        return await hold_last_places(self._commit_log, self._queues, self._deletions, spans)

    def adopt(self, named: Sequence[FilledRange]) -> None:
        """Add the master's ranges: this log is a copy of its log, fillers included. Blocks if any is new. Raises
        OSError if the disk refuses."""
        self.add((one.start, one.end) for one in named)
        self.as_on_master = frozenset((s, e) for s, e, crc in named if crc == self._crc(s, e))

    def _crc(self, start: int, end: int) -> int:
        data = self._commit_log.get(start, end - start)
        return 0 if data is None else zlib.crc32(data)
