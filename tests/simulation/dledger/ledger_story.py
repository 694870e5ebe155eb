"""The story of one DLedger member's files under a seed: a leader or a follower that loses its power, again and again.

A naive log (tests/unit/store/dledger/naive_dledger.py) says what was done, what was durable and what was promised.
After every start:

* nothing comes back that was truncated or never was: every entry is the one that was written last at its index (S7);
* nothing durable is lost, unless a bit was changed; then the member knows that it lost something (S10), unless what is
  left is what a loss of power may leave;
* without changed bits nobody is amnesiac;
* term and vote are those stored last, or those that were being stored;
* the committed index does not lie;
* the log begins where its oldest file did: retention takes only what is committed, durable, noted and needed by nobody,
  and what it takes is gone;
* a scan by Java's rules finds the same log.
"""

import contextlib
from collections import Counter
from collections.abc import Callable
from pathlib import PurePath
from typing import TypeVar

from maxq.errors import LedgerMismatchError, StoreFailedError, StoreRefusedError
from maxq.protocol.dledger.dledger_messages import DLedgerEntry, EntryRun
from maxq.protocol.dledger.ledger import HardState
from maxq.store.dledger.mmap_file_store import _DELETE_AT_ONCE, DLedgerMmapFileStore
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import PowerLoss, SimDisk
from maxq.testing.sim_rng import SimRng
from tests.simulation.disk_faults import FaultMix, nothing_fails
from tests.unit.store.dledger.naive_dledger import NaiveEntry, NaiveLog, java_recovery

T = TypeVar("T")

_BASE = PurePath("base")
_FOLDER = _BASE / "dledger-n0"
_FILE_SIZE = 4096
_LIVES = 6
_NO_ZEROS = bytes(1 + byte % 255 for byte in range(256))


