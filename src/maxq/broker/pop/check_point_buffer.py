"""CheckPointBuffer: what was popped and is not finished, in memory (PopBufferMergeService.java).

A pop that finds messages adds a check point: they are the group's until their invisible time is over. Acks set its
bits. It ends in one of three ways:

* every message is acknowledged: nothing more happens, no record goes through the timer;
* its time is over: what is not acknowledged is revived, at that moment (`take_due`). It is counted by the clock that is
  never set, from when the check point comes here: a wall clock that is set neither ends it nor makes it longer;
* it is older than popCkStayBufferTime, or the broker ends: it is handed over to the revive topic, as Java's records
  (`take_old`), which bounds both memory and the part of the journal that a start reads.

The group's committed offset moves over the messages of a check point when it has ended, in the order of the queue. So
messages whose state is lost here (a crash of a broker that could not write its journal) are delivered again. Until then
the next pop begins at the cursor (`latest_offset`). Where the end has put records into the log, the offset waits until
these can be lost no more (`settle`): the table of offsets is written by itself, and a loss of power that takes the copy
of a message would else take the message.

Two check points may hold one message: a master answered a pop that its slave did not learn of, and the slave that acted
for it gave the message to somebody else. They are *twins* then, and the message is one: an ack by either receipt
acknowledges it, and it comes again when the later of both times is over.

A change of a message's invisible time gives it a check point of its own, and its holder another receipt. The answer may
be lost: then the consumer asks again with the receipt that it has, or acknowledges by it. A receipt names the new check
point as long as that is in memory (`holder`).
"""

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Final, NamedTuple

from maxq.broker.pop.pop_journal import PopJournal
from maxq.broker.pop.spans import Spans
from maxq.broker.tables.offset.consumer_offset_manager import ConsumerOffsetManager
from maxq.protocol.body.pop import PopCheckPoint
from maxq.runtime.interfaces import Clock
from maxq.store.durability.log_marks import LogMark

_SLOT_MS: Final = 100
_RECEIPTS_MS: Final = 60_000  # longest time that a check point stays here so that its earlier receipts are still known
_MOST_GIVEN_AGAIN: Final = 10_000
_NOBODY: Final = "PopBufferMergeService"
_NEVER: Final = 1 << 62
_NO_NUMBER: Final = -1  # number of a check point that is in the revive topic and not here
_NEIGHBOURS: Final = list(range(128))

QueueKey = tuple[str, str, int]
"""Topic, group, queue id."""

PointKey = tuple[str, str, int, int, int, str]
"""PopCheckPoint.key"""


class LiveCheckPoint:
    """A check point that has not ended.

    Attributes:
        number: its name in the journal.
        revive_qid: queue of the revive topic it belongs to.
        next_begin: where the cursor goes on behind it; -1: it stands for one message whose time was changed.
        full: the bit map of all its messages.
        journal_offset: where the journal tells of it; -1: nowhere.
        needed_from: where the journal tells of the first of those that stand behind it in its queue, and came before
            it; -1: there are none. They may have ended, and the group's offset is not beyond them.
        slot: when its time is over.
        ended: acknowledged, revived or handed over.
        rests_on: the records that its end made (copies of its messages, of itself, of what it was replaced by) lie
            before this; None: its end made none.
        twins: others that hold some of its messages, too.
        earlier: keys of the receipts that its one message had before its time was changed: the one that the consumer
            used, and the one that he may not have heard of.
        receipts_until_ms: when the time of the last of the earlier receipts is over (wall); the journal does not tell.
    """

    __slots__ = (
        "earlier", "ended", "full", "journal_offset", "needed_from", "next_begin", "number", "point",
        "receipts_until_ms", "rests_on", "revive_qid", "slot", "twins",
    )  # fmt: skip

    def __init__(self, number: int, point: PopCheckPoint, revive_qid: int, next_begin: int, slot: int) -> None:
        self.number = number
        self.point = point
        self.revive_qid = revive_qid
        self.next_begin = next_begin
        self.full = (1 << point.num) - 1
        self.journal_offset = -1
        self.needed_from = -1
        self.rests_on: LogMark | None = None
        self.ended = False
        self.slot = slot
        self.twins: tuple[LiveCheckPoint, ...] = ()
        self.earlier: tuple[PointKey, ...] = ()
        self.receipts_until_ms = 0

    @property
    def queue(self) -> QueueKey:
        return self.point.topic, self.point.group, self.point.queue_id

    @property
    def stays_until_ms(self) -> int:
        """Return until when (wall) it is not handed over, because the time of an earlier receipt is not over."""
        return min(self.receipts_until_ms, self.point.pop_time + _RECEIPTS_MS)

    @property
    def has_twins(self) -> bool:
        """Return whether another open check point has some of its messages."""
        return any(not twin.ended for twin in self.twins)


class Acked(NamedTuple):
    """Outcome of acks: the number of messages, and the physical offset that must be safe before the client is answered
    (0: none; NOT_NOTED: the journal could not take them)."""

    messages: int
    end_offset: int


class Begun(NamedTuple):
    """An offset at which a group begins or continues in a queue, for the journal.

    Attributes:
        at_end: the group begins at the end of the queue, which will have moved if the group's offset is lost.
        is_set: an administrator has set this offset.
    """

    queue: QueueKey
    offset: int
    at_end: bool = False
    is_set: bool = False


class LateAck(NamedTuple):
    """Acks for a check point that has ended here; they were given to a slave.

    Attributes:
        offsets: queue offsets of the messages that were acknowledged.
    """

    point: PopCheckPoint
    offsets: list[int]
    revive_qid: int


