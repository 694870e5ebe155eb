"""A crash story of a store with ConsumeQueueExt.

Beside the rules of crash_story.py: where an extension unit can be read, it is that of its message; one of an earlier
life, or half of one, would hide the message from who selects by tags or expressions.
"""

import hashlib
from dataclasses import replace
from typing import Final

from maxq.protocol.message.message import decode_record
from maxq.store.log.tails_cy import jhash
from maxq.store.message_store import MessageStore
from maxq.store.queue.consume_queue_ext import is_ext_address
from maxq.store.recovery.recovery_report import RecoveryReport
from maxq.store.tools.queue_files import ExtFiles, QueueEntry
from maxq.testing.sim_disk import SimDisk
from tests.simulation.store.crash_story import CrashStory
from tests.simulation.store.store_world import made_of_the_log, store_files, unit_bytes
from tests.simulation.store.workload import QUEUES, TOPICS

_FILE_SIZES: Final = (1024, 8192)


def bit_map_of(topic: str, record: memoryview) -> bytes:
    """Of every message another."""
    return hashlib.md5(record[-40:]).digest()[:8]


class ExtStory(CrashStory):
    """See the module."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        size = self.rng.fork("extensions").choice(_FILE_SIZES)
        self.config = replace(self.config, enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=size)

    def _load(self, store: MessageStore) -> RecoveryReport | None:
        store.dispatch.bit_map_of = bit_map_of
        return super()._load(store)

    def _verify_queues(self, store: MessageStore, on_disk: dict[int, dict[str, object]]) -> None:
        super()._verify_queues(store, on_disk)
        for topic in TOPICS:
            for queue_id in range(QUEUES):
                self._verify_extensions(store, topic, queue_id)

    def _verify_extensions(self, store: MessageStore, topic: str, queue_id: int) -> None:
        queue = store.queue(topic, queue_id)
        if queue is None or queue.ext is None:
            return
        for place in range(store.min_offset(topic, queue_id), queue.max_offset):
            unit = queue.unit(place)
            if unit is None or not is_ext_address(unit[2]):
                continue
            record, found = store.select_one_message(unit[0]), queue.ext.get(unit[2])
            if record is None or found is None:
                self.marks.add("extension lost")
                continue
            self.marks.add("extension read")
            tags = decode_record(record).tags
            assert found.tags_code == (jhash(tags) if tags else 0), f"{topic}/{queue_id} {place}: {found}"
            maps = (bit_map_of(topic, record), b"")  # a rebuild without the broker knows no expressions
            assert found.bit_map in maps, f"{topic}/{queue_id} {place}: {found}"

    def _verify_rebuild(self) -> None:
        self.marks.add("compared with a rebuild")
        fresh = made_of_the_log(self.disk, self.config, self.clock)
        assert _with_tags(self.disk) == _with_tags(fresh), "queues differ from a rebuild"


def _with_tags(disk: SimDisk) -> dict[tuple[str, int], dict[int, QueueEntry]]:
    files = store_files(disk)
    found = unit_bytes(disk)
    for key, units in found.items():
        extensions = ExtFiles(files, files.ext_queues.get(key, []))
        for place, unit in units.items():
            if is_ext_address(unit.tags_code):
                units[place] = unit._replace(tags_code=extensions.tags_code(unit.tags_code) or 0)
        extensions.close()
    return found
