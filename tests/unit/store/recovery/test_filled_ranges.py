"""Fillers in the log: remembered, told, compared."""

import asyncio
import zlib
from pathlib import Path

import pytest

from maxq.runtime import turns
from maxq.store.message_store import MessageStore
from maxq.store.recovery.filled_ranges import FilledRange
from maxq.store.recovery.filled_ranges_file import decode_ranges
from tests.unit.store.stores import delete_topics, message, opened, small_config


def filled(root: Path) -> tuple[MessageStore, list[int]]:
    """A store of 30 messages, and where they begin."""
    store = opened(small_config(root))
    return store, [store.put_message(message("T", 0, b"%03d" % n * 40)).physical_offset for n in range(30)]


def damaged(root: Path, *places: int) -> tuple[MessageStore, list[int]]:
    """The same, started again after a bit of these messages has changed."""
    store, starts = filled(root)
    store.close()
    path = root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    for place in places:
        data[starts[place] + 130] ^= 8
    path.write_bytes(data)
    return opened(small_config(root)), starts


def test_what_a_start_seals_is_on_the_list_for_good(tmp_path: Path) -> None:
    store, starts = damaged(tmp_path, 4, 9)
    ranges = [(starts[4], starts[5]), (starts[9], starts[10])]
    assert store.filled_ranges.ranges() == store.filled_ranges.still_filled() == ranges
    store.close()
    for copy in (tmp_path / "damaged").iterdir():
        copy.unlink()
    store = opened(small_config(tmp_path))
    assert store.filled_ranges.ranges() == ranges
    store.close()


def test_seals_of_a_version_without_a_list_are_found(tmp_path: Path) -> None:
    store, starts = damaged(tmp_path, 4)
    store.close()
    (tmp_path / "seals.json").write_bytes(b"{")
    store = opened(small_config(tmp_path))
    assert store.filled_ranges.ranges() == [(starts[4], starts[5])]
    store.close()


def test_true_bytes_contradict_a_filler(tmp_path: Path) -> None:
    master, _ = damaged(tmp_path / "m", 4)
    slave, _ = filled(tmp_path / "s")
    (one,) = master.filled_ranges.named()
    assert slave.filled_ranges.contradicting([one]) == [one]
    slave.close()
    master.close()


def test_the_same_filler_is_in_common(tmp_path: Path) -> None:
    master, starts = damaged(tmp_path / "m", 4)
    slave, _ = damaged(tmp_path / "s", 4)
    view = slave.commit_log.files.files[0].view
    view[: starts[-1]] = master.commit_log.files.files[0].view[: starts[-1]]  # their store times differ
    named = master.filled_ranges.named()
    assert slave.filled_ranges.contradicting(named) == []
    slave.filled_ranges.adopt(named)
    assert slave.filled_ranges.as_on_master == {(starts[4], starts[5])}
    slave.close()
    master.close()


def test_a_filler_of_ones_own_has_nothing_to_lose_but_what_lies_beside_it_has(tmp_path: Path) -> None:
    slave, starts = damaged(tmp_path, 4)
    inside = FilledRange(starts[4], starts[5], 1)
    beside = FilledRange(starts[4], starts[6], 1)
    assert slave.filled_ranges.contradicting([inside, beside]) == [beside]
    slave.filled_ranges.adopt([inside])
    assert slave.filled_ranges.as_on_master == frozenset()
    slave.close()


async def test_a_message_is_the_last_of_its_queue_if_no_later_one_lies_outside_what_was_lost(tmp_path: Path) -> None:
    slave, starts = filled(tmp_path)
    slave.put_message(message("T", 1, b"of another queue"))
    end = slave.max_physical_offset
    at = [*starts, end]
    for places, is_last in (([4], False), ([28], False), ([29], True), ([4, 29], True), ([29, 4], True)):
        ranges = [FilledRange(at[place], at[place + 1], 1) for place in places]
        assert await slave.filled_ranges.hold_last_places(ranges) is is_last
    assert await slave.filled_ranges.hold_last_places([FilledRange(starts[28], end, 1)])
    await delete_topics(slave, "T")
    assert not await slave.filled_ranges.hold_last_places([FilledRange(starts[28], end, 1)])
    slave.close()


