"""A clock that jumps ahead deletes nothing; the rest expires as ever."""

import os
from pathlib import Path

import pytest

from maxq.store.message_store import MessageStore
from maxq.store.retention.trusted_time import TrustedTime
from tests.unit.store.stores import TestClock, message, opened, small_config

HOUR = 3_600_000
YEAR = 365 * 24 * HOUR


class JumpingClock(TestClock):
    """Its wall time may be off."""

    def __init__(self) -> None:
        super().__init__()
        self.off_ms = 0

    def wall_ms(self) -> int:
        return self.now_ms + self.off_ms


@pytest.fixture
def clock() -> JumpingClock:
    return JumpingClock()


def filled(folder: Path, clock: JumpingClock) -> MessageStore:
    """Five log files, all written now."""
    store = opened(small_config(folder, delete_commit_log_files_interval=0, file_reserved_time=72), clock)
    for _ in range(40):
        store.put_message(message(body=bytes(8000)))
    written(folder, clock)
    return store


def written(folder: Path, clock: JumpingClock) -> None:
    for path in (folder / "commitlog").iterdir():
        os.utime(path, (clock.now_ms / 1000, clock.now_ms / 1000))


async def deleted(store: MessageStore) -> int:
    store.cleaner.request()
    return await store.cleaner.clean()


@pytest.mark.parametrize("years", [1, 100])
async def test_a_clock_years_ahead_deletes_no_file_that_was_not_kept_for_its_time(
    tmp_path: Path, clock: JumpingClock, years: int, caplog: pytest.LogCaptureFixture
) -> None:
    store = filled(tmp_path, clock)
    clock.off_ms = years * YEAR
    assert await deleted(store) == 0
    assert f"the clock is {years * 365 * 24} hours ahead" in caplog.text and caplog.text.count("\n") == 1
    clock.off_ms = 0
    assert await deleted(store) == 0
    clock.off_ms = years * YEAR
    clock.now_ms += 71 * HOUR
    assert await deleted(store) == 0
    clock.now_ms += 73 * HOUR
    assert await deleted(store) == 4
    store.close()


async def test_a_start_with_a_clock_years_ahead_deletes_nothing(tmp_path: Path, clock: JumpingClock) -> None:
    filled(tmp_path, clock).close()
    written(tmp_path, clock)
    clock.off_ms = YEAR
    store = opened(small_config(tmp_path, delete_commit_log_files_interval=0, file_reserved_time=72), clock)
    assert await deleted(store) == 0
    clock.off_ms, clock.now_ms = 0, clock.now_ms + 73 * HOUR  # set right, three days later
    assert await deleted(store) > 0
    store.close()


async def test_a_clock_that_goes_back_is_believed_at_once() -> None:
    clock = JumpingClock()
    time = TrustedTime(clock, lambda: 72 * HOUR)
    clock.off_ms = -YEAR
    assert time.now_ms() == clock.wall_ms()
    clock.off_ms = 0  # and what comes after is a jump ahead
    assert time.now_ms() == clock.wall_ms() - YEAR
    clock.now_ms += 72 * HOUR
    assert time.now_ms() == clock.wall_ms()


async def test_a_summer_time_or_a_broken_battery_of_hours_is_believed() -> None:
    clock = JumpingClock()
    time = TrustedTime(clock, lambda: 72 * HOUR)
    clock.off_ms = 14 * HOUR
    assert time.now_ms() == clock.wall_ms()


@pytest.mark.parametrize("years", [-50, 50])
async def test_messages_are_found_by_key_and_time_although_the_clock_was_years_off(
    tmp_path: Path, clock: JumpingClock, years: int
) -> None:
    store = opened(small_config(tmp_path, max_index_num=20, max_hash_slot_num=10), clock)
    sent: list[tuple[str, int]] = []
    for off_ms in (0, years * YEAR, 0):
        clock.off_ms = off_ms
        for _ in range(50):
            clock.now_ms += 1_000
            sent.append((f"k{len(sent)}", clock.wall_ms()))
            store.put_message(message(KEYS=sent[-1][0]))
    assert len(store._parts.index.files) > 5
    around = {key: store.query_message("T", key, 10, at - HOUR, at + HOUR) for key, at in sent}
    missing = [key for key, found in around.items() if len(found.buffers) != 1]
    # an index file that the jump lies in says the time of its first entry for those behind it
    assert len(missing) <= 2 * 20
    assert all(len(store.query_message("T", key, 10, 0, 1 << 62).buffers) == 1 for key, _ in sent)
    store.close()
