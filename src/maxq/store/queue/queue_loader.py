"""Finds the ConsumeQueues of a store on disk: topic / queue id / files (ConsumeQueueStore.load).

Only folders are listed; no file is opened. A file of a wrong size or a gap between files makes a queue unusable: its
files are deleted and recovery builds it from the log. If every file has the same other size it is the setting that is
wrong, and the store is refused.
"""

from collections.abc import Sequence
from pathlib import PurePath

from maxq.errors import StoreRefusedError
from maxq.lazy_dataclass import dataclass
from maxq.runtime.interfaces import Disk, FileInfo
from maxq.store.context.store_context import StoreContext
from maxq.store.files.mapped_file_queue import MappedFileQueue, is_offset_name
from maxq.store.queue.consume_queue_store import BATCH_UNIT_NAME, ConsumeQueueStore


@dataclass(frozen=True, slots=True)
class QueueFault:
    """A queue whose files could not be used, and why."""

    topic: str
    queue_id: int
    text: str


@dataclass(frozen=True, slots=True)
class _Found:
    topic: str
    queue_id: int
    entries: list[FileInfo]


def load_queues(context: StoreContext, queues: ConsumeQueueStore) -> list[QueueFault]:
    """Fill the table of queues. Returns the queues whose files were deleted because they were wrong.

    Raises:
        StoreRefusedError: all files have another size than the setting says.
    """
    faults: list[QueueFault] = []
    found = _list(context.disk, context.consume_queue_folder)
    _refuse_other_size(found, queues.file_size, "mappedFileSizeConsumeQueue", context.consume_queue_folder)
    for item in found:
        queue = queues.open(item.topic, item.queue_id)
        _load(context.disk, queue.files, item, queues.file_size, faults)
    folder = context.root / BATCH_UNIT_NAME
    found = _list(context.disk, folder)
    _refuse_other_size(found, queues.batch_file_size, "mapperFileSizeBatchConsumeQueue", folder)
    for item in found:
        batch = queues.load_batch(item.topic, item.queue_id)
        _load(context.disk, batch.files, item, queues.batch_file_size, faults)
    queues.take_kinds_of_files()
    return faults


def _list(disk: Disk, folder: PurePath) -> list[_Found]:
    found: list[_Found] = []
    for topic in disk.list(folder):
        if not topic.is_dir:
            continue
        topic_folder = folder / topic.name
        for queue in disk.list(topic_folder):
            if queue.is_dir and queue.name.isascii() and queue.name.isdigit():
                entries = disk.list(topic_folder / queue.name)
                files = [entry for entry in entries if not entry.is_dir and is_offset_name(entry.name)]
                found.append(_Found(topic.name, int(queue.name), files))
    return found


def _refuse_other_size(found: Sequence[_Found], size: int, setting: str, folder: PurePath) -> None:
    sizes = {entry.size for item in found for entry in item.entries if entry.size}
    if len(sizes) == 1 and size not in sizes and sum(len(item.entries) for item in found) > 1:
        raise StoreRefusedError(
            f"all files below {folder} have {sizes.pop()} bytes, but {setting} is {size}. Set {setting} to the size "
            f"the store was written with, or delete {folder}: it is then rebuilt from the log."
        )


def _load(disk: Disk, files: MappedFileQueue, item: _Found, size: int, faults: list[QueueFault]) -> None:
    fault = _fault(item.entries, size)
    if fault is None:
        files.load(item.entries, setting="mappedFileSizeConsumeQueue")
        return
    folder = files.folder
    faults.append(QueueFault(item.topic, item.queue_id, f"{folder}: {fault}; its files were deleted"))
    for entry in item.entries:
        disk.delete(folder / entry.name)


def _fault(entries: Sequence[FileInfo], size: int) -> str | None:
    for number, entry in enumerate(entries):
        last = number == len(entries) - 1
        if entry.size != size and not (last and entry.size == 0):
            return f"file {entry.name} has {entry.size} bytes instead of {size}"
        if int(entry.name) != int(entries[0].name) + number * size or int(entry.name) % size:
            return f"file {entry.name} does not follow the one before it"
    return None
