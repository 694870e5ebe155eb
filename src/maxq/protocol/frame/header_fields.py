"""Typed reading of custom header fields by Java's parse rules, and the base of all header dataclasses.

A field that is absent or does not parse counts as missing; a missing required field is MissingFieldError, which a
server answers with code 1 and the text "the custom field <name> is null".

Source:
    remoting/protocol/RemotingCommand.java decodeCommandCustomHeader.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Self,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from maxq.errors import MissingFieldError
from maxq.lazy_dataclass import dataclass

#: Annotation of a 64-bit header field; plain `int` is 32 bits.
Long = Annotated[int, "int64"]

_T = TypeVar("_T")

_INT32: Final = 1 << 31
_INT64: Final = 1 << 63


def _parse_integer(text: str, bound: int) -> int | None:
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 400:
        return None
    value = int(text)
    return value if -bound <= value < bound else None


def parse_int(text: str) -> int | None:
    """Parse like Integer.parseInt; returns None if the text does not parse."""
    if len(text) < 10 and text.isdigit() and text.isascii():
        return int(text)
    return _parse_integer(text, _INT32)


def parse_long(text: str) -> int | None:
    """Parse like Long.parseLong; returns None if the text does not parse."""
    if len(text) < 19 and text.isdigit() and text.isascii():
        return int(text)
    return _parse_integer(text, _INT64)


def parse_bool(text: str) -> bool:
    """Parse "true" in any case, and "1", which the C++ client writes."""
    return text == "1" or text.lower() == "true"


def parse_double(text: str) -> float | None:
    """Parse a number as Double.parseDouble does for the forms that Java writes; None if it does not parse."""
    if "_" in text or len(text) > 400:
        return None
    try:
        return float(text)
    except ValueError:
        return None


class HeaderFields:
    """Reads single fields of `ext`, for handlers that need no header dataclass."""

    __slots__ = ("_ext",)

    def __init__(self, ext: Mapping[str, str]) -> None:
        self._ext = ext

    def opt_str(self, name: str) -> str | None:
        return self._ext.get(name)

    def opt_int(self, name: str) -> int | None:
        text = self._ext.get(name)
        return None if text is None else parse_int(text)

    def opt_long(self, name: str) -> int | None:
        text = self._ext.get(name)
        return None if text is None else parse_long(text)

    def opt_bool(self, name: str, default: bool = False) -> bool:
        text = self._ext.get(name)
        return default if text is None else parse_bool(text)

    def required_str(self, name: str) -> str:
        """Returns the field; raises MissingFieldError if it is absent or does not parse."""
        return _present(self._ext.get(name), name)

    def required_int(self, name: str) -> int:
        """Returns the field; raises MissingFieldError if it is absent or does not parse."""
        return _present(self.opt_int(name), name)

    def required_long(self, name: str) -> int:
        """Returns the field; raises MissingFieldError if it is absent or does not parse."""
        return _present(self.opt_long(name), name)

    def required_bool(self, name: str) -> bool:
        """Returns the field; raises MissingFieldError if it is absent or does not parse."""
        return parse_bool(_present(self._ext.get(name), name))


def _present(value: _T | None, name: str) -> _T:
    if value is None:
        raise MissingFieldError(name)
    return value


def camel_case(name: str) -> str:
    """Convert `queue_id` to `queueId`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


@dataclass_transform()
def header(cls: type[_T]) -> type[_T]:
    """Make a dataclass whose comparison and text come from the base class, because there are a hundred of them."""
    return dataclass(slots=True, eq=False, repr=False)(cls)


@dataclass(slots=True, eq=False, repr=False)
class CommandHeader:
    """Base of header dataclasses: attributes in snake case, Java's names on the wire.

    A field without default is required. `WIRE` names the few whose wire name is not the camel case of the attribute.
    """

    WIRE: ClassVar[Mapping[str, str]] = {}

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name, _ in _names(type(self)))

    __hash__ = None  # type: ignore[assignment]  # they can be changed

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name, _ in _names(type(self)))
        return f"{type(self).__name__}({values})"

    @classmethod
    def decode(cls, ext: Mapping[str, str]) -> Self:
        """Decode the fields of a frame. Raises MissingFieldError for a required field that is absent or does not
        parse."""
        values: list[Any] = []
        get = ext.get
        for wire, parse, required, default in _PLANS.get(cls) or _plan(cls):
            text = get(wire)
            value = text if text is None or parse is None else parse(text)
            if value is None:
                if required:
                    raise MissingFieldError(wire)
                value = default
            values.append(value)
        return cls(*values)

    def encode(self) -> dict[str, str]:
        """Return the fields that are not None, as strings."""
        ext: dict[str, str] = {}
        for name, wire in _NAMES.get(type(self)) or _names(type(self)):
            value = getattr(self, name)
            if value is None:
                continue
            kind = type(value)
            if kind is str:
                ext[wire] = value
            elif kind is int or kind is float:
                ext[wire] = str(value)
            elif kind is bool:
                ext[wire] = "true" if value else "false"
            else:
                ext[wire] = str(int(value))
        return ext


_Parse = Callable[[str], Any]
_NAMES: Final[dict[type[CommandHeader], tuple[tuple[str, str], ...]]] = {}
_PLANS: Final[dict[type[CommandHeader], tuple[tuple[str, _Parse | None, bool, Any], ...]]] = {}


def _names(cls: type[CommandHeader]) -> tuple[tuple[str, str], ...]:
    """Return (attribute, wire name) of each field."""
    names = _NAMES[cls] = tuple((f.name, cls.WIRE.get(f.name, camel_case(f.name))) for f in fields(cls))
    return names


def _plan(cls: type[CommandHeader]) -> tuple[tuple[str, _Parse | None, bool, Any], ...]:
    """Return (wire name, parser, required, default) of each field."""
    hints = get_type_hints(cls, include_extras=True)
    plan = _PLANS[cls] = tuple(
        (
            cls.WIRE.get(f.name, camel_case(f.name)),
            _parser(hints[f.name]),
            f.default is MISSING,
            None if f.default is MISSING else f.default,
        )
        for f in fields(cls)
    )
    return plan


def _parser(hint: Any) -> _Parse | None:
    """Return the parser of fields with this annotation; None for text."""
    if isinstance(hint, UnionType) or (get_origin(hint) is not Annotated and NoneType in get_args(hint)):
        (hint,) = [part for part in get_args(hint) if part is not NoneType]
    if hint is str:
        return None
    parsers: dict[Any, _Parse] = {int: parse_int, Long: parse_long, bool: parse_bool, float: parse_double}
    return parsers[hint]
