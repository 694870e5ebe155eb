"""The broker's store as a member of a DLedger group."""

import asyncio
import json
import shutil
from array import array
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from maxq.config.message_store_config import MessageStoreConfig
from maxq.protocol.dledger.dledger_messages import ENTRY_BODY_MAX, EntryRun
from maxq.protocol.dledger.ledger import HardState
from maxq.protocol.frame.send_rows import F_BATCH, R_BODY, R_FLAGS, R_PROPERTIES, R_TOPIC, ROW_WIDTH
from maxq.protocol.message.message import Message, decode_record, encode_batch
from maxq.protocol.message.message_properties import encode_properties
from maxq.store.append.log_rows_cy import append_rows as append_a_row
from maxq.store.append.message_writer import MessageWriter
from maxq.store.dispatch import dispatcher as dispatch
from maxq.store.dledger.message_ledger import BARRIER_TOPIC, MessageLedger
from maxq.store.message_store import MessageStore
from maxq.store.store_results import PutMessageResult, PutMessageStatus
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import SimDisk
from maxq.testing.sim_rng import SimRng
from tests.golden import STORES, restore
from tests.short_form import seeds
from tests.unit.store.dledger.naive_dledger import java_recovery
from tests.unit.store.stores import IDENTITY, TestClock, config_of, message, opened, small_config

FILE_SIZE = 8192


def dledger_config(root: Path, **changes: Any) -> MessageStoreConfig:
    base = small_config(root, mapped_file_size_commit_log=FILE_SIZE, mapped_file_size_dledger_index=3200)
    return replace(base, enable_dleger_commit_log=True, dleger_self_id="n0", **changes)


def ledger_of(store: MessageStore) -> MessageLedger:
    assert store.ledger is not None
    return store.ledger


def lead(store: MessageStore, term: int = 1) -> MessageLedger:
    """Begin a term as the driver does; the barrier is committed."""
    ledger = ledger_of(store)
    ledger.store_term(HardState(term, "n0"))
    ledger.begin_leading(term)
    ledger.commit(ledger.append(ledger.barrier()))
    return ledger


def leading(root: Path, **changes: Any) -> tuple[MessageStore, MessageLedger]:
    store = opened(dledger_config(root, **changes))
    return store, lead(store)


def copied(ledger: MessageLedger, follower: MessageLedger) -> None:
    index = follower.next_index
    while index <= ledger.end_index:
        run = ledger.entries(index, 1 << 20)
        follower.append_entries(EntryRun.of(bytes(run.data)))
        index = run.last_index + 1


