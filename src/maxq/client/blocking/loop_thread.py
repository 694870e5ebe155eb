"""LoopThread: an event loop in a thread of its own, for the blocking clients."""

import asyncio
import concurrent.futures
import contextlib
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from maxq.client.errors import NotRunningError
from maxq.client.message_feed import MessageFeed
from maxq.client.results.send_result import SendResult
from maxq.errors import ClientError
from maxq.runtime.background import CANCELLED_WAIT_S, end_tasks

if TYPE_CHECKING:
    from maxq.client.producer.fast_sends_cy import PendingSend
    from maxq.client.producer.producer import SendStart

log = logging.getLogger(__name__)

_FORKED: Final = (
    "the client was started before this process was forked, and belongs to the parent: make and start one of your own "
    "here"
)
_ENDED: Final = "the client was shut down before the call had ended"

Result = TypeVar("Result")
Given = TypeVar("Given")
LoopFactory = Callable[[], asyncio.AbstractEventLoop]


class LoopCall(Generic[Result]):
    """A coroutine for a loop, and the thread that waits for its outcome. `LoopThread.begin` starts it.

    A signal handler may interrupt that thread anywhere and wait for the same loop. So the loop must never wait for a
    lock that the thread holds, as it would to set the result of a concurrent.futures.Future.

    Args:
        on_end: called on the loop when the coroutine has ended.
    """

    def __init__(self, work: Coroutine[Any, Any, Result], on_end: Callable[[], None] | None = None) -> None:
        self.work = work
        self._on_end = on_end
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Result] | None = None
        self._is_cancelled = False
        self._ended = threading.Lock()
        self._ended.acquire()  # released when the coroutine has ended

    def give(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the loop start the coroutine. Any thread may call it, once."""
        self._loop = loop
        loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        assert self._loop is not None, "it is called by the loop"
        self._task = self._loop.create_task(self.work)
        self._task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[Result]) -> None:
        if not task.cancelled():
            task.exception()  # marks the exception as retrieved: perhaps nobody waits any more
        self._ended.release()
        if self._on_end is not None:
            self._on_end()

    def result(self) -> Result:
        """Wait for the outcome: return the result, or raise what the coroutine raised.

        Raises:
            NotRunningError: the loop was ended before the coroutine.
        """
        self._ended.acquire()
        self._ended.release()
        assert self._task is not None, "it has ended"
        if self._task.cancelled():
            raise NotRunningError(_ENDED, may_be_stored=True)
        return self._task.result()

    def cancel(self) -> None:
        """Cancel the coroutine, wherever an interrupt came. Any thread may call it; again it does nothing."""
        if self._is_cancelled or (self._task is not None and self._task.done()):
            return
        self._is_cancelled = True
        if self._loop is None:
            self.work.close()
            return
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        else:  # the interrupt came before the loop was given the call
            self.work.close()


class SendCall:
    """A send, and the thread that waits for its result: as LoopCall, but a send whose first try succeeds takes neither
    a task nor further turns of the loop. The thread makes that try itself where it can, and receives the answer itself
    if it comes soon and nothing else is under way. If not, the loop takes it and wakes the thread at once.

    FastSends fills it in like a future (`done`, `set_result`).

    Args:
        start: the send.
        open_calls: has this object from its start to its end.
    """

    def __init__(self, start: "SendStart", open_calls: "set[SendCall]") -> None:
        self._start = start
        self._open_calls = open_calls
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pending: PendingSend | None = None
        # acquired by whichever comes first: the end of the try, or its failure; the second one completes the call
        self._is_half_done = threading.Lock()
        self._task: asyncio.Task[SendResult] | None = None
        self._result: SendResult | None = None
        self._error: BaseException | None = None
        self._ended = threading.Lock()
        self._ended.acquire()  # released when there is a result or an error

    def give(self, loop: asyncio.AbstractEventLoop) -> None:
        """Note the loop, whose end ends this call. Any thread may call it, once, before `result`."""
        self._loop = loop
        self._open_calls.add(self)

    def post(self) -> None:
        """Send, or let the loop do it. Any thread may call it, after `give`.

        Raises:
            MaxQError: something about the message or the call is wrong.
        """
        loop = self._loop
        assert loop is not None, "it was given"
        if self._result is not None or self._error is not None:  # it has ended, as by the end of the loop
            return
        self._pending = self._start.post_from_thread(self)
        try:
            if self._pending is None:
                loop.call_soon_threadsafe(self._begin)
            elif self._result is None and not self._is_half_done.acquire(blocking=False):
                loop.call_soon_threadsafe(self._go_on)
        except RuntimeError:  # it was closed since then
            self._end(error=NotRunningError(_ENDED, may_be_stored=self._pending is not None))

    def _begin(self) -> None:
        try:
            self._pending = self._start.post(self)
        except BaseException as error:
            self._end(error=error)
            if not isinstance(error, Exception):
                raise
            return
        if self._pending is None or not self._is_half_done.acquire(blocking=False):
            self._go_on()

    def done(self) -> bool:
        """Return whether the outcome is known, or nobody waits for it any more."""
        return self._result is not None or self._error is not None

    def set_result(self, result: SendResult | None) -> None:
        """End the call with the result of its first try, or have the event loop try again if that failed (None)."""
        if result is not None:
            self._end(result)
        elif not self._is_half_done.acquire(blocking=False):
            self._go_on()

    def _go_on(self) -> None:
        # Not always the loop that was given: a signal handler may have ended that, and started another one.
        self._task = asyncio.get_running_loop().create_task(self._start.finish(self._pending))
        self._task.add_done_callback(self._end_with)

    def _end_with(self, task: asyncio.Task[SendResult]) -> None:
        if task.cancelled():
            self._end(error=NotRunningError(_ENDED, may_be_stored=True))
        elif (error := task.exception()) is not None:
            self._end(error=error)
        else:
            self._end(task.result())

    def _end(self, result: SendResult | None = None, error: BaseException | None = None) -> None:
        if self._result is None and self._error is None:
            self._result, self._error = result, error
            self._open_calls.discard(self)
            self._ended.release()

    def abandon(self) -> None:
        """Wake who waits, because the loop takes no further turn."""
        self._end(error=NotRunningError(_ENDED, may_be_stored=True))

    def result(self) -> SendResult:
        """Send and wait: return the result, or raise the error of the send.

        Raises:
            NotRunningError: the loop was ended before.
            MaxQError: something about the message or the call is wrong, or it could not be sent.
        """
        self.post()
        self._ended.acquire()
        self._ended.release()
        # breaks a reference cycle, so that messages are freed with this call and not by the cycle collector
        self._pending = None
        if self._error is not None:
            raise self._error
        assert self._result is not None, "it has ended"
        return self._result

    def cancel(self) -> None:
        """Give the send up, wherever an interrupt came: no further try is made, and the message may be stored or not.
        Any thread may call it."""
        if self._loop is not None and not self.done():
            try:
                self._loop.call_soon_threadsafe(self._cancel)
            except RuntimeError:  # the loop was closed meanwhile
                self.abandon()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        elif not self.done():
            if self._pending is not None:
                self._pending.forget()
            self.abandon()


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
        self._sends: set[SendCall] = set()  # that are under way
        # Not Thread.is_alive: an exception of a signal handler in it makes a running thread count as ended.
        self._runs = False
        self._pid = 0  # id of the process in which the thread runs
        # Held where work is given to the loop and where the loop is taken away: what was given is worked off or
        # cancelled. Never taken in a process that was forked, in which whoever holds it is not there.
        self._lock = threading.RLock()  # a signal handler may interrupt who holds it

    @property
    def is_running(self) -> bool:
        """Return whether the thread runs in this process. After a fork it runs in the parent alone."""
        return self._thread is not None and self._runs and self._pid == os.getpid()

    @property
    def is_forked(self) -> bool:
        """Return whether the thread was started in the parent process of a fork."""
        return self._thread is not None and self._pid != os.getpid()

    @property
    def is_current(self) -> bool:
        """Return whether the calling code runs on the loop."""
        return threading.current_thread() is self._thread

    def start(self) -> None:
        """Start the thread.

        Raises:
            ClientError: it runs, here or in the process that this one was forked from.
        """
        if self._thread is not None:
            raise ClientError(_FORKED if self.is_forked else "the client is already started")
        loop = self._loop_factory()
        self._is_stopping, self._runs, self._pid = False, True, os.getpid()
        thread = threading.Thread(target=self._run, args=(loop,), name=self._name, daemon=True)
        thread.start()
        self._loop, self._thread = loop, thread

    def stop(self) -> None:
        """Cancel the running tasks and end the thread; waiting callers get NotRunningError. In a forked process, only
        forget the parent's thread."""
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
            with contextlib.suppress(RuntimeError):  # the loop has ended by itself
                loop.call_soon_threadsafe(loop.stop)
        thread.join()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            while not self._is_stopping:
                try:
                    loop.run_forever()
                except BaseException:  # a callback raised SystemExit, say: others wait for this loop
                    log.exception(
                        "a callback of the client raised an exception that ends event loops; the loop continues"
                    )
        finally:
            # lets coroutines begin that were given last, so that they can be cancelled properly
            _complete(loop, asyncio.sleep(0))
            _complete(loop, end_tasks(asyncio.all_tasks(loop), f"the tasks of {self._name}", CANCELLED_WAIT_S))
            for send in tuple(self._sends):
                send.abandon()
            _complete(loop, loop.shutdown_asyncgens())
            _complete(loop, loop.shutdown_default_executor())
            loop.close()
            self._runs = False

    def begin(self, call: LoopCall[Any]) -> None:
        """Start a coroutine on the loop. It is cancelled if the loop ends before it. An interrupt (Ctrl-C) may come at
        any moment: have a `call.cancel()` around.

        Raises:
            NotRunningError: the thread does not run.
        """
        self._given(call.give, call.work)

    def submit(self, work: Coroutine[Any, Any, Result]) -> concurrent.futures.Future[Result]:
        """Start a coroutine on the loop, for programs that wait for a future. The future is cancelled if the loop ends
        before it.

        Raises:
            NotRunningError: the thread does not run.
        """
        return self._given(lambda loop: asyncio.run_coroutine_threadsafe(work, loop), work)

    def send(self, start: "SendStart") -> SendResult:
        """Send a message on the loop and wait for its result; see SendCall. An interrupt (Ctrl-C) cancels it.

        Raises:
            NotRunningError: the thread does not run, or is ended meanwhile.
        """
        call = SendCall(start, self._sends)
        try:
            if self.is_forked:
                raise NotRunningError(_FORKED)
            with self._lock:
                call.give(self._checked())
            return call.result()
        except BaseException:
            call.cancel()
            raise

    def _given(
        self, give: Callable[[asyncio.AbstractEventLoop], Given], work: Coroutine[Any, Any, Any] | None = None
    ) -> Given:
        loop: asyncio.AbstractEventLoop | None = None
        try:
            if self.is_forked:
                raise NotRunningError(_FORKED)
            with self._lock:
                loop = self._checked()
                return give(loop)
        except NotRunningError:
            if work is not None:
                work.close()
            raise
        except RuntimeError:
            if work is not None:
                work.close()
            if loop is None or not loop.is_closed():
                raise  # an error of the caller's own coroutine
            raise NotRunningError(_ENDED) from None  # a signal handler ended the loop a moment ago

    def _checked(self) -> asyncio.AbstractEventLoop:
        loop = self._loop  # a signal handler may end it at any moment
        if loop is None:
            raise NotRunningError("the client is not running: it was closed, or not started")
        if asyncio._get_running_loop() is loop:
            raise NotRunningError("a blocking client must not be called from its own event loop")
        return loop

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the loop and wait for it. An interrupt (Ctrl-C) cancels it.

        Raises:
            NotRunningError: the thread does not run, or is ended meanwhile.
        """
        call = LoopCall(work)
        try:
            self.begin(call)
            return call.result()
        except BaseException:
            call.cancel()
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
        """Let the loop call a function that is not a coroutine; its result is lost."""
        loop = self._loop
        if loop is not None and self.is_running:
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(work)


def _complete(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, object]) -> None:
    """Run a loop until some work is done, also if callbacks or tasks raise what ends loops meanwhile."""
    task = loop.create_task(work)
    while not task.done():
        try:
            loop.run_until_complete(task)
        except BaseException:  # a task raised SystemExit when it was cancelled, say: others wait for theirs
            log.exception("a clean-up of the client's event loop raised an exception that ends loops")
