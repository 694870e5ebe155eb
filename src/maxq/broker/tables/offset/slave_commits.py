"""SlaveCommits: offsets that clients committed to this slave because they could not reach its master.

A slave's table of offsets is a copy: the next round of SlaveSynchronize overwrites it with the master's values. While
the master is away, though, clients commit here, and the master comes back with what it knew when it died. Java lets
those commits go, so a group that stopped meanwhile consumes everything again that it had done. Here they are kept
apart, in `config/slaveCommits.json`, which is written when the consumer offsets are, and handed over
(UPDATE_CONSUMER_OFFSET, which every master knows) before the master's values are taken; only those that are ahead of
the master's, so what clients committed there since wins. A master whose log is another one from some place on is told
those of the messages before that place.

At the master an operator's reset may wait for the group's next pull. A commit of a consumer that has not heard of it
does not end it; one of a consumer that began where the operator has set the group does. So a commit is handed over with
the number of the operator's change (operator_changes.py) that belonged to the copied offset with which its client began
here.

A client may have read at the master what had not been copied when it committed here. If the master loses that with its
power, it gives the places to other messages. So such a commit says since when the master from which the client read has
been the master.

A commit may reach the master after a pull has taken the reset of which its client had not heard, for example from a
slave that was away. So each commit says from which master this slave had copied offsets then: no client had heard of a
reset that was waiting when a later broker became the master.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any, Final, NamedTuple

from maxq.broker.tables.offset.offset_table import OffsetTable, read_offset_table, split_key
from maxq.broker.tables.persistent_manager import PeriodicManager
from maxq.broker.tables.topic.topic_validator import OWN_GROUPS
from maxq.runtime.interfaces import Disk

FILE_NAME: Final = "slaveCommits.json"
_CHANGES: Final = "operatorChanges"  # by topic@group and queue id
_NOT_COPIED: Final = "notCopied"  # SlaveCommit.not_copied_of by topic@group and queue id
_MASTERS: Final = "masters"  # SlaveCommit.master_since by topic@group and queue id

#: `not_copied_of` and `master_since` of a commit that was made before the master has told since when it is one.
UNKNOWN_MASTER: Final = 1


class SlaveCommit(NamedTuple):
    """An offset that a group committed on this slave for one queue, which the master is to be told."""

    topic: str
    group: str
    queue_id: int
    offset: int  # queue offset
    change: int = 0  # number of the operators' last change of the offset at which the client began here; 0: not known
    not_copied_of: int = (
        0  # 0: this slave had all messages before the offset; otherwise ms since which the master was one
    )
    master_since: int = 0  # ms since which the master was one whose offsets this slave had copied; 0: not known


class _Reader(NamedTuple):
    """The client that last asked here where a group goes on in a queue, and `SlaveCommit.change` of its commits."""

    host: str
    change: int


_Place = tuple[str, str, int]  # topic, group, queue id


class SlaveCommits(PeriodicManager):
    """Commits made at this slave that its master does not know yet."""

    def __init__(self, disk: Disk, path: PurePath) -> None:
        super().__init__(disk, path)
        self._pending: dict[_Place, SlaveCommit] = {}
        self._readers: dict[_Place, _Reader] = {}  # readers of queues whose offset an operator has set

    def __len__(self) -> int:
        return len(self._pending)

    def keys(self) -> set[str]:
        """Return `topic@group` of all commits that the master does not have yet."""
        return {f"{topic}@{group}" for topic, group, _ in self._pending}

    def table(self) -> OffsetTable:
        """Return the offsets that were committed here and that the master does not know yet."""
        return _table((place, commit.offset) for place, commit in list(self._pending.items()))

    def note(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        client_host: str = "",
        *,
        change: int = 0,
        not_copied_of: int = 0,
        master_since: int = 0,
    ) -> None:
        """Note the commit of the client at `client_host`; or of one of another slave, which hands it over with
        `change`, or from which it is copied. The newest one counts, even if it is smaller. `change`, `not_copied_of`
        and `master_since`: as SlaveCommit has them."""
        place = topic, group, queue_id
        known = self._pending.get(place)
        if known is not None:
            change = max(change, known.change)
        reader = self._readers.get(place)
        if reader is not None and reader.host == client_host:
            change = max(change, reader.change)
        commit = SlaveCommit(topic, group, queue_id, offset, change, not_copied_of, master_since)
        if commit != known:
            self._pending[place] = commit
            self._is_dirty = True

    def note_reader(self, client_host: str, group: str, topic: str, queue_id: int, change: int) -> None:
        """Note that a client was told where the group goes on.

        Args:
            change: number of the operators' last change of these offsets. It counts unless another client has committed
                here since, because that client may not know of the change.
        """
        place = topic, group, queue_id
        commit = self._pending.get(place)
        self._readers[place] = _Reader(client_host, change if commit is None else commit.change)

    def queues_before(self, change_of: Callable[[str], int]) -> dict[str, list[int]]:
        """Return by `topic@group` the queues of which the last commit here is of a client that was not told of the
        operators' last change.

        Args:
            change_of: number of the last change of a key; 0: there is none.
        """
        found: dict[str, list[int]] = {}
        for commit in self._pending.values():
            if commit.change < change_of(key := f"{commit.topic}@{commit.group}"):
                found.setdefault(key, []).append(commit.queue_id)
        return found

    def drop(self, commit: SlaveCommit) -> None:
        """Remove a commit that the master has accepted or refused. A newer one for the queue stays."""
        place = commit.topic, commit.group, commit.queue_id
        if self._pending.get(place) == commit:
            del self._pending[place]
            self._is_dirty = True

    def ahead_of(self, masters: Mapping[str, Mapping[int, int]]) -> Iterator[SlaveCommit]:
        """Yield the commits that the master's table (`topic@group` → queue → offset) lacks; the others are removed."""
        for commit in list(self._pending.values()):
            if masters.get(f"{commit.topic}@{commit.group}", {}).get(commit.queue_id, -1) >= commit.offset:
                self.drop(commit)
            else:
                yield commit

    def forget_topic(self, topic: str) -> None:
        """Remove the commits of a deleted topic."""
        self._forget(lambda place: place[0] == topic)

    def forget_keys(self, keys: Iterable[str]) -> None:
        """Remove the commits of these keys: `topic@group`, or `@group` for all topics of the group."""
        named = set(keys)
        self._forget(lambda place: not named.isdisjoint((f"{place[0]}@{place[1]}", f"@{place[1]}")))

    def _forget(self, is_named: Callable[[_Place], bool]) -> None:
        for place in [place for place in self._pending if is_named(place)]:
            del self._pending[place]
            self._is_dirty = True
        for place in [place for place in self._readers if is_named(place)]:
            del self._readers[place]

    def forget(self) -> None:
        """Remove everything, because this broker is a master now and its own table counts."""
        self._forget(lambda place: True)

    # --- the file -----------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        pending = list(self._pending.items())
        more = {
            _CHANGES: _table((place, commit.change) for place, commit in pending if commit.change),
            _NOT_COPIED: _table((place, commit.not_copied_of) for place, commit in pending if commit.not_copied_of),
            _MASTERS: _table((place, commit.master_since) for place, commit in pending if commit.master_since),
        }
        return {
            "offsetTable": _table((place, commit.offset) for place, commit in pending),
            **{name: table for name, table in more.items() if table},
        }

    def from_json(self, value: dict[str, Any]) -> None:
        tables = [
            read_offset_table({"offsetTable": value.get(name) or {}}) for name in (_CHANGES, _NOT_COPIED, _MASTERS)
        ]
        self._pending = {
            (*split_key(key), queue_id): SlaveCommit(
                *split_key(key), queue_id, offset, *(table.get(key, {}).get(queue_id, 0) for table in tables)
            )
            for key, row in read_offset_table(value).items()
            if split_key(key)[1] not in OWN_GROUPS  # an earlier version took such commits, and no master does now
            for queue_id, offset in row.items()
        }
        self._is_dirty = False


def _table(rows: Iterable[tuple[_Place, int]]) -> OffsetTable:
    table: OffsetTable = {}
    for (topic, group, queue_id), number in rows:
        table.setdefault(f"{topic}@{group}", {})[queue_id] = number
    return table
