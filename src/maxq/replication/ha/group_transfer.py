"""Senders that wait until enough slaves have their messages. Pure: offsets and times in, outcomes out.

A batch waits for its end offset and a number of acknowledgements, the master's own included. It is done when so many
slaves have acknowledged at least that offset: with k slaves needed, when the k-th largest acknowledgement has reached
it. Acknowledgements reach many batches at once; none waits for the one before it to time out.

Source:
    store/ha/GroupTransferService.java.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple


class _Waiting(NamedTuple):
    end_offset: int
    deadline_ms: int
    done: Callable[[bool], None]


class GroupTransfer:
    """The senders that wait for slaves, ordered by offset."""

    def __init__(self) -> None:
        self._lists: dict[int, deque[_Waiting]] = {}  # by needed acknowledgements; offsets and deadlines ascend

    def __len__(self) -> int:
        return sum(map(len, self._lists.values()))

    def wait(self, end_offset: int, needed_acks: int, deadline_ms: int, done: Callable[[bool], None]) -> None:
        """`done(True)` when `needed_acks` (the master's included, so at least 2) are there, `done(False)` at the
        deadline."""
        waiting = self._lists.setdefault(needed_acks, deque())
        if waiting:  # in order; who comes with less (slaveTimeout was lowered) waits with who came before
            end_offset = max(end_offset, waiting[-1].end_offset)
            deadline_ms = max(deadline_ms, waiting[-1].deadline_ms)
        waiting.append(_Waiting(end_offset, deadline_ms, done))

    def on_acknowledged(self, offsets: Sequence[int]) -> None:
        """Take the slaves' acknowledged offsets, the largest first, and answer senders."""
        for needed, waiting in list(self._lists.items()):  # a sender that is told may wait again
            reached = kth_offset(offsets, needed)
            while waiting and waiting[0].end_offset <= reached:
                waiting.popleft().done(True)

    def on_time(self, now_ms: int) -> None:
        """Answer the senders that have waited too long."""
        for waiting in self._lists.values():
            while waiting and waiting[0].deadline_ms <= now_ms:
                waiting.popleft().done(False)

    def first_end_offset(self) -> int | None:
        """Returns the smallest offset that a sender waits for; None if none waits."""
        return min((waiting[0].end_offset for waiting in self._lists.values() if waiting), default=None)

    def next_deadline_ms(self) -> int | None:
        """Returns when `on_time` has something to do; None if no sender waits."""
        return min((waiting[0].deadline_ms for waiting in self._lists.values() if waiting), default=None)

    def release(self) -> None:
        """Answer all senders, because no slave will acknowledge any more."""
        for waiting in self._lists.values():
            while waiting:
                waiting.popleft().done(False)


def kth_offset(offsets: Sequence[int], needed_acks: int) -> int:
    """What `needed_acks` copies have, the master's included; -1 if there are not so many slaves.

    Args:
        offsets: the slaves' acknowledged offsets, the largest first.
    """
    slaves = needed_acks - 1
    return offsets[slaves - 1] if 0 < slaves <= len(offsets) else -1
