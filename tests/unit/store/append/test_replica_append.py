"""A slave's copy of its master's log."""

import asyncio
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from maxq.errors import ReplicationDamageError, ReplicationGapError
from maxq.runtime.files.system import SystemMappedRegion
from maxq.store.durability import flush
from maxq.store.message_store import MessageStore
from maxq.store.recovery.unverified_record import UNVERIFIED_FILE
from tests.unit.store.stores import TestClock, message, opened, small_config

FILE = 65_536


def master_log(root: Path, messages: int = 600) -> bytes:
    """The log of a master, several files long, with the unused ends of its files."""
    store = opened(small_config(root))
    for number in range(messages):
        body = b"%05d" % number * (1 + number % 90)
        store.put_message(message(f"T{number % 3}", number % 4, body, KEYS=f"k{number}"))
    end = store.max_physical_offset
    log = b""
    while len(log) < end:
        log += bytes(store.log_bytes(len(log), end) or b"")
    store.close()
    assert len(log) > 2 * FILE
    return log


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return master_log(tmp_path_factory.mktemp("master"))


def slave(root: Path) -> MessageStore:
    return opened(small_config(root, broker_role="SLAVE"))


def feed(store: MessageStore, log: bytes, start: int, sizes: random.Random) -> None:
    while start < len(log):
        stop = min(start + sizes.randint(1, 5000), len(log), start - start % FILE + FILE)
        store.append_from_master(start, memoryview(log)[start:stop])
        start = stop


def stored(store: MessageStore) -> bytes:
    end, log = store.max_physical_offset, b""
    while len(log) < end:
        log += bytes(store.log_bytes(len(log), end) or b"")
    return log


def queue_ends(store: MessageStore) -> dict[tuple[str, int], int]:
    return {(f"T{topic}", queue): store.max_offset(f"T{topic}", queue) for topic in range(3) for queue in range(4)}


@pytest.mark.parametrize("seed", range(5))
def test_a_log_cut_anywhere_becomes_the_same_log_with_the_same_queues(log: bytes, tmp_path: Path, seed: int) -> None:
    copy = slave(tmp_path / "slave")
    feed(copy, log, 0, random.Random(seed))
    assert stored(copy) == log
    ends = queue_ends(copy)
    assert sum(ends.values()) == 600
    copy.close()
    reopened = slave(tmp_path / "slave")
    assert reopened.report.clean_exit and stored(reopened) == log and queue_ends(reopened) == ends
    reopened.close()


def test_only_whole_records_count_and_a_broken_connection_leaves_no_trace(log: bytes, tmp_path: Path) -> None:
    copy = slave(tmp_path / "slave")
    first = int.from_bytes(log[:4], "big")
    assert copy.append_from_master(0, memoryview(log)[: first - 1]) == 0
    assert copy.append_from_master(first - 1, memoryview(log)[first - 1 : first + 50]) == first
    copy.drop_pending()
    assert copy.max_physical_offset == first
    with pytest.raises(ReplicationGapError) as gap:
        copy.append_from_master(first + 50, memoryview(log)[first + 50 : first + 60])
    assert (gap.value.expected, gap.value.received) == (first, first + 50)
    feed(copy, log, first, random.Random(1))
    assert stored(copy) == log
    copy.close()


def test_a_slave_asks_for_the_whole_log_with_byte_1(log: bytes, tmp_path: Path) -> None:
    copy = slave(tmp_path / "slave")
    feed(copy, log, 1, random.Random(2))
    assert stored(copy) == log
    copy.close()


def test_an_empty_slave_starts_where_a_file_of_the_master_does(log: bytes, tmp_path: Path) -> None:
    copy = slave(tmp_path / "slave")
    with pytest.raises(ReplicationGapError):
        copy.append_from_master(FILE + 100, memoryview(log)[FILE + 100 : FILE + 200])
    feed(copy, log, FILE, random.Random(3))
    assert (copy.min_physical_offset, copy.max_physical_offset) == (FILE, len(log))
    assert copy.confirm_offset == len(log) and sum(queue_ends(copy).values()) > 0  # consumers see what it has
    ends = queue_ends(copy)
    copy.close()
    reopened = slave(tmp_path / "slave")
    assert reopened.report.clean_exit and queue_ends(reopened) == ends
    reopened.close()


