"""MovedQueueHook: the message of a transaction whose queue has moved to another broker meanwhile goes there, too.

A half message keeps the physical queue that it was sent to. When its transaction is committed, the global queue may be
led elsewhere, and readers are there. Such a message is put among the delayed ones, of the shortest level: their
delivery gives it to the broker that leads the queue (EscapeBridge), and tries again while that one is away.
"""

from collections.abc import Callable

from maxq.broker.processors.refusal import Refusal
from maxq.broker.tables.static_topic.topic_queue_mapping_manager import TopicQueueMappingManager
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner


class MovedQueueHook:
    """The put hook for moved queues. It is the last one, because it needs the final queue of a message."""

    def __init__(
        self, mappings: TopicQueueMappingManager, deliver_soon: Callable[[MessageExtBrokerInner], None]
    ) -> None:
        """`deliver_soon(message)` turns a message, in place, into a delayed one."""
        self._mappings = mappings
        self._deliver_soon = deliver_soon

    def __call__(self, message: MessageExtBrokerInner) -> Refusal | None:
        """Check the queue into which the other hooks have put a message before it is stored (PutHooks). Never
        refuses."""
        home = self._mappings.home_of(message.topic, message.queue_id)
        if home.queue_id is None:
            self._deliver_soon(message)
        else:
            message.queue_id = home.queue_id
        return None
