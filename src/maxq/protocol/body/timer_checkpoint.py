"""TimerCheckpoint: how far the timer of delayed messages has come; answer to 60, and the start of `config/timercheck`.

    0  i64  lastReadTimeMs            everything due before this wall time was delivered
    8  i64  lastTimerLogFlushPos      bytes of the timer log that are durable
    16 i64  lastTimerQueueOffset      place in `rmq_sys_wheel_timer` queue 0 up to which the wheel is filled
    24 i64  masterTimerQueueOffset    the same of the master, on a slave
    32 i64  stateVersion, 40 i64 timestamp, 48 i64 counter: DataVersion; absent in the answers of old brokers

Source:
    store/timer/TimerCheckpoint.java; store-format.md §16.4.
"""

import struct
from dataclasses import dataclass, field

from maxq.errors import RemoteProtocolError
from maxq.protocol.body.data_version import DataVersion

_OFFSETS = struct.Struct(">4q")
_VERSION = struct.Struct(">3q")

#: Bytes of the whole form.
SIZE = _OFFSETS.size + _VERSION.size


@dataclass(slots=True)
class TimerCheckpoint:
    """See the module."""

    last_read_time_ms: int = 0
    last_timer_log_flush_pos: int = 0
    last_timer_queue_offset: int = 0
    master_timer_queue_offset: int = 0
    data_version: DataVersion = field(default_factory=DataVersion)

    def encode(self) -> bytes:
        """56 bytes."""
        version = self.data_version
        return _OFFSETS.pack(
            self.last_read_time_ms,
            self.last_timer_log_flush_pos,
            self.last_timer_queue_offset,
            self.master_timer_queue_offset,
        ) + _VERSION.pack(version.state_version, version.timestamp, version.counter)

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview) -> "TimerCheckpoint":
        """From 32 bytes or at least 56; what follows is not looked at.

        Raises:
            RemoteProtocolError: another length.
        """
        if len(data) != _OFFSETS.size and len(data) < SIZE:
            raise RemoteProtocolError(f"a timer checkpoint has 32 or 56 bytes, not {len(data)}")
        made = cls(*_OFFSETS.unpack_from(data))
        if len(data) >= SIZE:
            state_version, timestamp, counter = _VERSION.unpack_from(data, _OFFSETS.size)
            made.data_version = DataVersion(counter, state_version, timestamp)
        return made
