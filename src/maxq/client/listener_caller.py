"""Calls a user's listener, whatever it is, and turns every outcome into a ConsumeResult."""

import asyncio
import inspect
import logging
from collections.abc import Sequence
from concurrent.futures import Executor

from maxq.client.consume_result import ConsumeContext, ConsumeResult, MessageListener
from maxq.client.hooks import ConsumeHooks
from maxq.protocol import message_const as const
from maxq.protocol.enums import CMResult
from maxq.protocol.message import MessageExt

log = logging.getLogger(__name__)

#: One listener call that is due: its messages and what it is told.
Call = tuple[list[MessageExt], ConsumeContext]


class ListenerCaller:
    """One listener.

    Args:
        listener: plain function or coroutine function.
        executor: where plain functions run; None: on the event loop, for functions that do not block.
        later: what an exception counts as.
        group: for the log.
        hooks: called around every call, where the listener runs.
    """

    def __init__(
        self,
        listener: MessageListener,
        executor: Executor | None,
        later: ConsumeResult,
        group: str,
        hooks: ConsumeHooks,
    ) -> None:
        self._listener = listener
        is_coroutine = inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(
            getattr(listener, "__call__", None)  # noqa: B004 - an object with `async def __call__`
        )
        self._executor = None if is_coroutine else executor
        self._later = later
        self._group = group
        self._hooks = hooks

    @property
    def uses_executor(self) -> bool:
        """Do calls leave the loop?"""
        return self._executor is not None

    def replace_executor(self, executor: Executor) -> None:
        """Later calls run there."""
        if self._executor is not None:
            self._executor = executor

    async def call(self, messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        """One call."""
        if self._executor is not None:
            return (await self.call_many([(messages, context)]))[0]
        hooked = self._hooks.before(messages, context.message_queue)
        failure: Exception | None = None
        try:
            answer = self._listener(messages, context)
            if answer is not None and not isinstance(answer, ConsumeResult):
                answer = await answer
            result = self._checked(answer)
        except Exception as error:
            failure, result = error, self._failed(error, messages)
        if hooked is not None:
            self._hooks.after(hooked, result, raised=failure is not None)
        return result

    async def call_many(self, calls: Sequence[Call]) -> list[ConsumeResult]:
        """Several calls, one after the other, in one hop to the executor."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, self._run_blocking, calls)

    def _run_blocking(self, calls: Sequence[Call]) -> list[ConsumeResult]:
        results = []
        for messages, context in calls:
            hooked = self._hooks.before(messages, context.message_queue)
            failure: Exception | None = None
            try:
                answer = self._listener(messages, context)
                if inspect.isawaitable(answer):
                    raise TypeError("a plain listener must not return an awaitable; declare it with `async def`")
                result = self._checked(answer)
            except Exception as error:
                failure, result = error, self._failed(error, messages)
            if hooked is not None:
                self._hooks.after(hooked, result, raised=failure is not None)
            results.append(result)
        return results

    def _checked(self, answer: object) -> ConsumeResult:
        if answer is None:
            return ConsumeResult.SUCCESS
        if isinstance(answer, ConsumeResult):
            return answer
        raise TypeError(f"a listener returns a ConsumeResult or None, not {answer!r:.80}")

    def _failed(self, error: Exception, messages: list[MessageExt]) -> ConsumeResult:
        first = messages[0]
        log.warning(
            "listener of group %s failed on %d messages, the first is %s of topic %s queue %d offset %d",
            self._group, len(messages), first.msg_id, first.topic, first.queue_id, first.queue_offset, exc_info=error,
        )  # fmt: skip
        return self._later

    async def consume_directly(self, message: MessageExt, context: ConsumeContext) -> tuple[CMResult, str | None]:
        """An operator wants this one message consumed now (CONSUME_MESSAGE_DIRECTLY): outcome and error text."""
        try:
            if self._executor is not None:
                loop = asyncio.get_running_loop()
                answer: object = await loop.run_in_executor(self._executor, self._listener, [message], context)
            else:
                answer = self._listener([message], context)
                if inspect.isawaitable(answer):
                    answer = await answer
        except Exception as error:
            return CMResult.CR_THROW_EXCEPTION, f"{type(error).__name__}: {error}"
        return (CMResult.CR_SUCCESS if answer in (None, ConsumeResult.SUCCESS) else CMResult.CR_LATER), None


def reset_retry_topic(messages: Sequence[MessageExt], retry_topic: str) -> None:
    """Messages that came back through the group's retry topic show the topic they were sent to."""
    for message in messages:
        if message.topic == retry_topic:
            message.topic = message.properties.get(const.PROPERTY_RETRY_TOPIC, message.topic)
