"""One process of a simulated machine: everything it has scheduled on the shared loop can be held or stopped for good.

Several machines share one `SimLoop`. What belongs to which is told by a context variable that tasks, callbacks and
timers inherit, and the loop asks the process before it runs a callback: a **paused** process runs nothing (SIGSTOP, a
long collection, a virtual machine that is moved); a **dead** one never runs again; a `PowerLoss` that comes out of it
ends this process only.
"""

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any

current_process: contextvars.ContextVar["SimProcess | None"] = contextvars.ContextVar("maxq_sim_process", default=None)


class SimProcess:
    """A process, which runs, is paused, or is dead.

    Attributes:
        name: for messages.
        is_running: it is neither paused nor dead.
        slowness: factor on the time that its blocking calls (fsync) take.
        held: callbacks that came due while it did not run, in order.
        tasks: all its tasks that have not ended. A dead process keeps them, for a task that is collected runs its
            `finally` blocks, and the dead do nothing.
        ended: set when it died.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str, on_power_loss: Callable[[], None]) -> None:
        self.name = name
        self.is_running = True
        self.slowness = 1.0
        self.held: list[asyncio.Handle] = []
        self.tasks: set[asyncio.Task[Any]] = set()
        self.ended: asyncio.Future[None] = loop.create_future()
        self._on_power_loss = on_power_loss

    @property
    def is_dead(self) -> bool:
        return self.ended.done()

    def pause(self) -> None:
        """Stop everything of the process until `resume`."""
        self.is_running = False

    def resume(self) -> list[asyncio.Handle]:
        """Continue the process. Returns what has to be scheduled now."""
        self.is_running = not self.is_dead
        held, self.held = self.held, []
        return held

    def die(self) -> None:
        """Kill the process: none of its code ever runs again."""
        self.is_running = False
        if not self.ended.done():
            self.ended.set_result(None)

    def lose_power(self) -> None:
        """Note that the disk under the running process lost its power."""
        if not self.ended.done():
            self._on_power_loss()

    def bury(self) -> list[asyncio.Handle]:
        """Release the rest of the process after the simulation, so that it can be cancelled like everything else.
        Returns what has to be scheduled now."""
        self.ended = self.ended.get_loop().create_future()
        self._on_power_loss = _nothing
        return self.resume()


def _nothing() -> None:
    """Do nothing: the callback of dead processes, whose disk has no power."""
