"""A DLedger log on a disk without room: what is refused, and that nothing of it stays in the way afterwards."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath

import pytest

from maxq.protocol.dledger.dledger_messages import DLedgerEntry, EntryRun
from maxq.protocol.dledger.ledger import HardState
from maxq.runtime.files.system import SystemDisk
from maxq.store.dledger.mmap_file_store import DLedgerMmapFileStore
from maxq.store.dledger.term_file import TermFile, TermFound
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import SimDisk
from maxq.testing.sim_region import SimMappedRegion
from maxq.testing.sim_rng import SimRng
from tests.mounted_disk import MountedDisk, NotAllowedError
from tests.unit.store.dledger.worlds import BASE, leading, opened

KIB = 1 << 10


def sparse_disk() -> SimDisk:
    return SimDisk(SimRng(1), SimClock(), total_bytes=1 << 20, write_back=0.0, sparse=True)


@contextmanager
def full(disk: SimDisk) -> Iterator[None]:
    disk.other_bytes = disk.total_bytes
    yield
    disk.other_bytes = 0


def entry(index: int, term: int, position: int, body: bytes) -> EntryRun:
    return EntryRun.of(
        DLedgerEntry(size=48 + len(body), index=index, term=term, pos=position, body=body).encode()
    )  # fmt: skip


def append_until_full(store: DLedgerMmapFileStore, size: int = 500) -> None:
    for _ in range(10_000):
        try:
            store.append(bytes(size))
        except OSError as error:
            assert error.errno == errno.ENOSPC
            return
    raise AssertionError("the disk was never full")


def end_of(store: DLedgerMmapFileStore) -> int:
    unit = store.unit(store.end_index)
    return unit.position + unit.size


def test_own_entry_without_room_is_refused_and_the_next_one_with_room_follows_the_last() -> None:
    disk = sparse_disk()
    store = leading(disk)
    with full(disk):
        append_until_full(store)
        end = store.end_index
        assert not store.has_room
        store._disk_room.try_again()
        assert not store.has_room
        with pytest.raises(OSError, match="No space"):
            store.append(bytes(500))
        assert store.end_index == end and not disk.unbacked()
    store._disk_room.try_again()
    assert store.has_room
    assert store.append(b"more") == end + 1
    store.close_inline()
    again = opened(disk)
    assert (again.end_index, again.entry(end + 1).body, again.report.amnesia) == (end + 1, b"more", [])
    again.close_inline()


def test_room_that_is_found_again_begins_no_file_that_another_leaders_entry_would_not_need() -> None:
    disk = sparse_disk()
    store = leading(disk)
    store.append(bytes(3000))
    with full(disk):
        append_until_full(store, 2000)  # it would need the next file
    store._disk_room.try_again()  # as a leader; then another one leads, whose entry is small
    end, position = store.end_index, end_of(store)
    store.end_leading()
    assert store.append_entries(entry(end + 1, 2, position, b"small")) == end + 1
    store.close_inline()


def test_file_that_was_begun_in_vain_is_left_when_another_leader_goes_on_in_the_one_before() -> None:
    disk = sparse_disk()
    store = leading(disk)
    store.append(bytes(3000))
    end, position = store.end_index, end_of(store)
    store._log.make_room_for(store._log.next_position(2000), 2000)  # and then the entry never came
    assert store.end_position == 4096
    store.end_leading()
    assert store.append_entries(entry(end + 1, 1, position, b"small")) == end + 1
    assert store.unit(end + 1).position == position
    store.close_inline()
    again = opened(disk)
    assert (again.end_index, again.report.amnesia) == (end + 1, [])
    again.close_inline()


def test_follower_without_room_says_so_and_takes_the_same_entries_later() -> None:
    disk = sparse_disk()
    store = opened(disk)
    store.append_entries(entry(0, 1, 0, bytes(1000)))
    with full(disk):
        with pytest.raises(OSError, match="No space"):
            for index in range(1, 100):
                store.append_entries(entry(index, 1, 4096 * index, bytes(4000)))
        assert not store.has_room and not disk.unbacked()
    store._disk_room.try_again()
    assert store.has_room
    first = store.end_index + 1
    assert store.append_entries(entry(first, 1, 4096 * first, bytes(4000))) == first
    store.close_inline()


def test_index_without_room_refuses_an_entry_and_never_answers_with_another_ones_index(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = sparse_disk()
    store = leading(disk)
    for number in range(10):  # an index file of 320 bytes
        store.append(b"%d" % number)
    real = SimMappedRegion.allocate

    def allocate(region: SimMappedRegion, start: int, end: int) -> None:
        if "/index/" in region._path:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(region, start, end)

    monkeypatch.setattr(SimMappedRegion, "allocate", allocate)
    with pytest.raises(OSError, match="No space"):
        store.append(b"10")
    assert store.end_index == 9
    monkeypatch.setattr(SimMappedRegion, "allocate", real)
    assert store.append(b"10") == 10
    assert store.entry(10).body == b"10"
    store.close_inline()


def test_own_entries_that_the_index_had_no_room_for_go_when_another_member_leads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = sparse_disk()
    store = leading(disk)
    for number in range(10):
        store.append(b"%d" % number)
    position = end_of(store)
    store._log.make_room_for(position, 200)
    assert store._log.tail.append_entry(b"told to nobody")  # as the broker's writing end does, which asks no index
    real = SimMappedRegion.allocate

    def allocate(region: SimMappedRegion, start: int, end: int) -> None:
        if "/index/" in region._path:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(region, start, end)

    monkeypatch.setattr(SimMappedRegion, "allocate", allocate)
    store.appended()
    assert (store.end_index, store.has_room) == (9, False)
    monkeypatch.setattr(SimMappedRegion, "allocate", real)
    store.end_leading()
    assert store.append_entries(entry(10, 2, position, b"the next leader's")) == 10
    store.close_inline()


def test_cut_without_room_for_the_checkpoint_changes_nothing_and_can_be_done_later() -> None:
    disk = sparse_disk()
    store = leading(disk)
    for number in range(10):
        store.append(b"%d" % number)
    store.commit(4)
    store.end_leading()
    disk.delete(BASE / "dledger-n0" / "checkpoint.room")
    real = disk.replace

    def refuse(path: PurePath, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    disk.replace = refuse  # type: ignore[method-assign]
    with pytest.raises(OSError, match="No space"):
        store.truncate(5)
    assert (store.end_index, store.entry(9).body) == (9, b"9")
    with pytest.raises(OSError, match="No space"):
        store.reset(20, 8192)
    assert (store.end_index, store.entry(9).body) == (9, b"9")
    disk.replace = real  # type: ignore[method-assign]
    store.truncate(5)
    assert store.end_index == 5
    store.close_inline()
    again = opened(disk)
    assert (again.end_index, again.report.amnesia) == (5, [])
    again.close_inline()


def test_terms_are_stored_on_a_full_disk_and_power_takes_none_of_them() -> None:
    disk = sparse_disk()
    store = leading(disk)
    store.append(b"one")
    with full(disk):
        for term in range(2, 12):
            store.store_term(HardState(term, "n1"))
            assert opened(disk.boot()).term_state == HardState(term, "n1")
    store.close_inline()
    assert opened(disk).term_state == HardState(11, "n1")


# ---- the real thing -------------------------------------------------------------------------------------------------

#: A member on a real disk, in a process of its own: it fills the disk and is killed, or starts on it.
_MEMBER = """
import os, sys
from pathlib import Path
from maxq.config.message_store_config import MessageStoreConfig
from maxq.runtime.files.system import SystemClock, SystemDisk
from maxq.protocol.dledger.ledger import HardState
from maxq.store.message_store import MessageStore
from maxq.store.context.store_context import StoreIdentity
from tests.unit.store.stores import message
folder, what = Path(sys.argv[1]), sys.argv[2]
config = MessageStoreConfig(
    store_path_root_dir=str(folder / "store"), enable_dleger_commit_log=True, dleger_group="g", dleger_self_id="n0",
    dleger_peers="n0-127.0.0.1:1", mapped_file_size_commit_log=int(sys.argv[3]), max_hash_slot_num=1000,
    max_index_num=20_000,
)
store = MessageStore(config, disk=SystemDisk(), clock=SystemClock(), broker=StoreIdentity(), memory_bytes=1 << 30)
store.load()
if what == "fill":
    store.ledger.store_term(HardState(1, "n0"))
    store.ledger.begin_leading(1)
