"""Parked pulls: who wakes them, and when."""

import asyncio
from dataclasses import dataclass, field

import pytest

from maxq.broker.longpolling.pull_request_hold_service import HeldPull, PullRequestHoldService
from maxq.codes import ResponseCode
from maxq.errors import RequestRefusedError
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.pull import PullMessageRequestHeader
from maxq.testing.sim_clock import SimClock
from maxq.testing.simulation import SimWorld, run_simulation


@dataclass
class Queue:
    topic: str
    queue_id: int


@dataclass
class Store:
    watched: set[tuple[str, int]] = field(default_factory=set)
    max_offsets: dict[tuple[str, int], int] = field(default_factory=dict)

    def watch(self, topic: str, queue_id: int) -> None:
        self.watched.add((topic, queue_id))

    def max_offset(self, topic: str, queue_id: int) -> int:
        return self.max_offsets.get((topic, queue_id), 0)


@dataclass(eq=False)
class Peer:
    """Stands for a Connection."""

    is_closed: bool = False
    sent: list[RemotingCommand] = field(default_factory=list)

    def send(self, command: RemotingCommand) -> None:
        self.sent.append(command)


class Waiting:
    """A hold service whose replays are recorded and end as the test says."""

    def __init__(self) -> None:
        self.clock = SimClock()
        self.store = Store()
        self.service = PullRequestHoldService(self.store, clock=self.clock, long_polling=lambda: True)
        self.replays: list[tuple[HeldPull, bool]] = []
        self.answer = True
        self.advance_to = 0
        self.fail: Exception | None = None

    def replay(self, held: HeldPull, last: bool) -> bool:
        self.replays.append((held, last))
        if self.fail is not None:
            raise self.fail
        held.offset = max(held.offset, self.advance_to)
        return self.answer or last

    def park(self, peer: Peer, topic: str = "T", queue_id: int = 0, offset: int = 0, wait_ms: int = 15_000) -> HeldPull:
        header = PullMessageRequestHeader("G", topic, queue_id, offset, 32, 2, 0, wait_ms, 0)
        held = HeldPull(
            peer,  # type: ignore[arg-type]
            RemotingCommand(11, opaque=7),
            header,
            (topic, queue_id),
            offset,
            offset,
            self.clock.monotonic_ms() + wait_ms,
            self.replay,
        )
        self.service.hold(held)
        return held


def test_arrival_on_its_queue_wakes_a_pull_and_no_other() -> None:
    waiting = Waiting()
    mine = waiting.park(Peer(), queue_id=1)
    waiting.park(Peer(), queue_id=2)
    waiting.service.messages_arrived([Queue("T", 1), Queue("U", 2)])
    assert waiting.replays == [(mine, False)]
    assert waiting.service.held_count == 1


def test_store_is_asked_to_watch_a_queue_again_while_somebody_still_waits_for_it() -> None:
    waiting = Waiting()
    waiting.park(Peer())
    assert waiting.store.watched == {("T", 0)}
    waiting.answer = False
    waiting.store.watched.clear()  # the store says it once
    waiting.service.messages_arrived([Queue("T", 0)])
    assert waiting.store.watched == {("T", 0)}
    waiting.answer = True
    waiting.store.watched.clear()
    waiting.service.messages_arrived([Queue("T", 0)])
    assert waiting.store.watched == set()


def test_pull_that_stays_after_an_arrival_is_woken_by_the_next() -> None:
    waiting = Waiting()
    waiting.answer = False
    held = waiting.park(Peer())
    waiting.service.messages_arrived([Queue("T", 0)])
    assert waiting.service.held_count == 1
    waiting.answer = True
    waiting.service.messages_arrived([Queue("T", 0)])
    assert waiting.replays == [(held, False), (held, False)]
    assert waiting.service.held_count == 0


async def test_time_over_means_a_last_replay_within_half_a_second() -> None:
    waiting = Waiting()
    waiting.answer = False
    held = waiting.park(Peer(), wait_ms=15_000)
    waiting.clock.advance_ms(14_900)
    await waiting.service.expire()
    assert waiting.replays == []
    waiting.clock.advance_ms(600)
    await waiting.service.expire()
    assert waiting.replays == [(held, True)]
    assert waiting.service.held_count == 0


async def test_pull_with_no_time_left_is_answered_at_the_next_look() -> None:
    waiting = Waiting()
    waiting.clock.advance_ms(60_000)
    await waiting.service.expire()
    waiting.park(Peer(), wait_ms=0)
    waiting.clock.advance_ms(500)
    await waiting.service.expire()
    assert waiting.service.held_count == 0


async def test_safety_net_finds_messages_that_nobody_announced() -> None:
    waiting = Waiting()
    held = waiting.park(Peer(), offset=5)
    waiting.store.max_offsets["T", 0] = 5
    await waiting.service.check()
    assert waiting.replays == []
    waiting.store.max_offsets["T", 0] = 6
    await waiting.service.check()
    assert waiting.replays == [(held, False)]


async def test_safety_net_answers_a_pull_whose_filter_let_its_offset_move() -> None:
    waiting = Waiting()
    waiting.answer = False
    waiting.advance_to = 9
    held = waiting.park(Peer(), offset=5)
    waiting.service.messages_arrived([Queue("T", 0)])
    assert (held.offset, held.first_offset, waiting.service.held_count) == (9, 5, 1)
    waiting.store.max_offsets["T", 0] = 9
    await waiting.service.check()
    assert waiting.replays[-1] == (held, True)
    assert waiting.service.held_count == 0


