"""Wheel, log and checkpoint: Java's bytes, and what is left of them after accidents."""

import struct
import tempfile
from array import array
from dataclasses import replace
from pathlib import Path, PurePath

import pytest

from maxq.config.message_store_config import MessageStoreConfig
from maxq.errors import StoreRefusedError
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.body.timer_checkpoint import TimerCheckpoint
from maxq.protocol.message.java_hash import java_hash
from maxq.runtime.files.file_holes import holes_take_room
from maxq.runtime.files.system import SystemDisk
from maxq.store.timer import timer_wheel
from maxq.store.timer.roll_window import precision_of, roll_window_ms
from maxq.store.timer.timer_checkpoint_file import TimerCheckpointFile
from maxq.store.timer.timer_log import MAGIC_DEFAULT, MAGIC_MOVED, TimerLog, TimerUnit
from maxq.store.timer.timer_recovery import TimerRecovery
from maxq.store.timer.timer_wheel import EMPTY, SLOTS, WHEEL_SIZE, Slot, TimerWheel
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import PowerLoss, SimDisk
from maxq.testing.sim_rng import SimRng

NOW = 1_700_000_000_000


def unit(due_ms: int, physical_offset: int, previous: int = -1, size: int = 300) -> TimerUnit:
    return TimerUnit(0, previous, MAGIC_DEFAULT, NOW, due_ms - NOW, physical_offset, size, java_hash("TopicTest"))


def written(wheel: TimerWheel) -> None:
    pages = wheel.freeze()
    wheel.write(pages)
    wheel.thaw(written=True)


def test_a_slot_has_javas_bytes(tmp_path: Path) -> None:
    wheel = TimerWheel(SystemDisk(), PurePath(tmp_path / "timerwheel"), 1000)
    wheel.put(Slot(1_700_000_060_000, 520, 572, 2))
    written(wheel)
    data = (tmp_path / "timerwheel").read_bytes()
    assert len(data) == WHEEL_SIZE == 38_707_200
    at = 1_700_000_060 % SLOTS * 32
    assert data[at : at + 32].hex() == "000000006553f13c0000000000000208000000000000023c0000000200000000"


