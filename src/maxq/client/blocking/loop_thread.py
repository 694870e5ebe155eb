"""LoopThread: an event loop in a thread of its own, for the blocking clients."""

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from maxq.client.errors import NotRunningError
from maxq.client.message_feed import MessageFeed
from maxq.client.results.send_result import SendResult
from maxq.errors import ClientError

log = logging.getLogger(__name__)

_FORKED: Final = (
    "the client was started before this process was forked, and belongs to the parent: make and start one of your own "
    "here"
)
_ENDED: Final = "the client was shut down before the call had ended"

Result = TypeVar("Result")
LoopFactory = Callable[[], asyncio.AbstractEventLoop]


class LoopThread:
    """An event loop in a daemon thread. Safe to use from any number of threads.

    Args:
        loop_factory: makes the loop; None: asyncio's own.
        name: of the thread.
    """

    def __init__(self, loop_factory: LoopFactory | None = None, *, name: str = "maxq-client") -> None:
        self._loop_factory = loop_factory or asyncio.new_event_loop
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_stopping = False
        # Held where work is given to the loop and where the loop is taken away: what was given is worked off or
        # cancelled. Never taken in a process that was forked, in which whoever holds it is not there.
        self._lock = threading.RLock()  # a signal handler may interrupt who holds it

    @property
    def is_running(self) -> bool:
        """Return whether the thread runs in this process. After a fork it runs in the parent alone."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def is_forked(self) -> bool:
        """Whether the thread was started in a process of which this one was forked, or has died."""
        thread = self._thread
        return thread is not None and not thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether the code that asks runs on the loop."""
        return threading.current_thread() is self._thread

    def start(self) -> None:
        """Start the thread.

        Raises:
            ClientError: it runs, here or in the process that this one was forked from.
        """
        if self._thread is not None:
            raise ClientError("the client is already started" if self.is_running else _FORKED)
        loop = self._loop_factory()
        self._is_stopping = False
        thread = threading.Thread(target=self._run, args=(loop,), name=self._name, daemon=True)
        thread.start()
        self._loop, self._thread = loop, thread

    def stop(self) -> None:
        """Cancel what still runs and end the thread: who waits for it gets NotRunningError. In a process that was
        forked, forget what is the parent's."""
        if self.is_forked:
            self._loop = self._thread = None
            self._lock = threading.RLock()
            return
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
            if loop is None or thread is None:
                return
            self._is_stopping = True
            loop.call_soon_threadsafe(loop.stop)
        thread.join()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            while not self._is_stopping:
                try:
                    loop.run_forever()
                except BaseException:  # a callback raised SystemExit, say: others wait for this loop
                    log.exception("a callback of the client's loop raised what ends loops; it goes on")
        finally:
            loop.run_until_complete(asyncio.sleep(0))  # what was given last begins, so that it can say how it ended
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            if tasks:
                loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    def submit(self, work: Coroutine[Any, Any, Result]) -> concurrent.futures.Future[Result]:
        """Start a coroutine on the loop. The future is cancelled if the loop ends before it.

        Raises:
            NotRunningError: the thread does not run.
        """
        try:
            if self.is_forked:
                raise NotRunningError(_FORKED)
            with self._lock:
                return asyncio.run_coroutine_threadsafe(work, self._checked())
        except NotRunningError:
            work.close()
            raise
        except RuntimeError:  # a signal handler has ended the loop a moment ago
            work.close()
            raise NotRunningError(_ENDED) from None

    def _checked(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise NotRunningError("the client is not running: it was closed, or not started")
        if self.is_current:
            raise NotRunningError("a blocking client must not be called from its own event loop")
        return self._loop

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the loop and wait for it. An interrupt (Ctrl-C) cancels it.

        Raises:
            NotRunningError: the thread does not run, or is ended meanwhile.
        """
        future = self.submit(work)
        return self.result_of(future)

    def result_of(self, future: concurrent.futures.Future[Result]) -> Result:
        """Wait for what `submit` has started; see `run`."""
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise NotRunningError(_ENDED) from None
        except BaseException:
            future.cancel()
            raise

    def make_feed(self, limit: int, on_result: Callable[[int, SendResult], None]) -> MessageFeed:
        """Make a feed of the loop; see MessageFeed.

        Raises:
            NotRunningError: the thread does not run.
        """
        if self.is_forked:
            raise NotRunningError(_FORKED)
        return MessageFeed(self._checked(), limit, on_result)

    def post(self, work: Callable[[], object]) -> None:
        """Call a plain function on the loop."""
        loop = self._loop
        if loop is not None and self.is_running:
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(work)
