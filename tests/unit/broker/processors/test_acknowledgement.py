"""What a producer is told, from what the disk and the replicas say."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from maxq.broker.processors.acknowledgement import Acknowledgement
from maxq.codes import ResponseCode
from maxq.store.durability.flush import CommitLogFlusher


class Promise:
    """A disk or a set of replicas, as far as an acknowledgement sees them; `future` is what they will say."""

    def __init__(self, future: "asyncio.Future[bool] | None") -> None:
        self.future = future
        self.asked: list[int] = []

    def when(self, end_offset: int, done: Callable[[bool], None]) -> bool:
        self.asked.append(end_offset)
        if self.future is None:
            return False
        self.future.add_done_callback(lambda future: done(not future.cancelled() and future.result()))
        return True

    when_durable = when

    def refusal(self) -> str | None:
        return "in-sync replicas not enough"

    @property
    def waits_for_disk(self) -> bool:
        return self.future is not None

    def asks(self) -> bool:
        return self.future is not None


def acknowledgement(disk: Promise, replicas: Promise | None = None) -> Acknowledgement:
    made = Acknowledgement(cast(CommitLogFlusher, disk))
    if replicas is not None:
        made.set_replicas(replicas)
    return made


def future() -> "asyncio.Future[bool]":
    return asyncio.get_running_loop().create_future()


async def test_nothing_to_wait_for_is_told_at_once() -> None:
    disk, replicas = Promise(None), Promise(None)
    assert acknowledgement(disk).outcome(7) is None
    assert acknowledgement(disk, replicas).outcome(9) is None
    assert (disk.asked, replicas.asked) == ([7, 9], [9])


async def test_it_may_wait_if_disk_or_replicas_can_keep_it_waiting() -> None:
    assert not acknowledgement(Promise(None)).may_wait()
    assert not acknowledgement(Promise(None), Promise(None)).may_wait()
    assert acknowledgement(Promise(future())).may_wait()
    assert acknowledgement(Promise(None), Promise(future())).may_wait()


@pytest.mark.parametrize(
    ("disk_says", "replicas_say", "told"),
    [
        (True, True, ResponseCode.SUCCESS),
        (False, True, ResponseCode.FLUSH_DISK_TIMEOUT),
        (True, False, ResponseCode.FLUSH_SLAVE_TIMEOUT),
        (False, False, ResponseCode.FLUSH_SLAVE_TIMEOUT),
        (None, False, ResponseCode.FLUSH_SLAVE_TIMEOUT),
        (None, True, ResponseCode.SUCCESS),
        (False, None, ResponseCode.FLUSH_DISK_TIMEOUT),
    ],
)
async def test_both_must_agree_and_the_replicas_failure_wins(
    disk_says: bool | None, replicas_say: bool | None, told: ResponseCode
) -> None:
    disk = Promise(None if disk_says is None else future())
    replicas = Promise(None if replicas_say is None else future())
    outcome = acknowledgement(disk, replicas).outcome(1)
    assert outcome is not None
    for promise, says in ((replicas, replicas_say), (disk, disk_says)):
        if promise.future is not None:
            assert not outcome.done()
            promise.future.set_result(cast(Any, says))
            await asyncio.sleep(0)
    assert await outcome is told


async def test_a_cancelled_wait_is_no_success() -> None:
    waiting = future()
    outcome = acknowledgement(Promise(None), Promise(waiting)).outcome(1)
    waiting.cancel()
    assert outcome is not None and await outcome is ResponseCode.FLUSH_SLAVE_TIMEOUT


def test_too_few_replicas_are_said_before_anything_is_stored() -> None:
    assert acknowledgement(Promise(None)).refusal() is None
    assert acknowledgement(Promise(None), Promise(None)).refusal() == "in-sync replicas not enough"
