"""Pulls that found nothing and may wait (PullRequestHoldService.java, NotifyMessageArrivingListener.java).

A parked pull hangs under its queue until one of four things happens:

* messages arrive: the store tells which queues grew, at the end of the append that made them readable, and the pull is
  answered in the same turn of the loop, or in one of the next where many wait for the queue;
* its time is over: it is answered with the messages that there are then, normally PULL_NOT_FOUND;
* the safety net, every five seconds (one second with `longPollingEnable=false`): a queue that has grown without an
  event is examined, and a pull whose offset moved past messages that its filter rejects is answered
  PULL_RETRY_IMMEDIATELY, so that its client's offset moves on too;
* its connection closes: forgotten.

When messages arrive and the filter takes none of them, the pull stays, and its offset moves behind them: they are not
looked at again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import field
from functools import partial
from typing import Protocol

from maxq.access.guard import Guard
from maxq.broker.fast_path.pull_answers_cy import PullPlan
from maxq.lazy_dataclass import dataclass
from maxq.protocol.frame.remoting_command import RemotingCommand, decode_frame
from maxq.protocol.header.pull import PullMessageRequestHeader
from maxq.remoting.endpoint import failure_reply
from maxq.remoting.server import Connection
from maxq.runtime.background import count_failure
from maxq.runtime.interfaces import Clock
from maxq.runtime.turns import Turns

log = logging.getLogger(__name__)

#: Pulls answered before other work of the loop gets its turn: 200 without filters take some 5 ms, one with a long
#: filter more.
_PULLS_PER_TURN = 200
_TURN_NS = 5_000_000
_CHECK_MS = 5_000
_SHORT_CHECK_MS = 1_000
_EXPIRY_MS = 500

QueueKey = tuple[str, int]


class ArrivingQueue(Protocol):
    """Interface of a queue that has grown (store/log/tails_cy.py, QueueTail)."""

    topic: str
    queue_id: int


class ArrivalStore(Protocol):
    """The part of MessageStore that reports arrivals."""

    def watch(self, topic: str, queue_id: int) -> None:
        """Report the next message that arrives in a queue, once."""
        ...


class WatchedStore(ArrivalStore, Protocol):
    """The part of MessageStore that parked pulls use."""

    def max_offset(self, topic: str, queue_id: int) -> int: ...


@dataclass(eq=False, slots=True)
class HeldPull:
    """A parked pull. `offset` is where it continues reading: `first_offset` or later.

    `again` tries to answer it. One that was not decoded has its frame, and what is remembered of its like, in place of
    request and header.
    """

    connection: Connection
    request: RemotingCommand | None
    header: PullMessageRequestHeader | None
    key: QueueKey
    first_offset: int
    offset: int
    deadline_ms: int  # monotonic
    again: "Replay"
    began_ms: int = field(default=0)  # monotonic
    answered: bool = field(default=False)
    slot: int = field(default=0)  # slot of the deadline table; set when the pull is parked
    frame: bytes = field(default=b"")  # the request's frame without its length
    plan: PullPlan | None = field(default=None)
    opaque: int = field(default=0)
    rules: object = field(default=None)  # rules of access control by which the request was allowed

    def asked(self) -> tuple[RemotingCommand, PullMessageRequestHeader]:
        """Return the request and its header, which are decoded from the frame when they are first asked for."""
        if self.request is None or self.header is None:
            self.request = decode_frame(memoryview(self.frame))
            self.header = PullMessageRequestHeader.decode(self.request.ext)
        return self.request, self.header


#: Try to answer a parked pull. `last`: answer with whatever there is. True: it was answered.
Replay = Callable[[HeldPull, bool], bool]


class PullRequestHoldService:
    """Keeps the pulls that found no message, until one arrives or their time is over (long polling)."""

    def __init__(
        self, store: WatchedStore, *, clock: Clock, long_polling: Callable[[], bool], guard: Guard | None = None
    ) -> None:
        """`guard` judges parked pulls again when rules have changed; None: there is no access control."""
        self._guard = guard
        self._store = store
        self._clock = clock
        self._long_polling = long_polling
        # Dictionaries used as ordered sets, so that a simulated run is the same every time.
        self._by_queue: dict[QueueKey, dict[HeldPull, None]] = {}
        self._by_connection: dict[Connection, dict[HeldPull, None]] = {}
        self._by_deadline: dict[int, dict[HeldPull, None]] = {}  # by half second, rounded up
        # queues that are looked at over several turns → whether the queue has grown since the first of them
        self._again: dict[QueueKey, bool] = {}
        self._expired_slot = clock.monotonic_ms() // _EXPIRY_MS
        self._tasks: list[asyncio.Task[None]] = []
        self.held_count = 0

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._check_forever()), loop.create_task(self._expire_forever())]

    async def stop(self) -> None:
        """Drop every parked pull; their clients notice when the connection closes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        for held in [held for parked in self._by_queue.values() for held in parked]:
            self._forget(held)

    def hold(self, held: HeldPull) -> None:
        """Park a pull until a message arrives in its queue or its deadline is reached."""
        if self._guard is not None:
            held.rules = self._guard.rules
        parked = self._by_queue.get(held.key)
        if parked is None:
            parked = self._by_queue[held.key] = {}
            self._store.watch(*held.key)
        parked[held] = None
        self._by_connection.setdefault(held.connection, {})[held] = None
        held.slot = max(-(-held.deadline_ms // _EXPIRY_MS), self._expired_slot + 1)
        self._by_deadline.setdefault(held.slot, {})[held] = None
        self.held_count += 1

    def messages_arrived(self, queues: Iterable[ArrivingQueue]) -> None:
        """Answer the pulls that wait for these queues, which grew. Called by the store during the append."""
        began_ns = 0
        for queue in queues:
            key = (queue.topic, queue.queue_id)
            parked = self._by_queue.get(key)
            if parked and began_ns and self._clock.monotonic_ns() - began_ns > _TURN_NS:
                asyncio.get_running_loop().call_soon(self._try_in_turns, key)
            elif parked:
                began_ns = began_ns or self._clock.monotonic_ns()
                if len(parked) == 1:
                    self._try_some(list(parked))
                else:
                    self._try_in_turns(key)
            if key in self._by_queue:
                self._store.watch(*key)

    def notify_all(self) -> None:
        """Answer every parked pull, because a role changed or a master is back: the answer names the broker to read
        from next."""
        pulls = [held for parked in self._by_queue.values() for held in parked]
        self._try_turn(pulls, 0, lambda: None, last=True)

    def drop(self, connection: Connection) -> None:
        """Forget the waiting pulls of a connection that was closed."""
        for held in list(self._by_connection.get(connection, ())):
            self._forget(held)

    def held_on(self, topic: str, queue_id: int) -> int:
        """Return how many pulls wait for this queue."""
        return len(self._by_queue.get((topic, queue_id), ()))

    # ---- answering --------------------------------------------------------------------------------------------

    def _try_in_turns(self, key: QueueKey) -> None:
        """Try all pulls that wait for a queue, in as many turns of the loop as that takes. Messages that arrive
        meanwhile are tried in one more round."""
        if key not in self._by_queue:
            return
        if key in self._again:
            self._again[key] = True
            return
        self._again[key] = False

        def done() -> None:
            if self._again.pop(key) and key in self._by_queue:
                self._try_in_turns(key)

        self._try_turn(list(self._by_queue[key]), 0, done)

    def _try_turn(self, pulls: list[HeldPull], start: int, done: Callable[[], None], *, last: bool = False) -> None:
        end = start + self._try_some(pulls[start : start + _PULLS_PER_TURN], last)
        if end < len(pulls):
            asyncio.get_running_loop().call_soon(partial(self._try_turn, pulls, end, done, last=last))
        else:
            done()

    def _try_some(self, pulls: list[HeldPull], last: bool = False) -> int:
        """Try these pulls until the turn's time is used up. Returns how many were tried."""
        began_ns = self._clock.monotonic_ns() if len(pulls) > 1 else 0
        for number, held in enumerate(pulls):
            if number and self._clock.monotonic_ns() - began_ns > _TURN_NS:
                return number
            if held.answered:
                continue
            try:
                done = held.connection.is_closed or self._refuses(held) or held.again(held, last)
            except Exception as error:  # one pull's failure is not the others', nor the append's that woke them
                request, _ = held.asked()
                held.connection.send(failure_reply(request, error))
                done = True
            if done:
                self._forget(held)
        return len(pulls)

    def _refuses(self, held: HeldPull) -> bool:
        """Refuse a parked request that changed rules no longer allow to wait. Returns whether it was refused."""
        guard = self._guard
        if guard is None or held.rules is guard.rules:
            return False
        refused = guard.again(held.connection, held.asked()[0], held.rules)
        if refused is not None:
            held.connection.send(refused)
            return True
        held.rules = guard.rules
        return False

    def _forget(self, held: HeldPull) -> None:
        held.answered = True
        parked = self._by_queue.get(held.key)
        if parked is None or held not in parked:  # a replay may have closed the connection, which forgets too
            return
        del parked[held]
        self.held_count -= 1
        if not parked:
            del self._by_queue[held.key]
        of_connection = self._by_connection[held.connection]
        del of_connection[held]
        if not of_connection:
            del self._by_connection[held.connection]
        of_slot = self._by_deadline[held.slot]
        del of_slot[held]
        if not of_slot:
            del self._by_deadline[held.slot]

    # ---- by time ----------------------------------------------------------------------------------------------

    async def _check_forever(self) -> None:
        while True:
            await asyncio.sleep((_CHECK_MS if self._long_polling() else _SHORT_CHECK_MS) / 1000)
            await _survive(self.check, "looking at the parked pulls")

    async def check(self) -> None:
        """Compare every queue with parked pulls with the store, in case a notification was missed."""
        done, turns = 0, Turns()
        for key in list(self._by_queue):
            parked = self._by_queue.get(key)
            if not parked:
                continue
            self._store.watch(*key)  # watch again: a queue that was deleted and made again is a new object
            max_offset = self._store.max_offset(*key)
            moved = [held for held in parked if held.offset > held.first_offset]
            behind = [held for held in parked if held.offset == held.first_offset and held.offset < max_offset]
            done += len(parked)
            for pulls, last in ((moved, True), (behind, False)):
                start = 0
                while start < len(pulls):
                    start += self._try_some(pulls[start : start + _PULLS_PER_TURN], last)
                    if start < len(pulls):
                        await asyncio.sleep(0)
            if done >= _PULLS_PER_TURN:
                done = 0
                await asyncio.sleep(0)
            await turns.rest()

    async def _expire_forever(self) -> None:
        while True:
            await asyncio.sleep(_EXPIRY_MS / 1000)
            await _survive(self.expire, "answering parked pulls whose time is over")

    async def expire(self) -> None:
        """Answer the pulls whose time has run out, at most half a second late."""
        now_slot = self._clock.monotonic_ms() // _EXPIRY_MS
        turns = Turns()
        while self._expired_slot < now_slot:
            self._expired_slot += 1
            for held in list(self._by_deadline.get(self._expired_slot, ())):
                self._try_some([held], last=True)
                await turns.rest()


async def _survive(round_: Callable[[], Awaitable[None]], what: str) -> None:
    """Run one round of a loop and log its failure: if the loop ended, parked pulls would never be answered."""
    try:
        await round_()
    except Exception:
        count_failure(what)
        log.exception("%s failed; it is tried again in the next round", what)


class HeldPullsOfClosed:
    """Forgets the parked pulls of connections that close."""

    def __init__(self, hold_service: PullRequestHoldService) -> None:
        self._hold_service = hold_service

    def on_connect(self, connection: Connection) -> None:
        pass

    def on_close(self, connection: Connection) -> None:
        self._hold_service.drop(connection)

    def on_idle(self, connection: Connection) -> None:
        pass

    def on_exception(self, connection: Connection) -> None:
        pass
