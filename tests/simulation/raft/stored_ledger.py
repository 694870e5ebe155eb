"""The shipped file store on a simulated disk, in the place of the log in memory: a crash keeps what was synced and
torn pieces of the rest, and comes in the middle of a truncation, too."""

from pathlib import PurePath

from maxq.protocol.dledger.dledger_messages import DLedgerEntry, EntryRun
from maxq.protocol.dledger.ledger import EntryUnit, HardState
from maxq.store.dledger.mmap_file_store import DLedgerMmapFileStore
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import SimDisk
from maxq.testing.sim_rng import SimRng
from tests.simulation.raft.sim_ledger import BrokenRuleError, Wrote

_NOWHERE = 1 << 62
BASE = PurePath("/s")
FILE_SIZE = 4096
INDEX_FILE_SIZE = 32 * 64


class StoredLedger:
    """The same face as SimLedger."""

    def __init__(self, owner: str, wrote: Wrote, rng: SimRng) -> None:
        self.owner = owner
        self._wrote = wrote
        self._rng = rng
        self._clock = SimClock()
        self.disk = SimDisk(rng.fork(f"disk {owner}"), self._clock)
        self._leads = -1  # the term in which the store takes own entries
        self._shown = -1
        self._is_led = False
        self._open()

    def _open(self) -> None:
        self.store = DLedgerMmapFileStore(
            BASE, self.owner, disk=self.disk, clock=self._clock, data_file_size=FILE_SIZE,
            index_file_size=INDEX_FILE_SIZE,
        )  # fmt: skip
        self.store.load()
        # syncs come when the world says so, not with the append
        self.store.flusher.commit_soon = lambda: None  # type: ignore[method-assign]
        self._leads = -1
        self._cut_to = _NOWHERE  # while it is being cut: the last entry that must stay
        self._shown = self.store.committed_index
        self._missed = self.store.amnesiac_until  # as the disk has it

    # --- Ledger ---

    @property
    def begin_index(self) -> int:
        return self.store.begin_index

    @property
    def end_index(self) -> int:
        return self.store.end_index

    @property
    def end_term(self) -> int:
        return self.store.end_term

    @property
    def durable_index(self) -> int:
        return self.store.durable_index

    @property
    def committed_index(self) -> int:
        return self.store.committed_index

    @property
    def amnesiac_until(self) -> int:
        return self.store.amnesiac_until

    def remembered(self) -> None:
        self.store.remembered()
        self._missed = -1

    def term_of(self, index: int) -> int:
        return self.store.term_of(index)

    def unit(self, index: int) -> EntryUnit:
        return self.store.unit(index)

    def entry(self, index: int) -> DLedgerEntry:
        return self.store.entry(index)

    def entries(self, first: int, max_bytes: int) -> EntryRun:
        run = self.store.entries(first, max_bytes)
        return EntryRun(run.first_index, run.last_index, run.last_term, run.pos, bytes(run.data))

    def append_entries(self, run: EntryRun) -> int:
        before, term = self.end_index, self.end_term
        try:
            return self.store.append_entries(run)
        finally:
            for entry in run.entries():
                if before < entry.index <= self.end_index:
                    self._wrote(self, entry, term)  # type: ignore[arg-type]
                    term = entry.term

    def truncate(self, index: int) -> None:
        if index < self._shown or self._is_led:
            raise BrokenRuleError(f"{self.owner} cuts behind {index}, {self._shown} is committed there")
        self._cut_to = index
        self.store.truncate(index)
        self._cut_to = _NOWHERE

    def reset(self, index: int, position: int) -> None:
        if index <= self._shown or self._is_led:
            raise BrokenRuleError(f"{self.owner} begins anew with {index}, {self._shown} is committed there")
        self._cut_to = -1
        self.store.reset(index, position)
        self._cut_to = _NOWHERE

    # --- for the world ---

    @property
    def has_stopped(self) -> bool:
        """Its power went in the middle of something."""
        return self.disk.is_dead

    @property
    def live_commit(self) -> int:
        return self._shown

    @live_commit.setter
    def live_commit(self, index: int) -> None:
        self._shown = index
        self.store.commit(index)
        if self._rng.below(10) == 0:
            job = self.store.notes.job()
            if job is not None:
                job.work()
                job.done()

    @property
    def is_led(self) -> bool:
        return self._is_led

    @is_led.setter
    def is_led(self, leads: bool) -> None:
        self._is_led = leads
        if not leads:
            self._leads = -1
            self.store.end_leading()

    def append_own(self, term: int, body: bytes) -> int:
        if self._leads != term:
            self._leads = term
            self.store.begin_leading(term)
        before = self.end_term
        index = self.store.append(body)
        self._wrote(self, self.entry(index), before)  # type: ignore[arg-type]
        return index

    def has(self, entry: DLedgerEntry) -> bool:
        return self.begin_index <= entry.index <= self.end_index and self.entry(entry.index) == entry

    def begin_flush(self) -> None: ...

    def end_flush(self) -> None:
        jobs = self.store._context.jobs
        jobs.is_closed = True  # inline
        self.store.flusher.commit()
        jobs.is_closed = False

    def forget_before(self, index: int) -> None:
        """Retention goes by files and hours; not here."""

    def term_stored(self, state: HardState) -> None:
        self.store.store_term(state)

    def crash(self, rng: SimRng, loses_synced: int = 0) -> None:
        self.disk.cut_power()
        self.disk = self.disk.boot()
        durable, missed = min(self.durable_index, self._cut_to), self._missed
        self._is_led = False
        self._open()
        if self.end_index < durable or self.amnesiac_until > missed:
            raise BrokenRuleError(f"{self.owner} was durable up to {durable} and comes back with {self.end_index}")

    def stored_term(self) -> HardState:
        """What the term file says."""
        return self.store.term_state
