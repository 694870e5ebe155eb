"""Refusing requests that have waited too long, and limiting the number of unfinished ones (BrokerFastFailure.java, the
pools of BrokerController.java).

RocketMQ gives each kind of request a thread pool, so that one kind cannot starve the others, and every 10 ms drops the
heads of the pools' queues that grew too old. Here one loop does everything in arrival order. The purposes of the pools
are reached differently:

* **No kind monopolises the loop.** A connection is served one arrival (at most one receive buffer) at a time, then the
  loop goes on to the next; a flood on one connection delays another one by one arrival, not by its whole backlog.
  Blocking work (flushes, cold reads, file creation and deletion) runs in the executor. Long walks (statistics, parked
  pulls, clean-up) are cut into slices that let the loop turn between them.
* **Unfinished work is bounded by kind**, with the capacities of RocketMQ's pools (`sendThreadPoolQueueCapacity` …):
  sends that wait for the disk, pulls whose bytes come from the disk, replies on their way to clients. A request above
  the limit of its kind is answered with code 2 `[OVERLOAD]…`; other kinds are not affected. Parked pulls have a bound
  of their own.
* **What waited is refused.** A request waits where RocketMQ's would sit in a queue: behind the other arrivals of the
  same turn of the loop. One that is reached later than the limit of its kind (`waitTimeMillsInSendQueue` …) after the
  turn's first is answered `[TIMEOUT_CLEAN_QUEUE]…`, so that its client goes to another broker in time. Requests are
  refused only from the second such turn in a row on: after a single stall everything is done in a moment, and refusals
  would not help. When one append took longer than `osPageCacheBusyTimeOutMills`, the sends behind it in that turn are
  answered `[PCBUSY_CLEAN_QUEUE]…`.

Every refusal counts (`refused`), also of one-way requests, which nobody else would notice.
"""

import asyncio
import logging

from maxq.broker.stats.put_times import PutTimes
from maxq.codes import RequestCode
from maxq.config.settings import BrokerSettings
from maxq.lazy_dataclass import dataclass
from maxq.protocol.frame.header_fields import camel_case
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.server import Connection
from maxq.runtime.interfaces import Clock
from maxq.runtime.refusals import Cause, Refusals, cause_of, explain

log = logging.getLogger(__name__)

_IN_A_ROW_MS = 100  # turns with a longer pause between them are not "in a row"
_PAGE_CACHE_BUSY_CEILING_MS = 10_000_000  # above this Java's counter means "no lock taken", not "busy"


@dataclass(slots=True)
class RequestKind:
    """One kind of request: its settings, and the number of requests that were taken and not answered yet."""

    name: str
    capacity_setting: str = ""  # attribute of BrokerConfig; empty: nothing of this kind is ever unfinished
    wait_setting: str = ""  # attribute of BrokerConfig, ms; empty: no limit
    unfinished: str = ""  # in words, what the requests of this kind wait for
    count: int = 0
    peak: int = 0

    def enter(self, count: int = 1) -> None:
        self.count += count
        if self.count > self.peak:
            self.peak = self.count

    def leave(self, count: int = 1) -> None:
        assert self.count >= count, f"more {self.name} requests ended than began"
        self.count -= count


