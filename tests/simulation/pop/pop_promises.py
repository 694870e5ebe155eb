"""What members of a group that pops were told, and what may not happen after it. Times in wall ms of the brokers.

In any order: a message that somebody holds is given to nobody else, and one that was acknowledged in time is never
given again. It is held from its pop until its invisible time is over, as the answer to the pop, or to a change of that
time, has said. An ack came in time if its answer did.

In order: while somebody holds a message of a queue and has not acknowledged it, nothing of the queue is given to
anybody; what is given begins with the first message that nobody has acknowledged, and all behind it comes again with
it; and nothing is given again that was acknowledged in time, with all that stands before it.

A topic that is deleted takes its messages along: none of them is given any more, and what is done with their receipts
does nothing to those of a topic that is made again. A group that is reset, or deleted with its offsets, gets again all
that was sent before.

Of an ack whose answer was not heard, or came too late, and of a change whose answer was not heard, either may have
happened. After such a change of a message that is popped in any order, two members may have receipts for it, so nothing
more is asked of it than that it comes, and that it is not given again if the member acknowledges it by its receipt
before either time can be over. A change that is answered, be it late, leaves one receipt: a broker refuses it
if it may have given the message to somebody else.
"""

from collections import Counter
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Hold:
    """One message that one member has.

    Attributes:
        handle: its receipt.
        ends_ms: when its invisible time is over.
        until_ms: until then nobody else may have it, or in order anything of its queue.
        is_in_doubt: a change of its time was asked for by it, and nobody has heard the answer.
    """

    body: str
    queue: int
    offset: int
    handle: str
    start_ms: int
    ends_ms: int
    until_ms: int
    is_in_doubt: bool = False


class PopPromises:
    """The promises that pops, acks and changes of the invisible time have made to one group of a topic.

    Attributes:
        sent: messages that must be delivered.
        given: how often each was delivered.
        done: message that was acknowledged in time → when the answer came.
        unsure: messages whose ack was sent and not answered.
        by_earlier: the same as `done`, by a receipt by which a change was asked for whose answer was not heard.
    """

    def __init__(self) -> None:
        self.by_earlier: dict[str, int] = {}
        self.sent: set[str] = set()
        self.given: Counter[str] = Counter()
        self.done: dict[str, int] = {}
        self.unsure: set[str] = set()
        self._twofold: Counter[str] = Counter()  # changes that are under way, or of which nobody knows
        self._holds: dict[str | int, list[Hold]] = {}
        self._popped_ms: dict[str, int] = {}  # the last pop time of each message
        self._again_from: dict[str, int] = {}  # messages that must come again, with a pop time from this one on
        self._again_up_to = 0  # messages that may come again, by number
        self._gone_up_to = 0  # those of a deleted topic, or of which somebody may have the only receipt for ever
        self._deleted_ms = 0  # when the last deletion was answered

    @property
    def open(self) -> set[str]:
        """What must come, or come again."""
        again = self.sent & self._again_from.keys()
        return again | {body for body in self.sent if body not in self.given or body not in self.unsure}

    def must_come_again(self, bodies: set[str], now_ms: int) -> None:
        """The broker, which was asked at that time, has said that the group begins before them. Those that were popped
        since then, before the answer was heard, have come."""
        waited = (body for body in bodies if self._popped_ms.get(body, 0) < now_ms)
        self._again_from |= dict.fromkeys(waited, now_ms)

    def may_come_again(self, up_to: int) -> None:
        """Messages up to this number."""
        self._again_up_to = up_to

    def need_not_come(self, up_to: int) -> None:
        """Messages up to this number."""
        self.sent = {body for body in self.sent if number_of(body) > up_to}

    def deleted(self, up_to: int, now_ms: int) -> None:
        """The topic, with the messages up to this number; it may have been made again."""
        self.need_not_come(up_to)
        self._gone_up_to, self._deleted_ms = up_to, now_ms

    def is_gone(self, hold: Hold) -> bool:
        """Of a deleted topic."""
        return number_of(hold.body) <= self._gone_up_to

    def comes(self, holds: list[Hold]) -> None:
        """The answer to one pop. AssertionError if this may not be given now."""
        self.given.update(hold.body for hold in holds)
        for hold in holds:
            self._popped_ms[hold.body] = max(hold.start_ms, self._popped_ms.get(hold.body, 0))
            if hold.start_ms >= self._again_from.get(hold.body, hold.start_ms):
                self._again_from.pop(hold.body, None)
            assert not self.is_gone(hold) or hold.start_ms <= self._deleted_ms, f"of a topic that was deleted: {hold}"
            self._check(hold)
        for hold in holds:
            self._holds.setdefault(self._what(hold), []).append(hold)

    def _what(self, hold: Hold) -> str | int:
        """What nobody else may have a part of."""
        return hold.body

    def _check(self, hold: Hold) -> None:
        if number_of(hold.body) <= self._again_up_to:
            return
        done_ms = self.by_earlier.get(hold.body)
        assert done_ms is None or hold.start_ms < done_ms, (
            f"acknowledged at {done_ms} by the receipt from before a change, and given again: {hold}"
        )
        if self._twofold[hold.body]:
            return
        done_ms = self.done.get(hold.body)
        assert done_ms is None or hold.start_ms < done_ms, f"acknowledged at {done_ms}, and given again: {hold}"
        self._check_alone(hold)

    def _check_alone(self, hold: Hold) -> None:
        for other in self._holds.get(self._what(hold), ()):
            assert other.until_ms <= hold.start_ms or hold.until_ms <= other.start_ms, (
                f"given to two at once: {other} and {hold}"
            )

    def asks_ack(self, hold: Hold, now_ms: int) -> None:
        """It may be acknowledged from now on."""
        self.unsure.add(hold.body)

    def acked(self, hold: Hold, now_ms: int) -> None:
        """The broker says so."""
        if now_ms < hold.ends_ms:
            self.done.setdefault(hold.body, now_ms)
        if hold.is_in_doubt and now_ms < hold.until_ms and self._twofold[hold.body] == 1:
            self.by_earlier.setdefault(hold.body, now_ms)

    def asks_change(self, hold: Hold, now_ms: int, invisible_ms: int) -> None:
        """From now on it may be held until another time."""
        hold.until_ms = min(hold.until_ms, now_ms + invisible_ms)
        hold.is_in_doubt = True
        self._twofold[hold.body] += 1

    def changed(self, old: Hold, new: Hold, now_ms: int) -> None:
        """The broker says so, be it late: the message is held by the new receipt."""
        self._twofold[old.body] -= 1
        old.is_in_doubt = False
        old.until_ms = min(old.until_ms, new.start_ms)
        self._holds.setdefault(self._what(new), []).append(new)  # none are known if the topic was deleted meanwhile

    def not_changed(self, hold: Hold) -> None:
        """The broker says that it came too late: the message is held no longer than the receipt says."""
        hold.is_in_doubt = False
        self._twofold[hold.body] -= 1


