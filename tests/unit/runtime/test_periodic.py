"""Periodic work, in virtual time."""

import asyncio

from maxq.broker.assembly.schedule import seconds_until_midnight
from maxq.runtime.periodic import PeriodicTasks
from maxq.testing.simulation import SimWorld, run_simulation


def test_work_is_done_first_after_its_own_delay_and_then_every_period() -> None:
    times: list[int] = []

    async def main(world: SimWorld) -> None:
        tasks = PeriodicTasks()
        tasks.every("work", 5.0, lambda: times.append(world.clock.monotonic_ms()), first=1.0)
        await asyncio.sleep(11.5)
        await tasks.stop()
        await asyncio.sleep(60)

    run_simulation(main, seed=1)
    start = 1_000_000
    assert times == [start + 1_000, start + 6_000, start + 11_000]


def test_failed_turn_does_not_end_the_work() -> None:
    turns: list[int] = []

    async def work() -> None:
        turns.append(1)
        raise OSError("disk full")

    async def main(world: SimWorld) -> None:
        tasks = PeriodicTasks()
        tasks.every("work", 1.0, work)
        await asyncio.sleep(3.5)
        await tasks.stop()

    run_simulation(main, seed=1)
    assert len(turns) == 3


def test_turns_never_overlap_and_a_changed_period_counts_at_once() -> None:
    running = 0
    period = 1.0
    starts: list[int] = []

    async def main(world: SimWorld) -> None:
        async def work() -> None:
            nonlocal running, period
            assert running == 0
            running += 1
            starts.append(world.clock.monotonic_ms() - 1_000_000)
            await asyncio.sleep(2.0)
            running -= 1
            period = 3.0

        tasks = PeriodicTasks()
        tasks.every("work", lambda: period, work)
        await asyncio.sleep(8.0)
        await tasks.stop()

    run_simulation(main, seed=1)
    assert starts == [1_000, 6_000]


def test_midnight_is_a_day_away_at_midnight_and_a_second_at_least() -> None:
    midnight = 1_700_006_400_000  # 2023-11-15T00:00:00Z
    assert seconds_until_midnight(midnight) == 86_400
    assert seconds_until_midnight(midnight - 60_000) == 60
    assert seconds_until_midnight(midnight - 10) == 1
