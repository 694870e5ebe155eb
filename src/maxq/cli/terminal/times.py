"""Times as operators write them, and as mqadmin prints them (local time)."""

import datetime
import re

from maxq.errors import ConfigError
from maxq.runtime.interfaces import Clock

_JAVA_FORM = re.compile(r"(\d{4}-\d\d-\d\d)#(\d\d:\d\d:\d\d):(\d{3})")


def parse_time(text: str, clock: Clock) -> int:
    """Parse a time into milliseconds since 1970.

    Args:
        text: `now`, milliseconds, mqadmin's yyyy-MM-dd#HH:mm:ss:SSS, or ISO 8601 (local time unless it says otherwise).

    Raises:
        ConfigError: none of these; or ten or eleven digits, which are seconds that were taken for milliseconds.
    """
    if text.lower() in ("now", "currenttimemillis"):
        return clock.wall_ms()
    if re.fullmatch(r"[1-9]\d{9,10}", text):
        raise ConfigError(
            f"{text!r} as milliseconds since 1970 is {format_time(int(text))}: if these are seconds, give {text}000"
        )
    if re.fullmatch(r"\d{1,18}", text):
        return int(text)
    java = _JAVA_FORM.fullmatch(text)
    try:
        moment = datetime.datetime.fromisoformat(f"{java[1]}T{java[2]}.{java[3]}" if java else text)
        return int(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ConfigError(
            f"{text!r} is no time: give now, milliseconds since 1970, yyyy-MM-dd#HH:mm:ss:SSS, or ISO 8601 such as "
            "2026-01-31T08:00"
        ) from None


def format_time(wall_ms: int) -> str:
    """Format a time as `2026-01-02 03:04:05,678`; empty for none."""
    if wall_ms <= 0:
        return ""
    seconds, millis = divmod(wall_ms, 1000)
    return f"{datetime.datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M:%S},{millis:03d}"
