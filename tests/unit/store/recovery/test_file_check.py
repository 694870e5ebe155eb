"""A CommitLog file checked step by step, beside the broker that writes it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from maxq.runtime.files.system import SystemDisk, SystemMappedRegion
from maxq.store.recovery import file_check
from maxq.store.recovery.damage import DamagedRange
from maxq.store.recovery.file_check import UNREADABLE, FileCheck
from tests.unit.store.stores import message, opened, small_config

FILE = 65_536


class Log:
    """The first file of a log, closed by a BLANK, open to damage; `starts` are the positions of its records."""

    def __init__(self, root: Path) -> None:
        store = opened(small_config(root))
        self.starts: list[int] = []
        while True:
            result = store.put_message(message("T", 0, b"body-%04d" % len(self.starts) * (1 + len(self.starts) % 60)))
            if result.physical_offset >= FILE:
                break
            self.starts.append(result.physical_offset)
        store.close()
        self.region = SystemDisk().map(root / "commitlog" / f"{0:020d}", FILE)
        self.blank = FILE - next(back for back in range(8, FILE) if self._is_blank(FILE - back))

    def _is_blank(self, position: int) -> bool:
        return bytes(self.region.view[position + 4 : position + 8]) == b"\xcb\xd4\x31\x94"

    def flip(self, position: int, value: int = 0x40) -> None:
        self.region.view[position] ^= value

    def check(self, end: int = FILE) -> tuple[list[DamagedRange], FileCheck]:
        check = FileCheck(self.region, 0, end, FILE)
        found = []
        while not check.is_done:
            before = check.position
            damage = check.step()
            assert check.position > before, "a step that does nothing would be repeated for ever"
            if damage is not None:
                found.append(damage)
        return found, check


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = Log(tmp_path)
    yield log
    log.region.close()


@pytest.fixture(params=[1 << 20, 4096, 700])
def step(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Steps larger than the file, of several records, and smaller than the largest record."""
    size: int = request.param
    monkeypatch.setattr(file_check, "STEP", size)
    return size


def test_a_good_file_is_read_to_its_end(log: Log, step: int) -> None:
    found, check = log.check()
    assert (found, check.position, check.records) == ([], FILE, len(log.starts))


def test_a_growing_file_is_read_to_its_last_record(log: Log, step: int) -> None:
    end = log.starts[20]
    found, check = log.check(end)
    assert (found, check.position, check.records) == ([], end, 20)


@pytest.mark.parametrize(
    ("inside", "reason"),
    [
        (120, "CRC"),  # the body
        (5, "magic"),
        (2, "size"),
        (30, "another physical offset"),
        (85, "size"),  # length of the body
    ],
)
def test_a_flipped_bit_is_named_by_file_and_position_and_its_record_only(
    log: Log, step: int, inside: int, reason: str
) -> None:
    at = log.starts[30]
    log.flip(at + inside)
    found, check = log.check()
    assert [(damage.position, damage.size) for damage in found] == [(at, log.starts[31] - at)]
    assert reason in found[0].reason
    assert f"commitlog/{0:020d}" in str(found[0]) and f"position {at}" in str(found[0])
    assert check.records == len(log.starts) - 1


def test_neighbours_that_are_damaged_and_one_far_away_are_all_found(log: Log, step: int) -> None:
    for number in (3, 4, 90):
        log.flip(log.starts[number] + 120)
    found, _ = log.check()
    ranges = [(damage.position, damage.end_offset) for damage in found]
    assert ranges == [(log.starts[3], log.starts[5]), (log.starts[90], log.starts[91])]


def test_damage_of_the_last_record_before_the_blank_ends_there_or_with_the_file(log: Log, step: int) -> None:
    last = log.starts[-1]
    log.flip(last + 120)
    found, _ = log.check()
    assert [(damage.position, damage.end_offset) for damage in found] == [(last, log.blank)]
    log.flip(last + 5)
    found, _ = log.check()
    assert [(damage.position, damage.end_offset) for damage in found] == [(last, FILE)]


def test_a_blank_of_another_size_and_zeros_are_damage(log: Log, step: int) -> None:
    log.flip(log.blank + 3)
    found, _ = log.check()
    assert [(damage.position, damage.end_offset) for damage in found] == [(log.blank, FILE)]
    assert "BLANK" in found[0].reason
    log.flip(log.blank + 3)
    start, stop = log.starts[10], log.starts[14]
    log.region.view[start:stop] = bytes(stop - start)
    found, _ = log.check()
    assert [(damage.position, damage.end_offset) for damage in found] == [(start, stop)]
    assert "zeros" in found[0].reason


def test_damage_up_to_the_end_of_a_growing_file_ends_there(log: Log, step: int) -> None:
    end = log.starts[20]
    log.flip(log.starts[19] + 4)
    found, _ = log.check(end)
    assert [(damage.position, damage.end_offset) for damage in found] == [(log.starts[19], end)]


class BadSector:
    """A region whose device cannot read some bytes: to touch them would be SIGBUS."""

    def __init__(self, region: SystemMappedRegion, start: int, end: int) -> None:
        self._region = region
        self._start = start
        self._end = end
        self.view = region.view

    def load(self, start: int, end: int) -> None:
        if start < self._end and self._start < end:
            raise OSError(5, "input/output error")

    def __getattr__(self, name: str) -> object:
        return getattr(self._region, name)


def test_what_the_device_cannot_read_is_stepped_over(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_check, "STEP", 4096)
    check = FileCheck(BadSector(log.region, 20_000, 20_512), 0, FILE, FILE)  # type: ignore[arg-type]
    found = []
    while not check.is_done:
        try:
            damage = check.step()
        except OSError:
            damage = check.skip_unreadable()
        if damage is not None:
            found.append(damage)
    assert [damage.reason for damage in found] == [UNREADABLE]
    assert found[0].position <= 20_000 and found[0].end_offset >= 20_512 and found[0].end_offset in log.starts
    assert found[0].size < 16_384
