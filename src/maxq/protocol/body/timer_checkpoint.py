"""TimerCheckpoint: progress of the timer of delayed messages; answer to 60, and the start of `config/timercheck`.

    0  i64  lastReadTimeMs            everything due before this wall time was delivered
    8  i64  lastTimerLogFlushPos      bytes of the timer log that are durable
    16 i64  lastTimerQueueOffset      place in `rmq_sys_wheel_timer` queue 0 up to which the wheel is filled
    24 i64  masterTimerQueueOffset    the same of the master, on a slave
    32 i64  stateVersion, 40 i64 timestamp, 48 i64 counter: DataVersion; absent in the answers of old brokers

MaxQ's brokers append more, which Java's ignore: how long the log is that the checkpoint refers to, because a slave must
not count messages as delivered that its log does not have; and messages that could not be delivered when they were due,
and therefore lie in another slot of the wheel than their records say.

    0  4 B  "MXQM"
    4  i32  number of such messages
    8  i32  CRC-32 of the bytes from 12 to n
    12 i64  physical end of the CommitLog
    20      for each message: i64 physical offset of its record, i32 size of the record, i64 its slot, ms
    n  i64  physical offset behind which the copies of messages lie that were delivered after this checkpoint
       i32  CRC-32 of everything before, from byte 12 on
       i64  roll window of the broker that fills the wheel, ms; i32 its timerPrecisionMs
       i32  CRC-32 of these two
       i64  the latest value that lastReadTimeMs has had, ms
       i32  CRC-32 of this one. Earlier versions leave out the last two fields, the last five, or the last seven

Source:
    store/timer/TimerCheckpoint.java.
"""

import struct
import zlib
from dataclasses import field
from typing import NamedTuple

from maxq.errors import RemoteProtocolError
from maxq.lazy_dataclass import dataclass
from maxq.protocol.body.data_version import DataVersion

_OFFSETS = struct.Struct(">4q")
_VERSION = struct.Struct(">3q")

_MOVED_HEAD = struct.Struct(">4siI")
_LOG_END = struct.Struct(">q")
_MOVED = struct.Struct(">qiq")
_MOVED_MAGIC = b"MXQM"
_DEDUPE = struct.Struct(">q")
_CRC = struct.Struct(">I")
_SLOTS = struct.Struct(">qi")
_LATEST = struct.Struct(">q")

#: Bytes of Java's form.
SIZE = _OFFSETS.size + _VERSION.size


class MovedMessage(NamedTuple):
    """A message that lies in another slot of the wheel than its record says, where no other broker finds it."""

    physical_offset: int
    size: int
    slot_ms: int


@dataclass(slots=True)
class TimerCheckpoint:
    """The checkpoint of a timer; see the module's text.

    Attributes:
        moved: messages in other slots than their records say; None: unknown, as in a Java broker's checkpoint.
        log_end: physical offset before which the delivered messages lie; 0: unknown.
        dedupe_position: physical offset behind which copies of later deliveries lie; −1: unknown.
        window_ms: the roll window with which messages were put into slots; 0: unknown.
        precision_ms: precision of the slots; 0: unknown.
        latest_ms: the latest value that `last_read_time_ms` has had; 0: unknown.
    """

    last_read_time_ms: int = 0
    last_timer_log_flush_pos: int = 0
    last_timer_queue_offset: int = 0
    master_timer_queue_offset: int = 0
    data_version: DataVersion = field(default_factory=DataVersion)
    moved: tuple[MovedMessage, ...] | None = None
    log_end: int = 0
    dedupe_position: int = -1
    window_ms: int = 0
    precision_ms: int = 0
    latest_ms: int = 0

    def encode(self) -> bytes:
        """Return the 56 bytes of Java's file `timercheck`."""
        version = self.data_version
        return _OFFSETS.pack(
            self.last_read_time_ms,
            self.last_timer_log_flush_pos,
            self.last_timer_queue_offset,
            self.master_timer_queue_offset,
        ) + _VERSION.pack(version.state_version, version.timestamp, version.counter)

    def encode_answer(self) -> bytes:
        """Return the bytes for another broker: Java's, and MaxQ's part where it is known."""
        return self.encode() + self.encode_own()

    def encode_own(self) -> bytes:
        """Encode MaxQ's part; empty where it is not known."""
        if self.moved is None:
            return b""
        content = _LOG_END.pack(self.log_end) + b"".join(_MOVED.pack(*message) for message in self.moved)
        head = _MOVED_HEAD.pack(_MOVED_MAGIC, len(self.moved), zlib.crc32(content))
        content += _DEDUPE.pack(self.dedupe_position)
        slots = _SLOTS.pack(self.window_ms, self.precision_ms)
        known = b"".join(
            part + _CRC.pack(zlib.crc32(part)) for part in (slots, _LATEST.pack(self.latest_ms)) if self.window_ms
        )
        return head + content + _CRC.pack(zlib.crc32(content)) + known

    def decode_own(self, data: bytes | bytearray | memoryview) -> None:
        """Decode MaxQ's part, if `data` begins with all of it."""
        if len(data) < _MOVED_HEAD.size:
            return
        magic, count, crc = _MOVED_HEAD.unpack_from(data)
        size = _LOG_END.size + count * _MOVED.size
        rest = data[_MOVED_HEAD.size :]
        content = rest[: max(size, 0)]
        if magic != _MOVED_MAGIC or count < 0 or len(content) != size or crc != zlib.crc32(content):
            return
        (self.log_end,) = _LOG_END.unpack_from(content)
        self.moved = tuple(MovedMessage._make(entry) for entry in _MOVED.iter_unpack(content[_LOG_END.size :]))
        end = size + _DEDUPE.size
        if len(rest) >= end + _CRC.size and _CRC.unpack_from(rest, end)[0] == zlib.crc32(rest[:end]):
            (self.dedupe_position,) = _DEDUPE.unpack_from(rest, size)
            self._decode_slots(rest[end + _CRC.size :])

    def _decode_slots(self, data: bytes | bytearray | memoryview) -> None:
        if len(data) >= _SLOTS.size + _CRC.size and _CRC.unpack_from(data, _SLOTS.size)[0] == zlib.crc32(
            data[: _SLOTS.size]
        ):
            window_ms, precision_ms = _SLOTS.unpack_from(data)
            if window_ms > 0 and precision_ms > 0:
                self.window_ms, self.precision_ms = window_ms, precision_ms
            rest = data[_SLOTS.size + _CRC.size :]
            if len(rest) >= _LATEST.size + _CRC.size and _CRC.unpack_from(rest, _LATEST.size)[0] == zlib.crc32(
                rest[: _LATEST.size]
            ):
                (self.latest_ms,) = _LATEST.unpack_from(rest)

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview) -> "TimerCheckpoint":
        """Decode a checkpoint of 32 bytes or of at least 56; what follows and is not MaxQ's part is ignored.

        Raises:
            RemoteProtocolError: another length.
        """
        if len(data) != _OFFSETS.size and len(data) < SIZE:
            raise RemoteProtocolError(f"a timer checkpoint has 32 or 56 bytes, not {len(data)}")
        made = cls(*_OFFSETS.unpack_from(data))
        if len(data) >= SIZE:
            state_version, timestamp, counter = _VERSION.unpack_from(data, _OFFSETS.size)
            made.data_version = DataVersion(counter, state_version, timestamp)
            made.decode_own(memoryview(data)[SIZE:])
        return made