def number_of(body: str) -> int:
    """Bodies are m1, m2, …"""
    return int(body[1:])


class OrderedPopPromises(PopPromises):
    """The same in order. Of a queue all messages are the topic's, so their offsets have no gaps."""

    def __init__(self) -> None:
        super().__init__()
        self._asked: dict[int, set[int]] = {}
        self._acked: dict[int, set[int]] = {}
        self._done_ms: dict[int, list[int]] = {}  # of the first messages of a queue, all of which are acknowledged

    def deleted(self, up_to: int, now_ms: int) -> None:
        super().deleted(up_to, now_ms)
        for table in (self._asked, self._acked, self._done_ms, self._holds):
            table.clear()

    def comes(self, holds: list[Hold]) -> None:
        if any(self.is_gone(hold) for hold in holds):  # answered before the deletion, and heard behind it
            assert all(hold.start_ms <= self._deleted_ms for hold in holds), f"of a topic that was deleted: {holds}"
            return
        firsts: dict[int, int] = {}
        for hold in holds:
            firsts[hold.queue] = min(hold.offset, firsts.get(hold.queue, hold.offset))
        for queue, first in firsts.items():
            open_ones = set(range(first)) - self._asked.get(queue, set())
            assert not open_ones, f"queue {queue} is given from {first} on; open are {sorted(open_ones)[:5]}"
            self._acked[queue] = {at for at in self._acked.get(queue, ()) if at < first}
        super().comes(holds)

    def _what(self, hold: Hold) -> str | int:
        return hold.queue

    def _check(self, hold: Hold) -> None:
        done = self._done_ms.get(hold.queue, [])
        assert hold.offset >= len(done) or hold.start_ms < done[hold.offset], (
            f"acknowledged at {done[hold.offset]} with all before it, and given again: {hold}"
        )
        self._check_alone(hold)

    def asks_ack(self, hold: Hold, now_ms: int) -> None:
        super().asks_ack(hold, now_ms)
        if self.is_gone(hold):
            return
        self._asked.setdefault(hold.queue, set()).add(hold.offset)
        hold.until_ms = min(hold.until_ms, now_ms)

    def changed(self, old: Hold, new: Hold, now_ms: int) -> None:
        if now_ms < old.ends_ms:  # else somebody else may have acknowledged it, and the broker says so too
            super().changed(old, new, now_ms)

    def acked(self, hold: Hold, now_ms: int) -> None:
        super().acked(hold, now_ms)
        if now_ms < hold.ends_ms and not self.is_gone(hold):
            acked, done = self._acked.setdefault(hold.queue, set()), self._done_ms.setdefault(hold.queue, [])
            acked.add(hold.offset)
            while len(done) in acked:
                done.append(now_ms)