def test_who_looks_for_what_is_due_takes_no_room_of_a_tmpfs() -> None:
    """Where there is none the broker would die of it: most of the wheel are holes."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = Path(folder) / "timerwheel"
        wheel = TimerWheel(SystemDisk(), path, 1000)
        with open(path, "rb") as file:
            if not holes_take_room(file.fileno(), WHEEL_SIZE):
                pytest.skip("/dev/shm is no tmpfs")
        far = NOW + 500_000_000
        wheel.put(Slot(far, 520, 572, 2))
        written(wheel)
        before = path.stat().st_blocks
        assert all(wheel.get(NOW + ms) == EMPTY for ms in range(0, 400_000_000, 100_000))
        assert wheel.next_time(NOW)[0] > NOW
        found = None
        while found is None:
            found = wheel.earliest(NOW, 100_000)
        assert found == far and wheel.get(far).num == 2
        wheel.put(Slot(NOW, 5, 5, 1))
        wheel.clear(NOW + 90_000_000)
        assert wheel.get(NOW).num == 1
        assert path.stat().st_blocks == before
        written(wheel)
        assert path.stat().st_blocks <= before + 2 * 8
        assert (wheel.get(NOW).num, wheel.get(far).num) == (1, 2)
        wheel.release()


def test_a_unit_has_javas_bytes(tmp_path: Path) -> None:
    log = TimerLog(SystemDisk(), PurePath(tmp_path), 5200)
    log.load()
    assert log.append(unit(NOW + 60_000, 2000)) == 0
    data = (tmp_path / "timerlog" / f"{0:020}").read_bytes()[:52]
    assert data.hex() == (
        "00000034ffffffffffffffff000000010000018bcfe568000000ea6000000000000007d00000012c8e9876410000000000000000"
    )


def test_files_of_the_log_end_with_javas_blank_and_go_on(tmp_path: Path) -> None:
    log = TimerLog(SystemDisk(), PurePath(tmp_path), 200)
    log.load()
    positions = [log.append(unit(NOW + 1000, 100 + number)) for number in range(7)]
    assert positions == [0, 52, 104, 200, 252, 304, 400]
    assert (tmp_path / "timerlog" / f"{0:020}").read_bytes()[156:172] == struct.pack(">iqI", 44, 0, 0xCBD43194)
    again = TimerLog(SystemDisk(), PurePath(tmp_path), 200)
    again.load()
    assert [found.physical_offset for found in again.recover(0, 1 << 40)] == list(range(100, 107))
    assert again.append(unit(NOW, 1)) == 452


def test_a_file_of_the_log_stays_as_long_as_one_of_its_messages_has_a_record(tmp_path: Path) -> None:
    """A message that could not be delivered for days is put behind much younger ones."""
    log = TimerLog(SystemDisk(), PurePath(tmp_path), 200)
    log.load()
    for offset in (5_000, 9_000, 100, 12_000):
        log.append(unit(NOW + 1000, offset))
    log.flush(log.max_offset)
    assert not log.has_expired(101)
    assert not log.has_expired(9_000)
    assert log.has_expired(9_001)


def test_units_of_records_are_found_in_front_of_a_file_that_begins_with_an_older_message_which_was_moved(
    tmp_path: Path,
) -> None:
    """A new master would read these messages once more, and deliver them twice."""
    log = TimerLog(SystemDisk(), PurePath(tmp_path), 200)
    log.load()
    for offset in (5_000, 6_000, 7_000):
        log.append(unit(NOW + 1000, offset))
    log.append(unit(NOW + 1000, 100)._replace(magic=MAGIC_DEFAULT | MAGIC_MOVED))
    log.append(unit(NOW + 1000, 8_000))
    assert sorted(one.physical_offset for one in log.units_of_records(6_000)) == [6_000, 7_000, 8_000]


def test_units_whose_records_the_log_lost_count_for_nothing(tmp_path: Path) -> None:
    log = TimerLog(SystemDisk(), PurePath(tmp_path), 5200)
    log.load()
    for offset in (0, 300, 600):
        log.append(unit(NOW, offset))
    again = TimerLog(SystemDisk(), PurePath(tmp_path), 5200)
    again.load()
    assert len(again.recover(0, 600)) == 2
    assert again.max_offset == 104
    assert not any((tmp_path / "timerlog" / f"{0:020}").read_bytes()[104:])


def test_a_wheel_of_another_length_is_refused(tmp_path: Path) -> None:
    (tmp_path / "timerwheel").write_bytes(bytes(100))
    with pytest.raises(StoreRefusedError, match="38707200"):
        TimerWheel(SystemDisk(), PurePath(tmp_path / "timerwheel"), 1000)


def test_an_unwritten_wheel_shows_its_changes_and_keeps_the_file_as_it_was(tmp_path: Path) -> None:
    wheel = TimerWheel(SystemDisk(), PurePath(tmp_path / "timerwheel"), 1000)
    wheel.put(Slot(NOW, 0, 0, 1))
    pages = wheel.freeze()
    wheel.put(Slot(NOW + 1000, 52, 52, 1))
    assert (wheel.get(NOW).num, wheel.get(NOW + 1000).num) == (1, 1)
    assert not any((tmp_path / "timerwheel").read_bytes())
    wheel.write(pages)
    wheel.thaw(written=True)
    other = TimerWheel(SystemDisk(), PurePath(tmp_path / "timerwheel"), 1000)
    assert (other.get(NOW).num, other.get(NOW + 1000)) == (1, EMPTY)


def test_the_next_lap_is_another_slot(tmp_path: Path) -> None:
    wheel = TimerWheel(SystemDisk(), PurePath(tmp_path / "timerwheel"), 1000)
    wheel.put(Slot(NOW, 0, 0, 1))
    assert wheel.get(NOW + SLOTS * 1000) is EMPTY
    assert wheel.slot_index(NOW + SLOTS * 1000) == wheel.slot_index(NOW)


def test_slots_with_holes_of_the_file_between_them_are_told_once(tmp_path: Path) -> None:
    wheel = TimerWheel(SystemDisk(), PurePath(tmp_path / "timerwheel"), 1000)
    due = [NOW + at * 1000 for at in (0, 1, 500, 5_000, 100_000)]  # some in one page, others within a MiB
    for time_ms in due:
        wheel.put(Slot(time_ms, 0, 0, 1))
    written(wheel)
    assert sorted(slot.time_ms for _, slot in wheel.taken(NOW)) == due


def test_weeks_without_messages_are_passed_over_and_no_slot_is(tmp_path: Path) -> None:
    wheel = TimerWheel(SystemDisk(), PurePath(tmp_path / "timerwheel"), 1000)
    chance = SimRng(3)
    weeks = SLOTS * 1000 * 9 // 10
    due = sorted({NOW + chance.below(weeks // 1000) * 1000 for _ in range(300)} | {NOW, NOW + weeks - 1000})
    for number, time_ms in enumerate(due):
        wheel.put(Slot(time_ms, 0, 0, 1))
        if number == 100:
            written(wheel)
        if number == 200:
            wheel.freeze()  # on its way into the file
    found, steps, time_ms = [], 0, NOW
    while time_ms < NOW + weeks:
        if wheel.get(time_ms) is not EMPTY:
            found.append(time_ms)
        following, taken = wheel.next_time(time_ms)
        assert following - time_ms <= 16 * 128_000  # not the whole file at once: that takes the loop's time
        time_ms, steps = following, steps + taken
    assert found == due
    assert steps < weeks // 1000 // 8


def test_the_search_behind_a_standstill_reads_a_part_of_the_wheel_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = TimerWheel(SystemDisk(), PurePath(tmp_path / "timerwheel"), 1000)
    for index in range(0, SLOTS, 128):  # what a Java broker has delivered fills the pages
        wheel.put(Slot(NOW - (SLOTS - index) * 1000, 0, 0, 1))
    first, between = NOW + 1_000_000_000, NOW + 999_000_000
    wheel.put(Slot(first, 0, 0, 1))
    written(wheel)
    parsed: list[int] = []

    def counting(kind: str, data: bytes) -> "array[int]":
        parsed.append(len(data))
        return array(kind, data)

    monkeypatch.setattr(timer_wheel, "array", counting)
    found, reads = None, 0
    while found is None:
        parsed.clear()
        found = wheel.earliest(NOW, 20_000)
        reads += 1
        assert sum(parsed) <= 700_000  # 20,000 slots and the rest of a page
    assert found == first
    assert reads >= SLOTS // 20_000
    assert not wheel.is_searched(NOW)
    assert wheel.earliest(NOW, 20_000) is None
    wheel.put(Slot(between, 0, 0, 1))  # while it is searched, in a page that was looked at or was not
    while (found := wheel.earliest(NOW, 20_000)) is None:
        pass
    assert found == between


def test_the_checkpoint_has_javas_56_bytes_and_own_ones_that_java_makes_void(tmp_path: Path) -> None:
    path = tmp_path / "timercheck"
    file = TimerCheckpointFile(SystemDisk(), PurePath(path))
    file.load()
    assert file.is_new and file.dedupe_position is None
    values = TimerCheckpoint(1, 2, 3, 4, DataVersion(7, 5, 6))
    file.save(values, 4711, 1000)
    data = path.read_bytes()
    assert len(data) == 4096
    assert struct.unpack(">7q", data[:56]) == (1, 2, 3, 4, 5, 6, 7)
    again = TimerCheckpointFile(SystemDisk(), PurePath(path))
    again.load()
    assert (again.checkpoint, again.dedupe_position, again.precision_ms) == (values, 4711, 1000)
    path.write_bytes(struct.pack(">q", 9) + data[8:])
    again.load()
    assert (again.checkpoint.last_read_time_ms, again.dedupe_position) == (9, None)


class Files:
    """The three files of one timer, filled and recovered."""

    def __init__(self, folder: Path, precision_ms: int = 1000) -> None:
        self.folder = folder
        self.log = TimerLog(SystemDisk(), PurePath(folder), 5200)
        self.file = TimerCheckpointFile(SystemDisk(), PurePath(folder / "config" / "timercheck"))
        self._precision_ms = precision_ms

    def recover(self, log_end: int = 1 << 40) -> TimerWheel:
        path = PurePath(self.folder / "timerwheel")
        recovery = TimerRecovery(SystemDisk(), path, self.log, self.file, self._precision_ms, log_end)
        self.found = recovery.run()
        return self.found.wheel

    def save(self, wheel: TimerWheel, flushed: int, read_ms: int = NOW) -> None:
        written(wheel)
        self.file.save(TimerCheckpoint(read_ms, flushed, 0, 0, DataVersion()), 0, self._precision_ms)


def test_units_behind_the_checkpoint_are_put_into_the_wheel_once(tmp_path: Path) -> None:
    files = Files(tmp_path)
    wheel = files.recover()
    for number in range(5):
        files.log.append(unit(NOW + 5000, number, previous=52 * number - 52))
    wheel.put(Slot(NOW + 5000, 0, 156, 4))  # all but the last are in the wheel, the checkpoint knows of two
    files.save(wheel, 104)
    again = Files(tmp_path)
    wheel = again.recover()
    assert wheel.get(NOW + 5000) == Slot(NOW + 5000, 0, 208, 5)
    assert (again.found.pending, again.found.earliest_ms) == (5, NOW + 5000)
    assert again.found.enqueued == {2, 3, 4}


def test_what_came_after_the_checkpoint_and_is_due_before_its_read_time_waits_and_what_was_delivered_does_not(
    tmp_path: Path,
) -> None:
    files = Files(tmp_path)
    wheel = files.recover()
    for number, due in enumerate((NOW + 1000, NOW + 3000, NOW + 9000)):
        files.log.append(unit(due, number))
    wheel.put(Slot(NOW + 3000, 52, 52, 1))  # as Java leaves it: delivered, and not cleared
    files.save(wheel, files.log.max_offset, NOW + 8000)
    files.log.append(unit(NOW + 2000, 3))  # the clock was set back
    again = Files(tmp_path)
    wheel = again.recover()
    found = again.found
    assert (found.read_time_ms, found.earliest_ms) == (NOW + 2000, NOW + 2000)
    assert (found.pending, wheel.get(NOW + 2000)) == (1, Slot(NOW + 2000, 156, 156, 1))
    assert found.is_over(NOW + 3000, 52) and not found.is_over(NOW + 2000, 156) and not found.is_over(NOW + 9000, 104)


def test_without_its_wheel_a_timer_has_everything_from_the_log(tmp_path: Path) -> None:
    files = Files(tmp_path)
    wheel = files.recover()
    for number in range(150):
        files.log.append(unit(NOW + number * 1000, number))
    files.save(wheel, files.log.max_offset, NOW + 50_000)
    (tmp_path / "timerwheel").unlink()
    again = Files(tmp_path)
    again.recover()
    assert again.found.pending == 100


def test_slots_that_point_behind_the_log_are_taken_from_it(tmp_path: Path) -> None:
    files = Files(tmp_path)
    wheel = files.recover()
    for number in range(3):
        files.log.append(unit(NOW + 1000, number, previous=52 * number - 52))
    wheel.put(Slot(NOW + 1000, 0, 5_000, 90))
    wheel.put(Slot(NOW + 2000, 4_000, 5_000, 9))
    files.save(wheel, 156)
    again = Files(tmp_path)
    wheel = again.recover()
    assert wheel.get(NOW + 1000) == Slot(NOW + 1000, 0, 104, 3)
    assert wheel.get(NOW + 2000) is EMPTY


def test_javas_newest_snapshot_takes_the_wheels_place(tmp_path: Path) -> None:
    files = Files(tmp_path)
    wheel = files.recover()
    for number in range(4):
        files.log.append(unit(NOW + 1000, number, previous=52 * number - 52))
    files.save(wheel, 0)
    snapshot = TimerWheel(SystemDisk(), PurePath(tmp_path / "timerwheel.156"), 1000)
    snapshot.put(Slot(NOW + 1000, 0, 104, 3))
    written(snapshot)
    (tmp_path / "timerwheel.52").write_bytes(b"older")
    again = Files(tmp_path)
    assert again.recover().get(NOW + 1000) == Slot(NOW + 1000, 0, 156, 4)
    assert sorted(path.name for path in tmp_path.glob("timerwheel*")) == ["timerwheel"]


@pytest.mark.parametrize("told", [True, False])
def test_a_wheel_has_the_precision_that_it_was_made_with(tmp_path: Path, told: bool) -> None:
    """A Java broker's checkpoint does not say which that was."""
    files = Files(tmp_path, 1000)
    wheel = files.recover()
    files.log.append(unit(NOW + 5000, 1))
    wheel.put(Slot(NOW + 5000, 0, 0, 1))
    files.save(wheel, 52)
    if not told:
        path = tmp_path / "config" / "timercheck"
        path.write_bytes(path.read_bytes()[:56])
    again = Files(tmp_path, 100)
    assert again.recover().precision_ms == 1000
    assert (again.found.pending, again.found.earliest_ms) == (1, NOW + 5000)


