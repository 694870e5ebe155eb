"""Has a run of the tests make its temporary folders in memory, where there is room. Stores sync their files thousands
of times; on a disk this takes a third of the processor time of their tests, and tests wait for it.

    python -m pytest -p tests.memory_folder tests

A run that fails moves what its tests left to the temporary folder on the disk, and names it. Without the plugin, as in
`make test-long`, the files are on the disk; tests that need a file system of some kind mount one
(tests/mounted_disk.py).
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

import pytest

MEMORY: Final = Path("/dev/shm")
#: What a whole run may need: less than half of it for files, the rest for its processes and Spark's Java.
ROOM: Final = 8 << 30
_NAME: Final = "maxq-tests-"


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the folder of this process and of those that it starts, before anything is written."""
    if room() < ROOM:
        return
    _remove_left_ones()
    on_disk = tempfile.gettempdir()
    folder = MEMORY / f"{_NAME}{os.getpid()}"
    folder.mkdir(mode=0o700)
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    config.pluginmanager.register(_MemoryFolder(folder, on_disk))


def room() -> int:
    """Return for how many bytes of files there is room in memory; none where no file system in memory is known."""
    try:
        facts = os.statvfs(MEMORY)
        lines = Path("/proc/meminfo").read_text().splitlines()
    except FileNotFoundError:
        return 0
    kilobytes = {name: int(value.split()[0]) for name, value in (line.split(":") for line in lines)}
    return min(facts.f_bavail * facts.f_frsize, kilobytes["MemAvailable"] << 10)


class _MemoryFolder:
    """Plugin that removes the folder when the tests have ended."""

    def __init__(self, folder: Path, on_disk: str) -> None:
        self._folder = folder
        self._on_disk = on_disk
        self._kept: Path | None = None

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.testsfailed and any(self._folder.iterdir()):
            self._kept = Path(self._on_disk, self._folder.name)
            shutil.copytree(self._folder, self._kept, symlinks=True, ignore_dangling_symlinks=True, dirs_exist_ok=True)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._kept is not None:
            terminalreporter.write_line(f"what was in {self._folder} is in {self._kept} now")

    def pytest_unconfigure(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def _remove_left_ones() -> None:
    """Remove the folders of runs that were killed."""
    for folder in MEMORY.glob(f"{_NAME}*"):
        try:
            os.kill(int(folder.name.removeprefix(_NAME)), 0)
        except ProcessLookupError:
            shutil.rmtree(folder, ignore_errors=True)
        except PermissionError:  # somebody else's, and running
            pass