class LedgerStory:
    """One seed.

    Attributes:
        marks: how often each kind of thing happened.
        history: what happened, for whoever reads a failure.
    """

    def __init__(self, seed: int) -> None:
        self.rng = SimRng(seed)
        self.marks: Counter[str] = Counter()
        self.history: list[str] = []
        self.disk = SimDisk(self.rng.fork("disk"), SimClock(), metadata_in_order=self.rng.chance(0.5))
        self.log = NaiveLog(_FILE_SIZE)
        self.may_be: list[list[NaiveEntry]] = []  # logs that may be found beside prefixes of this one
        self.durable = -1
        self.committed = -1
        self.kept_from = 0  # index: entries from it on must be there, and those before it that retention may still hold
        self.gone_below = 0  # index: what is before it does not come back
        self.terms = [HardState()]  # the last one is the newest; those before it may be found if it was not stored
        self.flipped = False
        self.scars: set[int] = set()  # changed bytes of data files that lay further back than starts look
        self.forgot = False
        self.store = self._new()

    def run(self) -> None:
        """Tell it; AssertionError if a rule is broken."""
        for _ in range(_LIVES):
            try:
                if self.rng.chance(0.6):
                    self.disk.cut_power_after(self.rng.below(250), process_only=self.rng.chance(0.3))
                self._life()
            except PowerLoss:
                self.marks[f"power lost in: {self._where()}"] += 1
                self.history.append(f"power lost in {self.disk.lost_at}")
            filled = self.disk.other_bytes
            self.disk = self.disk.boot()
            self._flip()
            self.disk.other_bytes = self.disk.usage(_BASE).free if filled and self.rng.chance(0.5) else 0
        self.disk.other_bytes = 0
        self._start()

    def _life(self) -> None:
        try:
            self._start()
            if self._is_new():
                self.store.remembered()  # it founds its group
            self._live()
            self._end()
        except StoreFailedError:
            assert self.scars, "an entry cannot be read"
            self.marks["damaged far back"] += 1

    def _start(self) -> None:
        """Start, after a kill on a full disk also where that has no room yet."""
        self.store = self._new()
        try:
            report = self.store.load()
        except StoreRefusedError as refusal:
            assert self.disk.other_bytes, f"nothing speaks against a start: {refusal}"
            assert self.flipped or self.scars, f"there is no damage to keep: {refusal}"
            self.marks["refused to start on a full disk"] += 1
            self.disk.other_bytes = 0
            self.store = self._new()
            report = self.store.load()
        self.disk.other_bytes = 0
        self._check_start(report)

    def _new(self) -> DLedgerMmapFileStore:
        store = DLedgerMmapFileStore(
            _BASE, "n0", disk=self.disk, clock=self.disk.clock, data_file_size=_FILE_SIZE,
            index_file_size=self._index_file_size(),
        )  # fmt: skip
        store._reserved_ms, store._clean_ratio = 0, -1.0  # a file may be deleted at any hour
        store.flusher.commit_soon = lambda: None  # type: ignore[method-assign]  # durable when the story says so
        store.set_listeners(lambda first, last: None, self._on_durable)
        store._context.jobs.run = _inline  # type: ignore[assignment, method-assign]
        return store

    def _index_file_size(self) -> int:
        return 640

    def _is_new(self) -> bool:
        return self.store.end_index < 0 and not self.store.report.amnesia

    def _where(self) -> str:
        operation, _, path = self.disk.lost_at.partition(" ")
        parts = PurePath(path).parts
        return f"{operation} {parts[2] if len(parts) > 2 else path}"

    # --- a life ---

    def _live(self) -> None:
        names = (
            "own", "own", "follow", "follow", "flush", "flush", "commit", "commit", "truncate", "note", "term", "reset",
            "retain",
        )  # fmt: skip
        for _ in range(self.rng.between(3, 40)):
            name = self.rng.choice(names)
            if self.forgot and name in ("own", "truncate", "reset"):
                continue  # a leader tells it first what it forgot
            self.marks[name] += 1
            getattr(self, f"_do_{name}")()

    def _on_durable(self, index: int) -> None:
        self.durable = max(self.durable, index)

    def _body(self) -> bytes:
        size = self.rng.choice((0, 7, 60, 300, 1200, 3900))
        return self.rng.bytes(self.rng.between(0, size)).translate(_NO_ZEROS)

    def _term(self) -> int:
        return max(self.terms[-1].term, self.log.entries[-1].term if self.log.entries else 0)

    def _do_term(self) -> None:
        state = HardState(self._term() + self.rng.between(1, 2), self.rng.choice(("n0", "n1", None)))
        self.terms.append(state)
        self.store.store_term(state)
        self.terms = [state]
        self.history.append(f"{state} durable")

    def _do_own(self) -> None:
        self._do_term()
        self.store.begin_leading(self.terms[-1].term)
        for _ in range(self.rng.between(1, 4)):
            body = self._body()
            entry = self.log.append(self.terms[-1].term, body)
            assert self.store.append(body) == entry.index
        self.store.end_leading()
        self.history.append(f"own entries up to {self.log.next_index - 1}, durable {self.durable}")

    def _do_follow(self) -> None:
        if self.terms[-1].term < self._term():
            self._do_term()
        entries = [self.log.append(self.terms[-1].term, self._body()) for _ in range(self.rng.between(1, 5))]
        for entry in entries:
            self.store.append_entries(EntryRun.of(entry.encode()))
        self.history.append(f"a leader's entries up to {self.log.next_index - 1}, durable {self.durable}")

    def _do_flush(self) -> None:
        self.store.flusher.flush_inline()
        assert self.store.durable_index == self.store.end_index
        self.history.append(f"durable up to {self.durable}")

    def _do_commit(self) -> None:
        if self.store.durable_index > self.committed:
            self.committed = self.rng.between(self.committed + 1, self.store.durable_index)
            self.store.commit(self.committed)
            self.history.append(f"committed up to {self.committed}")

    def _do_note(self) -> None:
        job = self.store.notes.job()
        if job is not None:
            job.work()
            job.done()

    def _do_truncate(self) -> None:
        low, high = max(self.committed, self.store.begin_index, 0), self.store.end_index
        if low >= high:
            return
        if self.committed > self.store.begin_index:
            try:
                self.store.truncate(self.committed - 1)
            except LedgerMismatchError:
                self.marks["truncation below committed refused"] += 1
        index = self.rng.between(low, high)
        self.may_be.append(list(self.log.entries))
        self.durable = min(self.durable, index)
        self.history.append(f"truncate behind {index}")
        self.store.truncate(index)
        self.log.truncate(index)
        self.may_be.clear()

    def _do_reset(self) -> None:
        if not self.rng.chance(0.1):
            return
        index = self.log.next_index + self.rng.between(1, 50)
        position = self.log.end + self.rng.between(1, 5) * _FILE_SIZE
        position -= position % _FILE_SIZE if self.rng.chance(0.5) else 0
        self.may_be.append(list(self.log.entries))
        self.log = NaiveLog(_FILE_SIZE, [], index, position)
        self.durable, self.committed = -1, index - 1  # as long as the power may go
        self.kept_from = index
        self.history.append(f"reset to {index} at {position}")
        self.store.reset(index, position)
        self.may_be.clear()
        self.durable = index - 1
        self.gone_below = index
        self.marks["emptied"] += 1

    def _do_retain(self) -> None:
        """Let old files go, also where the disk has no room for anything else; the process may be killed around it."""
        store, rng = self.store, self.rng
        if store.end_index < 0 or not rng.chance(0.7):
            return
        if rng.chance(0.6):  # as what is old is
            self._do_flush()
            self._do_commit()
        is_full, is_noted = rng.chance(0.4), rng.chance(0.3)
        needed_from = rng.between(0, store.end_index + 1)
        store.retain_from(needed_from)
        if rng.chance(0.4):
            self.disk.cut_power_after(rng.below(16), process_only=rng.chance(0.6))
        may_go = [self.committed, *(() if is_full else (needed_from,))]
        self.kept_from = max(self.kept_from, min(may_go))
        self.history.append(f"retention{' on a full disk' if is_full else ''}, a follower needs {needed_from}")
        if is_full:
            self.disk.other_bytes = self.disk.usage(_BASE).free
        try:
            if is_noted:
                self._do_note()
            deleted = self._clean()
        finally:
            if not self.disk.is_dead:
                self.disk.other_bytes = 0
        self.marks[f"deleted{' on a full disk' if is_full else ''}"] += deleted
        files = store._log.files.files
        if is_full and is_noted and deleted < _DELETE_AT_ONCE and len(files) > 1:
            assert files[0].end_offset >= store.committed_position, "nobody needs the first file, and the disk is full"
        self.kept_from = max(store.begin_index, 0)
        if deleted:
            self.gone_below = self.kept_from
        self.history.append(f"it begins with {store.begin_index}")

    def _clean(self) -> int:
        """Return how many files went."""
        cleaning = self.store.clean()
        try:
            cleaning.send(None)
        except StopIteration as ended:
            return int(ended.value)
        raise AssertionError("retention waits for something")

    def _end(self) -> None:
        self.history.append("the end")
        if self.rng.chance(0.3):
            self.store.close_inline()
            self.marks["ending: shutdown"] += 1
        elif self.rng.chance(0.4):
            self.marks["ending: kill"] += 1
        else:
            self.marks["ending: power"] += 1
            self.disk.cut_power()

    def _flip(self) -> None:
        self.flipped = False
        if not self.rng.chance(0.25):
            return
        names = ["currterm", "checkpoint"]
        names += [f"data/{entry.name}" for entry in self.disk.list(_FOLDER / "data")] * 3
        names += [f"index/{entry.name}" for entry in self.disk.list(_FOLDER / "index")]
        path = _FOLDER / self.rng.choice(names)
        if not self.disk.exists(path):
            return
        data = bytearray(self.disk.read(path))
        used = len(bytes(data).rstrip(b"\0"))
        if not used:
            return
        position, bit = self.rng.below(used), self.rng.below(8)
        data[position] ^= 1 << bit
        self.disk.write(path, bytes(data))
        self.flipped = True
        if path.parent.name == "data":
            self.scars.add(int(path.name) + position)
        self.marks[f"flipped: {path.parent.name if path.parent != _FOLDER else path.name}"] += 1
        self.history.append(f"{path}: byte {position} bit {bit} changed")

    # --- what a start must find ---

    def _check_start(self, report: object) -> None:
        store, entries = self.store, {entry.index: entry for entry in self.log.entries}
        self.history.append(f"start: {report}")
        old = [{entry.index: entry for entry in entries_of} for entries_of in self.may_be]
        last = store.end_index
        found = [entry for index in range(max(store.begin_index, 0), last + 1) if (entry := self._entry(index))]
        for entry in found:
            is_scanned = entry.index > last - store.report.scanned_entries
            if not is_scanned and any(entry.pos <= scar < entry.pos + entry.size for scar in self.scars):
                continue
            known = [table[entry.index] for table in (entries, *old) if entry.index in table]
            assert any(_same(entry.encode(), one.encode()) for one in known), (
                f"entry {entry.index} of term {entry.term} is none that was written"
            )
        if not (self.flipped or self.scars or self.forgot):
            begin = max(store.begin_index, 0)
            assert self.gone_below <= begin <= self.kept_from, (
                f"the log begins with {begin}, not between {self.gone_below} and {self.kept_from}"
            )
        lost = last < self.durable
        if lost and not self.forgot:
            assert self.flipped or self.scars, f"entries up to {self.durable} were durable, the log ends with {last}"
            if store.amnesiac_until < 0:
                self.marks["lost, and it looks torn"] += 1
            else:
                self.marks["lost, and it knows"] += 1
                assert store.amnesiac_until > last
        if store.amnesiac_until >= 0 and not self.forgot and not self._is_new():
            assert self._may_be_amnesiac(), f"amnesiac without a changed bit: {store.report.amnesia}"
        self.forgot = store.amnesiac_until >= 0 and not self._is_new()
        if not self.forgot:
            assert store.term_state in self.terms, f"{store.term_state} is none of {self.terms}"
        if not self.scars:
            assert store.committed_index <= self.committed, f"{store.committed_index} is not committed"
        assert store.durable_index == last
        self._java(found)
        self._adopt(found)

    def _may_be_amnesiac(self) -> bool:
        return self.flipped or bool(self.scars)

    def _entry(self, index: int) -> DLedgerEntry | None:
        try:
            return self.store.entry(index)
        except StoreFailedError:
            assert self.scars, f"entry {index} cannot be read"
            self.marks["damaged far back"] += 1
            return None

    def _java(self, found: list[DLedgerEntry]) -> None:
        if self.store.begin_index != 0 or self.scars:
            return
        folder = _FOLDER / "data"
        files = {entry.name: self.disk.read(folder / entry.name) for entry in self.disk.list(folder)}
        assert len(java_recovery(files, _FILE_SIZE)) == len(found), "Java's rules find another log"

    def _adopt(self, found: list[DLedgerEntry]) -> None:
        """What was found is the log now; what was not durable and is gone was never promised."""
        store = self.store
        begin = max(store.begin_index, 0)
        self.kept_from, self.gone_below = begin, min(begin, self.gone_below)
        # those of a file whose deletion was not durable when the process was killed may be back once more
        entries = [entry for entry in self.log.entries if self.gone_below <= entry.index < begin]
        entries += [NaiveEntry(entry.index, entry.term, entry.pos, entry.body) for entry in found]
        self.log = NaiveLog(_FILE_SIZE, entries, store.next_index, store.end_position)
        self.may_be.clear()
        self.terms = [store.term_state]
        self.durable = store.end_index
        self.committed = store.committed_index
        if self.forgot and self.rng.chance(0.5):  # a leader had all of it
            store.remembered()
            self.forgot = False
            self.marks["remembered"] += 1


