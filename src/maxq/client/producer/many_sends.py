"""ManySends: one call of a producer's `send_many`. Messages are drawn some at a time, sent together, and drawn again as
soon as half of those that may be on their way have their results."""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Iterable, Iterator
from itertools import islice
from typing import Any

from maxq.client.client_config import ProducerConfig
from maxq.client.message_feed import MessageFeed, Numbered
from maxq.client.producer.fast_sends_cy import SendWindow
from maxq.client.producer.message_sender import MessageSender
from maxq.client.results.send_result import SendResult
from maxq.protocol.message.message import Message

_MANY_BYTES = 4 << 20  # most bytes of bodies that wait for answers; a larger message is sent alone
_AT_ONCE = 128  # messages that are drawn and encoded before others have their turn


class ManySends:
    """Sends messages with at most `in_flight` of them, and 4 MiB of bodies, on their way.

    Args:
        on_result: called with each result when it comes, in the context in which this object is made.
    """

    def __init__(
        self,
        sender: MessageSender,
        config: ProducerConfig,
        in_flight: int,
        on_result: Callable[[SendResult], None] | None,
    ) -> None:
        self._sender = sender
        self._timeout_ms = config.send_msg_timeout
        self._retries = config.retry_times_when_send_failed
        self._wake_at = in_flight // 2
        self._user_is_told = on_result
        self._context = contextvars.copy_context()
        self._results: dict[int, SendResult] = {}
        self._keep: Callable[[int, SendResult], None] = self._results.__setitem__
        self._feed: MessageFeed | None = None
        self._window = SendWindow(in_flight, _MANY_BYTES, self._on_result, self._on_failure)
        self._failures: list[BaseException] = []
        self._is_over = False
        self._others: set[asyncio.Task[None]] = set()  # messages that need the slow path, or a further try

    def _on_result(self, place: int, result: SendResult) -> None:
        self._keep(place, result)
        if self._user_is_told is not None:
            self._context.run(self._user_is_told, result)

    def _on_failure(self) -> None:
        """Go on at once, because `run` may wait for the next message of a feed for any length of time."""
        if not self._is_over:
            self._are_on_their_way()

    async def run(self, messages: Iterable[Message] | MessageFeed) -> list[SendResult]:
        """Send all messages. Results and errors are those of `Producer.send_many`."""
        try:
            if isinstance(messages, MessageFeed):
                self._feed, self._keep = messages, messages.on_result
                await self._send_from(messages)
            else:
                await self._send_all(enumerate(messages))
            while self._are_on_their_way():
                await self._wait(0)
        finally:
            await self._give_up()
        if self._failures:
            raise self._failures[0]
        results, self._results = (
            self._results,
            {},
        )  # the window and this object refer to each other and stay in memory until the cycle collector runs
        return [results[place] for place in sorted(results)]

    async def _send_from(self, feed: MessageFeed) -> None:
        while await self._has_room():
            drawn = await feed.take(min(self._window.room, _AT_ONCE))
            if not drawn:
                return
            await self._send(drawn)

    async def _send_all(self, numbered: Iterator[Numbered]) -> None:
        while await self._has_room():
            drawn: list[Numbered] = []
            try:
                drawn.extend(islice(numbered, min(self._window.room, _AT_ONCE)))
            except Exception as error:
                self._failed(error)  # messages before it are sent
            if not drawn:
                return
            await self._send(drawn)
            await asyncio.sleep(0)  # lets answers be read

    # --- what is on its way ---

    async def _has_room(self) -> bool:
        """Wait until further messages may be sent. Returns False if no more are to be drawn."""
        while self._are_on_their_way() and self._window.room < 1 and not self._failures:
            await self._wait(self._wake_at)
        return not self._failures

    async def _wait(self, wake_at: int) -> None:
        """Wait until at most `wake_at` messages are on their way, or one fails."""
        await self._window.wait(asyncio.get_running_loop(), wake_at)

    def _are_on_their_way(self) -> bool:
        """Return whether messages have no result yet. Messages whose first try failed are retried."""
        window = self._window
        if window.failed:
            failed, window.failed = window.failed, []
            for pending in failed:
                window.add(pending.size)
                self._begin(pending.place, pending.size, self._sender.go_on(pending, self._retries))
        if window.failures:
            failures, window.failures = window.failures, []
            for error in failures:
                self._failed(error)
        return window.in_flight > 0

    def _failed(self, error: BaseException) -> None:
        """Keep an error of `send_many`, which is raised at its end; no more messages are drawn from its caller."""
        self._failures.append(error)
        if self._feed is not None:
            self._feed.close()

    async def _give_up(self) -> None:
        """Forget what is still on its way, which is only the case if the caller was cancelled."""
        self._is_over = True
        self._keep, self._user_is_told = _nothing, None
        if self._feed is not None:
            self._feed.close()
        for task in self._others:
            task.cancel()
        if self._others:
            await asyncio.gather(*self._others, return_exceptions=True)

    # --- sending ---

    async def _send(self, drawn: list[Numbered]) -> None:
        """Send messages, in the common way where that is possible."""
        fast = self._sender.fast
        first = 0
        while first < len(drawn):
            if fast is not None:
                first += fast.post_many(drawn[first:], self._window, self._timeout_ms)
                if first == len(drawn):
                    return
                if self._window.is_full or not self._window.fits(_size(drawn[first][1])):
                    await self._make_room()
                    continue
            place, message = drawn[first]
            first += 1
            try:
                prepared = self._sender.preparer.prepare(message)
            except Exception as error:
                self._failed(error)
                return
            size = len(prepared.body)
            while not self._window.fits(size):
                await self._make_room()
            if self._failures:
                return
            self._window.add(size)
            self._begin(place, size, self._sender.send(prepared, self._timeout_ms, self._retries))

    async def _make_room(self) -> None:
        """Wait until fewer messages are on their way."""
        if self._are_on_their_way():
            await self._wait(self._window.in_flight - 1)

    def _begin(self, place: int, size: int, work: Coroutine[Any, Any, SendResult]) -> None:
        task = asyncio.get_running_loop().create_task(self._finish(place, size, work), name="maxq-send-many")
        self._others.add(task)
        task.add_done_callback(self._others.discard)

    async def _finish(self, place: int, size: int, work: Coroutine[Any, Any, SendResult]) -> None:
        result = None
        try:
            result = await work
        except Exception as error:
            self._failed(error)
        finally:
            self._window.end(size, place, result)


def _size(message: Message) -> int:
    """Return the size of a body in bytes; 0 if it is not a valid body."""
    body = getattr(message, "body", None)
    return len(body) if isinstance(body, bytes) else 0


def _nothing(place: int, result: SendResult) -> None:
    """Drop a result that nobody waits for."""