class CheckPointBuffer:
    """The check points in memory of one broker. Keys are those of PopCheckPoint.

    Attributes:
        journal: where every change is noted.
        is_open: what is in memory is all there is, and may be changed: this broker is its group's active one.
        on_filled: called when the first check point comes.
        on_ended: called with the queue when one has ended.
        in_flight: by topic, group and queue: messages given away and not acknowledged, of check points in memory.
    """

    def __init__(self, offsets: ConsumerOffsetManager, journal: PopJournal, clock: Clock) -> None:
        self._offsets = offsets
        self.journal = journal
        self._clock = clock
        self._live: dict[PointKey, LiveCheckPoint] = {}  # in the order of their pops
        self._by_number: dict[int, LiveCheckPoint] = {}
        # by the monotonic time at which their messages become visible again
        self._slots: dict[int, dict[LiveCheckPoint, None]] = {}
        self._cursors: dict[QueueKey, deque[LiveCheckPoint]] = {}
        self._late: list[LiveCheckPoint] = []  # check points whose `needed_from` is set
        self._resting: deque[LiveCheckPoint] = deque()  # check points that have ended, ordered by `rests_on`
        # new group offsets, each to be set when its mark is final
        self._moves: deque[tuple[LogMark, QueueKey, int]] = deque()
        # by the earlier receipt's key, then by queue offset
        self._renewed: dict[PointKey, dict[int, LiveCheckPoint]] = {}
        # by receipt and queue offset: when that delivery's time ends
        self._given_again: dict[tuple[PointKey, int], int] = {}
        self._handed_over_until = clock.wall_ms()  # greatest pop time of a check point that may be in the revive topic
        # smallest pop time of those that this broker put there since it became the active one
        self._handed_over_from = _NEVER
        self._next_number = clock.wall_ms() * 1000
        # messages that ended on this slave while it acts as master
        self._ended_here: dict[QueueKey, Spans] | None = None
        self._known_end = 0  # on such a slave: check points in journal records before this offset are its master's
        # on such a slave: rows of check points that its master has handed over, or may have
        self._passed_on: list[list[Any]] = []
        self.is_open = False
        self.on_filled: Callable[[], None] = lambda: None
        self.on_ended: Callable[[QueueKey], None] = lambda queue: None
        self.in_flight: dict[QueueKey, int] = {}

    def __len__(self) -> int:
        return len(self._live)

    # --- pop ---------------------------------------------------------------------------------------------------------

    def latest_offset(self, topic: str, group: str, queue_id: int) -> int:
        """Returns the queue offset at which the next pop continues; -1 for the committed offset."""
        cursor = self._cursors.get((topic, group, queue_id))
        moves = (offset for _, queue, offset in self._moves if queue == (topic, group, queue_id))
        return max((cursor[-1].next_begin if cursor else -1, *moves))

    def is_known(self, point: PopCheckPoint) -> bool:
        """Return whether there is a check point with the same key, as of two pops of one queue in the same ms, from the
        same offset."""
        return point.key in self._live

    def add(self, points: list[tuple[PopCheckPoint, int, int]]) -> int:
        """Add the check points of one request, with reviveQid and next_begin each, in one journal record. Returns the
        physical offset behind it, 0 if there is none, NOT_NOTED if it could not be written: then the messages must
        not be given out, and they become visible again after their invisible time."""
        if not self._live:
            self.on_filled()
        added = [self._insert(self._number(), *point) for point in points]
        offset, end = self.journal.write({"p": [_entry(live) for live in added]})
        self._noted(added, offset)
        return end

    def noted_end(self) -> int:
        """Return the position of the pop journal up to which everything is in the file of offsets (see
        `PopJournal.noted_end`)."""
        return self.journal.noted_end()

    def _noted(self, added: list[LiveCheckPoint], offset: int) -> None:
        """Note the outcome of a journal write: a record that the store refused is written behind everything that the
        journal has."""
        for live in added:
            live.journal_offset = offset if offset >= 0 else self.journal.end

    def replace(
        self, point: PopCheckPoint, revive_qid: int, old: LiveCheckPoint, queue_offset: int, *, by: PointKey
    ) -> Acked:
        """Give one message of `old` a check point of its own and acknowledge it in `old`, in one journal record, so
        that a kill leaves exactly one of both. Other check points that have the message share it with the new one.
        An acknowledged message is done and gets none. `by` is the key of the requester's receipt."""
        index = old.point.index_of(queue_offset)
        bit = 1 << index if index >= 0 else 0
        if not bit & ~old.point.bit_map:
            return Acked(0, self.journal.noted_end())
        if not self._live:
            self.on_filled()
        live = self._insert(self._number(), point, revive_qid, -1)
        twins = [twin for twin in old.twins if not twin.ended and _bits_of(twin.point, [queue_offset])]
        entries: dict[str, list[Any]] = {"p": [_entry(live)], "l" if twins else "a": [[old.number, bit]]}
        if twins:
            entries["t"] = [[live.number, twin.number] for twin in twins]
        for twin in twins:
            _make_twins(live, twin)
        self._renew(live, {by: None, old.point.key: None}, max(old.point.revive_time, old.receipts_until_ms))
        entries["h"] = _earlier(live)
        offset, end = self.journal.write(entries)
        self._noted([live], offset)
        old.rests_on = self.journal.mark()
        self._mark_alone(old, bit)
        return Acked(1, end)

    def add_renewed(self, point: PopCheckPoint, revive_qid: int, *, by: PointKey, until_ms: int) -> None:
        """Give a check point of its own to a message whose check point was handed over, and ends at `until_ms` (wall).
        The caller acknowledges it there in the same turn of the loop, and calls `take_away` if that fails. A start
        that finds no later record acknowledges it once more (`unacknowledged`)."""
        if not self._live:
            self.on_filled()
        live = self._insert(self._number(), point, revive_qid, -1)
        self._renew(live, {by: None}, until_ms)
        rows = {"p": [_entry(live)], "h": _earlier(live), "w": [[live.number, until_ms]]}
        self._noted([live], self.journal.write(rows)[0])

    def unacknowledged(self, rows: Iterable[list[int]]) -> list[LateAck]:
        """Return the acks that may be missing in the revive topic, as no later record of the journal tells that its
        broker lived on after the one whose rows "w" these are."""
        found: list[LateAck] = []
        for number, until_ms in rows:
            live = self._by_number.get(number)
            if live is None:
                continue
            for topic, group, queue_id, start, pop_time, name in live.earlier:
                old = [topic, group, queue_id, start, pop_time, until_ms - pop_time, live.revive_qid, name]
                found.append(ack_of([*old, [live.point.start_offset]]))
        return found

    def take_away(self, point: PopCheckPoint) -> None:
        """End a check point that was added but whose receipt is not given to a consumer: its messages are not
        acknowledged."""
        live = self._live.get(point.key)
        if live is not None:
            self.in_flight[live.queue] -= (live.full & ~live.point.bit_map).bit_count()
            self._end(live, is_done=False)
            self.journal.write({"e": [live.number]})

    def _renew(self, live: LiveCheckPoint, earlier: Iterable[PointKey], receipts_until_ms: int = _NEVER) -> None:
        """Note the earlier receipts of a check point's message."""
        live.earlier, live.receipts_until_ms = tuple(earlier), receipts_until_ms
        for key in live.earlier:
            self._renewed.setdefault(key, {})[live.point.start_offset] = live

    def move_cursor(self, queue: QueueKey, next_begin: int) -> None:
        """Move the group's position to `next_begin`, because no message before it matches the group's filter."""
        cursor = self._cursors.get(queue)
        if not cursor:
            self._offsets.commit_offset(_NOBODY, queue[1], queue[0], queue[2], next_begin)
            return
        topic, group, queue_id = queue
        nothing = PopCheckPoint(topic, group, queue_id, next_begin, self._clock.wall_ms(), 0, "")
        live = LiveCheckPoint(0, nothing, 0, next_begin, 0)
        live.ended = True
        if cursor[-1].ended and self._is_settled(cursor[-1]):
            cursor.pop()  # the new entry includes what the last one says
        cursor.append(live)

    def set_cursors(self, offsets: Mapping[QueueKey, int]) -> None:
        """Set the group's positions by an administrator's order; messages given out before may still be acknowledged.
        It is one record of the journal."""
        for queue, offset in offsets.items():
            self.set_cursor(queue, offset)
        self.begin_in([Begun(queue, offset, is_set=True) for queue, offset in offsets.items()])

    def set_cursor(self, queue: QueueKey, offset: int) -> None:
        """Set the group's position as `set_cursors` does, without the record: the caller writes it with `begin_in`,
        before others."""
        self._cursors.pop(queue, None)
        self._drop_moves({queue})
        topic, group, queue_id = queue
        self._offsets.commit_offset("ResetPopOffset", group, topic, queue_id, offset)

    def not_beyond(self, ends: Mapping[QueueKey, int]) -> None:
        """Forget the messages of check points from the ends of their queues on: they are lost, and others get their
        places. The groups go on at these ends, or before."""
        lost: list[list[int]] = []
        for live in list(self._live.values()):
            end = ends.get(live.queue)
            bits = 0 if end is None else _bits_of(live.point, [at for at in live.point.open_offsets() if at >= end])
            if bits:
                live.rests_on = self.journal.mark()
                self._mark_alone(live, bits)
                lost.append([live.number, bits])
        if lost:
            self.journal.write({"l": lost})

    def begins(self, queue: QueueKey, offset: int, *, at_end: bool = False) -> None:
        """Note where a group begins in a queue, as `begin_in` does in many."""
        self.begin_in([Begun(queue, offset, at_end=at_end)])

    def begin_in(self, begun: Iterable[Begun]) -> None:
        """Write one journal record with the offsets at which groups continue, because an administrator has set or
        removed their offsets while the journal still has records from before. A group that has messages here lost its
        offsets with its broker's power, and goes on behind them."""
        entries: dict[str, list[Any]] = {}
        for queue, offset, at_end, is_set in begun:
            if is_set or (queue not in self._cursors and self.journal.tells_of(*queue)):
                entries.setdefault("r", []).append([*queue, offset])
            elif at_end:
                entries.setdefault("b", []).append([*queue, offset])
                if self._ended_here is not None:
                    # the entry alone tells the master that something of this queue ended here
                    self._ended_here.setdefault(queue, Spans())
        if entries:
            self.journal.write(entries)

    def _number(self) -> int:
        self._next_number += 1
        return self._next_number

    def _insert(self, number: int, point: PopCheckPoint, revive_qid: int, next_begin: int) -> LiveCheckPoint:
        left_ms = max(0, min(point.revive_time - self._clock.wall_ms(), point.invisible_time))
        slot_number = -(-(self._clock.monotonic_ms() + left_ms) // _SLOT_MS)
        live = LiveCheckPoint(number, point, revive_qid, next_begin, slot_number)
        queue = live.queue
        self._live[point.key] = live
        self._by_number[number] = live
        slot = self._slots.get(live.slot)
        if slot is None:
            slot = self._slots[live.slot] = {}
        slot[live] = None
        if next_begin >= 0:
            cursor = self._cursors.get(queue)
            if cursor is None:
                cursor = self._cursors[queue] = deque()
            behind = len(cursor)
            # check points that a slave handed back may come out of order
            while behind and cursor[behind - 1].next_begin > next_begin:
                behind -= 1
            if behind < len(cursor):
                noted = [other for other in islice(cursor, behind, None) if other.journal_offset >= 0]
                live.needed_from = min((_first_needed(other) for other in noted), default=-1)
                self._late.append(live)
            cursor.insert(behind, live)
        self.in_flight[queue] = self.in_flight.get(queue, 0) + point.num
        return live

    # --- ack ---------------------------------------------------------------------------------------------------------

    def find(self, key: PointKey) -> LiveCheckPoint | None:
        """Returns the check point that an ack names, if it is in memory."""
        return self._live.get(key) if self.is_open else None

    def holder(self, key: PointKey, queue_offset: int) -> LiveCheckPoint | None:
        """Return the check point in which a receipt with this key can acknowledge a message: the one that it names, or
        the newer one that the message has since its invisible time was changed. None if it is not in memory."""
        if self._renewed and self.is_open and (renewed := self._renewed.get(key)) and queue_offset in renewed:
            return renewed[queue_offset]
        return self.find(key)

    def is_renewed(self, key: PointKey) -> bool:
        """Return whether the invisible time of any message that a receipt with this key names was changed and is not
        over."""
        return key in self._renewed

    def has_ended(self, pop_time: int) -> bool:
        """Return whether a check point of that pop time that is not in memory has ended. Its messages are then
        acknowledged, or will be delivered again. Otherwise it may be in the revive topic, or another broker of the
        group may know it."""
        return self.is_open and self._ended_here is None and pop_time > self._handed_over_until

    def may_have_handed_over(self, pop_time: int) -> bool:
        """Return whether this broker may have handed over a check point of that pop time since it is its group's active
        one."""
        return self._handed_over_from <= pop_time <= self._handed_over_until

    def those(self, keys: Iterable[PointKey]) -> list[LiveCheckPoint]:
        """Return those of these check points that are in memory."""
        return [live for key in keys if (live := self._live.get(key)) is not None]

    def mark(self, live: LiveCheckPoint, queue_offset: int) -> int:
        """Acknowledge one message and return its bit; 0 if it was acknowledged before or is not in this check point.
        Write it to the journal with `acked`."""
        point = live.point
        index = point.index_of(queue_offset)
        bit = 1 << index if index >= 0 else 0
        if not bit or point.bit_map & bit:
            return 0
        self._mark(live, bit)
        return bit

    def mark_those(self, live: LiveCheckPoint, distances: int) -> int:
        """Acknowledge many messages, as `mark` does: bit n of `distances` stands for the message at the check point's
        start offset + n. Returns the bits that were marked."""
        point = live.point
        diffs = point.diffs
        # the usual case, compared quickly; check points of old versions have no diffs
        if diffs == _NEIGHBOURS[: len(diffs)]:
            mask = distances & live.full
        else:
            mask = sum(1 << index for index, distance in enumerate(diffs) if distances >> distance & 1)
        mask &= ~point.bit_map
        if mask:
            self._mark(live, mask)
        return mask

    def _mark(self, live: LiveCheckPoint, bits: int) -> None:
        """Mark `bits`, none of which was marked before."""
        if live.twins and (of_twins := self._mark_twins(live, bits)):
            # a start needs the rows of the twins, and does not know `live`, which has ended
            self.journal.write({"l": of_twins})
        self._mark_alone(live, bits)

    def _mark_alone(self, live: LiveCheckPoint, bits: int) -> None:
        point = live.point
        point.bit_map |= bits
        self.in_flight[live.queue] -= bits.bit_count()
        if point.bit_map == live.full:
            self._end(live)

    def _mark_twins(self, live: LiveCheckPoint, bits: int) -> list[list[int]]:
        """Acknowledge the same messages in all other check points that have them. Returns numbers and bits, as the
        journal has them."""
        marked: list[list[int]] = []
        offsets = _offsets_of(live.point, bits)
        for twin in live.twins:
            if not twin.ended and (same := _bits_of(twin.point, offsets)):
                marked.append([twin.number, same])
                self._mark_alone(twin, same)
        return marked

    def leave_to_twins(self, live: LiveCheckPoint) -> None:
        """End `live`, whose time is over or which is handed over. Its messages that another check point keeps invisible
        for longer are left to that one, and the journal notes it."""
        left = 0
        for twin in live.twins:
            if not (twin.ended or live.ended) and twin.slot >= live.slot:
                bits = _bits_of(live.point, twin.point.open_offsets())
                left |= bits
                live.rests_on = self.journal.mark()
                self._mark_alone(live, bits)
        if left:
            self.journal.write({"l": [[live.number, left]]})

    def acked(self, bits: dict[LiveCheckPoint, int]) -> int:
        """Write marked messages to the journal. Returns the physical offset behind the record. Acks that mark nothing
        were marked before, and are as safe as everything noted so far (`noted_end`)."""
        if not bits:
            return self.journal.noted_end()
        return self.journal.write({"a": [[live.number, mask] for live, mask in bits.items()]})[1]

    def ack(self, live: LiveCheckPoint, queue_offsets: list[int]) -> Acked:
        """Do `mark` and `acked` for many messages at once."""
        point = live.point
        mask = 0
        for offset in queue_offsets:
            index = point.index_of(offset)
            if index >= 0:
                mask |= 1 << index
        mask &= ~point.bit_map
        if mask:
            self._mark(live, mask)
        return Acked(mask.bit_count(), self.acked({live: mask} if mask else {}))

    # --- the end of a check point ------------------------------------------------------------------------------------

    def take_due(self) -> list[LiveCheckPoint]:
        """Return the check points whose time is over, oldest first. Call `finish` for each."""
        now_slot = self._clock.monotonic_ms() // _SLOT_MS
        due = sorted(slot for slot in self._slots if slot <= now_slot)
        return [live for slot in due for live in self._slots[slot]]

    def take_old(self, before_ms: int, most: int) -> list[LiveCheckPoint]:
        """Return the check points popped before `before_ms`, and the oldest of those beyond `most`. Call `handed_over`
        for each that is in the revive topic.

        Of the former only what each slave knows that may act as master: it gives the messages of the others to somebody
        else, and his acks would not meet a check point that only this broker's log has. Nor those that an earlier
        receipt may name (`stays_until_ms`). None of either has twins, which would be two messages there."""
        surplus = len(self._live) - most
        known_end = self.journal.copied_end()
        old: list[LiveCheckPoint] = []
        for seen, live in enumerate(self._live.values()):
            if seen >= surplus and (live.point.pop_time >= before_ms or live.journal_offset >= known_end):
                break
            if not (live.has_twins or (seen >= surplus and live.stays_until_ms > before_ms)):
                old.append(live)
        return old

    def handed_over(self, lives: list[LiveCheckPoint]) -> None:
        """Finish check points that are in the revive topic."""
        for live in lives:
            self._handed_over_until = max(self._handed_over_until, live.point.pop_time)
            self._handed_over_from = min(self._handed_over_from, live.point.pop_time)
        self.finish(lives)

    def revived(self, live: LiveCheckPoint) -> None:
        """Finish a check point whose messages were revived. Requests with its earlier receipts now come too late."""
        now_ms = self._clock.wall_ms()
        while self._given_again and next(iter(self._given_again.values())) <= now_ms:
            del self._given_again[next(iter(self._given_again))]
        for key in () if live.ended else live.earlier:
            self._given_again[key, live.point.start_offset] = live.receipts_until_ms
        while len(self._given_again) > _MOST_GIVEN_AGAIN:
            del self._given_again[next(iter(self._given_again))]
        self.finish([live])

    def is_given_again(self, key: PointKey, queue_offset: int) -> bool:
        """Return whether a message was revived whose invisible time had been changed by a receipt with this key. Only
        the last ones are known."""
        return (key, queue_offset) in self._given_again

    def revived_but(self, live: LiveCheckPoint, failed: list[int]) -> None:
        """Note that the open messages of a check point were revived, except those at the queue offsets `failed`, which
        are tried again."""
        done = live.full & ~live.point.bit_map & ~_bits_of(live.point, failed)
        if done and not live.ended:
            live.rests_on = self.journal.mark()
            self._mark_alone(live, done)
            self.journal.write({"l": [[live.number, done]], "e": []})

    def finish(self, lives: list[LiveCheckPoint]) -> None:
        """Finish check points whose messages were given elsewhere, and note it in the journal."""
        open_ones = [live for live in lives if not live.ended]
        if not open_ones:
            return
        for live in open_ones:
            queue = live.queue
            self.in_flight[queue] -= (live.full & ~live.point.bit_map).bit_count()
            live.rests_on = self.journal.mark()
            self._end(live)
        self.journal.write({"e": [live.number for live in open_ones]})

    def _end(self, live: LiveCheckPoint, *, is_done: bool = True) -> None:
        live.ended = True
        for key in live.earlier:
            self._forget_receipt(key, live)
        if self._ended_here is not None and is_done:
            spans = self._ended_here.setdefault(live.queue, Spans())
            for offset in _offsets_of(live.point, live.full):
                spans.add(offset, offset + 1)
            if 0 <= live.journal_offset < self._known_end:  # its master may have handed it over before it ended
                self._passed_on.append([*_entry(live), live.full])
        self._live.pop(live.point.key, None)
        self._by_number.pop(live.number, None)
        slot = self._slots.get(live.slot)
        if slot is not None:
            slot.pop(live, None)
            if not slot:
                del self._slots[live.slot]
        queue = live.queue
        if self.in_flight.get(queue, 0) <= 0:
            self.in_flight.pop(queue, None)
        if not self._is_settled(live):
            self._resting.append(live)
        if live.next_begin >= 0:
            self._commit(queue)
        self.on_ended(queue)

    def _forget_receipt(self, key: PointKey, live: LiveCheckPoint) -> None:
        renewed = self._renewed.get(key, {})
        if renewed.get(live.point.start_offset) is live:
            del renewed[live.point.start_offset]
            if not renewed:
                del self._renewed[key]

    def settle(self) -> None:
        """Move groups' offsets over the check points whose end can no longer be lost. A start no longer needs the
        journal records of these."""
        while self._resting and self._is_settled(self._resting[0]):
            self._commit(self._resting.popleft().queue)
        while self._moves and self.journal.is_final(self._moves[0][0]):
            _, (topic, group, queue_id), offset = self._moves.popleft()
            if offset > self._offsets.query_offset(group, topic, queue_id):
                self._offsets.commit_offset(_NOBODY, group, topic, queue_id, offset)

    def _is_settled(self, live: LiveCheckPoint) -> bool:
        return live.rests_on is None or self.journal.is_final(live.rests_on)

    @property
    def is_settled(self) -> bool:
        """Returns whether neither a check point that has ended nor a group's offset waits for the log."""
        return not (self._resting or self._moves)

    def _commit(self, queue: QueueKey) -> None:
        """Move the group's offset past the ended check points at the head of the queue."""
        cursor = self._cursors.get(queue)
        if cursor is None:
            return
        next_begin = -1
        while cursor and cursor[0].ended and self._is_settled(cursor[0]):
            next_begin = cursor.popleft().next_begin
        if not cursor:
            del self._cursors[queue]
        # a replay of the journal repeats older offsets
        if next_begin > self._offsets.query_offset(queue[1], queue[0], queue[2]):
            self._offsets.commit_offset(_NOBODY, queue[1], queue[0], queue[2], next_begin)

    # --- journal -----------------------------------------------------------------------------------------------------

    def oldest_needed(self) -> int:
        """Return the queue offset of the first journal record that concerns a live check point, one behind a live one,
        or one whose end may still be lost; -1 if there is none."""
        self._late = [live for live in self._late if not live.ended]
        first = next((live.journal_offset for live in self._live.values() if live.journal_offset >= 0), -1)
        others = (*(live.needed_from for live in self._late), *(live.journal_offset for live in self._resting))
        return min((at for at in (first, *others) if at >= 0), default=-1)

    def clear(self) -> None:
        """Drop everything, because another broker of the group is active."""
        tables = (self._live, self._by_number, self._slots, self._cursors, self._renewed, self.in_flight)
        for table in (*tables, self._given_again):
            table.clear()
        self._handed_over_until = self._clock.wall_ms()
        self._handed_over_from = _NEVER
        self._late = []
        self._resting.clear()
        self._moves.clear()
        self._ended_here = None
        self._passed_on = []

    def begin_again(self, queues: list[QueueKey]) -> None:
        """Drop the check points of a deleted group: in these queues it goes on at its committed offsets, or begins anew
        where it has none. Journal records of these messages do not move the offset at the next start."""
        self.forget(queues)
        rows = [[topic, group, queue_id, self._offsets.query_offset(group, topic, queue_id)]
                for topic, group, queue_id in queues]  # fmt: skip
        if rows:
            self.journal.write({"r": rows})

    def forget(self, queues: Iterator[QueueKey] | list[QueueKey]) -> None:
        """Drop the check points of a deleted topic or group."""
        gone = set(queues)
        self._drop_moves(gone)
        for queue in gone:
            self._cursors.pop(queue, None)
        self.finish([live for live in self._live.values() if live.queue in gone])

    def _drop_moves(self, queues: set[QueueKey]) -> None:
        self._moves = deque(move for move in self._moves if move[1] not in queues)

    def queues(self) -> set[QueueKey]:
        """Return the queues that have check points here."""
        return {live.queue for live in self._live.values()} | set(self._cursors)

    def replay(
        self, offset: int, entries: dict[str, list[Any]], known: Mapping[tuple[Any, ...], int] | None = None
    ) -> None:
        """Apply a journal record. Records must be applied in order.

        Args:
            offset: queue offset of the record.
            known: present offsets of groups, by topic, group and queue; an offset in the record is then from before
                these.
        """
        for row in entries.get("p", ()):
            number, revive_qid, next_begin = row[0], row[6], row[9]
            self._next_number = max(self._next_number, number)
            self._insert(number, point_of(row), revive_qid, next_begin).journal_offset = offset
        for number, *receipt in entries.get("h", ()):
            live = self._by_number.get(number)
            if live is not None:
                self._renew(live, (*live.earlier, _key_of(live, *receipt)))
        for number, mask in entries.get("a", ()):
            self._next_number = max(self._next_number, number)
            live = self._by_number.get(number)
            if live is not None:
                self._replay_ack(live, mask)
        for number, mask in entries.get("l", ()):
            live = self._by_number.get(number)
            if live is not None:
                self._mark_alone(live, mask & live.full & ~live.point.bit_map)
        for numbers in entries.get("t", ()):
            pair = [live for number in numbers if (live := self._by_number.get(number)) is not None]
            if len(pair) == len(numbers):
                _make_twins(*pair)
        for number in entries.get("e", ()):
            self._next_number = max(self._next_number, number)
            live = self._by_number.get(number)
            if live is not None:
                self.in_flight[live.queue] -= (live.full & ~live.point.bit_map).bit_count()
                self._end(live)
        for topic, group, queue_id, reset in entries.get("r", ()):
            queue = topic, group, queue_id
            self._cursors.pop(queue, None)
            to = reset if known is None else known.get(queue, reset)
            committed = self._offsets.query_committed(group, topic, queue_id)
            if to != committed:  # a committed offset of -1 means that the group begins anew
                self._offsets.commit_offset("ResetPopOffset", group, topic, queue_id, to)
        for topic, group, queue_id, begin in entries.get("b", ()):
            if self._offsets.query_offset(group, topic, queue_id) < 0:
                self._offsets.commit_offset(_NOBODY, group, topic, queue_id, begin)

    def _replay_ack(self, live: LiveCheckPoint, mask: int) -> None:
        bits = mask & live.full & ~live.point.bit_map
        self._mark_twins(live, bits)
        self._mark_alone(live, bits)

    # --- a slave that acted as master --------------------------------------------------------------------------------

    def keep_ended(self, known_end: int) -> None:
        """Remember from now on which messages are done here, because this broker is a slave that acts as master. It has
        read the journal before queue offset `known_end`: check points that it knows from there are its master's."""
        self._ended_here = {}
        self._known_end = known_end

    def keep_for_master(self, late: LateAck) -> None:
        """Keep the acks, and the deliveries to another broker group, of a check point that the master had handed over
        before this slave began to act."""
        point = late.point
        if not point.diffs:
            point = replace(point, diffs=list(range(point.num)))
        bits = sum(1 << index for offset in late.offsets if (index := point.index_of(offset)) >= 0)
        self._passed_on.append([*_entry(LiveCheckPoint(_NO_NUMBER, point, late.revive_qid, -1, 0)), bits])

    def kept_for_master(self) -> dict[PointKey, set[int]]:
        """Return the queue offsets kept by `keep_for_master`, by check point."""
        kept: dict[PointKey, set[int]] = {}
        for row in self._passed_on:
            point = point_of(row)
            kept.setdefault(point.key, set()).update(_offsets_of(point, row[12]))
        return kept

    def hand_back(self) -> list[list[Any]]:
        """Return the journal rows of all check points that have not ended, with the bits of acknowledged messages at
        the end. Then come those that have ended behind an open one of their queue, with all bits set: the group's
        offset is not beyond them, so a broker that did not know them would deliver their messages again. Last come
        check points that the master had handed over and whose acks were received here, and all others of the master
        that have ended here: the master may have handed them over at its end without this slave's knowledge."""
        passed_on = {row[0] for row in self._passed_on}
        ended = [
            live
            for cursor in self._cursors.values()
            for live in cursor
            if live.ended and live.full and live.number not in passed_on
        ]
        return [
            *([*_entry(live), live.point.bit_map] for live in self._live.values()),
            *([*_entry(live), live.full] for live in ended),
            *self._passed_on,
        ]

    def earlier_receipts(self) -> list[list[Any]]:
        """Return the journal rows of receipts that messages had before their invisible time was changed."""
        return [row for live in self._live.values() for row in _earlier(live)]

    def pairs_of_twins(self) -> list[list[int]]:
        """Return pairs of numbers of check points that have the same message."""
        return [
            [live.number, twin.number]
            for live in self._live.values()
            for twin in live.twins
            if not twin.ended and live.number < twin.number
        ]

    def noted_before(self, end: int) -> list[int]:
        """Return the numbers of the check points of `hand_back` that were the master's: the journal names them before
        this queue offset."""
        noted = [live.number for live in self._live.values() if 0 <= live.journal_offset < end]
        return noted + [row[0] for row in self._passed_on]

    def done_here(self) -> list[list[Any]]:
        """Return what a slave that acts as master has done, as [topic, group, queue id, committed offset, bounds]: the
        offset of each queue from which messages were given out or were done, or where a group began, and start and end
        of each range of queue offsets whose messages are done (Spans)."""
        done = self._ended_here or {}
        return [
            [topic, group, queue_id, self._offsets.query_offset(group, topic, queue_id), spans.bounds()]
            for topic, group, queue_id in sorted(self.queues() | done.keys())
            for spans in (done.get((topic, group, queue_id), Spans()),)
        ]

    def take_back(
        self,
        known_end: int,
        rows: list[list[Any]],
        noted: Container[int],
        done: list[list[Any]],
        earlier: list[list[Any]],
        pairs: list[list[int]],
    ) -> list[LateAck]:
        """Adopt a slave's answer of `hand_back`.

        Args:
            known_end: the slave had read the journal before this queue offset. Check points in earlier journal records
                that the slave does not name have ended: all their messages were acknowledged, or revived.
            noted: numbers of the rows that the journal names there, which therefore are this broker's own. One that is
                not known here any more has ended since: it was handed over to the revive topic as this broker ended, or
                revived.
            done: what `done_here` of the slave said.
            earlier: what `earlier_receipts` of the slave said.
            pairs: what `pairs_of_twins` of the slave said.

        Returns:
            What was acknowledged of those, for the revive topic. A slave that acts as master keeps it for its master.
        """
        late: list[LateAck] = []
        theirs: dict[PointKey, list[Any]] = {}
        for row in rows:
            point = point_of(row)
            if row[0] in noted and point.key not in self._live:
                point.bit_map = ~row[12]
                if self._ended_here is not None:
                    self._passed_on += [row] if row[12] else []
                    continue
                late += [LateAck(point, offsets, row[6])] if (offsets := point.open_offsets()) else []
                continue
            theirs[point.key] = row
        own = self._live.items()
        ended = [live for key, live in own if 0 <= live.journal_offset < known_end and key not in theirs]
        unknown = [live for key, live in own if live.journal_offset >= known_end and key not in theirs]
        added: list[LiveCheckPoint] = []
        bits: dict[LiveCheckPoint, int] = {}
        given: list[LiveCheckPoint] = []  # check points that the slave has handed back
        spans = {(topic, group, queue_id): Spans(bounds) for topic, group, queue_id, _, bounds in done}
        for key, row in theirs.items():
            live = self._live.get(key)
            if live is None:
                live = self._insert(self._number(), point_of(row), row[6], row[9])
                added.append(live)
            bits[live] = row[12] & live.full & ~live.point.bit_map
            if row[0] not in noted:
                given.append(live)
                for offset in _offsets_of(live.point, row[12] & live.full):
                    spans.setdefault(live.queue, Spans()).add(offset, offset + 1)
        held = _held(theirs.values())
        for live in unknown:
            is_done, is_held = spans.get(live.queue, Spans()), held.get(live.queue, ())
            of_done = [at for at in live.point.open_offsets() if at in is_done and at not in is_held]
            bits[live] = _bits_of(live.point, of_done)
        passed = {live: bits[live] & _bits_of(live.point, held.get(live.queue, ())) for live in bits}
        bits = {live: mask & ~passed[live] for live, mask in bits.items()}
        marked = {live: mask | passed[live] for live, mask in bits.items()}
        by_number = {row[0]: self._live[key] for key, row in theirs.items()}
        twins = list(dict.fromkeys([*_twins(unknown, given, marked), *_pairs(by_number, pairs)]))
        if added or any(marked.values()) or twins:
            self._take_receipts(by_number, set(added), earlier)
            entries = {
                "p": [_entry(live) for live in added],
                "a": [[live.number, mask] for live, mask in bits.items() if mask],
                "l": [[live.number, mask] for live, mask in passed.items() if mask],
                "t": [[one.number, other.number] for one, other in twins],
                "h": [row for live in added for row in _earlier(live)],
            }
            self._noted(added, self.journal.write({name: rows for name, rows in entries.items() if rows})[0])
        self.finish(ended)  # only now: the slave's records that replace them are written
        end = self.journal.mark()
        for live in bits:
            live.rests_on = end
        for live, mask in bits.items():
            # if the mask is empty, the twin that came before was acknowledged already
            if mask := mask & ~live.point.bit_map:
                self._mark(live, mask)
        for live, mask in passed.items():
            if mask := mask & ~live.point.bit_map:
                self._mark_alone(live, mask)
        for pair in twins:
            _make_twins(*pair)
        self._take_done(done, end)
        return late

    def _take_receipts(
        self, by_number: dict[int, LiveCheckPoint], added: set[LiveCheckPoint], earlier: list[list[Any]]
    ) -> None:
        """Adopt receipts. `by_number` are a slave's numbers of check points."""
        for number, *receipt in earlier:
            live = by_number.get(number)
            if live is not None and live in added:
                self._renew(live, (*live.earlier, _key_of(live, *receipt)))

    def _take_done(self, done: list[list[Any]], end: LogMark) -> None:
        """Move groups to the slave's offsets when the journal records of these before `end` are final: messages before
        a group's offset may be open in a check point that has just been taken over."""
        for topic, group, queue_id, offset, bounds in done:
            self._moves.append((end, (topic, group, queue_id), offset))
            if self._ended_here is not None:
                spans = self._ended_here.setdefault((topic, group, queue_id), Spans())
                for start, end_offset in Spans(bounds):
                    spans.add(start, end_offset)
        self.settle()


def _offsets_of(point: PopCheckPoint, bits: int) -> list[int]:
    """Return the queue offsets of those messages of a check point whose bits are set."""
    distances = point.diffs or range(point.num)
    return [point.start_offset + distance for index, distance in enumerate(distances) if bits >> index & 1]


def _bits_of(point: PopCheckPoint, offsets: Iterable[int]) -> int:
    """Return the bits of the check point's open messages among these queue offsets."""
    bits = sum(1 << index for index in {point.index_of(offset) for offset in offsets} if index >= 0)
    return bits & ~point.bit_map


def _held(rows: Iterable[list[Any]]) -> dict[QueueKey, set[int]]:
    """Return the queue offsets of messages that are open in a check point of a slave. They may count as done in another
    one of the slave, which had them before their invisible time was changed, or left them to the newer one: they
    were passed on."""
    held: dict[QueueKey, set[int]] = {}
    for row in rows:
        point = point_of(row)
        open_offsets = _offsets_of(point, ~row[12])
        held.setdefault((point.topic, point.group, point.queue_id), set()).update(open_offsets)
    return held


def _twins(
    unknown: list[LiveCheckPoint], given: list[LiveCheckPoint], bits: dict[LiveCheckPoint, int]
) -> list[tuple[LiveCheckPoint, LiveCheckPoint]]:
    """Return pairs of check points that have the same message, open in both when `bits` are marked."""
    queues = {live.queue for live in unknown}
    holders: dict[tuple[QueueKey, int], list[LiveCheckPoint]] = {}
    for live in given:
        if live.queue in queues:
            for offset in _offsets_of(live.point, live.full & ~live.point.bit_map & ~bits.get(live, 0)):
                holders.setdefault((live.queue, offset), []).append(live)
    pairs = {
        (live, other): None
        for live in unknown
        for offset in _offsets_of(live.point, live.full & ~live.point.bit_map & ~bits.get(live, 0))
        for other in holders.get((live.queue, offset), ())
    }
    return list(pairs)


def _pairs(
    by_number: dict[int, LiveCheckPoint], numbers: list[list[int]]
) -> list[tuple[LiveCheckPoint, LiveCheckPoint]]:
    """Return the pairs that are not linked yet."""
    found = [(by_number.get(one), by_number.get(other)) for one, other in numbers]
    return [(one, other) for one, other in found if one and other and other not in one.twins]


def _first_needed(live: LiveCheckPoint) -> int:
    return live.journal_offset if live.needed_from < 0 else min(live.journal_offset, live.needed_from)


def _make_twins(one: LiveCheckPoint, other: LiveCheckPoint) -> None:
    if other not in one.twins:
        one.twins += (other,)
        other.twins += (one,)


def point_of(row: list[Any]) -> PopCheckPoint:
    """Make a check point from a row of the journal."""
    _, topic, group, queue_id, pop_time, invisible, _, start, diffs, _, suspend, name = row[:12]
    return PopCheckPoint(
        topic, group, queue_id, start, pop_time, invisible, name, diffs, len(diffs), suspend=bool(suspend)
    )


def row_of_ack(late: LateAck) -> list[Any]:
    """Make the journal row "m" of acks that the revive topic lacks; see PopJournal."""
    *key, name = late.point.key
    return [*key, late.point.invisible_time, late.revive_qid, name, late.offsets]


def ack_of(row: list[Any]) -> LateAck:
    """Make acks, and as much of their check point as they name, from a row "m" of the journal."""
    topic, group, queue_id, start, pop_time, invisible, revive_qid, name, offsets = row
    diffs = [offset - start for offset in offsets]
    point = PopCheckPoint(topic, group, queue_id, start, pop_time, invisible, name, diffs, len(diffs))
    return LateAck(point, offsets, revive_qid)


def _entry(live: LiveCheckPoint) -> list[Any]:
    """Make the journal row of a check point; see PopJournal."""
    point = live.point
    return [
        live.number, point.topic, point.group, point.queue_id, point.pop_time, point.invisible_time, live.revive_qid,
        point.start_offset, point.diffs, live.next_begin, int(point.suspend), point.broker_name,
    ]  # fmt: skip


def _earlier(live: LiveCheckPoint) -> list[list[Any]]:
    """Return the journal rows of the receipts that the message of a check point had before its invisible time was
    changed."""
    return [[live.number, start_offset, pop_time, name] for *_, start_offset, pop_time, name in live.earlier]


def _key_of(live: LiveCheckPoint, start_offset: int, pop_time: int, broker_name: str) -> PointKey:
    return *live.queue, start_offset, pop_time, broker_name
