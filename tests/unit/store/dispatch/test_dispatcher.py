"""What dispatch does beyond plain units: extension units, hooks, places that cannot be, delay levels."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maxq.protocol.message.message import Message, encode_batch
from maxq.protocol.message.message_sys_flag import MessageSysFlag
from maxq.store.dispatch import dispatcher
from maxq.store.dispatch.dispatcher import DispatchRequest, parse_delay_levels
from maxq.store.log.tails_cy import QueueTail, jhash
from maxq.store.message_store import MessageStore
from maxq.store.queue.consume_queue_ext import ConsumeQueueExt, CqExtUnit, is_ext_address
from tests.unit.store.recovery.recovery_world import delete_queues, overwrite
from tests.unit.store.stores import TestClock, message, opened, small_config

Opened = Callable[..., MessageStore]


@pytest.fixture
def store_of(tmp_path: Path) -> Opened:
    def open_one(**changes: Any) -> MessageStore:
        return opened(small_config(tmp_path, **changes), TestClock())

    return open_one


def test_delay_levels_are_numbers_with_a_unit_and_anything_else_is_a_second() -> None:
    assert parse_delay_levels("1s 5m 2h 1d") == [1_000, 300_000, 7_200_000, 86_400_000]
    assert parse_delay_levels("30s  10s") == [30_000, 10_000]
    assert parse_delay_levels("x 5 s 7w -1s 3m") == [1_000, 1_000, 1_000, 1_000, 1_000, 180_000]
    assert parse_delay_levels("") == []


# --- extension units ---


def extension(store: MessageStore, topic: str = "T", queue_id: int = 0) -> list[CqExtUnit | None]:
    """The extension units of a queue; None where a unit has none."""
    queue = store.queues.find(topic, queue_id)
    assert queue is not None and queue.ext is not None
    units = [queue.unit(at) for at in range(queue.max_offset)]
    return [queue.ext.get(unit[2]) if unit is not None and is_ext_address(unit[2]) else None for unit in units]


def test_every_message_has_its_extension_unit_with_what_the_filter_says(store_of: Opened) -> None:
    store = store_of(enable_consume_queue_ext=True)
    asked: list[tuple[str, int]] = []

    def bit_map_of(topic: str, record: memoryview) -> bytes:
        asked.append((topic, len(record)))
        return b"bits%d" % len(asked)

    store.dispatch.bit_map_of = bit_map_of
    first = store.put_message(message(TAGS="A"))
    second = store.put_message(message(queue_id=1))
    now = TestClock().now_ms
    assert extension(store) == [CqExtUnit(jhash("A"), now, b"bits1")]
    assert extension(store, "T", 1) == [CqExtUnit(0, now, b"bits2")]
    assert asked == [("T", first.size), ("T", second.size)]
    assert store.get_message("g", "T", 0, 0, 32, None).message_count == 1
    store.close()


def test_long_topics_and_messages_with_properties_have_one_too(store_of: Opened) -> None:
    store = store_of(enable_consume_queue_ext=True, enable_multi_dispatch=True, enable_lmq=True)
    long = "%RETRY%" + "x" * 200
    for topic in ("T", long):
        store.put_message(message(topic, KEYS="k1 k2", TAGS="t"))
        store.put_message(message(topic, body=b""))
        assert [unit is not None for unit in extension(store, topic)] == [True, True]
    store.put_message(message(INNER_MULTI_DISPATCH="%LMQ%a"))
    assert [unit is not None for unit in extension(store)] == [True, True, True]
    assert store.max_offset("%LMQ%a", 0) == 1
    store.close()


def test_a_committed_half_message_and_one_with_a_hook_have_their_extension_units(store_of: Opened) -> None:
    store = store_of(enable_consume_queue_ext=True)
    told: list[int] = []
    store.dispatch.hook("Hooked", lambda request: told.append(request.physical_offset))
    plain = store.put_message(message("Hooked"))
    committed = message("Hooked")
    committed.sys_flag |= MessageSysFlag.TRANSACTION_COMMIT
    other = store.put_message(committed)
    assert told == [plain.physical_offset, other.physical_offset]
    assert [unit is not None for unit in extension(store, "Hooked")] == [True, True]
    store.close()


def test_a_rebuild_gives_the_same_extension(store_of: Opened, tmp_path: Path) -> None:
    store = store_of(enable_consume_queue_ext=True)
    for number in range(30):
        store.put_message(message(TAGS=f"t{number % 3}"))
    before = extension(store)
    assert None not in before
    store._life.lock.release()
    (tmp_path / "inventory.json").unlink(missing_ok=True)
    store = store_of(enable_consume_queue_ext=True)
    assert store.report.dispatched_records == 30
    assert extension(store) == before
    store.close()


def test_a_queue_goes_on_with_tags_codes_while_its_extension_has_no_room(
    store_of: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(enable_consume_queue_ext=True)
    store.put_message(message(TAGS="A"))

    def refuse(ext: ConsumeQueueExt, unit: CqExtUnit) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full_disk:
        full_disk.setattr(ConsumeQueueExt, "put", refuse)
        assert store.put_message(message(TAGS="B")).ok
    store.put_message(message(TAGS="C"))
    assert [unit is not None for unit in extension(store)] == [True, False, True]
    queue = store.queues.find("T", 0)
    assert queue is not None
    unit = queue.unit(1)
    assert unit is not None and unit[2] == jhash("B")
    assert store.max_offset("T", 0) == 3
    store.close()


def test_with_extensions_too_the_place_of_a_lost_message_is_not_given_again(store_of: Opened, tmp_path: Path) -> None:
    store = store_of(enable_consume_queue_ext=True)
    store.put_message(message())
    lost = store.put_message(message(body=b"lost" * 100))
    store.put_message(message(queue_id=1))
    store.close()
    overwrite(tmp_path, lost.physical_offset + 91, b"\x99")
    (tmp_path / "inventory.json").unlink()
    store = store_of(enable_consume_queue_ext=True)
    assert [damage.physical_offset for damage in store.report.damages] == [lost.physical_offset]
    store.close()
    delete_queues(tmp_path)  # the filler alone tells of the place
    (tmp_path / "inventory.json").unlink()
    store = store_of(enable_consume_queue_ext=True)
    assert store.put_message(message()).queue_offset == 2
    store.close()


# --- hooks and listeners ---


def test_a_hook_gets_every_record_of_its_topic_and_no_other(store_of: Opened) -> None:
    store = store_of()
    got: list[DispatchRequest] = []
    store.dispatch.hook("Hooked", got.append)
    store.put_message(message())
    result = store.put_message(message("Hooked", 2, b"body", KEYS="k"))
    assert [(one.physical_offset, one.size) for one in got] == [(result.physical_offset, result.size)]
    (one,) = got
    assert (one.message.topic, one.message.queue_id, one.message.body) == ("Hooked", 2, b"body")
    store.close()


def test_a_watched_light_queue_is_told_once(store_of: Opened) -> None:
    store = store_of(enable_lmq=True, enable_multi_dispatch=True)
    heard: list[QueueTail] = []
    store.dispatch.arrival_listeners.append(heard.extend)
    store.put_message(message(INNER_MULTI_DISPATCH="%LMQ%a"))
    assert heard == []
    queue = store.queues.find("%LMQ%a", 0)
    assert queue is not None
    queue.tail.watched = True
    store.put_message(message(INNER_MULTI_DISPATCH="%LMQ%a"))
    store.put_message(message(INNER_MULTI_DISPATCH="%LMQ%a"))
    assert heard == [queue.tail]
    assert not queue.tail.watched
    store.close()


# --- places ---


def units(store: MessageStore, topic: str) -> list[tuple[int, int, int]]:
    return list(store.queue_units(topic, 0, 0, store.max_offset(topic, 0)))


def test_a_unit_is_written_once_and_never_below_the_end_of_its_queue(store_of: Opened) -> None:
    store = store_of()
    for number in range(3):
        store.put_message(message(body=b"%d" % number))
    put = store.dispatch.put_unit
    put("L", 0, 0, 100, 50, 7)
    put("L", 0, 1, 100, 50, 7)  # the same record again
    put("L", 0, 0, 200, 50, 7)  # a place that is taken
    assert units(store, "L") == [(100, 50, 7)]
    put("L", 0, 1, 150, 50, 8)
    assert units(store, "L") == [(100, 50, 7), (150, 50, 8)]
    assert store.dispatch.faults == []
    store.close()


def test_a_place_so_far_behind_its_queue_that_nothing_can_be_lost_between_is_refused_and_told(
    store_of: Opened,
) -> None:
    store = store_of()
    for number in range(3):
        store.put_message(message(body=b"%d" % number))
    put, resolver = store.dispatch.put_unit, store.dispatch.resolver
    put("L", 0, 0, 100, 50, 7)
    put("L", 0, 2, 200, 50, 7)
    assert units(store, "L") == [(100, 50, 7)]
    (fault,) = store.dispatch.faults
    assert "says it is message 2 of L-0, which ends at 1: so far behind it can not be" in fault
    assert "the record at position 200 (physical offset 200)" in fault
    resolver.lose([(0, 200)])  # two records may be missing
    put("L", 0, 4, 200, 50, 7)
    assert store.max_offset("L", 0) == 1
    put("L", 0, 3, 200, 50, 7)
    assert store.max_offset("L", 0) == 4
    store.close()


def test_a_copy_takes_places_as_its_master_gave_them(store_of: Opened) -> None:
    store = store_of()
    store.put_message(message())
    store.dispatch.is_copy = True
    put = store.dispatch.put_unit
    put("L", 0, 0, 10, 50, 7)
    put("L", 0, 1000, 60, 50, 7)
    assert store.max_offset("L", 0) == 1001
    put("L", 0, 2_000_000, 110, 50, 7)
    assert store.max_offset("L", 0) == 1001
    store.close()


# --- turns ---


class SlowMachine(TestClock):
    """Whatever is looked at, 6 ms have passed."""

    def monotonic_ns(self) -> int:
        self.now_ms += 6
        return super().monotonic_ns()


async def test_what_takes_longer_than_a_turn_goes_on_in_the_next_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "_PIECE", 500)
    store = opened(small_config(tmp_path), SlowMachine())
    store.queues.topic_write_state("T").max_queue_id = 0
    heard: list[int] = []
    store.dispatch.arrival_listeners.append(lambda arrived: heard.append(store.max_offset("T", 0)))
    store.watch("T", 0)
    assert store.put_batch(message(body=encode_batch([Message("T", bytes(100))] * 20))).ok
    reached = [store.max_offset("T", 0)]
    assert store.dispatch.is_late
    while store.dispatch.is_late:
        await asyncio.sleep(0)
        reached.append(store.max_offset("T", 0))
    assert reached[-1] == 20 and len(set(reached)) > 3
    assert heard == [reached[0]]
    assert store.put_message(message(body=bytes(3000))).ok  # longer than a piece
    await store.dispatch.finish_turns()
    assert store.max_offset("T", 0) == 21
    store.close()
