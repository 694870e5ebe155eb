"""TimerExchange: what the brokers of a group tell each other of the timer, by way of ReplicatedConfigFiles.

A slave fills its wheel as far as its master has, and takes over from the master's checkpoint how far that has
delivered. Received files are kept until the timer's task takes them, because ReplicatedConfigFiles calls from other
threads.
"""

import logging

from maxq.errors import RemoteProtocolError
from maxq.protocol.body.timer_checkpoint import TimerCheckpoint
from maxq.store.message_store import MessageStore
from maxq.store.timer.timer_message_store import TimerMessageStore

log = logging.getLogger(__name__)


class TimerExchange:
    """A RunningTimer (broker/slave/replicated_config_files.py)."""

    def __init__(self, store: MessageStore, timer: TimerMessageStore) -> None:
        self._store = store
        self._timer = timer
        self._checkpoint: TimerCheckpoint | None = None
        self._told_read_time_ms: int | None = None  # read time of the checkpoint that was received last
        self._metrics: bytes | None = None

    def checkpoint(self) -> TimerCheckpoint:
        """Return the timer's checkpoint, as far as it is durable."""
        return self._timer.saved

    def known_read_time_ms(self) -> int:
        """Return up to which wall time, ms, another broker has delivered, as it said last; while this broker delivers,
        and if no broker has said it since the start, up to which the durable checkpoint says it."""
        told = self._told_read_time_ms
        return self._timer.saved.last_read_time_ms if told is None else told

    def take_checkpoint(self, checkpoint: TimerCheckpoint) -> bool:
        """Adopt the checkpoint of the broker that has delivered until now. Returns False if it is known already."""
        known = self._checkpoint or self._timer.saved
        if (checkpoint.last_read_time_ms, checkpoint.master_timer_queue_offset, checkpoint.data_version) == (
            known.last_read_time_ms,
            known.master_timer_queue_offset,
            known.data_version,
        ):
            return False
        self._checkpoint = checkpoint
        self._told_read_time_ms = checkpoint.last_read_time_ms
        return True

    def metrics(self) -> bytes:
        """Return the number of waiting messages by topic."""
        return self._timer.metrics.encode()

    def take_metrics(self, text: bytes) -> bool:
        """Adopt the master's numbers of waiting messages. Returns False if they are known already."""
        if text == self._metrics:
            return False
        self._metrics = text
        return True

    def apply(self, *, is_dequeuing: bool) -> None:
        """Apply the received state of the timer, unless this broker delivers: then its own state is newer."""
        checkpoint, text = self._checkpoint, self._metrics
        self._metrics = None
        if is_dequeuing:
            self._checkpoint = self._told_read_time_ms = None
            return
        # otherwise, if the other broker were lost now, messages that this log does not have yet would never be
        # delivered
        if checkpoint is not None and checkpoint.log_end <= self._store.max_physical_offset:
            self._checkpoint = None
            self._timer.adopt(checkpoint)
        if text is not None:
            try:
                self._timer.metrics.decode(text)
                self._timer.metrics.is_changed = True
            except RemoteProtocolError as error:
                log.warning("the master's timer metrics cannot be read: %s", error)
