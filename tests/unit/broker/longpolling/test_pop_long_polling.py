"""Pops that wait: whom an arrival wakes, how long they wait, how many may."""

import asyncio
from dataclasses import dataclass, field

from maxq.broker.longpolling.pop_long_polling import PollingResult, PopLongPollingService, PopRequest
from maxq.codes import ResponseCode
from maxq.config.settings import BrokerSettings
from maxq.errors import RequestRefusedError
from maxq.protocol.frame.remoting_command import RemotingCommand

NOW_MS = 1_000_000


@dataclass
class World:
    """A service, what it watches, and who was tried."""

    tried: list[str] = field(default_factory=list)
    watched: list[tuple[str, int]] = field(default_factory=list)
    found: int = 0  # how many tries succeed
    settings: BrokerSettings = field(default_factory=BrokerSettings)

    def __post_init__(self) -> None:
        self.service = PopLongPollingService(self, settings=self.settings, clock=self, queue_count=lambda topic: 2)  # type: ignore[arg-type]

    def wall_ms(self) -> int:
        return NOW_MS

    def monotonic_ns(self) -> int:
        return NOW_MS * 1_000_000

    def watch(self, topic: str, queue_id: int) -> None:
        self.watched.append((topic, queue_id))

    def park(
        self, name: str, queue_id: int = -1, group: str = "G", born_ms: int = NOW_MS, poll_ms: int = 60_000,
        in_order: bool = False,
    ) -> PollingResult:  # fmt: skip
        def again(request: PopRequest, last: bool) -> bool:
            self.tried.append(name)
            if last:
                return True
            self.found -= 1
            return self.found >= 0

        request = PopRequest(Connection(), RemotingCommand(1), ("T", group, queue_id), again, in_order)  # type: ignore[arg-type]
        return self.service.polling(request, born_time=born_ms, poll_time=poll_ms)

    async def arrive(self, queue_id: int, found: int) -> None:
        self.found = found
        self.service.messages_arrived([Queue("T", queue_id)])
        await asyncio.sleep(0)
        await asyncio.sleep(0)


@dataclass
class Queue:
    """One that grew."""

    topic: str
    queue_id: int


class Connection:
    """Open; what is sent to it is kept."""

    is_closed = False

    def __init__(self) -> None:
        self.sent: list[RemotingCommand] = []

    def send(self, command: RemotingCommand) -> None:
        self.sent.append(command)


async def test_the_oldest_is_tried_first_and_the_next_one_only_if_that_found_something() -> None:
    world = World()
    for name in "abc":
        assert world.park(name) is PollingResult.POLLING_SUC
    await world.arrive(0, found=1)
    assert world.tried == ["a", "b"] and world.service.total == 2
    await world.arrive(1, found=0)
    assert world.tried == ["a", "b", "b"]


async def test_waiting_pop_that_is_refused_gets_the_code_that_it_would_have_got_at_once() -> None:
    world, connection = World(), Connection()

    def again(request: PopRequest, last: bool) -> bool:
        raise RequestRefusedError(ResponseCode.NO_PERMISSION, "the topic may not be read")

    request = PopRequest(connection, RemotingCommand(1, opaque=7), ("T", "G", -1), again, False)  # type: ignore[arg-type]
    world.service.polling(request, born_time=NOW_MS, poll_time=60_000)
    await world.arrive(0, found=1)
    (answer,) = connection.sent
    assert (answer.code, answer.remark, answer.opaque) == (ResponseCode.NO_PERMISSION, "the topic may not be read", 7)
    assert world.service.total == 0


async def test_in_order_everyone_is_tried() -> None:
    world = World()
    for name in "abc":
        world.park(name, in_order=True)
    await world.arrive(0, found=0)
    assert world.tried == ["a", "b", "c"]


async def test_who_waits_for_another_queue_is_not_tried_and_queues_are_watched_again() -> None:
    world = World()
    world.park("any")
    world.park("one", queue_id=1)
    assert world.watched == [("T", 0), ("T", 1)]
    await world.arrive(0, found=0)
    assert world.tried == ["any"]
    assert world.watched == [("T", 0), ("T", 1), ("T", 0)]


async def test_groups_do_not_share() -> None:
    world = World()
    world.park("a", group="A")
    world.park("b", group="B")
    await world.arrive(0, found=2)
    assert world.tried == ["a", "b"]


async def test_waiting_ends_with_its_time_however_far_ahead_the_clients_clock_is() -> None:
    world = World()
    assert world.park("late", born_ms=NOW_MS - 60_000) is PollingResult.POLLING_TIMEOUT
    assert world.park("not", poll_ms=0) is PollingResult.NOT_POLLING
    assert world.park("ahead", born_ms=NOW_MS + 3_600_000, poll_ms=80) is PollingResult.POLLING_SUC
    async with asyncio.timeout(20):
        while not world.tried:  # noqa: ASYNC110 - a timer of the loop
            await asyncio.sleep(0.01)
    assert world.tried == ["ahead"] and world.service.total == 0


async def test_limits_of_all_and_of_one_key() -> None:
    limits = {"popPollingSize": "1", "maxPopPollingSize": "3"}
    world = World(settings=BrokerSettings.from_properties(limits, source="t")[0])
    assert [world.park(name) for name in "ab"] == [PollingResult.POLLING_SUC] * 2
    assert world.park("c") is PollingResult.POLLING_FULL
    assert world.park("d", group="H") is PollingResult.POLLING_SUC
    assert world.park("e", group="I") is PollingResult.POLLING_FULL
    world.service.stop()
    assert world.service.total == 0


async def test_a_pop_that_goes_on_again_and_again_takes_one_turn_of_the_loop_at_a_time() -> None:
    """As one whose long filter rejects what it looks at."""
    world = World()
    now_ns = 0

    def look(request: PopRequest, last: bool) -> bool:
        nonlocal now_ns
        now_ns += 6_000_000
        world.service.poke("T", "G")
        return False

    world.monotonic_ns = lambda: now_ns  # type: ignore[method-assign]
    request = PopRequest(Connection(), RemotingCommand(1), ("T", "G", -1), look, in_order=False)  # type: ignore[arg-type]
    world.service.polling(request, born_time=NOW_MS, poll_time=60_000)
    world.service.poke("T", "G")
    turns = []
    for _ in range(8):
        before = now_ns
        await asyncio.sleep(0)
        turns.append((now_ns - before) // 6_000_000)
    world.service.stop()
    assert turns == [1] * 8