number = 0
while (result := store.put_message(message(f"T{number % 3}", number % 4, os.urandom(3000), KEYS=f"k{number}"))).ok:
    number += 1
    if number % 20 == 0:
        store.ledger.commit(store.ledger.end_index)
    assert what == "fill", "a disk without room takes nothing"
print(store.ledger.end_index)
sys.stdout.flush()
os._exit(9)  # killed
"""


@pytest.mark.parametrize("file_size", [1 << 20, 16 << 20])
def test_a_member_that_was_killed_on_a_full_disk_starts_there_again(tmp_path: Path, file_size: int) -> None:
    """To read a hole of a file on a full tmpfs is SIGBUS, and there is no block for a checkpoint."""
    disk = MountedDisk(tmp_path / "mounted", "tmpfs", 20 << 20)
    try:
        disk.mount()
    except NotAllowedError as error:
        pytest.skip(str(error))

    def member(what: str) -> int:
        command = [sys.executable, "-c", _MEMBER, str(disk.folder), what, str(file_size)]
        done = subprocess.run(command, capture_output=True, cwd=Path(__file__).parents[4], timeout=100, text=True)
        assert done.returncode == 9, f"{done.returncode}: {done.stdout}{done.stderr[-3000:]}"
        return int(done.stdout)

    try:
        end = member("fill")
        disk.fill()
        assert end > 1000
        assert member("start") == end
        assert member("start") == end
    finally:
        disk.unmount()


async def test_the_first_of_two_files_goes_on_a_disk_that_has_no_room_for_the_checkpoint() -> None:
    """Nothing else gives room back there."""
    disk = sparse_disk()
    store = leading(disk)
    store._full_ratio = 0.5
    while len(store._log.files.files) < 2:
        store.append(bytes(500))
    store.flusher.flush_inline()
    store.commit(store.end_index)
    with full(disk):
        await store.notes.note()
        assert await store.clean() == 1
        begin, end = store.begin_index, store.end_index
        assert 0 < begin <= end
        disk.kill_process()
        disk = disk.boot()
        disk.other_bytes = disk.usage(BASE).free
        again = opened(disk)
    assert (again.begin_index, again.end_index, again.report.amnesia) == (begin, end, [])


@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
def test_terms_are_stored_on_a_disk_that_is_really_full(tmp_path: Path, kind: str) -> None:
    """While somebody else takes every block that is given back."""
    mounted = MountedDisk(tmp_path / "mounted", kind, 20 << 20)
    try:
        mounted.mount()
    except NotAllowedError as error:
        pytest.skip(str(error))
    try:
        folder = mounted.folder / "dledger-n0"
        terms = TermFile(SystemDisk(), folder)
        terms.save(HardState(8, "n0"))
        for term in range(9, 102):
            mounted.fill()
            terms.save(HardState(term, "n1"))
            assert TermFile(SystemDisk(), folder).load() == TermFound(HardState(term, "n1"), False, [])
    finally:
        mounted.unmount()
