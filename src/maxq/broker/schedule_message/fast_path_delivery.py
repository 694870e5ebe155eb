"""FastPathDelivery: delayed messages that are due, from record to record, without a Python object for either.

Other cases (a record that needs more than a copy, a queue that is not open, a store that accepts nothing now) are left
to DelayedDelivery, which knows every rule; both write the same bytes.

Source:
    broker/schedule/ScheduleMessageService.java messageTimeUp.
"""

from typing import Final

from maxq.broker.tables.topic.topic_validator import NOT_ALLOWED_SEND_TOPICS
from maxq.store.append.record_copy_cy import RecordCopy
from maxq.store.message_store import MessageStore

_NOWHERE: Final = frozenset({b"", *(topic.encode() for topic in NOT_ALLOWED_SEND_TOPICS)})


class FastPathDelivery:
    """Delivers runs of due messages by copying their records. One per broker."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._copy = RecordCopy()

    def is_possible(self) -> bool:
        """Return whether the store accepts messages at the moment."""
        return self._store.admission.refusal() is None

    def deliver(self, physical_offset: int) -> int:
        """Store the message that the delayed record at `physical_offset` becomes. Call `delivered` after one or
        several.

        Returns:
            Bytes that were stored; 0: none, this one must take DelayedDelivery.
        """
        if physical_offset < self._store.deletions.newest:
            return 0  # its topic may have been deleted since
        record = self._store.select_one_message(physical_offset)
        copy = self._copy
        if record is None or not copy.read(record) or copy.real_topic in _NOWHERE or copy.real_queue_id < 0:
            return 0
        return self._store.fast_path_writer.append_copy(
            record, copy, copy.real_topic, copy.real_queue_id, copy.properties, copy.reconsume_times, copy.store_host
        )

    def delivered(self) -> None:
        """Report the copies that were stored since the last call, so that they are dispatched and replicated."""
        self._store.appended()
