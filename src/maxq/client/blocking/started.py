"""Started: what the blocking clients that are started and shut down have in common."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from maxq.client.blocking.face import Face
from maxq.client.blocking.loop_thread import LoopFactory, LoopThread
from maxq.client.errors import NotRunningError
from maxq.errors import ClientError

Client = TypeVar("Client")


class Started(Face[Client], ABC):
    """A client that is started and shut down, also as a context manager.

    Attributes:
        _client: the asynchronous client.
    """

    _client: Client

    def __init__(self, loop_factory: LoopFactory | None, what: str) -> None:
        self._what = what  # name of the client in errors
        self._thread = LoopThread(loop_factory)
        self._is_started = False
        self._is_starting = False
        self._is_unwanted = False  # it was shut down while it started
        self._lives = 0
        self._life = threading.RLock()  # held by who starts it or shuts it down; a signal handler may interrupt that

    @abstractmethod
    async def _begin(self) -> None:
        """Start the asynchronous client that this one uses."""

    @abstractmethod
    async def _end(self) -> None:
        """Shut down the asynchronous client that this one uses."""

    @property
    def _running(self) -> Client:
        if not self._is_started:
            raise NotRunningError(f"{self._what} is not running: start it first")
        return self._client

    @property
    def _idle(self) -> Client | None:
        return None if self._is_started else self._client

    def start(self) -> None:
        """Start the client; also again, after a shutdown.

        Raises:
            ClientError: it runs already, or no name server is given.
            NotRunningError: it was shut down meanwhile, as by a signal handler.
        """
        if self._thread.is_forked:
            self._thread.start()  # raises the error that explains it
        with self._life:
            if self._is_started or self._is_starting:
                raise ClientError(f"{self._what} is already started")
            self._lives += 1
            self._is_starting, self._is_unwanted = True, False
            try:
                self._thread.start()
                try:
                    self._thread.run(self._begin())
                except BaseException:
                    self._thread.stop()
                    raise
                self._is_started = True
            finally:
                self._is_starting = False
            if self._is_unwanted:
                self._shut_down(self._lives)
                raise NotRunningError(f"{self._what} was shut down while it started")

    def shutdown(self) -> None:
        """Shut the client down and end its thread; does nothing if it does not run. A second call waits for the first,
        and a call during a start waits for the start. Called by a listener, or another function that the client
        calls, it only starts the shutdown, which waits for that call."""
        if self._thread.is_forked:  # in a forked process everything here belongs to the parent
            self._thread.stop()
            self._is_started, self._life = False, threading.RLock()
        elif self._thread.is_current or self._is_in_listener:
            threading.Thread(target=self._shut_down, args=(self._lives,), name="maxq-shutdown").start()
        else:
            self._shut_down(self._lives)

    def _shut_down(self, life: int) -> None:
        """End a client that has been started `life` times; one that was started again meanwhile keeps running."""
        with self._life:
            if self._is_starting:  # a signal handler has interrupted the start, which ends with it
                self._is_unwanted = True
            elif self._is_started and life == self._lives:
                self._is_started = False
                try:
                    stop(self._thread, self._end)
                finally:
                    self._after_end()

    def _after_end(self) -> None:
        """Release the resources that the client used besides its thread."""

    @property
    def _is_in_listener(self) -> bool:
        """Return whether the calling code is part of a call that a shutdown waits for."""
        return False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()


def stop(thread: LoopThread, end: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """End a client and its thread; does nothing in a forked process, because both belong to the parent."""
    try:
        if thread.is_running:
            thread.run(end())
    finally:
        thread.stop()
