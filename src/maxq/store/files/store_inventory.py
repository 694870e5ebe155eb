"""The extent of the queues and of the index at a moment: MaxQ's own file `inventory.json` in the store's root.

RocketMQ keeps nothing that says which queues there should be, so a Java broker that finds ConsumeQueues missing after a
crash dispatches only from the checkpoint's file and never notices the rest. This file closes the hole: written after
every thorough flush and at shutdown, it says "everything below `dispatched_offset` was in these queues, durable". At
start each queue is compared with it; what is short, missing or rubbish is rebuilt from the log. Without the file (a
store that comes from a Java broker, or an old one) everything is rebuilt once. A Java broker ignores it.
"""

from dataclasses import field
from typing import Any, Final

import orjson

from maxq.lazy_dataclass import dataclass
from maxq.runtime.interfaces import Disk
from maxq.store.context.store_context import StoreContext

INVENTORY_FILE: Final = "inventory.json"
_VERSION = 1
NOT_WHOLE: Final = -1
INDEX_LACKS_KEYS: Final = -1


@dataclass(slots=True)
class StoreInventory:
    """A snapshot of what the store's files hold.

    Attributes:
        dispatched_offset: physical offset up to which the queues were complete and durable; NOT_WHOLE while they are
            written below what an inventory said.
        log_end: physical end of the log at a clean shutdown; -1 while running.
        queues: topic → queue id → (queue offset at which the first file begins, queue offset behind the last unit).
        batch_queues: topic → queue id → (number of the first unit of a queue of batches, number behind the last unit,
            queue offset that no later message is below).
        index_files: names of the index files, oldest first.
        index_count: next entry number of the newest one; INDEX_LACKS_KEYS with messageIndexEnable=false.
        deletions: rows of the table of deleted topics (deletions.py), which was written before.
    """

    dispatched_offset: int = 0
    log_end: int = -1
    queues: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)
    batch_queues: dict[str, dict[int, tuple[int, int, int]]] = field(default_factory=dict)
    index_files: list[str] = field(default_factory=list)
    index_count: int = 0
    deletions: int = 0

    @property
    def is_whole(self) -> bool:
        """Return whether it says what the queues hold, and not only their next queue offsets."""
        return self.dispatched_offset != NOT_WHOLE

    def numbers(self) -> "StoreInventory":
        """Return the part that holds while the queues are rebuilt: the next queue offset of each. It is the only source
        for a queue without messages in the log."""
        ends = {topic: {number: (end, end) for number, (_, end) in ids.items()} for topic, ids in self.queues.items()}
        batches = {
            topic: {number: (0, 0, end) for number, (_, _, end) in ids.items()}
            for topic, ids in self.batch_queues.items()
        }
        return StoreInventory(NOT_WHOLE, queues=ends, batch_queues=batches, deletions=self.deletions)

    def end_of(self, topic: str, queue_id: int) -> int:
        """Return the queue offset behind the last unit; 0 for an unknown queue."""
        return self.queues.get(topic, {}).get(queue_id, (0, 0))[1]

    def encode(self) -> bytes:
        return orjson.dumps(
            {
                "version": _VERSION,
                "dispatchedOffset": self.dispatched_offset,
                "logEnd": self.log_end,
                "queues": self.queues,
                "batchQueues": self.batch_queues,
                "indexFiles": self.index_files,
                "indexCount": self.index_count,
                "deletions": self.deletions,
            },
            option=orjson.OPT_NON_STR_KEYS,
        )


def decode_inventory(data: bytes) -> StoreInventory | None:
    """Returns the snapshot; None if the bytes are not one, which counts as a missing file."""
    try:
        found: Any = orjson.loads(data)
        if found["version"] != _VERSION:
            return None
        queues = {
            str(topic): {int(queue_id): (int(first), int(end)) for queue_id, (first, end) in bounds.items()}
            for topic, bounds in found["queues"].items()
        }
        batches = {
            str(topic): {
                int(queue_id): (int(first), int(count), int(end)) for queue_id, (first, count, end) in bounds.items()
            }
            for topic, bounds in found.get("batchQueues", {}).items()
        }
        names = [str(name) for name in found["indexFiles"]]
        return StoreInventory(
            int(found["dispatchedOffset"]), int(found["logEnd"]), queues, batches, names, int(found["indexCount"]),
            int(found.get("deletions", 0)),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


class InventoryFile:
    """Reads and writes the file with the inventory of a store's files."""

    def __init__(self, context: StoreContext) -> None:
        self._disk: Disk = context.disk
        self.path = context.root / INVENTORY_FILE

    def load(self) -> StoreInventory | None:
        if not self._disk.exists(self.path):
            return None
        return decode_inventory(self._disk.read(self.path))

    def remove(self) -> None:
        """Remove the file durably, because there are no queues any more. Blocks."""
        if self._disk.exists(self.path):
            self._disk.delete(self.path)

    def save(self, inventory: StoreInventory) -> None:
        """Replace the file atomically and durably. Blocks."""
        self._disk.replace(self.path, inventory.encode())