@pytest.mark.parametrize("reopen", [False, True])
@pytest.mark.parametrize(("first", "second"), [(1, 1), (1, FILE), (1, 0), (FILE, FILE), (FILE, 2 * FILE), (FILE, 1)])
def test_a_slave_whose_first_record_did_not_come_whole_may_begin_again_anywhere(
    log: bytes, tmp_path: Path, reopen: bool, first: int, second: int
) -> None:
    copy = slave(tmp_path / "slave")
    copy.append_from_master(first, memoryview(log)[first : first + 50])
    copy.drop_pending()
    if reopen:
        copy.close()
        copy = slave(tmp_path / "slave")
    feed(copy, log, second, random.Random(4))
    start = second - second % FILE
    assert (copy.min_physical_offset, copy.max_physical_offset, copy.confirm_offset) == (start, len(log), len(log))
    copy.close()
    reopened = slave(tmp_path / "slave")
    assert reopened.report.clean_exit and reopened.max_physical_offset == len(log)
    reopened.close()


def flipped(log: bytes, position: int) -> bytes:
    changed = bytearray(log)
    changed[position] ^= 0x10
    return bytes(changed)


@pytest.mark.parametrize(("inside", "reason"), [(90, "CRC"), (4, "magic"), (1, "size"), (31, "elsewhere")])
def test_bytes_that_are_no_record_are_refused_and_the_right_ones_taken_afterwards(
    log: bytes, tmp_path: Path, inside: int, reason: str
) -> None:
    start = int.from_bytes(log[:4], "big")
    bad = flipped(log, start + inside)
    copy = slave(tmp_path / "slave")
    with pytest.raises(ReplicationDamageError, match=reason) as damage:
        feed(copy, bad, 0, random.Random(4))
    assert damage.value.physical_offset == copy.max_physical_offset == start
    feed(copy, log, start, random.Random(5))
    assert stored(copy) == log and copy.damaged_from_master == 0
    copy.close()


def test_a_wrong_crc_that_the_master_sends_twice_is_the_masters_own(log: bytes, tmp_path: Path) -> None:
    start = int.from_bytes(log[:4], "big")
    bad = flipped(log, start + 95)
    copy = slave(tmp_path / "slave")
    with pytest.raises(ReplicationDamageError):
        feed(copy, bad, 0, random.Random(6))
    feed(copy, bad, start, random.Random(7))
    assert stored(copy) == bad and copy.damaged_from_master == 1
    copy.close()


def test_a_slave_that_becomes_master_writes_on_behind_the_last_whole_record(log: bytes, tmp_path: Path) -> None:
    config = small_config(tmp_path / "slave")
    copy = slave(tmp_path / "slave")
    first = int.from_bytes(log[:4], "big")
    copy.append_from_master(0, memoryview(log)[: first + 30])
    assert not copy.put_message(message()).ok
    copy.update_config(config)
    result = copy.put_message(message())
    assert result.ok and result.physical_offset == first
    copy.close()


def test_a_slave_that_becomes_master_goes_on_with_the_numbers_of_its_queues(log: bytes, tmp_path: Path) -> None:
    copy = slave(tmp_path / "slave")
    copy.append_from_master(0, memoryview(log))
    copy.update_config(small_config(tmp_path / "slave"))
    for topic, queue_id in (("T0", 0), ("T2", 3)):
        end = copy.max_offset(topic, queue_id)
        assert end > 0 and copy.put_message(message(topic, queue_id)).queue_offset == end
    copy.close()


