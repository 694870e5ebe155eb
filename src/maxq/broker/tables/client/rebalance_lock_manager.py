"""RebalanceLockManager: which client of a group may consume a queue in order.

A lock lives until its owner unlocks it or 60 s pass without a refresh. Clients refresh every 20 s.

Source:
    broker/client/rebalance/RebalanceLockManager.java.
"""

from collections.abc import Iterable
from typing import Final

from maxq.lazy_dataclass import dataclass
from maxq.protocol.message.message_queue import MessageQueue
from maxq.runtime.interfaces import Clock

LOCK_MAX_LIVE_MS: Final = 60_000


@dataclass(slots=True)
class LockEntry:
    """The holder of a queue's lock, and when it was refreshed last (monotonic milliseconds)."""

    client_id: str
    last_update_ms: int

    def is_expired(self, now_ms: int) -> bool:
        return now_ms - self.last_update_ms > LOCK_MAX_LIVE_MS


class RebalanceLockManager:
    """Locks per (group, queue), in memory only: after a restart clients lock again within 20 s.

    In a group of brokers only one grants them at a time, the master or the slave that acts as master: `start` and
    `stop` make it this one, and another. (A Java slave grants locks to every client that still takes it for the master,
    beside the master's own.)
    """

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._locks: dict[str, dict[MessageQueue, LockEntry]] = {}
        self._has_authority = True

    def start(self) -> None:
        """Start to grant locks of queues: this broker is now the one that grants them for its group."""
        self._has_authority = True

    def stop(self) -> None:
        """Stop granting locks: another broker grants them from now on, and it does not know those granted here."""
        self._has_authority = False
        self._locks.clear()

    def try_lock_batch(
        self, group: str, queues: Iterable[MessageQueue], client_id: str, *, only_this_broker: bool = False
    ) -> set[MessageQueue]:
        """Lock or refresh the queues that are free, expired or already the caller's. Returns the queues that are now
        its own.

        `only_this_broker`: the master of the group asks, for lockInStrictMode, so its slaves grant too.
        """
        if not (self._has_authority or only_this_broker):
            return set()
        now_ms = self._clock.monotonic_ms()
        table = self._locks.setdefault(group, {})
        locked: set[MessageQueue] = set()
        for queue in queues:
            entry = table.get(queue)
            if entry is None or entry.is_expired(now_ms):
                table[queue] = LockEntry(client_id, now_ms)
            elif entry.client_id == client_id:
                entry.last_update_ms = now_ms
            else:
                continue
            locked.add(queue)
        return locked

    def holder(self, group: str, queue: MessageQueue) -> str | None:
        """Return the client that has locked a queue; None if none has."""
        entry = self._locks.get(group, {}).get(queue)
        return None if entry is None or entry.is_expired(self._clock.monotonic_ms()) else entry.client_id

    def unlock_batch(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Release the caller's locks; those of others stay."""
        table = self._locks.get(group)
        if table is None:
            return
        for queue in queues:
            entry = table.get(queue)
            if entry is not None and entry.client_id == client_id:
                del table[queue]
        if not table:
            del self._locks[group]

    def is_lock_all_expired(self, group: str) -> bool:
        """Return True if no member of the group consumes in order now. (A send to its retry topic may then go to the
        DLQ.)"""
        now_ms = self._clock.monotonic_ms()
        return all(entry.is_expired(now_ms) for entry in self._locks.get(group, {}).values())

    def drop_expired(self) -> None:
        """Remove locks whose owners are gone, so that deleted topics and groups leave nothing behind."""
        now_ms = self._clock.monotonic_ms()
        for group, table in list(self._locks.items()):
            for queue in [queue for queue, entry in table.items() if entry.is_expired(now_ms)]:
                del table[queue]
            if not table:
                del self._locks[group]
