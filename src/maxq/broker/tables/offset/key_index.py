"""KeyIndex: of which topics each group has offsets, and which groups of each topic, without a walk over all keys for
each question (`consumerProgress` asks for every group)."""

from collections.abc import Iterable

from maxq.broker.tables.offset.offset_table import split_key


class KeyIndex:
    """What the keys `topic@group` of a table say. Whoever changes the table tells it which keys came and went.

    Attributes:
        topics: by group; a dictionary without values, which keeps the order in which they came.
        groups: the groups of each topic, in the same form.
    """

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self.topics: dict[str, dict[str, None]] = {}
        self.groups: dict[str, dict[str, None]] = {}
        for key in keys:
            self.add(key)

    def add(self, key: str) -> None:
        """Add a key that the table has; it may be in the index already."""
        topic, group = split_key(key)
        self.topics.setdefault(group, {})[topic] = None
        self.groups.setdefault(topic, {})[group] = None

    def remove(self, key: str) -> None:
        """Remove from this index a key `topic@group` that the table of offsets no longer has."""
        topic, group = split_key(key)
        for names, name, other in ((self.topics, group, topic), (self.groups, topic, group)):
            del names[name][other]
            if not names[name]:
                del names[name]

    def of_topic(self, topic: str) -> list[str]:
        """Return all keys `topic@group` of the table of offsets whose topic is `topic`."""
        return [f"{topic}@{group}" for group in self.groups.get(topic, ())]

    def of_group(self, group: str) -> list[str]:
        """Return all keys `topic@group` of the table of offsets whose group is `group`."""
        return [f"{topic}@{group}" for topic in self.topics.get(group, ())]
