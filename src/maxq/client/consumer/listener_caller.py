"""Calls a user's listener, whatever it is, and turns every outcome into a ConsumeResult."""

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from maxq.client.failures import KnownErrors, error_in_a_line
from maxq.client.hooks import ConsumeHooks
from maxq.client.instance.client_shutdown import ClientShutdown
from maxq.client.results.consume_result import ConsumeContext, ConsumeResult, MessageListener
from maxq.protocol.enums import CMResult
from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.received_cy import show_own_topics
from maxq.protocol.namespace import retry_topic

log = logging.getLogger(__name__)


class ListenerCaller:
    """Calls one listener and turns each outcome into a ConsumeResult.

    Args:
        listener: plain function or coroutine function.
        executor: where plain functions run; None: on the event loop, for functions that do not block.
        later: the result that an exception counts as.
        group: the consumer group, for the log and for its retry topic.
        hooks: called around every call, where the listener runs.
        ending: of the consumer, whose shutdown waits for calls.
    """

    def __init__(
        self,
        listener: MessageListener,
        executor: Executor | None,
        later: ConsumeResult,
        group: str,
        hooks: ConsumeHooks,
        ending: ClientShutdown,
    ) -> None:
        self._listener = listener
        is_coroutine = inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(
            getattr(listener, "__call__", None)  # noqa: B004 - an object with `async def __call__`
        )
        self._executor = None if is_coroutine else executor
        self._later = later
        self._group = group
        self.retry_topic = retry_topic(group)
        self._hooks = hooks
        self._ending = ending
        self._known_errors = KnownErrors()

    @property
    def executor(self) -> Executor | None:
        """The threads in which listeners are called; None if they are called on the event loop."""
        return self._executor

    def replace_executor(self, executor: Executor) -> None:
        """Make later calls in another executor; nothing if listeners are called on the event loop."""
        if self._executor is not None:
            self._executor = executor

    def show_own_topics(self, messages: Sequence[MessageExt]) -> None:
        """Give messages that came back through the group's retry topic their original topic."""
        show_own_topics(messages, self.retry_topic)

    async def call(
        self, messages: list[MessageExt], context: ConsumeContext, is_wanted: Callable[[], bool] = lambda: True
    ) -> ConsumeResult | None:
        """Make one call, on the loop or in the executor.

        Args:
            is_wanted: asked right before it if it has to wait for a thread.

        Returns:
            What it came to; None: it was not wanted any more, and was not made.
        """
        if self._executor is not None:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._executor, self._call_if, is_wanted, messages, context)
        hooked = self._hooks.before(messages, context.message_queue)
        failure: BaseException | None = None
        try:
            with self._ending.calling():
                answer = self._listener(list(messages), context)  # a copy, because the listener may change its list
                if answer is not None and not isinstance(answer, ConsumeResult):
                    answer = await answer
            result = self._checked(answer)
        except BaseException as error:
            if _is_for_us(error):
                raise
            failure, result = error, self._failed(error, messages)
        if hooked is not None:
            self._hooks.after(hooked, result, raised=failure is not None)
        return result

    def _call_if(
        self, is_wanted: Callable[[], bool], messages: list[MessageExt], context: ConsumeContext
    ) -> ConsumeResult | None:
        return self.call_blocking(messages, context) if is_wanted() else None

    def call_blocking(self, messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        """Make one call of a plain listener in the calling thread. Any exception counts as a failed attempt: `sys.exit`
        in a listener ends neither that thread nor the process."""
        hooked = self._hooks.before(messages, context.message_queue)
        failure: BaseException | None = None
        try:
            with self._ending.calling():
                answer = self._listener(list(messages), context)  # a copy, because the listener may change its list
            if inspect.isawaitable(answer):
                raise TypeError("a plain listener must not return an awaitable; declare it with `async def`")
            result = self._checked(answer)
        except BaseException as error:
            failure, result = error, self._failed(error, messages)
        if hooked is not None:
            self._hooks.after(hooked, result, raised=failure is not None)
        return result

    def _checked(self, answer: object) -> ConsumeResult:
        if answer is None:
            return ConsumeResult.SUCCESS
        if isinstance(answer, ConsumeResult):
            return answer
        raise TypeError(f"a listener returns a ConsumeResult or None, not {answer!r:.80}")

    def _failed(self, error: BaseException, messages: list[MessageExt]) -> ConsumeResult:
        """Log a failed call in one line; the first time that this error comes, with its traceback."""
        first = messages[0]
        what = "message" if len(messages) == 1 else f"{len(messages)} messages, the first is"
        log.warning(
            "listener of group %s failed on %s %s of topic %s queue %d offset %d: %s",
            self._group, what, first.msg_id, first.topic, first.queue_id, first.queue_offset, error_in_a_line(error),
            exc_info=self._known_errors.if_new(error),
        )  # fmt: skip
        return self._later

    async def consume_directly(self, message: MessageExt, context: ConsumeContext) -> tuple[CMResult, str | None]:
        """Call the listener with one message because an operator asked for it (CONSUME_MESSAGE_DIRECTLY). Returns the
        outcome and the error's text."""
        try:
            if self._executor is not None:
                loop = asyncio.get_running_loop()
                answer: object = await loop.run_in_executor(self._executor, self._listener, [message], context)
            else:
                with self._ending.calling():
                    answer = self._listener([message], context)
                    if inspect.isawaitable(answer):
                        answer = await answer
        except BaseException as error:
            if _is_for_us(error):
                raise
            return CMResult.CR_THROW_EXCEPTION, f"{type(error).__name__}: {error}"
        return (CMResult.CR_SUCCESS if answer in (None, ConsumeResult.SUCCESS) else CMResult.CR_LATER), None


def _is_for_us(error: BaseException) -> bool:
    """Return whether an exception of a call on the loop is addressed to the loop: Ctrl-C of the program's main thread,
    or the cancellation of the task that made the call. All others, such as that of `sys.exit`, count as a failed
    attempt of the listener."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()
