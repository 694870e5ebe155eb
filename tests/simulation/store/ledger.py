"""What the outside knows of a store: which messages it acknowledged, and which of those it may never lose."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Sent:
    """One acknowledged message. `durable` once the store said so."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int  # of the record; 0 if it came in a batch and is not known
    store_timestamp: int
    body_md5: str
    key: str
    properties: dict[str, str]
    durable: bool = False

    def differs_from(self, found: dict[str, object]) -> bool:
        """Is the message on the disk another one?"""
        place = (found["topic"], found["queueId"], found["queueOffset"], found["storeTimestamp"], found["bodyMd5"])
        stored = found["properties"]
        assert isinstance(stored, dict)
        same = all(stored.get(name) == value for name, value in self.properties.items())
        wanted = (self.topic, self.queue_id, self.queue_offset, self.store_timestamp, self.body_md5)
        return place != wanted or not same


@dataclass(slots=True)
class Deleted:
    """One deletion of a topic: what lies below `physical_offset` is gone. `durable` once the store said so."""

    topic: str
    physical_offset: int
    end_offset: int  # behind the record that deletes it
    durable: bool = False


@dataclass(slots=True)
class Ledger:
    """Acknowledged messages by physical offset, deletions of topics, and versions of a settings file."""

    messages: dict[int, Sent] = field(default_factory=dict)
    deletions: list[Deleted] = field(default_factory=list)  # in the order of the log
    undone: list[Deleted] = field(default_factory=list)  # were never durable, and are lost from the midst of the log
    settings: list[bytes] = field(default_factory=list)  # every content that was ever handed to the disk
    settings_durable: int = -1  # index of the last one whose write returned

    def add(self, sent: Sent) -> None:
        self.messages[sent.physical_offset] = sent

    def flushed_up_to(self, physical_offset: int) -> None:
        """The store says that everything below is durable (with ASYNC_FLUSH it acknowledges earlier)."""
        for sent in self.messages.values():
            if sent.physical_offset + sent.size <= physical_offset:
                sent.durable = True
        for deleted in self.deletions:
            if deleted.end_offset <= physical_offset:
                deleted.durable = True

    def all_durable(self) -> None:
        """A killed process loses nothing that it wrote, a clean shutdown neither."""
        for row in (*self.messages.values(), *self.deletions):
            row.durable = True

    def expire(self, min_physical_offset: int) -> None:
        """The store cleaned up: what was below is nobody's loss."""
        self.messages = {at: sent for at, sent in self.messages.items() if at >= min_physical_offset}

    def forget(self, physical_offset: int) -> None:
        """This message was destroyed on the disk itself."""
        self.messages.pop(physical_offset, None)

    def durable(self) -> list[Sent]:
        """What must be there, in log order."""
        return [sent for _, sent in sorted(self.messages.items()) if sent.durable]