@pytest.mark.parametrize("missing", [0, 1, 6])
def test_a_record_of_which_the_end_was_still_to_come_when_the_slave_died_is_not_taken_for_whole(
    tmp_path: Path, missing: int
) -> None:
    master = opened(small_config(tmp_path / "master"))
    for body in (b"first", b"second"):
        assert master.put_message(message("T", 0, body, KEYS="a-key")).ok
    log = stored(master)
    master.close()
    first = int.from_bytes(log[:4], "big")
    copy = slave(tmp_path / "slave")
    copy.append_from_master(0, memoryview(log)[: len(log) - missing])
    shutil.copytree(tmp_path / "slave", tmp_path / "killed")
    copy.close()
    killed = slave(tmp_path / "killed")
    assert not killed.report.clean_exit
    start = first if missing else len(log)
    assert (killed.max_physical_offset, killed.max_offset("T", 0)) == (start, 2 if start > first else 1)
    killed.append_from_master(start, memoryview(log)[start:])
    assert stored(killed) == log and killed.max_offset("T", 0) == 2
    killed.close()


@pytest.mark.parametrize(("missing", "is_whole"), [(0, True), (2, True), (3, False), (6, False)])
def test_a_record_without_properties_of_whose_topic_the_end_was_still_to_come_is_not_taken_for_whole(
    tmp_path: Path, missing: int, is_whole: bool
) -> None:
    """It ends with two zero bytes, the length of its properties, whether these have come or not."""
    master = opened(small_config(tmp_path / "master"))
    for body in (b"first", b"second"):
        assert master.put_message(replace(message("Orders", 0, body), properties_data=b"")).ok
    log = stored(master)
    master.close()
    copy = slave(tmp_path / "slave")
    copy.append_from_master(0, memoryview(log)[: len(log) - missing])
    shutil.copytree(tmp_path / "slave", tmp_path / "killed")
    copy.close()
    killed = slave(tmp_path / "killed")
    start = len(log) if is_whole else int.from_bytes(log[:4], "big")
    assert killed.max_physical_offset == start
    killed.append_from_master(start, memoryview(log)[start:])
    assert stored(killed) == log and killed.max_offset("Orders", 0) == 2
    killed.close()


def killed_with_a_last_record_in_doubt(tmp_path: Path, *, value: str, missing: int) -> tuple[bytes, MessageStore]:
    """A log of two messages, the second one's properties end with `value`; and a slave of it, killed when `missing`
    bytes were still to come, and started again."""
    master = opened(small_config(tmp_path / "master"))
    for body in (b"first", b"second"):
        as_a_client_sent_it = f"KEYS\x01a-key\x02z\x01{value}".encode()
        assert master.put_message(replace(message("T", 0, body), properties_data=as_a_client_sent_it)).ok
    log = stored(master)
    master.close()
    copy = slave(tmp_path / "slave")
    copy.append_from_master(0, memoryview(log)[: len(log) - missing])
    shutil.copytree(tmp_path / "slave", tmp_path / "killed")
    copy.close()
    return log, slave(tmp_path / "killed")


def test_a_genuine_record_whose_properties_end_with_a_zero_byte_is_not_lost(tmp_path: Path) -> None:
    log, killed = killed_with_a_last_record_in_doubt(tmp_path, value="\0\0", missing=0)
    first = int.from_bytes(log[:4], "big")
    assert log[-1] == 0 and not killed.report.clean_exit
    assert (killed.max_physical_offset, killed.max_offset("T", 0)) == (first, 1)
    killed.drop_pending()
    killed.close()
    again = slave(tmp_path / "killed")
    assert again.report.clean_exit and again.max_physical_offset == first, "still in doubt"
    again.update_config(small_config(tmp_path / "killed"))
    assert (again.max_physical_offset, again.max_offset("T", 0)) == (len(log), 2), "the master will not come back"
    assert stored(again) == log
    assert again.put_message(message("T", 0, b"third")).queue_offset == 2
    again.close()


