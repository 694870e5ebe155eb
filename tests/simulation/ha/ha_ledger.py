"""What the outside knows of a group of brokers: what was sent, what was acknowledged, and what of it is excused."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class HaSent:
    """One message that was stored by a master, acknowledged (SEND_OK) or not."""

    number: int
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    record: bytes
    body_md5: str
    sent_ms: int  # virtual, when the master was asked
    acknowledged: bool = False
    by_disk: bool = False  # durable on the master when it was acknowledged
    deletes: str = ""  # it is no message, but deletes this topic

    @property
    def body_size(self) -> int:
        return int.from_bytes(self.record[84:88], "big")

    def __str__(self) -> str:
        where = f"{self.topic}/{self.queue_id}@{self.queue_offset}"
        return f"message {self.number} at {self.physical_offset}, {where}, sent at {self.sent_ms} ms"


@dataclass(slots=True)
class HaLedger:
    """All messages in the order they were stored."""

    messages: list[HaSent] = field(default_factory=list)

    def acknowledged(self) -> list[HaSent]:
        return [sent for sent in self.messages if sent.acknowledged]

    def incarnation(self, topic: str) -> int:
        """Return the physical offset at which the topic was last deleted; 0: it never was."""
        return max((sent.physical_offset for sent in self.messages if sent.deletes == topic), default=0)

    def is_gone(self, sent: HaSent) -> bool:
        """Was its topic deleted after it?"""
        return sent.physical_offset < self.incarnation(sent.topic)

    def forget(self, gone: list[HaSent]) -> None:
        """They are lost, and that is excused."""
        numbers = {sent.number for sent in gone}
        self.messages = [sent for sent in self.messages if sent.number not in numbers]
