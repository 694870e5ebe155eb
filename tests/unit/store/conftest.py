"""What these tests have in common."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.disk_with_room import disk_with_room

__all__ = ["disk_with_room"]


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """A folder on a disk, for what a file system in memory does in another way; that of `tmp_path` may be one
    (tests/memory_folder.py)."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="maxq-tests-") as folder:
        yield Path(folder)
