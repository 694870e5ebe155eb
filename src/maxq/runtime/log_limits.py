"""LogThrottle, LineLimit: what others can cause at will is said now and then, with the number of times it was not.

A line of the log costs the disk, and hides other lines. One that each request, queue or connection may cause is said
once an interval for each kind:

    if (left_out := self._throttle.admits(("pull failed", broker))) is not None:
        log.warning("pull of %s failed: %s%s", queue, error, and_more(left_out))

All lines of a server go through a LineLimit, so none of them is without a bound.
"""

import logging
from collections.abc import Hashable
from typing import Final

from maxq.runtime.interfaces import Clock

INTERVAL_MS: Final = 10_000
_MOST_KINDS: Final = 1000
_LINES: Final = 100  # lines of one kind in an interval: as many as a server logs when it starts or fails
_CHARACTERS: Final = 4000  # most characters of a line


class LogThrottle:
    """Limits how often each kind of message is logged.

    Args:
        lines: so many of a kind in an interval.
    """

    def __init__(self, clock: Clock, lines: int = 1) -> None:
        self._clock = clock
        self._lines = lines
        # kind → [begin of its interval, lines logged in it, lines left out]
        self._kinds: dict[Hashable, list[int]] = {}
        self._full_until_ms = 0  # while the table is full: time before which no kind can be removed

    def admits(self, kind: Hashable, otherwise: Hashable = None) -> int | None:
        """Return None if the message must not be logged now, else how many of its kind were left out since the last
        one.

        When 1,000 kinds were met in an interval, new ones are all taken for the kind `otherwise`.
        """
        now = self._clock.monotonic_ms()
        if kind not in self._kinds and not self._has_room(now):
            kind = otherwise
        kept = self._kinds.get(kind)
        if kept is None or now - kept[0] >= INTERVAL_MS:
            self._kinds[kind] = [now, 1, 0]
            return kept[2] if kept is not None else 0
        if kept[1] < self._lines:
            kept[1] += 1
            return 0
        kept[2] += 1
        return None

    def _has_room(self, now: int) -> bool:
        """Return whether there is room for one more kind; kinds without a message for an interval are dropped."""
        if len(self._kinds) >= _MOST_KINDS and now >= self._full_until_ms:
            self._kinds = {kind: kept for kind, kept in self._kinds.items() if now - kept[0] < INTERVAL_MS}
            self._full_until_ms = min((kept[0] for kept in self._kinds.values()), default=now) + INTERVAL_MS
        return len(self._kinds) < _MOST_KINDS


def and_more(left_out: int) -> str:
    """Return the text added to a line before which others were left out."""
    return f" ({left_out} more since the last line)" if left_out else ""


class LineLimit(logging.Filter):
    """Limits a server's log: 100 lines from one place of the program in ten seconds, of 4,000 characters.

    Args:
        complete: loggers of which no line may be missing.
    """

    def __init__(self, clock: Clock, complete: frozenset[str] = frozenset()) -> None:
        super().__init__()
        self._throttle = LogThrottle(clock, _LINES)
        self._complete = complete

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is to be written. A line that is too long is cut."""
        left_out: int | None = 0
        if record.name not in self._complete:
            left_out = self._throttle.admits((record.pathname, record.lineno))
        if left_out is None:
            return False
        text = record.getMessage()
        if left_out or len(text) > _CHARACTERS:
            cut = len(text) - _CHARACTERS
            text = text if cut <= 0 else f"{text[:_CHARACTERS]} … and {cut} characters"
            record.msg, record.args = text + and_more(left_out), None
        return True
