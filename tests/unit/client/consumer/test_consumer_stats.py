"""Rates of a consumer, and lookups that are shared."""

import asyncio

import pytest

from maxq.client.consumer.consumer_stats import ConsumerStats
from maxq.client.instance.topic_routes import SharedLookups


def test_rates_are_those_of_the_last_minute_and_failures_those_of_the_last_hour() -> None:
    stats = ConsumerStats()
    for second in range(0, 7200, 10):
        stats.on_pull("T", 20, 5)
        stats.on_consume("T", 10, 10 if second < 600 else 0, 4)
        stats.sample(second * 1000)
    status = stats.consume_status("T", 7_190_000)
    assert status.pull_tps == pytest.approx(2)
    assert status.consume_ok_tps == pytest.approx(1)
    assert (status.pull_rt, status.consume_rt) == (5, 4)
    assert (status.consume_failed_tps, status.consume_failed_msgs) == (0, 0)
    assert stats.consume_status("unknown", 0).pull_tps == 0


def test_failures_within_the_hour_are_counted() -> None:
    stats = ConsumerStats()
    stats.on_consume("T", 1, 3, 2)
    assert stats.consume_status("T", 1000).consume_failed_msgs == 3


async def test_askers_of_one_key_share_an_answer_or_a_failure() -> None:
    lookups: SharedLookups[int] = SharedLookups()
    calls = 0

    async def look_up() -> int:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0)
        if calls == 2:
            raise ValueError("no")
        return calls

    assert await asyncio.gather(*(lookups.share("a", look_up) for _ in range(5))) == [1] * 5
    failures = await asyncio.gather(*(lookups.share("a", look_up) for _ in range(5)), return_exceptions=True)
    assert [str(failure) for failure in failures] == ["no"] * 5
    assert await lookups.share("a", look_up) == 3


async def test_an_asker_that_gives_up_does_not_disturb_the_others() -> None:
    lookups: SharedLookups[str] = SharedLookups()
    gate = asyncio.Event()

    async def look_up() -> str:
        await gate.wait()
        return "answer"

    first = asyncio.ensure_future(lookups.share("a", look_up))
    second = asyncio.ensure_future(lookups.share("a", look_up))
    await asyncio.sleep(0)
    first.cancel()
    gate.set()
    assert await second == "answer"