class FaultyLedgerStory(LedgerStory):
    """The same on a disk of which every call can fail, and without changed bits.

    A member to which a call fails ends: it closes what it can, is killed, or its machine loses its power. It starts on
    the same machine, which shows what a failed sync has dropped and names that a loss of power takes back.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.disk = SimDisk(
            self.rng.fork("disk"), SimClock(), metadata_in_order=self.rng.chance(0.5), kill_keeps_cache=True,
            write_back=self.rng.choice((0.0, 0.2)),
        )  # fmt: skip
        self._unreadable = False

    def _flip(self) -> None:
        """No bit changes."""

    def _life(self) -> None:
        mix = FaultMix(self.rng.fork(f"faults {len(self.history)}"))
        disk, was_full = self.disk, bool(self.disk.other_bytes)
        try:
            self.store = self._new()
            disk.faults = mix if self.rng.chance(0.4) else nothing_fails
            try:
                report = self.store.load()
            finally:  # a start that is refused may have noted already that it could not read its term
                self._unreadable |= any(kind.startswith("read") for kind in mix.seen)
            disk.faults = nothing_fails
            disk.other_bytes = 0
            self._check_start(report)
            self._unreadable = False
            if self._is_new():
                self.store.remembered()
            disk.faults = mix if self.rng.chance(0.85) else nothing_fails
            self._live()
            self._end()
        except (OSError, StoreFailedError, StoreRefusedError) as error:
            assert mix.seen or was_full, f"a disk that works is refused: {error!r}"
            disk.other_bytes = 0
            self.marks["ended by an error of the disk"] += 1
            self.history.append(f"ended by {error!r}")
            if self.rng.chance(0.3):
                with contextlib.suppress(OSError, StoreFailedError):
                    self.store.close_inline()
            if self.rng.chance(0.4):
                disk.cut_power()
        finally:
            self.marks.update(f"failed: {kind}" for kind in mix.seen)

    def _may_be_amnesiac(self) -> bool:
        return self._unreadable


class LedgerSettingsStory(FaultyLedgerStory):
    """The same of a member whose settings change: index files get another size, which makes the index anew, and a start
    with another size of data files is refused, names the setting, and leaves every file as it was."""

    def _index_file_size(self) -> int:
        return self.rng.fork(f"index {len(self.history)}").choice((320, 640, 640, 1280))

    def _life(self) -> None:
        rng = self.rng.fork(f"settings {len(self.history)}")
        if rng.chance(0.5):
            self._have_it_refused(rng.choice((2048, 8192, 12_288)))
        super()._life()

    def _have_it_refused(self, size: int) -> None:
        data = [entry.name for entry in self.disk.list(_FOLDER / "data") if entry.size]
        if not data or self.disk.other_bytes:
            return
        before = {name: self.disk.read(_FOLDER / "data" / name) for name in data}
        store = DLedgerMmapFileStore(
            _BASE, "n0", disk=self.disk, clock=self.disk.clock, data_file_size=size, index_file_size=640
        )
        try:
            store.load()
        except StoreRefusedError as refusal:
            assert "mappedFileSizeCommitLog" in str(refusal), f"the refusal does not name the setting: {refusal}"
        else:
            raise AssertionError(f"a start with data files of {size} bytes is not refused")
        after = {entry.name for entry in self.disk.list(_FOLDER / "data")}
        gone = [name for name in data if any(before[name]) and name not in after]
        changed = [name for name in after.intersection(data) if self.disk.read(_FOLDER / "data" / name) != before[name]]
        assert not gone and not changed, f"a start that was refused has deleted {gone} and changed {changed}"
        self.marks["refused: mappedFileSizeCommitLog"] += 1
        self.history.append(f"refused: data files of {size} bytes")


async def _inline(work: Callable[..., T], *args: object, **threads: object) -> T:
    return work(*args)


def _same(found: bytes, written: bytes) -> bool:
    """Equal; or only the CRCs are missing, which is all that an entry without a body may lose of its torn header."""
    return found == written or (found[:36] + found[44:] == written[:36] + written[44:] and not any(found[36:44]))
