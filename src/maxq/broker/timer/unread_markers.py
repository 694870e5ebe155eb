"""UnreadMarkers: what recalls a message and lies in the timer's topic behind one that cannot be put into the wheel yet.

Messages are put into the wheel in the order of the topic. While a message waits for its slot, which is used by another
lap, or `timerStopEnqueue` holds all of them back, other messages that are due are still delivered, and markers that
recall them must be applied. The markers themselves stay unread.
"""

from maxq.store.timer.timer_message_store import TimerMessageStore
from maxq.store.timer.timer_record import TimerRecord, message_key, recalled_keys


class UnreadMarkers:
    """Markers of recalls in one topic of timer messages that the timer has not read yet."""

    def __init__(self, timer: TimerMessageStore) -> None:
        self._topic = timer.topic
        self._slot_of = timer.slot_of
        self._looked_from = 0  # queue offsets from which and to which markers were read
        self._looked_to = 0
        self._markers: dict[tuple[int, str], int] = {}  # slot and key of what is recalled → the marker's queue offset

    def look(self, end: int, most: int) -> bool:
        """Read `most` more of the unread messages below queue offset `end`. Returns False if there are more of them."""
        first = self._topic.queue_offset
        if not self._looked_from <= first <= self._looked_to:
            self._markers.clear()
            self._looked_to = first
        self._looked_from = first
        stop = min(end, self._looked_to + most)
        for queue_offset in range(self._looked_to, stop):
            record = self._topic.unread_record(queue_offset)
            if record is not None and record.delete_key is not None:
                for key in recalled_keys(record):
                    self._markers[self._slot_of(record.out_ms), key] = queue_offset
        self._looked_to = max(self._looked_to, stop)
        return self._looked_to >= end

    def recall(self, record: TimerRecord) -> bool:
        """Return whether an unread marker recalls this message."""
        found = self._markers.get((self._slot_of(record.out_ms), message_key(record)), -1)
        return found >= self._topic.queue_offset
