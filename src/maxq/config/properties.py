"""Java properties files: reading, writing, and changing single lines of one.

The rules of java.util.Properties: `key=value`, `key: value` or `key value`; `#` and `!` start a comment line; a
backslash at the end of a line continues it (leading blanks of the next are dropped); \\t \\n \\r \\f and \\uXXXX
escapes; any other escaped character stands for itself. Later keys win. Text is UTF-8 here (Java reads ISO-8859-1
from files unless given a reader; UTF-8 is what editors write).
"""

import re
from collections.abc import Iterator, Mapping

from maxq.errors import ConfigError

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}
_TO_LOOK_AT = re.compile(r"[\\\t\n\r\f =:#!]")  # characters that `_escape` may change


def parse_properties(data: bytes | str, *, source: str = "properties") -> dict[str, str]:
    """Parse the keys and values of a properties text.

    Args:
        data: the text, or its UTF-8 bytes.
        source: named in the error.

    Raises:
        ConfigError: not UTF-8, or a \\u escape without four hexadecimal digits; names source and line.

    Source:
        java.util.Properties.load
    """
    found: dict[str, str] = {}
    for number, line in _logical_lines(decode_text(data, source)):
        key, value = _split(line, f"{source}, line {number}")
        found[key] = value
    return found


def format_properties(values: Mapping[str, str]) -> str:
    """Format one `key=value` line each, in the given order, such that `parse_properties` gives the same mapping."""
    return "".join(f"{_escape(key, key=True)}={_escape(value)}\n" for key, value in values.items())


def edit_properties(text: str, changes: Mapping[str, str]) -> str:
    """Return `text` with the values of `changes`; comments, order and every other line stay.

    The last line that sets a key is replaced where it stands, earlier ones (which did not count) go; a key that
    is not there is appended.
    """
    lines = list(_raw_lines(text))
    last = {lines[i].key: i for i in range(len(lines)) if lines[i].key in changes}
    kept = []
    for i, line in enumerate(lines):
        if line.key is None or line.key not in changes:
            kept.append(line.raw)
        elif last[line.key] == i:
            kept.append(format_properties({line.key: changes[line.key]}))
    added = {key: value for key, value in changes.items() if key not in last}
    if added and kept:
        if not kept[-1].endswith(("\n", "\r")):
            kept[-1] += "\n"
        if not _is_comment(kept[-1]) and _continues(_natural_lines(kept[-1])[-1]):
            # An empty line ends the last entry, even one that ends with a continuation; behind a lone \r, one \n is no
            # empty line.
            kept[-1] += "\n\n" if kept[-1].endswith("\r") else "\n"
    kept.append(format_properties(added))
    return "".join(kept)


class _Line:
    """A logical line with its original text; `key` is None for comments and blank lines."""

    __slots__ = ("key", "raw")

    def __init__(self, raw: str, key: str | None) -> None:
        self.raw = raw
        self.key = key


def _raw_lines(text: str) -> Iterator[_Line]:
    natural = _natural_lines(text)
    start = 0
    while start < len(natural):
        end = start + 1
        if not _is_comment(natural[start]):
            while end < len(natural) and _continues(natural[end - 1]):
                end += 1
        raw = "".join(natural[start:end])
        logical = next(_logical_lines(raw), None)
        yield _Line(raw, None if logical is None else _split(logical[1], "properties")[0])
        start = end


def decode_text(data: bytes | str, source: str) -> str:
    """Decode the text of a settings file; raises ConfigError if it is not UTF-8."""
    if isinstance(data, str):
        return data
    try:
        return bytes(data).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{source}: not UTF-8 text (byte {error.start})") from None


def _natural_lines(text: str) -> list[str]:
    """Split a text into lines with their ends. Only \n, \r and \r\n end a line, unlike with str.splitlines."""
    lines = []
    start = at = 0
    while at < len(text):
        if text[at] in "\r\n":
            at += 2 if text.startswith("\r\n", at) else 1
            lines.append(text[start:at])
            start = at
        else:
            at += 1
    if start < len(text):
        lines.append(text[start:])
    return lines


def _is_comment(line: str) -> bool:
    body = line.lstrip(_BLANKS)
    return body[:1] in ("#", "!")


def _continues(line: str) -> bool:
    body = line.rstrip("\r\n")
    if len(body) == len(line) or not body.strip(_BLANKS):
        return False
    return (len(body) - len(body.rstrip("\\"))) % 2 == 1


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number of the first natural line, joined text without leading blanks), without comments and blank
    lines."""
    parts: list[str] = []
    first = 0
    for number, line in enumerate(_natural_lines(text), start=1):
        body = line.rstrip("\r\n").lstrip(_BLANKS)
        if not parts:
            if not body or body[0] in "#!":
                continue
            first = number
        if _continues(line):
            parts.append(body[:-1])
            continue
        if joined := "".join([*parts, body]):
            yield first, joined
        parts = []
    if joined := "".join(parts):
        yield first, joined


def _split(line: str, where: str) -> tuple[str, str]:
    at = 0
    while at < len(line) and line[at] not in "=: \t\f":
        at += 2 if line[at] == "\\" else 1
    rest = line[at:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return _unescape(line[:at], where), _unescape(rest, where)


def _unescape(text: str, where: str) -> str:
    if "\\" not in text:
        return text
    out = []
    at = 0
    while at < len(text):
        if text[at] != "\\":
            out.append(text[at])
            at += 1
            continue
        letter = text[at + 1 : at + 2]
        if letter == "u":
            digits = text[at + 2 : at + 6]
            if len(digits) < 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
                raise ConfigError(f"{where}: \\u must be followed by four hexadecimal digits, not {digits!r}")
            out.append(chr(int(digits, 16)))
            at += 6
        else:
            out.append(_ESCAPES.get(letter, letter))
            at += 2
    return "".join(out)


def _escape(text: str, *, key: bool = False) -> str:
    if not _TO_LOOK_AT.search(text):
        return text
    out = []
    for position, letter in enumerate(text):
        if letter in _WRITTEN:
            out.append(_WRITTEN[letter])
        elif (letter == " " and (key or position == 0)) or (key and letter in "=:#!"):
            out.append("\\" + letter)
        else:
            out.append(letter)
    return "".join(out)
