from itertools import pairwise
from pathlib import Path

import pytest

from maxq.runtime.files.overlay_disk import OverlayDisk
from maxq.runtime.files.system import SystemDisk
from maxq.runtime.interfaces import Disk


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(params=[64 << 20, 1], ids=["copies", "private mappings"])
def overlay(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Disk, Path]:
    lower = tmp_path / "store"
    (lower / "commitlog").mkdir(parents=True)
    (lower / "commitlog" / "0").write_bytes(b"0123456789" * 1000)
    (lower / "config").mkdir()
    (lower / "config" / "topics.json").write_bytes(b"{}")
    (lower / "abort").write_bytes(b"12")
    with open(lower / "sparse", "wb") as file:
        file.truncate(1 << 20)
        file.seek(600_000)
        file.write(b"data")
    (tmp_path / "upper").mkdir()
    return OverlayDisk(lower, tmp_path / "upper", private_from=request.param), lower


def test_everything_can_change_and_the_lower_folder_does_not(overlay: tuple[Disk, Path]) -> None:
    disk, lower = overlay
    before = snapshot(lower)
    region = disk.map(lower / "commitlog" / "0", 10_000)
    region.view[0:3] = b"abc"
    region.flush(0, 3)
    region.close()
    assert bytes(disk.map(lower / "commitlog" / "0", 10_000).view[:5]) == b"abc34"
    assert disk.read(lower / "commitlog" / "0")[:5] == b"abc34"
    assert bytes(disk.map(lower / "sparse", 1 << 20).view[600_000:600_004]) == b"data"
    disk.map(lower / "consumequeue" / "T" / "0" / "0", 2000).view[0] = 1
    disk.replace(lower / "config" / "topics.json", b"{1}")
    disk.write(lower / "new", b"n")
    disk.rename(lower / "config" / "topics.json", lower / "config" / "topics.json.bak")
    disk.delete(lower / "abort")
    assert not disk.exists(lower / "abort")
    assert not disk.exists(lower / "config" / "topics.json")
    assert disk.read(lower / "config" / "topics.json.bak") == b"{1}"
    assert [entry.name for entry in disk.list(lower)] == ["commitlog", "config", "consumequeue", "new", "sparse"]
    with pytest.raises(FileNotFoundError):
        disk.delete(lower / "abort")
    disk.delete_tree(lower / "commitlog")
    assert disk.list(lower / "commitlog") == []
    assert not disk.exists(lower / "commitlog" / "0")
    disk.map(lower / "commitlog" / "0", 50).view[0] = 7
    assert disk.read(lower / "commitlog" / "0") == b"\7" + bytes(49)
    assert snapshot(lower) == before


def test_holes_of_a_file_are_known_and_what_was_written_into_them(overlay: tuple[Disk, Path]) -> None:
    disk, lower = overlay
    if SystemDisk().map(lower / "sparse", 1 << 20).data_ranges(0, 1 << 20) == [(0, 1 << 20)]:
        pytest.skip("this file system does not tell")
    region = disk.map(lower / "sparse", 1 << 20)
    found = region.data_ranges(0, 1 << 20)
    assert all(begin <= 600_000 < end or begin > 500_000 for begin, end in found)
    region.write(100_000, memoryview(b"new"))
    assert any(begin <= 100_000 and end >= 100_003 for begin, end in region.data_ranges(0, 1 << 20))
    assert region.data_ranges(200_000, 300_000) == []
    region.write(100_002, memoryview(b"newer"))
    ranges = region.data_ranges(0, 1 << 20)
    assert all(end < begin for (_, end), (begin, _) in pairwise(ranges)), "each byte is told once"


def test_reads_and_sizes_come_from_the_lower_folder(overlay: tuple[Disk, Path]) -> None:
    disk, lower = overlay
    assert disk.read(lower / "abort") == b"12"
    assert disk.stat(lower / "commitlog" / "0").size == 10_000
    assert disk.map(lower / "commitlog" / "0", 10_000, read_only=True).view.readonly
    with pytest.raises(ValueError, match="10000 bytes, expected 5"):
        disk.map(lower / "commitlog" / "0", 5)
    assert disk.usage(lower).total > 0


def test_nothing_outside_is_written(overlay: tuple[Disk, Path], tmp_path: Path) -> None:
    disk, _ = overlay
    with pytest.raises(PermissionError, match="changes nothing there"):
        disk.write(tmp_path / "elsewhere", b"x")
    assert not (tmp_path / "elsewhere").exists()
