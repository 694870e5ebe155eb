"""Ranges of queues read from files are what the queues hold: densely or sparsely, cut anyhow."""

from pathlib import Path
from typing import Any

import pytest

from maxq.errors import PipelineError
from maxq.pipeline.source import files as files_module
from maxq.pipeline.source.files import FilesReader, plan_files
from maxq.pipeline.source.offsets import OffsetRange
from maxq.pipeline.store.store_folder import open_store
from maxq.protocol.message.message_queue import MessageQueue
from maxq.store.tools.log_walk import LogWalk
from maxq.store.tools.message_lines import messages_of
from maxq.store.tools.queue_files import QueueFiles
from maxq.store.tools.store_files import StoreFiles
from maxq.testing.sim_disk import SimDisk
from tests.unit.store_tools.golden_stores import golden_disk, open_files

COLUMNS = ("topic", "queueId", "queueOffset", "physicalOffset", "msgId")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SimDisk:
    found = golden_disk("clean")
    monkeypatch.setattr(files_module, "open_store", lambda path: open_files(found))
    return found


def queues_of(files: StoreFiles) -> dict[MessageQueue, list[dict[str, Any]]]:
    """Queue → its messages, by way of its units."""
    walk = LogWalk(files)
    by_place = {row["physicalOffset"]: row for batch in walk.batches() for row in messages_of(batch)}
    found = {}
    for (topic, queue_id), sequence in files.queues.items():
        units = [(index, unit) for index, unit in QueueFiles(files, sequence).units() if not unit.is_pre_blank]
        found[MessageQueue(topic, "b", queue_id)] = [
            {**{key: by_place[unit.physical_offset][key] for key in COLUMNS}} for _, unit in units
        ]
    return found


def ranges_of(queues: dict[MessageQueue, list[dict[str, Any]]]) -> list[OffsetRange]:
    return [OffsetRange(q, rows[0]["queueOffset"], rows[-1]["queueOffset"] + 1) for q, rows in queues.items() if rows]


def rows_of(partitions: list[Any]) -> list[tuple[Any, ...]]:
    reader = FilesReader(COLUMNS)
    found = [row for part in partitions for batch in reader.read(part) for row in batch.to_pylist()]
    return sorted(tuple(row.values()) for row in found)


def read_all(partitions: list[Any]) -> tuple[list[tuple[Any, ...]], set[tuple[str, int, int]]]:
    """Rows, and the places that the readers did not find."""
    found, missing = [], set()
    for part in partitions:
        reader = FilesReader(COLUMNS)
        found += [tuple(row.values()) for batch in reader.read(part) for row in batch.to_pylist()]
        missing |= {(one.topic, one.queue_id, n) for one in reader.missing for n in range(one.first, one.last)}
    return found, missing


def place(row: tuple[Any, ...]) -> tuple[str, int, int]:
    return row[0], row[1], row[2]


def expected_of(queues: dict[MessageQueue, list[dict[str, Any]]]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for rows in queues.values() for row in rows)


def plain(files: StoreFiles) -> dict[MessageQueue, list[dict[str, Any]]]:
    """Queues whose messages have one unit each, in the queue that the message names (no LMQ)."""
    return {queue: rows for queue, rows in queues_of(files).items() if queue.topic.startswith(("Gd_K", "Gd_O", "Gd_T"))}


@pytest.mark.parametrize("min_parts", [None, 40])
@pytest.mark.parametrize("dense", [0.0, 1.1])
def test_whole_queues(disk: SimDisk, monkeypatch: pytest.MonkeyPatch, dense: float, min_parts: int | None) -> None:
    monkeypatch.setattr(files_module, "_DENSE", dense)
    queues = plain(open_files(disk))
    plan = plan_files("x", "b", ranges_of(queues), min_parts=min_parts, max_records=None)
    assert plan.rest == []
    assert rows_of(plan.partitions) == expected_of(queues)
    assert len(plan.partitions) >= (min_parts or 1) // 2  # stretches between queues make none


@pytest.mark.parametrize("dense", [0.0, 1.1])
def test_a_part_of_a_queue(disk: SimDisk, monkeypatch: pytest.MonkeyPatch, dense: float) -> None:
    monkeypatch.setattr(files_module, "_DENSE", dense)
    queues = plain(open_files(disk))
    queue = next(queue for queue in queues if queue.topic == "Gd_Keys")
    plan = plan_files("x", "b", [OffsetRange(queue, 10, 25)], min_parts=None, max_records=4)
    assert rows_of(plan.partitions) == expected_of({queue: queues[queue][10:25]})


