"""Hooks: what an application has called around its sends, its listener calls and its pulls.

They are given with the client's settings (`send_message_hooks=[…]`). A hook is an object with the methods of one of the
protocols below; hooks of all requests of a client are RPC hooks (remoting/rpc_hooks.py, `rpc_hooks=[…]`). An exception
from a send, end or consume hook is logged and changes nothing; a CheckForbiddenHook refuses a send by raising. Hooks of
sends and pulls run on the client's event loop and must not block; those of listener calls run where the listener runs.

Source:
    apache/rocketmq client/hook/*.java; client/impl/producer/DefaultMQProducerImpl.java (sendKernelImpl),
    client/impl/consumer/ConsumeMessageConcurrentlyService.java (ConsumeRequest), PullAPIWrapper.java (executeHook).
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import field
from enum import Enum
from typing import Protocol, TypeVar

from maxq.client.failures import KnownErrors, error_in_a_line
from maxq.client.results.consume_result import ConsumeResult
from maxq.client.results.local_transaction_state import LocalTransactionState
from maxq.client.results.send_result import SendResult
from maxq.lazy_dataclass import dataclass
from maxq.protocol.message.message import Message, MessageExt
from maxq.protocol.message.message_queue import MessageQueue
from maxq.runtime.interfaces import Clock

log = logging.getLogger(__name__)

T = TypeVar("T")
_known_errors = KnownErrors()  # errors of this process's hooks whose tracebacks were logged


# --- sending ---


class CommunicationMode(Enum):
    """Whether a send waits for its answer (SYNC), or there is none (ONEWAY)."""

    SYNC = "SYNC"
    ONEWAY = "ONEWAY"


@dataclass(slots=True)
class SendMessageContext:
    """One attempt to send. Properties that a hook gives a single message before the send travel with it.

    Attributes:
        messages: one, or those of a batch.
        send_result: after the send; None if it failed or was one-way.
        exception: after a send that failed.
        props: the hooks' own, kept from before to after.
    """

    producer_group: str
    namespace: str
    messages: tuple[Message, ...]
    message_queue: MessageQueue
    broker_address: str
    communication_mode: CommunicationMode
    unit_mode: bool
    send_result: SendResult | None = None
    exception: Exception | None = None
    props: dict[str, object] = field(default_factory=dict)


class SendMessageHook(Protocol):
    """Called before and after every attempt to send."""

    def send_message_before(self, context: SendMessageContext) -> None: ...

    def send_message_after(self, context: SendMessageContext) -> None: ...


class CheckForbiddenHook(Protocol):
    """Called before a send, which it may refuse by raising: the sender gets the exception, and no other broker is
    tried."""

    def check_forbidden(self, context: SendMessageContext) -> None: ...


class SendHooks:
    """The send hooks of one producer, in the order in which they are called."""

    def __init__(self, hooks: Sequence[SendMessageHook], forbidding: Sequence[CheckForbiddenHook]) -> None:
        self._hooks = tuple(hooks)
        self._forbidding = tuple(forbidding)

    def __bool__(self) -> bool:
        return bool(self._hooks or self._forbidding)

    def before(self, context: SendMessageContext) -> None:
        """Call the hooks before an attempt. Raises what a CheckForbiddenHook raises."""
        for forbidding in self._forbidding:
            forbidding.check_forbidden(context)
        for hook in self._hooks:
            _call(hook.send_message_before, context)

    def after(self, context: SendMessageContext) -> None:
        """Call the hooks after an attempt. `context` has the result or the exception."""
        for hook in self._hooks:
            _call(hook.send_message_after, context)


# --- ends of transactions ---


@dataclass(frozen=True, slots=True)
class EndTransactionContext:
    """The end of a local transaction that is about to be reported to a broker.

    Attributes:
        from_transaction_check: the broker asked for it.
    """

    producer_group: str
    message: Message
    broker_address: str
    msg_id: str
    transaction_id: str | None
    transaction_state: LocalTransactionState
    from_transaction_check: bool


class EndTransactionHook(Protocol):
    """Called before the end of a transaction is reported to a broker."""

    def end_transaction(self, context: EndTransactionContext) -> None: ...


class EndTransactionHooks:
    """The end-of-transaction hooks of one producer, in the order in which they are called."""

    def __init__(self, hooks: Sequence[EndTransactionHook]) -> None:
        self._hooks = tuple(hooks)

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def call(self, context: EndTransactionContext) -> None:
        for hook in self._hooks:
            _call(hook.end_transaction, context)


# --- consuming ---


class ConsumeReturnType(Enum):
    """How a listener call ended."""

    SUCCESS = "SUCCESS"
    TIME_OUT = "TIME_OUT"  # it returned, but took longer than consume_timeout_minutes
    EXCEPTION = "EXCEPTION"
    FAILED = "FAILED"  # it asked for another try


@dataclass(slots=True)
class ConsumeMessageContext:
    """One listener call.

    Attributes:
        status: after the call: what counts as its answer.
        return_type: after the call: how it ended.
        props: the hooks' own, kept from before to after.
    """

    consumer_group: str
    namespace: str
    messages: list[MessageExt]
    message_queue: MessageQueue
    started_ms: int  # monotonic
    success: bool = False
    status: ConsumeResult | None = None
    return_type: ConsumeReturnType | None = None
    props: dict[str, object] = field(default_factory=dict)


class ConsumeMessageHook(Protocol):
    """Called before and after every listener call."""

    def consume_message_before(self, context: ConsumeMessageContext) -> None: ...

    def consume_message_after(self, context: ConsumeMessageContext) -> None: ...


class ConsumeHooks:
    """The listener hooks of one consumer, in the order in which they are called.

    Args:
        timeout_ms: a listener call of this length counts as TIME_OUT.
    """

    def __init__(
        self, hooks: Sequence[ConsumeMessageHook], group: str, namespace: str, clock: Clock, timeout_ms: int
    ) -> None:
        self._hooks = tuple(hooks)
        self._group = group
        self._namespace = namespace
        self._clock = clock
        self._timeout_ms = timeout_ms

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._hooks)

    def before(self, messages: list[MessageExt], queue: MessageQueue) -> ConsumeMessageContext | None:
        """Call the hooks before a listener call. Returns the argument for `after`; None without hooks."""
        if not self._hooks:
            return None
        now_ms = self._clock.monotonic_ms()
        context = ConsumeMessageContext(self._group, self._namespace, list(messages), queue, now_ms)
        for hook in self._hooks:
            _call(hook.consume_message_before, context)
        return context

    def after(self, context: ConsumeMessageContext, result: ConsumeResult, *, raised: bool) -> None:
        """Call the hooks after a listener call. `raised` means that it ended by an exception, which `result` stands
        for."""
        context.status = result
        context.success = result is ConsumeResult.SUCCESS
        if raised:
            context.return_type = ConsumeReturnType.EXCEPTION
        elif self._clock.monotonic_ms() - context.started_ms >= self._timeout_ms:
            context.return_type = ConsumeReturnType.TIME_OUT
        else:
            context.return_type = ConsumeReturnType.SUCCESS if context.success else ConsumeReturnType.FAILED
        for hook in self._hooks:
            _call(hook.consume_message_after, context)


# --- pulling ---


@dataclass(slots=True)
class FilterMessageContext:
    """The messages of one pull. A hook removes messages by replacing `messages`; the consumer skips the removed
    ones."""

    consumer_group: str
    messages: list[MessageExt]
    message_queue: MessageQueue
    unit_mode: bool


class FilterMessageHook(Protocol):
    """Called with the messages of each pull before the consumer gets them."""

    def filter_message(self, context: FilterMessageContext) -> None: ...


def filtered(hooks: Sequence[FilterMessageHook], context: FilterMessageContext) -> list[MessageExt]:
    """Return the messages that the hooks have not removed."""
    for hook in hooks:
        _call(hook.filter_message, context)
    return context.messages


def _call(method: Callable[[T], None], context: T) -> None:
    try:
        method(context)
    except Exception as error:
        log.warning("hook %r failed: %s", method, error_in_a_line(error), exc_info=_known_errors.if_new(error))
