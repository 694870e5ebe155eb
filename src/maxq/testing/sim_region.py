"""What a SimDisk hands out: mappings of its files, and locks."""

from typing import Protocol

from maxq.runtime.interfaces import MappedRegion
from maxq.testing.sim_file import SimFile


class RegionDisk(Protocol):
    """The part of a disk that regions and locks use; raises PowerLoss if it is dead."""

    def check_alive(self) -> None: ...

    def flush_inode(self, path: str, inode: SimFile, start: int, end: int) -> None: ...

    def write_again_inode(self, inode: SimFile, start: int, end: int) -> None: ...

    def put_bytes(self, path: str, inode: SimFile, position: int, data: memoryview) -> None: ...

    def allocate_inode(self, path: str, inode: SimFile, start: int, end: int) -> None: ...

    def unlock(self, path: str) -> None: ...


class SimMappedRegion(MappedRegion):
    """A mapping: the live bytes themselves, which every mapping of the file shares."""

    def __init__(self, disk: RegionDisk, path: str, inode: SimFile, *, read_only: bool) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        view = memoryview(inode.live)
        self._view = view.toreadonly() if read_only else view

    @property
    def view(self) -> memoryview:
        return self._view

    def flush(self, start: int, end: int) -> None:
        if start < end:
            self._disk.flush_inode(self._path, self._inode, start, end)

    def write(self, position: int, data: memoryview) -> None:
        self._disk.put_bytes(self._path, self._inode, position, data)

    def write_again(self, start: int, end: int) -> None:
        self._disk.write_again_inode(self._inode, start, end)

    def forget(self, start: int, end: int) -> None:
        self._disk.check_alive()

    def populate(self, start: int, end: int) -> None:
        self._disk.check_alive()

    def is_resident(self, start: int, end: int) -> bool:
        return True

    def allocate(self, start: int, end: int) -> None:
        self._disk.allocate_inode(self._path, self._inode, start, end)

    def close(self) -> None:
        self._view = memoryview(b"")


class SimDiskLock:
    """A lock that is held until it is released, or until the machine dies."""

    def __init__(self, disk: RegionDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.unlock(self._path)