def bodies(store: MessageStore, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    found = []
    for physical_offset, _, _ in store.queue_units(topic, queue_id, 0, 1000):
        record = store.look_message_by_offset(physical_offset)
        assert record is not None
        found.append(record.body)
    return found


def batch(parts: list[bytes]) -> bytes:
    return encode_batch([Message("T", part, {}) for part in parts])


def append_rows(store: MessageStore, parts: list[bytes], flags: int = 0) -> None:
    """As the compiled send path does; what it leaves takes the slow path."""
    source, rows = bytearray(), array("q")
    for part in parts:
        row = [0] * ROW_WIDTH
        for column, data in ((R_TOPIC, b"T"), (R_PROPERTIES, b"A\x01B\x02"), (R_BODY, part)):
            row[column], row[column + 1] = len(source), len(data)
            source += data
        row[R_FLAGS] = flags
        rows.extend(row)
    done = 0
    while done < len(parts):
        host = b"\x7f\0\0\1\0\0\x12\x34"
        count = store.fast_path_writer.append_rows(source, bytearray(1), rows, done, len(parts) - done, host, b"").rows
        if not count:
            assert flags == F_BATCH, "single messages never need the slow path here"
            assert store.put_batch(message(body=parts[done])).ok
            count = 1
        done += count


def data_of(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((root / "dledger-n0" / "data").iterdir())}


# --- a leader ---


def test_a_message_is_the_body_of_an_entry_and_is_seen_when_it_is_committed(tmp_path: Path) -> None:
    store, ledger = leading(tmp_path)
    result = store.put_message(message(body=b"one"))
    entry = ledger.entry(ledger.end_index)
    assert (result.ok, result.physical_offset) == (True, entry.pos + 48)
    found = decode_record(memoryview(entry.body))
    assert (found.physical_offset, found.body, found.queue_offset) == (entry.pos + 48, b"one", 0)
    assert store.max_offset("T", 0) == 0
    assert store.select_one_message(result.physical_offset) is None, "not committed"
    assert store.max_physical_offset == ledger.unit(0).size
    ledger.commit(ledger.end_index)
    assert bodies(store) == [b"one"]
    assert store.max_physical_offset == result.end_offset
    store.close()


def test_only_a_leader_takes_messages_and_says_so(tmp_path: Path) -> None:
    store = opened(dledger_config(tmp_path))
    refused = store.put_message(message())
    assert refused.status == PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert "does not lead its DLedger group" in refused.remark
    ledger = lead(store)
    assert store.put_message(message()).ok
    ledger.end_leading()
    assert store.admission.refusal() == PutMessageStatus.SERVICE_NOT_AVAILABLE
    store.close()


def test_a_batch_larger_than_the_memory_in_front_of_the_log_has_all_its_index_units(tmp_path: Path) -> None:
    store = opened(replace(dledger_config(tmp_path), mapped_file_size_commit_log=32 << 20, max_message_size=8 << 20))
    ledger = lead(store)
    assert store.put_batch(message(body=batch([b"b" * 60_000 for _ in range(80)]))).ok
    units = [ledger._index.unit(index) for index in range(81)]
    assert units == [ledger.unit(index) for index in range(81)], "reading them mends them"
    ledger.commit(ledger.end_index)
    assert bodies(store) == [b"b" * 60_000] * 80
    store.close()


def test_a_batch_with_a_message_longer_than_an_entry_is_refused_whole(tmp_path: Path) -> None:
    """As that message is when it comes alone: no member takes a longer entry."""
    store = opened(replace(dledger_config(tmp_path), mapped_file_size_commit_log=32 << 20, max_message_size=4 << 20))
    ledger = lead(store)
    end = ledger.end_index
    refused = store.put_batch(message(body=batch([b"first", b"b" * (ENTRY_BODY_MAX - 60)])))
    assert not refused.ok
    assert "an entry of DLedger takes 4194256" in refused.remark
    assert ledger.end_index == end
    assert store.put_batch(message(body=batch([b"first", b"b" * (ENTRY_BODY_MAX - 200)]))).ok
    store.close()


def configured(root: Path, **changes: Any) -> tuple[MessageStore, MessageLedger]:
    """A leader with one queue of a topic, as a broker configures it, and nothing stored but the barrier."""
    store, ledger = leading(root, **changes)
    store.queues.topic_write_state("T").max_queue_id = 0
    store.queues.open("T", 0)
    return store, ledger


def numbered(sizes: list[int]) -> list[Message]:
    return [Message("T", bytes([n % 251]) * size, {"KEYS": f"k{n}"}, n) for n, size in enumerate(sizes)]


def put_as_batch(store: MessageStore, messages: list[Message]) -> PutMessageResult:
    return store.put_batch(message(body=encode_batch(messages)))


def put_one_by_one(store: MessageStore, messages: list[Message]) -> list[PutMessageResult]:
    results = []
    for one in messages:
        single = message(body=one.body, **one.properties)
        single.flag = one.flag
        single.properties_data = encode_properties(one.properties).encode()
        results.append(store.put_message(single))
    return results


def assert_equal_to_one_by_one(root: Path, before: list[int], sizes: list[int], **changes: Any) -> None:
    """A batch of bodies of these sizes, behind single messages of the sizes `before`, leaves the same files, queue and
    answers as its messages one by one."""
    (store, ledger), (other, other_ledger) = (configured(root / name, **changes) for name in ("batch", "single"))
    for of in (store, other):
        put_one_by_one(of, numbered(before))
    whole, singles = put_as_batch(store, numbered(sizes)), put_one_by_one(other, numbered(sizes))
    assert whole.ok, whole.remark
    assert whole.msg_id.split(",") == [one.msg_id for one in singles]
    assert (whole.queue_offset, whole.message_count) == (len(before), len(sizes))
    assert (whole.physical_offset, whole.end_offset) == (singles[0].physical_offset, singles[-1].end_offset)
    assert whole.size == sum(one.size for one in singles)
    assert ledger.end_index == other_ledger.end_index == len(before) + len(sizes)
    units = [ledger.unit(index) for index in range(ledger.end_index + 1)]
    assert units == [other_ledger.unit(index) for index in range(ledger.end_index + 1)]
    for of in (store, other):
        ledger_of(of).commit(ledger.end_index)
        assert list(of.queue_units("T", 0, 0, 1 << 20)) == list(store.queue_units("T", 0, 0, 1 << 20))
        assert of.max_offset("T", 0) == len(before) + len(sizes)
        of.close()
    assert data_of(root / "batch") == data_of(root / "single")


@pytest.mark.parametrize("left", seeds([*range(0, 400, 35), 3000], [*range(0, 400, 7), 1000, 7000]))
def test_a_batch_at_the_end_of_a_file_is_stored_as_its_messages_one_by_one(tmp_path: Path, left: int) -> None:
    """Before it, so many bytes of the file are left, more or less."""
    fill = [FILE_SIZE - 600 - left] if left < 7000 else []
    assert_equal_to_one_by_one(tmp_path, fill, [1, 30, 200, 5, 90, 1, 1, 60, 300, 2])


@pytest.mark.parametrize("sizes", [[700] * 9, [5000, 10, 10, 10], [10, 10, 10, 5000], [6500], [1] * 40])
def test_a_batch_of_a_whole_file_goes_on_in_the_next_one_as_its_messages_do(tmp_path: Path, sizes: list[int]) -> None:
    assert_equal_to_one_by_one(tmp_path, [3000], sizes)


@pytest.mark.parametrize("sizes", [[1] * 32_767, [60_000] * 60, [3_000_000, 10, 900_000, 10]])
@pytest.mark.parametrize("left", [0, 500_000])
def test_a_batch_is_appended_in_a_few_parts_where_memory_or_file_end(
    tmp_path: Path, sizes: list[int], left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never message by message: 32,767 of them held the loop for a second."""
    size = 16 << 20
    changes = {"mapped_file_size_commit_log": size, "mapped_file_size_dledger_index": 3_200_000}
    appends: list[int] = []

    def counted(*args: Any) -> int:
        appends.append(1)
        return append_a_row(*args)

    def one_by_one(*args: Any) -> None:
        raise AssertionError("a message of the batch was appended by itself")

    before = [3_900_000] * 4 + [size - 4 * 3_900_000 - 1500 - left] if left else []
    if len(sizes) < 100:
        assert_equal_to_one_by_one(tmp_path, before, sizes, max_message_size=4 << 20, **changes)
    store, ledger = configured(tmp_path / "counted", max_message_size=4 << 20, **changes)
    put_one_by_one(store, numbered(before))
    monkeypatch.setattr("maxq.store.append.batch_rows.append_rows", counted)
    monkeypatch.setattr(MessageWriter, "_append", one_by_one)
    result = put_as_batch(store, numbered(sizes))
    assert (result.ok, result.message_count, len(appends)) == (True, len(sizes), min(len(appends), 6))
    ledger.commit(ledger.end_index)
    units = list(store.queue_units("T", 0, len(before), 1 << 20))
    assert [f"{offset:016X}" for offset, _, _ in units] == [one[-16:] for one in result.msg_id.split(",")]
    last = store.look_message_by_offset(units[-1][0])
    assert last is not None and (last.queue_offset, last.flag) == (len(before) + len(sizes) - 1, len(sizes) - 1)
    store.close()


def test_a_batch_for_which_the_disk_has_no_room_is_refused_whole(tmp_path: Path) -> None:
    """A part of it would fit into the file that was begun."""
    disk = SimDisk(SimRng(1), SimClock(), total_bytes=1 << 20, write_back=0.0, sparse=True)
    store = MessageStore(dledger_config(Path("/store")), disk=disk, clock=TestClock(), broker=IDENTITY)
    store.load()
    ledger = lead(store)
    store.queues.topic_write_state("T").max_queue_id = 0
    assert put_as_batch(store, numbered([100] * 20)).ok
    end, position = ledger.end_index, store.commit_log.max_offset
    disk.other_bytes = disk.total_bytes
    for sizes in ([100] * 20, [0, *[100] * 19]):  # the second with a message that takes the slow path
        refused = put_as_batch(store, numbered(sizes))
        assert refused.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
        assert "the disk is full" in refused.remark
        assert (ledger.end_index, store.commit_log.max_offset) == (end, position)
    disk.other_bytes = 0
    store.disk_room.try_again()
    assert put_as_batch(store, numbered([100] * 20)).ok
    assert ledger.end_index == end + 20
    store.close()


def test_a_long_batch_that_must_be_stored_one_by_one_is_refused(tmp_path: Path) -> None:
    """As by a broker of no group."""
    changes = {"mapped_file_size_commit_log": 16 << 20, "mapped_file_size_dledger_index": 3_200_000}
    store, ledger = configured(tmp_path, max_message_size=4 << 20, **changes)
    refused = put_as_batch(store, numbered([*[1] * 3000, 0]))
    assert refused.status is PutMessageStatus.MESSAGE_ILLEGAL
    assert "3001 messages and must be stored one by one" in refused.remark
    assert ledger.end_index == 0
    store.close()


def test_a_barrier_is_in_no_queue(tmp_path: Path) -> None:
    store, ledger = leading(tmp_path)
    barrier = decode_record(memoryview(ledger.entry(0).body))
    assert (barrier.topic, barrier.sys_flag & 0xC, barrier.physical_offset) == (BARRIER_TOPIC, 0xC, 48)
    assert store.max_offset(BARRIER_TOPIC, 0) == 0
    store.close()


def test_rows_and_batches_go_the_same_way_as_single_messages(tmp_path: Path) -> None:
    store, ledger = leading(tmp_path)
    store.queues.topic_write_state("T").is_fast_path_open = True
    store.queues.topic_write_state("T").max_queue_id = 3
    for queue_id in range(4):
        store.queues.open("T", queue_id)
    append_rows(store, [b"row %d" % number * 40 for number in range(60)])
    store.put_batch(message(body=batch([b"batch %d" % number for number in range(40)])))
    ledger.commit(ledger.end_index)
    assert ledger.end_index == 100
    assert bodies(store) == [b"row %d" % number * 40 for number in range(60)] + [b"batch %d" % n for n in range(40)]
    store.close()
    assert len(java_recovery(data_of(tmp_path), FILE_SIZE)) == 101


def test_a_new_file_begins_only_where_an_entry_does_not_fit(tmp_path: Path) -> None:
    """Java's followers insist on it: also for a batch of which a part fits."""
    store, ledger = leading(tmp_path)
    store.queues.topic_write_state("T").is_fast_path_open = True
    store.queues.topic_write_state("T").max_queue_id = 0
    store.queues.open("T", 0)
    for number in range(30):
        body = batch([b"b" * 700 for _ in range(3)])
        if number % 2:
            append_rows(store, [body], F_BATCH)
        else:
            assert store.put_batch(message(body=body)).end_offset == store.commit_log.max_offset
    store.close()
    entries = java_recovery(data_of(tmp_path), FILE_SIZE)
    assert len(entries) == 91
    for before, after in pairwise(entries):
        left = FILE_SIZE - before.end % FILE_SIZE
        assert after.position == (before.end if after.size + 8 <= left else before.end + left)
    assert ledger.end_index == 90


def test_a_search_of_the_log_finds_records_in_entries_from_an_entry_or_a_record_on(tmp_path: Path) -> None:
    store, ledger = leading(tmp_path)
    places = [store.put_message(message(body=b"x" * 500, MARK=str(n % 3))).physical_offset for n in range(60)]
    ledger.commit(ledger.end_index)
    wanted = [place for n, place in enumerate(places) if n % 3 == 1]
    for start, expected in ((0, wanted), (places[30], wanted[10:]), (places[30] - 48, wanted[10:])):
        assert [place for step in store.records_with(b"MARK\x011", start) for place in step] == expected
    store.close()


@pytest.mark.parametrize("left", [8, 9, 40, 47, 48, 49, 200])
def test_a_search_of_the_log_goes_on_behind_the_end_of_a_file_however_short_its_filler_is(
    tmp_path: Path, left: int
) -> None:
    """A filler has 8 bytes at least, an entry's header 48."""
    store, ledger = leading(tmp_path)
    log = store.commit_log
    places = [store.put_message(message(body=b"x", MARK="1")).physical_offset]
    size = log.max_offset - places[0] + 48 - 1  # of an entry but for its body
    room = FILE_SIZE - log.max_offset - left
    first = store.put_message(message(body=b"x" * (room // 2 - size), MARK="1"))
    last = store.put_message(message(body=b"x" * (FILE_SIZE - first.end_offset - left - size), MARK="1"))
    assert FILE_SIZE - last.end_offset == left
    places += [first.physical_offset, last.physical_offset]
    places.append(store.put_message(message(body=b"x" * 250, MARK="1")).physical_offset)
    assert places[-1] == FILE_SIZE + 48
    ledger.commit(ledger.end_index)
    assert [place for step in store.records_with(b"MARK\x011", 0) for place in step] == places
    store.close()


def test_a_search_of_the_log_goes_on_behind_a_filler_that_is_damaged(tmp_path: Path) -> None:
    store, ledger = leading(tmp_path)
    places = [store.put_message(message(body=b"x" * 500, MARK="1")).physical_offset for _ in range(60)]
    ledger.commit(ledger.end_index)
    first = store.commit_log.files.files[0]
    last = max(place for place in places if place < FILE_SIZE)
    filler = last - 48 + int.from_bytes(first.view[last - 44 : last - 40], "big")
    first.view[filler : filler + 4] = bytes(4)
    assert [place for step in store.records_with(b"MARK\x011", 0) for place in step] == places
    store.close()


# --- a follower, a new leader ---


def test_a_follower_has_its_leaders_log_and_its_queues_up_to_what_is_committed(tmp_path: Path) -> None:
    store, ledger = leading(tmp_path / "a")
    for number in range(100):
        store.put_message(message(body=b"%03d" % number * 50, KEYS=f"k{number}"))
    other = opened(dledger_config(tmp_path / "b"))
    copied(ledger, ledger_of(other))
    assert other.max_offset("T", 0) == 0
    ledger_of(other).commit(60)
    assert bodies(other) == [b"%03d" % number * 50 for number in range(60)]
    assert other.query_message("T", "k59", 1, 0, 1 << 62).buffers
    assert not other.query_message("T", "k60", 1, 0, 1 << 62).buffers
    store.close()
    other.close()
    assert data_of(tmp_path / "a") == data_of(tmp_path / "b")


def test_who_begins_to_lead_numbers_on_behind_what_is_not_committed(tmp_path: Path) -> None:
    store, ledger = leading(tmp_path / "a")
    for number in range(10):
        store.put_message(message(body=b"%d" % number, queue_id=number % 2))
    other = opened(dledger_config(tmp_path / "b"))
    follower = ledger_of(other)
    copied(ledger, follower)
    follower.commit(4)
    follower.begin_leading(2)
    result = other.put_message(message(body=b"new", queue_id=0))
    assert result.queue_offset == 5
    follower.commit(follower.end_index)
    assert bodies(other, queue_id=0) == [b"0", b"2", b"4", b"6", b"8", b"new"]
    store.close()
    other.close()


def test_what_a_deposed_leader_numbered_and_lost_is_numbered_again(tmp_path: Path) -> None:
    store, ledger = leading(tmp_path)
    for number in range(6):
        store.put_message(message(body=b"%d" % number))
    ledger.commit(3)
    ledger.end_leading()
    ledger.truncate(4)
    ledger.begin_leading(2)
    assert store.put_message(message(body=b"again")).queue_offset == 4
    ledger.commit(ledger.end_index)
    assert bodies(store) == [b"0", b"1", b"2", b"3", b"again"]
    store.close()


# --- a start ---


@pytest.mark.parametrize("how", ["shutdown", "kill", "kill, queues gone"])
def test_a_start_dispatches_what_is_known_to_be_committed_and_nothing_else(tmp_path: Path, how: str) -> None:
    store, ledger = leading(tmp_path)
    for number in range(80):
        store.put_message(message(body=b"%03d" % number * 20))
    ledger.commit(50)
    job = ledger.notes.job()
    assert job is not None
    job.work()
    job.done()
    if how == "shutdown":
        store.close()
    else:
        store._life.lock.release()
    if how == "kill, queues gone":
        shutil.rmtree(tmp_path / "consumequeue")
    store = opened(dledger_config(tmp_path))
    assert (store.report.clean_exit, store.max_offset("T", 0)) == (how == "shutdown", 50)
    assert ledger_of(store).end_index == 80
    ledger_of(store).commit(80)
    assert bodies(store) == [b"%03d" % number * 20 for number in range(80)]
    store.close()


def test_a_leader_numbers_on_though_a_queue_whose_first_file_was_lost_begins_anew_when_it_commits(
    tmp_path: Path,
) -> None:
    """A loss of power took the first file, and nothing that says what was committed had been written. Consumers had
    read further than to 0."""
    store, ledger = leading(tmp_path)
    store.flusher.flush_inline()
    ledger.notes.write()
    for number in range(26):
        assert store.put_message(message(body=b"%d" % number)).queue_offset == number
    ledger.commit(ledger.end_index)
    store._life.lock.release()
    (tmp_path / "inventory.json").unlink(missing_ok=True)
    (tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}").unlink()
    store = opened(dledger_config(tmp_path))
    ledger = lead(store, 2)
    assert store.put_message(message(body=b"26")).queue_offset == 26
    ledger.commit(ledger.end_index)
    assert bodies(store) == [b"%d" % number for number in range(27)]
    store.close()


def test_a_log_of_before_dledger_stays_readable_and_the_group_goes_on_behind_it(tmp_path: Path) -> None:
    plain = small_config(tmp_path, mapped_file_size_commit_log=FILE_SIZE)
    store = opened(plain)
    for number in range(100):
        store.put_message(message(body=b"old %03d" % number * 20))
    end = store.max_physical_offset
    store.close()
    store, ledger = leading(tmp_path)
    divided = (end // FILE_SIZE + 1) * FILE_SIZE
    assert (ledger.divided_offset, ledger.unit(0).position) == (divided, divided)
    for number in range(40):
        assert store.put_message(message(body=b"new %03d" % number)).queue_offset == 100 + number
    ledger.commit(ledger.end_index)
    wanted = [b"old %03d" % number * 20 for number in range(100)] + [b"new %03d" % number for number in range(40)]
    assert bodies(store) == wanted
    store.close()
    last = (tmp_path / "commitlog" / f"{divided - FILE_SIZE:020d}").read_bytes()
    assert last[end % FILE_SIZE :][4:8].hex() == "cbd43194"
    shutil.rmtree(tmp_path / "consumequeue")
    store = opened(dledger_config(tmp_path))
    assert bodies(store) == wanted
    assert ledger_of(store).divided_offset == divided
    store.close()


async def test_retention_takes_committed_files_that_no_follower_needs(tmp_path: Path) -> None:
    store, ledger = leading(tmp_path, file_reserved_time=1)
    for number in range(200):
        store.put_message(message(body=b"%03d" % number * 60))
    ledger.commit(150)
    assert isinstance(store._context.clock, TestClock)
    store._context.clock.now_ms += 1 << 40
    store.cleaner.request()
    assert await store.cleaner.clean() == 0, "a follower may need all of it"
    ledger.retain_from(1 << 40)
    store.cleaner.request()
    assert await store.cleaner.clean() == 0, "the checkpoint knows of no entry yet"
    while ledger.durable_index < 199:  # noqa: ASYNC110 - a thread syncs
        await asyncio.sleep(0)
    await ledger.notes.note()
    store.cleaner.request()
    assert await store.cleaner.clean() > 0
    first = ledger.begin_index
    assert 0 < first <= 150
    assert store.min_physical_offset == ledger.unit(first).position <= ledger.unit(150).position
    with pytest.raises(IndexError):
        ledger.entry(first - 1)
    store.close()


@pytest.mark.parametrize("missing", [18, 50])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_member_that_was_away_for_long_has_its_leaders_queue_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: int, restarts: bool
) -> None:
    """What it had, and what came then, the leader's log has no more; of queue 1 nothing at all."""
    monkeypatch.setattr(dispatch, "MOST_PLACES", 20)
    leader, ledger = leading(tmp_path / "leader")
    follower = opened(dledger_config(tmp_path / "follower"))

    def send(count: int, queue_id: int = 0) -> None:
        for _ in range(count):
            assert leader.put_message(message(queue_id=queue_id, body=bytes(500))).ok
        ledger.commit(ledger.end_index)

    send(10)
    send(3, queue_id=1)
    copied(ledger, ledger_of(follower))
    ledger_of(follower).commit(ledger.end_index)
    send(missing)
    kept_from = leader.max_physical_offset
    send(30)
    while leader.commit_log.files.files[0].end_offset <= kept_from:
        with leader.commit_log.without_first() as first:
            first.destroy()
    ledger.files_deleted()
    first = ledger.begin_index
    ledger_of(follower).reset(first, ledger.unit(first).position)
    copied(ledger, ledger_of(follower))
    ledger_of(follower).commit(ledger.end_index)
    if restarts:
        follower.close()
        follower = opened(follower.config)
    for store in (leader, follower):
        low, high = store.min_offset("T", 0), store.max_offset("T", 0)
        assert (low, high) == (leader.min_offset("T", 0), 40 + missing)
        offset = low
        while offset < high:
            found = store.get_message("g", "T", 0, offset, 100, None)
            assert found.message_count == found.next_begin_offset - offset > 0
            offset = found.next_begin_offset
        assert store.min_offset("T", 1) == store.max_offset("T", 1) == 3
    assert follower.dispatch.faults == []
    lead(follower, term=2)
    assert follower.put_message(message()).queue_offset == 40 + missing
    assert follower.put_message(message(queue_id=1)).queue_offset == 3
    follower.close()
    leader.close()


# --- a store of Java's ---


@pytest.mark.parametrize("member", ["n0", "n1", "n2"])
def test_a_java_members_store_opens_complete_and_goes_on(member: str, tmp_path: Path) -> None:
    """n0: Java leaves 14 of its messages out of the queues for good."""
    golden = STORES / "dledger" / member
    store_path = restore(f"dledger/{member}", tmp_path / "store")
    config, expected = config_of(store_path, golden / "broker.conf"), json.loads((golden / "expected.json").read_text())
    store = opened(replace(config, enable_dleger_commit_log=True, dleger_self_id=member))
    ledger = ledger_of(store)
    assert ledger.report.amnesia == []
    assert (ledger.end_index, store.max_physical_offset) == (469, expected["maxPhyOffset"])
    offsets = {}
    for record in expected["records"]:
        offsets[record["queueId"], record["queueOffset"]] = record["physicalOffset"]
    for (queue_id, queue_offset), physical_offset in offsets.items():
        assert store.queue_units("Gd_Raft", queue_id, queue_offset, 1)[0][0] == physical_offset
    assert [store.max_offset("Gd_Raft", queue_id) for queue_id in (0, 1)] == [235, 235]
    lead(store, 9)
    assert store.put_message(message("Gd_Raft", 1, b"on")).queue_offset == 235
    ledger.commit(ledger.end_index)
    assert store.max_offset("Gd_Raft", 1) == 236
    store.close()
    assert json.loads((store_path / "inventory.json").read_bytes())["dispatchedOffset"] == ledger.committed_position
