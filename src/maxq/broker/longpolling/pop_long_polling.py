"""PopLongPollingService: pops and notifications that found nothing and may wait.

A request waits under topic, group and queue (-1: any of the topic). It is tried again

* when messages arrive in a queue it waits for: in the next turn of the loop, for the append must end first;
* when messages of its topic were revived for its group, a queue consumed in order was unblocked, or another request of
  the group left messages over (`poke`);
* for the last time when its time is over.

Of the requests that wait for the same, the oldest is tried first; the next one only if that found something.

Source:
    broker/longpolling/{PopLongPollingService,PopRequest}.java.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import field
from enum import Enum, auto
from typing import Final

from maxq.access.guard import Guard
from maxq.broker.longpolling.pull_request_hold_service import ArrivalStore, ArrivingQueue
from maxq.config.settings import BrokerSettings
from maxq.lazy_dataclass import dataclass
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.endpoint import failure_reply
from maxq.remoting.server import Connection
from maxq.runtime.interfaces import Clock

ANY_QUEUE: Final = -1
_EARLY_MS: Final = 50  # an answer is sent this early, so that it reaches the client before it gives up
_TRIES_A_TURN: Final = 200
_TURN_NS: Final = 5_000_000

WaitKey = tuple[str, str, int]
"""Topic, group, queue id."""


class PollingResult(Enum):
    """The outcome for a request that asks to wait."""

    POLLING_SUC = auto()
    POLLING_FULL = auto()
    POLLING_TIMEOUT = auto()
    NOT_POLLING = auto()


@dataclass(eq=False, slots=True)
class PopRequest:
    """A parked request.

    Attributes:
        again: tries it; True: it was answered. Its second argument: answer with whatever there is.
        in_order: another one that waits for the same may get something where this one does not.
    """

    connection: Connection
    request: RemotingCommand
    key: WaitKey
    again: "Callable[[PopRequest, bool], bool]"
    in_order: bool = False
    timer: asyncio.TimerHandle | None = field(default=None)
    rules: object = field(default=None)  # rules of access control by which the request was allowed


class PopLongPollingService:
    """Parks requests of one kind (pops, or notifications) of one broker."""

    def __init__(
        self,
        store: ArrivalStore,
        *,
        settings: BrokerSettings,
        clock: Clock,
        queue_count: Callable[[str], int],
        guard: Guard | None = None,
    ) -> None:
        """
        Args:
            queue_count: returns the number of queues of a topic that clients may read; 0 if there is no such topic.
            guard: is asked again about waiting requests when rules have changed; None: there is no access control.
        """
        self._guard = guard
        self._store = store
        self._settings = settings
        self._clock = clock
        self._queue_count = queue_count
        self._parked: dict[WaitKey, dict[PopRequest, None]] = {}
        self._groups: dict[str, dict[str, int]] = {}  # by topic: groups that wait, and how many requests of each
        self._watched: set[tuple[str, int]] = set()
        self._pokes: dict[WaitKey, None] = {}
        self._working: asyncio.Handle | None = None
        self._is_stopped = False
        self.total = 0

    def waiting(self, key: WaitKey) -> int:
        """Returns how many requests wait under this key."""
        return len(self._parked.get(key, ()))

    # --- parking -----------------------------------------------------------------------------------------------------

    def polling(self, request: PopRequest, *, born_time: int, poll_time: int) -> PollingResult:
        """Park a request until `born_time` + `poll_time` (ms by its client's clock, but no longer than `poll_time` from
        now)."""
        if poll_time <= 0 or self._is_stopped or request.request.is_oneway:
            return PollingResult.NOT_POLLING
        broker = self._settings.broker
        if self.total >= broker.max_pop_polling_size or self.waiting(request.key) > broker.pop_polling_size:
            return PollingResult.POLLING_FULL
        wait_ms = min(born_time + poll_time - self._clock.wall_ms(), poll_time) - _EARLY_MS
        if wait_ms <= 0:
            return PollingResult.POLLING_TIMEOUT
        if self._guard is not None:
            request.rules = self._guard.rules
        self._parked.setdefault(request.key, {})[request] = None
        topic, group, queue_id = request.key
        groups = self._groups.setdefault(topic, {})
        groups[group] = groups.get(group, 0) + 1
        self.total += 1
        request.timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._expire, request)
        self._watch(topic, range(self._queue_count(topic)) if queue_id == ANY_QUEUE else (queue_id,))
        return PollingResult.POLLING_SUC

    def _watch(self, topic: str, queue_ids: Iterable[int]) -> None:
        for queue_id in queue_ids:
            if (topic, queue_id) not in self._watched:
                self._watched.add((topic, queue_id))
                self._store.watch(topic, queue_id)

    def _forget(self, request: PopRequest) -> None:
        parked = self._parked[request.key]
        del parked[request]
        if not parked:
            del self._parked[request.key]
        topic, group, _ = request.key
        groups = self._groups[topic]
        groups[group] -= 1
        if not groups[group]:
            del groups[group]
        if not groups:
            del self._groups[topic]
        self.total -= 1
        if request.timer is not None:
            request.timer.cancel()

    def _is_parked(self, request: PopRequest) -> bool:
        return request in self._parked.get(request.key, ())

    # --- waking ------------------------------------------------------------------------------------------------------

    def messages_arrived(self, queues: Iterable[ArrivingQueue]) -> None:
        """Wake the requests that wait for queues that grew; the store calls this within the append."""
        for queue in queues:
            self._watched.discard((queue.topic, queue.queue_id))
            for group in self._groups.get(queue.topic, ()):
                self.poke(queue.topic, group, queue.queue_id)

    def poke(self, topic: str, group: str, queue_id: int = ANY_QUEUE) -> None:
        """Try the requests that wait for this queue or for any queue of the topic."""
        if group not in self._groups.get(topic, ()):
            return
        self._pokes[topic, group, queue_id] = None
        if self._working is None and not self._is_stopped:
            self._working = asyncio.get_running_loop().call_soon(self._work)

    def _work(self) -> None:
        try:
            self._work_a_turn()
        finally:
            self._working = None
            if self._pokes and not self._is_stopped:
                self._working = asyncio.get_running_loop().call_soon(self._work)

    def _work_a_turn(self) -> None:
        tries, began_ns = 0, self._clock.monotonic_ns()
        while self._pokes and tries < _TRIES_A_TURN and self._clock.monotonic_ns() - began_ns <= _TURN_NS:
            topic, group, queue_id = next(iter(self._pokes))
            del self._pokes[topic, group, queue_id]
            tries += self._try_all((topic, group, ANY_QUEUE))
            if queue_id != ANY_QUEUE:
                tries += self._try_all((topic, group, queue_id))
                if topic in self._groups:
                    self._watch(topic, (queue_id,))

    def _try_all(self, key: WaitKey) -> int:
        """Try the requests parked under `key`; returns how many were tried."""
        tries = 0
        for request in list(self._parked.get(key, ())):
            if not self._is_parked(request):
                continue
            tries += 1
            if not self._try(request, last=False) and not request.in_order:
                break
        return tries

    def _try(self, request: PopRequest, *, last: bool) -> bool:
        """Try to answer a request. Returns True if it need not wait longer."""
        if request.connection.is_closed:
            self._forget(request)
            return True
        try:
            done = self._refuses(request) or request.again(request, last)
        except Exception as error:  # one request's failure is not the others'
            request.connection.send(failure_reply(request.request, error))
            done = True
        if done and self._is_parked(request):
            self._forget(request)
        return done

    def _refuses(self, request: PopRequest) -> bool:
        """Refuse a parked request that changed rules no longer allow to wait. Returns whether it was refused."""
        guard = self._guard
        if guard is None or request.rules is guard.rules:
            return False
        refused = guard.again(request.connection, request.request, request.rules)
        if refused is not None:
            request.connection.send(refused)
            return True
        request.rules = guard.rules
        return False

    def _expire(self, request: PopRequest) -> None:
        request.timer = None
        if self._is_parked(request):
            self._try(request, last=True)

    def watch_again(self) -> None:
        """Process all parked requests again and watch their queues anew, because a queue that was deleted and made
        again is another object."""
        self._watched.clear()
        for topic, group, queue_id in list(self._parked):
            self._watch(topic, range(self._queue_count(topic)) if queue_id == ANY_QUEUE else (queue_id,))
            self.poke(topic, group, queue_id)

    def stop(self) -> None:
        """Forget all parked requests; their clients notice when the connection closes."""
        self._is_stopped = True
        if self._working is not None:
            self._working.cancel()
        for request in [request for parked in self._parked.values() for request in parked]:
            self._forget(request)
