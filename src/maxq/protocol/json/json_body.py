"""Base of the JSON bodies: dataclasses whose members are read and written by their annotations.

Attributes are snake case, members on the wire are Java's names in alphabetical order; None is left out; a missing,
null or unknown member takes the default. Numbers may arrive as strings and the reverse, enums by name or ordinal.

Source:
    remoting/protocol/RemotingSerializable.java.
"""

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields
from enum import IntEnum
from types import NoneType
from typing import Any, ClassVar, Final, Self, TypeVar, dataclass_transform, get_args, get_origin, get_type_hints

import orjson

from maxq.errors import RemoteProtocolError
from maxq.lazy_dataclass import dataclass
from maxq.protocol.frame.header_fields import camel_case
from maxq.protocol.json import json_dialect
from maxq.protocol.message.message_queue import MessageQueue

_T = TypeVar("_T")
_Reader = Callable[[Any], Any]
_LONG_END: Final = 1 << 63


@dataclass_transform(field_specifiers=(field,))
def json_body(cls: type[_T]) -> type[_T]:
    """Make a dataclass whose comparison and text come from the base class, because there are many of them."""
    return dataclass(eq=False, repr=False)(cls)


@dataclass(eq=False, repr=False)
class JsonBody:
    """One JSON object. Every field has a default. `WIRE` names members that are not the attribute in camel case."""

    WIRE: ClassVar[Mapping[str, str]] = {}

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(other) is type(self) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # they can be changed

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Build one from a parsed JSON object.

        Raises:
            RemoteProtocolError: not an object, or a member of another kind; names the member.
        """
        if not isinstance(value, dict):
            raise RemoteProtocolError(f"{cls.__name__} is a JSON object, not {type(value).__name__}")
        members: dict[str, Any] = {}
        for name, wire, read in _READERS.get(cls) or _readers(cls):
            member = value.get(wire)
            if member is None:
                continue
            try:
                members[name] = read(member)
            except (TypeError, ValueError, KeyError, OverflowError, AttributeError):
                raise RemoteProtocolError(f"{cls.__name__}.{wire} cannot be {member!r:.80}") from None
        return cls(**members)

    def to_json(self) -> dict[str, Any]:
        """Return the object with its members in alphabetical order, ready for json_dialect.dumps."""
        members: dict[str, Any] = {}
        for name, wire in _MEMBERS.get(type(self)) or _members(type(self)):
            member = getattr(self, name)
            if type(member) in _AS_IS:  # most members of tables with thousands of rows
                members[wire] = member
            elif member is not None:
                members[wire] = to_plain(member)
        return members

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview | str | None) -> Self:
        """Decode the bytes of a frame's body or a file. No bytes count as an empty object.

        Raises:
            RemoteProtocolError: not JSON, or not this object.
        """
        if data is None or len(data) == 0:
            return cls()
        value = json_dialect.loads(data)
        return cls() if value is None else cls.from_json(value)

    def encode(self) -> bytes:
        """Encode as compact JSON."""
        return json_dialect.dumps(self.to_json())

    def encode_pretty(self) -> bytes:
        """Encode as JSON in the form of Java's config files."""
        return json_dialect.dumps_pretty(self.to_json())


def filled(body: bytes, member: str, rows: Iterable[bytes], brackets: bytes = b"{}") -> bytes:
    """Insert encoded `rows` into a body whose `member` is empty: a map, or with `brackets` b"[]" a list. Long members
    are encoded like this, so that other requests are served between two rows."""
    before, empty, after = body.partition(f'"{member}":'.encode() + brackets)
    assert empty, "the body has an empty member of this name, and nothing before it may say so too"
    return b"".join((before, empty[:-1], b",".join(rows), empty[-1:], after))


def queue_row(queue: MessageQueue, value: bytes) -> bytes:
    """Encode a row of a map whose keys are queues, for `filled`."""
    return orjson.dumps(queue.to_json()) + b":" + value