@pytest.mark.parametrize(("given", "precision"), [(100, 100), (150, 100), (499, 200), (999, 500), (5000, 1000)])
def test_the_precision_is_taken_down(given: int, precision: int) -> None:
    assert precision_of(replace(MessageStoreConfig(), timer_precision_ms=given)) == precision


@pytest.mark.parametrize(("hours", "slots", "window_s"), [(72, 172_800, 172_800), (24, 172_800, 57_600), (72, 60, 60)])
def test_a_message_goes_round_before_its_record_is_cleaned_away(hours: int, slots: int, window_s: int) -> None:
    config = replace(MessageStoreConfig(), file_reserved_time=hours, timer_roll_window_slot=slots)
    assert roll_window_ms(config) == window_s * 1000


ROOT = PurePath("/store")


def timer_log_on(disk: SimDisk) -> TimerLog:
    log = TimerLog(disk, ROOT, 200)
    log.load()
    return log


def test_units_that_a_killed_broker_left_are_durable_after_the_next_start() -> None:
    """It counts on them: the next checkpoint says that they are read."""
    for seed in range(20):
        disk = SimDisk(SimRng(seed), SimClock(), write_back=0.0, kill_keeps_cache=True)
        log = timer_log_on(disk)
        for number in range(7):
            log.append(unit(NOW + 1000, 100 + number))
        disk = disk.boot()
        assert len(timer_log_on(disk).recover(0, 1 << 40)) == 7
        disk.cut_power()
        assert len(timer_log_on(disk.boot()).recover(0, 1 << 40)) == 7


