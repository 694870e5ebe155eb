"""HiddenMessages: what of a queue nobody is shown any more, though the log still has it; and log files that only hold
such messages.

A queue has a lower bound of its own (`ConsumeQueue.hidden_below`, a queue offset). Below it messages are as those that
were cleaned away: readers are sent to the bound (OFFSET_TOO_SMALL), the minimum offset is the bound. The bound is set
anew after every start, by whoever knows why (broker/tables/topic/topic_retention.py); nothing of it is in the store's
files.

The log's first file may go when every queue's first shown message lies behind it. One queue that still shows something
of the file answers for all: it is remembered and asked first.
"""

import asyncio
import struct
from collections.abc import Callable
from typing import Final

from maxq.store.files.mapped_file import MappedFile
from maxq.store.log.commit_log import CommitLog
from maxq.store.queue.consume_queue import CQ_STORE_UNIT_SIZE, ConsumeQueue
from maxq.store.queue.consume_queue_store import ConsumeQueueStore

_SIZES: Final = struct.Struct(">8xi8x")
_UNITS_AT_ONCE: Final = 10_000  # units that are read at once, in some half a millisecond
_QUEUES_AT_ONCE: Final = 200


class _Sizes:
    """Sizes, in bytes, of the messages `low` to `end` - 1 of one queue."""

    __slots__ = ("end", "low", "total")

    def __init__(self, start: int) -> None:
        self.low = self.end = start
        self.total = 0


class HiddenMessages:
    """The hidden messages of one store: those before a bound that is set for a queue.

    Attributes:
        is_used: something is hidden, so files are worth a look.
        needed_from: physical offset from which on others (slaves that copy) still need the log; None: nobody does.
    """

    def __init__(self, commit_log: CommitLog, queues: ConsumeQueueStore) -> None:
        self._commit_log = commit_log
        self._queues = queues
        self._sizes: dict[tuple[str, int], _Sizes] = {}
        self._shows: ConsumeQueue | None = None  # a queue that still needed the log's first file when it was last asked
        self.is_used = False
        self.needed_from: Callable[[], int | None] = lambda: None

    # ---- the bound --------------------------------------------------------------------------------------------

    def hide_below(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Hide all messages below `queue_offset`, also of a queue whose messages a slave or a member has yet to
        receive. A higher bound is kept."""
        queue = self._queues.open(topic, queue_id) if queue_offset > 0 else self._queues.find(topic, queue_id)
        if queue is not None and queue.hidden_below < queue_offset:
            queue.hidden_below = queue_offset
            self.is_used = True

    def show_all(self, topic: str) -> None:
        """Remove the bounds of a topic, and its counted sizes."""
        for queue in self._queues.of_topic(topic):
            queue.hidden_below = 0
        self.forget(topic)

    def is_hidden(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Returns whether this message is below the bound of its queue."""
        queue = self._queues.find(topic, queue_id)
        return queue is not None and queue_offset < queue.hidden_below

    # ---- by size ----------------------------------------------------------------------------------------------

    async def first_of_last_bytes(self, topic: str, queue_id: int, most: int) -> int:
        """Return the queue offset from which on the queue's messages take at most `most` bytes of the log. The loop
        runs other tasks meanwhile; counted sizes are kept."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return 0
        start = queue.min_offset(self._commit_log.min_offset)
        sizes = self._sizes.get((topic, queue_id))
        if sizes is None or not sizes.low <= start <= sizes.end or queue.max_offset < sizes.end:
            sizes = self._sizes[topic, queue_id] = _Sizes(start)
        while sizes.end < queue.max_offset and (count := self._add(queue, sizes)):
            if count == _UNITS_AT_ONCE:
                await asyncio.sleep(0)
        while (sizes.total > most or sizes.low < start) and sizes.low < sizes.end:
            unit = queue.unit(sizes.low)
            sizes.total -= unit[1] if unit is not None else 0
            sizes.low += 1
            if sizes.low % _UNITS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return sizes.low

    @staticmethod
    def _add(queue: ConsumeQueue, sizes: _Sizes) -> int:
        units = queue.some_units_from(sizes.end, _UNITS_AT_ONCE)
        if units is None:
            return 0
        sizes.total += sum(size for (size,) in _SIZES.iter_unpack(units))
        count = len(units) // CQ_STORE_UNIT_SIZE
        sizes.end += count
        return count

    def forget(self, topic: str) -> None:
        """Forget the counted sizes, because the topic was deleted."""
        for key in [key for key in self._sizes if key[0] == topic]:
            del self._sizes[key]

    # ---- files of the log -------------------------------------------------------------------------------------

    async def hides_all_of(self, file: MappedFile) -> bool:
        """Return whether all messages of the log's first file are hidden."""
        needed_from = self.needed_from()
        if not self.is_used or (needed_from is not None and needed_from < file.end_offset):
            return False
        if self._shows is not None and self._shows_some(self._shows, file):
            return False
        low = self._commit_log.min_offset
        for batch in list(self._queues.batch_queues.values()):
            unit = batch.unit(batch.find_index(max(batch.min_offset(low), 0)))
            if unit is not None and unit.physical_offset < file.end_offset:
                return False
        for position, queue in enumerate(list(self._queues)):
            if self._shows_some(queue, file):
                self._shows = queue
                return False
            if position % _QUEUES_AT_ONCE == _QUEUES_AT_ONCE - 1:
                await asyncio.sleep(0)
        return True

    def _shows_some(self, queue: ConsumeQueue, file: MappedFile) -> bool:
        if self._queues.find(queue.topic, queue.queue_id) is not queue:
            return False  # the queue was deleted
        first = queue.min_offset(self._commit_log.min_offset)
        if first >= queue.max_offset:
            return False
        unit = queue.unit(first)
        return unit is None or unit[0] < file.end_offset
