"""Brokers delete files and refuse messages when their disk fills up: how full a test machine's is must not matter."""

import os
import tempfile
from pathlib import Path, PurePath

import pytest

from maxq.runtime.files.system import SystemDisk
from maxq.runtime.interfaces import DiskUsage

_usage = SystemDisk.usage


@pytest.fixture(autouse=True)
def disk_with_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file system of the temporary folder is half full. What a test mounts tells the truth."""
    device = os.stat(tempfile.gettempdir()).st_dev

    def usage(disk: SystemDisk, path: PurePath) -> DiskUsage:
        folder = Path(path)
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        facts = _usage(disk, folder)
        if folder.stat().st_dev != device:
            return facts
        return DiskUsage(facts.total, facts.total // 2, facts.total // 2)

    monkeypatch.setattr(SystemDisk, "usage", usage)
