"""Background tasks that fail: who is told, and what is counted."""

import asyncio
from collections import Counter

from maxq.runtime.background import FAILURES, count_failure, supervise
from maxq.runtime.periodic import PeriodicTasks
from maxq.testing.simulation import SimWorld, run_simulation


async def _fail() -> None:
    raise OSError("the disk is gone")


async def test_a_task_that_ends_by_an_error_is_told_and_counted() -> None:
    FAILURES.set(counts := Counter())
    told: list[str] = []
    task = asyncio.create_task(_fail(), name="flush")
    supervise(task, lambda name, error: told.append(f"{name}: {error}"))
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert told == ["flush: the disk is gone"]
    assert counts == {"flush": 1}


async def test_a_task_that_is_cancelled_has_not_failed() -> None:
    FAILURES.set(counts := Counter())
    told: list[str] = []
    task = asyncio.create_task(asyncio.sleep(60), name="flush")
    supervise(task, lambda name, error: told.append(name))  # type: ignore[arg-type]
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert (told, counts) == ([], {})


def test_outside_a_server_nothing_is_counted() -> None:
    count_failure("flush")


def test_each_turn_of_a_periodic_task_that_fails_is_counted_and_the_next_comes() -> None:
    async def story(world: SimWorld) -> Counter[str]:
        FAILURES.set(counts := Counter())
        tasks = PeriodicTasks()
        tasks.every("clean-up", 10, _fail)
        await asyncio.sleep(35)
        await tasks.stop()
        return counts

    assert run_simulation(story, seed=1) == {"clean-up": 3}
