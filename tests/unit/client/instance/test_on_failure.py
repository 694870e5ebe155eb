"""Programming errors that a client goes on after: the application hears of each, the log now and then says so."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from maxq.client.client_config import LitePullConsumerConfig
from maxq.client.consumer.lite_pull_consumer import LitePullConsumer
from maxq.client.consumer.offset_store import RemoteBrokerOffsetStore
from maxq.client.consumer.rebalance import AllocateMessageQueueStrategy
from maxq.client.consumer.rebalance_impl import RebalanceImpl
from maxq.client.instance.pop_api import PopAPI
from maxq.client.instance.pull_api import PullAPIWrapper
from maxq.codes import RequestCode
from maxq.protocol.message.message_queue import MessageQueue
from tests.unit.client.consumer.push_consumers import FIRST, Got, make, start
from tests.unit.client.mock_broker import NAMESRV_ADDR, MockCluster, simulate, until

Patch = pytest.MonkeyPatch


class Broken:
    """Stands before a coroutine method: while `is_on`, a call raises what a slip of a programmer would."""

    def __init__(self, patch: Patch, owner: type, name: str) -> None:
        self.is_on = True
        self.calls = 0
        method: Callable[..., Awaitable[Any]] = getattr(owner, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            if self.is_on:
                self.calls += 1
                raise TypeError("a slip")
            return await method(*args, **kwargs)

        patch.setattr(owner, name, call)


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.exc_info and record.levelname == "ERROR"]


@pytest.mark.parametrize("orderly", [False, True])
def test_a_push_consumer_tells_of_pulls_that_cannot_succeed_and_goes_on(
    monkeypatch: Patch, caplog: pytest.LogCaptureFixture, orderly: bool
) -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 1)
        broken, told, got = Broken(monkeypatch, PullAPIWrapper, "pull"), list[Exception](), Got()
        async with make(cluster, got, orderly=orderly, on_failure=told.append):
            await asyncio.sleep(60)
            assert 50 <= broken.calls == len(told)
            assert all(isinstance(error, TypeError) for error in told)
            assert 6 <= len(lines_of(caplog)) <= 16  # two queues: the topic's and the retry topic's
            broken.is_on = False
            await until(lambda: got.bodies == [b"0"], "the message")

    simulate(story)


def test_a_lite_pull_consumer_tells_of_pulls_that_cannot_succeed_and_goes_on(monkeypatch: Patch) -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 1)
        broken, told = Broken(monkeypatch, PullAPIWrapper, "pull"), list[Exception]()
        config = LitePullConsumerConfig(
            namesrv_addr=NAMESRV_ADDR, consumer_group="G", consume_from_where=FIRST, on_failure=told.append
        )
        consumer = LitePullConsumer(config, cluster.environment())
        await consumer.subscribe("T")
        async with consumer:
            assert await consumer.poll(30_000) == []
            assert 20 <= broken.calls == len(told)
            broken.is_on = False
            assert [message.body for message in await consumer.poll(5_000)] == [b"0"]

    simulate(story)


def test_popping_goes_on_after_an_error_that_nobody_expects(monkeypatch: Patch) -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster)
        told: list[Exception] = []
        broken = Broken(monkeypatch, PopAPI, "pop")
        consumer = make(cluster, Got(), client_rebalance=False, on_failure=told.append)
        async with consumer:
            pops = consumer._pops
            assert pops is not None
            pops.on_pop_queues("T", [MessageQueue("T", "broker-a", 0)])
            await until(lambda: len(told) == 3, "three failures")
            broken.is_on = False
            await until(lambda: bool(cluster.broker.requests(RequestCode.POP_MESSAGE)), "a pop")

    simulate(story)


def test_locks_are_renewed_after_an_error_that_nobody_expects(monkeypatch: Patch) -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster)
        told: list[Exception] = []
        broken = Broken(monkeypatch, RebalanceImpl, "lock_all")
        async with make(cluster, Got(), orderly=True, on_failure=told.append):
            await until(lambda: bool(told), "a failure")
            broken.is_on = False
            before = len(cluster.broker.requests(RequestCode.LOCK_BATCH_MQ))
            await until(lambda: len(cluster.broker.requests(RequestCode.LOCK_BATCH_MQ)) > before, "a lock", 25)

    simulate(story)


@pytest.mark.parametrize("raises", [False, True])
def test_a_strategy_of_the_application_that_fails_is_told_to_it(raises: bool) -> None:
    class Strategy(AllocateMessageQueueStrategy):
        name = "BROKEN"

        def _allocate(self, client_id: str, queues: Any, client_ids: Any) -> list[MessageQueue]:
            raise ZeroDivisionError("no members?")

    async def story(cluster: MockCluster) -> None:
        await start(cluster)
        told: list[Exception] = []

        def tell(error: Exception) -> None:
            told.append(error)
            if raises:
                raise ValueError("the listener has a fault, too")

        async with make(cluster, Got(), allocate_strategy=Strategy(), on_failure=tell):
            await until(lambda: len(told) >= 3, "three rounds")
        assert {type(error) for error in told} == {ZeroDivisionError}

    simulate(story)


def test_timers_of_the_client_tell_of_programming_errors(monkeypatch: Patch) -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster)
        broken, told = Broken(monkeypatch, RemoteBrokerOffsetStore, "persist_all"), list[Exception]()
        async with make(cluster, Got(), on_failure=told.append):
            await until(lambda: len(told) >= 2, "two rounds", 30)
            broken.is_on = False

    simulate(story)
