"""DLedger's files: format, appends of leader and follower, truncation, what a start finds."""

import asyncio
import contextlib
import errno
import shutil
import zlib
from pathlib import Path

import pytest

from maxq.errors import LedgerMismatchError, MessageIllegalError, StoreRefusedError
from maxq.protocol.dledger.dledger_messages import DLedgerEntry, EntryRun
from maxq.protocol.dledger.ledger import HardState
from maxq.runtime.files.system import SystemClock, SystemDisk
from maxq.store.dledger import mmap_file_store
from maxq.store.dledger.mmap_file_store import DLedgerMmapFileStore
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import SimDisk
from maxq.testing.sim_rng import SimRng
from tests.unit.store.dledger.naive_dledger import NaiveEntry, NaiveLog, java_recovery
from tests.unit.store.dledger.worlds import BASE, files_in, leading, new_disk, new_store, opened

FOLDER = BASE / "dledger-n0"


def entry(index: int, term: int, position: int, body: bytes) -> DLedgerEntry:
    return DLedgerEntry(size=48 + len(body), index=index, term=term, pos=position, body=body)


def run_of(*entries: DLedgerEntry | NaiveEntry) -> EntryRun:
    return EntryRun.of(b"".join(one.encode() for one in entries))


def bodies(store: DLedgerMmapFileStore) -> list[bytes]:
    return [store.entry(index).body for index in range(max(store.begin_index, 0), store.end_index + 1)]


# --- the format ---


def test_the_worked_example_of_the_format_comes_out_byte_for_byte() -> None:
    disk = new_disk()
    store = leading(disk, 3, file_size=128, index_size=64)
    for body in (b"aa", b"bb", b"hi"):
        store.append(body)
    store.commit(1)
    store.close_inline()
    data, index = files_in(disk, "data"), files_in(disk, "index")
    head = bytes.fromhex("00000001 00000032 0000000000000002 0000000000000003 0000000000000080 00000000")
    end = zlib.crc32(b"hi").to_bytes(4, "big") + bytes.fromhex("00000002")
    own = zlib.crc32(head[4:] + end).to_bytes(4, "big")  # both CRCs are 0 in Java, which never looks
    assert data[f"{128:020d}"][:50] == head + own + end + b"hi"
    assert data[f"{0:020d}"][100:] == bytes.fromhex("ffffffff 0000001c") + bytes(20)
    assert index[f"{64:020d}"] == bytes.fromhex(
        "00000001 0000000000000080 00000032 0000000000000002 0000000000000003"
    ) + bytes(32)
    assert disk.read(FOLDER / "checkpoint").startswith(b"committedIndex=1\nendIndex=2\n")
    assert disk.read(FOLDER / "currterm").startswith(b"voteLeader=n0\ncurrTerm=3\n")


def test_an_entry_may_fill_its_file_up_to_the_last_eight_bytes_and_no_further() -> None:
    disk = new_disk()
    store = leading(disk)
    room = 4096 - 8 - 48
    store.append(bytes(room))
    with pytest.raises(MessageIllegalError, match=f"{room + 1} bytes, an entry takes at most {room}"):
        store.append(bytes(room + 1))
    store.append(bytes(room))
    assert [store.unit(0).position, store.unit(1).position] == [0, 4096]


def test_a_run_that_was_read_for_one_follower_serves_the_others_until_something_is_cut() -> None:
    store = leading(new_disk())
    for number in range(3):
        store.append(b"%d" % number)
    run = store.entries(1, 1 << 20)
    assert store.entries(1, 1 << 20) is run
    assert store.entries(1, 60).last_index == 1
    assert store.entries(0, 1 << 20).first_index == 0
    store.append(b"3")
    assert store.entries(1, 1 << 20).last_index == 3
    store.truncate(1)
    store.append(b"another")
    store.append(b"third")
    assert [one.body for one in store.entries(1, 1 << 20).entries()] == [b"1", b"another", b"third"]


def test_entries_come_in_runs_that_end_with_their_file_and_with_the_limit() -> None:
    store = leading(new_disk())
    for number in range(100):
        store.append(b"%03d" % number + bytes(97))
    first = store.entries(0, 1 << 20)
    assert (first.first_index, first.last_index, first.pos) == (0, 26, 0)
    assert store.entries(27, 1 << 20).pos == 4096
    limited = store.entries(5, 1000)
    assert (limited.first_index, limited.last_index) == (5, 10)
    assert store.entries(5, 1).last_index == 5
    assert EntryRun.of(bytes(limited.data)) == EntryRun(5, 10, 1, 5 * 148, bytes(limited.data))


