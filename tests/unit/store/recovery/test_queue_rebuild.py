"""A rebuild of all queues writes over their files: afterwards they are, byte for byte, those that a rebuild without any
files makes."""

import contextlib
import os
import shutil
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from maxq.runtime.files.system import SystemDisk
from maxq.store.files.mapped_file import MappedFile
from maxq.store.message_store import MessageStore
from maxq.store.queue.consume_queue import ConsumeQueue
from maxq.store.queue.unit_scan_cy import DAMAGED_TAGS_CODE
from maxq.store.recovery.queue_rebuild import QueueRebuild, cut_point
from maxq.store.recovery.recovery import Recovery
from maxq.store.tools.recover import recover
from maxq.store.tools.store_files import StoreFiles
from tests.unit.store.stores import TestClock, message, new_store, small_config

UNIT_SIZE = 20
FILE_SIZE = 400

Change = Callable[[Path], None]


def killed_store(root: Path, count: int = 150) -> None:
    """Six queues over several files each; the process was killed, so the next start builds all of them anew."""
    store = new_store(small_config(root))
    store.load()
    for number in range(count):
        body = b"body %d" % number
        assert store.put_message(message(f"T{number % 2}", number % 3, body, KEYS=f"k{number}")).ok
    store._life.lock.release()


def queue_files(root: Path) -> dict[str, bytes]:
    folder = root / "consumequeue"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def recovered(root: Path, *, max_mapped: int = 6000) -> MessageStore:
    store = new_store(small_config(root), TestClock())
    store.queues.max_mapped = max_mapped
    store.load()
    return store


def file_of(root: Path, offset: int) -> Path:
    return root / "consumequeue" / "T0" / "0" / f"{offset:020d}"


def nothing(root: Path) -> None:
    pass


def stale_units_behind_the_end(root: Path) -> None:
    with open(file_of(root, FILE_SIZE), "r+b") as file:
        file.seek(UNIT_SIZE * 10)
        file.write(struct.pack(">qiq", 77, 99, 5) * 5)


def a_file_behind_the_end(root: Path) -> None:
    file_of(root, 2 * FILE_SIZE).write_bytes(struct.pack(">qiq", 77, 99, 5) * 20)


def rubbish_in_all_units(root: Path) -> None:
    for path in (root / "consumequeue" / "T0" / "0").iterdir():
        path.write_bytes(b"\xa5" * FILE_SIZE)


def files_of_another_place(root: Path) -> None:
    for path in sorted((root / "consumequeue" / "T0" / "0").iterdir(), reverse=True):
        path.rename(path.with_name(f"{int(path.name) + 40 * FILE_SIZE:020d}"))


def a_queue_without_messages(root: Path) -> None:
    shutil.copytree(root / "consumequeue" / "T0" / "0", root / "consumequeue" / "T0" / "77")
    shutil.copytree(root / "consumequeue" / "T0", root / "consumequeue" / "Gone")


CHANGES = (
    nothing,
    stale_units_behind_the_end,
    a_file_behind_the_end,
    rubbish_in_all_units,
    files_of_another_place,
    a_queue_without_messages,
)


@pytest.mark.parametrize("max_mapped", [6000, 2], ids=["all mapped", "two mapped at a time"])
@pytest.mark.parametrize("change", CHANGES)
def test_files_written_over_are_those_of_a_fresh_rebuild(tmp_path: Path, change: Change, max_mapped: int) -> None:
    root, fresh = tmp_path / "store", tmp_path / "fresh"
    killed_store(root)
    shutil.copytree(root, fresh)
    shutil.rmtree(fresh / "consumequeue")
    change(root)
    recovered(fresh).close()
    recovered(root, max_mapped=max_mapped).close()
    assert queue_files(root) == queue_files(fresh)
    assert len(queue_files(root)) == 6 * 2


