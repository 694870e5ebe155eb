"""Where a start says that a log begins and ends whose files are not as they were left: entries without a CRC of their
header, as Java writes them, among them."""

import pytest

from maxq.errors import StoreRefusedError
from maxq.protocol.dledger.ledger import HardState
from maxq.store.dledger.ledger_checkpoint import LedgerCheckpoint, LedgerCheckpointFile
from maxq.store.dledger.mmap_file_store import DLedgerMmapFileStore
from maxq.testing.sim_disk import SimDisk
from tests.unit.store.dledger.worlds import BASE, leading, new_disk, opened

FOLDER = BASE / "dledger-n0"
FILE = 4096
BODY = 150  # 20 entries fill a file
INDEX, TERM, OWN_CRC = slice(8, 16), slice(16, 24), slice(36, 40)  # of an entry's header


def filled(count: int, *, committed: int | None = None) -> SimDisk:
    """A disk with a member's log of so many entries; its end was clean."""
    disk = new_disk()
    store = leading(disk)
    for number in range(count):
        store.append(bytes(1 + (number + at) % 255 for at in range(BODY)))
    if committed is not None:
        store.commit(committed)
    store.close_inline()
    return disk


def change(disk: SimDisk, position: int, *parts: tuple[slice, bytes]) -> None:
    """Change bytes, counted from a position of the log."""
    path = FOLDER / "data" / f"{position // FILE * FILE:020d}"
    data = bytearray(disk.read(path))
    for part, value in parts:
        data[position % FILE + part.start : position % FILE + part.stop] = value
    disk.write(path, bytes(data))


def goes_on(store: DLedgerMmapFileStore) -> int:
    """The index of the next entry that this member appends as a leader."""
    store.store_term(HardState(2, "n0"))
    store.begin_leading(2)
    return store.append(b"next")


def test_every_entry_that_was_looked_at_is_counted() -> None:
    store = opened(filled(60))
    assert store.report.scanned_entries == 60


def test_the_next_entry_of_a_log_of_which_nothing_is_committed_continues_it() -> None:
    store = opened(filled(60))
    assert (store.end_index, store.committed_index, store.amnesiac_until) == (59, -1, -1)
    assert goes_on(store) == 60


def test_the_next_entry_of_a_log_whose_committed_entry_lost_its_unit_continues_it() -> None:
    disk = filled(200, committed=100)
    disk.put(FOLDER / "index" / f"{100 * 32:020d}", bytes(320))
    store = opened(disk)
    assert (store.begin_index, store.end_index, store.amnesiac_until) == (0, 199, -1)
    assert goes_on(store) == 200


def test_a_log_whose_first_entry_is_no_entry_is_empty_whatever_follows() -> None:
    disk = filled(60)
    change(disk, 0, (slice(0, 4), b"\7\7\7\7"))
    store = opened(disk)
    assert (store.end_index, store.amnesiac_until) == (-1, 59)


def test_a_log_that_has_lost_its_only_entry_says_so() -> None:
    disk = filled(1)
    disk.delete(FOLDER / "data" / f"{0:020d}")
    store = opened(disk)
    assert (store.end_index, store.amnesiac_until) == (-1, 0)


def test_a_log_that_ends_with_a_full_file_is_not_cut() -> None:
    disk = filled(21)
    disk.delete(FOLDER / "data" / f"{FILE:020d}")
    store = opened(disk)
    assert (store.end_index, store.amnesiac_until, store.report.cut_bytes) == (19, 20, 0)


def test_a_log_ends_where_the_first_file_that_is_scanned_begins_with_a_damaged_entry() -> None:
    disk = filled(80)
    change(disk, FILE, (slice(100, 101), b"\0"))
    store = opened(disk)
    assert (store.end_index, store.amnesiac_until) == (19, 79)


def test_a_first_entry_without_a_crc_that_states_another_index_is_not_believed() -> None:
    disk = filled(30)
    change(disk, 0, (OWN_CRC, bytes(4)), (INDEX, (5).to_bytes(8, "big")))
    store = opened(disk)
    assert (store.end_index, store.amnesiac_until) == (-1, 29)


def without_first_file(count: int) -> SimDisk:
    """Java has deleted the first file, and a loss of power has taken the units of what is left."""
    disk = filled(count)
    disk.delete(FOLDER / "data" / f"{0:020d}")
    for entry in list(disk.list(FOLDER / "index")):
        disk.delete(FOLDER / "index" / entry.name)
    return disk


def test_the_next_entry_confirms_the_index_of_a_first_one_without_a_crc() -> None:
    disk = without_first_file(40)
    change(disk, FILE, (OWN_CRC, bytes(4)))
    store = opened(disk)
    assert (store.begin_index, store.end_index, store.report.amnesia) == (20, 39, [])


def test_the_index_of_an_only_entry_without_a_crc_is_not_believed() -> None:
    disk = without_first_file(21)
    change(disk, FILE, (OWN_CRC, bytes(4)), (INDEX, (20 ^ 1).to_bytes(8, "big")))
    store = opened(disk)
    assert store.report.amnesia != []
    assert store.end_index == -1


def test_a_header_with_zeros_at_a_border_of_sectors_may_have_been_written_in_part() -> None:
    """Such an entry was perhaps never whole, so nobody was told of it."""
    disk = new_disk()
    store = leading(disk)
    store.append(bytes(1 + at % 255 for at in range(500 - 48)))
    store.close_inline()
    known = disk.read(FOLDER / "checkpoint")
    store = opened(disk)
    store.store_term(HardState(2, "n0"))
    store.begin_leading(2)
    store.append(b"x" * 300)
    assert store.unit(1).position == 500, "a border is in its index"
    store.close_inline()
    for name in ("checkpoint", "checkpoint.bak"):
        disk.write(FOLDER / name, known)
    change(disk, 500, (TERM, (1 << 40 | 2).to_bytes(8, "big")))
    store = opened(disk)
    assert (store.end_index, store.report.amnesia) == (0, [])


@pytest.mark.parametrize("torn", [(slice(8, 48),), (INDEX,)])
def test_a_file_whose_length_a_loss_of_power_took_is_cut_with_what_was_never_flushed_behind_it(
    torn: tuple[slice, ...],
) -> None:
    """The header of the first entry behind it says index 0 where its sector was not written: that is no old entry."""
    disk = filled(60)
    LedgerCheckpointFile(disk, FOLDER).save(LedgerCheckpoint(end_index=10))
    disk.write(FOLDER / "data" / f"{FILE:020d}", b"")
    change(disk, 2 * FILE, *((part, bytes(part.stop - part.start)) for part in torn))
    store = opened(disk)
    assert (store.end_index, store.amnesiac_until, store.report.amnesia) == (19, -1, [])


def test_a_file_without_bytes_in_front_of_durable_entries_is_refused() -> None:
    disk = filled(60)
    LedgerCheckpointFile(disk, FOLDER).save(LedgerCheckpoint(end_index=45))
    disk.write(FOLDER / "data" / f"{FILE:020d}", b"")
    with pytest.raises(StoreRefusedError, match="has 0 bytes"):
        opened(disk)