# --- a follower ---


def test_a_followers_files_are_its_leaders_byte_for_byte() -> None:
    disk = new_disk()
    leader, follower = leading(disk), opened(disk, "n1")
    for number in range(200):
        leader.append(b"x" * (37 * number % 301))
    index = 0
    while index <= leader.end_index:
        run = leader.entries(index, 700)
        assert follower.append_entries(EntryRun.of(bytes(run.data))) == run.last_index
        index = run.last_index + 1
    leader.close_inline()
    follower.close_inline()
    assert files_in(disk, "data") == files_in(disk, "data", "n1")
    assert files_in(disk, "index") == files_in(disk, "index", "n1")


def test_a_follower_passes_over_what_it_has_and_takes_the_rest() -> None:
    log = NaiveLog(4096)
    entries = [log.append(1, b"%d" % number) for number in range(6)]
    store = opened(new_disk())
    store.append_entries(run_of(*entries[:4]))
    assert store.append_entries(run_of(*entries[1:3])) == 3
    assert store.append_entries(run_of(*entries[2:])) == 5
    assert bodies(store) == [b"%d" % number for number in range(6)]


@pytest.mark.parametrize(
    "wrong",
    [
        entry(7, 3, 150, b"a"),  # a gap
        entry(3, 1, 150, b"a"),  # a term that falls
        entry(3, 3, 151, b"a"),  # another place
        entry(2, 3, 100, b"c"),  # is here, of another term
        entry(3, 3, 4096 - 52, b"a"),
    ],
)
def test_entries_that_do_not_continue_the_log_are_refused(wrong: DLedgerEntry) -> None:
    store = opened(new_disk())
    store.append_entries(run_of(entry(0, 2, 0, b"aa"), entry(1, 2, 50, b"bb"), entry(2, 2, 100, b"cc")))
    with pytest.raises(LedgerMismatchError):
        store.append_entries(run_of(wrong))
    assert store.end_index == 2


def test_an_entry_without_its_crc_is_refused_and_those_before_it_are_kept() -> None:
    log = NaiveLog(4096)
    good, bad = log.append(1, b"good"), bytearray(log.append(1, b"bad").encode())
    bad[-1] ^= 1
    store = opened(new_disk())
    with pytest.raises(LedgerMismatchError) as caught:
        store.append_entries(EntryRun(0, 1, 1, 0, good.encode() + bytes(bad)))
    assert (caught.value.index, store.end_index, bodies(store)) == (1, 0, [b"good"])


def test_a_follower_of_a_leader_that_went_on_behind_its_filler_goes_there_too() -> None:
    store = opened(new_disk())
    store.append_entries(run_of(entry(0, 1, 0, b"a")))
    assert store.append_entries(run_of(entry(1, 1, 4096, b"b"))) == 1  # it would have fitted
    assert (store.unit(0).position, store.unit(1).position) == (0, 4096)
    assert bodies(store) == [b"a", b"b"]
    store.close_inline()


# --- truncation ---


def test_a_truncated_entry_does_not_come_back_when_equal_sizes_follow_it() -> None:
    """S7: terms 3 5 5 5, index 1 replaced by term 4 of equal size, and a start."""
    disk = new_disk()
    store = opened(disk)
    store.append_entries(run_of(*(entry(i, t, 50 * i, b"aa") for i, t in enumerate((3, 5, 5, 5)))))
    store.truncate(0)
    store.append_entries(run_of(entry(1, 4, 50, b"bb")))
    assert [one.term for one in java_recovery(files_in(disk, "data"), 4096)] == [3, 4]
    store.close_inline()
    again = opened(disk)
    assert [again.term_of(index) for index in range(again.end_index + 1)] == [3, 4]


def test_truncation_crosses_files_and_the_log_goes_on() -> None:
    disk = new_disk()
    store = leading(disk)
    log = NaiveLog(4096)
    for number in range(120):
        store.append(b"%03d" % number * 30)
        log.append(1, b"%03d" % number * 30)
    for index in (90, 29, 28, 3):
        store.truncate(index)
        log.truncate(index)
        assert files_in(disk, "data") == log.data_files()
        store.append(b"behind")
        log.append(1, b"behind")
        assert files_in(disk, "data") == log.data_files()
    assert store.durable_index == store.end_index == 4


