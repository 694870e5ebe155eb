"""FlowControl: may a queue be pulled, or is too much of it here already? And how often that held pulls back.

Source: apache/rocketmq client/impl/consumer/DefaultMQPushConsumerImpl.java (pullMessage, queueFlowControlTimes).
"""

import logging
from collections import Counter
from enum import Enum

from maxq.client.consumer.held.process_queue import ProcessQueue
from maxq.protocol.message.message_queue import MessageQueue

log = logging.getLogger(__name__)

_LOG_EVERY = 1_000


class FlowControlReason(Enum):
    """The bound that a queue is above, by the name of its setting."""

    COUNT = "pull_threshold_for_queue"
    SIZE = "pull_threshold_size_for_queue"
    SPAN = "consume_max_span"


class FlowControl:
    """Bounds how much of each queue a push consumer holds unfinished, and counts how often that stopped pulls.

    Attributes:
        count_max: messages of one queue that may be here.
        bytes_max: bytes of them.
        times: how often a queue began to be held back, by reason.
    """

    def __init__(self, count_max: int, bytes_max: int, span_max: int | None) -> None:
        """`span_max` is the limit of queue offsets between the first and the last unfinished message; None: no limit
        (orderly consumers)."""
        self.count_max = count_max
        self.bytes_max = bytes_max
        self._span_max = span_max
        self._held: dict[MessageQueue, FlowControlReason] = {}
        self.times: Counter[FlowControlReason] = Counter()

    def holds_back(self, queue: MessageQueue, process_queue: ProcessQueue) -> bool:
        """Return whether a queue must not be pulled because too much of it is unfinished."""
        reason = self._reason(process_queue)
        if reason is None:
            self._held.pop(queue, None)
            return False
        if queue not in self._held:
            self._begins(queue, process_queue, reason)
        self._held[queue] = reason
        return True

    def forget(self, queue: MessageQueue) -> None:
        """Forget what is known of a queue that this member gave up."""
        self._held.pop(queue, None)

    def figures(self) -> dict[str, str]:
        """Return the counters for GET_CONSUMER_RUNNING_INFO."""
        of_queue = self.times[FlowControlReason.COUNT] + self.times[FlowControlReason.SIZE]
        return {
            "queueFlowControlTimes": str(of_queue),
            "queueMaxSpanFlowControlTimes": str(self.times[FlowControlReason.SPAN]),
            "queuesHeldBack": str(len(self._held)),
        }

    def _reason(self, process_queue: ProcessQueue) -> FlowControlReason | None:
        if process_queue.message_count > self.count_max:
            return FlowControlReason.COUNT
        if process_queue.message_size > self.bytes_max:
            return FlowControlReason.SIZE
        if self._span_max is not None and process_queue.max_span() > self._span_max:
            return FlowControlReason.SPAN
        return None

    def _begins(self, queue: MessageQueue, process_queue: ProcessQueue, reason: FlowControlReason) -> None:
        self.times[reason] += 1
        if self.times[reason] % _LOG_EVERY == 1:
            log.debug(
                "%s is not pulled for now (%s, time %d): %d messages, %d bytes, span %d are here unconsumed",
                queue, reason.value, self.times[reason], process_queue.message_count, process_queue.message_size,
                process_queue.max_span(),
            )  # fmt: skip
