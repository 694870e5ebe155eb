"""ProcessQueue: what a consumer holds of one queue between pull and commit. Pure: time is an argument.

Messages come in with ascending queue offsets and leave in any order; the offset that may be committed is the smallest
one still inside, or one past the largest ever seen when nothing is left. An orderly consumer takes messages out for
its listener and either commits or rolls them back.

Source: apache/rocketmq client/impl/consumer/ProcessQueue.java.
"""

from collections.abc import Iterable

from maxq.client.consumer.held.held_messages_cy import HeldMessages
from maxq.protocol.body.consumer_info import ProcessQueueInfo
from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.received_cy import PulledRecords

LOCK_MAX_LIVE_MS = 30_000  # how long a client trusts its own broker lock
PULL_MAX_IDLE_MS = 120_000  # a queue not pulled for so long is dropped and built anew
SILENCE_MAX_MS = 60_000  # no answer of a queue's broker for so long: it may have given the queue to another member


class ProcessQueue(HeldMessages):
    """The messages of one queue between pull and commit. Timestamps are monotonic milliseconds."""

    def __init__(self, now_ms: int) -> None:
        super().__init__()
        self.dropped = False  # no longer ours: nothing may be committed or delivered
        self.locked = False  # orderly: the broker's lock is ours
        self.last_lock_timestamp = now_ms
        self.last_pull_timestamp = now_ms
        self.last_answer_timestamp = now_ms
        self.last_consume_timestamp = now_ms
        self.try_unlock_times = 0

    def remove_messages(self, messages: Iterable[MessageExt] | PulledRecords, now_ms: int) -> int:
        """Remove finished messages. Returns the queue offset to commit, -1 if nothing was here."""
        self.last_consume_timestamp = now_ms
        return self.remove(messages)

    def take_messages(self, count: int, now_ms: int) -> list[MessageExt]:
        """Return the first `count` messages for an orderly listener. They stay here until `commit` or `rollback`."""
        self.last_consume_timestamp = now_ms
        return self.take(count)

    def is_lock_expired(self, now_ms: int) -> bool:
        """Return whether the broker's lock is too old to be trusted."""
        return now_ms - self.last_lock_timestamp > LOCK_MAX_LIVE_MS

    def is_pull_expired(self, now_ms: int) -> bool:
        """Return whether the last pull is so long ago that pulling must have stopped by an error."""
        return now_ms - self.last_pull_timestamp > PULL_MAX_IDLE_MS

    def may_be_anothers(self, now_ms: int) -> bool:
        """Return whether the queue's broker was silent for so long that another member may have had the queue since."""
        return now_ms - self.last_answer_timestamp > SILENCE_MAX_MS

    def info(self, commit_offset: int, to_wall_ms: int) -> ProcessQueueInfo:
        """Return the state for GET_CONSUMER_RUNNING_INFO. `to_wall_ms` is wall time minus monotonic time."""
        waiting_min, waiting_max, waiting_count = self.waiting_range()
        taken_min, taken_max, taken_count = self.taken_range()
        return ProcessQueueInfo(
            commit_offset=commit_offset,
            cached_msg_min_offset=waiting_min,
            cached_msg_max_offset=waiting_max,
            cached_msg_count=waiting_count,
            cached_msg_size_in_mib=self.message_size >> 20,
            transaction_msg_min_offset=taken_min,
            transaction_msg_max_offset=taken_max,
            transaction_msg_count=taken_count,
            locked=self.locked,
            try_unlock_times=self.try_unlock_times,
            last_lock_timestamp=self.last_lock_timestamp + to_wall_ms,
            droped=self.dropped,
            last_pull_timestamp=self.last_pull_timestamp + to_wall_ms,
            last_consume_timestamp=self.last_consume_timestamp + to_wall_ms,
        )
