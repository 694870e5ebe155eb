"""Deliveries since delayOffset.json was last written, found in the log itself.

The file is written every ten seconds, deliveries happen in between. A Java broker that was killed delivers them once
more. Here a start looks at what the log holds beyond the place that the file names (or, in a file that Java wrote,
beyond the first message that the file calls undelivered) and counts every delivery that it finds there. A slave that
becomes the master finds what its master delivered in its own copy of the log, so neither does a change of roles deliver
twice.

Deliveries of one level lie in the log in the order of its queue. Messages missing in between could not be delivered, or
were lost with the power: any part of an unflushed end of the log may be lost while later parts exist. Nobody can tell
which, so all of these are delivered again. Such a delivery is out of order, and the next start knows it all the same.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from maxq.broker.schedule_message.delay_level_queue import DelayedUnit
from maxq.broker.schedule_message.delay_levels import delay_level_of
from maxq.broker.schedule_message.delay_offset_table import DelayOffsetTable
from maxq.broker.schedule_message.delayed_message import DELIVERED_MARK, is_delivery_of, looks_delivered
from maxq.broker.schedule_message.store_schedule_queue import StoreScheduleQueue
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import MessageExt
from maxq.store.message_store import MessageStore

log = logging.getLogger(__name__)

#: Most messages in a row that may have been skipped between two deliveries for the second still to be found.
UNDELIVERED_MOST: Final = 64
_TURN: Final = 256  # messages of deleted topics that are handled before other work gets its turn


class DeliveryRecovery:
    """Updates a DelayOffsetTable from the log.

    Attributes:
        missed: (level, unit) of messages below the table's offsets whose delivery is not in the log: postponed ones,
            and some that are due, for one that was stored after them was delivered.
    """

    def __init__(
        self,
        store: MessageStore,
        levels: Iterable[int],
        queue_of: Callable[[int], StoreScheduleQueue],
        table: DelayOffsetTable,
    ) -> None:
        self._store = store
        self._levels = list(levels)
        self._queue_of = queue_of
        self._table = table
        self.missed: list[tuple[int, DelayedUnit]] = []
        # level → {first queue offset: offset behind the last} of runs of messages whose topics were deleted
        self._gone: dict[int, dict[int, int]] = {}

    async def find(self) -> int:
        """Advance the offsets of the table. The loop runs other tasks meanwhile; no delivery may run.

        Returns:
            How many deliveries were found that the table did not know.
        """
        for level, offset in sorted(self._table.postponed):
            found_unit = self._queue_of(level).unit(offset)
            if found_unit is not None:
                self.missed.append((level, DelayedUnit(offset, *found_unit)))
        start = self._start()
        if start is None:
            return 0
        found = 0
        for offsets in self._store.records_with(DELIVERED_MARK, start):
            for physical_offset in offsets:
                record = self._store.look_message_by_offset(physical_offset)
                if record is not None and looks_delivered(record):
                    found += await self._take(record)
            await asyncio.sleep(0)
        if found:
            log.warning("%d delayed messages were delivered after delayOffset.json was written: they are found in the "
                        "log from %d on, and not delivered again", found, start)  # fmt: skip
        return found

    def _start(self) -> int | None:
        """Return the log offset from which to search: the one that the table states, else the first message that it
        calls undelivered, because copies lie behind it; None if nothing can have been delivered. A message that is
        not due may have been: the clock may have been set back since."""
        first = [
            unit[0]
            for level in self._levels
            if (unit := self._queue_of(level).unit(self._table.offset(level))) is not None
        ]
        first += [unit.physical_offset for _, unit in self.missed]
        if not first or self._table.physical_offset is None:
            return min(first, default=None)
        return self._table.physical_offset

    async def _take(self, record: MessageExt) -> int:
        level = delay_level_of(record.properties)
        if level <= 0:
            return 0
        for one in self.missed:
            if one[0] == level and self._is_delivery_of(record, one[1]):
                self.missed.remove(one)
                return 1
        queue, offset = self._queue_of(level), self._table.offset(level)
        passed: list[tuple[int, DelayedUnit]] = []
        gone = self._gone.setdefault(level, {})
        at, run = offset - 1, -1  # `run`: where the run of deleted messages begins that ends at `at`
        while (at := at + 1) < queue.max_offset:
            if at in gone:
                run, at = at, gone[at] - 1
                continue
            found = queue.unit(at)
            if found is None:
                continue
            unit = DelayedUnit(at, *found)
            if unit.physical_offset > record.physical_offset or len(passed) >= UNDELIVERED_MOST:
                return 0
            delayed = self._store.look_message_by_offset(unit.physical_offset)
            if delayed is not None and is_delivery_of(record, delayed):
                self._table.update(level, at + 1)
                self.missed += passed
                return 1
            if not self._had_gone(delayed, record):
                passed.append((level, unit))
                continue
            run = run if gone.get(run) == at else at
            gone[run] = at + 1
            if at % _TURN == 0:
                await asyncio.sleep(0)
        return 0

    def _is_delivery_of(self, record: MessageExt, unit: DelayedUnit) -> bool:
        delayed = self._store.look_message_by_offset(unit.physical_offset)
        return delayed is not None and is_delivery_of(record, delayed)

    def _had_gone(self, delayed: MessageExt | None, record: MessageExt) -> bool:
        """Return whether the topic of this delayed message was deleted after it was stored, and before `record` was:
        it was dropped when it was due."""
        if delayed is None:
            return False
        deleted_at = self._store.incarnation(delayed.properties.get(const.PROPERTY_REAL_TOPIC, ""))
        return delayed.physical_offset < deleted_at < record.physical_offset
