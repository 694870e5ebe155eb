"""Reports to an application about programming errors after which its client continues.

The loops of a client (pulls, timers, listeners' queues) go on after any error. A refusal or a broken connection passes
and is in the log. Another exception is a fault of the client, or of what the application gave it (an allocation
strategy, a hook), and comes again and again: it is in the log now and then, and each time `on_failure` is called.
"""

import logging
import traceback
from collections.abc import Callable
from typing import Final

from maxq.runtime.interfaces import Clock
from maxq.runtime.log_limits import LogThrottle, and_more

log = logging.getLogger(__name__)

_MOST_KNOWN: Final = 100  # errors of which a client remembers that their traceback was logged
_MOST_CHARACTERS: Final = 300  # most characters of an error in a line

#: Called on the client's event loop with an exception after which the client continues.
OnFailure = Callable[[Exception], object]


class Failures:
    """Reports the failures of one client.

    Args:
        on_failure: called with each of them; None: they are in the log only.
        clock: for how often the log says the same.
    """

    def __init__(self, on_failure: OnFailure | None, clock: Clock) -> None:
        self._on_failure = on_failure
        self._throttle = LogThrottle(clock)

    def report(self, error: Exception, what: str, *of: object) -> None:
        """Log an error with its traceback, unless the same was logged a moment ago, and tell the application.

        Args:
            what: what failed, as logging formats it with `of`: "pulling %s".
        """
        left_out = self._throttle.admits((what, type(error)))
        if left_out is not None:
            log.error(what + " failed%s", *of, and_more(left_out), exc_info=error)
        if self._on_failure is None:
            return
        try:
            self._on_failure(error)
        except Exception:
            log.exception("on_failure raised an error of its own")


def error_in_a_line(error: BaseException) -> str:
    """Return type and text of an error in one line of limited length, whatever its text is."""
    text = " ".join("".join(traceback.format_exception_only(error)).split())
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]} …"


class KnownErrors:
    """Remembers which errors of the application's code were logged with a traceback: once is enough, because every
    message may raise the same error. Two errors are the same if they are of one type and were raised at one place,
    called from the same places. Threads may share an object."""

    def __init__(self) -> None:
        self._known: set[int] = set()

    def if_new(self, error: BaseException) -> BaseException | None:
        """Return the error if it is not known yet, for `exc_info`; None if it is, or if there were too many."""
        places = []
        at = error.__traceback__
        while at is not None:
            places.append((at.tb_frame.f_code.co_filename, at.tb_lineno))
            at = at.tb_next
        what = hash((type(error), *places))
        if what in self._known or len(self._known) >= _MOST_KNOWN:
            return None
        self._known.add(what)
        return error