async def test_others_are_served_while_the_messages_of_a_range_are_examined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "TURN_SECONDS", 0)
    slave, starts = filled(tmp_path)
    ranges = [FilledRange(starts[0], starts[28], 1)]
    examination = asyncio.ensure_future(slave.filled_ranges.hold_last_places(ranges))
    await asyncio.sleep(0)
    assert not examination.done()
    assert not await examination
    slave.close()


def test_what_this_log_does_not_reach_or_has_deleted_contradicts_nothing(tmp_path: Path) -> None:
    slave, _ = filled(tmp_path)
    end = slave.max_physical_offset
    assert slave.filled_ranges.contradicting([FilledRange(end, end + 100, 1)]) == []
    assert slave.filled_ranges.contradicting([FilledRange(end - 1, end + 100, 1)]) != []
    slave.close()


def test_adopted_ranges_are_told_on_after_a_start(tmp_path: Path) -> None:
    slave, starts = filled(tmp_path)
    slave.filled_ranges.adopt([FilledRange(starts[3], starts[4], 1)])
    slave.close()
    slave = opened(small_config(tmp_path))
    assert [(filled.start, filled.end) for filled in slave.filled_ranges.named()] == [(starts[3], starts[4])]
    assert slave.filled_ranges.still_filled() == []  # the true bytes are there
    slave.close()


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"7", b'{"version":2,"ranges":[[1,2]]}', b'{"version":1}', b'{"version":1,"ranges":[[1]]}',
     b'{"version":1,"ranges":[[3,2],[-1,4]]}', b'{"version":1,"ranges":[["x",2]]}', b'{"version":1,"ranges":7}'],
)  # fmt: skip
def test_bytes_that_are_no_list_are_as_none(data: bytes) -> None:
    assert decode_ranges(data) == set()


def test_damage_of_the_first_message_of_the_log_is_named(tmp_path: Path) -> None:
    store, starts = damaged(tmp_path, 0)
    assert store.filled_ranges.ranges() == [(starts[0], starts[1])]
    store.close()


def test_a_range_that_ends_with_the_log_and_has_the_same_bytes_contradicts_nothing(tmp_path: Path) -> None:
    slave, starts = filled(tmp_path)
    end = slave.commit_log.max_offset
    data = slave.commit_log.get(starts[-1], end - starts[-1])
    assert data is not None
    assert slave.filled_ranges.contradicting([FilledRange(starts[-1], end, zlib.crc32(data))]) == []
    slave.close()


def test_ranges_in_files_that_retention_has_deleted_are_dropped_and_contradict_nothing(tmp_path: Path) -> None:
    slave = opened(small_config(tmp_path))
    while len(slave.commit_log.files.files) < 3:
        last = slave.put_message(message(body=bytes(8000))).physical_offset
    first_file = FilledRange(60_000, 65_536, 1)
    slave.filled_ranges.adopt([first_file])
    with slave.commit_log.without_first() as first:
        first.destroy()
    assert slave.commit_log.min_offset == first_file.end
    assert slave.filled_ranges.contradicting([first_file]) == []
    slave.filled_ranges.adopt([FilledRange(last, last + 300, 1)])
    assert decode_ranges((tmp_path / "seals.json").read_bytes()) == {(last, last + 300)}
    assert slave.dispatch.resolver.lost_bytes == 300
    slave.close()


def test_as_many_bytes_of_messages_may_be_missing_as_fillers_take(tmp_path: Path) -> None:
    """After every start, and not only after the one that fills them."""
    store, starts = damaged(tmp_path, 4, 9)
    lost = starts[5] - starts[4] + starts[10] - starts[9]
    assert store.dispatch.resolver.lost_bytes == lost
    store.close()
    store = opened(small_config(tmp_path))
    assert store.dispatch.resolver.lost_bytes == lost
    store.close()


def test_a_range_on_the_list_in_which_messages_lie_hides_none_of_them(tmp_path: Path) -> None:
    store, starts = filled(tmp_path)
    store.filled_ranges.add([(starts[4] + 10, starts[7] + 10)])
    store.close()
    (tmp_path / "abort").write_bytes(b"")
    store = opened(small_config(tmp_path))
    assert store.filled_ranges.still_filled() == [(starts[4] + 10, starts[7] + 10)]
    queue = store.queue("T", 0)
    assert queue is not None
    assert [queue.unit(number) for number in range(30)] == [(start, 212, 0) for start in starts]
    store.close()
