"""The context that a listener is given, and the results that it may return.

A listener is called as `listener(messages, context)`; a plain function or a coroutine function. Returning None means
success. An exception means: try again.

Source: apache/rocketmq client/consumer/listener/*.java.
"""

import logging
from collections.abc import Awaitable, Callable
from enum import Enum

from maxq.lazy_dataclass import dataclass
from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.message_queue import MessageQueue

log = logging.getLogger(__name__)


class ConsumeResult(Enum):
    """A listener's decision about the messages that it was called with."""

    SUCCESS = "SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"  # concurrent: deliver the messages again later
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"  # orderly: the same messages again after a pause


@dataclass(slots=True)
class ConsumeContext:
    """The circumstances of one listener call. The listener's changes to it decide about the messages.

    Attributes:
        message_queue: where the messages come from.
        delay_level_when_next_consume: concurrent: -1 straight to the dead-letter queue, 0 the broker decides by the
            number of tries, above 0 this delay level.
        ack_index: concurrent: the last message of the batch that was done; the later ones come again. None: all.
        suspend_ms: orderly: pause before the next try; None: the consumer's setting.
    """

    message_queue: MessageQueue
    delay_level_when_next_consume: int = 0
    ack_index: int | None = None
    suspend_ms: int | None = None

    def done_of(self, count: int) -> int:
        """Return how many of the `count` messages of a successful call are finished."""
        if self.ack_index is None:
            return count
        if not isinstance(self.ack_index, int):
            log.error("ack_index is a number, not %r: the whole batch comes again", self.ack_index)
            return 0
        return max(0, min(self.ack_index + 1, count))


ListenerAnswer = ConsumeResult | None
MessageListener = Callable[[list[MessageExt], ConsumeContext], ListenerAnswer | Awaitable[ListenerAnswer]]
