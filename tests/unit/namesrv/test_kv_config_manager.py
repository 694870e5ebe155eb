import errno
import json
from pathlib import PurePath
from typing import Any

import pytest

from maxq.errors import ConfigError
from maxq.namesrv.kv_config_manager import KVConfigManager

PATH = PurePath("kvConfig.json")


class MemoryDisk:
    """The two methods that are used; `full` makes writing fail."""

    def __init__(self, data: bytes | None = None) -> None:
        self.data = data
        self.full = False

    def read(self, path: PurePath) -> bytes:
        assert path == PATH
        if self.data is None:
            raise FileNotFoundError(path)
        return self.data

    def replace(self, path: PurePath, data: bytes) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "no space left")
        self.data = data


def manager(disk: Any, path: PurePath | None = PATH) -> KVConfigManager:
    made = KVConfigManager(disk, path)
    made.load()
    return made


@pytest.mark.parametrize(
    "data",
    [
        b'{"configTable":{"NS":{"k":"v"}}}',
        b'{\n\t"configTable":{\n\t\t"NS":{\n\t\t\t"k":"v"\n\t\t}\n\t}\n}',
        b"{configTable:{'NS':{k:'v',},},}",
    ],
)
def test_files_that_java_writes_are_read(data: bytes) -> None:
    table = manager(MemoryDisk(data))
    assert table.get("NS", "k") == "v"
    assert table.namespace("NS") == {"k": "v"}


@pytest.mark.parametrize("data", [None, b"", b"{}", b"null"])
def test_a_missing_or_empty_file_is_an_empty_table(data: bytes | None) -> None:
    table = manager(MemoryDisk(data))
    assert table.get("NS", "k") is None
    assert table.namespace("NS") is None


@pytest.mark.parametrize("data", [b"[]", b"{", b'{"configTable":1}', b"\xff\xfe", b'{"configTable":{"NS":["k"]}}'])
def test_a_file_that_is_something_else_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(ConfigError, match=r"kvConfig\.json is not a key-value table.*repair it, or move it away"):
        manager(MemoryDisk(data))


async def test_a_change_is_on_disk_and_is_read_back() -> None:
    disk = MemoryDisk()
    table = manager(disk)
    await table.put("NS", "k", "v")
    await table.put("NS", "k2", "v2")
    await table.delete("NS", "k")
    assert disk.data is not None
    assert json.loads(disk.data) == {"configTable": {"NS": {"k2": "v2"}}}
    assert manager(disk).namespace("NS") == {"k2": "v2"}


async def test_a_namespace_that_became_empty_is_still_there_as_in_java() -> None:
    table = manager(MemoryDisk())
    await table.put("NS", "k", "v")
    await table.delete("NS", "k")
    assert table.namespace("NS") == {}


async def test_deleting_what_is_not_there_writes_nothing() -> None:
    disk = MemoryDisk()
    await manager(disk).delete("NS", "k")
    assert disk.data is None


async def test_a_change_that_cannot_be_written_is_not_made() -> None:
    disk = MemoryDisk()
    table = manager(disk)
    await table.put("NS", "k", "old")
    disk.full = True
    with pytest.raises(OSError, match="no space left"):
        await table.put("NS", "k", "new")
    with pytest.raises(OSError, match="no space left"):
        await table.delete("NS", "k")
    assert table.get("NS", "k") == "old"
    disk.full = False
    await table.put("NS", "k", "newest")
    assert table.get("NS", "k") == "newest"


async def test_without_a_path_the_table_lives_in_memory() -> None:
    disk = MemoryDisk()
    table = manager(disk, None)
    await table.put("NS", "k", "v")
    assert (table.get("NS", "k"), disk.data) == ("v", None)
