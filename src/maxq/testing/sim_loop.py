"""An asyncio event loop in virtual time.

The loop is asyncio's own `BaseEventLoop`: ready queue, timers, tasks and futures behave as in production. Two things
differ. It does not wait: when nothing is ready it moves the virtual clock to the next timer, so that two virtual
minutes take milliseconds. And its network is in memory (`sim_network.py`): `create_server`, `create_connection`, and
with them `asyncio.start_server` and `asyncio.open_connection`, never touch a socket.

`run_in_executor` runs the blocking call on the loop's own thread at a drawn moment between the call and its
completion, as a thread would have: what the caller writes meanwhile may or may not be covered by an `fdatasync`.

Everything drawn comes from one seed: one seed, one story.
"""

import asyncio
import contextvars
import socket
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, Final, TypeVar, TypeVarTuple

from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import PowerLoss
from maxq.testing.sim_network import SimNetwork, SimServer
from maxq.testing.sim_process import SimProcess, current_process
from maxq.testing.sim_rng import SimRng
from maxq.testing.sim_transport import SimTransport

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_OUTSIDE = contextvars.Context()  # context of code that belongs to no process
_MOST_SECONDS: Final = 24 * 3600  # most virtual seconds that may pass in one step of the loop
_MANY_TIMERS: Final = 100  # number of timers from which on cancelled ones are removed when they are more than half


class SimDeadlockError(RuntimeError):
    """Raised when no task is ready and no timer is set: the simulation can never continue."""


class SimTimeLimitError(RuntimeError):
    """Raised when the simulation exceeds its limit of virtual time or steps."""


class _SimFuture(asyncio.Future[T]):
    """A future whose hash is its number on its loop. A set of futures then has the same order each time a seed is told;
    by address, which is the hash of other objects, it would have another order."""

    def __init__(self, loop: "SimLoop") -> None:
        self._number = loop.next_number()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class _SimTask(asyncio.Task[T]):
    """A task whose hash is its number, so that sets of tasks have the same order in every process."""

    def __init__(self, coro: Coroutine[Any, Any, T], loop: "SimLoop", **options: Any) -> None:
        self._number = loop.next_number()  # asyncio puts the task into a set before its __init__ ends
        super().__init__(coro, loop=loop, **options)

    def __hash__(self) -> int:
        return self._number


class _Callback(asyncio.Handle):
    """A callback that belongs to a simulated process; it is not called after the process has died."""

    __slots__ = ("process",)

    def __init__(
        self, loop: "SimLoop", callback: Callable[..., object], args: Sequence[Any], context: contextvars.Context
    ) -> None:
        self._loop = loop
        self._callback = callback
        self._args = args
        self._context = context
        self._cancelled = False
        self._repr = self._source_traceback = None
        self.process = context.get(current_process)


class _Timer(asyncio.TimerHandle):
    """A callback that the simulated loop runs when its time has come (`call_at`)."""

    __slots__ = ("process",)

    def __init__(
        self, when: float, loop: "SimLoop", callback: Callable[..., object], args: Sequence[Any],
        context: contextvars.Context,
    ) -> None:  # fmt: skip
        self._loop = loop
        self._callback = callback
        self._args = args
        self._context = context
        self._cancelled = False
        self._repr = self._source_traceback = None
        self._when = when
        self._scheduled = True
        self.process = context.get(current_process)


class _Due(float):
    """The due time of a timer. A heap of floats needs no Python code to compare two of them."""

    __slots__ = ("timer",)

    timer: _Timer


