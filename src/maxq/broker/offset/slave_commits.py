"""SlaveCommits: offsets that clients committed to this slave because they could not reach its master.

A slave's table of offsets is a copy: the next round of SlaveSynchronize overwrites it with the master's values. While
the master is away, though, clients commit here, and the master comes back with what it knew when it died. Java lets
those commits go, so a group that stopped meanwhile consumes everything again that it had done. Here they are kept
apart, and handed over (UPDATE_CONSUMER_OFFSET, which every master knows) before the master's values are taken; only
those that are ahead of the master's, so what clients committed there since wins. They are in memory only: a slave that
is restarted before its master is back hands nothing over.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple


class SlaveCommit(NamedTuple):
    """One queue of one group."""

    topic: str
    group: str
    queue_id: int
    offset: int  # queue offset


class SlaveCommits:
    """What this slave has to tell its master."""

    def __init__(self) -> None:
        self._pending: dict[tuple[str, str, int], int] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def note(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """A client committed this here. The newest counts, also if it is smaller."""
        self._pending[topic, group, queue_id] = offset

    def settle(self, commit: SlaveCommit) -> None:
        """The master knows it, or does not want it. One that was noted meanwhile stays."""
        key = commit.topic, commit.group, commit.queue_id
        if self._pending.get(key) == commit.offset:
            del self._pending[key]

    def ahead_of(self, masters: Mapping[str, Mapping[int, int]]) -> Iterator[SlaveCommit]:
        """What the master lacks, by its table (`topic@group` → queue → offset); the rest is forgotten."""
        for (topic, group, queue_id), offset in list(self._pending.items()):
            commit = SlaveCommit(topic, group, queue_id, offset)
            if masters.get(f"{topic}@{group}", {}).get(queue_id, -1) >= offset:
                self.settle(commit)
            else:
                yield commit

    def forget(self) -> None:
        """This broker is a master now: its own table counts."""
        self._pending.clear()
