"""Stores that are filled, damaged and opened again."""

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

from maxq.store.message_store import MessageStore
from maxq.store.recovery.recovery_report import RecoveryReport
from tests.unit.store import naive
from tests.unit.store.stores import TestClock, message, new_store, opened, small_config

Damage = Callable[[Path], None]


def fill(root: Path, count: int = 400, *, clean: bool = True, start: int = 0) -> list[int]:
    """Store messages over several files and queues; returns their physical offsets."""
    clock = TestClock()
    store = opened(small_config(root), clock)
    offsets = []
    for number in range(start, start + count):
        clock.now_ms += 7
        body = b"body %d " % number + b"." * (number * 37 % 900)
        tags = {"TAGS": f"Tag{number % 3}"} if number % 4 else {}
        result = store.put_message(
            message(f"T{number % 2}", number % 3, body, KEYS=f"k{number} g{number % 5}", UNIQ_KEY=f"U{number}", **tags)
        )
        assert result.ok, result.remark
        offsets.append(result.physical_offset)
    close(store, clean=clean)
    return offsets


def close(store: MessageStore, *, clean: bool = True) -> None:
    """Shut down, or let go as a killed process does: what is in the page cache stays, nothing more is written."""
    if clean:
        store.close()
    else:
        store._life.lock.release()


def reopened(root: Path) -> tuple[MessageStore, RecoveryReport]:
    store = new_store(small_config(root))
    return store, store.load()


def assert_whole(root: Path) -> None:
    """After a clean close: queues and index on disk are what a fresh look at the log gives."""
    records, _ = naive.java_reads(root)
    assert naive.queues_on_disk(root) == naive.queues_of(records)
    assert naive.index_on_disk(root) == naive.index_files_of(records, 100, 200)


def snapshot(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def last_file(root: Path) -> Path:
    return next(path for path in reversed(naive.files(root / "commitlog")) if any(path.read_bytes()[:8]))


def overwrite(root: Path, physical_offset: int, data: bytes) -> None:
    size = 65_536
    path = root / "commitlog" / f"{physical_offset - physical_offset % size:020d}"
    with path.open("r+b") as file:
        file.seek(physical_offset % size)
        file.write(data)


def got(store: MessageStore, topic: str, queue_id: int) -> list[int]:
    """Physical offsets of everything a consumer of the queue gets."""
    found: list[int] = []
    offset = 0
    while offset < store.max_offset(topic, queue_id):
        result = store.get_message("g", topic, queue_id, offset, 32, None)
        assert result.next_begin_offset > offset
        for buffer in result.buffers:
            position = 0
            while position < len(buffer):
                found.append(struct.unpack_from(">q", buffer, position + 28)[0])
                position += struct.unpack_from(">i", buffer, position)[0]
        offset = result.next_begin_offset
    return found


def delete_queues(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")


def delete_index(root: Path) -> None:
    shutil.rmtree(root / "index")


def delete_checkpoint(root: Path) -> None:
    (root / "checkpoint").unlink(missing_ok=True)


def delete_inventory(root: Path) -> None:
    (root / "inventory.json").unlink(missing_ok=True)


def everything_but_the_log(root: Path) -> None:
    delete_queues(root)
    delete_index(root)
    delete_checkpoint(root)
    delete_inventory(root)
