"""A member's log in files (DLedgerMmapFileStore.java): data, index, checkpoint, term.

`FileLedger` stands over a `DLedgerCommitLog`, whose compiled writing end makes the entries, and a `CommitLogFlusher`,
which makes them durable group by group. It keeps what those do not know: which index the log begins and ends with, the
index files, what is durable and committed counted in entries, and what must outlive the process. The bare server's
store (mmap_file_store.py) and the broker's (message_ledger.py) are both one.

Rules beside Java's, by their ids in docs/explanation/dledger.md: an entry is durable before any peer hears of it (S2),
and so are term and vote (S3); a truncated entry cannot come back (S7); no committed entry is truncated (S8); bodies
have a CRC (S9); a member that lost entries reports it (S10); retention waits for the commit and for followers (S17).
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePath
from typing import NamedTuple

from maxq.errors import LedgerMismatchError, MessageIllegalError, StoreFailedError
from maxq.protocol.dledger.dledger_messages import ENTRY_BODY_MAX, ENTRY_HEADER, EntryRun
from maxq.protocol.dledger.ledger import HardState
from maxq.store.context.running_flags import NO_ROOM
from maxq.store.context.store_context import StoreContext
from maxq.store.dledger.dledger_commit_log import ENTRY_HEADER_SIZE, DLedgerCommitLog
from maxq.store.dledger.entries_cy import scan_entries
from maxq.store.dledger.entry_reader import EntryReader
from maxq.store.dledger.ledger_checkpoint import LedgerCheckpoint
from maxq.store.dledger.ledger_index import LedgerIndex
from maxq.store.dledger.ledger_notes import LedgerNotes
from maxq.store.dledger.ledger_recovery import LedgerRecovery, LedgerReport
from maxq.store.dledger.term_file import TermFile
from maxq.store.durability.flush import CommitLogFlusher
from maxq.store.durability.store_checkpoint import StoreCheckpoint
from maxq.store.files.disk_room import lacks_room

log = logging.getLogger(__name__)

#: 5 242 880 units (DLedgerConfig.mappedFileSizeForEntryIndex).
INDEX_FILE_SIZE = 167_772_160


class _Mark(NamedTuple):
    """A position in the log: entry `last` ends at `position`."""

    position: int
    last: int


class FileLedger(EntryReader):
    """The log of one DLedger member in files. Methods without a docstring here are those of Ledger
    (protocol/dledger/ledger.py)."""

    def __init__(
        self,
        context: StoreContext,
        commit_log: DLedgerCommitLog,
        checkpoint: StoreCheckpoint,
        folder: PurePath,
        index_file_size: int = INDEX_FILE_SIZE,
    ) -> None:
        """
        Args:
            checkpoint: the store's, which says up to where the log is durable.
            folder: `dledger-<selfId>`.
            index_file_size: bytes, a multiple of 32.
        """
        index = LedgerIndex(context.disk, folder / "index", index_file_size)
        super().__init__(commit_log, index)
        self.flusher = CommitLogFlusher(context, commit_log, checkpoint, self.flushed)
        self.notes = LedgerNotes(context, folder, self, index, self.flusher)
        self._context = context
        self._term_file = TermFile(context.disk, folder)
        self._indexed_to = 0  # entries below this position have their units
        self._next_unit = 0  # index of the entry there
        self._marks: deque[_Mark] = deque()  # ends of groups of entries that are not durable yet
        self._retain_from = 0
        self._is_loaded = False
        self.report = LedgerReport()
        self._on_appended: Callable[[int, int], None] = lambda first, last: None
        self._on_durable: Callable[[int], None] = lambda index: None
        self._on_no_room: Callable[[OSError, int], None] = lambda error, size: None
        commit_log.before_room = self._write_units

    # --- life ---

    def load(self) -> LedgerReport:
        """Find the files and recover (LedgerRecovery); the log is then open for writing. Blocks.

        Raises:
            StoreRefusedError: a data file has the wrong size, or one is missing between others.
        """
        report = self.report = LedgerReport()
        checkpoint, faults = self.notes.file.load()
        report.faults += faults
        known = None
        if checkpoint is not None:  # the log was emptied: indexes below its new beginning are not in it
            known = max(checkpoint.end_index, checkpoint.committed_index if checkpoint.begin_index < 0 else -1)
        self._log.load_files(known, -1 if checkpoint is None else checkpoint.begin_position)
        checkpoint = checkpoint or LedgerCheckpoint()
        found = LedgerRecovery(self._context, self._log, self._index, checkpoint, report, self.notes.file.save).run()
        self._index.opened()
        self.begin_index, self.end_index, self.end_term = found.begin_index, found.end_index, found.end_term
        self.durable_index = self.end_index
        self.committed_index = found.committed_index
        self.committed_position = found.committed_position
        self._indexed_to, self._next_unit = self._log.max_offset, found.next_index
        self._log.tail.next_index = found.next_index
        self._log.buffer_appends(is_buffered=False)
        self.amnesiac_until = found.amnesiac_until
        self._load_term(report)
        if report.amnesia and self.amnesiac_until < 0:
            self.amnesiac_until = max(self.end_index, 0)
        report.begin_index, report.end_index, report.end_term = self.begin_index, self.end_index, self.end_term
        report.committed_index = self.committed_index
        if self.end_index < self.begin_index:
            self.notes.begin_at = self._log.max_offset
        for line in report.faults:
            log.error("DLedger: %s", line)
        for line in report.amnesia:
            log.error("DLedger: this member has lost entries and takes no part in elections: %s", line)
        try:
            self.notes.write()
        except OSError as error:
            if report.amnesia or not lacks_room(error):
                raise
            log.warning("DLedger's checkpoint could not be written: %s; it is tried again", error)  # it may lag behind
        self.notes.file.keep_room()
        self._is_loaded = True
        return report

    def _load_term(self, report: LedgerReport) -> None:
        found = self._term_file.load()
        report.faults += found.faults
        if found.state is not None:
            self.term_state = found.state
            if found.faults:  # writes both copies again
                self._term_file.save(found.state)
            self._term_file.keep_room()
        elif self.end_index < 0 and found.is_missing:
            self.amnesiac_until = max(self.amnesiac_until, 0)  # the group or the disk is new: see MemberState.is_new
            self.notes.write()
            self._term_file.save(self.term_state)  # from now on a missing file means that it was lost
        else:
            report.amnesia.append("there is a log, but no term file that can be read: its vote may be forgotten")
        if self.term_state.term < self.end_term:
            if found.state is not None:
                report.amnesia.append(
                    f"the term file says {found.state.term}, the log's last entry is of term {self.end_term}"
                )
            self.term_state = HardState(self.end_term)

    def release(self) -> None:
        """Release the mappings of the index without flushing."""
        self._last_run = None
        self._index.release()

    # --- facts ---

    @property
    def has_room(self) -> bool:
        return self._context.flags.writable

    def set_no_room_listener(self, listener: Callable[[OSError, int], None]) -> None:
        """Set the listener that is called as `listener(error, size)` when the log got no blocks for `size` bytes
        (DiskRoom.lacks)."""
        self._on_no_room = listener

    def set_listeners(self, on_appended: Callable[[int, int], None], on_durable: Callable[[int], None]) -> None:
        self._on_appended, self._on_durable = on_appended, on_durable

    def remembered(self) -> None:
        if self.amnesiac_until >= 0:
            until, self.amnesiac_until = self.amnesiac_until, -1
            try:
                self.notes.write()
            except OSError:
                self.amnesiac_until = until
                raise
            if self.end_index >= 0:
                log.warning(
                    "DLedger: this member takes part in elections again: it has all entries up to %d",
                    self.committed_index,
                )

    # --- term and vote ---

    def store_term(self, state: HardState) -> None:
        self._term_file.save(state)
        self.term_state = state

    # --- writing ---

    def begin_leading(self, term: int) -> None:
        self._log.tail.term = term
        self._log.buffer_appends(is_buffered=True)

    def end_leading(self) -> None:
        if self._log.tail.next_index > self.end_index + 1:  # the index file had no room for the units of these entries
            start = max(self.notes.begin_at, self.divided_offset)
            self._cut(self._end_of(self.end_index) if not self.is_empty else start)
        self._log.buffer_appends(is_buffered=False)

    def barrier(self) -> bytes:
        """Return an empty body, as Java's controller writes."""
        return b""

    def append(self, body: bytes) -> int:
        limit = min(ENTRY_BODY_MAX, self._log.entry_room() - ENTRY_HEADER_SIZE)
        if len(body) > limit:
            raise MessageIllegalError(
                f"the body has {len(body)} bytes, an entry takes at most {limit}; append less at a time",
                size=len(body),
                limit=limit,
            )
        size = ENTRY_HEADER_SIZE + len(body)
        position = self._log.next_position(size)
        self._make_room(position, size, self.next_index)
        written = self._log.tail.append_entry(self.body_at(position, body))
        assert written == size, f"there was room for {size} bytes at {position}"
        self.appended()
        return self.end_index

    def _make_room(self, position: int, size: int, last: int) -> None:
        """Make room for entries of `size` bytes at `position`, up to entry `last`, and for their index units."""
        try:
            self._log.make_room_for(position, size + 8)
            self._index.reserve(self.next_index, last)
        except OSError as error:
            if lacks_room(error):
                self._on_no_room(error, size)
            raise

    def secure(self, size: int, count: int) -> None:
        """Allocate blocks for the next `count` entries, `size` bytes with their headers, and for their index units,
        before the first one is made. They take two files at most.

        Raises:
            OSError: there is no room on the disk.
        """
        self._log.secure(size)
        self._index.reserve(self.next_index, self.next_index + count - 1)

    def body_at(self, position: int, body: bytes) -> bytes:
        """Return an entry's body in the form in which it is written to `position`."""
        return body

    def appended(self) -> None:
        """Write the index units of entries that were appended through the log's writing end, tell the listener, and
        flush."""
        first, last = self.end_index + 1, self._log.tail.next_index - 1
        if last < first:
            return
        if self.begin_index < 0:
            self.begin_index = first
        try:
            self._write_units()
        except OSError as error:
            if not lacks_room(error):
                self.flusher.fail(error)
            self._context.flags.set(NO_ROOM, f"the index of {self._index.files.folder} has no room: {error}")
            return
        self.end_index, self.end_term = last, self._log.tail.term
        self._marks.append(_Mark(self._log.max_offset, last))
        self._on_appended(first, last)
        self.flusher.commit_soon()
        self._log.prepare_ahead()

    def _write_units(self) -> None:
        """Write the index units of the entries that were appended to the current file since the last call."""
        tail = self._log.tail
        start = max(self._indexed_to, tail.file_from_offset)
        stop = tail.file_from_offset + tail.wrote_position
        if start < stop and self._next_unit < tail.next_index:
            base = tail.file_from_offset
            self._index.put(self._log.tail_view, start - base, stop - base, self._next_unit)
            self._indexed_to, self._next_unit = stop, tail.next_index

    def append_entries(self, run: EntryRun) -> int:
        start = self._start_of_new(run)
        if start is None:
            return self.end_index
        data, position = memoryview(run.data)[start:], run.pos + start
        count, index, term = self._check_new(data, position)
        if count:
            if self.begin_index < 0:
                self.begin_index = self.next_index
            self._take(data[:count], position, index)
            self.end_index, self.end_term = index, term
            self._marks.append(_Mark(self._log.max_offset, index))
            self.flusher.commit_soon()
            self._log.prepare_ahead()
        if count < len(data):
            raise LedgerMismatchError(
                f"entry {index + 1} does not follow entry {self.end_index} of term {self.end_term}: it is no whole "
                "entry, its index, term or position is another, or its body does not have its CRC",
                index=index + 1,
            )
        return self.end_index

    @property
    def next_index(self) -> int:
        """Index of the entry that comes next."""
        return self._log.tail.next_index

    @property
    def end_position(self) -> int:
        """Position behind the last entry."""
        return self._log.max_offset

    def _start_of_new(self, run: EntryRun) -> int | None:
        """Return the position, in the run's bytes, of the first entry that this log lacks; None if it has all. Entries
        that it has must have the same term and position."""
        if run.first_index > self.next_index:
            raise LedgerMismatchError(
                f"entries from {run.first_index} on leave a gap behind entry {self.end_index}", index=run.first_index
            )
        start, index = 0, run.first_index
        while start < len(run.data) and index < self.next_index:
            _, size, _, term, position, *_ = ENTRY_HEADER.unpack_from(run.data, start)
            if index < self.begin_index or self.unit(index) != (position, size, term):
                raise LedgerMismatchError(
                    f"entry {index} of term {term} at {position} is not the one that is here", index=index
                )
            start += size
            index += 1
        return None if start >= len(run.data) else start

    def _check_new(self, data: memoryview, position: int) -> tuple[int, int, int]:
        """Check entries that are to be written to `position`. Returns the bytes of good entries, and the index and term
        of the last one."""
        current = self._log.current
        if current is not None and self._log.max_offset == current.file_from_offset > position:
            self._leave_begun_file(position)
        if not self._log.may_continue_at(position):
            raise LedgerMismatchError(
                f"entry {self.next_index} cannot be at {position}: this log ends at "
                f"{self._log.max_offset}; are the file sizes of all members equal?",
                index=self.next_index,
            )
        count, index, term, _ = scan_entries(
            data, 0, len(data), position, self.next_index - 1, max(0, self.end_term), True
        )
        file_size = self._log.files.file_size
        if position % file_size + count > self._log.entry_room():
            raise LedgerMismatchError(f"entry {index} goes beyond the end of its file", index=index)
        return count, index, term

    def _leave_begun_file(self, position: int) -> None:
        """Discard a file that was begun for an entry for which there was no room; the leader continues in the previous
        file."""
        if not self.is_empty and position == self._end_of(self.end_index):
            self._cut(position)

    def _cut(self, position: int) -> None:
        """Cut the log at `position`, the end of the last entry. Blocks."""
        self._last_run = None
        with self._changing():
            self.flusher.truncated(position)
            self._log.cut(position)
            self._index.truncate(self.end_index + 1)
        self._continue_at(position, self.end_index + 1)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Context for a change that a disk error may interrupt. After any error this process no longer uses the ledger
        and writes no notes; the next start completes the change.

        Raises:
            StoreFailedError: the disk refused.
        """
        try:
            yield
        except OSError as error:
            self.flusher.fail(error)
            raise StoreFailedError(f"the log could not be cut or emptied: {error}") from error

    def _take(self, data: memoryview, position: int, last: int) -> None:
        """Append checked entries, up to entry `last`."""
        tail = self._log.tail
        first = self.next_index
        self._make_room(position, len(data), last)
        self._log.put(tail.wrote_position, data)
        self._index.put(data, 0, len(data), first)
        self._log.accept(len(data))
        tail.next_index = self._next_unit = last + 1
        self._indexed_to = self._log.max_offset

    def truncate(self, index: int) -> None:
        if index >= self.end_index:
            return
        if index < self.committed_index or index < self.begin_index - 1:
            raise LedgerMismatchError(
                f"entries behind {index} are to go, but {self.committed_index} is committed here, and the log begins "
                f"with {self.begin_index}: a member of this group has lost something, or runs with unsafe rules",
                index=index,
            )
        position = self._end_of(index) if index >= self.begin_index else self.unit(self.begin_index).position
        term = self.term_of(index) if index >= self.begin_index else -1
        durable = min(self.durable_index, index)
        # First what a start expects, then the bytes: after a crash in between, a start finds more than it expects.
        self.notes.write_end(index)
        self.end_index, self.end_term, self.durable_index = index, term, durable
        self._cut(position)
        if index < 0:
            self.begin_index = -1
        if index < self.begin_index:
            self.notes.write()

    def _continue_at(self, position: int, next_index: int) -> None:
        self._log.tail.next_index = self._next_unit = next_index
        self._indexed_to = position
        while self._marks and self._marks[-1].position >= position:
            self._marks.pop()
        if self.end_index > self.durable_index:
            self._marks.append(_Mark(position, self.end_index))
            self.flusher.commit_soon()

    def reset(self, index: int, position: int) -> None:
        if self.committed_index >= index:
            raise LedgerMismatchError(
                f"the log is to begin with {index}, but {self.committed_index} is committed here", index=index
            )
        self._last_run = None
        self.notes.save(LedgerCheckpoint(-1, index - 1, index, position, self.amnesiac_until))
        with self._changing():
            self.flusher.truncated(position)
            self._log.begin_at(position)
            self._index.clear()
        self.begin_index, self.end_index, self.end_term, self.durable_index = index, index - 1, -1, index - 1
        self._marks.clear()
        self._continue_at(position, index)
        if index == 0:
            self.begin_index = self.end_index = self.durable_index = -1
        self.committed_index, self.committed_position = index - 1, position
        self.notes.begin_at = position
        log.warning("DLedger: the log was emptied; it continues with entry %d at %d", index, position)

    # --- durability ---

    def commit(self, index: int) -> None:
        index = min(index, self.end_index)
        if index > self.committed_index:
            self.committed_index = index
            self.committed_position = self._end_of(index)

    def flushed(self) -> None:
        """Advance the durable index to the last entry that the log has made durable."""
        flushed = self._log.flushed_offset
        marks, durable = self._marks, self.durable_index
        while marks and marks[0].position <= flushed:
            durable = marks.popleft().last
        if durable > self.durable_index:
            self.durable_index = durable
            self._on_durable(durable)

    async def run(self) -> None:
        """Write the ledger's checkpoint at intervals (see `LedgerNotes.run`)."""
        await self.notes.run()

    def close(self) -> bool:
        """Write the notes of a clean exit (see LedgerNotes.write_all). Returns False also if nothing was loaded; the
        files are then right as they are."""
        is_noted = self._is_loaded and self.notes.write_all()
        self.release()
        return is_noted

    # --- retention ---

    def retain_from(self, index: int) -> None:
        self._retain_from = index

    def may_delete(self, end_offset: int, *, is_full: bool) -> bool:
        """Return whether a file that ends at `end_offset` may be deleted: only committed entries, never the file with
        the last committed entry, and, unless the disk is full, nothing that a follower still needs (S17). Entries
        that the checkpoint does not call durable stay, too, because a start takes files behind the checkpoint for
        the rest of a loss of power."""
        if end_offset <= self.divided_offset:
            return True
        if end_offset >= self.committed_position:
            return False
        following = self.index_at(end_offset)
        return self.notes.end_index >= following - 1 and (is_full or following <= max(self._retain_from, 0))

    def files_deleted(self) -> None:
        """Remove the entries of the log's oldest files, if retention has deleted some. Blocks."""
        files = self._log.data_files
        if not files or self.end_index < 0:
            return
        self._last_run = None
        first = int.from_bytes(files[0].view[8:16], "big")
        if self.begin_index < first <= self.end_index:
            self.begin_index = first
            for file in self._index.forget_below(first):
                if self._context.disk.exists(file.path):
                    self._context.disk.delete(file.path)
