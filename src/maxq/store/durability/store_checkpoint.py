"""How far what is durable reaches: one page (StoreCheckpoint.java).

    0 physicMsgTimestamp:8   8 logicsMsgTimestamp:8   16 indexMsgTimestamp:8   24 masterFlushedOffset:8
    32 confirmPhyOffset:8   40 logicsPhysicalOffset:8 (5.5; 0 in older files)
    48 CRC-32 of the 48 bytes before:4 (MaxQ; 0 if a Java broker made the file)
    52 flushedOffset:8   60 CRC-32 of the 60 bytes before:4 (MaxQ)   rest of 4096 bytes: kept as it is

Times are store timestamps in milliseconds; everything stored up to them is durable in the log, the ConsumeQueues,
and the full index files. Below flushedOffset, a physical offset, the log is durable: a start after an unclean end
writes again what lies behind it (log_recovery.py). A wrong number makes recovery believe what was never flushed, hence
the CRCs: if they do not match (a changed bit, a torn page, or a Java broker wrote the file since), all numbers count as
0.
"""

import logging
import struct
import zlib

from maxq.runtime.interfaces import MappedRegion
from maxq.store.context.store_context import StoreContext
from maxq.store.files.mapped_file import OS_PAGE_SIZE

log = logging.getLogger(__name__)

_FIELDS = struct.Struct(">qqqqqq")
_CRC = struct.Struct(">I")
_FLUSHED = struct.Struct(">q")
_FLUSHED_AT = _FIELDS.size + _CRC.size
_FLUSHED_END = _FLUSHED_AT + _FLUSHED.size
#: Milliseconds by which an older record may have become durable after a younger one.
_SLACK_MS = 3000


class StoreCheckpoint:
    """The checkpoint's numbers in memory; `flush` writes them to the file."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self.path = context.root / "checkpoint"
        self._region: MappedRegion | None = None
        self.physic_msg_timestamp = 0
        self.logics_msg_timestamp = 0
        self.index_msg_timestamp = 0
        self.master_flushed_offset = 0
        self.confirm_physical_offset = 0
        self.logics_physical_offset = 0
        self.flushed_offset = 0

    def load(self) -> str | None:
        """Map the file and read it. Impossible numbers are taken as 0, so that recovery checks everything.

        Returns:
            What was wrong, in words; None if nothing.
        """
        fault = None
        try:
            self._region = self._context.disk.map(self.path, OS_PAGE_SIZE)
        except ValueError as error:
            fault = f"checkpoint {error}: a new one is begun"
            self._context.disk.delete(self.path)
            self._region = self._context.disk.map(self.path, OS_PAGE_SIZE)
        self._region.allocate(0, OS_PAGE_SIZE)
        values = _FIELDS.unpack_from(self._region.view)
        if any(value < 0 for value in values):
            fault = f"checkpoint {self.path} holds negative numbers {values}: a new one is begun"
            values = (0,) * 6
        (crc,) = _CRC.unpack_from(self._region.view, _FIELDS.size)
        if crc not in (0, _crc_of(self._region.view)):
            fault = f"checkpoint {self.path}: its CRC does not match: a new one is begun"
            values = (0,) * 6
        (
            self.physic_msg_timestamp,
            self.logics_msg_timestamp,
            self.index_msg_timestamp,
            self.master_flushed_offset,
            self.confirm_physical_offset,
            self.logics_physical_offset,
        ) = values
        head = bytes(self._region.view[: _FLUSHED_END + _CRC.size])
        if fault is None and _CRC.unpack_from(head, _FLUSHED_END)[0] == zlib.crc32(head[:_FLUSHED_END]):
            self.flushed_offset = max(0, _FLUSHED.unpack_from(head, _FLUSHED_AT)[0])
        if fault is not None:
            self.write()  # the next flush makes it durable
        return fault

    def not_later_than(self, timestamp: int) -> None:
        """Lower the times to the log's newest store time after an unclean exit, because the checkpoint may know of
        records that were lost."""
        self.physic_msg_timestamp = min(self.physic_msg_timestamp, timestamp)
        self.logics_msg_timestamp = min(self.logics_msg_timestamp, timestamp)
        self.index_msg_timestamp = min(self.index_msg_timestamp, timestamp)
        self.write()  # the next flush makes it durable

    def not_beyond(self, physical_offset: int) -> None:
        """Lower all offsets to the end of the log after recovery. None may lie behind it, whatever a changed bit or a
        Java broker wrote: a file that was never flushed, or that Java wrote, has no CRC."""
        self.master_flushed_offset = min(self.master_flushed_offset, physical_offset)
        self.confirm_physical_offset = min(self.confirm_physical_offset, physical_offset)
        self.logics_physical_offset = min(self.logics_physical_offset, physical_offset)
        self.flushed_offset = min(self.flushed_offset, physical_offset)
        self.write()  # the next flush makes it durable

    @property
    def min_timestamp(self) -> int:
        """Return the store time, in ms, before which all records are durable in log and queues (getMinTimestamp)."""
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - _SLACK_MS)

    @property
    def min_timestamp_index(self) -> int:
        """Store time in ms below which records are surely durable in log, queues and index (getMinTimestampIndex)."""
        return min(self.min_timestamp, self.index_msg_timestamp)

    def write(self) -> MappedRegion:
        """Write the numbers into the page; the caller flushes the region. Runs on the loop's thread, and never while
        another thread writes, so that older numbers cannot replace newer ones."""
        assert self._region is not None, "checkpoint is not loaded"
        numbers = _FIELDS.pack(
            self.physic_msg_timestamp,
            self.logics_msg_timestamp,
            self.index_msg_timestamp,
            self.master_flushed_offset,
            self.confirm_physical_offset,
            self.logics_physical_offset,
        )
        numbers += _CRC.pack(_crc_of(numbers)) + _FLUSHED.pack(self.flushed_offset)
        # one copy: a sync that runs meanwhile takes the old numbers or the new ones, each with their CRC
        self._region.view[: _FLUSHED_END + _CRC.size] = numbers + _CRC.pack(zlib.crc32(numbers))
        return self._region

    def sync(self) -> None:
        """Make the numbers that `write` stored durable. Blocks; may run in any thread."""
        assert self._region is not None, "checkpoint is not loaded"
        self._region.flush(0, OS_PAGE_SIZE)

    def flush(self) -> None:
        """Write the numbers and make them durable. Blocks. For load and close, when nothing else runs."""
        self.write()
        self.sync()

    def release(self) -> None:
        """Unmap the file without making it durable."""
        if self._region is not None:
            self._region.close()
            self._region = None


def _crc_of(view: memoryview | bytes) -> int:
    """Returns the CRC of the numbers, never 0, which stands for "no CRC"."""
    return zlib.crc32(view[: _FIELDS.size]) or 1
