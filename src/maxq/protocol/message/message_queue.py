"""MessageQueue: one queue of one topic on one broker."""

from dataclasses import dataclass
from typing import Any

from maxq.errors import RemoteProtocolError


@dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    """Names a queue. Queues are sorted by topic, broker name, queue id, as Java's `compareTo` does.

    Source:
        common/message/MessageQueue.java.
    """

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"MessageQueue [topic={self.topic}, brokerName={self.broker_name}, queueId={self.queue_id}]"

    def to_json(self) -> dict[str, Any]:
        """Return the members in the order that Java tools expect: brokerName, queueId, topic."""
        return {"brokerName": self.broker_name, "queueId": self.queue_id, "topic": self.topic}

    @classmethod
    def from_json(cls, value: Any) -> "MessageQueue":
        """Build one from its object form; missing members are empty or 0. Raises RemoteProtocolError for anything
        else."""
        if isinstance(value, MessageQueue):
            return value
        if not isinstance(value, dict):
            raise RemoteProtocolError(f"a message queue is a JSON object, not {type(value).__name__}")
        topic, broker_name, queue_id = value.get("topic"), value.get("brokerName"), value.get("queueId")
        try:
            return cls(str(topic or ""), str(broker_name or ""), int(queue_id or 0))
        except (TypeError, ValueError, OverflowError):
            raise RemoteProtocolError(f"queueId of a message queue is a number, not {queue_id!r:.80}") from None
