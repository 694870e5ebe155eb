"""MessageFeed: messages that a thread gives as they come, and a producer's `send_many` takes on its loop.

An iterable that waits, for a line of input say, would keep the loop from everything else if it were drawn there.
"""

import asyncio
import contextlib
import itertools
import threading
from collections import deque
from collections.abc import Callable

from maxq.client.results.send_result import SendResult
from maxq.protocol.message.message import Message

Numbered = tuple[int, Message]


class MessageFeed:
    """Hands messages from one thread to any number of tasks of one loop.

    Args:
        loop: where the messages are taken.
        limit: so many may wait to be taken; then `put` waits.
        on_result: told on the loop what became of each message: its number (from 0, in the order they were given) and
            the result.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, limit: int, on_result: Callable[[int, SendResult], None]
    ) -> None:
        self._loop = loop
        self._limit = limit
        self.on_result = on_result
        self._messages: deque[Numbered] = deque()
        self._numbers = itertools.count()
        self._waiting: deque[asyncio.Future[None]] = deque()  # futures of tasks that wait for messages
        self._is_waking = False
        # Held while the thread is to wait. Not a threading.Event: its methods hold a lock for which the event loop
        # would wait when a signal handler has interrupted the thread inside of them and itself waits for the loop.
        self._no_room = threading.Lock()
        self._is_ended = False  # set by the thread: no more messages come
        self._is_closed = False  # set by the reader: it takes no more messages

    # --- the thread ---

    def put(self, message: Message) -> bool:
        """Add one message. Waits while the feed is full. Returns False if the reader has ended."""
        self._messages.append((next(self._numbers), message))
        if self._waiting:
            self._wake_soon()
        while len(self._messages) >= self._limit and not self._is_closed:
            self._no_room.acquire(blocking=False)
            if len(self._messages) >= self._limit and not self._is_closed:
                self._no_room.acquire()
        return not self._is_closed

    def end(self) -> None:
        """Note that no more messages come, so that the reader ends behind the last one."""
        self._is_ended = True
        self._wake_soon()

    def _wake_soon(self) -> None:
        if not self._is_waking:
            self._is_waking = True
            with contextlib.suppress(RuntimeError):  # the event loop has ended, and with it the reader
                self._loop.call_soon_threadsafe(self._wake)

    # --- the loop ---

    def _wake(self) -> None:
        self._is_waking = False
        count = len(self._waiting) if self._is_ended else len(self._messages)
        while count > 0 and self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                count -= 1

    async def take(self, most: int) -> list[Numbered]:
        """Return the next messages with their numbers, `most` of them at most, as soon as there is one; an empty list
        if there are no more."""
        messages = self._messages
        while not messages and not self._is_closed:
            if self._is_ended and not messages:
                return []
            turn = self._loop.create_future()
            self._waiting.append(turn)
            if messages or self._is_ended:  # given between the two checks
                turn.cancel()
                continue
            await turn
        if self._is_closed:
            return []
        was_above = len(messages) > self._limit // 2
        taken = [messages.popleft() for _ in range(min(most, len(messages)))]
        if was_above and len(messages) <= self._limit // 2:
            self._make_room()
        return taken

    def _make_room(self) -> None:
        with contextlib.suppress(RuntimeError):  # the lock is free: there is room already
            self._no_room.release()

    def give_up(self) -> None:
        """End the feed and wake `put`, because the reader has ended. Any thread may call this."""
        self._is_closed = True
        self._make_room()

    def close(self) -> None:
        """Accept no more messages. Called on the loop."""
        self.give_up()
        for turn in self._waiting:
            if not turn.done():
                turn.set_result(None)
