"""Pages brought into memory before they are read."""

from pathlib import Path

from maxq.runtime.files.system import SystemDisk

SIZE = 1 << 20


def test_load_takes_any_range_and_changes_nothing(tmp_path: Path) -> None:
    region = SystemDisk().map(tmp_path / "file", SIZE)
    region.view[5000:5005] = b"hello"
    for start, end in ((0, SIZE), (4999, 5001), (SIZE - 1, SIZE + 4096), (SIZE, SIZE), (7, 7)):
        region.load(start, end)
    assert bytes(region.view[5000:5005]) == b"hello" and not any(region.view[6000:])
    region.close()
    region.load(0, SIZE)  # closed meanwhile: whoever holds the bytes still may read them


def test_load_leaves_a_read_only_mapping_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(8192))
    region = SystemDisk().map(tmp_path / "file", 8192, read_only=True)
    region.load(0, 8192)
    assert not any(region.view)
    region.close()
