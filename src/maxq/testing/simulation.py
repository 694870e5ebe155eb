"""One simulated machine or several: loop, network, clock, chance and disks of one seed."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import PowerLoss, SimDisk
from maxq.testing.sim_loop import SimLoop
from maxq.testing.sim_network import SimNetwork
from maxq.testing.sim_rng import SimRng

T = TypeVar("T")


@dataclass(slots=True)
class SimWorld:
    """The parts of the simulator that a simulated program runs on: loop, clock, chance, disk, network."""

    loop: SimLoop
    clock: SimClock
    rng: SimRng
    disk: SimDisk

    @property
    def network(self) -> SimNetwork:
        return self.loop.network


def run_simulation(
    main: Callable[[SimWorld], Awaitable[T]],
    *,
    seed: int,
    disk: SimDisk | None = None,
    clock: SimClock | None = None,
    time_limit_s: float = 24 * 3600.0,
    step_limit: int = 5_000_000,
) -> T:
    """Run `main(world)` in virtual time and return its result.

    Args:
        disk, clock: of an earlier run, to go on after a crash (`disk.boot()`); new ones by default.

    Raises:
        PowerLoss: the disk's power was cut; what survived is `disk.boot()`.
        SimDeadlockError, SimTimeLimitError: `main` cannot or does not end.
        Exception: what `main` raised, or else the first exception that a callback or forgotten task raised.
    """
    __tracebackhide__ = True  # by pytest
    rng = SimRng(seed)
    clock = clock or SimClock()
    disk = disk or SimDisk(rng.fork("disk"), clock)
    loop = SimLoop(clock=clock, rng=rng.fork("loop"), time_limit_s=time_limit_s, step_limit=step_limit)
    world = SimWorld(loop, clock, rng.fork("main"), disk)

    async def run_main() -> T:
        __tracebackhide__ = True
        return await main(world)

    try:
        result = loop.run_until_complete(run_main())
        if loop.failures:
            raise loop.failures[0]
        if disk.is_dead:
            raise PowerLoss("power lost")
        return result
    finally:
        loop.end_tasks()
        loop.close()
