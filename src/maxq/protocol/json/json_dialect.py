"""JSON as RocketMQ writes it: fastjson's dialect, both ways.

Standard JSON goes through orjson. Text that it refuses is read by `_Parser`, which also takes bare numeric and word
keys, object keys (`{{"brokerName":…}:…}`), single quotes, trailing commas and comments. `{"$ref":"$.path"}` (fastjson
1, RocketMQ 5.3 and older) is replaced by the value it names.

Keys of maps come back as str, as written (`{0:1}` and `{"0":1}` both give `"0"`); a key that is a message queue object
comes back as MessageQueue, any other object key as its compact JSON text.

Source:
    alibaba fastjson 1.2.83 and fastjson2 2.0.59 as used by RemotingSerializable.java.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from maxq.errors import LocalProtocolError, RemoteProtocolError
from maxq.protocol.message.message_queue import MessageQueue

#: Deepest nesting of objects and lists that is read; no body or file of RocketMQ comes near.
MAX_DEPTH: Final = 128

_WORDS: Final[dict[str, Any]] = {
    "true": True, "false": False, "null": None, "NaN": None, "undefined": None,
}  # fmt: skip
_ESCAPES: Final = {
    "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0",
    '"': '"', "'": "'", "\\": "\\", "/": "/",
}  # fmt: skip
_BLANK: Final = re.compile(r"(?:[ \t\r\n\f\b\ufeff]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_NUMBER: Final = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")
_WORD: Final = re.compile(r"[^\s:,{}\[\]\"'/]+")
_PLAIN: Final = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
_KEY_AND_BLANK: Final = re.compile(rb'^(\t*"(?:[^"\\]|\\.)*":) ', re.MULTILINE)
_HEX: Final = re.compile(r"[0-9a-fA-F]+")
_ROWS: Final = 250  # rows of a table that are encoded together


def loads(data: bytes | bytearray | memoryview | str) -> Any:
    """Parse a JSON text in Java's dialect.

    Raises:
        RemoteProtocolError: not JSON even in this dialect, or nested deeper than MAX_DEPTH. Names the position.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        text = data if isinstance(data, str) else bytes(data).decode("utf-8", "replace")
        value = _Parser(text).parse()
        return _resolve_references(value) if "$ref" in text else value
    has_reference = "$ref" in data if isinstance(data, str) else b"$ref" in bytes(data)
    return _resolve_references(value) if has_reference else value


