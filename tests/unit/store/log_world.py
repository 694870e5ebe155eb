"""A naive store around the compiled append and dispatch: files in memory, and what records look like."""

import struct
import zlib
from types import ModuleType

BORN = bytes([127, 0, 0, 1]) + (40000).to_bytes(4, "big")
STORE = bytes([10, 0, 0, 1]) + (10911).to_bytes(4, "big")


class Owner:
    """Files in memory: queues of 5 units a file, indexes of 8 entries."""

    def __init__(self, form: ModuleType) -> None:
        self.form = form
        self.topics: dict = {}
        self.files: dict = {}
        self.special: list = []
        self.index = form.IndexTail()
        self.index_files: list[bytearray] = []
        self.roll_index(0, 0)

    def open_queue(self, topic: bytes, queue_id: int):
        tail = self.topics.setdefault(topic, self.form.TopicWriteState(topic.decode()))
        queue = self.form.QueueTail(topic.decode(), queue_id, None)
        tail.set_queue(queue_id, queue)
        return queue

    def roll_queue(self, queue, queue_offset: int, physical_offset: int, size: int) -> bool:
        start = queue_offset * 20 // 100 * 100
        region = self.files.setdefault((queue.topic, queue.queue_id, start), bytearray(100))
        queue.attach(memoryview(region), start, queue_offset * 20 - start)
        return True

    def roll_index(self, physical_offset: int, store_timestamp: int) -> None:
        region = bytearray(40 + 4 * 7 + 20 * 9)
        self.index_files.append(region)
        self.index.attach(memoryview(region), 7, 9)

    def dispatch_uncommon(self, position: int, size: int, physical_offset: int, view: memoryview) -> None:
        self.special.append(physical_offset)

    def units(self, topic: str, queue_id: int) -> list[tuple[int, int, int]]:
        found = []
        for (name, number, _start), region in sorted(self.files.items()):
            if (name, number) == (topic, queue_id):
                found += [unit for unit in struct.iter_unpack(">qiq", region) if unit[1]]
        return found


def record(
    topic: bytes, queue_id: int, queue_offset: int, physical: int, body: bytes, properties: bytes, sys_flag: int = 0
) -> bytes:
    """The naive encoder."""
    rest = struct.pack(
        ">iIiiqqiq",
        0xDAA320A7 - (1 << 32),
        zlib.crc32(body) & 0x7FFFFFFF,
        queue_id,
        7,
        queue_offset,
        physical,
        sys_flag,
        1000,
    )
    rest += BORN + struct.pack(">q", 2000) + STORE + struct.pack(">iq", 0, 0) + struct.pack(">i", len(body)) + body
    rest += bytes([len(topic)]) + topic + struct.pack(">h", len(properties)) + properties
    return struct.pack(">i", len(rest) + 4) + rest
