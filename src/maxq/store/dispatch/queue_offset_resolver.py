"""Which queue offset does a record really have, when its own field does not continue its queue?

No CRC covers the header fields of a record. In the log the records of one queue have consecutive queue offsets, so a
field that breaks the sequence is either the far side of a gap (records between were damaged) or wrong itself. The next
record of the same queue tells which. When there is none, or it leaves a choice, the queue's files as they were before a
rebuild are the second witness: a unit that points exactly to the record tells its place, and the place of a unit is not
a field in which a bit can change. Without those files (somebody deleted them) the field of a queue's only record is
believed.

Lost bytes may have held a record that deletes a topic. Behind them the numbers of its queues may begin below those
before them, without any field being wrong. So a record on the other side of lost bytes, or of a deletion, can confirm
that a queue continues, but not that the field of a record is wrong. A record behind lost bytes whose field is below the
end of its queue may be correct (`may_be_whole`). It is one of a new queue if the next record continues it.
"""

from array import array
from collections.abc import Callable, Iterable
from typing import NamedTuple

from maxq.protocol.message.message import decode_record
from maxq.protocol.message.message_sys_flag import is_queued, is_rolled_back
from maxq.protocol.message.record_layout import MIN_RECORD_SIZE
from maxq.store.log import record_cy
from maxq.store.log.commit_log import CommitLog
from maxq.store.log.deletions import DELETED_TOPIC, deleted_names
from maxq.store.queue.batch_consume_queue import BatchConsumeQueue
from maxq.store.queue.consume_queue import ConsumeQueue

#: A queue offset that would mean more missing messages than this is taken for damaged.
MOST_PLACES = 1_000_000
#: A queue that begins above this many messages has a wrong offset.
_MOST_MESSAGES = 1 << 40
_LOOK_AHEAD_BYTES = 64 << 20
_LOOK_AHEAD_FIRST_BYTES = 256 << 10  # few bytes, because very many queues may begin above 0
_ROWS = 1024
_DELETED_TOPIC = DELETED_TOPIC.encode()
_ENDS_OF_FILES = (record_cy.STOP_ROWS_FULL, record_cy.STOP_END, record_cy.STOP_BLANK)


class _Following(NamedTuple):
    """The next record of a queue behind a record of the log.

    Attributes:
        queue_offset: the field of the next record of this queue; None if there is none near, or the topic is deleted
            before it.
        end: physical offset behind that record.
        after_loss: whether bytes between may be lost, among them a record that deleted the topic.
    """

    queue_offset: int | None
    end: int
    after_loss: bool


