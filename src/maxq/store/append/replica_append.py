"""A slave's writing end: raw log bytes of its master, each record verified before it counts
(DefaultHAClient.dispatchReadRequest, DefaultMessageStore.appendToCommitLog).

Frames of the replication link cut records anywhere. Received bytes are copied to their place in the mapped file, but
the log's end moves over them record by record, when a record is complete and its magic, size, own offset and body CRC
are right. So readers, flushes and what the slave reports know verified records only, and a connection that breaks
leaves nothing to repair: `drop_pending` zeroes what no record has claimed.

A start may find a last record in doubt: one whose properties end with a zero byte looks the same whether it is genuine
or its end never came. It is kept beside the log (unverified_record.py). The master's bytes replace it; a slave that
becomes master before accepts it unverified.
"""

import logging
import struct
import zlib
from array import array

from maxq.errors import ReplicationDamageError, ReplicationGapError
from maxq.protocol.message.record_layout import MESSAGE_MAGICS, MIN_RECORD_SIZE
from maxq.store.log.commit_log import CommitLog
from maxq.store.log.record_cy import (
    C_PHYSICAL_OFFSET,
    C_STORE_TIMESTAMP,
    SCAN_WIDTH,
    STOP_BAD_CRC,
    STOP_BAD_MAGIC,
    STOP_BAD_OFFSET,
    STOP_BAD_SIZE,
    STOP_BLANK,
    STOP_END,
    STOP_ROWS_FULL,
    STOP_ZERO,
    scan,
)

log = logging.getLogger(__name__)

_ROWS = 512
_HEAD = struct.Struct(">iI")
_REASONS = {
    STOP_ZERO: "zeros where a record should be",
    STOP_BAD_MAGIC: "no record has such a magic code",
    STOP_BAD_SIZE: "the size is not the sum of its parts",
    STOP_BAD_CRC: "the body's CRC is wrong",
    STOP_BAD_OFFSET: "the record says it belongs elsewhere",
}


