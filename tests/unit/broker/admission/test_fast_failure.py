"""Refusals of requests that waited too long, or came while too many were unfinished."""

import asyncio
import logging
from dataclasses import replace

import pytest

from maxq.broker.admission.fast_failure import FastFailure
from maxq.codes import RequestCode
from maxq.config.settings import BrokerSettings
from maxq.protocol.frame.remoting_command import ONEWAY_FLAG, RemotingCommand
from maxq.testing.sim_clock import SimClock


class Broker:
    """A FastFailure on a clock that the test moves."""

    def __init__(self, **settings: int | bool) -> None:
        self.clock = SimClock()
        self.settings = BrokerSettings()
        self.settings.broker = replace(self.settings.broker, **settings)  # type: ignore[arg-type]
        self.fast_failure = FastFailure(self.settings, clock=self.clock)

    def ask(self, code: int = RequestCode.SEND_MESSAGE_V2, *, oneway: bool = False) -> str | None:
        request = RemotingCommand(code, flag=ONEWAY_FLAG if oneway else 0)
        return self.fast_failure.gate(None, request)  # type: ignore[arg-type]

    async def long_turn(self, milliseconds: int) -> None:
        """A turn that took so long, up to and including its end."""
        self.ask()
        self.clock.advance_ms(milliseconds)
        await asyncio.sleep(0)


async def test_first_request_of_a_turn_never_waited() -> None:
    broker = Broker()
    await broker.long_turn(60_000)
    assert broker.ask() is None


async def test_sends_are_refused_in_the_second_turn_in_a_row_that_takes_too_long() -> None:
    broker = Broker()
    await broker.long_turn(350)
    assert broker.ask() is None
    broker.clock.advance_ms(200)
    assert broker.ask() is None
    broker.clock.advance_ms(150)
    remark = broker.ask()
    assert remark is not None
    assert remark.startswith(
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 350ms, size of queue: 0"
    )
    assert "the limit is 200 (waitTimeMillsInSendQueue)" in remark
    assert broker.fast_failure.refuse_send() == remark


async def test_what_waited_behind_a_single_stall_is_done() -> None:
    broker = Broker()
    await broker.long_turn(5)
    broker.ask()
    broker.clock.advance_ms(350)
    assert broker.ask() is None


async def test_a_pause_between_two_stalls_makes_them_single_ones() -> None:
    broker = Broker()
    await broker.long_turn(350)
    broker.clock.advance_ms(100)
    broker.ask()
    broker.clock.advance_ms(350)
    assert broker.ask() is None


@pytest.mark.parametrize(
    ("code", "limit_ms", "setting"),
    [
        (RequestCode.PULL_MESSAGE, 5_000, "waitTimeMillsInPullQueue"),
        (RequestCode.LITE_PULL_MESSAGE, 5_000, "waitTimeMillsInLitePullQueue"),
        (RequestCode.HEART_BEAT, 31_000, "waitTimeMillsInHeartbeatQueue"),
        (RequestCode.GET_BROKER_CONFIG, 5_000, "waitTimeMillsInAdminBrokerQueue"),
    ],
)
async def test_every_kind_has_its_own_limit(code: RequestCode, limit_ms: int, setting: str) -> None:
    broker = Broker()
    await broker.long_turn(limit_ms + 1)
    broker.ask()
    broker.clock.advance_ms(limit_ms)
    assert broker.ask(code) is None
    broker.clock.advance_ms(1)
    remark = broker.ask(code)
    assert remark is not None and setting in remark


async def test_sends_behind_a_slow_append_are_refused_until_the_turn_ends() -> None:
    broker = Broker(wait_time_mills_in_send_queue=100_000)
    assert broker.ask() is None
    broker.clock.advance_ms(1_300)
    broker.fast_failure.append_took(1_250)
    remark = broker.ask()
    assert remark is not None and remark.startswith("[PCBUSY_CLEAN_QUEUE]broker busy, start flow control")
    assert "1250 ms, the limit is 1000 (osPageCacheBusyTimeOutMills)" in remark
    assert broker.ask(RequestCode.PULL_MESSAGE) is None
    await asyncio.sleep(0)
    assert broker.ask() is None
    broker.clock.advance_ms(1)
    assert broker.ask() is None


