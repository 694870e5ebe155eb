"""The file `config/timercheck`, 4096 bytes or more: the timer's progress (TimerCheckpoint.java).

Bytes 0 … 55 are Java's (see protocol/body/timer_checkpoint.py). Behind them, in bytes that Java does not change:

    64 i64  dedupe position: copies of messages delivered after this checkpoint lie at or behind it in the CommitLog
    72 i64  precision of the wheel, ms
    80 i32  CRC-32 of bytes 0 … 79; wrong if a Java broker wrote the checkpoint last: then MaxQ's fields are ignored
    96      the part that MaxQ's brokers exchange: end of the log, messages in other slots than their records say

At the end of the file, if other brokers have delivered from this wheel: pairs of i64 time, ms, and i64 position of the
timer log (DeliveredSlots); then i32 number of pairs, i32 CRC-32 of the pairs, "MXQD".
"""

import struct
import zlib
from dataclasses import replace
from pathlib import PurePath
from typing import Final

from maxq.protocol.body.timer_checkpoint import SIZE, MovedMessage, TimerCheckpoint
from maxq.runtime.interfaces import Disk

FILE_NAME: Final = "timercheck"
FILE_SIZE: Final = 4096

_OWN: Final = struct.Struct(">qqI")
_OWN_AT: Final = 64
_OWN_CRC_AT: Final = _OWN_AT + 16
_TOLD_AT: Final = 96
_PAIR: Final = struct.Struct(">qq")
_PAIRS_END: Final = struct.Struct(">iI4s")
_PAIRS_MAGIC: Final = b"MXQD"


class TimerCheckpointFile:
    """The timer's checkpoint file of one store.

    Attributes:
        checkpoint: the last one that was loaded or saved.
        dedupe_position: None if nobody knows.
        precision_ms: None if nobody knows.
        delivered: how far other brokers have delivered: times fall, positions of the timer log rise.
        is_new: there was no file, or an empty one.
    """

    def __init__(self, disk: Disk, path: PurePath) -> None:
        self._disk = disk
        self._path = path
        self.checkpoint = TimerCheckpoint()
        self.dedupe_position: int | None = None
        self.precision_ms: int | None = None
        self.delivered: tuple[tuple[int, int], ...] = ()
        self.is_new = True

    def load(self) -> None:
        """Read the file, or create it. Blocks. Raises OSError if the disk refuses."""
        data = self._disk.read(self._path) if self._disk.exists(self._path) else b""
        self.is_new = not any(data[:SIZE])
        if len(data) < FILE_SIZE:  # written by an old broker, or incomplete
            data = data.ljust(FILE_SIZE, b"\0")
            self._disk.make_dirs(self._path.parent)
            self._disk.replace(self._path, data)
        self.checkpoint = TimerCheckpoint.decode(data[:SIZE])
        self.dedupe_position = self.precision_ms = None
        self.delivered = ()
        position, precision, crc = _OWN.unpack_from(data, _OWN_AT)
        if crc == zlib.crc32(data[:_OWN_CRC_AT]):
            self.dedupe_position, self.precision_ms = position, precision
            self.checkpoint.decode_own(data[_TOLD_AT:])
            self.delivered = _decode_pairs(data)

    def save(
        self,
        checkpoint: TimerCheckpoint,
        dedupe_position: int,
        precision_ms: int,
        delivered: tuple[tuple[int, int], ...] = (),
    ) -> None:
        """Write the checkpoint durably and atomically. Blocks; may run in another thread. Raises OSError if the disk
        refuses."""
        data = bytearray(FILE_SIZE)
        data[:SIZE] = checkpoint.encode()
        _OWN.pack_into(data, _OWN_AT, dedupe_position, precision_ms, 0)
        struct.pack_into(">I", data, _OWN_CRC_AT, zlib.crc32(data[:_OWN_CRC_AT]))
        own = checkpoint.encode_own()
        data[_TOLD_AT : _TOLD_AT + len(own)] = own
        pairs = _encode_pairs(delivered)
        if pairs:
            del data[max(_TOLD_AT + len(own), FILE_SIZE - len(pairs)) :]
            data += pairs
        self._disk.replace(self._path, bytes(data))
        self.checkpoint, self.dedupe_position, self.precision_ms = checkpoint, dedupe_position, precision_ms
        self.delivered = delivered

    def name_moved(self, moved: tuple[MovedMessage, ...] | None) -> None:
        """Have the last checkpoint name these messages, too, before the wheel is written without their former slots: a
        process that is killed before the next checkpoint would take them for delivered. Blocks, as `save` does. Does
        nothing if it names them, if a Java broker wrote it, for then all moved messages count, or if it is the first
        one, for then the wheel is made from the timer log.

        Raises:
            OSError: the disk refuses.
        """
        named = self.checkpoint.moved
        if moved is None or named is None or set(moved) <= set(named):
            return
        assert self.dedupe_position is not None and self.precision_ms is not None, "MaxQ wrote it"
        both = {message.physical_offset: message for message in (*named, *moved)}
        named_all = replace(self.checkpoint, moved=tuple(both.values()))
        self.save(named_all, self.dedupe_position, self.precision_ms, self.delivered)


def _encode_pairs(pairs: tuple[tuple[int, int], ...]) -> bytes:
    if not pairs:
        return b""
    content = b"".join(_PAIR.pack(*pair) for pair in pairs)
    return content + _PAIRS_END.pack(len(pairs), zlib.crc32(content), _PAIRS_MAGIC)


def _decode_pairs(data: bytes) -> tuple[tuple[int, int], ...]:
    count, crc, magic = _PAIRS_END.unpack_from(data, len(data) - _PAIRS_END.size)
    start = len(data) - _PAIRS_END.size - count * _PAIR.size
    content = data[max(start, 0) : len(data) - _PAIRS_END.size]
    if magic != _PAIRS_MAGIC or start < 0 or count < 0 or crc != zlib.crc32(content):
        return ()
    return tuple((time_ms, position) for time_ms, position in _PAIR.iter_unpack(content))
