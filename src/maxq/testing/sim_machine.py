"""A simulated machine among others on one loop: an address, a disk, a wall clock, and one process at a time.

master = SimMachine(loop, "10.0.0.1", rng)
master.boot()
store = await master.call(start_a_store)        # runs as a task of the machine's process
master.kill()                                   # kill -9: the disk keeps everything written
master.power_off()                              # the disk keeps what was flushed and a torn part of the rest
master.boot()                                   # the next process, on the disk that the last one left
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import SimDisk
from maxq.testing.sim_loop import SimLoop
from maxq.testing.sim_process import SimProcess, current_process
from maxq.testing.sim_rng import SimRng

T = TypeVar("T")


class MachineDiedError(Exception):
    """Raised when a machine's process died before it finished a call."""


class MachineClock:
    """A machine's own clocks, on the loop's time.

    Attributes:
        rate: per mille of the loop's time; set it before the machine boots.
    """

    def __init__(self, clock: SimClock) -> None:
        self._clock = clock
        self._offset_ms = 0
        self.rate = 1000

    def wall_ms(self) -> int:
        return self._clock.wall_ms() + self._offset_ms + self.monotonic_ms() - self._clock.now_ns // 1_000_000

    def monotonic_ms(self) -> int:
        return self._clock.now_ns * self.rate // 1_000_000_000

    def monotonic_ns(self) -> int:
        return self._clock.now_ns * self.rate // 1000

    def jump_wall_ms(self, delta_ms: int) -> None:
        """Change this machine's wall time by `delta_ms`, in either direction."""
        self._offset_ms += delta_ms


class SimMachine:
    """One machine.

    Args:
        address: its IPv4 address, the name of its host in the network.
        rng: what its disk keeps in a loss of power.
        write_back, kill_keeps_cache: see SimDisk.

    Attributes:
        disk: as its process sees it; a new object after each boot.
        clock: its own wall clock.
        process: the one that runs, or ran last.
        data_lost_ms: when, in virtual monotonic ms, written data may have been lost: with the power, with the disk.
    """

    def __init__(
        self, loop: SimLoop, address: str, rng: SimRng, *, write_back: float = 0.2, kill_keeps_cache: bool = False
    ) -> None:
        self.loop = loop
        self.address = address
        self.clock = MachineClock(loop.clock)
        self._rng = rng
        self._write_back = write_back
        self._kill_keeps_cache = kill_keeps_cache
        self._disks = 0
        self.data_lost_ms: list[int] = []
        self.disk = self._new_disk()
        self.process = SimProcess(loop, address, self._lost_power)
        self.process.die()
        self._booted = 0

    def _new_disk(self) -> SimDisk:
        self._disks += 1
        return SimDisk(
            self._rng.fork(f"disk {self._disks}"), self.clock,
            write_back=self._write_back, kill_keeps_cache=self._kill_keeps_cache,
        )  # fmt: skip

    @property
    def is_up(self) -> bool:
        """Return whether it has a process, perhaps a paused one."""
        return not self.process.is_dead

    # -- life --

    def boot(self) -> None:
        """Start a new process on the disk as the last one left it."""
        assert self.process.is_dead, f"{self.address} runs already"
        if self._booted:
            self.disk = self.disk.boot()
        self._booted += 1
        self.process = SimProcess(self.loop, f"{self.address} life {self._booted}", self._lost_power)
        self.loop.processes.append(self.process)
        self.loop.network.restart_host(self.address)

    def kill(self) -> None:
        """Kill the process as kill -9 does. The system lives on: peers learn at once, the disk keeps everything that
        was written."""
        if self.is_up:
            self.process.die()
            self.loop.network.kill_host(self.address)

    def power_off(self) -> None:
        """Cut the machine's power; peers of its connections hear nothing of it."""
        if self.is_up:
            self.disk.cut_power()
            self._lost_power()

    def _lost_power(self) -> None:
        self.process.die()
        if self.disk.lost_process_only:
            self.loop.network.kill_host(self.address)
        else:
            self.data_lost_ms.append(self.clock.monotonic_ms())
            self.loop.network.crash_host(self.address)

    def lose_disk(self) -> None:
        """Lose all data: the next boot finds an empty disk."""
        assert self.process.is_dead, f"{self.address} runs"
        self.disk = self._new_disk()
        self.data_lost_ms.append(self.clock.monotonic_ms())

    async def pause(self, seconds: float) -> None:
        """Stop the process for a while; the system continues to receive for it, as far as windows allow."""
        process = self.process
        process.pause()
        await asyncio.sleep(seconds)
        self.loop.reschedule(process.resume())

    # -- work --

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Make tasks and callbacks of this block belong to the process."""
        token = current_process.set(self.process)
        try:
            with self.loop.network.on_host(self.address):
                yield
        finally:
            current_process.reset(token)

    def spawn(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start a task of this machine's process."""
        with self.entered():
            return self.loop.create_task(work)

    async def call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the value of `await work()`, run by this machine's process.

        Raises:
            MachineDiedError: the process died before.
            Exception: what `work` raised.
        """
        process = self.process
        if process.is_dead:
            raise MachineDiedError(f"{self.address} is not running")
        task = self.spawn(work())
        try:
            either: tuple[asyncio.Future[Any], ...] = (task, process.ended)
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if process.is_dead and not (task.done() and not task.cancelled() and task.exception() is None):
            raise MachineDiedError(f"{process.name} died")
        return task.result()
