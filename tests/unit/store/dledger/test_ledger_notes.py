"""The note beside the log, wherever the power goes: what it calls durable or committed is there at the next start."""

from collections.abc import Callable

import pytest

from maxq.store.dledger.ledger_checkpoint import LedgerCheckpoint
from maxq.store.dledger.mmap_file_store import DLedgerMmapFileStore
from maxq.testing.sim_disk import PowerLoss, SimDisk
from tests.unit.store.dledger.worlds import leading, new_disk, opened

ENOUGH_STEPS = 40


def with_entries(seed: int, durable: int, more: int = 0) -> tuple[SimDisk, DLedgerMmapFileStore]:
    """A store that has synced `durable` entries, and then got `more`."""
    disk = new_disk(seed)
    store = leading(disk)
    for _ in range(durable):
        store.append(b"x" * 700)
    assert store.durable_index == durable - 1
    store.flusher.commit_soon = lambda: None  # type: ignore[method-assign]
    for _ in range(more):
        store.append(b"y" * 700)
    return disk, store


def note(store: DLedgerMmapFileStore) -> None:
    """What is done in the background."""
    job = store.notes.job()
    assert job is not None
    job.work()
    job.done()


def noted(store: DLedgerMmapFileStore) -> LedgerCheckpoint:
    found, faults = store.notes.file.load()
    assert found is not None and not faults
    return found


def starts_with_power_lost_in(
    prepare: Callable[[int], tuple[SimDisk, DLedgerMmapFileStore]], act: Callable[[DLedgerMmapFileStore], None]
) -> list[DLedgerMmapFileStore]:
    """The power goes in each disk operation of `act`, and once behind them all: what each start finds."""
    starts = []
    for step in range(ENOUGH_STEPS):
        disk, store = prepare(step)
        disk.cut_power_after(step)
        try:
            act(store)
        except PowerLoss:
            starts.append(opened(disk.boot()))
        else:
            disk.cut_power()
            return [*starts, opened(disk.boot())]
    raise AssertionError(f"{ENOUGH_STEPS} operations were not enough")


def test_what_others_committed_before_this_disk_had_it_is_not_missed_after_a_loss_of_power() -> None:
    def prepare(seed: int) -> tuple[SimDisk, DLedgerMmapFileStore]:
        disk, store = with_entries(seed, durable=3, more=3)
        store.commit(5)
        return disk, store

    starts = starts_with_power_lost_in(prepare, note)
    assert len(starts) > 2
    for store in starts:
        assert (store.report.amnesia, store.amnesiac_until) == ([], -1)
        assert store.end_index >= 2


def test_what_is_committed_is_noted_when_this_disk_has_it() -> None:
    _, store = with_entries(1, durable=3, more=3)
    store.commit(5)
    note(store)
    assert (noted(store).end_index, noted(store).committed_index) == (2, 2)
    store.flusher.flush_inline()
    note(store)
    assert (noted(store).end_index, noted(store).committed_index) == (5, 5)


@pytest.mark.parametrize("keeps", [1, 4, 8], ids=lambda keeps: f"behind {keeps}")
def test_what_a_truncation_took_is_not_missed_whenever_the_power_goes(keeps: int) -> None:
    """12 entries in three files; nothing that stays is lost, and nobody believes to have forgotten what went."""

    def prepare(seed: int) -> tuple[SimDisk, DLedgerMmapFileStore]:
        disk, store = with_entries(seed, durable=12)
        store.commit(1)
        note(store)
        assert noted(store).end_index == 11
        return disk, store

    starts = starts_with_power_lost_in(prepare, lambda store: store.truncate(keeps))
    assert {store.end_index for store in starts} >= {11, keeps}, "before and after"
    for store in starts:
        assert (store.report.amnesia, store.amnesiac_until) == ([], -1)
        assert (keeps <= store.end_index <= 11, store.committed_index) == (True, 1)


def test_entries_that_a_disk_lost_after_a_truncation_are_missed() -> None:
    """The lowered note still says all that was promised."""
    disk, store = with_entries(1, durable=12)
    note(store)
    store.truncate(8)
    path = next(path for path in disk.paths("*/data/*") if path.endswith("4096"))
    disk.flip_bit(path, 100, 3)
    disk.cut_power()
    store = opened(disk.boot())
    assert store.end_index < 8
    assert store.amnesiac_until == 8


def test_a_note_that_failed_does_not_keep_the_next_from_being_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, store = with_entries(1, durable=3)
    job = store.notes.job()
    assert job is not None
    job.work()  # it is there, and then the process hears of an error

    def fails(checkpoint: LedgerCheckpoint) -> None:
        raise OSError(5, "no answer")

    with monkeypatch.context() as patch:
        patch.setattr(store.notes.file, "save", fails)
        with pytest.raises(OSError, match="no answer"):
            store.notes.write()
    store.truncate(-1)
    disk.cut_power()
    store = opened(disk.boot())
    assert (store.report.amnesia, store.end_index) == ([], -1)
