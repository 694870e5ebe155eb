"""File stores on a simulated disk."""

from pathlib import PurePath

from maxq.protocol.dledger.ledger import HardState
from maxq.store.dledger.mmap_file_store import DLedgerMmapFileStore
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import SimDisk
from maxq.testing.sim_rng import SimRng

BASE = PurePath("base")


def new_disk(seed: int = 1) -> SimDisk:
    return SimDisk(SimRng(seed), SimClock(), write_back=0.0)


def new_store(disk: SimDisk, self_id: str = "n0", file_size: int = 4096, index_size: int = 320) -> DLedgerMmapFileStore:
    return DLedgerMmapFileStore(
        BASE, self_id, disk=disk, clock=disk.clock, data_file_size=file_size, index_file_size=index_size,
    )  # fmt: skip


def opened(disk: SimDisk, self_id: str = "n0", file_size: int = 4096, index_size: int = 320) -> DLedgerMmapFileStore:
    """A member's; a new one has founded its group."""
    store = new_store(disk, self_id, file_size, index_size)
    store.load()
    if store.end_index < 0 and not store.report.amnesia:
        store.remembered()
    return store


def leading(disk: SimDisk, term: int = 1, self_id: str = "n0", **sizes: int) -> DLedgerMmapFileStore:
    store = opened(disk, self_id, **sizes)
    store.store_term(HardState(term, self_id))
    store.begin_leading(term)
    return store


def files_in(disk: SimDisk, folder: str, self_id: str = "n0") -> dict[str, bytes]:
    path = BASE / f"dledger-{self_id}" / folder
    return {entry.name: disk.read(path / entry.name) for entry in disk.list(path)}
