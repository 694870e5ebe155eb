"""A table that changes all the time is written when it changed, and again when the disk refused."""

from pathlib import Path
from typing import Any

import pytest

from maxq.broker.persistent_manager import PeriodicManager
from maxq.runtime.system import SystemDisk


class Counts(PeriodicManager):
    def __init__(self, path: Path) -> None:
        super().__init__(SystemDisk(), path)
        self.counts: dict[str, int] = {}

    def set(self, name: str, count: int) -> None:
        self.counts = self.counts | {name: count}
        self._is_dirty = True

    def to_json(self) -> dict[str, Any]:
        return dict(self.counts)

    def from_json(self, value: dict[str, Any]) -> None:
        self.counts = value


def loaded(path: Path) -> dict[str, int]:
    table = Counts(path)
    table.load()
    return table.counts


def test_only_a_table_that_changed_is_written(tmp_path: Path) -> None:
    path = tmp_path / "counts.json"
    table = Counts(path)
    table.persist()
    assert not path.exists()
    table.set("a", 1)
    table.persist()
    assert loaded(path) == {"a": 1}
    path.unlink()
    table.persist()
    assert not path.exists()
    table.set("b", 2)
    table.persist()
    assert loaded(path) == {"a": 1, "b": 2}


def test_what_the_disk_refused_is_written_by_the_next_call(tmp_path: Path) -> None:
    folder = tmp_path / "config"
    folder.write_text("where a folder should be")
    table = Counts(folder / "counts.json")
    table.set("a", 1)
    for _ in range(2):
        with pytest.raises(OSError):
            table.persist()
    folder.unlink()
    folder.mkdir()
    table.persist()
    assert loaded(folder / "counts.json") == {"a": 1}
