"""Frames made by hand, and the two facts of an answer that the generator needs: its code and whose answer it is.

All frames of one ring have the same length, so a window of them is one slice of one buffer. Numbers that change have
fixed places: 7-digit opaques, 8 hex digits of the unique key that tell the passes over the ring apart.
"""

import json
import struct
from collections.abc import Mapping

OPAQUE_BASE = 1_000_000  # seven digits in every opaque
_JSON, _ROCKETMQ = 0, 1
_LENGTHS = struct.Struct(">II")
_ROCKETMQ_HEAD = struct.Struct(">HBHIII")
_RECORD_HOP = struct.Struct(">I")
VERSION = 479
_PROPERTIES_LENGTH_SIZE = 2


def encode(opaque: int, code: int, fields: Mapping[str, str], body: bytes, *, binary: bool) -> bytes:
    """One whole request frame, its 4-byte length included."""
    if binary:
        ext = b"".join(
            len(name).to_bytes(2, "big") + name.encode() + len(text.encode()).to_bytes(4, "big") + text.encode()
            for name, text in fields.items()
        )
        header = _ROCKETMQ_HEAD.pack(code, 0, VERSION, opaque, 0, 0) + len(ext).to_bytes(4, "big") + ext
    else:
        header = json.dumps(
            {
                "code": code,
                "extFields": fields,
                "flag": 0,
                "language": "JAVA",
                "opaque": opaque,
                "serializeTypeCurrentRPC": "JSON",
                "version": VERSION,
            },
            separators=(",", ":"),
        ).encode()
    kind = _ROCKETMQ if binary else _JSON
    return _LENGTHS.pack(4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def ext_field(frame: bytes | memoryview, name: str) -> str | None:
    """One header field of an answer (whole frame, length included); None if it is not there."""
    (marked,) = _RECORD_HOP.unpack_from(frame, 4)
    header = bytes(frame[8 : 8 + (marked & 0xFFFFFF)])
    if marked >> 24 == _JSON:
        value = (json.loads(header).get("extFields") or {}).get(name)
        return None if value is None else str(value)
    # i16 code, i8 language, i16 version, i32 opaque, i32 flag, i32 remark length, remark, i32 ext length, entries
    remark = _RECORD_HOP.unpack_from(header, 13)[0]
    position = 17 + remark + 4
    while position < len(header):
        size = int.from_bytes(header[position : position + 2], "big")
        key = header[position + 2 : position + 2 + size].decode()
        position += 2 + size
        size = int.from_bytes(header[position : position + 4], "big")
        if key == name:
            return header[position + 4 : position + 4 + size].decode()
        position += 4 + size
    return None


def code_and_opaque(buffer: bytearray, start: int) -> tuple[int, int]:
    """Of the answer whose frame begins at `start`. JSON headers are searched, not parsed: that keeps this cheap."""
    if buffer[start + 4] == _ROCKETMQ:
        return int.from_bytes(buffer[start + 8 : start + 10], "big"), int.from_bytes(
            buffer[start + 13 : start + 17], "big"
        )
    return _number(buffer, b'"code":', start + 8), _number(buffer, b'"opaque":', start + 8)


def _number(buffer: bytearray, name: bytes, start: int) -> int:
    first = buffer.index(name, start) + len(name)
    last = first + 1
    while 48 <= buffer[last] <= 57:
        last += 1
    return int(buffer[first:last])


class SendRing:
    """Pre-encoded send requests of one connection, used round and round.

    Attributes:
        count: frames in the ring; the opaque of frame i is OPAQUE_BASE + i.
        frame_length: bytes of each.
        view: of all of them.

    The first 8 body bytes of every message are a timestamp (i64 nanoseconds) that `stamp` sets.
    """

    def __init__(
        self, *, topic: str, queues: int, connection: int, size: int, batch: int, count: int, binary: bool, now_ms: int
    ) -> None:
        self.count = count
        frames = []
        body = _body(size, connection)
        for number in range(count):
            properties = (
                f"TAGS\x01TagA\x02KEYS\x01k{number:08d}\x02WAIT\x01true\x02"
                f"UNIQ_KEY\x017F000001{connection:08X}PPPPPPPP{number:08X}"
            )
            payload, outer = body, properties
            if batch > 1:
                payload = b"".join(_inner(body, f"{properties}{inner:04X}".encode()) for inner in range(batch))
                outer = "WAIT\x01true"
            fields = {  # SendMessageRequestHeaderV2
                "a": "bench_group",
                "b": topic,
                "c": "TBW102",
                "d": "4",
                "e": str((number + connection) % queues),
                "f": "0",
                "g": str(now_ms),
                "h": "0",
                "i": outer,
                "j": "0",
                "k": "false",
                "l": "16",
                "m": "true" if batch > 1 else "false",
                "n": "broker-a",
            }
            frames.append(encode(OPAQUE_BASE + number, 320 if batch > 1 else 310, fields, payload, binary=binary))
        self.frame_length = len(frames[0])
        if any(len(frame) != self.frame_length for frame in frames):
            raise AssertionError("frames of one ring differ in length: more than 10 queues?")
        self._buffer = bytearray(b"".join(frames))
        self.view = memoryview(self._buffer)
        self._passes_at = _positions(frames[0], b"PPPPPPPP")
        self._stamps_at = _positions(frames[0], body[:16]) if size >= 16 else []
        self.start_pass(0)

    def start_pass(self, number: int) -> None:
        """Make the unique keys of this round differ from the last one's: one strided copy per digit."""
        for place, digit in enumerate(b"%08X" % (number & 0xFFFFFFFF)):
            column = bytes((digit,)) * self.count
            for at in self._passes_at:
                self._buffer[at + place :: self.frame_length] = column

    def stamp(self, number: int, now_ns: int) -> None:
        """Write a time into the bodies of frame `number`."""
        start = number * self.frame_length
        stamp = now_ns.to_bytes(8, "big")
        for at in self._stamps_at:
            self._buffer[start + at : start + at + 8] = stamp


def _positions(frame: bytes, mark: bytes) -> list[int]:
    found, at = [], frame.find(mark)
    while at >= 0:
        found.append(at)
        at = frame.find(mark, at + 1)
    return found


def _body(size: int, seed: int) -> bytes:
    """`size` bytes that do not compress: a xorshift generator, the same for the same seed."""
    state = (seed * 2654435761 + 1) & 0xFFFFFFFF or 1
    out = bytearray()
    while len(out) < size:
        state ^= (state << 13) & 0xFFFFFFFF
        state ^= state >> 17
        state ^= (state << 5) & 0xFFFFFFFF
        out += state.to_bytes(4, "big")
    return bytes(out[:size])


def _inner(body: bytes, properties: bytes) -> bytes:
    """One message of a batch body: i32 size, 12 × 0, i32 body length, body, i16 properties length, properties."""
    size = 20 + len(body) + _PROPERTIES_LENGTH_SIZE + len(properties)
    return (
        size.to_bytes(4, "big")
        + bytes(12)
        + len(body).to_bytes(4, "big")
        + body
        + len(properties).to_bytes(_PROPERTIES_LENGTH_SIZE, "big")
        + properties
    )
