"""Blocking work off the loop, seen through to its end, each kind of it on threads of its own.

A thread cannot be cancelled. A task that only awaits `run_in_executor` and is cancelled would continue, and close or
rewrite files, while the thread still works on them. So here a cancelled caller is cancelled only when the work has
ended.

The loop's own executor has a few threads and takes what comes in turn: four hundred reads of 50 ms from a slow disk
would hold up a group commit, or a vote, for seconds. So urgent work has threads that nothing else uses, and work that
may come in any number, or take any time, has a limited number of threads:

* `FLUSHES`: syncs of the log (group commits). `VOTES`: terms and votes of DLedger.
* `CHECKPOINTS`: what is flushed and noted in intervals: queues, index, checkpoints. `TABLES`: topics, groups, offsets.
* `FILES`: files, blocks and pages made ahead, and files that are deleted.
* `COLD_READS`: messages that are not in memory. `TOOLS`: what compacts, repairs and looks through the store.

All other work uses the event loop's executor (`run_blocking`). A thread is started when there is work that no idle one
takes.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Final, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Threads:
    """Threads of a process for one kind of blocking work. Any loop may use them."""

    def __init__(self, name: str, most: int) -> None:
        """`most` is the number of threads at a time; more work waits for them."""
        self._name = name
        self._most = most
        self._executor: ThreadPoolExecutor | None = None
        self._choosing = Lock()

    def start(self, work: Callable[[*Ts], T], *args: *Ts) -> "asyncio.Future[T]":
        """Start `work(*args)`. Returns its future on the running loop, which the caller must not cancel."""
        with self._choosing:  # locked, so that the executor is not shut down between the check and the submission
            if self._executor is None:
                self._executor = ThreadPoolExecutor(self._most, thread_name_prefix=self._name)
            return asyncio.get_running_loop().run_in_executor(self._executor, work, *args)

    async def run(self, work: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run `work(*args)` and return its value or raise its error. A cancellation waits for its end."""
        return await ended(self.start(work, *args))

    def end(self) -> None:
        """End the threads after their present work. Does not wait. Later work gets new threads."""
        with self._choosing:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False)


FLUSHES: Final = Threads("maxq-flush", 4)
VOTES: Final = Threads("maxq-vote", 2)
CHECKPOINTS: Final = Threads("maxq-checkpoint", 6)
TABLES: Final = Threads("maxq-table", 2)
FILES: Final = Threads("maxq-file", 3)
COLD_READS: Final = Threads("maxq-read", 8)
TOOLS: Final = Threads("maxq-tool", 2)


def end_threads() -> None:
    """End the idle threads of a server that has ended in this process."""
    for threads in (FLUSHES, VOTES, CHECKPOINTS, TABLES, FILES, COLD_READS, TOOLS):
        threads.end()


async def run_blocking(work: Callable[[*Ts], T], *args: *Ts) -> T:
    """Run `work(*args)` on the loop's executor and return its value or raise its error. A cancellation waits for its
    end."""
    return await ended(asyncio.get_running_loop().run_in_executor(None, work, *args))


async def ended(future: "asyncio.Future[T]") -> T:
    """Wait for the outcome of `future`, which is never cancelled from here: a cancellation waits for its end."""
    cancellation: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancellation = error
    if cancellation is not None:
        if not future.cancelled():
            future.exception()  # marks the exception as retrieved: the caller no longer waits
        raise cancellation
    return future.result()
