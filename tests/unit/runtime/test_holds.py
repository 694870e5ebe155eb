"""What holds the loop is counted by what it was."""

import asyncio

import pytest

from maxq.runtime.holds import CURRENT, Holds, watched
from maxq.testing.sim_clock import SimClock


def found(holds: Holds) -> dict[int | str, tuple[int, int]]:
    """By cause: how many, and milliseconds of the longest."""
    return {cause: (hold.count, hold.longest_ns // 1_000_000) for cause, hold in holds.by_cause.items()}


def test_only_what_takes_longer_than_50_ms_counts() -> None:
    clock = SimClock()
    holds = Holds(clock)
    for milliseconds in (50, 51, 80, 49):
        began = clock.monotonic_ns()
        clock.advance_ms(milliseconds)
        holds.ended(202, began)
    assert found(holds) == {202: (2, 80)}
    assert holds.by_cause[202].total_ns == 131_000_000


async def test_a_coroutine_is_measured_between_its_waits() -> None:
    clock = SimClock()
    holds = Holds(clock)
    CURRENT.set(holds)

    async def work(*steps: int) -> str:
        for milliseconds in steps:
            clock.advance_ms(milliseconds)
            await asyncio.sleep(0)
            clock.advance_ms(1)
        return "done"

    task = asyncio.ensure_future(watched("cleaning", work(40, 40, 40)))
    while not task.done():
        await asyncio.sleep(0)
        clock.advance_ms(1_000)  # others' time
    assert task.result() == "done" and not holds.by_cause
    assert await watched("cleaning", work(10, 70, 60)) == "done"
    assert found(holds) == {"cleaning": (2, 71)}


async def test_errors_and_cancellation_pass_through_it() -> None:
    holds = Holds(SimClock())
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            await asyncio.sleep(0)
            raise ValueError("while it ended") from None

    task = asyncio.ensure_future(holds.watch("work", work()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(ValueError, match="while it ended"):
        await task
    assert ended == ["cancelled"]


def test_the_table_has_a_bound() -> None:
    clock = SimClock()
    holds = Holds(clock)
    clock.advance_ms(60)
    for code in range(2_000):
        holds.ended(code, 0)
    assert len(holds.by_cause) == 501 and holds.by_cause["others"].count == 1_500
