"""The thread under a blocking client: each call has an outcome, whenever its loop ends."""

import asyncio
import contextlib
import itertools
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import pytest

from maxq.client.blocking.loop_thread import LoopThread, SendCall
from maxq.client.errors import NotRunningError
from maxq.client.results.send_result import SendResult, SendStatus, SendWaiter
from maxq.protocol.message.message_queue import MessageQueue


async def forever() -> None:
    await asyncio.Event().wait()


def test_no_call_hangs_that_meets_the_end_of_its_loop() -> None:
    """Calls of many threads while the loop ends, over and over: each has an outcome."""
    for _ in range(30):
        thread = LoopThread()
        thread.start()
        go = threading.Event()
        outcomes: list[type[BaseException]] = []

        def call(thread: LoopThread = thread, go: threading.Event = go, outcomes: list[Any] = outcomes) -> None:
            go.set()
            try:
                while True:
                    thread.run(asyncio.sleep(0))
            except BaseException as error:
                outcomes.append(type(error))

        callers = [threading.Thread(target=call, daemon=True) for _ in range(8)]
        for caller in callers:
            caller.start()
        go.wait()
        thread.stop()
        for caller in callers:
            caller.join(10)
            assert not caller.is_alive(), "the call hangs"
        assert set(outcomes) == {NotRunningError}


def test_a_call_that_comes_when_the_loop_has_taken_its_last_turn_has_an_outcome() -> None:
    thread = LoopThread()
    thread.start()
    loop = thread._loop
    assert loop is not None
    closing, close = threading.Event(), loop.close

    def slowly() -> None:
        closing.set()
        time.sleep(0.2)  # the loop runs no more, and is not closed
        close()

    loop.close = slowly  # type: ignore[method-assign]
    with ThreadPoolExecutor() as threads:
        calls = [threads.submit(thread.run, forever())]
        stopping = threads.submit(thread.stop)
        assert closing.wait(10)
        calls.append(threads.submit(thread.run, asyncio.sleep(0)))
        for call in calls:
            with pytest.raises(NotRunningError):
                call.result(10)
        stopping.result(10)


class Start:
    """A send whose first try and further tries are the test's to decide.

    Args:
        taken: whether the first try is made at all.
        outcome: of the first try, told while it is made: a list with a result, or with None for a failure.
        stops: it raises an error.
        in_thread: the thread that waits makes it, without the loop.
    """

    def __init__(
        self,
        *,
        taken: bool = True,
        outcome: Sequence[SendResult | None] = (),
        stops: bool = False,
        in_thread: bool = False,
    ) -> None:
        self.in_thread = in_thread
        self.taken = taken
        self.outcome = list(outcome)
        self.stops = stops
        self.waiter: SendWaiter | None = None
        self.begun = threading.Event()
        self.finished: list[object] = []
        self.forgotten = threading.Event()

    def post_from_thread(self, waiter: SendWaiter) -> Any:
        return self.post(waiter) if self.in_thread else None

    def post(self, waiter: SendWaiter) -> Any:
        self.waiter = waiter
        if self.stops:
            raise ValueError("no such message")
        for result in self.outcome:
            answer = threading.Thread(target=waiter.set_result, args=(result,))  # the thread that waits takes none
            answer.start()
            answer.join()
        self.begun.set()
        return self if self.taken else None

    def forget(self) -> None:
        self.forgotten.set()

    async def finish(self, pending: object) -> SendResult:
        self.finished.append(pending)
        if self.stops:
            await forever()
        return RESULT


RESULT = SendResult(SendStatus.SEND_OK, "id", MessageQueue("T", "b", 0), 7, "place")


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    thread = LoopThread()
    thread.start()
    yield thread
    thread.stop()


@pytest.mark.parametrize("in_thread", [False, True])
def test_the_answer_of_a_first_try_is_the_outcome_of_a_send(thread: LoopThread, in_thread: bool) -> None:
    start = Start(in_thread=in_thread)
    with ThreadPoolExecutor() as threads:
        call = threads.submit(thread.send, start)  # type: ignore[arg-type]
        assert start.begun.wait(5)
        assert start.waiter is not None and not start.waiter.done()
        thread.post(lambda: start.waiter.set_result(RESULT))  # type: ignore[union-attr]
        assert call.result(5) is RESULT
    assert start.finished == []
    assert start.waiter.done()


@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.parametrize("when", ["while it is made", "later"])
def test_a_send_whose_first_try_fails_goes_on(thread: LoopThread, when: str, in_thread: bool) -> None:
    start = Start(outcome=[None] if when == "while it is made" else [], in_thread=in_thread)
    with ThreadPoolExecutor() as threads:
        call = threads.submit(thread.send, start)  # type: ignore[arg-type]
        assert start.begun.wait(5)
        if when == "later":
            thread.post(lambda: start.waiter.set_result(None))  # type: ignore[union-attr]
        assert call.result(5) is RESULT
    assert start.finished == [start]


def test_a_send_that_needs_the_general_way_takes_it(thread: LoopThread) -> None:
    start = Start(taken=False)
    assert thread.send(start) is RESULT  # type: ignore[arg-type]
    assert start.finished == [None]


