"""PassedOver: what a service cannot deal with harms only itself.

A service works on many things: records, files, queues, answers of peers. Each may have been written by anybody, and by
a mistake of ours. A failure with one of them is named in the log, counted, and the service goes on with the next:

    with self._passed_over("record %d of the journal", offset):
        self._take(offset)

Skipped work stays where it is. Say in the name where that is, so that an operator finds it.
"""

import logging
from types import TracebackType
from typing import Final

from maxq.errors import MaxQError, StoreFailedError

_REMEMBERED: Final = 1_000


class PassedOver:
    """Counts, for one service, the items that were skipped because their processing raised an error.

    Attributes:
        count: failures since the start.
        reasons: thing → why it was passed over the last time; the newest thousand.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self.count = 0
        self.reasons: dict[str, str] = {}

    def __call__(self, thing: str, *place: object) -> "_Attempt":
        """Return a context for the processing of one item, whose name is `thing % place`. It suppresses any Exception
        but StoreFailedError, which must stop the broker. `attempt.failed` tells whether there was one."""
        return _Attempt(self, thing, place)

    def note(self, thing: str, error: Exception) -> None:
        """Note a failure. The same failure of the same item is logged once."""
        self.count += 1
        reason = str(error) if isinstance(error, (MaxQError, OSError)) else f"{type(error).__name__}: {error}"
        if self.reasons.pop(thing, None) != reason:
            is_foreseen = isinstance(error, (MaxQError, OSError))
            self._log.error("%s is skipped: %s", thing, reason, exc_info=None if is_foreseen else error)
        self.reasons[thing] = reason
        if len(self.reasons) > _REMEMBERED:
            del self.reasons[next(iter(self.reasons))]


class _Attempt:
    """The context of one attempt: if it fails, PassedOver names and counts its item."""

    __slots__ = ("_owner", "_place", "_thing", "failed")

    def __init__(self, owner: PassedOver, thing: str, place: tuple[object, ...]) -> None:
        self._owner = owner
        self._thing = thing
        self._place = place
        self.failed = False

    def __enter__(self) -> "_Attempt":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception) or isinstance(error, StoreFailedError):
            return False
        self.failed = True
        self._owner.note(self._thing % self._place if self._place else self._thing, error)
        return True
