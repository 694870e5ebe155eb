"""A second, naive implementation: what a store's files must hold, computed from the log record by record.

Slow and simple on purpose, and independent of the compiled modules.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

V1, V2, BLANK = 0xDAA320A7, 0xDAA320AB, 0xCBD43194


@dataclass
class Record:
    physical_offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_timestamp: int
    body: bytes
    properties: dict[str, str]

    @property
    def keys(self) -> list[str]:
        found = [self.properties["UNIQ_KEY"]] if "UNIQ_KEY" in self.properties else []
        return found + [key for key in self.properties.get("KEYS", "").split(" ") if key]


def java_hash(text: str) -> int:
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(data), 2):
        value = (31 * value + int.from_bytes(data[i : i + 2], "big")) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def parse(data: bytes, position: int) -> Record | None:
    """The record at `position` by the rules of CommitLog.checkMessageAndReturnSize (own offset not compared)."""
    if position + 91 > len(data):
        return None
    total, magic, crc, queue_id, _, queue_offset, physical, sys_flag, _ = struct.unpack_from(
        ">iIiiiqqiq", data, position
    )
    if magic not in (V1, V2) or total < 91 or position + total > len(data):
        return None
    at = position + 48 + (20 if sys_flag & 0x10 else 8)
    (stored,) = struct.unpack_from(">q", data, at)
    at += 8 + (20 if sys_flag & 0x20 else 8) + 12
    (size,) = struct.unpack_from(">i", data, at)
    body = data[at + 4 : at + 4 + size]
    at += 4 + size
    form = ">b" if magic == V1 else ">h"
    (size,) = struct.unpack_from(form, data, at)
    at += struct.calcsize(form)
    topic = data[at : at + size].decode()
    at += size
    (size,) = struct.unpack_from(">h", data, at)
    text = data[at + 2 : at + 2 + size].decode()
    if at + 2 + size != position + total or (body and zlib.crc32(body) & 0x7FFFFFFF != crc):
        return None
    pairs = (chunk.split("\x01", 1) for chunk in text.split("\x02") if "\x01" in chunk)
    return Record(
        physical, total, topic, queue_id, queue_offset, sys_flag, stored, body, {k: v for k, v in pairs if k and v}
    )


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name.isdigit()) if folder.is_dir() else []


def java_reads(root: Path) -> tuple[list[Record], int]:
    """What a Java broker's recovery, started at the first file, keeps: records up to the first bad byte, and the
    end."""
    records: list[Record] = []
    end = 0
    for path in files(root / "commitlog"):
        data, position = path.read_bytes(), 0
        while True:
            if position + 8 <= len(data) and struct.unpack_from(">I", data, position + 4)[0] == BLANK:
                break
            record = parse(data, position)
            if record is None:
                return records, int(path.name) + position
            records.append(record)
            position += record.size
            end = int(path.name) + position
    return records, end


def queues_of(records: list[Record]) -> dict[tuple[str, int], dict[int, tuple[int, int, int]]]:
    """(topic, queue id) → queue offset → (physical offset, size, tags code)."""
    queues: dict[tuple[str, int], dict[int, tuple[int, int, int]]] = {}
    for record in records:
        if record.sys_flag & 0xC in (0x4, 0xC):
            continue
        tags = record.properties.get("TAGS")
        unit = (record.physical_offset, record.size, java_hash(tags) if tags else 0)
        queues.setdefault((record.topic, record.queue_id), {})[record.queue_offset] = unit
    return queues


def queues_on_disk(root: Path) -> dict[tuple[str, int], dict[int, tuple[int, int, int]]]:
    """The same from the ConsumeQueue files; pre-blank units and zeros are left out."""
    queues: dict[tuple[str, int], dict[int, tuple[int, int, int]]] = {}
    for folder in sorted((root / "consumequeue").glob("*/*")):
        units: dict[int, tuple[int, int, int]] = {}
        for path in files(folder):
            data = path.read_bytes()
            for i in range(0, len(data), 20):
                unit = struct.unpack_from(">qiq", data, i)
                if unit[1] not in (0, 0x7FFFFFFF):
                    units[(int(path.name) + i) // 20] = unit
        if units:
            queues[folder.parent.name, int(folder.name)] = units
    return queues


def index_files_of(records: list[Record], slots: int, entries: int) -> list[bytes]:
    """The index files that indexing `records` in order gives (IndexService.buildIndex)."""
    made: list[bytearray] = []
    for record in records:
        if record.sys_flag & 0xC == 0xC:
            continue
        for key in record.keys:
            if not made or struct.unpack_from(">i", made[-1], 36)[0] >= entries:
                file = bytearray(40 + 4 * slots + 20 * entries)
                _, end, _, end_offset = struct.unpack_from(">qqqq", made[-1]) if made else (0, 0, 0, 0)
                struct.pack_into(">qqqqii", file, 0, end, end, end_offset, end_offset, 0, 1)
                made.append(file)
            _put(made[-1], slots, f"{record.topic}#{key}", record)
    return [bytes(file) for file in made]


def _put(file: bytearray, slots: int, text: str, record: Record) -> None:
    begin, _, begin_offset, _, used, count = struct.unpack_from(">qqqqii", file)
    value = abs(java_hash(text))
    value = 0 if value == 1 << 31 else value
    slot = 40 + 4 * (value % slots)
    (previous,) = struct.unpack_from(">i", file, slot)
    previous = 0 if previous <= 0 or previous > count else previous
    seconds = 0 if begin <= 0 else min(max(0, int((record.store_timestamp - begin) / 1000)), 0x7FFFFFFF)
    struct.pack_into(">iqii", file, 40 + 4 * slots + 20 * count, value, record.physical_offset, seconds, previous)
    struct.pack_into(">i", file, slot, count)
    if count <= 1:
        begin, begin_offset = record.store_timestamp, record.physical_offset
    used += 1 if previous == 0 else 0
    struct.pack_into(
        ">qqqqii", file, 0, begin, record.store_timestamp, begin_offset, record.physical_offset, used, count + 1
    )


def index_on_disk(root: Path) -> list[bytes]:
    return [path.read_bytes() for path in files(root / "index")]


def log_bytes(root: Path) -> Iterator[tuple[int, bytes]]:
    for path in files(root / "commitlog"):
        yield int(path.name), path.read_bytes()
