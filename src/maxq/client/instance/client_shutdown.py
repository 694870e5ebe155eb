"""ClientShutdown: starts and shutdowns of one client, one after the other, whatever happens to whoever asked for them.

A shutdown that stops half way leaves a ghost: brokers go on counting a member whose queues nobody reads. A start that
meets another start or a shutdown under way is refused in the same way.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final

from maxq.errors import ClientError

log: Final = logging.getLogger(__name__)

#: The clients whose calls to the application the current code is part of, and the tasks that make these calls.
_Calls = tuple[tuple["ClientShutdown", asyncio.Task[Any] | None], ...]
_calls: Final[ContextVar[_Calls]] = ContextVar("maxq-calls", default=())


class ClientShutdown:
    """The starts and shutdowns of one client. A shutdown is completed even if its caller is cancelled.

    Args:
        what: the client, for errors and the log: "producer of group P".
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._task: asyncio.Task[None] | None = None
        self._start: asyncio.Future[None] | None = None  # the start that is under way

    @asynccontextmanager
    async def starting(self) -> AsyncIterator[None]:
        """Start the client within this context, after a shutdown that is under way; a shutdown that is requested
        meanwhile waits for the start.

        Raises:
            ClientError: another start is under way; or a call that the shutdown waits for asks for the start.
        """
        if (task := self._task) is not None:
            if self._is_in_call_itself:
                raise ClientError(
                    f"{self._what} is being shut down, and waits for the call that starts it again: start it in a task "
                    "or thread that the call does not wait for"
                )
            await asyncio.wait([task])
            task.result()
        if self._start is not None:
            raise ClientError(f"{self._what} is already started")
        start = self._start = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            self._start = None
            start.set_result(None)

    async def run(self, work: Callable[[], Coroutine[Any, Any, None]], hurry: Callable[[], None] | None = None) -> None:
        """Run the shutdown `work` once no start is under way, or wait for a shutdown under way. If the caller is
        cancelled, the shutdown is still completed, and then the cancellation is raised.

        A call of the application that it waits for (`calling`) does not wait for it, nor does a task that such a call
        has made: it is begun then. A call that the shutdown of another client waits for is cancelled at once, for the
        two may wait for each other.

        Args:
            hurry: called when the one who waits is cancelled.
        """
        start = self._start

        async def after_start() -> None:
            while start is not None and not start.done():
                # all tasks are cancelled, the start's among them, so it ends soon
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([start])
            await work()

        if self._task is None:
            self._begin(after_start)
        assert self._task is not None, "it was begun"
        if self.is_called:
            self._task.add_done_callback(self._tell)
            await asyncio.sleep(0)  # lets it begin: from here on nothing more is called
        else:
            await self.wait(hurry)

    async def complete(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run the shutdown `work` because the calling start has failed. A shutdown that waits for this start runs
        afterwards."""
        if self._task is None:
            self._begin(work)
            await self.wait()

    def _begin(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._task = asyncio.create_task(work(), name="maxq-shutdown")
        self._task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._task = None

    def _tell(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("the shutdown of %s failed: %s", self._what, error)

    async def wait(self, hurry: Callable[[], None] | None = None) -> None:
        """Wait until no shutdown is under way. Raises the error of the shutdown."""
        task, cancelled = self._task, None
        if task is None:
            return
        while not task.done():
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError as error:
                cancelled = error
                if hurry is not None:
                    hurry()
                if _calls.get():
                    task.add_done_callback(self._tell)
                    raise
            except Exception:
                break
        if cancelled is not None:
            raise cancelled
        task.result()

    # --- calls of the application ---

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Call the application within this context if a shutdown must wait for the end of the call."""
        token = _calls.set((*_calls.get(), (self, _current_task())))
        try:
            yield
        finally:
            _calls.reset(token)

    @property
    def is_called(self) -> bool:
        """Return whether the calling code is part of a call that a shutdown waits for."""
        return any(client is self for client, _ in _calls.get())

    @property
    def _is_in_call_itself(self) -> bool:
        """Whether the task that asks is the one in which such a call was made."""
        return (self, _current_task()) in _calls.get()


def _current_task() -> asyncio.Task[Any] | None:
    """Return the task that asks; None in a thread without a loop."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


async def in_turn(*steps: Callable[[], Awaitable[object]]) -> None:
    """Run every step, even after one has failed or was cancelled, and then raise the first error."""
    first: BaseException | None = None
    for step in steps:
        try:
            await step()
        except (Exception, asyncio.CancelledError) as error:
            first = first or error
    if first is not None:
        raise first
