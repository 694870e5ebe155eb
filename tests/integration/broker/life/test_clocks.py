"""A broker, or a client, whose wall clock is years off."""

import pytest

from maxq.codes import RequestCode, ResponseCode
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.send import RecallMessageRequestHeader, SendMessageResponseHeader
from maxq.runtime.files.system import SystemClock
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import RunningBroker, until
from tests.integration.broker.pop.pop_world import ack, bodies, pop_all, popped

YEAR_MS = 365 * 24 * 3_600_000


class WallClocks:
    """The wall clocks of this process, which `off_ms` moves."""

    off_ms = 0


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> WallClocks:
    clocks, right = WallClocks(), SystemClock.wall_ms
    monkeypatch.setattr(SystemClock, "wall_ms", lambda clock: right(clock) + clocks.off_ms)
    return clocks


async def _filled(broker: RunningBroker, count: int) -> None:
    broker.create_topic("T", 1)
    for number in range(count):
        await broker.send("T", b"%d" % number)


@pytest.mark.parametrize("years", [-50, 50])
async def test_popped_messages_come_again_when_their_time_is_over(
    start_broker: Start, clocks: WallClocks, years: int
) -> None:
    broker = await start_broker()
    await _filled(broker, 3)
    given = await popped(broker, invisible_time=3_000)
    clocks.off_ms = years * YEAR_MS
    assert await pop_all(broker) == []
    await ack(broker, given[0])
    back: list[bytes] = []
    while len(back) < 2:
        back += bodies(await popped(broker, poll_time=5_000))
    assert sorted(back) == [b"1", b"2"]


async def _timed(broker: RunningBroker, body: bytes, delay_ms: int) -> str:
    """The handle by which a new timer message can be recalled."""
    reply = await broker.send("T", body, TIMER_DELAY_MS=str(delay_ms), UNIQ_KEY=body.decode())
    assert reply.code == ResponseCode.SUCCESS, reply.remark
    return SendMessageResponseHeader.decode(reply.ext).recall_handle or ""


async def _recall(broker: RunningBroker, handle: str) -> RemotingCommand:
    header = RecallMessageRequestHeader("T", handle, "PG")
    return await broker.invoke(RemotingCommand(RequestCode.RECALL_MESSAGE, header.encode()))


async def test_what_was_delivered_before_the_clock_was_set_back_is_not_recalled(
    start_broker: Start, clocks: WallClocks
) -> None:
    """What waits is: also what is due before the timer's time, and what has the key of the one that was delivered."""
    broker = await start_broker(recallMessageEnable="true", timerPrecisionMs="100")
    broker.create_topic("T", 1)
    gone, waits = await _timed(broker, b"gone", 200), await _timed(broker, b"waits", 60_000)
    await until(lambda: broker.controller.store.max_offset("T", 0) == 1)
    clocks.off_ms = -20_000
    for body, delay_ms in ((b"gone", 15_000), (b"new", 5_000)):
        answer = await _recall(broker, gone)
        assert answer.code == ResponseCode.ILLEGAL_OPERATION and "was delivered" in (answer.remark or "")
        assert (await _recall(broker, await _timed(broker, body, delay_ms))).code == ResponseCode.SUCCESS
    assert (await _recall(broker, waits)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("has_index", [True, False])
async def test_what_was_delivered_is_not_recalled_after_a_restart_that_followed_a_clock_set_back(
    start_broker: Start, clocks: WallClocks, has_index: bool
) -> None:
    """The timer's time has gone back, for a message is due before it."""
    settings = {
        "recallMessageEnable": "true", "timerPrecisionMs": "100", "messageIndexEnable": str(has_index).lower(),
    }  # fmt: skip
    broker = await start_broker(**settings)
    broker.create_topic("T", 1)
    gone = await _timed(broker, b"gone", 200)
    await until(lambda: broker.controller.store.max_offset("T", 0) == 1)
    timer = broker.controller.timed.service.timer
    before = timer.read_time_ms
    clocks.off_ms = -20_000
    await _timed(broker, b"new", 10_000)
    await until(lambda: timer.read_time_ms < before)
    await broker.stop()
    broker = await start_broker(**settings)
    answer = await _recall(broker, gone)
    told = "was delivered" if has_index else "messageIndexEnable is false"
    assert answer.code == ResponseCode.ILLEGAL_OPERATION and told in (answer.remark or "")
    waits = await _timed(broker, b"waits", 60_000)
    assert (await _recall(broker, waits)).code == ResponseCode.SUCCESS


async def test_an_operator_takes_back_a_timer_message_that_was_stored_before_the_clock_was_set_back(
    start_broker: Start, clocks: WallClocks
) -> None:
    broker = await start_broker()
    broker.create_topic("T", 1)
    await _timed(broker, b"waits", 60_000)
    clocks.off_ms = -20_000
    for code in (RequestCode.MAXQ_INSPECT_TIMER_MESSAGE, RequestCode.MAXQ_CANCEL_TIMER_MESSAGE):
        answer = await broker.invoke(RemotingCommand(code, {"key": "waits"}))
        assert answer.code == ResponseCode.SUCCESS, answer.remark


async def test_a_queue_in_order_is_not_blocked_for_years(start_broker: Start, clocks: WallClocks) -> None:
    broker = await start_broker()
    await _filled(broker, 3)
    assert len(await popped(broker, order=True, max_msg_nums=2, invisible_time=1_000)) == 2
    clocks.off_ms = -YEAR_MS
    assert await popped(broker, order=True, max_msg_nums=2, invisible_time=1_000) == []

    async def comes() -> bool:
        return bodies(await popped(broker, order=True, max_msg_nums=2, invisible_time=1_000)) == [b"0", b"1"]

    await until(comes)


@pytest.mark.parametrize("years", [-50, 50])
async def test_a_client_whose_clock_is_off_pops_and_waits(start_broker: Start, years: int) -> None:
    broker = await start_broker()
    await _filled(broker, 1)
    born_ms = SystemClock().wall_ms() + years * YEAR_MS
    assert len(await popped(broker, born_time=born_ms, poll_time=5_000)) == 1
    began_ms = SystemClock().monotonic_ms()
    assert await popped(broker, born_time=born_ms, poll_time=300) == []
    assert SystemClock().monotonic_ms() - began_ms >= 200
