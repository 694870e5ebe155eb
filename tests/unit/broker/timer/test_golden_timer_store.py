"""The store of a Java broker with timer messages in flight (golden `timer`): taken over, and delivered."""

from collections import Counter
from pathlib import Path

import pytest

from maxq.runtime.files.overlay_disk import OverlayDisk
from maxq.runtime.files.system import SystemDisk
from maxq.store.timer.offline_timer import OfflineTimer
from maxq.store.timer.timer_log import TimerLog
from maxq.store.tools.store_files import StoreFiles
from maxq.testing.sim_clock import SimClock
from maxq.testing.simulation import SimWorld, run_simulation
from tests.golden import restore
from tests.unit.broker.timer.timer_world import TimerWorld

ENDED_MS = 1_795_229_025_000  # lastReadTimeMs of its checkpoint
SETTINGS = {
    "mapped_file_size_commit_log": 262_144,
    "mapped_file_size_consume_queue": 2_000,
    "max_hash_slot_num": 1_000,
    "max_index_num": 1_800,
    "mapped_file_size_timer_log": 10_400,
    "max_message_size": 131_072,
    "file_reserved_time": 48,
    "timer_flush_interval_ms": 20_000,
}
PENDING = 20


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    """A copy that may be written."""
    return restore("timer", tmp_path / "timer")


def go_on(golden: Path, now_ms: int, seconds: int, *, jumps: tuple[int, ...] = ()) -> dict[str, int]:
    """Run a broker on the store from `now_ms` on. Returns UNIQ_KEY → ms by which a message came after its slot's end;
    every message exactly once. `jumps`: seconds from one restart to the next, during which the clock stands still."""
    clock = SimClock(epoch_ms=now_ms)
    late: dict[str, int] = {}

    async def main(world: SimWorld) -> None:
        timers = TimerWorld(world, SystemDisk(), **SETTINGS, store_path_root_dir=str(golden))
        await timers.open()
        delivered_by_java = [timers.store.max_offset("Gd_Timer", queue) for queue in range(2)]
        assert sum(delivered_by_java) == PENDING
        for pause in jumps:
            await timers.sleep_ms(pause * 1_000)
            await timers.close()
            wall = clock.wall_ms()
            await timers.sleep_ms(30_000)
            clock.jump_wall_ms(wall - clock.wall_ms())
            await timers.open()
        await timers.sleep_ms(seconds * 1_000)
        for queue_id, first in enumerate(delivered_by_java):
            queue = timers.store.queue("Gd_Timer", queue_id)
            assert queue is not None
            for offset in range(first, queue.max_offset):
                unit = queue.unit(offset)
                message = None if unit is None else timers.store.look_message_by_offset(unit[0])
                assert message is not None and message.uniq_key is not None and message.uniq_key not in late
                late[message.uniq_key] = message.store_timestamp - int(message.properties["TIMER_OUT_MS"]) - 1_000
        await timers.close()

    run_simulation(main, seed=7, clock=clock, step_limit=50_000_000)
    return late


def test_it_is_taken_over_as_java_left_it(golden: Path) -> None:
    log = TimerLog(SystemDisk(), golden, 10_400)
    log.load()
    assert len(log.recover(0, 1 << 40)) == 40
    assert log.max_offset == 2_080


def test_it_can_be_looked_into_and_stays_as_it_is(golden: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in golden.rglob("*") if path.is_file()}
    disk = OverlayDisk(golden, tmp_path / "upper", private_from=1 << 20)
    timer = OfflineTimer(disk, golden, StoreFiles(SystemDisk(), golden).log, 1000)
    assert (timer.pending, timer.read_time_ms, timer.earliest_ms) == (PENDING, ENDED_MS, 1_795_232_602_000)
    listing, entries, cursor = timer.listing, [], ""
    while True:
        page = listing.page(ENDED_MS, timer.latest_ms + 1, ENDED_MS, limit=3, cursor=cursor)
        entries += page.entries
        cursor = page.next
        if not cursor:
            break
    assert [entry.slot_ms for entry in entries] == sorted(entry.slot_ms for entry in entries)
    assert Counter(entry.state for entry in entries) == {"WAITING": 17, "ROLLING": 3}
    assert len({entry.unit.physical_offset for entry in entries}) == PENDING
    assert before == {path: path.read_bytes() for path in golden.rglob("*") if path.is_file()}


def test_nothing_comes_before_its_time(golden: Path) -> None:
    assert go_on(golden, ENDED_MS, 60) == {}


def test_what_is_due_within_the_next_hours_comes_once_and_in_time(golden: Path) -> None:
    late = go_on(golden, ENDED_MS + 3_000_000, 900, jumps=(610, 5))
    assert len(late) == 4
    assert all(0 <= value <= 100 for value in late.values()), late


def test_after_a_week_everything_comes_once(golden: Path) -> None:
    late = go_on(golden, ENDED_MS + 8 * 86_400_000, 20, jumps=(1, 1))
    assert len(late) == PENDING
    assert min(late.values()) >= 0


def test_a_clock_set_back_before_the_takeover_makes_nothing_early(golden: Path) -> None:
    assert go_on(golden, ENDED_MS - 3_600_000, 60) == {}
