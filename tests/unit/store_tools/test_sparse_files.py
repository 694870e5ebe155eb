"""Files of the log are made ahead, a GiB each: tools do not look through what was never written."""

import subprocess
import sys
from pathlib import Path

import pytest

from maxq.runtime.system import SystemDisk
from maxq.store.log_scanner import find_record
from maxq.store.mapped_file import data_ranges
from tests.unit.store.stores import message, new_store, small_config

_SIZE = 1 << 30


@pytest.fixture
def sparse_store(tmp_path: Path) -> Path:
    """A store of one message; its only file of the log is a hole nearly as a whole."""
    root = tmp_path / "store"
    store = new_store(small_config(root, mapped_file_size_commit_log=_SIZE))
    store.load()
    assert store.put_message(message(KEYS="k")).ok
    store.close()
    region = SystemDisk().map(root / "commitlog" / f"{0:020d}", _SIZE, read_only=True)
    if sum(end - start for start, end in data_ranges(region, 0, _SIZE)) > _SIZE // 8:
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