@pytest.mark.parametrize("in_thread", [False, True])
def test_what_a_first_try_raises_is_raised_by_the_send(thread: LoopThread, in_thread: bool) -> None:
    with pytest.raises(ValueError, match="no such message"):
        thread.send(Start(stops=True, in_thread=in_thread))  # type: ignore[arg-type]
    thread.run(asyncio.sleep(0))
    assert not thread._sends


@pytest.mark.parametrize(
    "start",
    [Start(), Start(in_thread=True), Start(taken=False, outcome=[])],
    ids=["on its way", "sent by the thread", "in the slow path"],
)
def test_no_send_hangs_whose_loop_ends(start: Start) -> None:
    thread = LoopThread()
    thread.start()
    if not start.taken:
        start.finish = lambda pending: forever()  # type: ignore[method-assign, assignment, return-value]
    with ThreadPoolExecutor() as threads:
        call = threads.submit(thread.send, start)  # type: ignore[arg-type]
        assert start.begun.wait(5)
        thread.stop()
        with pytest.raises(NotRunningError) as ended:
            call.result(5)
        assert ended.value.may_be_stored


def test_a_send_goes_on_where_its_first_try_has_failed(thread: LoopThread) -> None:
    """A signal handler has ended the loop before the first try, and started the client anew."""
    start, ended = Start(in_thread=True), asyncio.new_event_loop()
    ended.close()
    call = SendCall(start, set())  # type: ignore[arg-type]
    call.give(ended)
    with ThreadPoolExecutor() as threads:
        outcome = threads.submit(call.result)
        assert start.begun.wait(5)
        thread.post(lambda: call.set_result(None))
        assert outcome.result(5) is RESULT


@pytest.mark.parametrize("in_thread", [False, True])
def test_an_interrupt_of_a_send_gives_it_up(thread: LoopThread, in_thread: bool) -> None:
    start = Start(in_thread=in_thread)

    raised = threading.Event()

    def interrupted(number: int, frame: object) -> None:
        if not raised.is_set():
            raised.set()
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupted)
    try:

        def interrupt() -> None:
            assert start.begun.wait(5)
            while not raised.wait(0.05):  # CPython waits on if a signal comes just before it begins to wait for a lock
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

        helper = threading.Thread(target=interrupt)
        helper.start()
        with pytest.raises(KeyboardInterrupt):
            thread.send(start)  # type: ignore[arg-type]
        helper.join(5)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert start.forgotten.wait(5)
    assert start.waiter is not None and start.waiter.done()


class Interrupt(BaseException):
    pass


def raise_interrupt() -> None:
    raise Interrupt


@contextlib.contextmanager
def interrupt_at(number: int, handle: Callable[[], None] = raise_interrupt) -> Iterator[None]:
    """Call at this line, counted from 1, that the thread executes in loop_thread.py, what a signal handler does: raise
    what Ctrl-C would, if not told otherwise."""
    lines = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        if not frame.f_code.co_filename.endswith("loop_thread.py"):
            return None
        lines += event == "line"
        if event == "line" and lines == number:
            handle()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("how", ["run", "send", "send by the thread"])
def test_of_a_call_that_is_interrupted_at_any_line_nothing_goes_on(thread: LoopThread, how: str) -> None:
    finished: list[int] = []

    async def work() -> SendResult:
        await asyncio.sleep(0.1)
        finished.append(1)
        return RESULT

    start = Start(taken=False) if how == "send" else Start(outcome=[None], in_thread=True)
    start.finish = lambda pending: work()  # type: ignore[method-assign]
    for line in itertools.count(1):
        with contextlib.suppress(Interrupt), interrupt_at(line):
            thread.run(work()) if how == "run" else thread.send(start)  # type: ignore[arg-type]
        if finished:
            break
        thread.run(asyncio.sleep(0))  # what was given to the loop has begun
        loop = thread._loop
        assert loop is not None
        ends = time.monotonic() + 10
        while [task for task in asyncio.all_tasks(loop) if not task.done()] and time.monotonic() < ends:
            time.sleep(0.001)
        assert not finished, f"it goes on after an interrupt at line {line}"
    assert line > 10


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("how", ["run", "send", "a send on its way", "a send whose first try fails"])
def test_a_call_during_which_a_signal_handler_ends_the_loop_says_so(how: str, restarts: bool) -> None:
    for line in itertools.count(1):
        thread = LoopThread()
        thread.start()
        handled: list[int] = []

        def end(thread: LoopThread = thread, handled: list[int] = handled) -> None:
            handled.append(1)
            thread.stop()
            if restarts:
                thread.start()

        outcome = {"a send on its way": [RESULT], "a send whose first try fails": [None]}.get(how, [])
        start = Start(taken=bool(outcome), outcome=outcome, in_thread=bool(outcome))
        try:
            with interrupt_at(line, end):
                thread.run(asyncio.sleep(0)) if how == "run" else thread.send(start)  # type: ignore[arg-type]
        except NotRunningError as error:
            assert "forked" not in str(error), line
            assert error.may_be_stored or not start.begun.is_set() or not start.taken, line
        assert not thread._sends, line
        thread.stop()
        if not handled:
            break
    assert line > 10
