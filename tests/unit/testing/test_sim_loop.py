import asyncio
import time

import pytest

from maxq.testing.sim_loop import SimDeadlockError, SimTimeLimitError
from maxq.testing.simulation import SimWorld, run_simulation


def test_two_virtual_minutes_take_no_real_time() -> None:
    async def main(world: SimWorld) -> tuple[float, int]:
        before = world.clock.monotonic_ms()
        started = world.loop.time()
        for _ in range(120):
            await asyncio.sleep(1)
        return world.loop.time() - started, world.clock.monotonic_ms() - before

    real = time.monotonic()
    seconds, clock_ms = run_simulation(main, seed=1)
    assert abs(seconds - 120) < 0.01
    assert abs(clock_ms - 120_000) <= 1
    assert time.monotonic() - real < 60, "not even on a busy machine"


def test_timers_fire_in_their_order() -> None:
    async def main(world: SimWorld) -> list[str]:
        seen: list[str] = []
        world.loop.call_later(0.3, seen.append, "c")
        world.loop.call_later(0.1, seen.append, "a")
        world.loop.call_later(0.2, seen.append, "b")
        await asyncio.sleep(0.4)
        return seen

    assert run_simulation(main, seed=1) == ["a", "b", "c"]


def test_executor_work_happens_later_and_its_delay_is_drawn() -> None:
    async def main(world: SimWorld) -> tuple[list[str], float]:
        seen: list[str] = []
        future = world.loop.run_in_executor(None, seen.append, "work")
        seen.append("caller goes on")
        started = world.loop.time()
        await future
        return seen, world.loop.time() - started

    story = run_simulation(main, seed=1)
    assert story[0] == ["caller goes on", "work"]
    assert story[1] > 0
    assert story == run_simulation(main, seed=1)
    assert story != run_simulation(main, seed=2)


def test_executor_work_raises_at_the_caller() -> None:
    def fail() -> None:
        raise OSError("device refuses")

    async def main(world: SimWorld) -> None:
        with pytest.raises(OSError, match="device refuses"):
            await world.loop.run_in_executor(None, fail)

    run_simulation(main, seed=1)


def test_waiting_for_nothing_is_a_deadlock_not_a_hang() -> None:
    async def main(world: SimWorld) -> None:
        await world.loop.create_future()

    with pytest.raises(SimDeadlockError):
        run_simulation(main, seed=1)


def test_time_and_step_limits_end_a_run() -> None:
    async def sleeper(world: SimWorld) -> None:
        for _ in range(1000):
            await asyncio.sleep(10)

    async def spinner(world: SimWorld) -> None:
        for _ in range(10_000):
            await asyncio.sleep(0)

    with pytest.raises(SimTimeLimitError, match="virtual time"):
        run_simulation(sleeper, seed=1, time_limit_s=100)
    with pytest.raises(SimTimeLimitError, match="step limit"):
        run_simulation(spinner, seed=1, step_limit=1000)


def test_a_failure_in_a_forgotten_callback_fails_the_run() -> None:
    def bad() -> None:
        raise KeyError("lost")

    async def main(world: SimWorld) -> None:
        world.loop.call_soon(bad)
        await asyncio.sleep(1)

    with pytest.raises(KeyError, match="lost"):
        run_simulation(main, seed=1)


def test_tasks_left_over_are_cancelled_and_may_clean_up() -> None:
    seen: list[str] = []

    async def service() -> None:
        try:
            await asyncio.sleep(1e6)
        finally:
            await asyncio.sleep(0.1)
            seen.append("cleaned")

    tasks: list[asyncio.Task[None]] = []

    async def main(world: SimWorld) -> str:
        tasks.append(asyncio.ensure_future(service()))
        await asyncio.sleep(0)
        return "done"

    assert run_simulation(main, seed=1) == "done"
    assert seen == ["cleaned"]
