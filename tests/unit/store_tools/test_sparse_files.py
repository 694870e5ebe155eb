"""Files of the log are made ahead, a GiB each: tools do not look through what was never written, and what they look at
all the same costs no room."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from maxq.runtime.files.system import SystemDisk
from maxq.store.recovery.log_scanner import find_record
from tests.mounted_disk import MountedDisk, NotAllowedError
from tests.unit.store.stores import message, new_store, small_config

_SIZE = 1 << 30
_PAGE = os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def sparse_store(tmp_path: Path) -> Path:
    """A store of one message; its only file of the log is a hole nearly as a whole."""
    root = tmp_path / "store"
    store = new_store(small_config(root, mapped_file_size_commit_log=_SIZE))
    store.load()
    assert store.put_message(message(KEYS="k")).ok
    store.close()
    region = SystemDisk().map(root / "commitlog" / f"{0:020d}", _SIZE, read_only=True)
    if sum(end - start for start, end in region.data_ranges(0, _SIZE)) > _SIZE // 8:
        pytest.skip("this file system does not tell where holes are")
    region.close()
    return root


#: `maxq …`; then the most memory the process had, pages of mapped files included.
_MEASURED = """
import sys
from maxq.cli.app import run
code = run(sys.argv[1:])
print(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0], file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize("command", ["rehearse", "check", "messages"])
def test_what_was_never_written_is_not_looked_at(sparse_store: Path, command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, "store", command, str(sparse_store)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stderr.split()[-1]) * 1024 < _SIZE // 2


def test_a_record_is_found_behind_a_hole(sparse_store: Path) -> None:
    path = sparse_store / "commitlog" / f"{0:020d}"
    with open(path, "r+b") as file:
        record = file.read(int.from_bytes(file.read(4), "big") - 4)
        place = _SIZE // 2
        file.seek(place)
        moved = bytearray((len(record) + 4).to_bytes(4, "big") + record)
        moved[28:36] = place.to_bytes(8, "big")  # the physical offset it says
        file.write(moved)
    region = SystemDisk().map(path, _SIZE, read_only=True)
    assert find_record(region, 1, 0) == place
    assert find_record(region, place + 1, 0) == -1
    region.close()


@pytest.fixture
def full_disk_store(tmp_path: Path) -> Iterator[Path]:
    """A store on a full tmpfs: records up to the end of a page and a hole behind it, as Java leaves files."""
    root = tmp_path / "store"
    store = new_store(small_config(root, mapped_file_size_commit_log=128 << 20))
    store.load()
    size = store.put_message(message(body=b"-")).end_offset
    assert store.put_message(message(body=b"-" * (2 * _PAGE - 2 * size + 1))).end_offset == 2 * _PAGE
    store.close()
    disk = MountedDisk(tmp_path / "mounted", "tmpfs", 8 << 20)
    try:
        disk.mount()
    except NotAllowedError as error:
        pytest.skip(str(error))
    subprocess.run(["cp", "-r", "--sparse=always", root, disk.folder / "store"], check=True)
    disk.fill()
    yield disk.folder / "store"
    disk.unmount()


@pytest.mark.parametrize("command", ["rehearse", "check", "messages", "offsets"])
def test_holes_are_read_on_a_disk_without_room(full_disk_store: Path, command: str) -> None:
    before = used(full_disk_store)
    done = subprocess.run([sys.executable, "-m", "maxq", "store", command, str(full_disk_store)], capture_output=True)
    assert done.returncode == 0, f"{done.returncode}: {done.stdout.decode()}{done.stderr.decode()}"
    assert used(full_disk_store) == before


def used(root: Path) -> dict[Path, int]:
    """Blocks of each file."""
    return {path: path.stat().st_blocks for path in root.rglob("*")}
