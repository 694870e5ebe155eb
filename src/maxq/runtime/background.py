"""Background tasks of a server: what becomes of one that fails.

    a task that others rely on (delivery, checks, flush, replication)   `supervise`: its owner is told, who stops the
                                                                         server or says what goes on without it
    work that is done again and again                                    `count_failure`: logged where it failed; the
                                                                         next turn comes all the same

Both are counted by name, in the metric `maxq_background_failures_total`: a log alone is read by nobody in time.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

_MOST_NAMES: Final = 500
_OTHERS: Final = "others"

#: Failures of the server in whose context this runs, by name of the task.
FAILURES: Final[ContextVar[Counter[str]]] = ContextVar("FAILURES")


def count_failure(name: str) -> None:
    """Count a failure of the work `name`; outside a server nothing is counted."""
    counts = FAILURES.get(None)
    if counts is not None:
        counts[name if name in counts or len(counts) < _MOST_NAMES else _OTHERS] += 1


def supervise(
    task: "asyncio.Task[None]", on_failure: Callable[[str, BaseException], None], name: str = ""
) -> "asyncio.Task[None]":
    """Call `on_failure(name, error)` if `task` ends by an error, which is counted; cancelling it is none.

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