async def test_a_slow_append_counts_in_the_second_turn_of_a_millisecond_too() -> None:
    broker = Broker(wait_time_mills_in_send_queue=100_000)
    for _ in range(2):
        await asyncio.sleep(0)
        assert broker.fast_failure.refuse_send() is None
    broker.clock.advance_ms(1_250)
    broker.fast_failure.append_took(1_250)
    remark = broker.fast_failure.refuse_send()
    assert remark is not None and remark.startswith("[PCBUSY_CLEAN_QUEUE]broker busy, start flow control")
    await asyncio.sleep(0)
    assert broker.fast_failure.refuse_send() is None


async def test_plain_sends_wait_from_the_first_of_their_turn_on() -> None:
    broker = Broker()
    for refused in (False, True):
        assert broker.fast_failure.refuse_send() is None
        broker.clock.advance_ms(350)
        assert (broker.fast_failure.refuse_send() is not None) is refused
        assert broker.fast_failure.head_wait_ms() == 350
        await asyncio.sleep(0)
        assert broker.fast_failure.head_wait_ms() == 0


async def test_an_append_within_the_limit_refuses_nobody() -> None:
    broker = Broker()
    broker.ask()
    broker.clock.advance_ms(100)
    broker.fast_failure.append_took(100)
    assert broker.ask() is None


async def test_unfinished_sends_are_bounded_and_others_do_not_notice() -> None:
    broker = Broker(send_thread_pool_queue_capacity=2)
    for _ in range(2):
        assert broker.ask() is None
        broker.fast_failure.sends.enter()
    remark = broker.ask()
    assert remark is not None and remark.startswith("[OVERLOAD]system busy, start flow control for a while")
    assert "2 send requests wait for the disk, the limit is 2 (sendThreadPoolQueueCapacity)" in remark
    assert broker.ask(RequestCode.PULL_MESSAGE) is None
    assert broker.ask(RequestCode.GET_BROKER_CONFIG) is None
    broker.fast_failure.sends.leave()
    assert broker.ask() is None


async def test_waiting_counts_for_nothing_when_fast_failure_is_off() -> None:
    broker = Broker(broker_fast_failure_enable=False)
    await broker.long_turn(5_000)
    broker.ask()
    broker.clock.advance_ms(5_000)
    assert broker.ask() is None


async def test_refusals_are_counted_by_cause_and_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    broker = Broker()
    await broker.long_turn(500)
    broker.ask()
    broker.clock.advance_ms(500)
    for oneway in (False, True, True):
        assert broker.ask(oneway=oneway) is not None
    assert broker.fast_failure.refused.by_cause == {"TIMEOUT_CLEAN_QUEUE": 3}
    assert broker.fast_failure.refused.oneway_dropped == 2
    broker.fast_failure.report()
    broker.fast_failure.report()
    (line,) = [record.getMessage() for record in caplog.records if record.name.startswith("maxq.")]
    assert line.startswith(
        "refused 3 requests with [TIMEOUT_CLEAN_QUEUE] (3 since start, 2 one-way requests among all dropped), the "
        "newest: [TIMEOUT_CLEAN_QUEUE]broker busy"
    )


def test_put_times_are_told_as_tools_expect_them() -> None:
    times = Broker().fast_failure.put_times
    for milliseconds in [0] * 970 + [5] * 20 + [24] * 9 + [12_345]:
        times.took(milliseconds)
    assert times.distribution().startswith("[<=0ms]:970 [0~10ms]:20 [10~50ms]:9 [50~100ms]:0 ")
    assert times.distribution().endswith("[5~10s]:0 [10s~]:1 ")
    assert (times.percentile(0.99), times.percentile(0.999), times.longest_ms) == ("5.00", "24.00", 12_345)