def test_right_files_are_neither_deleted_nor_made_again(tmp_path: Path) -> None:
    killed_store(tmp_path)
    before = {path: os.stat(path).st_ino for path in (tmp_path / "consumequeue").rglob("0*") if path.is_file()}
    with contextlib.ExitStack() as keepers:  # a deleted file's number cannot come back while it is open
        for path in before:
            keepers.enter_context(open(path, "rb"))
        recovered(tmp_path).close()
        assert {path: os.stat(path).st_ino for path in before} == before


def with_a_queue_without_messages(root: Path) -> None:
    """A store whose log has lost the five messages of Old-0 to retention; nothing but the queue's own file tells."""
    store = new_store(small_config(root))
    store.load()
    for _ in range(5):
        store.put_message(message("Old"))
    while store.commit_log.min_offset == 0:
        store.put_message(message("New", body=bytes(8000)))
        if len(store.commit_log.files.files) == 3:
            with store.commit_log.without_first() as first:
                first.destroy()
    store.close()
    (root / "inventory.json").unlink()


@pytest.mark.parametrize("known_by", ["the file of the queue", "the inventory"])
@pytest.mark.parametrize("killed", ["while queues are built", "behind that"])
def test_numbering_goes_on_though_the_start_that_builds_queues_anew_is_killed(
    tmp_path: Path, known_by: str, killed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_a_queue_without_messages(tmp_path)
    if known_by == "the inventory":
        recovered(tmp_path).close()
        assert not (tmp_path / "consumequeue" / "Old").exists()
        recovered(tmp_path)._life.lock.release()
    if killed == "behind that":
        shutil.rmtree(tmp_path / "consumequeue" / "New")
        recovered(tmp_path)._life.lock.release()
    else:
        with monkeypatch.context() as dying:
            dying.setattr(Recovery, "_replay", lambda *args: sys.exit("killed"))
            with pytest.raises(SystemExit):
                recovered(tmp_path)
    store = recovered(tmp_path)
    assert store.put_message(message("Old")).queue_offset == 5
    assert store.max_offset("New", 0) > 5
    store.close()


def test_numbering_goes_on_in_a_queue_whose_messages_are_no_longer_in_the_log(tmp_path: Path) -> None:
    with_a_queue_without_messages(tmp_path)
    store = recovered(tmp_path)
    assert (store.min_offset("Old", 0), store.max_offset("Old", 0)) == (5, 5)
    assert not (tmp_path / "consumequeue" / "Old").exists()
    assert store.put_message(message("Old")).queue_offset == 5
    store.close()


# --- where a queue is cut


def queue_of(root: Path, *units: tuple[int, int, int], first: int = 0) -> ConsumeQueue:
    """A queue of files of 20 units, as a start finds it: nobody has looked for its end."""
    queue = ConsumeQueue(SystemDisk(), root, "T", 0, FILE_SIZE, lambda queue: None)
    for number, unit in enumerate(units, first):
        if number == first or not queue.tail.append(*unit):
            queue.roll(number, unit[0], unit[1])
            assert queue.tail.append(*unit)
    queue.release()
    found = ConsumeQueue(SystemDisk(), root, "T", 0, FILE_SIZE, lambda queue: None)
    found.files.load(SystemDisk().list(root / "T" / "0"), setting="mappedFileSizeConsumeQueue")
    return found


UNITS = [(100 * number, 90, 5) for number in range(50)]


@pytest.mark.parametrize("most", [None, 50, 60, 27])
def test_a_queue_is_cut_behind_the_last_record_below_an_offset(tmp_path: Path, most: int | None) -> None:
    queue = queue_of(tmp_path, *UNITS)
    bound = 50 if most is None else min(most, 50)
    for offset in (0, 1, 100, 101, 1999, 2000, 2001, 2600, 2601, 4900, 4901, 1 << 40):
        count = min(bound, sum(unit[0] < offset for unit in UNITS))
        assert cut_point(queue, offset, most) == (count, UNITS[count - 1][0] + 90 if count else -1)


def test_a_queue_without_files_is_cut_where_it_is(tmp_path: Path) -> None:
    queue = ConsumeQueue(SystemDisk(), tmp_path, "T", 0, FILE_SIZE, lambda queue: None)
    assert cut_point(queue, 1 << 40, None) == (0, -1)


def test_a_queue_that_begins_late_is_cut_no_lower_than_its_first_file(tmp_path: Path) -> None:
    queue = queue_of(tmp_path, *[(5000 + 100 * number, 90, 5) for number in range(30)], first=40)
    assert cut_point(queue, 4000, None) == (40, -1)
    assert cut_point(queue, 5001, None) == (41, 5090)
    assert cut_point(queue, 5001, 10) == (40, -1)


def test_a_queue_of_nothing_but_pre_blank_units_begins_with_its_first_message(tmp_path: Path) -> None:
    queue = queue_of(tmp_path, *[(5000 + 100 * number, 90, 5) for number in range(10)], first=45)
    assert cut_point(queue, 5000, None) == (40, -1)
    assert cut_point(queue, 5001, None) == (46, 5090)


def test_the_place_of_a_damaged_message_ends_where_the_next_one_begins(tmp_path: Path) -> None:
    queue = queue_of(tmp_path, (100, 90, 5), (300, 90, DAMAGED_TAGS_CODE), (300, 90, 5))
    assert cut_point(queue, 1000, 2) == (2, 300)
    assert cut_point(queue, 1000, 3) == (3, 390)
    assert cut_point(queue, 300, None) == (1, 190)


def with_batches(root: Path, *, are_expired: bool) -> None:
    """A store with five messages in a queue of batches, perhaps lost to retention since."""
    store = new_store(small_config(root))
    store.queues.is_batch_topic = lambda topic: topic == "Batch"
    store.load()
    for _ in range(5):
        store.put_message(message("Batch"))
    while are_expired and store.commit_log.min_offset == 0:
        store.put_message(message("New", body=bytes(8000)))
        if len(store.commit_log.files.files) == 3:
            with store.commit_log.without_first() as first:
                first.destroy()
    store.close()


def recovered_with_batches(root: Path, clock: TestClock | None = None) -> MessageStore:
    store = new_store(small_config(root), clock)
    store.queues.is_batch_topic = lambda topic: topic == "Batch"
    store.load()
    return store


@pytest.mark.parametrize(
    "how", ["recover --rebuild", "recover --rebuild without inventory", "its files are deleted", "a second start"]
)
def test_numbering_goes_on_in_a_queue_of_batches_whose_messages_are_no_longer_in_the_log(
    tmp_path: Path, how: str
) -> None:
    """Who has read up to 5 would miss new messages that were numbered from 0 again."""
    with_batches(tmp_path, are_expired=True)
    if how == "recover --rebuild without inventory":
        (tmp_path / "inventory.json").unlink()
    if how.startswith("recover --rebuild"):
        recover(StoreFiles(SystemDisk(), tmp_path), TestClock(), rebuild=True, config=small_config(tmp_path))
    else:
        shutil.rmtree(tmp_path / "batchconsumequeue")
    if how == "a second start":
        recovered_with_batches(tmp_path).close()
    store = recovered_with_batches(tmp_path)
    assert (store.min_offset("Batch", 0), store.max_offset("Batch", 0)) == (5, 5)
    assert store.put_message(message("Batch")).queue_offset == 5
    assert (store.min_offset("Batch", 0), store.max_offset("Batch", 0)) == (5, 6)
    store.close()


def test_a_queue_of_batches_that_lost_its_files_is_built_anew(tmp_path: Path) -> None:
    with_batches(tmp_path, are_expired=False)
    shutil.rmtree(tmp_path / "batchconsumequeue")
    store = recovered_with_batches(tmp_path)
    assert (store.min_offset("Batch", 0), store.max_offset("Batch", 0)) == (0, 5)
    assert "Batch-0" in " ".join(store.report.rebuild_reasons)
    store.close()
    again = recovered_with_batches(tmp_path)
    assert again.report.rebuild_reasons == []
    assert again.max_offset("Batch", 0) == 5
    again.close()


def test_units_of_batches_whose_records_were_lost_never_come_back(tmp_path: Path) -> None:
    with_batches(tmp_path, are_expired=False)
    clock = TestClock()
    store = recovered_with_batches(tmp_path, clock)
    while store.max_physical_offset < 100_000:  # a start after a kill does not rebuild the queue from its first unit
        clock.now_ms += 10_000
        store.put_message(message("Other", body=bytes(8000)))
    store.close()
    store = recovered_with_batches(tmp_path, clock)
    for _ in range(3):
        store.put_message(message("Batch"))
    store._life.lock.release()  # killed, and the machine had written the units, but not their records
    lost = store.queues.batch_queues["Batch", 0].unit(5)
    assert lost is not None
    with (tmp_path / "commitlog" / f"{65_536:020d}").open("r+b") as file:
        file.seek(lost.physical_offset - 65_536)
        file.write(bytes(2 * 65_536 - lost.physical_offset))
    store = recovered_with_batches(tmp_path, clock)
    assert store.max_offset("Batch", 0) == 5
    units = (tmp_path / "batchconsumequeue" / "Batch" / "0" / f"{0:020d}").read_bytes()
    assert any(units[: 5 * 46]) and not any(units[5 * 46 :])
    while store.max_physical_offset < lost.physical_offset + 1_000:
        store.put_message(message("Other"))  # where the lost records were
    store.close()
    store = recovered_with_batches(tmp_path, clock)
    assert store.max_offset("Batch", 0) == 5
    assert store.put_message(message("Batch")).queue_offset == 5
    store.close()


def test_stale_units_behind_the_end_of_a_queue_of_batches_are_not_believed(tmp_path: Path) -> None:
    """Earlier versions left such units in the files."""
    with_batches(tmp_path, are_expired=False)
    store = recovered_with_batches(tmp_path)
    while store.max_physical_offset < 5_000:
        store.put_message(message("Other"))
    store.close()
    with (tmp_path / "batchconsumequeue" / "Batch" / "0" / f"{0:020d}").open("r+b") as file:
        file.seek(5 * 46)
        file.write(struct.pack(">qiqqqhii", 1_000, 94, 0, 1_700_000_000_000, 5, 1, -1, 0))
    store = recovered_with_batches(tmp_path)
    assert store.max_offset("Batch", 0) == 5
    store.close()


@pytest.mark.parametrize("what_knows", ["the inventory", "the header", "the unit"])
def test_the_queue_offset_of_a_damaged_last_batch_is_not_given_again(tmp_path: Path, what_knows: str) -> None:
    """Who had read it would miss the message that gets its offset."""
    with_batches(tmp_path, are_expired=False)
    store = recovered_with_batches(tmp_path)
    store.put_message(message("Other"))
    unit = store.queues.batch_queues["Batch", 0].unit(4)
    assert unit is not None
    store.close()
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:
        start, end = (88, 90) if what_knows == "the header" else (0, unit.size)  # its body begins at byte 88
        file.seek(unit.physical_offset + start)
        file.write(b"\xff" * (end - start))
    if what_knows != "the inventory":
        (tmp_path / "inventory.json").unlink()
    if what_knows == "the header":
        shutil.rmtree(tmp_path / "batchconsumequeue")
    for _ in range(2):
        store = recovered_with_batches(tmp_path)
        assert store.queue("Batch", 0) is None
        assert store.get_message("g", "Batch", 0, 5, 32, None).next_begin_offset == 5
        store.close()
    store = recovered_with_batches(tmp_path)
    assert store.put_message(message("Batch")).queue_offset == 5
    for offset in (4, 5):  # the damaged message, and the one behind it
        found = store.get_message("g", "Batch", 0, offset, 32, None)
        assert (found.message_count, found.next_begin_offset) == (1, 6)
    store.close()


# --- what old files tell of a record whose own queue offset is in doubt


class OneQueue:
    """Stands in for the queues of a store."""

    def __init__(self, queue: ConsumeQueue) -> None:
        self._queue = queue
        self.before_release: Callable[[ConsumeQueue], None] | None = None

    def forget_all(self) -> dict[ConsumeQueue, list[MappedFile]]:
        return {self._queue: self._queue.forget()}

    def mapped(self) -> list[ConsumeQueue]:
        return []

    def find(self, topic: str, queue_id: int) -> ConsumeQueue:
        return self._queue


def rebuild_of(queue: ConsumeQueue) -> QueueRebuild:
    return QueueRebuild(OneQueue(queue))  # type: ignore[arg-type]


def test_old_units_tell_the_place_of_each_record_whatever_it_claims(tmp_path: Path) -> None:
    queue = queue_of(tmp_path, *UNITS)
    rebuild = rebuild_of(queue)
    for number, (physical_offset, size, _) in enumerate(UNITS):
        for claimed in (number, 0, 7, 49, 50, 60, 61, -1, 1 << 40):
            assert rebuild.place_before(queue, claimed, physical_offset, size) == number
        assert rebuild.place_before(queue, number, physical_offset, size + 1) is None
        assert rebuild.place_before(queue, number, physical_offset + 1, size) is None
    assert rebuild.place_before(queue, 50, 5000, 90) is None


def test_old_units_of_a_queue_that_begins_late_tell_its_places(tmp_path: Path) -> None:
    queue = queue_of(tmp_path, *[(5000 + 100 * number, 90, 5) for number in range(30)], first=45)
    rebuild = rebuild_of(queue)
    for number in range(30):
        for claimed in (0, 39, 40, 45 + number, 79, 80):
            assert rebuild.place_before(queue, claimed, 5000 + 100 * number, 90) == 45 + number
    assert rebuild.place_before(queue, 45, 4900, 90) is None


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_places_of_lost_messages_are_not_those_of_the_message_behind_them(tmp_path: Path, lost: int) -> None:
    queue = queue_of(tmp_path, (100, 90, 5), *[(300, 90, DAMAGED_TAGS_CODE)] * lost, (300, 90, 5), (400, 90, 5))
    rebuild = rebuild_of(queue)
    for claimed in range(5):
        assert rebuild.place_before(queue, claimed, 300, 90) == lost + 1
        assert rebuild.place_before(queue, claimed, 400, 90) == lost + 2


def test_a_place_that_was_written_over_tells_nothing(tmp_path: Path) -> None:
    queue = queue_of(tmp_path, *UNITS)
    rebuild = rebuild_of(queue)
    queue.tail.write_offset = 3 * UNIT_SIZE
    assert rebuild.place_before(queue, 2, 200, 90) is None
    assert rebuild.place_before(queue, 3, 300, 90) == 3


def test_old_files_of_a_topic_that_is_deleted_further_on_tell_nothing(tmp_path: Path) -> None:
    queue = queue_of(tmp_path, *UNITS)
    rebuild = rebuild_of(queue)
    rebuild.forget(["Other"], 1000)
    assert rebuild.place_before(queue, 3, 300, 90) == 3
    rebuild.forget(["Other", "T"], 1000)
    assert rebuild.place_before(queue, 3, 300, 90) is None


def test_a_queue_without_old_files_tells_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    queue = ConsumeQueue(SystemDisk(), tmp_path, "T", 0, FILE_SIZE, lambda queue: None)
    rebuild = rebuild_of(queue)
    assert rebuild.place_before(queue, 0, 100, 90) is None
    assert rebuild.finish(0) == {}


def test_of_two_old_units_of_a_record_the_claimed_one_counts(tmp_path: Path) -> None:
    queue = queue_of(tmp_path, (100, 90, 5), (300, 90, 5), (300, 90, 5), (400, 90, 5))
    rebuild = rebuild_of(queue)
    assert [rebuild.place_before(queue, claimed, 300, 90) for claimed in (1, 2, 3)] == [1, 2, 1]