def test_slots_that_a_killed_broker_left_are_durable_after_the_next_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timer_wheel, "SLOTS", 2_000)  # the simulated disk looks at every page
    monkeypatch.setattr(timer_wheel, "WHEEL_SIZE", 2_000 * timer_wheel.SLOT_SIZE)
    path = ROOT / "timerwheel"
    for seed in range(20):
        disk = SimDisk(SimRng(seed), SimClock(), write_back=0.0, kill_keeps_cache=True)
        wheel = TimerWheel(disk, path, 1000)
        written(wheel)
        wheel.put(Slot(NOW, 0, 52, 1))
        disk.cut_power_after(0, process_only=True)  # it is in the file, and not flushed
        with pytest.raises(PowerLoss):
            written(wheel)
        disk = disk.boot()
        assert TimerWheel(disk, path, 1000).get(NOW).num == 1
        disk.cut_power()
        assert TimerWheel(disk.boot(), path, 1000).get(NOW).num == 1


def test_units_that_a_failed_sync_covered_are_durable_after_the_next_sync() -> None:
    disk = SimDisk(SimRng(1), SimClock(), write_back=0.0)
    log = timer_log_on(disk)
    log.append(unit(NOW + 1000, 100))
    disk.fail_flush("*/timerlog/*")
    with pytest.raises(OSError, match="Input/output error"):
        log.flush(52)
    log.flush(52)
    disk.cut_power()
    assert [found.physical_offset for found in timer_log_on(disk.boot()).recover(0, 1 << 40)] == [100]


def test_slots_that_a_failed_sync_covered_are_durable_after_the_next_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timer_wheel, "SLOTS", 2_000)  # the simulated disk looks at every page
    monkeypatch.setattr(timer_wheel, "WHEEL_SIZE", 2_000 * timer_wheel.SLOT_SIZE)
    path = ROOT / "timerwheel"
    disk = SimDisk(SimRng(1), SimClock(), write_back=0.0)
    wheel = TimerWheel(disk, path, 1000)
    wheel.put(Slot(NOW, 0, 52, 1))
    disk.fail_flush("*/timerwheel")
    with pytest.raises(OSError, match="Input/output error"):
        wheel.write(wheel.freeze())
    wheel.thaw(written=False)
    written(wheel)
    disk.cut_power()
    assert TimerWheel(disk.boot(), path, 1000).get(NOW).num == 1