def test_nothing_committed_is_truncated() -> None:
    store = leading(new_disk())
    for _ in range(5):
        store.append(b"x")
    store.commit(3)
    with pytest.raises(LedgerMismatchError, match="3 is committed"):
        store.truncate(2)
    with pytest.raises(LedgerMismatchError, match="3 is committed"):
        store.reset(3, 0)
    store.truncate(3)
    assert (store.end_index, store.committed_index) == (3, 3)


def test_an_emptied_log_begins_where_the_leaders_does_and_so_does_the_next_start() -> None:
    disk = new_disk()
    store = leading(disk)
    store.append(b"old")
    store.reset(1000, 40 * 4096 + 100)
    assert (store.begin_index, store.end_index, store.end_term, store.durable_index) == (1000, 999, -1, 999)
    store.close_inline()
    store = opened(disk)
    assert (store.begin_index, store.end_index) == (1000, 999)
    store.append_entries(run_of(entry(1000, 1, 40 * 4096 + 100, b"new")))
    store.close_inline()
    store = opened(disk)
    assert (store.begin_index, store.end_index, store.report.amnesia) == (1000, 1000, [])
    assert store.entry(1000).body == b"new"
    with pytest.raises(IndexError):
        store.entry(999)


def test_a_flush_that_began_before_a_truncation_says_nothing_of_what_came_after() -> None:
    store = leading(new_disk())
    store.append(b"a" * 100)
    flusher = store.flusher  # the flush is held up, as on a busy disk
    flusher.commit_soon = lambda: None  # type: ignore[method-assign]
    store.append(b"b" * 500)
    end = store._log.max_offset
    store.truncate(0)
    store.append(b"c" * 800)
    flusher._flushed(min(end, flusher._cut_at), 0)
    assert (store.end_index, store.durable_index) == (1, 0)
    flusher.flush_inline()
    assert store.durable_index == 1


# --- a start ---


