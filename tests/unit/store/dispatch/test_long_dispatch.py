"""What takes longer to dispatch than a turn of the loop: others are served meanwhile, and nothing is forgotten."""

import asyncio
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from maxq.protocol.dledger.ledger import HardState
from maxq.protocol.frame.send_rows import R_BODY, R_BODY_SIZE, R_QUEUE_ID, R_TOPIC, R_TOPIC_SIZE, ROW_WIDTH
from maxq.protocol.message.message import Message, encode_batch
from maxq.runtime.files.system import SystemDisk
from maxq.store.message_store import MessageStore
from maxq.store.store_results import PutMessageStatus
from maxq.store.tools.check import StoreCheck
from maxq.store.tools.store_files import StoreFiles
from tests.unit.store.stores import TestClock, delete_topics, message, opened, small_config

COUNT = 8_000
LONG_BATCH = encode_batch([Message("T", b"b", {"KEYS": f"k{number}"}) for number in range(COUNT)])


class SlowMachine(TestClock):
    """Whatever is looked at, 6 ms have passed."""

    def monotonic_ns(self) -> int:
        self.now_ms += 6
        return super().monotonic_ns()


def store_of_long_batches(root: Path, **changes: Any) -> MessageStore:
    config = small_config(
        root, mapped_file_size_commit_log=8 << 20, mapped_file_size_consume_queue=200_000, max_message_size=4 << 20,
        max_index_num=20_000, **changes,
    )  # fmt: skip
    return opened(config, SlowMachine())


def store_with_long_batch(root: Path, **changes: Any) -> MessageStore:
    store = store_of_long_batches(root, **changes)
    store.queues.topic_write_state("T").max_queue_id = 3
    assert store.put_batch(message(body=LONG_BATCH)).ok
    return store


async def until_dispatched(store: MessageStore) -> None:
    async with asyncio.timeout(10):
        while store.dispatch_behind_bytes:  # noqa: ASYNC110 - each turn of the loop dispatches some
            await asyncio.sleep(0)


async def test_a_long_batch_is_dispatched_in_turns_and_those_who_wait_are_told(tmp_path: Path) -> None:
    store = store_with_long_batch(tmp_path)
    assert 0 < store.max_offset("T", 0) < COUNT
    assert store.put_message(message(queue_id=1)).queue_offset == 0
    assert store.max_offset("T", 1) == 0, "in the order of the log"
    await until_dispatched(store)
    assert (store.max_offset("T", 0), store.max_offset("T", 1)) == (COUNT, 1)
    assert len(store.query_message("T", f"k{COUNT - 1}", 32, 0, 1 << 62).buffers) == 1
    store.close()


@pytest.mark.parametrize("turns", [0, 1])
async def test_a_clean_end_in_the_middle_leaves_nothing_to_recover(tmp_path: Path, turns: int) -> None:
    store = store_with_long_batch(tmp_path)
    for _ in range(turns):
        await asyncio.sleep(0)
    assert store.dispatch_behind_bytes > 0
    await store.shutdown()
    again = opened(store.config)
    assert again.report.clean_exit and again.report.dispatched_records == 0
    assert again.max_offset("T", 0) == COUNT
    again.close()


def test_without_a_loop_all_is_dispatched_at_once(tmp_path: Path) -> None:
    store = store_with_long_batch(tmp_path)
    assert store.max_offset("T", 0) == COUNT
    store.close()


async def test_a_topic_that_is_deleted_behind_a_long_batch_is_gone_when_that_is_answered(tmp_path: Path) -> None:
    store = store_with_long_batch(tmp_path)
    assert store.dispatch_behind_bytes > 0
    await delete_topics(store, "T")
    assert store.dispatch_behind_bytes == 0
    assert store.max_offset("T", 0) == 0
    assert not (tmp_path / "consumequeue" / "T").exists()
    assert store.put_message(message(body=b"new")).queue_offset == 0
    found = store.get_message("g", "T", 0, 0, 32, None)
    assert (found.message_count, found.next_begin_offset) == (1, 1)
    store.close()


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_slave_that_becomes_master_in_the_middle_goes_on_with_the_next_queue_offset(
    tmp_path: Path, flush: str
) -> None:
    master = store_with_long_batch(tmp_path / "master")
    master.put_message(message(queue_id=1))
    end = master.max_physical_offset
    slave = store_of_long_batches(tmp_path / "slave", broker_role="SLAVE", flush_disk_type=flush)
    while slave.max_physical_offset < end:
        data = master.log_bytes(slave.max_physical_offset, end)
        assert data is not None
        slave.append_from_master(slave.max_physical_offset, data)
    assert slave.dispatch_behind_bytes > 0
    slave.update_config(replace(slave.config, broker_role="ASYNC_MASTER"))
    assert [slave.put_message(message(queue_id=queue)).queue_offset for queue in range(3)] == [COUNT, 1, 0]
    await slave.flush()
    assert [slave.max_offset("T", queue) for queue in range(3)] == [COUNT + 1, 2, 1]
    await slave.shutdown()
    master.close()


async def test_who_waits_for_a_flush_finds_everything_in_its_queue(tmp_path: Path) -> None:
    store = store_with_long_batch(tmp_path)
    store.flusher.flush_inline()  # then there is nothing left to flush
    assert store.dispatch_behind_bytes > 0
    await store.flush()
    assert store.max_offset("T", 0) == COUNT
    store.close()


