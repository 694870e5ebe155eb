"""Refusals of sends that waited too long, or came while too many were unfinished."""

import asyncio
import logging
from dataclasses import replace

import pytest

from maxq.broker.fast_failure import FastFailure
from maxq.config.settings import BrokerSettings
from maxq.testing.sim_clock import SimClock


class Broker:
    """A FastFailure on a clock that the test moves."""

    def __init__(self, **settings: int | bool) -> None:
        self.clock = SimClock()
        self.settings = BrokerSettings()
        self.settings.broker = replace(self.settings.broker, **settings)  # type: ignore[arg-type]
        self.fast_failure = FastFailure(self.settings, clock=self.clock)

    def turn(self) -> None:
        """The loop begins a new turn."""
        self.fast_failure._tick()


@pytest.fixture
async def broker() -> Broker:
    made = Broker()
    made.turn()
    return made


async def test_send_that_is_reached_in_time_goes_on(broker: Broker) -> None:
    broker.clock.advance_ms(200)
    assert broker.fast_failure.refuse_send() is None


async def test_send_behind_a_long_turn_is_refused_with_its_wait_and_the_limit(broker: Broker) -> None:
    broker.clock.advance_ms(350)
    remark = broker.fast_failure.refuse_send()
    assert remark is not None
    assert remark.startswith(
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 350ms, size of queue: 0"
    )
    assert "waitTimeMillsInSendQueue is 200" in remark
    broker.turn()
    assert broker.fast_failure.refuse_send() is None


async def test_sends_behind_a_slow_append_are_refused_until_the_turn_ends(broker: Broker) -> None:
    broker.clock.advance_ms(1_300)
    broker.fast_failure.append_took(1_250)
    remark = broker.fast_failure.refuse_send()
    assert remark is not None and remark.startswith("[PCBUSY_CLEAN_QUEUE]broker busy, start flow control")
    assert "1250 ms" in remark and "osPageCacheBusyTimeOutMills is 1000" in remark
    broker.turn()
    assert broker.fast_failure.refuse_send() is None


async def test_an_append_within_the_limit_refuses_nobody(broker: Broker) -> None:
    broker.clock.advance_ms(100)
    broker.fast_failure.append_took(100)
    assert broker.fast_failure.refuse_send() is None


async def test_unfinished_sends_are_bounded() -> None:
    broker = Broker(send_thread_pool_queue_capacity=2)
    broker.turn()
    for _ in range(2):
        assert broker.fast_failure.refuse_send() is None
        broker.fast_failure.sends.enter()
    remark = broker.fast_failure.refuse_send()
    assert remark is not None and remark.startswith("[OVERLOAD]system busy, start flow control for a while")
    assert "sendThreadPoolQueueCapacity is 2" in remark
    broker.fast_failure.sends.leave()
    assert broker.fast_failure.refuse_send() is None


async def test_waiting_counts_for_nothing_when_fast_failure_is_off() -> None:
    broker = Broker(broker_fast_failure_enable=False)
    broker.turn()
    broker.clock.advance_ms(5_000)
    assert broker.fast_failure.refuse_send() is None


async def test_refusals_are_counted_by_cause_and_told_once(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    for oneway in (False, True, True):
        broker.fast_failure.refuse("[TIMEOUT_CLEAN_QUEUE]broker busy …", oneway=oneway)
    assert broker.fast_failure.refused.by_cause == {"TIMEOUT_CLEAN_QUEUE": 3}
    assert broker.fast_failure.refused.oneway_dropped == 2
    broker.clock.advance_ms(2_000)
    broker.turn()
    broker.clock.advance_ms(2_000)
    broker.turn()
    assert [record.getMessage() for record in caplog.records] == [
        "refused 3 requests with [TIMEOUT_CLEAN_QUEUE] (3 since start, 2 one-way requests among all dropped)"
    ]


async def test_started_it_marks_the_turns_of_the_loop_and_stopped_it_leaves_no_timer() -> None:
    broker = Broker()
    broker.fast_failure.start()
    broker.clock.advance_ms(400)
    while broker.fast_failure.head_wait_ms():  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    broker.fast_failure.stop()
    broker.clock.advance_ms(400)
    assert broker.fast_failure.refuse_send() is None
    assert broker.fast_failure.head_wait_ms() == 0
