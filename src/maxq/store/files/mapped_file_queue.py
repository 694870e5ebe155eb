"""A run of equally sized files that together are one long byte sequence (MappedFileQueue.java)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePath

from maxq.errors import StoreRefusedError
from maxq.runtime.interfaces import Disk, FileInfo, MappedRegion
from maxq.store.files.mapped_file import MappedFile, offset_to_file_name


class MappedFileQueue:
    """Files sorted by start offset, without gaps between neighbours.

    Offsets are logical bytes: of the CommitLog its physical offsets, of a ConsumeQueue 20 × queue offset.
    """

    __slots__ = ("_base", "_disk", "_name", "file_size", "files")

    def __init__(self, disk: Disk, base: PurePath, name: str, file_size: int) -> None:
        """The files lie in folder `name` (empty: none) below `base`."""
        self._disk = disk
        self._base = base
        self._name = name
        self.file_size = file_size
        self.files: list[MappedFile] = []

    @property
    def folder(self) -> PurePath:
        return self._base / self._name if self._name else self._base

    def path_of(self, name: str) -> PurePath:
        """Returns the path of a file in the folder."""
        return self._base / (f"{self._name}/{name}" if self._name else name)

    def load(self, entries: Sequence[FileInfo], *, setting: str) -> None:
        """Adopt the files of the folder; their write positions are the file size until recovery corrects them.

        Args:
            entries: directory listing, sorted by name.
            setting: name of the setting that fixes the file size, for the refusal.

        Raises:
            StoreRefusedError: a file has another size, or the files have a gap between them.
        """
        found = [entry for entry in entries if not entry.is_dir and is_offset_name(entry.name)]
        if found and found[-1].size == 0:
            self._disk.delete(self.folder / found.pop().name)
        for entry in found:
            if entry.size != self.file_size:
                remedy = f"Set {setting} to the size the store was written with, or restore the file from a copy."
                if not entry.size:  # no setting of the file size explains an empty file
                    remedy = "Restore it from a copy; to give up what it held, move it and all later files away."
                raise StoreRefusedError(
                    f"{self.folder / entry.name} has {entry.size} bytes, but {setting} is {self.file_size}. {remedy}"
                )
            self._append_loaded(int(entry.name))

    def _append_loaded(self, offset: int) -> None:
        if self.files and offset != self.files[-1].end_offset:
            raise StoreRefusedError(
                f"{self.folder} has no file {offset_to_file_name(self.files[-1].end_offset)}: after "
                f"{offset_to_file_name(self.files[-1].file_from_offset)} comes {offset_to_file_name(offset)}. "
                "Restore the missing file from a copy, or move away the files on one side of the gap."
            )
        self.files.append(MappedFile(self._disk, self, offset, self.file_size, position=self.file_size))

    @property
    def first(self) -> MappedFile | None:
        return self.files[0] if self.files else None

    @property
    def last(self) -> MappedFile | None:
        return self.files[-1] if self.files else None

    @property
    def min_offset(self) -> int:
        """Start of the first file; 0 without files."""
        return self.files[0].file_from_offset if self.files else 0

    def find(self, offset: int) -> MappedFile | None:
        """The file that holds `offset`; None outside."""
        files = self.files
        if not files:
            return None
        index = (offset - files[0].file_from_offset) // self.file_size
        return files[index] if 0 <= index < len(files) else None

    def create(self, offset: int, region: MappedRegion | None = None) -> MappedFile:
        """Append the file that starts at `offset` (existing or new); `region` if it is mapped already."""
        assert not self.files or offset == self.files[-1].end_offset, "files must follow each other"
        file = MappedFile(self._disk, self, offset, self.file_size, region=region)
        self.files.append(file)
        return file

    def truncate(self, offset: int) -> list[MappedFile]:
        """Cut the sequence at `offset` and delete the files behind it. Returns the deleted ones. Blocks."""
        gone: list[MappedFile] = []
        while self.files and self.files[-1].file_from_offset >= offset:
            file = self.files.pop()
            file.destroy()
            gone.append(file)
        last = self.last
        if last is not None and last.end_offset > offset:
            last.wrote_position = last.flushed_position = offset - last.file_from_offset
        return gone

    @contextmanager
    def without_first(self) -> Iterator[MappedFile]:
        """Remove the first file from the sequence while the block deletes it. If the deletion fails, it is the first
        again: `load` refuses files with a gap."""
        first = self.take_first()
        try:
            yield first
        except OSError:
            if self._disk.exists(first.path):
                self.files.insert(0, first)
            raise

    def take_first(self) -> MappedFile:
        """Forget the first file; the caller destroys it."""
        return self.files.pop(0)

    def release(self) -> None:
        """Unmap all files of the sequence."""
        for file in self.files:
            file.release()

    def destroy(self) -> None:
        """Delete all files of the sequence. Blocks."""
        for file in self.files:
            file.destroy()
        self.files.clear()


def is_offset_name(name: str) -> bool:
    """Returns whether this is the name of a file of a queue (20 digits)."""
    return len(name) == 20 and name.isascii() and name.isdigit()
