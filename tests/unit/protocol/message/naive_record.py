"""A second, naive reading of the record and batch formats, written from store-format.md §3 and broker-api.md §4.

Slow and plain on purpose: it shares nothing with maxq.protocol.message.message but the table in the specification.
"""

import io
import zlib
from dataclasses import dataclass


class Bad(Exception):
    """Not a record."""


@dataclass
class NaiveRecord:
    total: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared: int
    body: bytes
    topic: bytes
    properties: bytes


def exactly(stream: io.BytesIO, count: int) -> bytes:
    if count < 0:
        raise Bad("negative")
    data = stream.read(count)
    if len(data) != count:
        raise Bad("short")
    return data


def number(stream: io.BytesIO, count: int, signed: bool = True) -> int:
    return int.from_bytes(exactly(stream, count), "big", signed=signed)


def read_record(data: bytes, check_crc: bool) -> NaiveRecord:
    stream = io.BytesIO(data)
    total = number(stream, 4, signed=False)
    magic = number(stream, 4, signed=False)
    if magic not in (0xDAA320A7, 0xDAA320AB):
        raise Bad("magic")
    if total > len(data):
        raise Bad("size")
    stream = io.BytesIO(data[:total])
    stream.seek(8)
    crc = number(stream, 4, signed=False)
    queue_id, flag = number(stream, 4), number(stream, 4)
    queue_offset, physical_offset = number(stream, 8), number(stream, 8)
    sys_flag = number(stream, 4)
    born = number(stream, 8)
    born_host = exactly(stream, 20 if sys_flag & 16 else 8)
    store = number(stream, 8)
    store_host = exactly(stream, 20 if sys_flag & 32 else 8)
    reconsume, prepared = number(stream, 4), number(stream, 8)
    body = exactly(stream, number(stream, 4))
    topic = exactly(stream, number(stream, 1 if magic == 0xDAA320A7 else 2))
    properties = exactly(stream, number(stream, 2))
    if stream.read(1):
        raise Bad("left over")
    if check_crc and zlib.crc32(body) & 0x7FFFFFFF != crc:
        raise Bad("crc")
    return NaiveRecord(
        total, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born, born_host, store, store_host,
        reconsume, prepared, body, topic, properties,
    )  # fmt: skip


def write_record(record: NaiveRecord) -> bytes:
    def part(value: int, count: int) -> bytes:
        return (value & (1 << 8 * count) - 1).to_bytes(count, "big")

    tail = b"".join([
        part(record.magic, 4), part(zlib.crc32(record.body) & 0x7FFFFFFF, 4), part(record.queue_id, 4),
        part(record.flag, 4), part(record.queue_offset, 8), part(record.physical_offset, 8), part(record.sys_flag, 4),
        part(record.born_timestamp, 8), record.born_host, part(record.store_timestamp, 8), record.store_host,
        part(record.reconsume_times, 4), part(record.prepared, 8), part(len(record.body), 4), record.body,
        part(len(record.topic), 1 if record.magic == 0xDAA320A7 else 2), record.topic,
        part(len(record.properties), 2), record.properties,
    ])  # fmt: skip
    return part(len(tail) + 4, 4) + tail


def read_batch(data: bytes) -> list[tuple[int, bytes, bytes]]:
    """(flag, body, properties) of each."""
    found = []
    while data:
        stream = io.BytesIO(data)
        size = number(stream, 4)
        if size < 22 or size > len(data):
            raise Bad("size")
        stream = io.BytesIO(data[:size])
        stream.seek(12)
        flag = number(stream, 4)
        body = exactly(stream, number(stream, 4))
        properties = exactly(stream, number(stream, 2))
        if stream.read(1):
            raise Bad("left over")
        found.append((flag, body, properties))
        data = data[size:]
    return found


def read_properties(text: str) -> dict[str, str]:
    """store-format.md §3.3, chunk by chunk."""
    found = {}
    for chunk in text.split("\x02"):
        if len(chunk) >= 3:
            at = chunk.find("\x01")
            if 0 < at < len(chunk) - 1:
                found[chunk[:at]] = chunk[at + 1 :]
    return found