class QueueOffsetResolver:
    """Decides which queue offset a record gets by looking ahead in the log.

    Attributes:
        lost_bytes: known damage in the log: only then can messages be missing at the end of a queue. See `lose`.
        place_before: (queue, claimed queue offset, physical offset, size) → the record's place in the queue's old
            files, not below the queue's end; None if they do not tell. Set only while all queues are built anew.
    """

    def __init__(self, commit_log: CommitLog) -> None:
        self._commit_log = commit_log
        self._rows = array("q", bytes(8 * record_cy.SCAN_WIDTH * _ROWS))
        self.lost_bytes = 0
        self._lost: list[tuple[int, int]] = []
        self.place_before: Callable[[ConsumeQueue, int, int, int], int | None] | None = None

    def lose(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Take these (start, end) ranges of the log, in place of those known before, for lost."""
        self._lost = list(ranges)
        self.lost_bytes = sum(end - start for start, end in self._lost)

    @property
    def doubts_first(self) -> bool:
        """Return whether the first record of a queue in the log may wrongly state queue offset 0."""
        return self.place_before is not None and (self._commit_log.min_offset > 0 or self.lost_bytes > 0)

    def resolve(self, queue: ConsumeQueue, claimed: int, physical_offset: int, size: int) -> int | None:
        """Return the queue offset of the record at `physical_offset`, whose header states `claimed`.

        Returns:
            `claimed` if it is believed (what lies between it and the queue's end is then missing), the queue's end if
            not; None if the record is not one of this queue at all.
        """
        end = queue.max_offset
        if not queue.files.files:
            return self._first(queue, claimed, physical_offset, size)
        following, _, after_loss = self._following(queue, physical_offset + size, _LOOK_AHEAD_BYTES)
        may_restart = after_loss and self._is_after_loss(queue, physical_offset)
        if following == end and not may_restart:
            return None
        if following == 0 or (may_restart and following is not None and following <= end):
            following = None  # the next record belongs to a queue that was made again
        known = self._known(queue, claimed, physical_offset, size)
        if known is not None and known - end <= self._most_lost and (following is None or known < following):
            return known
        gap = claimed - end
        if following is None:
            return claimed if 0 < gap <= self._most_lost else end
        if 0 < gap <= MOST_PLACES and following > claimed and following != end + 1:
            return claimed
        return end

    def begins_anew(
        self, queue: ConsumeQueue | BatchConsumeQueue, claimed: int, physical_offset: int, size: int, count: int = 1
    ) -> bool:
        """Return whether a queue was deleted and made again, given a record of `count` messages whose header claims a
        queue offset below the queue's end. It was only if the next record of the queue continues this one, and if this
        one claims to be message 0 or bytes before it are lost; otherwise the field may be wrong, and it is better to
        show deleted messages than to lose others."""
        is_after_loss = self._is_after_loss(queue, physical_offset)
        if claimed and not (is_after_loss and 0 < claimed <= self._most_lost):
            return False
        following, _, after_loss = self._following(queue, physical_offset + size, _LOOK_AHEAD_BYTES)
        if following is None:
            return False
        if following == claimed + count:
            return True
        return (
            is_after_loss
            and after_loss
            and self._follows(claimed + count - 1, following)
            and following <= queue.max_offset
        )

    def may_be_whole(self, queue: ConsumeQueue, claimed: int, physical_offset: int, size: int) -> bool:
        """Return whether a record that gets another queue offset than its header claims may be intact, because bytes
        are lost that may have held a record which deleted the topic."""
        if not self._is_after_loss(queue, physical_offset):
            return False
        if 0 <= claimed < queue.max_offset:
            return True
        if not 0 < claimed - queue.max_offset <= self._most_lost:
            return False
        return self._following(queue, physical_offset + size, _LOOK_AHEAD_BYTES).after_loss

    def _first(self, queue: ConsumeQueue, claimed: int, physical_offset: int, size: int) -> int:
        """Resolve the first record of a queue without messages. Such a queue may begin at any offset, because its older
        messages were deleted; its next message, if it is near, must continue it."""
        end = queue.max_offset
        credible = end <= claimed < _MOST_MESSAGES
        reach = _LOOK_AHEAD_FIRST_BYTES if credible else _LOOK_AHEAD_BYTES
        following, behind, after_loss = self._following(queue, physical_offset + size, reach)
        if after_loss and following is not None and following <= claimed:
            following = None  # the next record belongs to a queue that was made again
        if credible and following == claimed + 1 and not self.lost_bytes:
            return claimed
        known = self._known(queue, claimed, physical_offset, size)
        if following is None or not end < following < _MOST_MESSAGES:
            return known if known is not None else claimed if credible else end
        if known is not None and self._follows(known, following):
            return known
        if credible and (self._follows(claimed, following) or self._outvoted(queue, claimed, following, behind)):
            return claimed
        return following - 1

    def _outvoted(self, queue: ConsumeQueue, claimed: int, following: int, behind: int) -> bool:
        """Return whether the second of two records that contradict each other is the wrong one. The third record
        decides. Without a third one, a log that begins with its first message cannot lack more messages than bytes
        were lost."""
        third = self._following(queue, behind, _LOOK_AHEAD_FIRST_BYTES).queue_offset
        if third is None:
            return self._commit_log.min_offset == 0 and claimed <= self._most_lost < following - 1
        return self._follows(claimed + 1, third) and not self._follows(following, third)

    def _known(self, queue: ConsumeQueue, claimed: int, physical_offset: int, size: int) -> int | None:
        """Returns the queue offset of the record according to `place_before`; None if that is not set or does not know
        it."""
        return None if self.place_before is None else self.place_before(queue, claimed, physical_offset, size)

    @property
    def _most_lost(self) -> int:
        """Returns the largest number of messages that can be missing."""
        return self.lost_bytes // MIN_RECORD_SIZE

    def _follows(self, claimed: int, following: int) -> bool:
        """Returns whether `following` can be the queue offset of the next record. Messages between may be missing, as
        far as bytes were lost."""
        return 0 <= following - claimed - 1 <= self._most_lost

    def _is_after_loss(self, queue: ConsumeQueue | BatchConsumeQueue, physical_offset: int) -> bool:
        """Return whether bytes are lost between the last record of a queue and this one."""
        return self._is_lost_between(queue.tail.max_physical_offset, physical_offset)

    def _is_lost_between(self, start: int, end: int) -> bool:
        return any(first < end and start < last for first, last in self._lost)

    def _following(self, queue: ConsumeQueue | BatchConsumeQueue, offset: int, reach: int) -> _Following:
        """Return what the log has of this queue from `offset` on, not further than `reach` bytes."""
        topic = queue.topic.encode()
        stop = min(self._commit_log.max_offset, offset + reach)
        unreadable = False
        for file, start, end in self._commit_log.ranges(offset, stop):
            position, reason = start, record_cy.STOP_ROWS_FULL
            while reason == record_cy.STOP_ROWS_FULL:
                count, position, reason = record_cy.scan(
                    file.view, position, end, file.file_from_offset, self._rows, check_crc=False
                )
                base = self._first_of(queue.queue_id, topic, file.view, count)
                if base is not None:
                    row = self._rows[base : base + record_cy.SCAN_WIDTH]
                    at = row[record_cy.C_PHYSICAL_OFFSET]
                    after_loss = unreadable or self._is_lost_between(offset, at)
                    is_own = is_queued(row[record_cy.C_SYS_FLAG])
                    found = row[record_cy.C_QUEUE_OFFSET] if is_own else None
                    return _Following(found, at + row[record_cy.C_SIZE], after_loss)
            unreadable |= reason not in _ENDS_OF_FILES
        return _Following(None, stop, unreadable or self._is_lost_between(offset, stop))

    def _first_of(self, queue_id: int, topic: bytes, view: memoryview, count: int) -> int | None:
        """Return the row of the first record of a queue, or of the record that deletes its topic before that."""
        rows = self._rows
        for base in range(0, count * record_cy.SCAN_WIDTH, record_cy.SCAN_WIDTH):
            start, sys_flag = rows[base + record_cy.C_TOPIC_POSITION], rows[base + record_cy.C_SYS_FLAG]
            if is_queued(sys_flag):
                if rows[base + record_cy.C_QUEUE_ID] != queue_id:
                    continue
                if view[start : start + rows[base + record_cy.C_TOPIC_SIZE]] == topic:
                    return base
            elif is_rolled_back(sys_flag) and view[start : start + len(_DELETED_TOPIC)] == _DELETED_TOPIC:
                at, size = rows[base + record_cy.C_POSITION], rows[base + record_cy.C_SIZE]
                message = decode_record(view[at : at + size])
                if message.topic == DELETED_TOPIC and topic.decode() in deleted_names(message):
                    return base
        return None
