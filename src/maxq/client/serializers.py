"""Bodies of messages from values, and values from bodies.

    producer.send(Message("Orders", json_body({"id": 7})))
    order = from_json(message, Order)

A body is bytes, and MaxQ does not look into it. These two functions are for JSON: plain values and dataclasses by
orjson, msgspec's structs by msgspec, pydantic's models by pydantic. `from_json` checks what it returns: dict, list,
str, int, float and bool by itself, all other types by msgspec or pydantic, whichever is installed.
"""

import importlib
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeVar, overload

import orjson

from maxq.client.errors import BodyFormatError, WrongArgumentError
from maxq.protocol.message.message import Message, MessageExt

__all__ = ["from_json", "json_body"]

T = TypeVar("T")

_PLAIN: Final = (dict, list, str, int, float, bool)


def json_body(value: object) -> bytes:
    """Return a value as JSON: one of None, bool, int, float, str, list and dict, a dataclass, a datetime, a UUID, an
    Enum, a msgspec struct, a pydantic model, or any combination of them.

    Raises:
        WrongArgumentError: it contains something else; names the class.
    """
    try:
        return orjson.dumps(value, default=_of_library)
    except TypeError as error:
        reason = error.__cause__ or error
        raise WrongArgumentError(
            f"a {type(value).__name__} cannot be written as JSON: {reason}; make a dict, a dataclass, a msgspec struct "
            "or a pydantic model of it, or encode it yourself: a body is bytes"
        ) from None


@overload
def from_json(message: Message | bytes) -> Any: ...
@overload
def from_json(message: Message | bytes, kind: type[T]) -> T: ...
@overload
def from_json(message: Message | bytes, kind: object) -> Any: ...
def from_json(message: Message | bytes, kind: object = None) -> Any:
    """Return the value that a body has in JSON.

    Args:
        message: a message, or its body.
        kind: what it should be: a plain type, or anything that msgspec or pydantic understands, such as a dataclass, a
            TypedDict, a struct, a model or `list[Order]`. None: any value.

    Raises:
        BodyFormatError: it is not JSON, or not of this kind; names the message, its place and what is wrong.
        WrongArgumentError: for such a kind msgspec or pydantic is needed, and neither is installed.
    """
    body = message if isinstance(message, bytes) else message.body
    decode = orjson.loads if kind is None else _decoder(kind)
    try:
        return decode(body)
    except ValueError as error:
        name = "JSON" if kind is None else getattr(kind, "__name__", str(kind))
        raise BodyFormatError(
            f"{_named(message)} is no {name}: {error}. It will be none when it comes again, either: acknowledge it, or "
            "put it to the dead letters (in a listener: context.delay_level_when_next_consume = -1 and RECONSUME_LATER)"
        ) from error


def _named(message: Message | bytes) -> str:
    if isinstance(message, MessageExt):
        place = f"queue {message.queue_id} of {message.broker_name or 'its broker'}, offset {message.queue_offset}"
        return f"the body of message {message.msg_id} of topic {message.topic} ({place})"
    return f"the body of a message of topic {message.topic}" if isinstance(message, Message) else "the body"


@lru_cache(maxsize=256)
def _decoder(kind: Any) -> Callable[[bytes], Any]:
    if kind in _PLAIN:
        return lambda body: _checked(orjson.loads(body), kind)
    if (pydantic := _loaded("pydantic")) is not None and _is_subclass(kind, pydantic.BaseModel):
        validate: Callable[[bytes], Any] = kind.model_validate_json
        return validate
    if (msgspec := _library("msgspec")) is not None:
        decode: Callable[[bytes], Any] = msgspec.json.Decoder(kind).decode
        return decode
    if (pydantic := _library("pydantic")) is not None:
        adapt: Callable[[bytes], Any] = pydantic.TypeAdapter(kind).validate_json
        return adapt
    raise WrongArgumentError(
        f"to make {getattr(kind, '__name__', kind)} of JSON, install msgspec or pydantic; without them the kinds are "
        f"{', '.join(plain.__name__ for plain in _PLAIN)}"
    )


def _checked(value: Any, kind: type) -> Any:
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise ValueError(f"it is a {type(value).__name__}")
    return value


def _of_library(value: object) -> object:
    """Return what orjson can write of an object that it does not know."""
    if (msgspec := _loaded("msgspec")) is not None and isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    if (pydantic := _loaded("pydantic")) is not None and isinstance(value, pydantic.BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"there is no rule for the class {type(value).__name__}")


def _is_subclass(kind: object, of: type) -> bool:
    return isinstance(kind, type) and issubclass(kind, of)


def _loaded(name: str) -> Any:
    """Return a library that the program has imported: without that there can be no object of it."""
    return sys.modules.get(name)


def _library(name: str) -> Any:
    """Return a library, or None if it is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None