def test_a_record_that_was_never_whole_does_not_become_a_message_of_the_new_master(tmp_path: Path) -> None:
    log, killed = killed_with_a_last_record_in_doubt(tmp_path, value="abc", missing=2)
    first = int.from_bytes(log[:4], "big")
    killed.update_config(small_config(tmp_path / "killed"))
    assert killed.max_physical_offset == first and killed.max_offset("T", 0) == 1
    killed.close()


def test_what_the_master_sends_takes_the_place_of_a_record_in_doubt(tmp_path: Path) -> None:
    log, killed = killed_with_a_last_record_in_doubt(tmp_path, value="abc\0", missing=0)
    first = int.from_bytes(log[:4], "big")
    assert killed.append_from_master(first, memoryview(log)[first : first + 20]) == first
    killed.drop_pending()
    assert not any(killed.commit_log.files.files[0].view[first : len(log)]), "nothing of it is left behind the log"
    assert killed.append_from_master(first, memoryview(log)[first:]) == len(log)
    assert stored(killed) == log and killed.max_offset("T", 0) == 2
    killed.close()
    again = slave(tmp_path / "killed")
    assert again.max_physical_offset == len(log), "a clean exit leaves no doubt in what was dispatched"
    again.close()


def test_a_record_in_doubt_outlives_a_connection_that_breaks_and_one_more_kill(tmp_path: Path) -> None:
    log, killed = killed_with_a_last_record_in_doubt(tmp_path, value="abc\0", missing=0)
    first = int.from_bytes(log[:4], "big")
    killed.append_from_master(first, memoryview(log)[first : first + 20])
    killed.drop_pending()
    killed.append_from_master(first, memoryview(log)[first:-3])
    killed._life.lock.release()  # the master dies while it sends it, and so does this broker
    again = slave(tmp_path / "killed")
    assert not again.report.clean_exit and again.max_physical_offset == first
    again.update_config(small_config(tmp_path / "killed"))
    assert stored(again) == log and again.max_offset("T", 0) == 2
    again.close()


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_store_in_doubt_that_starts_as_the_master_believes(tmp_path: Path, flush: str) -> None:
    log, killed = killed_with_a_last_record_in_doubt(tmp_path, value="abc\0", missing=0)
    killed._life.lock.release()
    master = opened(small_config(tmp_path / "killed", flush_disk_type=flush))
    assert stored(master) == log and master.max_offset("T", 0) == 2
    assert master.put_message(message("T", 0, b"third")).queue_offset == 2
    master.close()
    again = opened(small_config(tmp_path / "killed"))
    assert again.report.unverified == b"" and not (tmp_path / "killed" / UNVERIFIED_FILE).exists()
    again.close()


def test_a_record_in_doubt_at_the_start_of_a_file_is_kept_too(tmp_path: Path) -> None:
    master = opened(small_config(tmp_path / "master"))
    while master.max_physical_offset < 65_536:
        assert master.put_message(message("T", 0, b"x" * 5000)).ok
    start = master.max_physical_offset - int.from_bytes(stored(master)[65_536:65_540], "big")
    assert start == 65_536, "the last one is the first of its file"
    count = master.max_offset("T", 0)
    master.close()
    copied = tmp_path / "copied"
    again = opened(small_config(tmp_path / "other"))
    while again.max_offset("T", 0) < count - 1:
        assert again.put_message(message("T", 0, b"x" * 5000)).ok
    ends_in_zero = replace(message("T", 0, b"x" * 5000), properties_data=b"z\x01abc\0")
    assert again.put_message(ends_in_zero).physical_offset == 65_536
    log = stored(again)
    again.close()
    copy = slave(tmp_path / "slave")
    copy.append_from_master(0, memoryview(log))
    shutil.copytree(tmp_path / "slave", copied)
    copy.close()
    killed = slave(copied)
    assert killed.max_physical_offset == 65_536 and killed.max_offset("T", 0) == count - 1
    killed.update_config(small_config(copied))
    assert stored(killed) == log and killed.max_offset("T", 0) == count
    killed.close()


