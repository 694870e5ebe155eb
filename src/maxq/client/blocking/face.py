"""Face: blocking methods made from the methods of an asynchronous class.

    class ProducerCalls(Face[producer.Producer], of=producer.Producer, calls=("send", "send_oneway")): ...

gives ProducerCalls the methods `send` and `send_oneway` with the signatures and docstrings of the asynchronous ones.
Each runs the asynchronous method on the loop of the client's thread, waits, and returns or raises what that does.
Methods that are plain functions run on that loop as well; one that yields becomes an iterator.

Type checkers and editors see the stub `calls.pyi`, which tests/unit/client/blocking/blocking_stubs.py writes.
"""

import contextlib
import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator
from typing import Any, Generic, TypeVar

from maxq.client.blocking.loop_thread import LoopThread
from maxq.client.errors import NotRunningError

Client = TypeVar("Client")
Result = TypeVar("Result")

_END: Any = object()  # stands for the end of an iterator


class Face(ABC, Generic[Client]):
    """A blocking object in front of an asynchronous one.

    Subclasses that are declared with `of` get methods:

    Args:
        of: the asynchronous class.
        calls: names of its methods that can be called while the client runs; None: all that are public.
        before_start: names of methods that may be called before the start as well. Then they only record something, and
            never wait.
    """

    _thread: LoopThread

    def __init_subclass__(
        cls,
        *,
        of: type | None = None,
        calls: Iterable[str] | None = None,
        before_start: Iterable[str] = (),
        **others: Any,
    ) -> None:
        super().__init_subclass__(**others)
        if of is None:
            return
        early = tuple(before_start)
        for name in [*(_public_methods(of) if calls is None else calls), *early]:
            method = _blocking(getattr(of, name), is_early=name in early)
            method.__qualname__, method.__module__ = f"{cls.__qualname__}.{name}", cls.__module__
            setattr(cls, name, method)

    @property
    @abstractmethod
    def _running(self) -> Client:
        """Return the asynchronous object. Raises NotRunningError if it was not started, or is shut down."""

    @property
    @abstractmethod
    def _idle(self) -> Client | None:
        """Return the asynchronous object while it does not run; None if it runs."""


class Part(Face[Client]):
    """The blocking form of a part of a running client, such as a part of the blocking Admin.

    Args:
        thread: on whose loop the client runs.
        wrapped: the part of the asynchronous client.
    """

    def __init__(self, thread: LoopThread, wrapped: Client) -> None:
        self._thread = thread
        self._wrapped = wrapped

    @property
    def _running(self) -> Client:
        return self._wrapped

    @property
    def _idle(self) -> None:
        return None


def _public_methods(of: type) -> list[str]:
    return [name for name, value in vars(of).items() if inspect.isfunction(value) and not name.startswith("_")]


def _blocking(method: Callable[..., Any], *, is_early: bool) -> Callable[..., Any]:
    """Return the blocking form of a method of an asynchronous class."""
    if inspect.isasyncgenfunction(method):

        @functools.wraps(method)
        def iterate(self: Face[Any], *args: Any, **kwargs: Any) -> Iterator[Any]:
            items: AsyncGenerator[Any, None] = method(self._running, *args, **kwargs)
            try:
                while (item := self._thread.run(_next(items))) is not _END:
                    yield item
            finally:
                with contextlib.suppress(NotRunningError):  # the client was shut down, which has closed the iterator
                    self._thread.run(items.aclose())

        return iterate
    begin = method if inspect.iscoroutinefunction(method) else _as_coroutine(method)

    @functools.wraps(method)
    def call(self: Face[Any], *args: Any, **kwargs: Any) -> Any:
        if is_early and (client := self._idle) is not None:
            return _at_once(begin(client, *args, **kwargs))
        return self._thread.run(begin(self._running, *args, **kwargs))

    return call


def _as_coroutine(method: Callable[..., Result]) -> Callable[..., Coroutine[Any, Any, Result]]:
    async def call(*args: Any, **kwargs: Any) -> Result:
        return method(*args, **kwargs)

    return call


async def _next(items: AsyncGenerator[Result, None]) -> Result:
    found: Result = await anext(items, _END)
    return found


def _at_once(work: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of a coroutine that never suspends."""
    try:
        work.send(None)
    except StopIteration as ended:
        result: Result = ended.value
        return result
    work.close()
    raise AssertionError("a method that may be called before the start has waited for something")