class _Parser:
    """Parses JSON by recursive descent, linear in the text, at most MAX_DEPTH deep."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def parse(self) -> Any:
        self._skip_blank()
        value = self._value(0)
        self._skip_blank()
        if self._position != len(self._text):
            raise self._error("text after the value")
        return value

    def _error(self, what: str) -> RemoteProtocolError:
        near = self._text[self._position : self._position + 20]
        return RemoteProtocolError(f"not JSON: {what} at character {self._position}, before {near!r}")

    def _skip_blank(self) -> None:
        match = _BLANK.match(self._text, self._position)
        if match is not None:
            self._position = match.end()

    def _peek(self) -> str:
        return self._text[self._position : self._position + 1]

    def _value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise self._error(f"nested deeper than {MAX_DEPTH}")
        first = self._peek()
        if first == "{":
            return self._object(depth)
        if first == "[":
            return self._array(depth)
        if first in ('"', "'") and first:
            return self._string(first)
        return self._number_or_word()

    def _object(self, depth: int) -> dict[Any, Any]:
        self._position += 1
        members: dict[Any, Any] = {}
        while True:
            self._skip_commas()
            if self._peek() == "}":
                self._position += 1
                return members
            key = self._key(depth)
            self._skip_blank()
            if self._peek() != ":":
                raise self._error("expected ':'")
            self._position += 1
            self._skip_blank()
            members[key] = self._value(depth + 1)
            self._skip_blank()
            if self._peek() not in (",", "}"):
                raise self._error("expected ',' or '}'")

    def _array(self, depth: int) -> list[Any]:
        self._position += 1
        items: list[Any] = []
        while True:
            self._skip_commas()
            if self._peek() == "]":
                self._position += 1
                return items
            items.append(self._value(depth + 1))
            self._skip_blank()
            if self._peek() not in (",", "]"):
                raise self._error("expected ',' or ']'")

    def _skip_commas(self) -> None:
        self._skip_blank()
        while self._peek() == ",":
            self._position += 1
            self._skip_blank()

    def _key(self, depth: int) -> Any:
        first = self._peek()
        if first in ('"', "'") and first:
            return self._string(first)
        if first in ("{", "["):
            return _as_key(self._value(depth + 1))
        match = _WORD.match(self._text, self._position)
        if match is None:
            raise self._error("expected a member name")
        self._position = match.end()
        return match.group()

    def _number_or_word(self) -> Any:
        match = _NUMBER.match(self._text, self._position)
        if match is not None:
            text = match.group()
            self._position = match.end()
            if self._peek() in ("L", "S", "B", "F", "D"):  # fastjson's type suffixes
                self._position += 1
            plain = len(text) <= 20 and not any(c in ".eE" for c in text)
            return int(text) if plain else float(text)
        match = _WORD.match(self._text, self._position)
        if match is None or match.group() not in _WORDS:
            raise self._error("expected a value")
        self._position = match.end()
        return _WORDS[match.group()]

    def _string(self, quote: str) -> str:
        text, plain = self._text, _PLAIN[quote]
        parts: list[str] = []
        position = self._position + 1
        while True:
            match = plain.match(text, position)
            end = position if match is None else match.end()
            parts.append(text[position:end])
            if end >= len(text):
                raise self._error("a string without end")
            if text[end] == quote:
                self._position = end + 1
                return _without_surrogates("".join(parts))
            self._position = end
            parts.append(self._escape())
            position = self._position

    def _escape(self) -> str:
        """Read one backslash escape. Before, the position is on the backslash; afterwards it is behind the escape."""
        kind = self._text[self._position + 1 : self._position + 2]
        if kind in ("u", "x"):
            width = 4 if kind == "u" else 2
            digits = self._text[self._position + 2 : self._position + 2 + width]
            if len(digits) != width or _HEX.fullmatch(digits) is None:
                raise self._error(f"\\{kind} needs {width} hexadecimal digits")
            self._position += 2 + width
            return chr(int(digits, 16))
        if kind not in _ESCAPES:
            raise self._error("unknown escape")
        self._position += 2
        return _ESCAPES[kind]


def _without_surrogates(text: str) -> str:
    """Join surrogate pairs that came as two escapes; a lone one becomes '?', as Java writes it to UTF-8."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").replace("\ufffd", "?")
    return text


def _as_key(value: Any) -> Any:
    if isinstance(value, dict) and "queueId" in value and ("topic" in value or "brokerName" in value):
        return MessageQueue.from_json(value)
    return dumps(value).decode()


# --- $ref ------------------------------------------------------------------------------------------------------------


def _resolve_references(root: Any) -> Any:
    return _References(root).resolve() if isinstance(root, dict | list) else root


class _References:
    """Replaces `{"$ref":path}` by the value at `path`, which must be complete before the reference stands.

    fastjson writes an object in full where it comes first and refers to it later; a reference forwards or to an
    enclosing object would make a cycle and is refused. Values are shared, not copied, so nothing grows.
    """

    def __init__(self, root: Any) -> None:
        self._root = root
        self._complete: set[int] = set()
        self._queue_names: dict[int, dict[str, Any]] = {}  # id of a map → its keys that are queues, as text

    def resolve(self) -> Any:
        """Walk the values in document order and without recursion."""
        stack = [(self._root, _keys(self._root))]
        while stack:
            container, keys = stack[-1]
            for key in keys:
                value = container[key]
                path = _reference(value)
                if path is not None:
                    container[key] = self._target(path)
                elif isinstance(value, dict | list):
                    stack.append((value, _keys(value)))
                    break
            else:
                self._complete.add(id(container))
                stack.pop()
        return self._root

    def _target(self, path: str) -> Any:
        value = self._root
        for step in _steps(path):
            if isinstance(value, list) and isinstance(step, int) and step < len(value):
                value = value[step]
            elif isinstance(value, dict):
                value = self._member(value, str(step), path)
            else:
                raise RemoteProtocolError(f"not JSON: $ref {path!r:.80} names nothing")
        if isinstance(value, dict | list) and id(value) not in self._complete:
            raise RemoteProtocolError(f"not JSON: $ref {path!r:.80} names a value not complete before it")
        return value

    def _member(self, container: dict[Any, Any], name: str, path: str) -> Any:
        if name in container:
            return container[name]
        names = self._queue_names.get(id(container))
        if names is None:
            names = {str(key): key for key in container if isinstance(key, MessageQueue)}
            self._queue_names[id(container)] = names
        if name not in names:
            raise RemoteProtocolError(f"not JSON: $ref {path!r:.80} names nothing")
        return container[names[name]]