def filled(count: int = 60, size: int = 150) -> tuple[SimDisk, NaiveLog]:
    """A closed store; bodies without zeros."""
    disk, log = new_disk(), NaiveLog(4096)
    store = leading(disk)
    for number in range(count):
        body = bytes(1 + (number + at) % 255 for at in range(size))
        store.append(body)
        log.append(1, body)
    store.commit(count // 2)
    store.close_inline()
    return disk, log


def test_a_start_finds_what_a_clean_end_left() -> None:
    disk, log = filled()
    store = opened(disk)
    assert bodies(store) == [one.body for one in log.entries]
    assert (store.durable_index, store.committed_index) == (59, 30)
    assert store.committed_position == log.entries[30].end
    assert (store.report.amnesia, store.report.faults) == ([], [])


def flip(disk: SimDisk, folder: str, name: str, position: int, bit: int = 4) -> None:
    path = FOLDER / folder / name if folder else FOLDER / name
    data = bytearray(disk.read(path))
    data[position] ^= 1 << bit
    disk.write(path, bytes(data))


def test_a_changed_bit_in_a_durable_entry_makes_the_member_amnesiac_until_it_has_it_back() -> None:
    disk, log = filled()
    flip(disk, "data", f"{0:020d}", log.entries[7].position + 100)
    store = opened(disk)
    assert store.end_index == 6
    assert store.amnesiac_until == 59
    assert "it had 59 durably" in store.report.amnesia[0]
    assert disk.exists(FOLDER / "damaged" / f"{log.entries[7].position:020d}")
    store.close_inline()
    store = opened(disk)  # it is not forgotten that it has forgotten
    assert store.amnesiac_until == 59
    for one in log.entries[7:]:
        store.append_entries(run_of(one))
    store.remembered()
    store.close_inline()
    assert opened(disk).report.amnesia == []


def test_a_changed_bit_behind_the_checkpoint_is_told_from_a_torn_write() -> None:
    disk, _ = filled()
    checkpoint = disk.read(FOLDER / "checkpoint")
    store = opened(disk)
    body = bytes(1 + at % 255 for at in range(700))
    store.begin_leading(2)
    store.store_term(HardState(2, "n0"))
    position = store.unit(store.append(body)).position
    store.close_inline()
    for name in ("checkpoint", "checkpoint.bak"):
        disk.write(FOLDER / name, checkpoint)
    name, at = f"{position // 4096 * 4096:020d}", position % 4096
    torn = bytearray(disk.read(FOLDER / "data" / name))
    border = (at + 300) // 512 * 512 + 512
    torn[border : at + 748] = bytes(at + 748 - border)
    as_it_was = disk.read(FOLDER / "data" / name)
    disk.write(FOLDER / "data" / name, bytes(torn))
    other = disk.boot()
    store = opened(other)
    assert (store.end_index, store.amnesiac_until) == (59, -1), "a write that never came to its end"
    disk.write(FOLDER / "data" / name, as_it_was)
    flip(disk, "data", name, at + 100)
    store = opened(disk)
    assert (store.end_index, store.amnesiac_until) == (59, 60)


def test_a_log_begins_with_its_first_entry_also_where_a_loss_of_power_took_that_ones_unit() -> None:
    """Units of files that a start does not scan are not looked at."""
    disk, log = filled(200)
    disk.put(FOLDER / "index" / f"{0:020d}", bytes(320))
    store = opened(disk)
    assert store.report.scanned_entries < 200, "the first file was not scanned"
    assert (store.begin_index, store.end_index, store.committed_index, store.report.amnesia) == (0, 199, 100, [])
    assert bodies(store) == [one.body for one in log.entries]


def test_index_units_that_are_wrong_are_written_anew() -> None:
    disk, log = filled()
    flip(disk, "index", f"{320:020d}", 33)
    disk.delete(FOLDER / "index" / f"{960:020d}")
    store = opened(disk)
    assert store.report.rewritten_units >= 1
    assert bodies(store) == [one.body for one in log.entries]
    store.close_inline()
    assert b"".join(files_in(disk, "index").values())[: 60 * 32] == log.index_bytes()


def test_damaged_filler_is_written_anew() -> None:
    disk, log = filled()
    data = log.data_files()
    at = next(one.end for one in log.entries if log.entries[one.index + 1].position == 4096)
    flip(disk, "data", f"{0:020d}", at + 2)
    store = opened(disk)
    assert (store.end_index, store.report.amnesia) == (59, [])
    assert files_in(disk, "data") == data


def test_one_of_two_damaged_term_files_is_enough_and_none_is_amnesia() -> None:
    disk, _ = filled()
    flip(disk, "", "currterm", 22, 0)
    store = opened(disk)
    assert (store.term_state, store.amnesiac_until) == (HardState(1, "n0"), -1)
    store.close_inline()
    for name in ("currterm", "currterm.bak"):
        flip(disk, "", name, 22, 0)
    store = opened(disk)
    assert store.term_state == HardState(1, None)
    assert store.amnesiac_until == 59


@pytest.mark.parametrize("position", range(len(filled(2)[0].read(FOLDER / "currterm"))))
def test_no_changed_bit_of_the_term_file_is_believed(position: int) -> None:
    disk, _ = filled(2)
    flip(disk, "", "currterm", position, position % 7)
    assert opened(disk).term_state == HardState(1, "n0")


def test_the_vote_that_was_being_stored_when_the_power_went_is_the_old_one_or_the_new_one() -> None:
    disk, _ = filled(5)
    store = opened(disk)
    store._term_file._file._disk.replace(FOLDER / "currterm.bak", b"")  # the rest never came
    assert opened(disk.boot()).term_state == HardState(1, "n0")


def test_files_of_another_size_are_refused_by_name_and_size() -> None:
    disk, _ = filled()
    before = files_in(disk, "data")
    assert len(before) > 2
    for size in (2048, 8192):
        with pytest.raises(StoreRefusedError, match="has 4096 bytes"):
            opened(disk, file_size=size)
    assert files_in(disk, "data") == before


def test_what_another_process_has_is_refused() -> None:
    disk = new_disk()
    opened(disk)
    with pytest.raises(StoreRefusedError, match="locked"):
        new_store(disk).load()


# --- running ---


async def test_one_file_is_made_ahead_for_java_does_not_start_beside_two(tmp_path: Path) -> None:
    store = DLedgerMmapFileStore(
        tmp_path, "n0", disk=SystemDisk(), clock=SystemClock(), data_file_size=4096, index_file_size=320
    )
    store.load()
    store.start()
    store.begin_leading(1)
    for _ in range(40):
        store.append(b"x" * 300)
        while not await asyncio.sleep(0, store.durable_index == store.end_index):
            pass
        last = max(int(path.name) for path in (tmp_path / "dledger-n0" / "data").iterdir())
        assert last - store.end_position <= 4096, "DLedgerMmapFileStore.recover, processOffset"
    assert (tmp_path / "dledger-n0" / "data" / f"{last:020d}").stat().st_size == 4096
    await store.shutdown()
    assert len(files_of(tmp_path)) == store.end_position // 4096 + 1, "what was made ahead is gone"


def files_of(base: Path) -> list[str]:
    return sorted(path.name for path in (base / "dledger-n0" / "data").iterdir())


async def test_the_checkpoint_follows_what_is_durable_and_committed(tmp_path: Path) -> None:
    store = DLedgerMmapFileStore(
        tmp_path, "n0", disk=SystemDisk(), clock=SystemClock(), data_file_size=4096, index_file_size=320
    )
    store.load()
    store.start()
    store.begin_leading(1)
    heard: list[int] = []
    store.set_listeners(lambda first, last: heard.append(-last), heard.append)
    for _ in range(5):
        store.append(b"x")
    while store.durable_index < 4:  # noqa: ASYNC110 - the group commit of this turn is on the executor
        await asyncio.sleep(0)
    assert (heard[:5], heard[-1]) == ([0, -1, -2, -3, -4], 4)
    store.commit(2)
    await store.notes.note()
    text = (tmp_path / "dledger-n0" / "checkpoint").read_text()
    assert text.startswith("committedIndex=2\nendIndex=4\n")
    await store.shutdown()


# --- retention ---


async def test_a_file_goes_when_it_is_committed_and_no_follower_needs_it() -> None:
    disk, log = filled(200)
    store = opened(disk)
    store._reserved_ms, store._clean_ratio = 0, 0.0
    assert isinstance(disk.clock, SimClock)
    disk.clock.advance_ms(3_600_000 * 100)
    assert await store.clean() == 0, "a follower may need all of it"
    store.retain_from(200)
    held = log.entries[100].position // 4096
    assert await store.clean() == min(10, held)
    first = next(one for one in log.entries if one.position >= held * 4096)
    assert (store.begin_index, store.unit(first.index).position) == (first.index, first.position)
    store.close_inline()
    again = opened(disk)
    assert (again.begin_index, again.end_index, again.report.amnesia) == (first.index, 199, [])


async def test_a_file_that_somebody_has_removed_keeps_no_other() -> None:
    disk, _ = filled(200)
    store = opened(disk)
    store._reserved_ms, store._clean_ratio = 0, 0.0
    assert isinstance(disk.clock, SimClock)
    disk.clock.advance_ms(3_600_000 * 100)
    store.retain_from(200)
    disk.delete(store._log.files.files[0].path)
    assert await store.clean() > 1
    store.close_inline()


async def test_a_disk_that_will_not_delete_now_ends_no_cleaning_and_leaves_no_gap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mmap_file_store, "_CLEAN_SECONDS", 0.001)
    disk, _ = filled(200)
    store = opened(disk)
    store._reserved_ms, store._clean_ratio = 0, 0.0
    assert isinstance(disk.clock, SimClock)
    disk.clock.advance_ms(3_600_000 * 100)
    store.retain_from(200)
    first, refusals = store._log.files.files[0], [errno.EIO] * 2
    disk.faults = lambda kind, path: refusals.pop() if refusals and (kind, path) == ("delete", str(first.path)) else 0
    store.start()
    async with asyncio.timeout(30):
        while store._log.files.files[0] is first or refusals:  # noqa: ASYNC110 - a thread deletes it
            await asyncio.sleep(0.001)
    await store.shutdown()
    assert opened(disk).end_index == 199


