"""What a unit of DLedger's index costs in memory: a fault of the loop must not zero megabytes."""

import ctypes
import mmap
import os
from pathlib import Path

import pytest

from maxq.protocol.dledger.ledger import HardState
from maxq.runtime.files.system import SystemClock, SystemDisk
from maxq.store.dledger.ledger import INDEX_FILE_SIZE
from maxq.store.dledger.mmap_file_store import DLedgerMmapFileStore

_PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)


def opened(folder: Path) -> DLedgerMmapFileStore:
    store = DLedgerMmapFileStore(
        folder, "n0", disk=SystemDisk(), clock=SystemClock(), data_file_size=65_536, index_file_size=INDEX_FILE_SIZE
    )
    store.load()
    return store


def append(store: DLedgerMmapFileStore, term: int) -> None:
    """Entries, as the leader of a term, whose units take two pages."""
    if store.end_index < 0:
        store.remembered()
    store.store_term(HardState(term, "n0"))
    store.begin_leading(term)
    for _ in range(200):
        store.append(b"entry")


def pages_in_memory(path: Path) -> int:
    """Pages of the file that the page cache has."""
    size = path.stat().st_size
    with path.open("r+b") as file, mmap.mmap(file.fileno(), size) as mapped:
        found = (ctypes.c_ubyte * (size // _PAGE))()
        here = ctypes.c_char.from_buffer(mapped)
        failed = _libc.mincore(ctypes.byref(here), ctypes.c_size_t(size), found)
        del here
    if failed:
        pytest.skip(f"the file system does not tell what is in memory: {os.strerror(ctypes.get_errno())}")
    return sum(one & 1 for one in found)


def test_units_of_a_fresh_index_file_bring_their_pages_and_none_around_them(disk_path: Path) -> None:
    """The kernel reads ahead of a fault, on some machines 16 MiB, and zeroes as much of a fresh file: 2 ms where memory
    is at hand, 180 where the host of a virtual machine has taken it back."""
    path = disk_path / "dledger-n0" / "index" / f"{0:020d}"
    store = opened(disk_path)
    append(store, 1)
    assert 1 <= pages_in_memory(path) <= 4
    store.close_inline()
    again = opened(disk_path)
    again._index.files.files[-1].region.forget(0, INDEX_FILE_SIZE)
    assert pages_in_memory(path) <= 4
    append(again, 2)
    assert 1 <= pages_in_memory(path) <= 8
    again.close_inline()
