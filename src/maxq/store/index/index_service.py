"""The index files of a store, oldest to newest (IndexService.java)."""

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from maxq.store.context.store_context import StoreContext
from maxq.store.files.block_reserve import BlockReserve
from maxq.store.files.page_populator import PagePopulator
from maxq.store.index.index_file import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, IndexFile, index_file_size
from maxq.store.log.tails_cy import IndexTail, jhash

log = logging.getLogger(__name__)

#: Blocks for entries are allocated so many bytes at a time.
_BLOCKS_STEP = 16 << 20
_NAME_DIGITS = 17  # yyyyMMddHHmmssSSS


def index_key(topic: str, key: str) -> str:
    """Return the text of which the index stores the hash: `topic#key`."""
    return f"{topic}#{key}"


def index_key_hash(text: str) -> int:
    """Return jhash made non-negative (IndexFile.indexKeyHashMethod)."""
    value = abs(jhash(text))
    return 0 if value == 1 << 31 else value


class IndexService:
    """Appends index entries through `tail`, rolls files and answers queries.

    Attributes:
        tail: writing end of the newest file; not attached before the first key comes.
        on_full: called with a file that has become full: it must be flushed, then its end time is the checkpoint's
            index time.
    """

    def __init__(self, context: StoreContext, on_full: Callable[[IndexFile], None], populate_ahead: int) -> None:
        self._context = context
        self._populator = PagePopulator(context.jobs.start, populate_ahead)
        self._reserve: BlockReserve | None = None  # blocks of the file that is written, behind its slots
        self.on_full = on_full
        self.tail = IndexTail()
        self.files: list[IndexFile] = []
        self.folder = context.root / "index"

    @property
    def _shape(self) -> tuple[int, int]:
        config = self._context.config
        return config.max_hash_slot_num, config.max_index_num

    def load(self, *, newest_safe_timestamp: int | None) -> list[str]:
        """List the files; untrusted ones are deleted, with all newer ones, and dispatch rebuilds them.

        Args:
            newest_safe_timestamp: after an unclean exit the checkpoint's index time: files that end later were perhaps
                not durable. None after a clean exit.

        Returns:
            The deleted files with reasons, one line each.
        """
        deleted: list[str] = []
        doomed: list[IndexFile] = []
        for entry in self._context.disk.list(self.folder):
            if entry.is_dir or not entry.name.isdigit():
                continue
            file = IndexFile(self._context.disk, self.folder / entry.name, *self._shape)
            reason = (
                "it follows a file that was deleted"
                if deleted
                else self._fault(file, entry.size, newest_safe_timestamp)
            )
            if reason is None:
                file.flushed_count = file.index_count
                self.files.append(file)
            else:
                doomed.append(file)
                deleted.append(f"index file {file.path} was deleted, to be rebuilt: {reason}")
        _delete(doomed)
        return deleted

    def _fault(self, file: IndexFile, size: int, newest_safe_timestamp: int | None) -> str | None:
        if size != index_file_size(*self._shape):
            return f"{size} bytes where {index_file_size(*self._shape)} are expected (maxHashSlotNum, maxIndexNum)"
        fault = file.fault()
        if fault is not None:
            return fault
        if newest_safe_timestamp is not None and not file.is_full:
            return "after an unclean exit only full files are known to be durable"
        if newest_safe_timestamp is not None and file.end_timestamp > newest_safe_timestamp:
            return (
                f"after an unclean exit its end time {file.end_timestamp} is above the checkpoint's "
                f"{newest_safe_timestamp}"
            )
        if not file.agrees_with_entries(exactly=newest_safe_timestamp is not None):
            return "its header does not fit its first and last entries"
        return None

    def attach_last(self) -> None:
        """Open the newest file of the index for new entries; with messageIndexEnable=false there will be none."""
        if self.files and self._context.config.message_index_enable:
            file = self.files[-1]
            self._write_within(self._reserve_of(file, file.index_count))
            self._populate(file)

    def _populate(self, file: IndexFile) -> None:
        """Populate the pages of a new file: the whole slot table at once, because slots are written anywhere, and the
        entries ahead of need, because they are written in order."""
        entries = HEADER_SIZE + SLOT_SIZE * file.slot_nums
        if self.tail.index_count <= 1:
            region = file.region
            self._context.jobs.start(lambda: region.populate(0, entries))
        self._populator.attach(file.region, entries + ENTRY_SIZE * self.tail.index_count, file.size)

    def _reserve_of(self, file: IndexFile, entries: int) -> BlockReserve:
        position = min(file.size, HEADER_SIZE + SLOT_SIZE * file.slot_nums + ENTRY_SIZE * entries)
        return BlockReserve(self._context.jobs, file.region, position, file.size, _BLOCKS_STEP, self._on_more_blocks)

    def _on_more_blocks(self, reserve: BlockReserve) -> None:
        if reserve is self._reserve:
            self._write_within(reserve)

    def _write_within(self, reserve: BlockReserve) -> None:
        """Limit the writing end to the allocated blocks of the newest file."""
        self._reserve = reserve
        file = self.files[-1]
        entries = (reserve.end - HEADER_SIZE - SLOT_SIZE * file.slot_nums) // ENTRY_SIZE
        self.tail.attach(file.view, file.slot_nums, min(entries, file.max_index_nums))

    def prepare_ahead(self) -> None:
        """Prepare pages and blocks ahead of the newest entry. Cheap when there is nothing to do."""
        if self._reserve is None:
            return
        slots = SLOT_SIZE * self._context.config.max_hash_slot_num
        position = HEADER_SIZE + slots + ENTRY_SIZE * self.tail.index_count
        self._populator.move_to(position)
        self._reserve.move_to(position)

    def roll(self) -> None:
        """Extend the newest file because an entry does not fit into its allocated blocks; begin a new file if all of
        them are allocated.

        Raises:
            OSError: there is no room on the disk; the index is as before.
        """
        reserve = self._reserve
        if reserve is not None and not reserve.is_whole:
            # Slots are written in any order, and after a crash a page of them may be a hole.
            self.files[-1].region.allocate(0, HEADER_SIZE + SLOT_SIZE * self.files[-1].slot_nums)
            reserve.more()
            self._write_within(reserve)
            return
        previous = self.files[-1] if self.files else None
        file = IndexFile(self._context.disk, self.folder / self._next_name(), *self._shape)
        reserve = self._reserve_of(file, 0)
        # before pages are populated: writing the header and the first slot must not take 16 MiB each
        file.region.touch_by_page()
        try:
            file.region.allocate(0, HEADER_SIZE + SLOT_SIZE * file.slot_nums)
            reserve.more()
        except OSError:
            file.destroy()
            raise
        if previous is None:
            file.preset(0, 0)
        else:
            header = previous.header()
            file.preset(header[1], header[3])
        self.files.append(file)
        self._write_within(reserve)
        self._populate(file)
        if previous is not None:
            self.on_full(previous)

    def _next_name(self) -> str:
        now = datetime.fromtimestamp(self._context.clock.wall_ms() / 1000)  # local time, as the names say
        name = _file_name(now)
        last = self.files[-1].name if self.files else ""
        while name <= last:
            try:
                now = max(now, datetime.strptime(last[:_NAME_DIGITS], "%Y%m%d%H%M%S%f")) + timedelta(milliseconds=1)
                name = _file_name(now)
            except ValueError:
                return str(int(last) + 1)
        return name

    def put_keys(self, topic: str, keys: list[str], physical_offset: int, store_timestamp: int) -> None:
        """Write the index entries of one record's keys, in this order."""
        for key in keys:
            self._put_key(index_key_hash(index_key(topic, key)), physical_offset, store_timestamp)

    def _put_key(self, key_hash: int, physical_offset: int, store_timestamp: int) -> None:
        if not self.tail.put_key(key_hash, physical_offset, store_timestamp):
            self.roll()
            self.tail.put_key(key_hash, physical_offset, store_timestamp)

    def put_restored_keys(self, topic: str, keys: list[str], physical_offset: int, store_timestamp: int) -> None:
        """Add a restored record's keys behind those of later records.

        The entries get the newest entry's time, for a chain of entries is read until one is older than asked for. The
        file's end offset stays: dispatch starts from it after a crash.

        Raises:
            OSError: there is no room on the disk for a file; earlier entries stay.
        """
        tail = self.tail
        for key in keys:
            reached, newest = tail.end_physical_offset, tail.end_timestamp
            self._put_key(index_key_hash(index_key(topic, key)), physical_offset, max(newest, store_timestamp))
            if reached > physical_offset:
                tail.end_physical_offset = reached
                self.files[-1].set_end_physical_offset(reached)

    def records_within(self, start: int, end: int) -> set[int]:
        """Physical offsets in [start, end) of records that are indexed."""
        return {offset for file in self.files for offset in file.records_within(start, end)}

    def trailing_entries(self, physical_offset: int) -> int:
        """Return how many of the newest entries belong to the record at `physical_offset`."""
        found = 0
        for file in reversed(self.files):
            here = file.trailing_entries(physical_offset)
            found += here
            if here < file.index_count - 1:
                break
        return found

    def query(self, text: str, max_num: int, begin: int, end: int) -> tuple[list[int], int, int]:
        """Find the physical offsets of records that have an entry with the hash of `text` and a time in [begin, end].

        Returns:
            offsets in the order found (newest file first), and the newest file's end timestamp and end offset.
        """
        found: list[int] = []
        if not self.files:
            return found, 0, 0
        newest = self.files[-1].header()
        key_hash = index_key_hash(text)
        for file in reversed(self.files):
            if file.overlaps(begin, end):
                for physical_offset in file.select(key_hash, begin, end):
                    found.append(physical_offset)
                    if len(found) >= max_num:
                        return found, newest[1], newest[3]
        return found, newest[1], newest[3]

    def delete_expired(self, min_physical_offset: int) -> list[IndexFile]:
        """Remove files that end below `min_physical_offset` from the list, never the newest; the caller deletes
        them."""
        gone: list[IndexFile] = []
        while len(self.files) > 1 and self.files[0].end_physical_offset < min_physical_offset:
            gone.append(self.files.pop(0))
        return gone

    def flush_last(self) -> None:
        """Make the newest file of the index durable. Blocks."""
        if self.files:
            self.files[-1].flush()

    def destroy(self) -> None:
        """Delete all files of the index. Blocks."""
        self._populator.attach(None, 0, 0)
        self._reserve = None
        self.tail.attach(None, *self._shape)
        self.tail.end_physical_offset = 0  # reset the guard against indexing a record twice
        _delete(self.files)
        self.files.clear()

    def release(self) -> None:
        """Unmap all files of the index, at shutdown."""
        self._populator.attach(None, 0, 0)
        self._reserve = None
        self.tail.attach(None, *self._shape)
        for file in self.files:
            file.release()


def _delete(files: Sequence[IndexFile]) -> None:
    """Delete index files, the newest first: if the disk refuses one, none is left that lacks its predecessors. An index
    is believed from its first file on."""
    for file in reversed(files):
        file.destroy()


def _file_name(moment: datetime) -> str:
    return moment.strftime("%Y%m%d%H%M%S") + f"{moment.microsecond // 1000:03d}"