async def test_closed_connections_take_their_pulls_along() -> None:
    waiting = Waiting()
    gone, stays = Peer(), Peer()
    waiting.park(gone)
    waiting.park(gone, queue_id=1)
    kept = waiting.park(stays)
    waiting.service.drop(gone)  # type: ignore[arg-type]
    assert waiting.service.held_count == 1
    stays.is_closed = True  # a close nobody told of
    waiting.service.messages_arrived([Queue("T", 0)])
    assert waiting.replays == []
    assert waiting.service.held_count == 0 and kept.answered


def test_failed_replay_is_answered_with_an_error_and_the_others_go_on() -> None:
    waiting = Waiting()
    waiting.fail = ValueError("broken queue")
    first, second = Peer(), Peer()
    waiting.park(first)
    waiting.park(second)
    waiting.service.messages_arrived([Queue("T", 0)])
    for peer in (first, second):
        (answer,) = peer.sent
        assert (answer.code, answer.opaque) == (1, 7)
        assert "broken queue" in (answer.remark or "")
    assert waiting.service.held_count == 0


def test_parked_pull_that_is_refused_gets_the_code_that_it_would_have_got_at_once() -> None:
    waiting = Waiting()
    waiting.fail = RequestRefusedError(ResponseCode.NO_PERMISSION, "the topic may not be read")
    peer = Peer()
    waiting.park(peer)
    waiting.service.messages_arrived([Queue("T", 0)])
    (answer,) = peer.sent
    assert (answer.code, answer.remark, answer.opaque) == (ResponseCode.NO_PERMISSION, "the topic may not be read", 7)
    assert waiting.service.held_count == 0


def test_role_change_looks_at_everybody() -> None:
    waiting = Waiting()
    waiting.park(Peer(), topic="A")
    waiting.park(Peer(), topic="B")
    waiting.service.notify_all()
    assert len(waiting.replays) == 2


async def test_stopped_service_keeps_nothing() -> None:
    waiting = Waiting()
    waiting.service.start()
    waiting.park(Peer())
    await waiting.service.stop()
    assert waiting.service.held_count == 0


@pytest.mark.parametrize("count", [1, 5_000])
def test_answered_pulls_leave_nothing_behind(count: int) -> None:
    waiting = Waiting()
    peer = Peer()
    for _ in range(count):
        waiting.park(peer)
        waiting.service.messages_arrived([Queue("T", 0)])
    service = waiting.service
    assert not service._by_queue and not service._by_connection and not service._by_deadline


def test_everybody_is_answered_by_a_role_change_also_who_found_nothing() -> None:
    waiting = Waiting()
    waiting.answer = False
    waiting.park(Peer())
    waiting.service.notify_all()
    assert [last for _, last in waiting.replays] == [True]
    assert waiting.service.held_count == 0


@pytest.mark.parametrize("round_", ["check", "expire"])
def test_a_round_that_fails_is_logged_and_the_next_one_comes(
    round_: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(world: SimWorld) -> int:
        waiting = Waiting()
        rounds = 0

        async def fail() -> None:
            nonlocal rounds
            rounds += 1
            raise KeyError("a queue that is gone")

        monkeypatch.setattr(waiting.service, round_, fail)
        waiting.service.start()
        await asyncio.sleep(12)
        await waiting.service.stop()
        return rounds

    assert run_simulation(story, seed=1) >= 2
    assert "a queue that is gone" in caplog.text


async def test_many_pulls_of_one_queue_are_answered_in_turns_of_the_loop() -> None:
    waiting, peer = Waiting(), Peer()
    for _ in range(5_000):
        waiting.park(peer)
    waiting.service.messages_arrived([Queue("T", 0)])
    assert 0 < len(waiting.replays) < 1_000, "the append goes on"
    before = len(waiting.replays)
    await asyncio.sleep(0)
    assert 0 < len(waiting.replays) - before < 1_000
    while waiting.service.held_count:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert len(waiting.replays) == 5_000


async def test_a_queue_that_grows_while_its_pulls_are_looked_at_is_looked_at_once_more() -> None:
    waiting, peer = Waiting(), Peer()
    waiting.answer = False
    for _ in range(1_000):
        waiting.park(peer)
    for _ in range(10):
        waiting.service.messages_arrived([Queue("T", 0)])
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(waiting.replays) == 2_000, "not ten rounds beside each other"
    waiting.answer = True
    waiting.service.messages_arrived([Queue("T", 0)])
    while waiting.service.held_count:  # noqa: ASYNC110
        await asyncio.sleep(0)


async def test_the_safety_net_looks_at_many_pulls_in_turns_of_the_loop() -> None:
    waiting, peer = Waiting(), Peer()
    waiting.store.max_offsets["T", 0] = 7
    for _ in range(5_000):
        waiting.park(peer)
    check = asyncio.ensure_future(waiting.service.check())
    await asyncio.sleep(0)
    assert 0 < len(waiting.replays) < 1_000
    await check
    assert len(waiting.replays) == 5_000
