"""The notes of a ledger in files, beside the log: how far it is durable and committed (ledger_checkpoint.py).

The note may lag behind the log, and never runs ahead of it: entries that it calls durable or committed must exist after
a loss of power; otherwise the start considers them lost, and the member no longer votes. So an entry that the others
have committed before this disk has it is not noted yet. Before a truncation the note is lowered (`write_end`): in
between, the log has more than is noted, which is no fault.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import PurePath
from typing import NamedTuple

from maxq.errors import StoreFailedError
from maxq.runtime.blocking import CHECKPOINTS
from maxq.store.context.store_context import StoreContext
from maxq.store.dledger.entry_reader import EntryReader
from maxq.store.dledger.ledger_checkpoint import LedgerCheckpoint, LedgerCheckpointFile
from maxq.store.dledger.ledger_index import LedgerIndex
from maxq.store.durability.flush import CommitLogFlusher, Pieces, flush_pieces
from maxq.store.files.disk_room import lacks_room

log = logging.getLogger(__name__)

#: DLedgerConfig.checkPointInterval.
_CHECKPOINT_SECONDS = 3.0


class NoteJob(NamedTuple):
    """A job for `LedgerNotes.job`: `work` runs on the executor, then `done` on the event loop."""

    work: Callable[[], None]
    done: Callable[[], None]


class LedgerNotes:
    """The checkpoint and the other small notes of one ledger.

    Attributes:
        file: where it is noted.
        begin_at: of an emptied log: where its first entry goes or went; -1 else.
    """

    def __init__(
        self, context: StoreContext, folder: PurePath, ledger: EntryReader, index: LedgerIndex,
        flusher: CommitLogFlusher,
    ) -> None:  # fmt: skip
        self.file = LedgerCheckpointFile(context.disk, folder)
        self.begin_at = -1
        self._context = context
        self._ledger = ledger
        self._index = index
        self._flusher = flusher
        self._saved: LedgerCheckpoint | None = None  # the checkpoint in the file; None: unknown

    @property
    def end_index(self) -> int:
        """Return the last entry that the file calls durable, as far as known; -1: none."""
        return -1 if self._saved is None else self._saved.end_index

    def write(self) -> None:
        """Write the checkpoint if it differs from what the file has. Blocks."""
        wanted = self._wanted(self._ledger.durable_index)
        if wanted != self._saved:
            self.save(wanted)

    def write_end(self, index: int) -> None:
        """Write the current state, with the note that entries behind `index` may be removed. Blocks."""
        wanted = self._wanted(min(self.end_index, index))
        if wanted != self._saved:
            self.save(wanted)

    def save(self, wanted: LedgerCheckpoint) -> None:
        """Write `wanted` into the file of the checkpoint. Blocks."""
        self._saved = None
        self.file.save(wanted)
        self._saved = wanted

    def write_all(self) -> bool:
        """Write the index units of all durable entries and then the checkpoint, at a clean shutdown. The flusher must
        have flushed before. Blocks.

        Returns:
            False if it could not be noted.
        """
        if self._flusher.failure is not None:
            return False
        try:
            flush_pieces(self._index.unflushed(self._ledger.durable_index))
            self.write()
        except OSError as error:
            log.error("DLedger's checkpoint could not be written at shutdown: %s", error)
            return False
        return True

    def _wanted(self, end_index: int) -> LedgerCheckpoint:
        ledger = self._ledger
        begin = self.begin_at if ledger.durable_index < ledger.begin_index else ledger.begin_position
        committed = min(ledger.committed_index, ledger.durable_index)
        return LedgerCheckpoint(
            end_index, committed, ledger.begin_index if begin >= 0 else -1, begin, ledger.amnesiac_until
        )

    # --- in the background ---

    def job(self) -> NoteJob | None:
        """Returns the job that makes index units durable and then writes the note; None if there is nothing new to
        write."""
        wanted = self._wanted(self._ledger.durable_index)
        if wanted == self._saved or self._flusher.failure is not None:
            return None
        pieces: Pieces = self._index.unflushed(wanted.end_index)
        number = self.file.number()

        def work() -> None:
            flush_pieces(pieces)
            self.file.save(wanted, number)

        def done() -> None:
            self._index.flushed(wanted.end_index)
            if self.file.is_newest(number):
                self._saved = wanted

        return NoteJob(work, done)

    async def note(self) -> None:
        """Write the checkpoint on another thread, if it is out of date."""
        job = self.job()
        if job is not None:
            try:
                await self._context.jobs.run(job.work, threads=CHECKPOINTS)
            except OSError:
                self._saved = None
                raise
            job.done()

    async def run(self) -> None:
        """Write the notes at intervals until cancelled.

        Raises:
            StoreFailedError: the disk did not take it, and not for lack of room.
        """
        while True:
            await asyncio.sleep(_CHECKPOINT_SECONDS)
            try:
                await self.note()
            except OSError as error:
                if not lacks_room(error):
                    raise StoreFailedError(f"DLedger's checkpoint could not be written: {error}") from error
                log.warning("DLedger's checkpoint could not be written: %s; it is tried again", error)
