"""Hypothesis for all unit tests: an example may take as long as a busy machine makes it take. A folder on a disk."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("no deadline", settings(), deadline=None)  # else as it was, in CI too
settings.load_profile("no deadline")


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """A folder on a disk, for what a file system in memory does in another way; that of `tmp_path` may be one
    (tests/memory_folder.py)."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="maxq-tests-") as folder:
        yield Path(folder)
