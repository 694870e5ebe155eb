"""Files of tmpfs with holes: who reads takes no room, and sees what others write meanwhile."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from maxq.runtime.files.file_holes import holes_take_room
from maxq.runtime.files.overlay_disk import OverlayDisk
from maxq.runtime.files.system import SystemDisk

PAGE = os.sysconf("SC_PAGE_SIZE")
SIZE = 100 * PAGE + 10


@pytest.fixture
def sparse() -> Iterator[Path]:
    """A file of tmpfs with data in its pages 3 and 100."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = Path(folder) / "lower" / "f"
        path.parent.mkdir()
        with open(path, "wb") as file:
            file.truncate(SIZE)
            os.pwrite(file.fileno(), b"three", 3 * PAGE)
            os.pwrite(file.fileno(), b"0123456789", SIZE - 10)
            if not holes_take_room(file.fileno(), SIZE):
                pytest.skip("/dev/shm is no tmpfs")
        yield path


def blocks(path: Path) -> int:
    return path.stat().st_blocks


def test_reading_a_hole_takes_no_room(sparse: Path) -> None:
    before = blocks(sparse)
    region = SystemDisk().map(sparse, SIZE, read_only=True)
    assert bytes(region.view) == sparse.read_bytes()
    assert blocks(sparse) == before
    region.close()


def test_a_mapping_to_read_shows_what_is_written_into_holes_and_data(sparse: Path) -> None:
    region = SystemDisk().map(sparse, SIZE, read_only=True)
    view = region.view
    assert not any(view[50 * PAGE : 60 * PAGE])
    with open(sparse, "r+b") as file:
        os.pwrite(file.fileno(), b"fifty", 50 * PAGE + 7)
        os.pwrite(file.fileno(), b"more", 3 * PAGE + 5)
        assert bytes(view[3 * PAGE : 3 * PAGE + 9]) == b"threemore"
        assert bytes(region.view) == sparse.read_bytes()
        os.pwrite(file.fileno(), bytes([7]) * SIZE, 0)
    assert bytes(region.view) == bytes([7]) * SIZE
    region.close()
    assert bytes(view[-3:]) == bytes([7]) * 3, "who holds a view may read on"


def test_a_mapping_to_read_cannot_be_written(sparse: Path) -> None:
    region = SystemDisk().map(sparse, SIZE, read_only=True)
    with pytest.raises(TypeError):
        region.view[0] = 1
    region.close()


def test_a_private_mapping_keeps_what_is_written_to_holes(sparse: Path, tmp_path: Path) -> None:
    before, content = blocks(sparse), sparse.read_bytes()
    region = OverlayDisk(sparse.parent, tmp_path, private_from=1).map(sparse, SIZE)
    assert bytes(region.view) == content
    region.view[3 * PAGE : 3 * PAGE + 3] = b"THR"
    region.view[9 * PAGE : 9 * PAGE + 3] = b"new"
    assert bytes(region.view[3 * PAGE : 3 * PAGE + 5]) == b"THRee"
    assert bytes(region.view[9 * PAGE : 9 * PAGE + 3]) == b"new"
    assert sparse.read_bytes() == content and blocks(sparse) == before
    region.close()


def test_files_without_holes_are_mapped_as_they_are(sparse: Path) -> None:
    sparse.write_bytes(bytes(range(256)) * 64)
    with open(sparse, "rb") as file:
        assert not holes_take_room(file.fileno(), 256 * 64)
        assert not holes_take_room(file.fileno(), 0)
