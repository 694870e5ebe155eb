"""Readers who are answered after the turn they came in."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from maxq.broker.admission.fast_failure import FastFailure
from maxq.broker.admission.quotas import Quotas
from maxq.broker.processors.pull.deferred_replies import DeferredReplies, Pass
from maxq.codes import RequestCode, ResponseCode
from maxq.config.settings import BrokerSettings
from maxq.errors import RequestRefusedError
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.store.store_results import GetMessageResult, GetMessageStatus
from maxq.testing.sim_clock import SimClock
from maxq.testing.simulation import SimWorld, run_simulation
from tests.unit.broker.broker_world import FakeConnection, connection
from tests.unit.broker.bundles_of import environment, limits


class Bucket:
    """What is left to wait for, ms; a look at it is a look at a quota."""

    def __init__(self, clock: SimClock, until_ms: int) -> None:
        self._clock = clock
        self._until_ms = until_ms

    def pull_wait_ms(self, group: str, request: RemotingCommand) -> int:
        return max(0, self._until_ms - self._clock.monotonic_ms())


def later(world: SimWorld, again: Pass, quota_ms: int = 0) -> DeferredReplies:
    clock = world.clock
    quotas = cast(Quotas, Bucket(clock, clock.monotonic_ms() + quota_ms))
    fast_failure = FastFailure(BrokerSettings(), clock=clock)
    return DeferredReplies(environment(clock=clock), limits(fast_failure=fast_failure, quotas=quotas), again)


def request() -> RemotingCommand:
    return RemotingCommand(RequestCode.PULL_MESSAGE, {})


def raising(error: Exception) -> Callable[..., RemotingCommand | None]:
    def again(*args: object) -> RemotingCommand | None:
        raise error

    return again


def answered(*args: object) -> RemotingCommand:
    return request().reply(ResponseCode.SUCCESS, "read")


def not_now() -> RemotingCommand:
    return request().reply(ResponseCode.POLLING_TIMEOUT, "not now")


class Unreadable(GetMessageResult):
    def bring_in(self) -> None:
        raise OSError(5, "Input/output error")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError("no such thing"), ResponseCode.SYSTEM_ERROR),
        (RequestRefusedError(ResponseCode.NO_PERMISSION, "no"), ResponseCode.NO_PERMISSION),
    ],
)
def test_a_second_pass_that_raises_is_answered(error: Exception, code: int) -> None:
    async def story(world: SimWorld) -> None:
        peer, answers = FakeConnection(), later(world, raising(error))
        answers.when_read(connection(peer), request(), GetMessageResult(GetMessageStatus.FOUND))
        await answers.drain()
        assert peer.codes() == [code]

    run_simulation(story, seed=1)


def test_what_the_disk_does_not_give_is_said() -> None:
    async def story(world: SimWorld) -> None:
        peer, answers = FakeConnection(), later(world, answered)
        cold = [GetMessageResult(GetMessageStatus.FOUND), Unreadable(GetMessageStatus.FOUND)]
        answers.send_when_read(connection(peer), request(), answered(), cold)
        await answers.drain()
        assert peer.codes() == [ResponseCode.SYSTEM_ERROR] and "Input/output error" in (peer.sent[0].remark or "")

    run_simulation(story, seed=1)


@pytest.mark.parametrize(
    ("quota_ms", "most_ms", "remark", "at_ms"), [(300, 1000, "read", 300), (900, 200, "not now", 200)]
)
def test_a_quota_is_waited_for_as_long_as_the_reader_waits(
    quota_ms: int, most_ms: int, remark: str, at_ms: int
) -> None:
    async def story(world: SimWorld) -> None:
        peer, answers = FakeConnection(), later(world, answered, quota_ms)
        answers.when_allowed(connection(peer), request(), "G", most_ms, not_now)
        await asyncio.sleep(at_ms / 1000 - 0.02)
        assert peer.sent == []
        await asyncio.sleep(0.04)
        assert [command.remark for command in peer.sent] == [remark]

    run_simulation(story, seed=1)


def test_for_a_connection_that_closed_meanwhile_nothing_is_read() -> None:
    async def story(world: SimWorld) -> None:
        read: list[object] = []
        peer, answers = FakeConnection(), later(world, lambda *args: read.append(args), 300)
        answers.when_allowed(connection(peer), request(), "G", 1000, not_now)
        await asyncio.sleep(100 / 1000)
        peer.close()
        await asyncio.sleep(2000 / 1000)
        assert (read, peer.sent) == ([], [])

    run_simulation(story, seed=1)


def test_nobody_takes_up_again_what_was_read_for_a_connection_that_closed() -> None:
    async def story(world: SimWorld) -> None:
        taken: list[object] = []
        peer, answers = FakeConnection(), later(world, lambda *args: taken.append(args))
        answers.when_read(connection(peer), request(), GetMessageResult(GetMessageStatus.FOUND))
        peer.close()
        await answers.drain()
        assert (taken, peer.sent) == ([], [])

    run_simulation(story, seed=1)
