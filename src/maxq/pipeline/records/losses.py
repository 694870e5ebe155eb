"""One rule for loss: what a read was to give and does not is an error that names it, or is counted and told.

Every way of reading ends here: pulls over the wire, files of a store (what they do not give is asked over the wire),
tables of store directories, and the offsets that a batch or a trigger plans with. Each of them knows which offsets of a
queue it had to return; offsets that no broker has any more, and records with damaged bytes, are lost.
"""

import logging
from typing import Final

from maxq.errors import DataLossError

log: Final = logging.getLogger(__name__)

_NAMED: Final = 20  # ranges that one line of the log names: a task may have skipped thousands


class Losses:
    """Counts what one task, batch or trigger lost.

    Attributes:
        count: messages, as far as their number is known.
    """

    def __init__(self, *, fail: bool) -> None:
        """
        Args:
            fail: the option `failOnDataLoss`: the first loss is an error.
        """
        self._fail = fail
        self._places: list[str] = []
        self._more = 0
        self.count = 0

    def offsets(self, queue: str, first: int, end: int | None, available: tuple[int, int] | None, reason: str) -> None:
        """Report that queue offsets `first` … `end` - 1 are lost.

        Args:
            queue: topic/broker/queue.
            end: None: nobody knows how many.
            available: first offset that is there, and one past the last; None: it is not known.

        Raises:
            DataLossError: if a loss is to be an error.
        """
        error = DataLossError(queue, first, available, reason, end)
        if self._fail:
            raise error
        self._note(error.what, 0 if end is None else end - first)

    def bytes_of(self, place: str, reason: str) -> None:
        """Report that bytes of a store's log are not records although they should be; the number of lost messages is
        unknown.

        Raises:
            DataLossError: if a loss is to be an error.
        """
        error = DataLossError(place, None, None, reason)
        if self._fail:
            raise error
        self._note(error.what, 1)

    def _note(self, what: str, count: int) -> None:
        self.count += count
        if len(self._places) < _NAMED:
            self._places.append(what)
        else:
            self._more += 1

    def tell(self) -> None:
        """Log the losses since the last call, in one line."""
        if not self._places:
            return
        more = f"; and {self._more} more places" if self._more else ""
        how_many = f"{self.count} messages" if self.count else "an unknown number of messages"
        log.warning("%s are lost and skipped (failOnDataLoss is false): %s%s",
                    how_many, "; ".join(self._places), more)  # fmt: skip
        self._places.clear()
        self._more = self.count = 0
