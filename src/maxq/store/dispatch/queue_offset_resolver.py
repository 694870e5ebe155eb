"""Which queue offset does a record really have, when its own field does not continue its queue?

No CRC covers the header fields of a record. In the log the records of one queue have consecutive queue offsets, so a
field that breaks the sequence is either the far side of a gap (records between were damaged) or wrong itself. The next
record of the same queue tells which. When there is none, or it leaves a choice, the queue's files as they were before a
rebuild are the second witness: a unit that points exactly to the record tells its place, and the place of a unit is not
a field in which a bit can change. Without those files (somebody deleted them) the field of a queue's only record is
believed.
"""

from array import array
from collections.abc import Callable

from maxq.protocol.message.message_sys_flag import is_queued
from maxq.protocol.message.record_layout import MIN_RECORD_SIZE
from maxq.store.log import record_cy
from maxq.store.log.commit_log import CommitLog
from maxq.store.queue.consume_queue import ConsumeQueue

#: A queue offset that would mean more missing messages than this is taken for damaged.
MOST_PLACES = 1_000_000
#: A queue that begins above this many messages has a wrong offset.
_MOST_MESSAGES = 1 << 40
_LOOK_AHEAD_BYTES = 64 << 20
_LOOK_AHEAD_FIRST_BYTES = 256 << 10  # there may be very many queues that begin above 0
_ROWS = 1024


class QueueOffsetResolver:
    """Decides which queue offset a record gets by looking ahead in the log.

    Attributes:
        lost_bytes: known damage in the log: only then can messages be missing at the end of a queue.
        place_before: (queue, claimed queue offset, physical offset, size) → the record's place in the queue's old
            files, not below the queue's end; None if they do not tell. Set only while all queues are built anew.
    """

    def __init__(self, commit_log: CommitLog) -> None:
        self._commit_log = commit_log
        self._rows = array("q", bytes(8 * record_cy.SCAN_WIDTH * _ROWS))
        self.lost_bytes = 0
        self.place_before: Callable[[ConsumeQueue, int, int, int], int | None] | None = None

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
        following, _ = self._following(queue, physical_offset + size, _LOOK_AHEAD_BYTES)
        if following == end:
            return None
        known = self._known(queue, claimed, physical_offset, size)
        if known is not None and known - end <= self._most_lost and (following is None or known < following):
            return known
        gap = claimed - end
        if following is None:
            return claimed if 0 < gap <= self._most_lost else end
        if 0 < gap <= MOST_PLACES and following > claimed and following != end + 1:
            return claimed
        return end

    def begins_anew(self, queue: ConsumeQueue, physical_offset: int, size: int) -> bool:
        """Return whether a queue was deleted and made again, given a record that states queue offset 0 although the
        queue has messages. It was only if the next record of the queue states 1; otherwise the field may be damaged,
        and showing deleted messages is better than losing others."""
        following, _ = self._following(queue, physical_offset + size, _LOOK_AHEAD_BYTES)
        return following == 1

    def _first(self, queue: ConsumeQueue, claimed: int, physical_offset: int, size: int) -> int:
        """Resolve the first record of a queue without messages. Such a queue may begin at any offset, because its older
        messages were deleted; its next message, if it is near, must continue it."""
        end = queue.max_offset
        credible = end <= claimed < _MOST_MESSAGES
        reach = _LOOK_AHEAD_FIRST_BYTES if credible else _LOOK_AHEAD_BYTES
        following, behind = self._following(queue, physical_offset + size, reach)
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
        third, _ = self._following(queue, behind, _LOOK_AHEAD_FIRST_BYTES)
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

    def _following(self, queue: ConsumeQueue, offset: int, reach: int) -> tuple[int | None, int]:
        """Returns the queue offset field of the next record of this queue (None if there is none near), and where that
        record ends."""
        topic = queue.topic.encode()
        stop = min(self._commit_log.max_offset, offset + reach)
        for file, start, end in self._commit_log.ranges(offset, stop):
            position, reason = start, record_cy.STOP_ROWS_FULL
            while reason == record_cy.STOP_ROWS_FULL:
                count, position, reason = record_cy.scan(
                    file.view, position, end, file.file_from_offset, self._rows, check_crc=False
                )
                base = self._first_of(queue.queue_id, topic, file.view, count)
                if base is not None:
                    row = self._rows[base : base + record_cy.SCAN_WIDTH]
                    return row[record_cy.C_QUEUE_OFFSET], row[record_cy.C_PHYSICAL_OFFSET] + row[record_cy.C_SIZE]
        return None, stop

    def _first_of(self, queue_id: int, topic: bytes, view: memoryview, count: int) -> int | None:
        """Returns the row of the first record of a queue."""
        rows = self._rows
        for base in range(0, count * record_cy.SCAN_WIDTH, record_cy.SCAN_WIDTH):
            if rows[base + record_cy.C_QUEUE_ID] != queue_id or not is_queued(rows[base + record_cy.C_SYS_FLAG]):
                continue
            start = rows[base + record_cy.C_TOPIC_POSITION]
            if view[start : start + rows[base + record_cy.C_TOPIC_SIZE]] == topic:
                return base
        return None