class ReplicaAppender:
    """Appends to a slave's copy of the log.

    Attributes:
        last_store_timestamp: of the newest verified record, ms; 0 before the first.
        damaged_from_master: records taken with a wrong body CRC, because the master sent the same bytes twice: the
            master's own log is damaged there, and a copy is a copy.
    """

    def __init__(self, commit_log: CommitLog, unverified: bytes = b"") -> None:
        """`unverified` is a record behind the log's end that may be incomplete."""
        self._log = commit_log
        self._pending = 0  # bytes that are in the file behind the log's end
        self._unverified = unverified
        self._rows = array("q", bytes(8 * SCAN_WIDTH * _ROWS))
        self._refused: tuple[int, int] | None = None  # the last record refused: offset, checksum of its bytes
        self._last_record = -1
        self.last_store_timestamp = 0
        self.damaged_from_master = 0

    @property
    def end(self) -> int:
        """Return the physical offset at which the next bytes must begin."""
        return self._log.max_offset + self._pending

    @property
    def last_record_offset(self) -> int:
        """Physical offset of the log's last record; -1 if there is none. The first call reads its file."""
        if self._last_record < 0:
            self._last_record = last_record(self._log)
        return self._last_record

    def append(self, physical_offset: int, data: memoryview) -> int:
        """Take `data`, the master's log from `physical_offset` on.

        An empty log begins where the master says: at the start of a file, or at byte 1, which is how a slave asks a
        master for its log from the very beginning (0 would mean "from your last file"); byte 0 of a record is 0.

        Returns:
            The physical offset behind the last verified record: what may be acknowledged.

        Raises:
            ReplicationGapError: `physical_offset` is not where this log ends.
            ReplicationDamageError: the bytes are not records; none of the bad ones is in the log.
            OSError: the disk has no room.
        """
        if physical_offset != self.end:
            self._begin(physical_offset)
        while len(data):
            data = self._take(data)
        return self._log.max_offset

    def drop_pending(self) -> None:
        """Forget the bytes of a record that is not whole: the rest will not come on this connection."""
        if self._pending:
            start = self._log.tail.wrote_position
            self._log.put(start, memoryview(bytes(self._pending)))
            self._pending = 0

    def accept_unverified_record(self) -> None:
        """Append the unverified record, which no master will send again, unless the disk has no room."""
        record, self._unverified = self._unverified, b""
        if not record:
            return
        try:
            self._take(memoryview(record))
        except OSError as error:
            log.error("the record at physical offset %d is left out of the log: %s", self._log.max_offset, error)

    def _begin(self, physical_offset: int) -> None:
        size = self._log.files.file_size
        aligned = physical_offset % size == 0 or physical_offset == 1
        has_records = self._log.files.files and self._log.max_offset > self._log.min_offset
        if has_records or self._pending or not aligned:
            raise ReplicationGapError(
                f"the master sent its log from physical offset {physical_offset}, this slave's ends at {self.end}: "
                "they do not join. If they differ for good, empty this slave's store and start it again",
                expected=self.end,
                received=physical_offset,
            )
        start = physical_offset - physical_offset % size
        if self._log.files.files and self._log.min_offset != start:
            self._log.open_at(0)  # removes files of an earlier attempt, which hold no record
        if not self._log.files.files:
            self._log.open_at(start)
        if physical_offset != start:
            if self._log.current is None:
                self._log.make_room(1)
            self._pending = 1

    def _take(self, data: memoryview) -> memoryview:
        """Copy what fits into the current file. Returns the rest."""
        log_, tail = self._log, self._log.tail
        size = log_.files.file_size
        position = tail.wrote_position + self._pending
        if log_.current is None or position == size:
            if self._pending:
                self._refuse("the file ends within a record")
            log_.make_room()
            position = 0
        piece = data[: size - position]
        stop = position + len(piece)
        self._make_room(stop)
        self._pending += len(piece)
        try:
            log_.put(position, piece)
        except OSError:  # a part of it may have been written, which the next start must not find
            self.drop_pending()
            raise
        self._verify()
        return data[len(piece) :]

    def _make_room(self, stop: int) -> None:
        tail = self._log.tail
        while stop > tail.file_size:  # blocks come in steps; the file itself has room
            self._log.make_room(stop - tail.wrote_position)

    def _verify(self) -> None:
        """Move the log's end behind the whole records among the pending bytes."""
        file, tail = self._log.current, self._log.tail
        assert file is not None, "there are pending bytes"
        while self._pending:
            start = tail.wrote_position
            end = start + self._pending
            count, position, stop = scan(file.view, start, end, file.file_from_offset, self._rows)
            if count:
                base = (count - 1) * SCAN_WIDTH
                self._last_record = self._rows[base + C_PHYSICAL_OFFSET]
                self.last_store_timestamp = self._rows[base + C_STORE_TIMESTAMP]
            self._advance(position - start)
            if stop == STOP_BLANK:
                if end == file.file_size:
                    self._advance(self._pending)
                return
            if stop == STOP_END or (stop != STOP_ROWS_FULL and not self._is_whole(file.view, stop)):
                return
            if stop != STOP_ROWS_FULL:
                self._judge(file.view, stop)

    def _advance(self, count: int) -> None:
        self._log.accept(count)
        self._pending -= count
        if count:
            self._unverified = b""

    def _is_whole(self, view: memoryview, stop: int) -> bool:
        """Returns whether all bytes of the next record are there, as far as its head tells. An impossible head counts
        as complete."""
        start = self._log.tail.wrote_position
        if self._pending < _HEAD.size:
            return False
        size, magic = _HEAD.unpack_from(view, start)
        possible = magic in MESSAGE_MAGICS and MIN_RECORD_SIZE <= size <= self._log.files.file_size - start
        return not (stop == STOP_BAD_SIZE and possible and size > self._pending)

    def _judge(self, view: memoryview, stop: int) -> None:
        """Check the next record, which is complete and whose CRC is wrong: refuse it unless the master's own log has
        the same damage."""
        start = self._log.tail.wrote_position
        size = _HEAD.unpack_from(view, start)[0]
        if stop != STOP_BAD_CRC:
            self._refuse(_REASONS[stop])
        seen = (self._log.max_offset, zlib.crc32(view[start : start + size]))
        if self._refused != seen:
            self._refused = seen
            self._refuse(_REASONS[stop])
        log.error(
            "the record of %d bytes at physical offset %d came from the master with a wrong body CRC twice: the "
            "master's log is damaged there; it is copied as it is (maxq store check names it on both)", size, seen[0],
        )  # fmt: skip
        self.damaged_from_master += 1
        self._advance(size)

    def _refuse(self, reason: str) -> None:
        offset = self._log.max_offset
        self.drop_pending()
        raise ReplicationDamageError(
            f"the master sent no valid record for physical offset {offset}: {reason}; nothing of it was stored",
            physical_offset=offset,
        )


def last_record(commit_log: CommitLog) -> int:
    """Return the physical offset of the last record of a log; -1 if there is none. Reads the heads of the records of a
    file."""
    rows = array("q", bytes(8 * SCAN_WIDTH * _ROWS))
    for file in reversed(commit_log.files.files):
        end = min(commit_log.max_offset - file.file_from_offset, file.file_size)
        position, stop, found = 0, STOP_ROWS_FULL, -1
        while end > 0 and stop == STOP_ROWS_FULL:
            count, position, stop = scan(file.view, position, end, file.file_from_offset, rows, check_crc=False)
            if count:
                found = rows[(count - 1) * SCAN_WIDTH + C_PHYSICAL_OFFSET]
        if found >= 0:
            return found
    return -1
