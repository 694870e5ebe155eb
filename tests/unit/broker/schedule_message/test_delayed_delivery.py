"""One message that cannot be delivered, and several that are under way at a time."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from maxq.broker.schedule_message.delay_level_queue import DelayedUnit, DelayLevelQueue
from maxq.broker.schedule_message.delayed_delivery import DelayedDelivery, Put, Undelivered
from maxq.broker.schedule_message.level_delivery import LevelDelivery
from maxq.config.message_store_config import MessageStoreConfig
from maxq.protocol.message.message import MessageExt
from maxq.runtime.files.system import SystemClock
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.store_results import PutMessageResult, PutMessageStatus

UNIT = DelayedUnit(0, 0, 100, 0)
OK = PutMessageResult(PutMessageStatus.PUT_OK)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maxq.broker.schedule_message.delayed_delivery._AGAIN_STEP", 0.0)
    monkeypatch.setattr("maxq.broker.schedule_message.level_delivery._AFTER_FAILURE", 0.0)


def _delayed(number: int = 0, **properties: str) -> MessageExt:
    given = {"REAL_TOPIC": "T", "REAL_QID": "3", "DELAY": "1", **properties}
    return MessageExt("SCHEDULE_TOPIC_XXXX", b"%d" % number, {name: text for name, text in given.items() if text})


class _Store:
    """Answers puts from a list, and keeps what it was given."""

    def __init__(self, *answers: PutMessageResult | Exception) -> None:
        self.answers = list(answers)
        self.given: list[MessageExtBrokerInner] = []

    async def put(self, message: MessageExtBrokerInner) -> PutMessageResult:
        self.given.append(message)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize(
    "status",
    [
        PutMessageStatus.SERVICE_NOT_AVAILABLE,
        PutMessageStatus.OS_PAGE_CACHE_BUSY,
        PutMessageStatus.CREATE_MAPPED_FILE_FAILED,
        PutMessageStatus.PUT_TO_REMOTE_BROKER_FAIL,
    ],
)
async def test_what_the_store_cannot_take_now_is_tried_again(status: PutMessageStatus) -> None:
    store = _Store(*[PutMessageResult(status)] * 7, OK)
    assert await DelayedDelivery(1, UNIT, lambda _: _delayed(), store.put).run() is OK
    assert len(store.given) == 8
    assert (store.given[0].topic, store.given[0].queue_id) == ("T", 3)
    assert "DELAY" not in store.given[0].properties and b"DELAY" in store.given[0].encoded_properties()


@pytest.mark.parametrize("status", [PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED])
async def test_what_the_store_will_never_take_is_given_up_at_once(
    status: PutMessageStatus, caplog: pytest.LogCaptureFixture
) -> None:
    store = _Store(PutMessageResult(status, remark="too large"))
    given_up = await DelayedDelivery(4, UNIT, lambda _: _delayed(), store.put).run()
    assert given_up == Undelivered(f"{status.name} too large", is_final=True)
    assert "delayed message 0 of level 4 (physical offset 0, 100 bytes) is not delivered" in caplog.text


@pytest.mark.parametrize(
    "record",
    [
        None,
        _delayed(REAL_TOPIC=""),
        _delayed(REAL_QID=""),
        _delayed(REAL_QID="-1"),
        _delayed(REAL_TOPIC="RMQ_SYS_TRANS_HALF_TOPIC"),
        _delayed(REAL_TOPIC="SCHEDULE_TOPIC_XXXX"),
        _delayed(REAL_TOPIC="RMQ_SYS_TRANS_OP_HALF_TOPIC"),
        replace(
            _delayed(),
            sys_flag=0xC,
            properties={"MAXQ_DAMAGED": "100", "REAL_TOPIC": "rmq_sys_maxq_damaged", "REAL_QID": "0"},
        ),
    ],
)
async def test_record_that_does_not_say_where_to_is_given_up(record: MessageExt | None) -> None:
    result = await DelayedDelivery(1, UNIT, lambda _: record, _Store().put).run()
    assert isinstance(result, Undelivered) and result.is_final


@pytest.mark.parametrize("busy", [0, 2, 7])
async def test_a_failure_of_ours_gives_nothing_up_however_often_the_store_was_busy_before(busy: int) -> None:
    store = _Store(*[PutMessageResult(PutMessageStatus.OS_PAGE_CACHE_BUSY)] * busy, RuntimeError("bug"))
    result = await DelayedDelivery(1, UNIT, lambda _: _delayed(), store.put).run()
    assert result == Undelivered("RuntimeError: bug", is_final=False)


async def test_what_no_other_broker_group_takes_is_postponed() -> None:
    """It may be the only message whose topic no other group has."""
    store = _Store(PutMessageResult(PutMessageStatus.NO_REMOTE_BROKER_TAKES_IT, remark="nobody"))
    result = await DelayedDelivery(1, UNIT, lambda _: _delayed(), store.put).run()
    assert result == Undelivered("NO_REMOTE_BROKER_TAKES_IT nobody", is_final=False)


async def test_a_level_goes_on_without_what_is_postponed_and_waits_when_no_more_can_be() -> None:
    done: list[tuple[int, bool]] = []
    room = 1

    async def put(message: MessageExtBrokerInner) -> PutMessageResult:
        if message.body in (b"0", b"2") and room:
            raise RuntimeError("bug")
        return OK

    def delivered(level: int, unit: DelayedUnit, result: PutMessageResult | Undelivered) -> None:
        nonlocal room
        done.append((unit.queue_offset, result is OK))
        room -= result is not OK

    owner = _Owner(put, delivered, may_postpone=lambda: room > 0)
    level = LevelDelivery(1, DelayLevelQueue(_Queue(4), 1000, SystemClock(), 0), owner)
    task = asyncio.create_task(level.run())
    async with asyncio.timeout(20):
        while len(done) < 4:  # noqa: ASYNC110 - turns of the loop
            await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert done == [(0, False), (1, True), (2, True), (3, True)]


class _Queue:
    """Messages 0 … count - 1, all due."""

    min_offset = 0

    def __init__(self, count: int) -> None:
        self.max_offset = count

    def units(self, offset: int, most: int) -> list[tuple[int, int, int]]:
        return [(at, 100, 0) for at in range(offset, min(offset + most, self.max_offset))]


class NoFastPath:
    """Nothing is delivered from record to record."""

    def is_possible(self) -> bool:
        return False

    def deliver(self, physical_offset: int) -> int:
        raise AssertionError("asked although it is not possible")

    def delivered(self) -> None:
        raise AssertionError("nothing was")


@dataclass
class _Owner:
    """Whom a level asks and tells: answers put and deliveries as a test wants them."""

    put: Put
    on_delivered: Callable[[int, DelayedUnit, PutMessageResult | Undelivered], None]
    config: Callable[[], MessageStoreConfig] = MessageStoreConfig
    is_local: Callable[[], bool] = lambda: True
    may_postpone: Callable[[], bool] = lambda: True
    is_sure: Callable[[], bool] = lambda: True
    fast_path: NoFastPath = field(default_factory=NoFastPath)

    def message_at(self, physical_offset: int) -> MessageExt | None:
        return _delayed(physical_offset)

    def on_delivered_together(self, level: int, next_offset: int, messages: int, size: int) -> None:
        raise AssertionError("nothing is delivered together")


class _Remote:
    """A broker elsewhere: answers when told to, in any order."""

    def __init__(self) -> None:
        self.waiting: dict[int, asyncio.Future[PutMessageResult]] = {}
        self.done: list[int] = []
        self.changed = asyncio.Event()

    async def put(self, message: MessageExtBrokerInner) -> PutMessageResult:
        future = self.waiting[int(bytes(message.body))] = asyncio.get_running_loop().create_future()
        self.changed.set()
        return await future

    def delivered(self, level: int, unit: DelayedUnit, result: PutMessageResult | Undelivered) -> None:
        self.done.append(unit.queue_offset + 1)
        self.changed.set()

    async def until_waiting(self, *numbers: int) -> None:
        async with asyncio.timeout(20):
            while self.waiting.keys() != set(numbers):
                self.changed.clear()
                await self.changed.wait()

    async def until_done(self, *offsets: int) -> None:
        async with asyncio.timeout(20):
            while self.done != list(offsets):
                self.changed.clear()
                await self.changed.wait()


@pytest.mark.parametrize("together", [False, True])
async def test_messages_under_way_to_another_broker(together: bool) -> None:
    config = replace(
        MessageStoreConfig(), enable_schedule_async_deliver=together, schedule_async_deliver_max_pending_limit=3
    )
    remote = _Remote()
    owner = _Owner(remote.put, remote.delivered, config=lambda: config, is_local=lambda: False)
    level = LevelDelivery(1, DelayLevelQueue(_Queue(5), 1000, SystemClock(), 0), owner)
    task = asyncio.create_task(level.run())
    try:
        if not together:
            await remote.until_waiting(0)
            remote.waiting.pop(0).set_result(OK)
            await remote.until_waiting(1)
            assert remote.done == [1]
            return
        await remote.until_waiting(0, 1, 2)  # as many as may be
        remote.waiting.pop(1).set_result(OK)
        assert remote.done == []  # the first is not there: the offset stays
        remote.waiting.pop(0).set_result(OK)
        await remote.until_done(1, 2)
        await remote.until_waiting(2, 3, 4)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_what_comes_while_another_is_delivered_is_not_overlooked_until_the_next_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is announced while its level delivers, and in its queue only later: with SYNC_FLUSH when it is on the disk."""
    monkeypatch.setattr("maxq.broker.schedule_message.level_delivery._IDLE_WAIT", 3600.0)
    remote, queue = _Remote(), _Queue(1)
    owner = _Owner(remote.put, remote.delivered)
    level = LevelDelivery(1, DelayLevelQueue(queue, 1000, SystemClock(), 0), owner)
    task = asyncio.create_task(level.run())
    try:
        await remote.until_waiting(0)
        level.wake()
        remote.waiting.pop(0).set_result(OK)
        await remote.until_done(1)
        for _ in range(10):  # turns of the loop, until the level has found its queue empty
            await asyncio.sleep(0)
        queue.max_offset = 2
        await remote.until_waiting(1)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_level_of_a_broker_that_may_have_been_replaced_waits_until_it_is_sure() -> None:
    """Its stand-in may have delivered what is due."""
    remote, doubts = _Remote(), [True]
    asked = 0

    def is_sure() -> bool:
        nonlocal asked
        asked += 1
        return not doubts

    owner = _Owner(remote.put, remote.delivered, is_sure=is_sure)
    level = LevelDelivery(1, DelayLevelQueue(_Queue(2), 1000, SystemClock(), 0), owner)
    task = asyncio.create_task(level.run())
    async with asyncio.timeout(20):
        while asked < 6:  # noqa: ASYNC110 - turns of the loop
            await asyncio.sleep(0.01)
        assert not remote.waiting and not remote.done
        doubts.clear()
        while not remote.waiting and not remote.done:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    task.cancel()
