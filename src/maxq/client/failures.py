"""What an application hears of faults of the program that its client outlives.

The loops of a client (pulls, timers, listeners' queues) go on after any error. A refusal or a broken connection passes
and is in the log. Another exception is a fault of the client, or of what the application gave it (an allocation
strategy, a hook), and comes again and again: it is in the log now and then, and each time `on_failure` is called.
"""

import logging
from collections.abc import Callable

from maxq.runtime.interfaces import Clock
from maxq.runtime.log_limits import LogThrottle, and_more

log = logging.getLogger(__name__)

#: Called on the client's event loop with an exception that the client goes on after.
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
