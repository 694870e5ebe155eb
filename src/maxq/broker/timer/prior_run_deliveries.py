"""PriorRunDeliveries: what was delivered and the checkpoint does not know of, when a broker begins to deliver.

The copies lie behind a place in the CommitLog that the checkpoint names. They are looked for once, and forgotten when
the wheel has passed all that they may be copies of.
"""

import asyncio

from maxq.store.message_store import MessageStore
from maxq.store.timer.delivered_copies import DeliveredCopies, copies_behind, first_position
from maxq.store.timer.timer_message_store import TimerMessageStore
from maxq.store.timer.timer_record import TimerRecord


class PriorRunDeliveries:
    """The deliveries before a start; see the module's docstring.

    Attributes:
        scanned_from: physical offset behind which the copies lie; None once the wheel has passed them.
    """

    def __init__(self, store: MessageStore, timer: TimerMessageStore) -> None:
        self._store = store
        self._timer = timer
        self._copies = DeliveredCopies()
        self._delivered: set[int] = set()  # physical offsets of records whose copies were found
        self._made_until_ms = 0
        self.scanned_from: int | None = None

    async def look_for(self) -> None:
        """Read the end of the log, in several turns of the loop."""
        start = self._timer.dedupe_position
        if start is None:
            start = first_position(self._store, self._timer.read_time_ms)
            if self._timer.told_position >= 0:  # times of brokers whose clocks differ do not say where to look
                start = min(start, self._timer.told_position)
        self.scanned_from = max(start, self._store.min_physical_offset)
        self._copies, self._delivered = await self._found(self.scanned_from), set()

    async def _found(self, start: int) -> DeliveredCopies:
        found = DeliveredCopies()
        self._made_until_ms = 0
        if self._timer.topic.max_queue_offset:
            for copies in copies_behind(self._store, start):
                for identity, rolls, made_ms in copies:
                    found.add(identity, rolls)
                    if (out_ms := int(identity[2])) <= made_ms:  # else it was put round
                        self._timer.note_delivered(out_ms)
                    self._made_until_ms = max(self._made_until_ms, made_ms)
                await asyncio.sleep(0)
        return found

    def take(self, record: TimerRecord) -> bool:
        """Return whether `record` was delivered. Each copy is matched with one record only, however often it is asked
        for."""
        if record.physical_offset not in self._delivered:
            if not self._copies.take(record.identity, record.rolls):
                return False
            self._delivered.add(record.physical_offset)
        return True

    def forget_passed(self, now_ms: int) -> None:
        """Forget deliveries before `now_ms`, whose slots are all delivered now. If the clock was set back since, this
        waits until it is as late as when the copies were made."""
        passed_ms = max(now_ms, self._timer.floor(self._made_until_ms))
        if self.scanned_from is not None and self._timer.read_time_ms >= passed_ms:
            self.scanned_from = None
            self._copies = DeliveredCopies()
            self._delivered = set()