def _keys(container: Any) -> Iterator[Any]:
    return iter(list(container) if isinstance(container, dict) else range(len(container)))


def _reference(value: Any) -> str | None:
    if isinstance(value, dict) and len(value) == 1:
        path = value.get("$ref")
        return path if isinstance(path, str) else None
    return None


def _steps(path: str) -> list[str | int]:
    """Split `$.a.b[0]` into ["a", "b", 0]. A backslash takes the next character as it is."""
    if not path.startswith("$"):
        raise RemoteProtocolError(f"not JSON: $ref {path!r:.80} is not a path from the root")
    steps: list[str | int] = []
    position = 1
    while position < len(path):
        opener = path[position]
        if opener not in ".[":
            raise RemoteProtocolError(f"not JSON: $ref {path!r:.80} is malformed at character {position}")
        position += 1
        name: list[str] = []
        while position < len(path) and path[position] not in ("]" if opener == "[" else ".["):
            if path[position] == "\\" and position + 1 < len(path):
                position += 1
            name.append(path[position])
            position += 1
        text = "".join(name)
        if opener == "[":
            position += 1
            steps.append(int(text) if text.isascii() and text.isdigit() and len(text) < 10 else text.strip("'\""))
        else:
            steps.append(text)
    return steps


# --- writing ---------------------------------------------------------------------------------------------------------

_OPTIONS: Final = orjson.OPT_NON_STR_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS


def dumps(value: Any) -> bytes:
    """Encode compact JSON. Integer keys are quoted, MessageQueue keys are written as objects, objects by their
    `to_json`, bytes as base64, sets as sorted lists. Members keep their order.

    Raises:
        LocalProtocolError: a value that has no JSON form.
    """
    try:
        return orjson.dumps(value, _plain, _OPTIONS)
    except TypeError:
        return _Writer(quote_integers=True, indent=None).write(value)