async def test_nothing_else_goes_with_a_file_whose_deletion_the_checkpoint_does_not_know_of() -> None:
    """The start took the files that were left for those that a loss of power leaves behind a lost one."""
    disk = new_disk()
    store = leading(disk)
    store._full_ratio = -1.0
    for number in range(60):
        store.append(b"%03d" % number + bytes(297))
        if number == 5:
            await noted(store)
    while store.durable_index < 59:  # noqa: ASYNC110 - a thread syncs
        await asyncio.sleep(0)
    store.commit(59)
    await store.clean()
    assert bodies(opened(disk.boot()))[-1][:3] == b"059"
    await noted(store)
    assert await store.clean() > 0, "the disk is full"
    first = store.begin_index
    disk.kill_process()
    again = opened(disk.boot())
    assert (again.begin_index, again.end_index, again.report.amnesia) == (first, 59, [])


async def noted(store: DLedgerMmapFileStore) -> None:
    while store.durable_index < store.end_index:  # noqa: ASYNC110 - a thread syncs
        await asyncio.sleep(0)
    await store.notes.note()


async def test_the_log_begins_where_its_files_do_though_a_deletion_ended_with_an_error() -> None:
    disk, log = filled(200)
    store = opened(disk)
    store._full_ratio = -1.0
    steps = [0, errno.EIO]  # the file is gone, and its folder cannot be synced
    disk.faults = lambda kind, path: steps.pop(0) if steps and kind == "delete" and "/data/" in path else 0
    with pytest.raises(OSError, match="Input/output error"):
        await store.clean()
    first = next(one for one in log.entries if one.position >= 4096)
    assert store.begin_index == first.index
    assert store.entry(first.index).body == first.body


