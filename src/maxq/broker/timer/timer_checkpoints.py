"""TimerCheckpoints: writes the timer's state every timerFlushIntervalMs, when all that it rests on can be lost no more.

Source:
    store/timer/TimerMessageStore.java TimerFlushService.
"""

import asyncio
import logging
from typing import Final, Protocol

from maxq.config.settings import BrokerSettings
from maxq.runtime.blocking import CHECKPOINTS
from maxq.runtime.interfaces import Clock
from maxq.store.durability.log_marks import LogMark
from maxq.store.message_store import MessageStore
from maxq.store.timer.delivered_copies import first_position
from maxq.store.timer.timer_message_store import Checkpoint, TimerMessageStore

log = logging.getLogger(__name__)

_IDLE_CHECKPOINT_MS: Final = 10_000


class TimerProgress(Protocol):
    """The progress that a checkpoint records of the parts that fill the wheel and deliver.

    Attributes:
        is_dequeuing: this broker delivers.
        term: of the leadership that delivers (LogMark).
        enqueued, dequeued: messages since the start.
    """

    is_dequeuing: bool
    term: int
    enqueued: int
    dequeued: int

    def dedupe_position(self) -> int:
        """Return the physical offset behind which the copies of those messages lie that a checkpoint of this moment
        does not record as delivered."""
        ...


class TimerCheckpoints:
    """Writes the timer's checkpoints; see the module's text.

    Attributes:
        rates: messages a second that were enqueued and dequeued between the last two checkpoints.
    """

    def __init__(
        self,
        timer: TimerMessageStore,
        progress: TimerProgress,
        *,
        settings: BrokerSettings,
        store: MessageStore,
        clock: Clock,
    ) -> None:
        self._timer = timer
        self._progress = progress
        self._settings = settings
        self._store = store
        self._clock = clock
        self.rates = (0.0, 0.0)
        self._writing = asyncio.Lock()

    async def run(self) -> None:
        """Write checkpoints periodically until cancelled."""
        progress = self._progress
        while True:
            began_ms, enqueued, dequeued = self._clock.monotonic_ms(), progress.enqueued, progress.dequeued
            await asyncio.sleep(self._settings.store.timer_flush_interval_ms / 1000)
            await self.write(dequeues=progress.is_dequeuing)
            seconds = max(self._clock.monotonic_ms() - began_ms, 1) / 1000
            self.rates = ((progress.enqueued - enqueued) / seconds, (progress.dequeued - dequeued) / seconds)

    async def write(self, *, dequeues: bool, is_last: bool = False) -> None:
        """Write the present state, unless the last checkpoint has the same, or the records it depends on may still be
        lost.

        Args:
            dequeues: this broker delivers, or did until now.
            is_last: also if the timer was idle.
        """
        async with self._writing:
            await self._write_now(dequeues=dequeues, is_last=is_last)

    async def _write_now(self, *, dequeues: bool, is_last: bool) -> None:
        checkpoint, mark = self._timer.freeze(self._position(dequeues), dequeues=dequeues), self._store.marks.mark()
        written = False
        try:
            if (is_last or not self._is_idle(checkpoint)) and await self._may_write(
                checkpoint, mark if dequeues else None
            ):
                await CHECKPOINTS.run(self._write, checkpoint)
                written = True
        except OSError as error:
            log.error("the timer's checkpoint cannot be written, it is tried again: %s", error)
        finally:
            self._timer.thaw(checkpoint, written=written)

    def _position(self, dequeues: bool) -> int:
        if dequeues:
            return self._progress.dedupe_position()
        known = self._timer.dedupe_position
        if known is None:  # another broker delivers, and only its read time is known
            return first_position(self._store, self._timer.read_time_ms)
        return known

    def _is_idle(self, checkpoint: Checkpoint) -> bool:
        saved, values = self._timer.saved, checkpoint.values
        return (
            not checkpoint.pages
            and values.last_timer_queue_offset == saved.last_timer_queue_offset
            and values.last_timer_log_flush_pos == saved.last_timer_log_flush_pos
            and 0 <= values.last_read_time_ms - saved.last_read_time_ms < _IDLE_CHECKPOINT_MS
        )

    async def _may_write(self, checkpoint: Checkpoint, mark: LogMark | None) -> bool:
        """Return whether all records that the checkpoint depends on are safe. `mark` is that of the broker that
        delivers; the wheel of another broker depends only on what it has read."""
        store = self._store
        if mark is not None:
            return mark.term == self._progress.term and await store.marks.make_final(mark)
        if store.flushed_offset < checkpoint.log_end:
            await store.flush()
        return store.flushed_offset >= checkpoint.log_end

    def _write(self, checkpoint: Checkpoint) -> None:
        self._timer.write(checkpoint)
        metrics = self._timer.metrics
        if metrics.is_changed:
            metrics.is_changed = False
            try:
                metrics.persist()
            except OSError:
                metrics.is_changed = True
                raise
