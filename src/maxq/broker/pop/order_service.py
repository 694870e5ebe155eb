"""OrderService: pops in order. ConsumerOrderInfoManager decides which messages a consumer gets. This module keeps its
table in the journal, and wakes waiting requests when a queue may be read again (ConsumerOrderInfoLockManager.java,
AckMessageProcessor.ackOrderly)."""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Any

from maxq.broker.bundles import Environment, Tables
from maxq.broker.pop.order_info import ILLEGAL, ConsumerOrderInfoManager, OrderInfo
from maxq.broker.pop.pop_journal import NOT_NOTED, PopJournal
from maxq.errors import RemoteProtocolError

log = logging.getLogger(__name__)

QueueKey = tuple[str, str, int]


class OrderService:
    """Keeps the ordered deliveries of one broker. Queues are topic, group and queue id.

    Attributes:
        table: the deliveries.
        unsaved: queue offset of the first journal record that is needed, because the file does not have its content, or
            because the next master has the journal and not the file; -1: no record is needed.
    """

    def __init__(
        self,
        env: Environment,
        tables: Tables,
        table: ConsumerOrderInfoManager,
        journal: PopJournal,
        wake: Callable[[str, str, int], None],
    ) -> None:
        self.table = table
        self._settings = env.settings
        self._offsets = tables.offsets
        self._journal = journal
        self._clock = env.clock
        self._wake = wake
        self._timers: dict[QueueKey, asyncio.TimerHandle] = {}
        self.unsaved = -1

    def is_blocked(self, topic: str, group: str, queue_id: int, attempt_id: str | None, invisible_time: int) -> bool:
        """Return whether this attempt must wait for messages that were given out before."""
        return self.table.is_blocked(topic, group, queue_id, attempt_id, invisible_time)

    def knows(self, topic: str, group: str, queue_id: int) -> bool:
        """Return whether the last delivery of this queue is known."""
        return self.table.get(topic, group, queue_id) is not None

    def clear_block(self, topic: str, group: str, queue_id: int) -> None:
        """Lift the block of a queue, because an administrator sets where the group continues."""
        self.table.clear_block(topic, group, queue_id)

    def forget(self, topics: Collection[str]) -> None:
        """Drop what was given of deleted topics."""
        self._forget([queue[:3] for queue in self.table.rows() if queue[0] in topics])

    def forget_group(self, group: str) -> None:
        """Drop the deliveries to a group that begins anew."""
        self._forget([queue[:3] for queue in self.table.rows() if queue[1] == group])

    def _forget(self, queues: list[QueueKey]) -> None:
        for queue in queues:
            self.table.clear_block(*queue)
            self._set_timer(queue, 0)

    def delivered(
        self,
        topic: str,
        group: str,
        queue_id: int,
        *,
        attempt_id: str | None,
        pop_time: int,
        invisible_time: int,
        offsets: list[int],
        committed: int,
        remote: str,
    ) -> tuple[list[str], int]:
        """Note that messages are given out from offset `committed` on. Returns the entries of orderCountInfo, and the
        physical offset that must be safe before the client gets them (0: none; NOT_NOTED: they must not be given
        out)."""
        entries = self.table.delivered(
            topic, group, queue_id,
            attempt_id=attempt_id, pop_time=pop_time, invisible_time=invisible_time, offsets=offsets,
        )  # fmt: skip
        self._offsets.commit_offset(remote, group, topic, queue_id, committed)
        return entries, self._note(topic, group, queue_id)

    def ack(self, topic: str, group: str, queue_id: int, offset: int, pop_time: int, remote: str) -> tuple[bool, int]:
        """Acknowledge one message. Returns whether it was given out, and the physical offset that must be safe before
        the client is told (0: none; NOT_NOTED: it cannot be told)."""
        committed = self._offsets.query_offset(group, topic, queue_id)
        if offset < committed:
            return True, self._journal.noted_end()
        next_offset = self.table.commit_and_next(topic, group, queue_id, offset, pop_time, committed)
        if next_offset == ILLEGAL:
            return False, 0
        if next_offset < 0:
            return True, self._journal.noted_end()
        if not self._offsets.has_offset_reset(topic, group, queue_id):
            self._offsets.commit_offset(remote, group, topic, queue_id, next_offset)
        end = self._note(topic, group, queue_id)
        if not self.table.is_blocked(topic, group, queue_id, None, 0):
            self._wake(topic, group, queue_id)
        return True, end

    def change_visible_time(
        self, topic: str, group: str, queue_id: int, offset: int, pop_time: int, visible_ms: int
    ) -> tuple[bool, int]:
        """Set when a message becomes visible, unless it is acknowledged. Returns whether it is of the last delivery, or
        acknowledged, and the physical offset as `ack` does."""
        if offset < self._offsets.query_offset(group, topic, queue_id):
            return True, self._journal.noted_end()
        if not self.table.change_visible_time(topic, group, queue_id, offset, pop_time, visible_ms):
            return False, 0
        return True, self._note(topic, group, queue_id)

    def _note(self, topic: str, group: str, queue_id: int) -> int:
        info = self.table.get(topic, group, queue_id)
        if info is None:
            return 0
        end = self._write([self._row(topic, group, queue_id, info)])
        self._set_timer((topic, group, queue_id), info.blocked_until(self._clock.wall_ms()))
        return end

    def _write(self, rows: list[list[Any]]) -> int:
        at, end = self._journal.write({"o": rows})
        if self.unsaved < 0 and (at >= 0 or end == NOT_NOTED):
            # a record that the store refused will be written behind all others
            self.unsaved = at if at >= 0 else self._journal.end
        return end

    def note_blocks(self) -> None:
        """Write the present blocks to the end of the journal again: earlier records are not needed once the file is
        written."""
        self.unsaved = -1
        now_ms = self._clock.wall_ms()
        rows = [self._row(*of_queue) for of_queue in self.table.rows() if of_queue[3].blocked_until(now_ms)]
        if rows:
            self._write(rows)

    def _row(self, topic: str, group: str, queue_id: int, info: OrderInfo) -> list[Any]:
        return [topic, group, queue_id, self._offsets.query_offset(group, topic, queue_id), info.to_json()]

    def replay(self, offset: int, entries: dict[str, list[Any]]) -> None:
        """Apply a journal record, which has queue offset `offset`."""
        for topic, group, queue_id, _ in entries.get("r", ()):
            self.table.clear_block(topic, group, queue_id)
        for topic, group, queue_id, committed, row in entries.get("o", ()):
            try:
                self.table.put(topic, group, queue_id, OrderInfo.from_json(row))
            except RemoteProtocolError as error:
                log.warning("journal record %d: %s", offset, error)
                continue
            if committed > self._offsets.query_offset(group, topic, queue_id):
                self._offsets.commit_offset("pop journal", group, topic, queue_id, committed)
            if self.unsaved < 0:
                self.unsaved = offset

    def hand_back(self) -> list[list[Any]]:
        """Return all deliveries, in the form of the journal's rows."""
        return [self._row(*of_queue) for of_queue in self.table.rows()]

    def take_back(self, rows: list[list[Any]]) -> None:
        """Take back the deliveries of a slave that acted as master, and the acks that it was given."""
        for topic, group, queue_id, committed, row in rows:
            info, own = OrderInfo.from_json(row), self.table.get(topic, group, queue_id)
            if own is not None and own.pop_time > info.pop_time:
                continue  # delivered by this slave before it had read the master's record of the queue
            if own is not None and own.pop_time == info.pop_time:
                info.committed |= own.committed
            self.table.put(topic, group, queue_id, info)
            if committed > self._offsets.query_offset(group, topic, queue_id):
                self._offsets.commit_offset("pop hand-back", group, topic, queue_id, committed)
            self._note(topic, group, queue_id)

    # --- when a queue may be read again ------------------------------------------------------------------------------

    def start(self) -> None:
        """Set a timer for each queue whose delivered messages still block it."""
        for topic, group, queue_id, until_ms in self.table.blocks():
            self._set_timer((topic, group, queue_id), until_ms)

    def stop(self) -> None:
        """Cancel the timers of all blocked queues."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _set_timer(self, queue: QueueKey, until_ms: int) -> None:
        before = self._timers.pop(queue, None)
        if before is not None:
            before.cancel()
        if not until_ms or not self._settings.broker.enable_notify_after_pop_order_lock_release:
            return
        delay = max(0, until_ms - self._clock.wall_ms()) / 1000
        self._timers[queue] = asyncio.get_running_loop().call_later(delay, self._free, queue)

    def _free(self, queue: QueueKey) -> None:
        self._timers.pop(queue, None)
        self._wake(*queue)
