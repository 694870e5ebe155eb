"""UnverifiedRecord: the last record of a slave's log that may lack its end, kept beside the log until that is known.

A slave that is killed may have all of a record but the last bytes of its properties, which have no check sum: where
they should be are zeros. A record whose properties do end with a zero byte looks the same. If its queue has it, it was
whole once. It then leaves the log, which ends before it, and its bytes go into a file of their own, `doubtful.record`
in the store: so they are kept until the master sends the record again, or this broker becomes the master and accepts it
unverified. A record that is in no queue and not in this file counts as never complete: a record is acknowledged only
after it was put into its queue. After a loss of power, the parts of the log that survive say nothing about the parts of
the queues that survive.
"""

import struct
import zlib
from typing import Final

from maxq.store.context.store_context import StoreContext

UNVERIFIED_FILE: Final = "doubtful.record"
_HEAD: Final = struct.Struct(">qI")  # physical offset, CRC-32 of the record


class UnverifiedRecord:
    """The file of one store that keeps an unverified record. All methods block and raise OSError if the disk
    refuses."""

    def __init__(self, context: StoreContext) -> None:
        self._disk = context.disk
        self._path = context.root / UNVERIFIED_FILE

    def keep(self, physical_offset: int, record: bytes) -> None:
        """Write a record of the log, and its physical offset, to a file of its own, durably."""
        if self.read(physical_offset) != record:
            self._disk.replace(self._path, _HEAD.pack(physical_offset, zlib.crc32(record)) + record)

    def read(self, physical_offset: int) -> bytes:
        """Return the record kept for this position of the log; empty if there is none. An unreadable file counts as
        missing."""
        if not self._disk.exists(self._path):
            return b""
        data = self._disk.read(self._path)
        if len(data) <= _HEAD.size:
            return b""
        offset, crc = _HEAD.unpack_from(data)
        record = data[_HEAD.size :]
        return record if offset == physical_offset and zlib.crc32(record) == crc else b""

    def forget(self) -> None:
        """Remove the file, because the log now has the record."""
        if self._disk.exists(self._path):
            self._disk.delete(self._path)