async def test_a_member_that_becomes_leader_in_the_middle_has_all_that_is_committed_in_its_queues(
    tmp_path: Path,
) -> None:
    """Services that begin with the role read them: which transactions are open, which batches are staged."""
    store = store_of_long_batches(
        tmp_path, enable_dleger_commit_log=True, dleger_self_id="n0", mapped_file_size_dledger_index=320_000
    )  # fmt: skip
    ledger = store.ledger
    assert ledger is not None
    ledger.store_term(HardState(1, "n0"))
    ledger.begin_leading(1)
    store.queues.topic_write_state("T").max_queue_id = 0
    assert store.put_batch(message(body=LONG_BATCH)).ok
    store.update_config(replace(store.config, broker_role="SLAVE"))
    ledger.commit(ledger.end_index)
    assert store.dispatch_behind_bytes > 0
    store.update_config(replace(store.config, broker_role="SYNC_MASTER"))
    assert store.max_offset("T", 0) == COUNT
    await store.shutdown()


async def test_a_long_message_is_dispatched_however_slow_the_machine_is(tmp_path: Path) -> None:
    store = store_of_long_batches(tmp_path)
    assert store.put_message(message(body=bytes(1 << 20))).ok
    await until_dispatched(store)
    assert store.max_offset("T", 0) == 1
    store.close()


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_batch_that_is_refused_leaves_what_is_not_dispatched_yet_as_it_is(tmp_path: Path, flush: str) -> None:
    """Records are made in a ring in memory. As long as those of both batches are, a power of two, the ones of the
    second would stand where dispatch looks for those of the first."""
    store = store_of_long_batches(tmp_path, flush_disk_type=flush)
    store.queues.topic_write_state("T").max_queue_id = 1
    more = store.put_batch(message(body=encode_batch([Message("T", b"x")]))).size - 1
    body = bytes(512 - more)
    assert store.put_batch(message(body=encode_batch([Message("T", body)] * 3_000))).ok
    refused = encode_batch([Message("T", body)] * 3_990 + [Message("T", body, {"TRAN_MSG": "true"})])
    assert store.put_batch(message(body=refused, queue_id=1)).status is PutMessageStatus.MESSAGE_ILLEGAL
    await store.flush()
    assert (store.max_offset("T", 0), store.max_offset("T", 1)) == (3_001, 0)
    assert store.dispatch.faults == []
    await store.shutdown()


# --- new queues ---


QUEUES = 50


def send_to_new_queues(store: MessageStore, size: int = 100) -> int:
    """One message to each of the queues of T, from one arrival; returns in how many parts the compiled path took it."""
    state = store.queues.topic_write_state("T")
    state.max_queue_id, state.is_fast_path_open = QUEUES - 1, True
    source, rows = bytearray(b"T" + bytes(size)), array("q")
    for queue_id in range(QUEUES):
        row = [0] * ROW_WIDTH
        row[R_TOPIC], row[R_TOPIC_SIZE], row[R_BODY], row[R_BODY_SIZE] = 0, 1, 1, size
        row[R_QUEUE_ID] = queue_id
        rows.extend(row)
    host = b"\x7f\0\0\1\0\0\x12\x34"
    done = parts = 0
    while done < QUEUES:
        taken = store.fast_path_writer.append_rows(source, bytearray(1), rows, done, QUEUES - done, host, b"").rows
        assert taken, "no message needs the long way because its queue is new"
        done += taken
        parts += 1
    return parts


def filled(store: MessageStore) -> list[int]:
    return [queue_id for queue_id in range(QUEUES) if store.max_offset("T", queue_id)]


def small_queues(root: Path, **changes: Any) -> MessageStore:
    return opened(small_config(root, mapped_file_size_commit_log=32 << 20, **changes), TestClock())


async def test_files_of_many_new_queues_are_made_in_turns_and_others_are_served_meanwhile(tmp_path: Path) -> None:
    store = small_queues(tmp_path)
    assert send_to_new_queues(store) == 1
    assert filled(store) == list(range(8))
    await asyncio.sleep(0)
    assert filled(store) == list(range(16))
    await until_dispatched(store)
    assert filled(store) == list(range(QUEUES))
    assert [store.max_offset("T", queue_id) for queue_id in range(QUEUES)] == [1] * QUEUES
    store.close()
    assert not StoreCheck(StoreFiles(SystemDisk(), tmp_path)).run().faults


async def test_a_clean_end_makes_the_files_that_wait(tmp_path: Path) -> None:
    store = small_queues(tmp_path)
    send_to_new_queues(store)
    await store.shutdown()
    again = opened(store.config)
    assert again.report.clean_exit and again.report.dispatched_records == 0
    assert filled(again) == list(range(QUEUES))
    again.close()


async def test_little_of_the_log_waits_for_files(tmp_path: Path) -> None:
    store = small_queues(tmp_path, max_message_size=1 << 20)
    for _ in range(2):
        send_to_new_queues(store, size=(4 << 20) // QUEUES)
    await asyncio.sleep(0)
    assert filled(store) == list(range(QUEUES))
    store.close()


def test_without_a_loop_all_files_are_made_at_once(tmp_path: Path) -> None:
    store = small_queues(tmp_path)
    send_to_new_queues(store)
    assert filled(store) == list(range(QUEUES))
    store.close()


async def test_a_queue_that_its_topic_does_not_have_is_not_made(tmp_path: Path) -> None:
    store = small_queues(tmp_path)
    send_to_new_queues(store)
    await until_dispatched(store)
    state = store.queues.topic_write_state("U")
    state.max_queue_id, state.is_fast_path_open = 0, True
    source, rows = bytearray(b"U"), array("q", [0] * ROW_WIDTH)
    rows[R_TOPIC_SIZE], rows[R_QUEUE_ID] = 1, 1
    assert not store.fast_path_writer.append_rows(source, bytearray(1), rows, 0, 1, b"\x7f\0\0\1\0\0\x12\x34", b"").rows
    assert store.queues.find("U", 1) is None
    store.close()
