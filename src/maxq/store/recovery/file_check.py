"""One CommitLog file, checked record by record in small steps, while the broker that writes it goes on.

Recovery reads the end of the log and may take its time; a running broker's log is read from its first byte to its
last, a megabyte at a time, off the loop. Each step brings its pages in without the interpreter lock, and then looks at
what is in memory.

What is checked is what the record itself tells: magic, sizes, its own physical offset, the CRC of the body, and that of
the whole record where enabledAppendPropCRC wrote one. Other header fields, topic and properties have no CRC.
"""

from array import array

from maxq.protocol.message.record_layout import MAGIC_START, MESSAGE_MAGICS, size_of
from maxq.runtime.interfaces import MappedRegion
from maxq.store.log import record_cy
from maxq.store.recovery.damage import DamagedRange

STEP = 1 << 20
UNREADABLE = "the device cannot read it"
_ROWS = 4096
REASONS = {
    record_cy.STOP_ZERO: "zeros where a record should be",
    record_cy.STOP_BAD_MAGIC: "no magic code of a record",
    record_cy.STOP_BAD_SIZE: "the size of the record is not the sum of its parts",
    record_cy.STOP_BAD_CRC: "the CRC of the body is wrong",
    record_cy.STOP_BAD_OFFSET: "the record says it belongs to another physical offset",
    record_cy.STOP_BLANK: "a BLANK record that does not reach the end of the file",
    record_cy.STOP_END: "the log continues within a record",
}


class FileCheck:
    """A check of one CommitLog file from its start to its end.

    Attributes:
        position: everything before is checked. `is_done` when it has reached the end.
        records: good ones so far.
    """

    def __init__(
        self, region: MappedRegion, file_from_offset: int, end: int, file_size: int, *, check_prop_crc: bool = False
    ) -> None:
        """
        Args:
            end: position behind the last whole record; `file_size` for a file that was closed.
            check_prop_crc: every record has one (forceVerifyPropCRC).
        """
        self._region = region
        self._view = region.view
        self._file_from_offset = file_from_offset
        self._end = end
        self._file_size = file_size
        self._check_prop_crc = check_prop_crc
        self._rows = array("q", bytes(8 * record_cy.SCAN_WIDTH * _ROWS))
        self._row = array("q", bytes(8 * record_cy.SCAN_WIDTH))
        self._timestamp = 0  # store timestamp of the last good record
        self.position = 0
        self.records = 0

    @property
    def is_done(self) -> bool:
        return self.position >= self._end

    def step(self) -> DamagedRange | None:
        """Check about a megabyte. Blocks.

        Returns:
            Damage that was met; `position` is behind it.

        Raises:
            OSError: the device cannot read the next part; go on with `skip_unreadable`.
        """
        stop = min(self.position + STEP, self._end)
        self._region.load(self.position, stop)
        began = self.position
        why = self._scan(stop)
        if why == record_cy.STOP_ROWS_FULL or self.is_done or (why != record_cy.STOP_BLANK and self.position > began):
            return None  # the step may have ended within a record; the next step begins with it
        if why == record_cy.STOP_BLANK and self._is_right_blank():
            self.position = self._end
            return None
        size = self._size_of_next()
        if stop - self.position < size <= self._end - self.position:
            stop = self.position + size
            self._region.load(self.position, stop)
            why = self._scan(stop)
            if self.position == stop:
                return None
        if why == record_cy.STOP_END and self._end == self._file_size and self._end - self.position < 8:
            self.position = self._end  # too little room for a BLANK record: no broker writes there, so it is harmless
            return None
        return self._damage(why)

    def _scan(self, stop: int) -> int:
        count, self.position, why = record_cy.scan(
            self._view, self.position, stop, self._file_from_offset, self._rows, check_prop_crc=self._check_prop_crc
        )
        if count:
            self.records += count
            self._timestamp = self._rows[(count - 1) * record_cy.SCAN_WIDTH + record_cy.C_STORE_TIMESTAMP]
        return why

    def _head(self) -> tuple[int, int]:
        head = self._view[self.position : self.position + 8]
        return int.from_bytes(head[:4], "big"), int.from_bytes(head[4:], "big")

    def _is_right_blank(self) -> bool:
        return self._end == self._file_size and self._head()[0] == self._file_size - self.position

    def _size_of_next(self) -> int:
        """Return the size that the next record states, in bytes; 0 if there is no record."""
        size, magic = self._head()
        return size if magic in MESSAGE_MAGICS else 0

    def _damage(self, why: int) -> DamagedRange:
        start = self.position
        self.position = self._next_good(why)
        return DamagedRange(self._file_from_offset, start, self.position - start, REASONS[why], self._timestamp)

    def _next_good(self, why: int) -> int:
        start = self.position
        if why == record_cy.STOP_BAD_CRC:  # the record's structure is intact
            stop = start + self._size_of_next()
            if stop == self._end or self._is_good(stop):
                return stop
        return self._find(start + 1)

    def _find(self, start: int) -> int:
        """Returns the position of the first good record at or behind `start`; the end if there is none."""
        while start < self._end:
            stop = min(start + STEP, self._end)
            self._region.load(start, stop)
            # a record that begins before `stop` has its magic code within these bytes
            piece = bytes(self._view[start : min(stop + 6, self._end)])
            at = piece.find(MAGIC_START, 4)
            while at >= 0:
                if self._is_good(start + at - 4):
                    return start + at - 4
                at = piece.find(MAGIC_START, at + 1)
            start = stop
        return self._end

    def _is_good(self, position: int) -> bool:
        """Return whether a good record, or the BLANK that closes the file, begins at `position`."""
        size = size_of(self._view, position)
        stop = position + size
        if not position + 8 <= stop <= self._end:
            return False
        self._region.load(position, stop)
        count, _, why = record_cy.scan(
            self._view, position, stop, self._file_from_offset, self._row, check_prop_crc=self._check_prop_crc
        )
        if why == record_cy.STOP_BLANK and not count:
            return self._end == self._file_size and size == self._file_size - position
        return count > 0

    def skip_unreadable(self) -> DamagedRange:
        """Continue behind the bytes that the device cannot read. Blocks."""
        start = self.position
        position = start + STEP
        while position < self._end:
            try:
                self.position = self._find(position)
                break
            except OSError:
                position += STEP
        else:
            self.position = self._end
        return DamagedRange(self._file_from_offset, start, self.position - start, UNREADABLE, self._timestamp)