async def test_a_file_that_was_made_ahead_of_a_log_that_began_anew_elsewhere_keeps_no_start(tmp_path: Path) -> None:
    store = DLedgerMmapFileStore(
        tmp_path / "a", "n0", disk=SystemDisk(), clock=SystemClock(), data_file_size=4096, index_file_size=320
    )
    store.load()
    store.remembered()
    store.start()
    store.append_entries(run_of(entry(0, 1, 0, b"of the past")))
    ahead = tmp_path / "a" / "dledger-n0" / "data" / f"{4096:020d}"
    async with asyncio.timeout(30):
        while not ahead.exists():  # noqa: ASYNC110 - a thread makes it
            await asyncio.sleep(0.001)
    store.store_term(HardState(2))
    store.reset(100, 5 * 4096)
    store.append_entries(run_of(entry(100, 2, 5 * 4096, b"new"), entry(101, 2, 5 * 4096 + 51, b"newer")))
    async with asyncio.timeout(30):
        while store.durable_index < 101:  # noqa: ASYNC110 - a thread syncs
            await asyncio.sleep(0.001)
    shutil.copytree(tmp_path / "a", tmp_path / "killed")
    await store.notes.note()
    shutil.copytree(tmp_path / "a", tmp_path / "noted")
    await store.shutdown()
    for base in (tmp_path / name for name in ("killed", "noted", "a")):
        again = DLedgerMmapFileStore(
            base, "n0", disk=SystemDisk(), clock=SystemClock(), data_file_size=4096, index_file_size=320
        )
        again.load()
        assert (again.begin_index, bodies(again), again.report.amnesia) == (100, [b"new", b"newer"], [])
        again.close_inline()


# --- a failed sync, and a restart without reboot ---


@pytest.mark.parametrize("victim", ["data", "index"])
@pytest.mark.parametrize("noted", [0, 3, 40])
@pytest.mark.parametrize("keeps_cache", [False, True])
def test_entries_that_a_restarted_member_calls_durable_are_there_after_a_loss_of_power(
    victim: str, noted: int, *, keeps_cache: bool
) -> None:
    """A sync fails, and the process is started again: the system shows it entries that are not on the disk. What it
    tells its leader to have durably must outlive the machine."""
    disk = SimDisk(SimRng(1), SimClock(), write_back=0.0, kill_keeps_cache=keeps_cache)
    store = leading(disk)
    for number in range(noted):
        store.append(b"%03d" % number * 40)
    if noted:
        store.commit(noted - 1)
        store.close_inline()
        store = leading(disk, 2)
    disk.fail_flush(f"*/{victim}/*")
    with contextlib.suppress(OSError):
        for number in range(noted, noted + 5):
            store.append(b"%03d" % number * 40)
        store.close_inline()
    disk.kill_process()
    disk = disk.boot()
    store = opened(disk)
    seen = store.durable_index
    assert seen >= noted, "the process sees what was not made durable"
    store.release()
    disk.cut_power()
    disk = disk.boot()
    store = opened(disk)
    assert store.durable_index == seen
    assert bodies(store) == [b"%03d" % number * 40 for number in range(seen + 1)]
    assert not store.report.amnesia


def test_a_new_member_says_so_until_it_has_given_a_vote_or_been_given_a_log() -> None:
    """A replaced disk looks the same: what was acknowledged on the old one must not be voted away."""
    disk = new_disk()
    for _ in range(2):
        store = new_store(disk)
        report = store.load()
        assert (store.amnesiac_until, report.faults, report.amnesia) == (0, [], [])
        store.release()
        disk = disk.boot()
    store = new_store(disk)
    store.load()
    store.remembered()
    store.release()
    store = new_store(disk.boot())
    store.load()
    assert store.amnesiac_until == -1
