"""Checks of arguments that programs pass to the client library: settings, numbers, queues and expressions.

A value of the wrong type or out of its bounds is refused where it is given. The error names the value, what is expected
and what to do.
"""

import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from enum import Enum
from typing import Any, Final, TypeVar, get_args, get_origin

from maxq.client.errors import WrongArgumentError
from maxq.errors import LocalProtocolError
from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.message_const import PROPERTY_POP_CK
from maxq.protocol.message.message_queue import MessageQueue
from maxq.remoting.client import split_address

INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1
_LIKENESS: Final = 0.6  # difflib's measure, from 0 to 1

T = TypeVar("T")


def config_of(kind: type[T], settings: Mapping[str, Any]) -> T:
    """Make a config of the given settings.

    Raises:
        TypeError: there is no such setting; names the most similar one.
        WrongArgumentError: a value is of the wrong type or out of its bounds.
    """
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    for name in settings:
        if name not in known:
            from difflib import get_close_matches  # imported only when an error is explained

            near = get_close_matches(name, known, n=1, cutoff=_LIKENESS)
            hint = f"did you mean {near[0]}?" if near else f"maxq.client.client_config.{kind.__name__} lists them all"
            raise TypeError(f"there is no setting {name!r} of a {kind.__name__.removesuffix('Config')}; {hint}")
    return kind(**settings)


def check_config(config: Any, bounds: Mapping[str, tuple[int, int]]) -> None:
    """Check each field of a dataclass against its annotation, and numbers against their bounds.

    Args:
        bounds: name of a field → smallest and largest number, both included.

    Raises:
        WrongArgumentError: the first value that does not fit.
    """
    for field in fields(config):
        value, kind = getattr(config, field.name), field.type
        if not _is_of(value, kind):
            given = "***" if not field.repr else f"{value!r:.60}"
            raise WrongArgumentError(f"{field.name} is {_words(kind)}, not {given}{_remedy(kind, value)}")
        if isinstance(value, int) and field.name in bounds:
            low, high = bounds[field.name]
            if not low <= value <= high:
                raise WrongArgumentError(f"{field.name} is a whole number from {low} to {high}, not {value}")


def check_address(address: str) -> None:
    """Check the address of a name server.

    Raises:
        WrongArgumentError: it is not host:port.
    """
    try:
        split_address(address)
    except LocalProtocolError as error:
        raise WrongArgumentError(f"namesrv_addr: {error}; several are separated by ';'") from None


def check_number(name: str, value: int | None, low: int = 0, high: int = INT_MAX) -> None:
    """Check a whole number from `low` to `high`, or None for the default of the settings.

    Raises:
        WrongArgumentError: another value.
    """
    if value is None:
        return
    if type(value) is not int or not low <= value <= high:
        hint = ""
        if isinstance(value, float | str):
            hint = f"; give a whole number: {name}=int(…)"
        elif name.endswith("_ms"):
            hint = "; the unit is the millisecond"
        raise WrongArgumentError(f"{name} is a whole number from {low} to {high}, not {value!r:.60}{hint}")


def check_queue(queue: object) -> None:
    """Raises:
    WrongArgumentError: it is not a MessageQueue with a topic, a broker name and an id.
    """
    if not isinstance(queue, MessageQueue):
        raise WrongArgumentError(
            f"a queue is a MessageQueue(topic, broker_name, queue_id), not {queue!r:.60}; "
            "LitePullConsumer.fetch_message_queues gives those of a topic"
        )
    if not (isinstance(queue.topic, str) and isinstance(queue.broker_name, str) and type(queue.queue_id) is int):
        raise WrongArgumentError(f"a queue has a topic (str), a broker name (str) and an id (int), not {queue!r:.150}")


def queues_of(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Return the queues of a list or another collection.

    Raises:
        WrongArgumentError: it is not a collection, or contains something other than queues.
    """
    if not isinstance(queues, Iterable) or isinstance(queues, str | MessageQueue):
        raise WrongArgumentError(f"queues are a list of MessageQueue, not {queues!r:.80}; for one queue write [queue]")
    wanted = list(queues)
    for queue in wanted:
        check_queue(queue)
    return wanted


def check_offsets(offsets: Mapping[MessageQueue, int]) -> None:
    """Check offsets that are to be committed.

    Raises:
        WrongArgumentError: something else than numbers of at least 0 by queue.
    """
    if not isinstance(offsets, Mapping):
        raise WrongArgumentError(f"offsets are a dict of MessageQueue to int, not {offsets!r:.80}")
    for queue, offset in offsets.items():
        check_queue(queue)
        check_number(f"the offset of {queue}", offset, high=LONG_MAX)


def check_messages(messages: object, call: str) -> None:
    """Check the argument of `send_many` or `send_batch`.

    Raises:
        WrongArgumentError: it cannot be gone through, or is a text.
    """
    if not isinstance(messages, Iterable) or isinstance(messages, str | bytes):
        raise WrongArgumentError(f"{call} takes a list of Message, not {messages!r:.80}; for one there is `send`")


def check_received(messages: object) -> None:
    """Raises:
    WrongArgumentError: it is not a message that a consumer received, nor a list of them.
    """
    for message in messages if isinstance(messages, Sequence) and not isinstance(messages, str) else (messages,):
        if not isinstance(message, MessageExt):
            raise WrongArgumentError(f"give a message that `receive` returned, not {message!r:.80}")
        if PROPERTY_POP_CK not in message.properties:
            raise WrongArgumentError(
                f"a message of {message.topic} has no receipt handle (its property {PROPERTY_POP_CK}): "
                "give one that `receive` of a SimpleConsumer returned, with its properties"
            )


def check_callable(name: str, value: object, usage: str) -> None:
    """Raises:
    WrongArgumentError: it cannot be called.
    """
    if not callable(value):
        raise WrongArgumentError(f"{name} is a function that is called as {usage}, not {value!r:.80}")


def check_transaction_listener(listener: object) -> None:
    """Raises:
    WrongArgumentError: the object lacks methods of a TransactionListener.
    """
    for name in ("execute_local_transaction", "check_local_transaction"):
        if not callable(getattr(listener, name, None)):
            raise WrongArgumentError(f"a TransactionListener has a method {name}; {listener!r:.80} has none")


def _is_of(value: object, kind: Any) -> bool:
    if isinstance(kind, types.UnionType):
        return any(_is_of(value, one) for one in get_args(kind))
    origin = get_origin(kind)
    if origin is Callable:
        return callable(value)
    if origin is not None:
        return isinstance(value, origin) and not isinstance(value, str)
    if kind is int:
        return type(value) is int
    return isinstance(value, kind)


def _words(kind: Any) -> str:
    if isinstance(kind, types.UnionType):
        return " or ".join(_words(one) for one in get_args(kind))
    origin = get_origin(kind)
    if origin is Callable:
        return "a function"
    if origin is not None:
        return "a list"
    if issubclass(kind, Enum):
        return f"a {kind.__name__}: {', '.join(member.name for member in kind)}"
    words = {int: "a whole number (int)", str: "a text (str)", bool: "True or False", type(None): "None"}
    return words.get(kind) or f"of the class {kind.__name__}"


def _remedy(kind: Any, value: object) -> str:
    if isinstance(value, list | tuple | set) and kind is str:
        return f"; join the parts: {';'.join(map(str, value)):.80}" if value else ""
    if isinstance(kind, type) and issubclass(kind, Enum) and isinstance(value, str) and value in kind.__members__:
        return f"; write {kind.__name__}.{value}"
    return ""
