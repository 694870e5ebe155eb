"""Numbers as people read them: with a unit, three digits or so, always the same for the same value."""

import datetime
from enum import Enum
from typing import Any, Final

_BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_THIN: Final = "\u202f"  # narrow space that no line is broken at
_SECOND: Final = 1000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
ABSENT: Final = "–"


class Unit(Enum):
    """What a number counts.

    TIME is milliseconds since 1970, shown in UTC; SHARE a fraction of one; MILLIS a duration.
    """

    TEXT = "text"
    COUNT = "count"
    NUMBER = "number"
    BYTES = "bytes"
    MILLIS = "ms"
    RATE = "per second"
    BYTE_RATE = "bytes per second"
    SHARE = "share"
    TIME = "time"


def format_value(value: Any, unit: Unit) -> str:
    """Format a value as text; a dash for None."""
    if value is None:
        return ABSENT
    if unit is Unit.TEXT or isinstance(value, (str, bool)):
        return str(value)
    return _FORMATS[unit](value)


def grouped(number: float) -> str:
    """Format a number as 1 234 567, with narrow spaces."""
    return f"{number:,.0f}".replace(",", _THIN)


def size_text(count: float) -> str:
    """Format bytes: `999 B`, `1.5 KiB`, `12.3 GiB`."""
    value, step = float(count), 0
    while abs(value) >= 1023.5 and step < len(_BINARY) - 1:
        value, step = value / 1024, step + 1
    return f"{_three_digits(value) if step else grouped(value)} {_BINARY[step]}"


def duration_text(millis: float) -> str:
    """Format milliseconds: `0.4 ms`, `12 ms`, `3.2 s`, `5 min`, `7.5 h`, `3.1 d`."""
    size = abs(millis)
    if size < _SECOND:
        return f"{millis:.0f} ms" if millis == int(millis) else f"{_three_digits(millis)} ms"
    for limit, scale, name in ((_MINUTE, _SECOND, "s"), (_HOUR, _MINUTE, "min"), (2 * _DAY, _HOUR, "h")):
        if size < limit:
            return f"{_three_digits(millis / scale)} {name}"
    return f"{_three_digits(millis / _DAY)} d"


def time_text(wall_ms: float) -> str:
    """Format a time as `2026-01-02 03:04:05.678 UTC`; the fraction only where there is one."""
    seconds, millis = divmod(int(wall_ms), 1000)
    try:
        moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return f"{wall_ms} ms"
    return f"{moment:%Y-%m-%d %H:%M:%S}{f'.{millis:03d}' if millis else ''} UTC"


def _three_digits(value: float) -> str:
    size = abs(value)
    if size >= 1000:
        return grouped(value)
    text = f"{value:.{0 if size >= 100 else 1 if size >= 10 else 2}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _share_text(value: float) -> str:
    percent = 100 * value
    if 0 < percent < 0.01:
        return "< 0.01 %"
    return f"{_three_digits(percent)} %"


_FORMATS: Final = {
    Unit.COUNT: grouped,
    Unit.NUMBER: _three_digits,
    Unit.BYTES: size_text,
    Unit.MILLIS: duration_text,
    Unit.RATE: lambda value: f"{_three_digits(value)}/s",
    Unit.BYTE_RATE: lambda value: f"{size_text(value)}/s",
    Unit.SHARE: _share_text,
    Unit.TIME: time_text,
}