def test_what_the_master_has_sent_ends_the_doubt_for_good(tmp_path: Path) -> None:
    log, killed = killed_with_a_last_record_in_doubt(tmp_path, value="abc\0", missing=0)
    first = int.from_bytes(log[:4], "big")
    assert (tmp_path / "killed" / UNVERIFIED_FILE).exists()
    killed.append_from_master(first, memoryview(log)[first:])
    assert not (tmp_path / "killed" / UNVERIFIED_FILE).exists()
    killed.close()


@pytest.mark.parametrize("late_ms", [0, 10_000])
def test_what_comes_late_is_flushed_in_steps_and_leaves_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late_ms: int
) -> None:
    monkeypatch.setattr(flush, "_LATE_STEP", 20_000)
    master = opened(small_config(tmp_path / "master"))
    for _ in range(10):
        assert master.put_message(message("T", 0, b"x" * 5000)).ok
    log = stored(master)
    master.close()
    copy = opened(small_config(tmp_path / "slave", broker_role="SLAVE"), TestClock(1_700_000_000_000 + late_ms))
    forgotten: list[tuple[int, int]] = []
    monkeypatch.setattr(SystemMappedRegion, "forget", lambda region, start, end: forgotten.append((start, end)))
    for at in range(0, len(log), 1000):
        copy.append_from_master(at, memoryview(log)[at : at + 1000])
    assert bool(forgotten) == bool(late_ms)
    if late_ms:
        assert copy.flushed_offset > len(log) - 21_000 - 6000
        ends = [end for _, end in forgotten]
        assert ends[-1] == copy.flushed_offset and len(ends) == 2 and 20_000 <= ends[0] < 27_000
    copy.close()


def test_a_write_that_the_device_takes_a_part_of_leaves_no_bytes_behind_the_end(
    tmp_path: Path, log: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole records in that part would be found by the next start, though nobody has verified or acknowledged them."""
    store = slave(tmp_path / "slave")
    store.append_from_master(0, memoryview(log)[:3000])
    end = store.max_physical_offset
    real = SystemMappedRegion.write
    refuses = True

    def write(region: SystemMappedRegion, position: int, data: memoryview) -> None:
        nonlocal refuses
        if refuses:
            refuses = False
            real(region, position, data[:5000])
            raise OSError(5, "Input/output error")
        real(region, position, data)

    monkeypatch.setattr(SystemMappedRegion, "write", write)
    with pytest.raises(OSError, match="Input/output error"):
        store.append_from_master(3000, memoryview(log)[3000:20_000])
    assert store.max_physical_offset == end
    file = store.commit_log.files.files[0]
    assert not any(file.view[end:])
    store.append_from_master(end, memoryview(log)[end:20_000])
    assert stored(store) == log[: store.max_physical_offset]
    store.close()


async def test_files_made_ahead_of_a_log_that_then_begins_elsewhere_keep_no_start(tmp_path: Path, log: bytes) -> None:
    """The link broke within the first record, and the master has deleted files before it was there again."""
    store = slave(tmp_path / "s")
    store.start()
    store.append_from_master(0, memoryview(log)[:20])
    ahead = tmp_path / "s" / "commitlog" / f"{FILE:020d}"
    async with asyncio.timeout(30):
        while not ahead.exists():  # noqa: ASYNC110 - a thread makes it
            await asyncio.sleep(0.001)
    store.drop_pending()
    master = opened(small_config(tmp_path / "other"))
    while master.max_physical_offset <= 5 * FILE:
        assert master.put_message(message(body=bytes(3000))).ok
    end = master.max_physical_offset
    newest = bytes(master.log_bytes(5 * FILE, end) or b"")
    master.close()
    assert store.append_from_master(5 * FILE, memoryview(newest)) == end
    await store.flush()
    shutil.copytree(tmp_path / "s", tmp_path / "killed")
    await store.shutdown()
    for root in (tmp_path / "killed", tmp_path / "s"):
        again = slave(root)
        assert (again.min_physical_offset, again.max_physical_offset) == (5 * FILE, end)
        again.close()
