"""A part of a file that leaves memory is read from the device again, the same."""

import ctypes
import os
from pathlib import Path
from typing import Any

import pytest

from maxq.runtime.files import system
from maxq.runtime.files.system import SystemDisk

SIZE, STEP = 16 << 20, 8 << 20


def test_what_was_forgotten_is_as_it_was(disk_path: Path) -> None:
    region = SystemDisk().map(disk_path / "file", SIZE)
    data = os.urandom(SIZE)
    region.write(0, memoryview(data))
    assert bytes(region.view[100_000:100_010]) == data[100_000:100_010]  # mapped, too
    region.flush(0, SIZE)
    region.forget(0, STEP)
    assert not region.is_resident(STEP // 4, STEP // 2), "large pages of the cache stay at the border alone"
    assert region.is_resident(SIZE - 4096, SIZE), "what is not of the range stays"
    assert bytes(region.view) == data
    region.close()


def test_nothing_is_forgotten_of_less_than_a_page(tmp_path: Path) -> None:
    region = SystemDisk().map(tmp_path / "file", SIZE)
    region.write(0, memoryview(bytes(8192)))
    region.flush(0, 8192)
    region.forget(100, 4000)
    assert region.is_resident(0, 8192)
    region.close()


@pytest.mark.parametrize("call", ["forget", "populate", "load"])
def test_a_mapping_stays_while_the_kernel_is_advised_of_it(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread closes the file meanwhile. Addresses that were given away may be the heap's by then, and to have
    them forgotten would end the process."""
    region = SystemDisk().map(tmp_path / "file", SIZE)
    mapping: Any = region._map
    seen = []

    class Libc:
        @staticmethod
        def madvise(address: Any, size: ctypes.c_size_t, advice: int) -> int:
            region.close()  # in the time in which the interpreter is free
            seen.append(mapping.closed)
            return 0

    monkeypatch.setattr(system, "_libc", Libc)
    monkeypatch.setattr(system.os, "posix_fadvise", lambda *_: None)
    getattr(region, call)(0, SIZE)
    assert seen == [False]
