"""MovedOffsets: says that a broker sent a consumer elsewhere (PULL_OFFSET_MOVED), without a line for each of many
queues.

A group that begins at the start of a topic asks for offset 0, and is sent to what is left: nothing is lost that it
could have had, so one line tells it of all queues of the topic. Any other move is a reset or a loss, told by queue.
"""

import logging

from maxq.protocol.message.message_queue import MessageQueue

log = logging.getLogger(__name__)


class MovedOffsets:
    """One per consumer; `group` is its consumer group."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._begun: set[str] = set()  # topics of which it was told that their first messages are gone

    def tell(self, queue: MessageQueue, wanted: int, going_on_at: int) -> None:
        """A pull of `queue` at offset `wanted` was sent to offset `going_on_at`."""
        if wanted != 0:
            log.warning(
                "offset %d of %s was reset, or is outside the queue; going on at %d", wanted, queue, going_on_at
            )
        elif queue.topic not in self._begun:
            self._begun.add(queue.topic)
            log.warning(
                "the first messages of topic %s are gone: group %s begins at the oldest that are left, such as offset "
                "%d of queue %d of %s",
                queue.topic, self._group, going_on_at, queue.queue_id, queue.broker_name,
            )  # fmt: skip
