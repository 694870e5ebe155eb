"""A range of one queue, which is what tasks pull."""

from dataclasses import dataclass

from maxq.protocol.message.message_queue import MessageQueue


@dataclass(frozen=True, slots=True)
class QueueRange:
    """The queue offsets first to last - 1 of one queue.

    Attributes:
        incarnation: which topic of this name they are of, by the number that its broker gives it
            (`ReportedOffset`); None: nobody knows, and whatever topic has the name is read.
    """

    topic: str
    broker_name: str
    queue_id: int
    first: int
    last: int
    incarnation: int | None = None

    @property
    def queue(self) -> MessageQueue:
        return MessageQueue(self.topic, self.broker_name, self.queue_id)

    @property
    def name(self) -> str:
        """The queue as errors and logs show it: topic/broker/id."""
        return f"{self.topic}/{self.broker_name}/{self.queue_id}"

    def __str__(self) -> str:
        return f"{self.name} [{self.first}, {self.last})"
