"""Refusing what has waited too long, and bounding what is unfinished (BrokerFastFailure.java, the pools of
BrokerController.java; broker-api §19).

RocketMQ gives each kind of request a thread pool, so that one kind cannot starve the others, and every 10 ms drops the
heads of the pools' queues that grew too old. Here one loop does everything in arrival order. What the pools are for is
reached differently:

* **No kind monopolises the loop.** A connection is served one arrival (at most one receive buffer) at a time, then the
  loop goes on to the next; a flood on one connection delays another one by one arrival, not by its whole backlog. What
  blocks (flushes, cold reads, file creation and deletion) runs in the executor. Long walks (statistics, parked pulls,
  clean-up) are cut into slices that let the loop turn between them.
* **Unfinished work is bounded by kind**, with the capacities of RocketMQ's pools (`sendThreadPoolQueueCapacity` …):
  sends that wait for the disk, pulls that are parked or read from the disk, queries, replies to clients. What exceeds
  its bound is answered code 2 `[OVERLOAD]…`, and the other kinds do not notice. `InFlight` counts them.
* **What waited is refused.** A request waits where RocketMQ's would sit in a queue: behind the other arrivals of the
  same turn of the loop. A tick every 10 ms marks the turns; when a send is reached more than
  `waitTimeMillsInSendQueue` after its turn began, it is answered `[TIMEOUT_CLEAN_QUEUE]…`, so that its producer goes
  to another broker in time. When one append took longer than `osPageCacheBusyTimeOutMills`, the sends that piled up
  behind it in that turn are answered `[PCBUSY_CLEAN_QUEUE]…`.

Every refusal counts (`refused`), also of one-way sends, which nobody else would notice.
"""

import asyncio
import logging
from dataclasses import dataclass, field

from maxq.broker.stats.put_times import PutTimes
from maxq.config.settings import BrokerSettings
from maxq.runtime.interfaces import Clock

log = logging.getLogger(__name__)

TICK_MS = 10
_PAGE_CACHE_BUSY_CEILING_MS = 10_000_000  # above this Java's counter means "no lock taken", not "busy"
_REPORT_EVERY_MS = 1_000


@dataclass(slots=True)
class InFlight:
    """Requests of one kind that were taken and not yet answered."""

    name: str
    count: int = 0
    peak: int = 0

    def enter(self) -> None:
        self.count += 1
        if self.count > self.peak:
            self.peak = self.count

    def leave(self) -> None:
        assert self.count > 0, f"more {self.name} requests ended than began"
        self.count -= 1


@dataclass(slots=True)
class Refusals:
    """How many requests were refused, by cause (the word in brackets of the remark)."""

    by_cause: dict[str, int] = field(default_factory=dict)
    oneway_dropped: int = 0

    def count(self, cause: str, *, oneway: bool) -> None:
        self.by_cause[cause] = self.by_cause.get(cause, 0) + 1
        if oneway:
            self.oneway_dropped += 1


class FastFailure:
    """Says whether a send should be refused now, and why. One per broker."""

    def __init__(self, settings: BrokerSettings, *, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._turn_began_ms = clock.monotonic_ms()
        self._busy_until_turn_ms = -1  # turns that began before this had to wait behind a slow append
        self._slow_append_ms = 0
        self._handle: asyncio.TimerHandle | None = None
        self._last_report_ms = 0
        self._reported: dict[str, int] = {}
        self.sends = InFlight("send")
        self.pulls = InFlight("pull")
        self.queries = InFlight("query")
        self.replies = InFlight("reply")
        self.refused = Refusals()
        self.put_times = PutTimes()

    def start(self) -> None:
        """Begin to mark the turns of the running loop."""
        self._tick()

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def refuse_send(self) -> str | None:
        """The remark of a code 2 answer if a send that is reached now must be refused; None: go on.

        Ask once per arrival; costs two clock reads at most.
        """
        broker = self._settings.broker
        if self.sends.count >= broker.send_thread_pool_queue_capacity:
            return (
                f"[OVERLOAD]system busy, start flow control for a while: {self.sends.count} sends wait for the disk, "
                f"sendThreadPoolQueueCapacity is {broker.send_thread_pool_queue_capacity}; retry later or elsewhere"
            )
        if not broker.broker_fast_failure_enable or self._handle is None:
            return None
        waited_ms = self._clock.monotonic_ms() - self._turn_began_ms
        if self._turn_began_ms < self._busy_until_turn_ms:
            return (
                f"[PCBUSY_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: {waited_ms}ms, "
                f"size of queue: {self.sends.count}: one append took {self._slow_append_ms} ms, "
                f"osPageCacheBusyTimeOutMills is {self._settings.store.os_page_cache_busy_time_out_mills}"
            )
        limit_ms = broker.wait_time_mills_in_send_queue
        if waited_ms > limit_ms + TICK_MS:
            return (
                f"[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: {waited_ms}ms, "
                f"size of queue: {self.sends.count}, waitTimeMillsInSendQueue is {limit_ms}"
            )
        return None

    def append_took(self, milliseconds: int) -> None:
        """Tell how long one append held the log. Above osPageCacheBusyTimeOutMills the rest of this turn is refused."""
        self.put_times.took(milliseconds)
        limit_ms = self._settings.store.os_page_cache_busy_time_out_mills
        if limit_ms < milliseconds < _PAGE_CACHE_BUSY_CEILING_MS:
            self._busy_until_turn_ms = self._clock.monotonic_ms()
            self._slow_append_ms = milliseconds
            log.warning("an append took %d ms, osPageCacheBusyTimeOutMills is %d", milliseconds, limit_ms)

    def refuse(self, remark: str, *, oneway: bool) -> None:
        """Count a refusal whose remark begins with `[CAUSE]`."""
        cause = remark[1 : remark.index("]")] if remark.startswith("[") and "]" in remark else remark
        self.refused.count(cause, oneway=oneway)

    def head_wait_ms(self) -> int:
        """How long the requests of this turn have waited: what water marks and runtime info show."""
        if self._handle is None:
            return 0
        return max(0, self._clock.monotonic_ms() - self._turn_began_ms - TICK_MS)

    def _tick(self) -> None:
        now_ms = self._clock.monotonic_ms()
        self._turn_began_ms = now_ms
        if now_ms - self._last_report_ms >= _REPORT_EVERY_MS:
            self._last_report_ms = now_ms
            self._report()
        self._handle = asyncio.get_running_loop().call_later(TICK_MS / 1000, self._tick)

    def _report(self) -> None:
        if self.refused.by_cause == self._reported:
            return
        for cause, total in self.refused.by_cause.items():
            new = total - self._reported.get(cause, 0)
            if new:
                log.warning(
                    "refused %d requests with [%s] (%d since start, %d one-way requests among all dropped)",
                    new, cause, total, self.refused.oneway_dropped,
                )  # fmt: skip
        self._reported = dict(self.refused.by_cause)
