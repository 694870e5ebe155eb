"""Background tasks of a server: what happens if one fails, and how tasks are ended that call an application.

    a task that others rely on (delivery, checks, flush, replication)   `supervise`: its owner is told, and stops the
                                                                         server or logs what continues without it
    work that is repeated                                                `count_failure`: logged where it failed; the
                                                                         next turn comes in any case

Both are counted by name, in the metric `maxq_background_failures_total`, because nobody reads a log in time.

A task that calls an application (a listener, for example) may not end when it is cancelled: `end_tasks` then continues
without it.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection
from contextvars import ContextVar
from typing import Any, Final

log = logging.getLogger(__name__)

#: Seconds that code of the application may continue after its task was cancelled.
CANCELLED_WAIT_S: Final = 10.0
_MOST_NAMES: Final = 500
_OTHERS: Final = "others"

#: Failures by name of the task, for the server in whose context the code runs.
FAILURES: Final[ContextVar[Counter[str]]] = ContextVar("FAILURES")


def count_failure(name: str) -> None:
    """Count a failure of the work `name`; outside a server nothing is counted."""
    counts = FAILURES.get(None)
    if counts is not None:
        counts[name if name in counts or len(counts) < _MOST_NAMES else _OTHERS] += 1


def supervise(
    task: "asyncio.Task[None]", on_failure: Callable[[str, BaseException], None], name: str = ""
) -> "asyncio.Task[None]":
    """Call `on_failure(name, error)` if `task` ends by an error, and count the error; cancellation is not an error.

    Args:
        name: of what cannot go on; empty: the task's own.
    """

    def ended(task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            count_failure(name or task.get_name())
            on_failure(name or task.get_name(), error)

    task.add_done_callback(ended)
    return task


async def end_tasks(tasks: "Collection[asyncio.Task[Any]]", what: str, limit_s: float | None = None) -> None:
    """Cancel tasks, and wait until they have ended.

    Args:
        what: they are, for the log.
        limit_s: how long to wait; None: for ever. Tasks that have not ended by then are left to themselves: their code
            catches CancelledError and goes on.
    """
    for task in tasks:
        task.cancel()
    if not tasks:
        return
    ended, left = await asyncio.wait(tasks, timeout=limit_s)
    for task in ended:
        if not task.cancelled():
            task.exception()  # marks the exception as retrieved, because nobody else does
    if left:
        log.error(
            "%d of %s still run %.0f s after they were cancelled, and are abandoned: code that catches CancelledError "
            "must raise it again (%s)",
            len(left), what, limit_s, ", ".join(sorted(task.get_name() for task in left)[:3]),
        )  # fmt: skip
