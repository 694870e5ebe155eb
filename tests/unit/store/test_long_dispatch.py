"""What takes longer to dispatch than a turn of the loop: others are served meanwhile, and nothing is forgotten."""

import asyncio
from pathlib import Path

import pytest

from maxq.protocol.message import Message, encode_batch
from maxq.store.message_store import MessageStore
from tests.unit.store.stores import TestClock, delete_topics, message, opened, small_config

COUNT = 8_000


class SlowMachine(TestClock):
    """Whatever is looked at, 6 ms have passed."""

    def monotonic_ns(self) -> int:
        self.now_ms += 6
        return super().monotonic_ns()


def store_with_long_batch(root: Path, **changes: str) -> MessageStore:
    config = small_config(
        root, mapped_file_size_commit_log=8 << 20, mapped_file_size_consume_queue=200_000, max_message_size=4 << 20,
        max_index_num=20_000, **changes,
    )  # fmt: skip
    store = opened(config, SlowMachine())
    batch = encode_batch([Message("T", b"b", {"KEYS": f"k{number}"}) for number in range(COUNT)])
    store.topic_tail("T").max_queue_id = 3
    assert store.put_batch(message(body=batch)).ok
    return store


async def until_dispatched(store: MessageStore) -> None:
    async with asyncio.timeout(30):
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
