"""A config file and its .bak: whichever is whole is read, and nothing is lost in silence."""

import stat
from pathlib import Path

import pytest

from maxq.errors import StoreRefusedError
from maxq.runtime.files.config_manager import ConfigManager
from maxq.runtime.files.system import SystemDisk


class Numbers(ConfigManager):
    def __init__(self, path: Path) -> None:
        super().__init__(SystemDisk(), path)
        self.values: list[int] = []

    def encode(self) -> bytes:
        return ",".join(map(str, self.values)).encode()

    def decode(self, data: bytes) -> None:
        self.values = [int(text) for text in data.split(b",")]


class Counts(Numbers):
    MAY_BE_LOST = True


def written(path: Path, *tables: list[int]) -> None:
    for values in tables:
        numbers = Numbers(path)
        numbers.values = values
        numbers.persist()


def loaded(path: Path) -> list[int]:
    numbers = Numbers(path)
    numbers.load()
    return numbers.values


def test_the_newest_content_is_read_and_the_one_before_is_the_bak(tmp_path: Path) -> None:
    written(tmp_path / "n.json", [1], [2, 3])
    assert loaded(tmp_path / "n.json") == [2, 3]
    assert (tmp_path / "n.json.bak").read_bytes() == b"1"


@pytest.mark.parametrize("content", [b"", b"\0\0\0", b"1,x", None])
def test_a_file_that_cannot_be_read_gives_way_to_its_bak_and_is_kept_aside(
    tmp_path: Path, content: bytes | None
) -> None:
    written(tmp_path / "n.json", [1], [2])
    (tmp_path / "n.json").unlink() if content is None else (tmp_path / "n.json").write_bytes(content)
    assert loaded(tmp_path / "n.json") == [1]
    assert (tmp_path / "n.json.broken").exists() == (content is not None)


def test_no_file_at_all_is_an_empty_table(tmp_path: Path) -> None:
    assert loaded(tmp_path / "n.json") == []


@pytest.mark.parametrize("file", [b"", b"\0", b"1,x", None])
@pytest.mark.parametrize("backup", [b"", b"\0", b"rubbish", None])
def test_a_table_of_which_only_what_cannot_be_read_is_there_is_refused_by_name(
    tmp_path: Path, file: bytes | None, backup: bytes | None
) -> None:
    path = tmp_path / "n.json"
    for each, content in ((path, file), (tmp_path / "n.json.bak", backup)):
        if content is not None:
            each.write_bytes(content)
    if file is backup is None:
        return
    with pytest.raises(StoreRefusedError, match=r"n\.json (is|is not) .*, and n\.json\.bak (is|is not) "):
        loaded(path)
    assert not path.with_name("n.json.broken").exists()
    assert (path.read_bytes() if path.exists() else None) == file
    may_be_lost = Counts(path)
    may_be_lost.load()
    assert may_be_lost.values == []
    may_be_lost.values = [7]
    may_be_lost.persist()
    assert loaded(path) == [7]


def test_a_table_keeps_the_permissions_that_an_operator_gave_its_file(tmp_path: Path) -> None:
    path = tmp_path / "n.json"
    written(path, [1])
    path.chmod(0o600)
    written(path, [2], [3])
    assert [stat.S_IMODE(one.stat().st_mode) for one in (path, tmp_path / "n.json.bak")] == [0o600, 0o600]