class SimLoop(asyncio.BaseEventLoop):
    """Event loop in virtual time with in-memory transports.

    Args:
        clock: the clock this loop advances; give the same object to the code under test.
        rng: where delays are drawn from.
        executor_delay_ms: bounds of the time a `run_in_executor` call takes.
        time_limit_s: virtual seconds after which SimTimeLimitError ends the run.
        step_limit: iterations of the loop after which SimTimeLimitError ends the run (a task that spins never lets
            time pass).

    Attributes:
        is_over: the main task has ended, and what is left is cancelled.
    """

    _ready: deque[_Callback | _Timer]
    _scheduled: list[_Due]
    _stopping: bool
    _closed: bool
    _timer_cancelled_count: int

    def __init__(
        self,
        *,
        clock: SimClock,
        rng: SimRng,
        executor_delay_ms: tuple[float, float] = (0.05, 3.0),
        time_limit_s: float = 24 * 3600.0,
        step_limit: int = 5_000_000,
    ) -> None:
        super().__init__()
        self._clock_resolution = 1e-6
        self.clock = clock
        self.network = SimNetwork(self, rng.fork("network"))
        self.failures: list[BaseException] = []
        self.processes: list[SimProcess] = []
        self._executor_rng = rng.fork("executor")
        self._executor_delay_s = (executor_delay_ms[0] / 1000, executor_delay_ms[1] / 1000)
        self._in_executor: set[asyncio.Future[Any]] = set()
        self._time_limit_s = time_limit_s
        self._end_ns = clock.monotonic_ns() + int(time_limit_s * 1e9)
        self._steps_left = step_limit
        self._numbered = 0  # futures and tasks numbered so far
        self.is_over = False
        self.set_exception_handler(self._note_failure)

    # -- time --

    def time(self) -> float:
        """Return the virtual monotonic time in seconds."""
        return self.clock.now_ns / 1e9

    def _run_once(self) -> None:
        """Run one step, as `BaseEventLoop` does: advance time to the next timer, and run what is ready. Most of what a
        story costs goes through here, so nothing is called that need not be."""
        ready, scheduled, clock = self._ready, self._scheduled, self.clock
        if scheduled and (scheduled[0].timer._cancelled or len(scheduled) > _MANY_TIMERS):
            self._forget_cancelled()
        self._steps_left -= 1
        if self._steps_left < 0:
            raise SimTimeLimitError("step limit reached: does a task spin without letting time pass?")
        if not ready and not self._stopping:
            if not scheduled:
                raise SimDeadlockError("nothing is ready and no timer is set")
            self._pass_time(min(scheduled[0] - clock.now_ns / 1e9, _MOST_SECONDS))
        end_time = clock.now_ns / 1e9 + self._clock_resolution
        while scheduled and scheduled[0] < end_time:
            timer = heappop(scheduled).timer
            timer._scheduled = False
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                self._run_handle(handle)

    def _forget_cancelled(self) -> None:
        scheduled = self._scheduled
        if len(scheduled) > _MANY_TIMERS and self._timer_cancelled_count * 2 > len(scheduled):
            for due in scheduled:
                due.timer._scheduled = not due.timer._cancelled
            scheduled[:] = [due for due in scheduled if not due.timer._cancelled]
            heapify(scheduled)
            self._timer_cancelled_count = 0
            return
        while scheduled and scheduled[0].timer._cancelled:
            self._timer_cancelled_count -= 1
            heappop(scheduled).timer._scheduled = False

    def _pass_time(self, seconds: float) -> None:
        if seconds > 0:
            self.clock.advance_ns(-int(-seconds * 1e9 // 1))
            if self.clock.now_ns > self._end_ns:
                raise SimTimeLimitError(f"virtual time limit of {self._time_limit_s:g} s reached")

    def _run_handle(self, handle: _Callback | _Timer) -> None:
        """Run a callback. A paused process keeps its due callbacks, and one that loses its power ends alone."""
        process = handle.process
        if process is not None and not process.is_running:
            process.held.append(handle)
            return
        try:
            handle._context.run(handle._callback, *handle._args)
        except PowerLoss:
            if process is None:
                raise
            handle._context.run(process.lose_power)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self.call_exception_handler({"message": "a callback failed", "exception": error, "handle": handle})

    # -- what BaseEventLoop leaves to its subclasses --

    def _write_to_self(self) -> None:
        pass  # no other thread has to be woken

    # -- processes --

    def call_soon(  # type: ignore[override]  # the stub's type variables add nothing here
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        if self._closed:
            self._check_closed()  # type: ignore[attr-defined]
        handle = _Callback(self, callback, args, contextvars.copy_context() if context is None else context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self._call_at(when, callback, args, context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self._call_at(self.clock.now_ns / 1e9 + delay, callback, args, context)

    def _call_at(
        self, when: float, callback: Callable[..., object], args: Sequence[Any], context: contextvars.Context | None
    ) -> asyncio.TimerHandle:
        if self._closed:
            self._check_closed()  # type: ignore[attr-defined]
        timer = _Timer(when, self, callback, args, contextvars.copy_context() if context is None else context)
        due = _Due(when)
        due.timer = timer
        heappush(self._scheduled, due)
        return timer

    def reschedule(self, held: Sequence[asyncio.Handle]) -> None:
        """Run, in order, the callbacks that a process held back while it was paused."""
        self._ready.extend(held)  # type: ignore[arg-type]  # all are this loop's

    def next_number(self) -> int:
        """Return the next number of a future or task, from 1 on."""
        self._numbered += 1
        return self._numbered

    def create_future(self) -> "asyncio.Future[Any]":
        return _SimFuture(self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], **options: Any
    ) -> "asyncio.Task[T]":
        self._check_closed()  # type: ignore[attr-defined]
        task = _SimTask(coro, self, **options)
        process = current_process.get()
        if process is not None:
            process.tasks.add(task)
            task.add_done_callback(process.tasks.discard, context=_OUTSIDE)
        return task

    # -- blocking work --

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> "asyncio.Future[T]":
        """Run `func(*args)` on this thread, at a drawn moment before a drawn completion time."""
        done: asyncio.Future[T] = self.create_future()
        self._in_executor.add(done)
        done.add_done_callback(self._in_executor.discard, context=_OUTSIDE)
        low, high = self._executor_delay_s
        process = current_process.get()
        slowness = 0.5 if process is None else process.slowness / 2
        before = self._executor_rng.uniform(low, high) * slowness
        after = self._executor_rng.uniform(low, high) * slowness

        def settle(result: T | None, error: Exception | None) -> None:
            if done.cancelled():
                return
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(result)  # type: ignore[arg-type]  # a T whenever there was no error

        def run() -> None:
            # Like a real executor, work that has not begun can be cancelled, work in progress cannot.
            if done.cancelled():
                return
            try:
                result = func(*args)
            except Exception as error:
                self.call_later(after, settle, None, error)
            else:
                self.call_later(after, settle, result, None)

        self.call_later(before, run)
        return done

    # -- network --

    async def getaddrinfo(self, host: Any, port: Any, **_hints: Any) -> Any:
        """Return the host unchanged: names are not resolved, because a host is its own address."""
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (str(host), int(port)))]

    async def create_server(  # type: ignore[override]  # files, descriptors and TLS have no meaning here
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: Any = None, port: int = 0, **options: Any
    ) -> SimServer:
        """Listen on the simulated network. `host` None or 0.0.0.0 is the current host (`SimNetwork.on_host`)."""
        _refuse(options, ("ssl", "sock"))
        return self.network.listen(protocol_factory, host, port)

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: Any = None, port: int = 0, **options: Any
    ) -> tuple[SimTransport, Any]:
        """Connect on the simulated network; ConnectionRefusedError or, after a while, TimeoutError as from TCP."""
        _refuse(options, ("ssl", "sock"))
        return await self.network.connect(protocol_factory, str(host), int(port))

    # -- failures --

    def _note_failure(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, BaseException) and not isinstance(error, PowerLoss) and not self.is_over:
            self.failures.append(error)

    def end_tasks(self) -> None:
        """End the tasks that are left when the main task has ended: cancel them, let them clean up, and ignore their
        errors."""
        self.is_over = True
        for process in self.processes:
            self.reschedule(process.bury())
        for _ in range(100):
            # work that met a loss of power never ends, and others may wait for its end
            for work in tuple(self._in_executor):
                work.cancel()
            left = sorted((task for task in asyncio.all_tasks(self) if not task.done()), key=hash)
            if not left:
                break
            for task in left:
                task.cancel()
            try:
                self.run_until_complete(asyncio.wait(left, timeout=1))
            except (PowerLoss, SimDeadlockError, SimTimeLimitError):
                self._steps_left += 10_000
        self.network.forget()


def _refuse(options: dict[str, Any], names: tuple[str, ...]) -> None:
    for name in names:
        if options.get(name) is not None:
            raise NotImplementedError(f"the simulated network has no {name}")
