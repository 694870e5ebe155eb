"""A broker, or a client, whose wall clock is years off."""

import pytest

from maxq.runtime.files.system import SystemClock
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import RunningBroker, until
from tests.integration.broker.pop.pop_world import ack, bodies, pop_all, popped

YEAR_MS = 365 * 24 * 3_600_000


class WallClocks:
    """Of this process: `off_ms` is added to what they say."""

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