class FastFailure:
    """Decides whether a request must be refused now, and why. One per broker; `gate` is its server's."""

    def __init__(self, settings: BrokerSettings, *, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._turn_began_ms = -1  # monotonic time at which the turn that is watched began, or the last watched one
        self._is_watched = False  # this turn is watched: `_end_turn` runs when it ends
        self._slow_append_ms = 0  # time of this turn's slow append; 0: there was none
        self._last_turn_ms = 0  # duration of the previous turn in ms; 0 if it was long ago
        self._last_turn_ended_ms = -_IN_A_ROW_MS
        self.sends = RequestKind(
            "send", "send_thread_pool_queue_capacity", "wait_time_mills_in_send_queue", "wait for the disk"
        )
        self.pulls = RequestKind(
            "pull", "pull_thread_pool_queue_capacity", "wait_time_mills_in_pull_queue", "are read from the disk"
        )
        self.lite_pulls = RequestKind("lite pull", "", "wait_time_mills_in_lite_pull_queue")
        self.replies = RequestKind(
            "reply", "reply_thread_pool_queue_capacity", "", "are being pushed to the clients that asked"
        )
        self.heartbeats = RequestKind("heartbeat", "", "wait_time_mills_in_heartbeat_queue")
        self.rest = RequestKind("admin", "", "wait_time_mills_in_admin_broker_queue")
        self._kinds: dict[int, RequestKind] = {
            RequestCode.SEND_MESSAGE: self.sends,
            RequestCode.SEND_MESSAGE_V2: self.sends,
            RequestCode.SEND_BATCH_MESSAGE: self.sends,
            RequestCode.PULL_MESSAGE: self.pulls,
            RequestCode.LITE_PULL_MESSAGE: self.lite_pulls,
            RequestCode.SEND_REPLY_MESSAGE: self.replies,
            RequestCode.SEND_REPLY_MESSAGE_V2: self.replies,
            RequestCode.HEART_BEAT: self.heartbeats,
        }
        self.refused = Refusals()
        self.put_times = PutTimes()

    def gate(self, connection: Connection, request: RemotingCommand) -> str | None:
        """Return the remark of an answer with code 2 if this request must be refused; None if it may go on."""
        if not self._is_watched:
            self._watch(self._clock.monotonic_ms())
        remark = self._refusal(self._kinds.get(request.code, self.rest))
        if remark is not None:
            self.refused.count(cause_of(remark) or Cause.OVERLOAD, remark, oneway=request.is_oneway)
        return remark

    def refuse_send(self) -> str | None:
        """Return the remark of `gate` for a send that is not decoded yet. Nothing is counted, because the processor
        calls `gate` again."""
        if not self._is_watched:
            now_ms = self._clock.monotonic_ms()
            # To hear of a turn's end costs a lone send a tenth of its time: one turn a millisecond is watched.
            if now_ms != self._turn_began_ms:
                self._watch(now_ms)
            elif not self.sends.count:
                return None
        return self._refusal(self.sends)

    def append_took(self, milliseconds: int) -> None:
        """Note how long one append blocked the log. Above osPageCacheBusyTimeOutMills the sends behind it in this turn
        are refused."""
        self.put_times.took(milliseconds)
        if milliseconds == 0:
            return
        if not self._is_watched:
            self._watch(self._clock.monotonic_ms() - milliseconds)
        limit_ms = self._settings.store.os_page_cache_busy_time_out_mills
        if limit_ms < milliseconds < _PAGE_CACHE_BUSY_CEILING_MS:
            self._slow_append_ms = milliseconds
            log.warning("an append took %d ms, osPageCacheBusyTimeOutMills is %d", milliseconds, limit_ms)

    def head_wait_ms(self) -> int:
        """Return how long, in ms, the requests of this turn have waited, as water marks and runtime info show it."""
        return self._clock.monotonic_ms() - self._turn_began_ms if self._is_watched else 0

    def unfinished(self) -> list[RequestKind]:
        """Return the kinds of requests of which some are unfinished."""
        return [kind for kind in (self.sends, self.pulls, self.replies) if kind.count]

    def report(self) -> None:
        """Log the refusals since the last report; called every second."""
        self.refused.report()

    def answered(self, request: RemotingCommand, response: RemotingCommand) -> None:
        """Count a refusal among the answers of a processor, together with those of `gate`."""
        if response.code:
            self.refused.heard(response.remark, oneway=request.is_oneway)

    def _refusal(self, kind: RequestKind) -> str | None:
        if kind.count:
            capacity: int = getattr(self._settings.broker, kind.capacity_setting)
            if kind.count >= capacity:
                return explain(
                    Cause.OVERLOAD,
                    f"system busy, start flow control for a while: {kind.count} {kind.name} requests {kind.unfinished}",
                    limit=f"{capacity} ({camel_case(kind.capacity_setting)})",
                    remedy="retry later or elsewhere",
                )
        waited_ms = self._clock.monotonic_ms() - self._turn_began_ms
        if waited_ms == 0 or not self._settings.broker.broker_fast_failure_enable:
            return None
        return self._waited_too_long(kind, waited_ms)

    def _watch(self, began_ms: int) -> None:
        """Note that this turn of the loop began at `began_ms`: requests reached later in it have waited since then."""
        self._turn_began_ms = began_ms
        self._is_watched = True
        if began_ms - self._last_turn_ended_ms >= _IN_A_ROW_MS:
            self._last_turn_ms = 0
        # Runs before the next arrivals are read, so it marks the end of exactly this turn.
        asyncio.get_running_loop().call_soon(self._end_turn)

    def _waited_too_long(self, kind: RequestKind, waited_ms: int) -> str | None:
        wait = (
            f"broker busy, start flow control for a while, period in queue: {waited_ms}ms, size of queue: {kind.count}"
        )
        if kind is self.sends and self._slow_append_ms:
            limit_ms = self._settings.store.os_page_cache_busy_time_out_mills
            return explain(
                Cause.PCBUSY_CLEAN_QUEUE,
                f"{wait}; one append took {self._slow_append_ms} ms",
                limit=f"{limit_ms} (osPageCacheBusyTimeOutMills)",
                remedy="the disk is too slow, send less or elsewhere",
            )
        if not kind.wait_setting:
            return None
        limit_ms = getattr(self._settings.broker, kind.wait_setting)
        if waited_ms <= limit_ms or self._last_turn_ms <= limit_ms:
            return None
        return explain(
            Cause.TIMEOUT_CLEAN_QUEUE,
            wait,
            limit=f"{limit_ms} ({camel_case(kind.wait_setting)})",
            remedy="retry later or elsewhere",
        )

    def _end_turn(self) -> None:
        self._last_turn_ended_ms = self._clock.monotonic_ms()
        self._last_turn_ms = self._last_turn_ended_ms - self._turn_began_ms
        self._is_watched = False
        self._slow_append_ms = 0