def to_plain(value: Any) -> Any:
    """Convert values of members to the types of json_dialect: enums by name, sets sorted, bytes as base64."""
    if isinstance(value, IntEnum):
        return value.name
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, JsonBody | MessageQueue):
        return value.to_json()
    if isinstance(value, Mapping):
        return {key: member if type(member) in _AS_IS else to_plain(member) for key, member in value.items()}
    if isinstance(value, set | frozenset):
        return [to_plain(item) for item in sorted(value)]
    if isinstance(value, list | tuple):
        return [item if type(item) in _AS_IS else to_plain(item) for item in value]
    return base64.b64encode(value).decode()


_AS_IS: Final = frozenset((str, int, float, bool))
_MEMBERS: Final[dict[type[JsonBody], tuple[tuple[str, str], ...]]] = {}
_READERS: Final[dict[type[JsonBody], tuple[tuple[str, str, _Reader], ...]]] = {}


def _members(cls: type[JsonBody]) -> tuple[tuple[str, str], ...]:
    """Return (attribute, wire name) of each member, by wire name."""
    pairs = [(f.name, cls.WIRE.get(f.name, camel_case(f.name))) for f in fields(cls)]
    members = _MEMBERS[cls] = tuple(sorted(pairs, key=lambda pair: pair[1]))
    return members


def _readers(cls: type[JsonBody]) -> tuple[tuple[str, str, _Reader], ...]:
    """Return (attribute, wire name, reader) of each member."""
    hints = get_type_hints(cls)
    readers = _READERS[cls] = tuple((name, wire, _reader(hints[name])) for name, wire in _members(cls))
    return readers


def _reader(hint: Any) -> _Reader:
    origin, arguments = get_origin(hint), get_args(hint)
    if NoneType in arguments:
        (hint,) = [part for part in arguments if part is not NoneType]
        return _reader(hint)
    if origin in (list, set):
        return _collection_reader(origin, _reader(arguments[0]))
    if origin is dict:
        return _map_reader(_KEYS[arguments[0]], _reader(arguments[1]))
    if hint is Any:
        return lambda value: value
    if isinstance(hint, type) and issubclass(hint, JsonBody | MessageQueue):
        return hint.from_json
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        return _enum_reader(hint)
    return _SCALARS[hint]


def _collection_reader(kind: type[list[Any]] | type[set[Any]], read: _Reader) -> _Reader:
    def read_collection(value: Any) -> Any:
        if not isinstance(value, list):
            raise TypeError
        return kind(read(item) for item in value if item is not None)

    return read_collection


def _map_reader(read_key: _Reader, read: _Reader) -> _Reader:
    def read_map(value: Any) -> Any:
        return {read_key(key): read(member) for key, member in value.items() if member is not None}

    return read_map


def _enum_reader(kind: type[IntEnum]) -> _Reader:
    def read_enum(value: Any) -> IntEnum:
        if isinstance(value, str) and value in kind.__members__:
            return kind[value]
        return kind(read_int(value))

    return read_enum


def read_int(value: Any) -> int:
    """Read a number, or a string that holds one, within Java's long. Raises ValueError or TypeError for anything
    else."""
    if isinstance(value, str) and (len(value) > 20 or "_" in value):
        raise ValueError
    if not isinstance(value, str | int | float):
        raise TypeError
    if isinstance(value, float) and not -_LONG_END <= value < _LONG_END:  # infinities too
        raise ValueError
    number = int(value)
    if not -_LONG_END <= number < _LONG_END:
        raise ValueError
    return number


def _read_float(value: Any) -> float:
    if isinstance(value, str) and (len(value) > 400 or "_" in value):
        raise ValueError
    return float(value)


def _read_bool(value: Any) -> bool:
    if isinstance(value, str):
        return value == "1" or value.lower() == "true"
    if isinstance(value, int | float):
        return value != 0
    raise TypeError


def _read_bytes(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error:
        raise ValueError from None


def _read_queue_key(value: Any) -> MessageQueue:
    """Read a key that is a queue: an object, or the object's text, which 5.3 accepted as well."""
    return MessageQueue.from_json(json_dialect.loads(value) if isinstance(value, str) else value)


_SCALARS: dict[Any, _Reader] = {
    int: read_int, float: _read_float, bool: _read_bool, str: json_dialect.java_text, bytes: _read_bytes,
}  # fmt: skip
_KEYS: dict[Any, _Reader] = {str: json_dialect.java_text, int: read_int, MessageQueue: _read_queue_key}
