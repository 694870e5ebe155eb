"""StoreScheduleQueue: the queue of one delay level in the store, as DelayLevelQueue sees it."""

from maxq.broker.schedule_message.delay_levels import queue_id_of
from maxq.broker.topic.topic_validator import SCHEDULE_TOPIC
from maxq.store.message_store import MessageStore


class StoreScheduleQueue:
    """One level's."""

    def __init__(self, store: MessageStore, level: int) -> None:
        self._store = store
        self._queue_id = queue_id_of(level)

    @property
    def min_offset(self) -> int:
        """Smallest queue offset whose message is still in the log; 0 for a queue without messages."""
        return max(0, self._store.min_offset(SCHEDULE_TOPIC, self._queue_id))

    @property
    def max_offset(self) -> int:
        return self._store.max_offset(SCHEDULE_TOPIC, self._queue_id)

    def unit(self, offset: int) -> tuple[int, int, int] | None:
        """See ScheduleQueue."""
        units = self._store.queue_units(SCHEDULE_TOPIC, self._queue_id, offset, 1)
        return units[0] if units else None

    def corrected(self, offset: int) -> int:
        """`offset`, moved into the queue if it lies outside (correctDelayOffset)."""
        return min(max(offset, self.min_offset), max(self.max_offset, self.min_offset))
