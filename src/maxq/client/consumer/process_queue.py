"""ProcessQueue: what a consumer holds of one queue between pull and commit. Pure: time is an argument.

Messages come in with ascending queue offsets and leave in any order; the offset that may be committed is the smallest
one still inside, or one past the largest ever seen when nothing is left. An orderly consumer takes messages out for
its listener and either commits or rolls them back.

Source: apache/rocketmq client/impl/consumer/ProcessQueue.java.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from maxq.protocol.body.consumer_info import ProcessQueueInfo
from maxq.protocol.message.message import MessageExt

LOCK_MAX_LIVE_MS = 30_000  # how long a client trusts its own broker lock
PULL_MAX_IDLE_MS = 120_000  # a queue not pulled for so long is dropped and built anew
SILENCE_MAX_MS = 60_000  # no answer of a queue's broker for so long: it may have given the queue to another member


class ProcessQueue:
    """The messages of one queue between pull and commit. Timestamps are monotonic milliseconds."""

    def __init__(self, now_ms: int) -> None:
        self._messages: OrderedDict[int, MessageExt] = OrderedDict()  # ascending queue offsets
        self._consuming: OrderedDict[int, MessageExt] = OrderedDict()  # orderly: with the listener
        self.message_count = 0  # with those at the listener
        self.message_size = 0  # bytes of stored bodies, with those at the listener
        self.queue_offset_max = 0  # largest queue offset ever put
        self.backlog = 0  # messages the broker had beyond the last put one
        self.dropped = False  # no longer ours: nothing may be committed or delivered
        self.locked = False  # orderly: the broker's lock is ours
        self.last_lock_timestamp = now_ms
        self.last_pull_timestamp = now_ms
        self.last_answer_timestamp = now_ms
        self.last_consume_timestamp = now_ms
        self.try_unlock_times = 0

    def put_messages(self, messages: Sequence[MessageExt], max_offset: int = 0) -> None:
        """Add the messages of a pull.

        Args:
            messages: in ascending queue offsets; those already here are ignored.
            max_offset: end of the queue at the broker, for the backlog.
        """
        held = self._messages
        in_order = not held or not messages or messages[0].queue_offset > next(reversed(held))
        for message in messages:
            offset = message.queue_offset
            if offset not in held:
                held[offset] = message
                self.message_count += 1
                self.message_size += message.store_size
                if offset > self.queue_offset_max:
                    self.queue_offset_max = offset
        if not in_order:
            self._messages = OrderedDict(sorted(held.items()))
        if messages and max_offset > 0:
            self.backlog = max(0, max_offset - messages[-1].queue_offset - 1)

    def remove_messages(self, messages: Iterable[MessageExt], now_ms: int) -> int:
        """Remove finished messages.

        Returns:
            The queue offset to commit, -1 if the queue never held anything.
        """
        self.last_consume_timestamp = now_ms
        held = self._messages
        if not held:
            return -1
        for message in messages:
            if held.pop(message.queue_offset, None) is not None:
                self.message_count -= 1
                self.message_size -= message.store_size
        return next(iter(held)) if held else self.queue_offset_max + 1

    def take_messages(self, count: int, now_ms: int) -> list[MessageExt]:
        """Return the first `count` messages for an orderly listener. They stay here until `commit` or `rollback`."""
        self.last_consume_timestamp = now_ms
        taken: list[MessageExt] = []
        while self._messages and len(taken) < count:
            offset, message = self._messages.popitem(last=False)
            self._consuming[offset] = message
            taken.append(message)
        return taken

    def commit(self) -> int:
        """Remove all messages that an orderly listener has, because it has finished them.

        Returns:
            The queue offset to commit, -1 if the listener had nothing.
        """
        if not self._consuming:
            return -1
        last = next(reversed(self._consuming))
        self.message_count -= len(self._consuming)
        self.message_size -= sum(message.store_size for message in self._consuming.values())
        self._consuming.clear()
        return last + 1

    def rollback(self) -> None:
        """Put all messages that an orderly listener has back, so that they are delivered again in order."""
        while self._consuming:
            offset, message = self._consuming.popitem()
            self._messages[offset] = message
            self._messages.move_to_end(offset, last=False)

    def has_messages(self) -> bool:
        """Return whether messages wait for the listener."""
        return bool(self._messages)

    def max_span(self) -> int:
        """Return the largest queue offset minus the smallest of the messages in the queue."""
        if not self._messages:
            return 0
        return next(reversed(self._messages)) - next(iter(self._messages))

    def clear(self) -> None:
        """Remove all messages that were pulled from the queue and are not consumed."""
        self._messages.clear()
        self._consuming.clear()
        self.message_count = 0
        self.message_size = 0
        self.backlog = 0
        self.queue_offset_max = 0

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
        first = next(iter(self._messages), 0)
        taken_first = next(iter(self._consuming), 0)
        return ProcessQueueInfo(
            commit_offset=commit_offset,
            cached_msg_min_offset=first,
            cached_msg_max_offset=next(reversed(self._messages)) if self._messages else 0,
            cached_msg_count=len(self._messages),
            cached_msg_size_in_mib=self.message_size >> 20,
            transaction_msg_min_offset=taken_first,
            transaction_msg_max_offset=next(reversed(self._consuming)) if self._consuming else 0,
            transaction_msg_count=len(self._consuming),
            locked=self.locked,
            try_unlock_times=self.try_unlock_times,
            last_lock_timestamp=self.last_lock_timestamp + to_wall_ms,
            droped=self.dropped,
            last_pull_timestamp=self.last_pull_timestamp + to_wall_ms,
            last_consume_timestamp=self.last_consume_timestamp + to_wall_ms,
        )
