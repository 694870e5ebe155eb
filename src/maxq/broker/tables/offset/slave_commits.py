"""SlaveCommits: offsets that clients committed to this slave because they could not reach its master.

A slave's table of offsets is a copy: the next round of SlaveSynchronize overwrites it with the master's values. While
the master is away, though, clients commit here, and the master comes back with what it knew when it died. Java lets
those commits go, so a group that stopped meanwhile consumes everything again that it had done. Here they are kept
apart, in `config/slaveCommits.json`, which is written when the consumer offsets are, and handed over
(UPDATE_CONSUMER_OFFSET, which every master knows) before the master's values are taken; only those that are ahead of
the master's, so what clients committed there since wins. A master whose log is another one from some place on is told
those of the messages before that place.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any, Final, NamedTuple

from maxq.broker.tables.offset.offset_table import OffsetTable, read_offset_table, split_key
from maxq.broker.tables.persistent_manager import PeriodicManager
from maxq.runtime.interfaces import Disk

FILE_NAME: Final = "slaveCommits.json"


class SlaveCommit(NamedTuple):
    """An offset that a group committed on this slave for one queue, which the master is to be told."""

    topic: str
    group: str
    queue_id: int
    offset: int  # queue offset


class SlaveCommits(PeriodicManager):
    """Commits made at this slave that its master does not know yet."""

    def __init__(self, disk: Disk, path: PurePath) -> None:
        super().__init__(disk, path)
        self._pending: dict[tuple[str, str, int], int] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def keys(self) -> set[str]:
        """Return `topic@group` of all commits that the master does not have yet."""
        return {f"{topic}@{group}" for topic, group, _ in self._pending}

    def table(self) -> OffsetTable:
        """Return what was committed here and the master has not been told."""
        table: OffsetTable = {}
        for (topic, group, queue_id), offset in list(self._pending.items()):
            table.setdefault(f"{topic}@{group}", {})[queue_id] = offset
        return table

    def note(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Note a client's commit. The newest one counts, even if it is smaller."""
        self._pending[topic, group, queue_id] = offset
        self._is_dirty = True

    def drop(self, commit: SlaveCommit) -> None:
        """Remove a commit that the master has accepted or refused. A newer one for the queue stays."""
        key = commit.topic, commit.group, commit.queue_id
        if self._pending.get(key) == commit.offset:
            del self._pending[key]
            self._is_dirty = True

    def ahead_of(self, masters: Mapping[str, Mapping[int, int]]) -> Iterator[SlaveCommit]:
        """Yield the commits that the master's table (`topic@group` → queue → offset) lacks; the others are removed."""
        for (topic, group, queue_id), offset in list(self._pending.items()):
            commit = SlaveCommit(topic, group, queue_id, offset)
            if masters.get(f"{topic}@{group}", {}).get(queue_id, -1) >= offset:
                self.drop(commit)
            else:
                yield commit

    def forget_topic(self, topic: str) -> None:
        """Remove the commits of a deleted topic."""
        for key in [key for key in self._pending if key[0] == topic]:
            del self._pending[key]
            self._is_dirty = True

    def forget_keys(self, keys: Iterable[str]) -> None:
        """Remove the commits of these keys: `topic@group`, or `@group` for all topics of the group."""
        named = set(keys)
        for place in [place for place in self._pending if {f"{place[0]}@{place[1]}", f"@{place[1]}"} & named]:
            del self._pending[place]
            self._is_dirty = True

    def forget(self) -> None:
        """Remove everything, because this broker is a master now and its own table counts."""
        if self._pending:
            self._pending.clear()
            self._is_dirty = True

    # --- the file -----------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        return {"offsetTable": self.table()}

    def from_json(self, value: dict[str, Any]) -> None:
        table = read_offset_table(value)
        self._pending = {
            (*split_key(key), queue_id): offset for key, row in table.items() for queue_id, offset in row.items()
        }
        self._is_dirty = False