def java_text(value: Any) -> str:
    """Return fastjson's text for a value where a string is expected."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    return dumps(value).decode()


def dumps_pretty(value: Any) -> bytes:
    """Encode JSON as in Java's pretty config files: tabs, a member a line, integer keys bare.

    Raises:
        LocalProtocolError: a value that has no JSON form.
    """
    return _pretty_in_slices(value) or _Writer(quote_integers=False, indent="\t").write(value)


def _pretty_in_slices(value: Any) -> bytes | None:
    """Encode the same text as in one go, some hundred rows of a table at a time: files are encoded beside a loop that
    answers requests, and no step may hold the interpreter for long."""
    if not isinstance(value, dict) or not any(isinstance(one, dict) and len(one) > _ROWS for one in value.values()):
        return _pretty_by_orjson(value)
    parts = []
    for name, member in value.items():
        rows = list(member.items()) if isinstance(member, dict) and len(member) > _ROWS else None
        slices = [member] if rows is None else [dict(rows[at : at + _ROWS]) for at in range(0, len(rows), _ROWS)]
        texts = [_pretty_by_orjson({name: one}) for one in slices]
        if None in texts:
            return None
        key = b"\t" + orjson.dumps(name) + b":"
        inner = [text[2 + len(key) : -2] for text in texts if text is not None]  # between "{\n…:" and "\n}"
        if rows is not None:
            inner = [b"{\n" + b",\n".join([one[2:-3] for one in inner]) + b"\n\t}"]
        parts.append(key + inner[0])
    return b"{\n" + b",\n".join(parts) + b"\n}"


def _pretty_by_orjson(value: Any) -> bytes | None:
    """Encode by orjson, thirty times as fast, for tables of 20 000 topics; returns None for values with keys other than
    strings, or with lists.

    Works on whole lines: a line break inside a string is escaped, so each line begins with blanks and then a key.
    """
    try:
        data = orjson.dumps(value, _plain, orjson.OPT_INDENT_2 | orjson.OPT_PASSTHROUGH_DATACLASS)
    except TypeError:
        return None
    if b"[\n" in data:
        return None
    depth = 1
    while (blanks := b"\n" + b"  " * depth) in data and depth <= MAX_DEPTH:
        depth += 1
    for level in range(depth - 1, 0, -1):
        blanks, tabs = b"\n" + b"  " * level, b"\n" + b"\t" * level
        data = data.replace(blanks + b'"', tabs + b'"').replace(blanks + b"}", tabs + b"}")
    if b'\\": ' not in data:  # a quote inside of a string could otherwise be taken for the end of a key
        return data.replace(b'": ', b'":')
    return _KEY_AND_BLANK.sub(rb"\1", data)


def _plain(value: Any) -> Any:
    to_json = getattr(value, "to_json", None)
    if to_json is not None:
        return to_json()
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


class _Writer:
    """Encodes values that orjson cannot: object keys, and Java's pretty form."""

    def __init__(self, *, quote_integers: bool, indent: str | None) -> None:
        self._quote_integers = quote_integers
        self._indent = indent
        self._parts: list[bytes] = []

    def write(self, value: Any) -> bytes:
        self._value(value, 0)
        return b"".join(self._parts)

    def _value(self, value: Any, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise LocalProtocolError(f"JSON nested deeper than {MAX_DEPTH}")
        if type(value) is dict or isinstance(value, Mapping):
            self._object(value, depth)
        elif isinstance(value, list | tuple):
            self._array(value, depth)
        else:
            self._scalar(value, depth)

    def _scalar(self, value: Any, depth: int) -> None:
        if value is None or isinstance(value, str | int | float):
            try:
                self._parts.append(orjson.dumps(value))
            except TypeError as error:
                raise LocalProtocolError(f"{value!r:.80} has no JSON form: {error}") from None
            return
        try:
            plain = _plain(value)
        except TypeError as error:
            raise LocalProtocolError(str(error)) from None
        self._value(plain, depth)

    def _break(self, depth: int) -> None:
        if self._indent is not None:
            self._parts.append(b"\n" + (self._indent * depth).encode())

    def _object(self, value: Mapping[Any, Any], depth: int) -> None:
        parts = self._parts
        line = b"" if self._indent is None else b"\n" + (self._indent * (depth + 1)).encode()
        separator, following = b"{" + line, b"," + line
        for key, member in value.items():
            parts.append(separator)
            separator = following
            if type(key) is str:
                parts.append(orjson.dumps(key))
            else:
                self._key(key, depth)
            parts.append(b":")
            self._value(member, depth + 1)
        if value:
            self._break(depth)
            parts.append(b"}")
        else:
            parts.append(b"{}")

    def _key(self, key: Any, depth: int) -> None:
        if isinstance(key, MessageQueue):
            self._parts.append(orjson.dumps(key.to_json()))
        elif isinstance(key, int) and not isinstance(key, bool):
            self._parts.append(f'"{int(key)}"'.encode() if self._quote_integers else str(int(key)).encode())
        else:
            self._scalar(str(key), depth)

    def _array(self, value: list[Any] | tuple[Any, ...], depth: int) -> None:
        scalars = all(item is None or isinstance(item, str | int | float) for item in value)  # Java: on one line
        self._parts.append(b"[")
        for i, item in enumerate(value):
            if i:
                self._parts.append(b",")
            if not scalars:
                self._break(depth + 1)
            self._value(item, depth + 1)
        if not scalars:
            self._break(depth)
        self._parts.append(b"]")
