"""The file `config/timercheck`, 4096 bytes: how far the timer is (TimerCheckpoint.java).

Bytes 0 … 55 are Java's (see protocol/body/timer_checkpoint.py). Behind them, where Java leaves everything as it is:

    64 i64  dedupe position: copies of messages delivered after this checkpoint lie at or behind it in the CommitLog
    72 i64  precision of the wheel, ms
    80 i32  CRC-32 of bytes 0 … 79; wrong when a Java broker wrote the checkpoint last, and then these two count for
            nothing
"""

import struct
import zlib
from pathlib import PurePath
from typing import Final

from maxq.protocol.body.timer_checkpoint import SIZE, TimerCheckpoint
from maxq.runtime.interfaces import Disk, MappedRegion

FILE_NAME: Final = "timercheck"
FILE_SIZE: Final = 4096

_OWN: Final = struct.Struct(">qqI")
_OWN_AT: Final = 64
_OWN_CRC_AT: Final = _OWN_AT + 16


class TimerCheckpointFile:
    """The file of one store.

    Attributes:
        checkpoint: as the file says.
        dedupe_position: None if nobody knows.
        precision_ms: None if nobody knows.
        is_new: there was no file, or an empty one.
    """

    def __init__(self, disk: Disk, path: PurePath) -> None:
        self._disk = disk
        self._path = path
        self._region: MappedRegion | None = None
        self.checkpoint = TimerCheckpoint()
        self.dedupe_position: int | None = None
        self.precision_ms: int | None = None
        self.is_new = True

    def load(self) -> None:
        """Read it; made if it is missing. Blocks. OSError if the disk refuses."""
        data = self._disk.read(self._path) if self._disk.exists(self._path) else b""
        self.is_new = not any(data[:SIZE])
        if len(data) != FILE_SIZE:  # an old broker's, or a torn one
            self._disk.make_dirs(self._path.parent)
            self._disk.replace(self._path, data[:FILE_SIZE].ljust(FILE_SIZE, b"\0"))
        data = data.ljust(FILE_SIZE, b"\0")
        self.checkpoint = TimerCheckpoint.decode(data)
        self.dedupe_position = self.precision_ms = None
        position, precision, crc = _OWN.unpack_from(data, _OWN_AT)
        if crc == zlib.crc32(data[:_OWN_CRC_AT]):
            self.dedupe_position, self.precision_ms = position, precision
        self._region = self._disk.map(self._path, FILE_SIZE)

    def save(self, checkpoint: TimerCheckpoint, dedupe_position: int, precision_ms: int) -> None:
        """Write it, durably. Blocks; may run in another thread. OSError if the disk refuses."""
        assert self._region is not None, "load() comes before save()"
        data = bytearray(_OWN_AT + _OWN.size)
        data[:SIZE] = checkpoint.encode()
        _OWN.pack_into(data, _OWN_AT, dedupe_position, precision_ms, 0)
        struct.pack_into(">I", data, _OWN_CRC_AT, zlib.crc32(data[:_OWN_CRC_AT]))
        self._region.write(0, memoryview(data))
        self._region.flush(0, FILE_SIZE)

    def release(self) -> None:
        if self._region is not None:
            self._region.close()
            self._region = None
