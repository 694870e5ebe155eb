"""KeyIndex: of which topics each group has offsets, and which groups of each topic, without a walk over all keys for
each question (`consumerProgress` asks for every group)."""

from collections.abc import Mapping
from itertools import islice

from maxq.broker.offset.offset_table import split_key


class KeyIndex:
    """What the keys `topic@group` of a table say. Keys that came since the last question are the last ones of the
    table, as dictionaries keep their order; `forget` when some have gone.

    Attributes:
        topics: by group.
        groups: by topic.
    """

    def __init__(self) -> None:
        self.topics: dict[str, list[str]] = {}
        self.groups: dict[str, list[str]] = {}
        self._known = 0
        self._table: Mapping[str, object] | None = None

    def forget(self) -> None:
        """Begin anew with the next question."""
        self.topics, self.groups, self._known = {}, {}, 0

    def of(self, table: Mapping[str, object]) -> "KeyIndex":
        """This index, with everything that is in the table now."""
        if table is not self._table or len(table) < self._known:
            self.forget()
            self._table = table
        if len(table) != self._known:
            for key in islice(table, self._known, None):
                topic, group = split_key(key)
                self.topics.setdefault(group, []).append(topic)
                self.groups.setdefault(topic, []).append(group)
            self._known = len(table)
        return self
