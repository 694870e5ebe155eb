"""An asyncio event loop in virtual time.

The loop is asyncio's own `BaseEventLoop`: ready queue, timers, tasks and futures behave as in production. Two things
differ. Its selector does not wait: when nothing is ready it moves the virtual clock to the next timer, so that two
virtual minutes take milliseconds. And its network is in memory (`sim_network.py`): `create_server`,
`create_connection`, and with them `asyncio.start_server` and `asyncio.open_connection`, never touch a socket.

`run_in_executor` runs the blocking call on the loop's own thread at a drawn moment between the call and its
completion, as a thread would have: what the caller writes meanwhile may or may not be covered by an `fdatasync`.

Everything drawn comes from one seed: one seed, one story.
"""

import asyncio
import contextvars
import socket
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar, TypeVarTuple

from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import PowerLoss
from maxq.testing.sim_network import SimNetwork, SimServer
from maxq.testing.sim_process import Gate, SimProcess, current_process
from maxq.testing.sim_rng import SimRng
from maxq.testing.sim_transport import SimTransport

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_OUTSIDE = contextvars.Context()  # of no process


class SimDeadlockError(RuntimeError):
    """Nothing is ready and no timer is set: whatever the simulation waits for can never come."""


class SimTimeLimitError(RuntimeError):
    """The simulation went on for longer, or in more steps, than it was given."""


class _VirtualSelector:
    """Takes the place of `select`: instead of waiting, time passes."""

    def __init__(self, loop: "SimLoop") -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        self._loop.pass_time(timeout)
        return []


class SimLoop(asyncio.BaseEventLoop):
    """Virtual-time loop with in-memory transports.

    Args:
        clock: the clock this loop advances; give the same object to the code under test.
        rng: where delays are drawn from.
        executor_delay_ms: bounds of the time a `run_in_executor` call takes.
        time_limit_s: virtual seconds after which SimTimeLimitError ends the run.
        step_limit: iterations of the loop after which SimTimeLimitError ends the run (a task that spins never lets
            time pass).
    """

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
        self._selector = _VirtualSelector(self)
        self._clock_resolution = 1e-6
        self.clock = clock
        self.network = SimNetwork(self, rng.fork("network"))
        self.failures: list[BaseException] = []
        self.processes: list[SimProcess] = []
        self._executor_rng = rng.fork("executor")
        self._executor_delay_s = (executor_delay_ms[0] / 1000, executor_delay_ms[1] / 1000)
        self._in_executor: set[asyncio.Future[Any]] = set()
        self._end_ns = clock.monotonic_ns() + int(time_limit_s * 1e9)
        self._steps_left = step_limit
        self._dead = False
        self.set_exception_handler(self._note_failure)

    # -- time --

    def time(self) -> float:
        """Virtual monotonic seconds."""
        return self.clock.monotonic_ns() / 1e9

    def pass_time(self, timeout: float | None) -> None:
        """Called once per iteration: `timeout` seconds until the next timer, 0 when something is ready."""
        self._steps_left -= 1
        if self._steps_left < 0:
            raise SimTimeLimitError("step limit reached: does a task spin without letting time pass?")
        if timeout is None:
            raise SimDeadlockError("nothing is ready and no timer is set")
        if timeout > 0:
            self.clock.advance_ns(-int(-timeout * 1e9 // 1))
            if self.clock.monotonic_ns() > self._end_ns:
                raise SimTimeLimitError(f"virtual time limit reached at {self.time():.3f} s")

    # -- what BaseEventLoop leaves to its subclasses --

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass  # there is no other thread to be woken from

    # -- processes --

    def call_soon(  # type: ignore[override]  # the stub's type variables add nothing here
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        context = contextvars.copy_context() if context is None else context
        process = context.get(current_process)
        if process is None:
            return super().call_soon(callback, *args, context=context)
        gate = Gate(process, callback, args, context)
        gate.handle = super().call_soon(gate, context=context)
        return gate.handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        context = contextvars.copy_context() if context is None else context
        process = context.get(current_process)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        gate = Gate(process, callback, args, context)
        gate.handle = timer = super().call_at(when, gate, context=context)
        return timer

    def reschedule(self, gates: Sequence[Gate]) -> None:
        """What a process held back while it stood still comes now, in order."""
        for gate in gates:
            super().call_soon(gate, context=gate.context)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], **options: Any
    ) -> "asyncio.Task[T]":
        task = super().create_task(coro, **options)
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
        """Names are not resolved: a host is its own address."""
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
        if isinstance(error, BaseException) and not isinstance(error, PowerLoss) and not self._dead:
            self.failures.append(error)

    def end_tasks(self) -> None:
        """After the main task ended: cancel what is left, let it clean up, forget what it says."""
        self._dead = True
        for process in self.processes:
            self.reschedule(process.bury())
        for _ in range(100):
            for work in tuple(self._in_executor):  # what met a loss of power never ends, and some wait for its end
                work.cancel()
            left = [task for task in asyncio.all_tasks(self) if not task.done()]
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