def test_what_the_files_do_not_hold_is_left(disk: SimDisk) -> None:
    queues = plain(open_files(disk))
    queue = next(queue for queue in queues if queue.topic == "Gd_Keys")
    end = len(queues[queue])
    unknown = OffsetRange(MessageQueue("Nobody", "b", 0), 0, 5)
    plan = plan_files("x", "b", [OffsetRange(queue, 0, end + 7), unknown], min_parts=None, max_records=None)
    assert plan.rest == [OffsetRange(queue, end, end + 7), unknown]
    assert rows_of(plan.partitions) == expected_of({queue: queues[queue]})


def test_messages_that_are_not_in_the_log_file_yet_are_left(disk: SimDisk) -> None:
    files = open_files(disk)
    queues = plain(files)
    queue = max(queues, key=lambda queue: queues[queue][-1]["physicalOffset"] if queues[queue] else -1)
    rows = queues[queue]
    place = rows[-1]["physicalOffset"]
    file = files.log_file_at(place)
    assert file is not None
    data = bytearray(disk.read(file.path))
    data[place - file.from_offset :] = bytes(len(data) - place + file.from_offset)
    disk.put(file.path, bytes(data))
    plan = plan_files("x", "b", [OffsetRange(queue, 0, len(rows))], min_parts=None, max_records=None)
    read = rows_of(plan.partitions)
    (rest,) = plan.rest
    assert rest.last == len(rows) and rest.first == len(read)
    assert read == expected_of({queue: rows[: rest.first]})


def test_a_damaged_record_is_told_as_missing(disk: SimDisk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    files = open_files(disk)
    queues = plain(files)
    queue = next(queue for queue in queues if queue.topic == "Gd_Keys")
    struck = queues[queue][4]
    file = files.log_file_at(struck["physicalOffset"])
    assert file is not None
    data = bytearray(disk.read(file.path))
    data[struck["physicalOffset"] - file.from_offset + 95] ^= 1
    disk.put(file.path, bytes(data))
    expected = [row for row in queues[queue] if row != struck]
    for dense in (0.0, 1.1):
        monkeypatch.setattr(files_module, "_DENSE", dense)
        plan = plan_files("x", "b", [OffsetRange(queue, 0, len(queues[queue]))], min_parts=None, max_records=None)
        found, missing = read_all(plan.partitions)
        assert sorted(found) == expected_of({queue: expected})
        assert missing == {(queue.topic, queue.queue_id, struck["queueOffset"])}


def test_what_expires_after_the_plan_is_told_as_missing(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    files = open_files(disk)
    queues = plain(files)
    for dense in (0.0, 1.1):
        monkeypatch.setattr(files_module, "_DENSE", dense)
        plan = plan_files("x", "b", ranges_of(queues), min_parts=None, max_records=None)
        content = disk.read(files.log[-2].path)
        disk.delete(files.log[-2].path)
        found, missing = read_all(plan.partitions)
        assert found and missing
        assert {place(row) for row in found} | missing == {place(row) for row in expected_of(queues)}
        assert not {place(row) for row in found} & missing
        disk.put(files.log[-2].path, content)


def test_log_files_that_are_not_there_when_planning_are_left(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention has freed the first file, the second is missing, and the units of both are still there."""
    files = open_files(disk)
    queues = plain(files)
    used = [one for one in files.log if any(files.log_file_at(row[3]) == one for row in expected_of(queues))]
    for dense in (0.0, 1.1):
        monkeypatch.setattr(files_module, "_DENSE", dense)
        for gone in used[:2]:
            content = disk.read(gone.path)
            disk.delete(gone.path)
            plan = plan_files("x", "b", ranges_of(queues), min_parts=None, max_records=None)
            found, missing = read_all(plan.partitions)
            left = {(one.queue.topic, one.queue.queue_id, n) for one in plan.rest for n in range(one.first, one.last)}
            assert missing == set() and left
            assert {place(row) for row in found} | left == {place(row) for row in expected_of(queues)}
            disk.put(gone.path, content)


def test_a_worker_without_the_folder_says_so(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_files("x", "b", ranges_of(plain(open_files(disk))), min_parts=None, max_records=None)
    monkeypatch.setattr(files_module, "open_store", open_store)
    with pytest.raises(PipelineError, match="mount the folder on every worker"):
        rows_of(plan.partitions)
