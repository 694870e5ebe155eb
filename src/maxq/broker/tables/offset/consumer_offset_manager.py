"""ConsumerOffsetManager: how far each group has consumed each queue.

    offset_table         {"topic@group": {queue id: next queue offset to consume}}   the file; -1: the group went back
                         from this part of a static topic to an earlier one
    pull_offset_table    … next offset to pull, for tools; in memory
    reset_offset_table   … where an administrator wants the group to go on; taken by the next pull; in the file, too

Source:
    broker/offset/ConsumerOffsetManager.java.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import PurePath
from typing import Any, Final, NamedTuple, TypeVar

from maxq.broker.identity.role import SLAVE
from maxq.broker.tables.offset.offset_table import (
    KeyIndex,
    OffsetTable,
    PageMarks,
    group_topic_map,
    offset_file,
    offset_row,
    read_offset_table,
    split_key,
)
from maxq.broker.tables.offset.operator_changes import NAME as CHANGES_NAME
from maxq.broker.tables.offset.operator_changes import OperatorChanges, of_group
from maxq.broker.tables.offset.slave_commits import FILE_NAME as SLAVE_COMMITS_NAME
from maxq.broker.tables.offset.slave_commits import UNKNOWN_MASTER, SlaveCommit, SlaveCommits
from maxq.broker.tables.persistent_manager import PeriodicManager, next_version, object_member
from maxq.broker.tables.topic.topic_validator import SYSTEM_GROUP_PREFIX
from maxq.config.settings import BrokerSettings
from maxq.errors import RemoteProtocolError
from maxq.protocol.body.data_version import DataVersion
from maxq.runtime.interfaces import Clock, Disk
from maxq.runtime.turns import Turns

log = logging.getLogger(__name__)

FILE_NAME: Final = "consumerOffset.json"

#: On the first page of a slave's offsets: queues, by `topic@group`, in which a group has gone on here at the commit of
#: a client that has not heard of the operators' last change.
UNHEARD: Final = "commitsBeforeChanges"
NOTHING_UNHEARD: Final[Mapping[str, Collection[int]]] = {}
NOTHING_COPIED: Final[Mapping[int, int]] = {}
#: On the first page of a master's offsets: `ConsumerOffsetManager.master_since`.
MASTER_SINCE: Final = "masterSince"
#: On the first page of a slave's offsets: `ConsumerOffsetManager.acts_since`.
ACTS_SINCE: Final = "actsSince"

_HAS_ACTED: Final = "hasActed"
_RESETS: Final = "resets"
_RESETS_AT_START: Final = "resetsAtStart"

_Value = TypeVar("_Value")


class _ResetAtStart(NamedTuple):
    """An operator's reset of a queue that waited for the group when this broker became the master."""

    change: int  # number of the operators' last change of the offset
    master_since: int  # ConsumerOffsetManager.master_since from then on

    @classmethod
    def from_json(cls, value: Any) -> "_ResetAtStart":
        change, master_since = value
        return cls(int(change), int(master_since))


class ConsumerOffsetManager(PeriodicManager):
    """The committed offsets of consumer groups. All calls are on the loop, and a commit is one dict write, so first
    commits of several queues cannot lose one another.

    Attributes:
        owns_offsets: commits here count for the group: True on a master, and on a slave that acts as master, which
            copies no offsets.
        has_acted: of a slave: it has owned the offsets since it last copied its master's.
        slave_commits: on a slave: offsets that clients committed here because they could not reach its master.
        deleted_up_to: offsets of topics that were deleted up to this physical offset are forgotten
            (store/log/deletions.py).
        deletions_since: tells which topics the log says were deleted behind a physical offset.
        when_set: called with key and queue ids when an operator has set their offsets (reset, clone), not when a
            consumer commits; with `@group` and no queue ids when he has removed all offsets of a group.
        also_kept: each returns when something else beside the file that keeps what operators have set is as safe as
            the settings promise; they raise RequestRefusedError if that fails.
        oldest_keys: `topic@group` of the offsets that say what a start reads of a journal in the log. No copy of the
            table may have them newer than the others: they are on the first page, and a slave takes them when it has
            all pages.
        when_begun: called with topic, group, queue id and offset when a member of a new group has said where it begins.
        set_up_to: the table has what operators set in records of a DLedger group's log up to this physical offset,
            and what consumers have committed since; -1: in none.
        master_from: of a master: physical end of its log when it became one. Messages behind it may have the offsets of
            others that it has lost.
        master_since: on a master: time in ms since 1970 at which it became one. No two times are the same.
        acts_since: on a slave that has acted as master in this process: time in ms since 1970 at which it last began; 0
            on other brokers. No two times are the same.
        copied_master_since: of a slave: `master_since` of the master whose offsets it last asked for.
        changes: when operators have last set or removed offsets (operator_changes.py). An offset of such a key from
            another broker of the group counts only if that broker knows of the change.
    """

    def __init__(
        self, disk: Disk, path: PurePath, *, settings: BrokerSettings, clock: Clock, other_path: PurePath | None = None
    ) -> None:
        """`other_path` is read when neither `path` nor its backup exists: then enableLmq was switched, and with it the
        name of the file."""
        super().__init__(disk, path)
        self._other_path = other_path
        self._settings = settings
        self._clock = clock
        self.data_version = DataVersion(timestamp=clock.wall_ms())
        self.offset_table: OffsetTable = {}
        self.owns_offsets = False
        self.has_acted = False
        self._pull_offset_table: OffsetTable = {}
        self._reset_offset_table: OffsetTable = {}
        # key and queue id of resets that must not be in the file when it is written next → offset
        self._ending: dict[tuple[str, int], int] = {}
        # by `topic@group` and queue id; they stay when a pull has taken the reset
        self._resets_at_start: dict[str, dict[int, _ResetAtStart]] = {}
        self.slave_commits = SlaveCommits(disk, path.with_name(SLAVE_COMMITS_NAME))
        self._keys, self._pull_keys = KeyIndex(), KeyIndex()
        self.deleted_up_to = 0
        self._says_deletions = False  # the file that was loaded says up to which deletion its offsets are
        self.deletions_since: Callable[[int], Collection[str]] = lambda physical_offset: ()
        self.when_set: list[Callable[[str, Collection[int]], None]] = []
        self.also_kept: list[Callable[[], Awaitable[None]]] = []
        self.oldest_keys: tuple[str, ...] = ()
        self._oldest: OffsetTable | None = None  # offsets that the first page of the copy under way has said
        self.when_begun: list[Callable[[str, str, int, int], None]] = []
        self.set_up_to = -1
        self.master_from = self.master_since = self.acts_since = 0
        self.copied_master_since = UNKNOWN_MASTER
        self.changes = OperatorChanges()
        self._commits = 0
        self._places = PageMarks()
        self._is_dirty = True

    # --- commit and query ---------------------------------------------------------------------------------------------

    def commit_offset(self, client_host: str, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set the group's offset of a queue. A smaller offset than before is accepted, too, with a warning."""
        key = f"{topic}@{group}"
        table = self.offset_table.get(key)
        if table is None:
            table = self._new_table(key)
        stored = table.get(queue_id)
        table[queue_id] = offset
        if stored is not None and offset < stored:
            log.warning(
                "update consumer offset less than store. clientHost=%s, key=%s, queueId=%d, requestOffset=%d, "
                "storeOffset=%d", client_host, key, queue_id, offset, stored,
            )  # fmt: skip
        self._on_commit()

    def begin(self, client_host: str, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Commit the offset at which a new group begins."""
        self.commit_offset(client_host, group, topic, queue_id, offset)
        for listener in self.when_begun:
            listener(topic, group, queue_id, offset)

    def _table(self, key: str) -> dict[int, int]:
        """Return the offsets of a key by queue id; an empty table if it has none."""
        table = self.offset_table.get(key)
        return self._new_table(key) if table is None else table

    def _new_table(self, key: str) -> dict[int, int]:
        table = self.offset_table[key] = {}
        self._keys.add(key)
        return table

    def _on_commit(self) -> None:
        self._is_dirty = True
        self._commits += 1
        if self._commits % self._settings.broker.consumer_offset_update_version_step == 0:
            self.data_version = next_version(self.data_version, self._clock.wall_ms())

    def commit_pull_offset(self, client_host: str, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Note that everything before `offset` was delivered to the group; tools show it."""
        key = f"{topic}@{group}"
        table = self._pull_offset_table.get(key)
        if table is None:
            table = self._pull_offset_table[key] = {}
            self._pull_keys.add(key)
        table[queue_id] = offset

    def query_offset(self, group: str, topic: str, queue_id: int) -> int:
        """Return the offset at which the group continues: a pending reset, else the committed offset; -1 if there is
        neither."""
        key = f"{topic}@{group}"
        if self._reset_offset_table and self._settings.broker.use_server_side_reset_offset:
            reset = self._reset_offset_table.get(key)
            if reset is not None and queue_id in reset:
                return reset[queue_id]
        table = self.offset_table.get(key)
        return -1 if table is None else table.get(queue_id, -1)

    def query_committed(self, group: str, topic: str, queue_id: int) -> int:
        """Return the committed offset, whether a reset waits or not; -1 if there is none."""
        table = self.offset_table.get(f"{topic}@{group}")
        return -1 if table is None else table.get(queue_id, -1)

    def query_pull_offset(self, group: str, topic: str, queue_id: int) -> int:
        """Return the last offset of `commit_pull_offset`, else the consumed offset; -1 if there is neither."""
        table = self._pull_offset_table.get(f"{topic}@{group}")
        if table is not None and queue_id in table:
            return table[queue_id]
        return self.query_offset(group, topic, queue_id)

    def query_offsets(self, group: str, topic: str) -> dict[int, int]:
        """Return the committed offsets by queue id; empty if there are none."""
        return dict(self.offset_table.get(f"{topic}@{group}", ()))

    # --- reset on the server's side -----------------------------------------------------------------------------------

    def assign_reset_offsets(
        self, topic: str, group: str, offsets: Mapping[int, int], committed: Mapping[int, int] | None = None
    ) -> None:
        """Reset the group's offsets, by queue id, as an operator asks. They, or `committed`, are also committed, for
        groups that are offline."""
        self._reset(topic, group, offsets, offsets if committed is None else committed)
        self.changes.note(f"{topic}@{group}", self._clock.wall_ms())

    def _reset(self, topic: str, group: str, offsets: Mapping[int, int], committed: Mapping[int, int]) -> None:
        key = f"{topic}@{group}"
        self._wait_for_pull(key, offsets)
        self._table(key).update(committed)
        self._on_commit()
        self._was_set(key, tuple(offsets))

    def _wait_for_pull(self, key: str, offsets: Mapping[int, int]) -> None:
        self._reset_offset_table.setdefault(key, {}).update(offsets)
        for queue_id in offsets:
            self._ending.pop((key, queue_id), None)

    def _was_set(self, key: str, queue_ids: Collection[int]) -> None:
        for listener in self.when_set:
            listener(key, queue_ids)

    @property
    def any_reset(self) -> bool:
        """Return whether any operator's reset of an offset waits for the next pull of its queue."""
        return bool(self._reset_offset_table)

    def has_offset_reset(self, topic: str, group: str, queue_id: int) -> bool:
        """Return whether a reset waits for the next pull of this queue."""
        return queue_id in self._reset_offset_table.get(f"{topic}@{group}", ())

    def is_before_reset(self, group: str, topic: str, queue_id: int, change: int, master_since: int) -> bool:
        """Return whether a commit that a slave hands over is older than an operator's reset of which no client had
        heard when this broker became the master, also if a pull has taken the reset since.

        Args:
            change, master_since: as SlaveCommit has them.
        """
        reset = self._resets_at_start.get(f"{topic}@{group}", {}).get(queue_id)
        return reset is not None and change < reset.change and master_since < reset.master_since

    def end_known_reset(self, topic: str, group: str, queue_id: int, change: int) -> None:
        """End the reset that waits for the next pull of this queue if an operator has set the offset and `change` is
        the number of that. The group need not be told: it goes on from there already. A reset of which nothing is
        committed is not the operator's: the topic was deleted."""
        key = f"{topic}@{group}"
        waiting = self._reset_offset_table.get(key, {}).get(queue_id)
        committed = self.query_offsets(group, topic).get(queue_id)
        if waiting is not None and waiting == committed and 0 < change == self.changes.of(key):
            self.query_then_erase_reset_offset(topic, group, queue_id)

    def query_then_erase_reset_offset(self, topic: str, group: str, queue_id: int) -> int | None:
        """Return the waiting reset and remove it, soon also from the file: a start that found it there would have the
        group go back again. None if there is none."""
        offset = self._erase_reset(f"{topic}@{group}", queue_id) if self._reset_offset_table else None
        if offset is not None:
            self._is_dirty = True
            self.request_persist()
        return offset

    async def take_reset(self, topic: str, group: str, queue_id: int, *, can_be_told: Callable[[], bool]) -> int | None:
        """Return the offset of the reset that waits for a group's queue, and remove the reset. Returns when
        consumerOffset.json no longer has it: a consumer that is told of the reset may go on at another broker, and a
        start that found the reset in the file would have the group go back again. If the disk refuses the file, the
        offset is returned all the same.

        Args:
            can_be_told: returns, after the wait, whether the group can be told of the reset; if not, the reset
                continues to wait.

        Returns:
            The offset; None if no reset waits any more, because another pull has taken it, or it cannot be told.
        """
        key = f"{topic}@{group}"
        while (offset := self._reset_offset_table.get(key, {}).get(queue_id)) is not None:
            self._ending[key, queue_id] = offset
            is_told = False
            try:
                await self._write_at_once(key, queue_id)
                is_told = can_be_told()
            finally:
                # False if it was set anew meanwhile, or another pull was told of it
                is_current = self._ending.get((key, queue_id)) == offset
                if is_current:
                    del self._ending[key, queue_id]
                if is_current and not is_told:
                    self._is_dirty = True
                    self.request_persist()
            if not is_told:
                return None
            if is_current:
                return self._erase_reset(key, queue_id)
        return None

    async def _write_at_once(self, key: str, queue_id: int) -> None:
        self._is_dirty = True
        self.request_persist()
        try:
            await self.persisted()
        except OSError as error:
            log.warning("%s queue %d: the group is told where it was set to, and may be told again after a start: the "
                        "file of offsets cannot be written: %s", key, queue_id, error)  # fmt: skip

    def _erase_reset(self, key: str, queue_id: int) -> int | None:
        table = self._reset_offset_table.get(key)
        if table is None:
            return None
        offset = table.pop(queue_id, None)
        if not table:
            del self._reset_offset_table[key]
        return offset

    def _forget_passed_resets(self) -> None:
        """Forget resets of queues in which the group has gone on at another broker: while a reset waits here, what the
        group commits is passed over."""
        for key, resets in list(self._reset_offset_table.items()):
            topic, group = split_key(key)
            offsets = self.query_offsets(group, topic)
            waiting = {
                queue_id: offset
                for queue_id, offset in resets.items()
                if offsets.get(queue_id, -1) in (offset, -1)  # -1: in an earlier part of a static topic
            }
            if waiting:
                self._reset_offset_table[key] = waiting
            else:
                del self._reset_offset_table[key]

    def not_beyond(self, max_offset: Callable[[str, int], int]) -> None:
        """Lower all offsets to the ends of their queues, `max_offset(topic, queue_id)`, before a master accepts
        messages. An offset may lie behind the end because a loss of power took consumed messages, because this was
        the slave of a master that had more, or because this is a member of a DLedger group whose log begins behind
        them. The next messages get the same queue offsets and are new to the group; its consumers, which remember
        the old offset, are told with their next pull."""
        known: dict[str, dict[int, int]] = {}  # topic → queue id → end of the queue
        for key, table in self._all_offsets():
            topic, group = split_key(key)
            ends = known.setdefault(topic, {})
            for queue_id in table:
                if queue_id not in ends:
                    ends[queue_id] = max_offset(topic, queue_id)
            behind = [(queue_id, offset) for queue_id, offset in table.items() if offset > ends[queue_id]]
            for queue_id, offset in behind:
                self.lower(group, topic, queue_id, offset, ends[queue_id])

    def lower(self, group: str, topic: str, queue_id: int, offset: int, end: int) -> None:
        """Have a group go on at the end that a queue had when this broker became the master: it had fewer messages than
        the group has consumed."""
        log.warning(
            "group %s had consumed %s queue %d up to %d, and the queue ended at %d: the later messages are "
            "missing from this store, and the group continues there", group, topic, queue_id, offset, end,
        )  # fmt: skip
        if group.startswith(SYSTEM_GROUP_PREFIX):
            self.commit_offset("start", group, topic, queue_id, end)
        else:
            self._reset(topic, group, {queue_id: end}, {queue_id: end})

    def _all_offsets(self) -> list[tuple[str, Mapping[int, int]]]:
        """Return the committed offsets by queue id of each `topic@group`."""
        return list(self.offset_table.items())

    # --- on a slave ---------------------------------------------------------------------------------------------------

    def of_slave_commits(self, page: dict[str, Any]) -> OffsetTable:
        """Return the part of a page of the master's table about the topics and groups for which clients committed
        offsets here.

        Raises:
            RemoteProtocolError: these are not offsets.
        """
        keys = self.slave_commits.keys()
        return {key: table for key, table in self._read(page).items() if key in keys}

    def note_reader(self, client_host: str, group: str, topic: str, queue_id: int) -> None:
        """Note at a slave that the client at `client_host` was told at which offset the group goes on in a queue."""
        change = self.changes.of(f"{topic}@{group}")
        if change:
            self.slave_commits.note_reader(client_host, group, topic, queue_id, change)

    def unheard(self) -> dict[str, list[int]]:
        """Return, by `topic@group`, the queues whose last commit at this slave is of a client that had not heard of the
        operators' last change."""
        return self.slave_commits.queues_before(self.changes.of)

    def note_unheard(
        self,
        page: dict[str, Any],
        unheard: Mapping[str, Collection[int]],
        queue_end: Callable[[str, int], int],
    ) -> None:
        """Remember, on a slave, the offsets from a page of another slave's table that were committed by clients that
        did not know of the operators' last change. This slave tells its master the same about them, because a reset may
        be waiting there.

        Args:
            unheard: `UNHEARD` of the other slave's first page.
            queue_end: offset of the next message of a queue, `(topic, queue id)`, at this slave.
        """
        if not unheard:
            return
        theirs = self._read(page)
        for key in unheard.keys() & theirs.keys():
            topic, group = split_key(key)
            own = self.query_offsets(group, topic)
            for queue_id in set(unheard[key]) & own.keys():
                offset = own[queue_id]
                if offset == theirs[key].get(queue_id):
                    is_copied = offset <= queue_end(topic, queue_id)
                    self.slave_commits.note(
                        group, topic, queue_id, offset, not_copied_of=0 if is_copied else self.copied_master_since,
                        master_since=self.copied_master_since,
                    )  # fmt: skip

    def ahead_of_master(self, masters: OffsetTable) -> list[SlaveCommit]:
        """Return the commits of clients here that the master lacks.

        Args:
            masters: `of_slave_commits` of all pages of its table.
        """
        return list(self.slave_commits.ahead_of(masters))

    def _read(self, value: dict[str, Any]) -> OffsetTable:
        """Return all offsets in the JSON of another broker's offset table."""
        return read_offset_table(value)

    def begin_copy(self) -> None:
        """Begin to copy the master's table: `take_from_master` for each page, then `took_from_master`."""
        self._oldest = None

    def begin_as_master(self, log_end: int) -> None:
        """Note that this broker becomes the master now, and where its log ends, in bytes."""
        self.master_from = log_end
        self.master_since = max(self._clock.wall_ms(), self.master_since + 1, UNKNOWN_MASTER + 1)
        for key, resets in self._reset_offset_table.items():
            reset = _ResetAtStart(self.changes.of(key), self.master_since)
            self._resets_at_start.setdefault(key, {}).update(dict.fromkeys(resets, reset))
            self._is_dirty = True

    def take_from_master(self, page: dict[str, Any]) -> None:
        """Replace offsets of this table by those of a page of the master's. Offsets that only this table has stay, and
        so do those that clients have committed here and that the master has yet to get.

        Raises:
            RemoteProtocolError: they are not offsets; nothing was changed.
        """
        taken = self._of_living_topics(page)
        oldest = {key: taken.pop(key) for key in self.oldest_keys if key in taken}
        self._oldest = oldest if self._oldest is None else self._oldest
        own = self.slave_commits.table()
        for key in own.keys() & taken.keys():
            _move_on(taken[key], own[key])
        known = self.offset_table
        changed = {key: table for key, table in taken.items() if known.get(key) != table}
        if changed:
            known.update(changed)
            for key in changed:
                self._keys.add(key)
            self._is_dirty = True

    def note_master(self, first_page: dict[str, Any]) -> None:
        """Note at a slave since when the master is one of which a page of the offsets is the first; Java's do not say
        it."""
        since = first_page.get(MASTER_SINCE)
        self.copied_master_since = since if type(since) is int and since > 0 else UNKNOWN_MASTER

    def forget_commits_before_changes(self, first_page: dict[str, Any]) -> None:
        """Forget what clients have committed at this slave for those groups and topics whose offsets an operator has
        set or removed at the master since this table was copied: such a commit is older than the operator's change.

        Args:
            first_page: of the master's table; it names those changes.

        Raises:
            RemoteProtocolError: it names them in a form that cannot be read.
        """
        theirs = OperatorChanges.from_json(first_page)
        if theirs is not None:
            self.slave_commits.forget_keys(theirs.unknown_to(self.changes))

    def has_news_of_operators(self, first_page: dict[str, Any]) -> bool:
        """Return whether operators have set or removed offsets at the master since this table was copied. Raises as
        `forget_commits_before_changes`."""
        theirs = OperatorChanges.from_json(first_page)
        return theirs is not None and any(True for _ in theirs.unknown_to(self.changes))

    def took_from_master(self, first_page: dict[str, Any], named: Collection[str] | None = None) -> None:
        """Note that all pages of the master's table were copied: this table is then as new as the first page says.

        Args:
            named: all keys on the pages; needed only if the first one `has_news_of_operators`. Offsets of groups that
                were removed at the master, and that it does not name, go here, too.

        Raises:
            RemoteProtocolError: it is not a data version.
        """
        theirs = OperatorChanges.from_json(first_page)
        if theirs is not None and named is not None:
            self._follow_removals(theirs, named)
            self.slave_commits.forget_keys(theirs.unknown_to(self.changes))
            self.changes.adopt(theirs)
            self._is_dirty = True
        version = first_page.get("dataVersion")
        if version is not None:
            self.data_version = DataVersion.from_json(version)
        for key, offsets in (self._oldest or {}).items():
            self._table(key).update(offsets)
            self._is_dirty = True
        self._oldest = None
        if self.has_acted:
            self.has_acted, self._is_dirty = False, True
        self._forget_passed_resets()
        self.has_set(_set_up_to(first_page))

    def _follow_removals(self, theirs: OperatorChanges, named: Collection[str]) -> None:
        for name in theirs.unknown_to(self.changes):
            topic, group = split_key(name)
            if not topic:
                self._remove(lambda keys, group=group: [key for key in keys.of_group(group) if key not in named])  # type: ignore[misc]

    def lacks_set(self, page: dict[str, Any]) -> bool:
        """Return whether a page of another broker's table is older than an operator's change that this table has from
        the log."""
        return _set_up_to(page) < self.set_up_to

    def take_set(self, table: Mapping[str, Mapping[int, int]], at: int) -> bool:
        """Apply offsets that operators have set, by `topic@group`, or removed, `@group`, from the record at physical
        offset `at` of a DLedger group's log. Returns whether they were applied; the table may already have them, and
        later commits of consumers."""
        if at <= self.set_up_to:
            return False
        for key, offsets in table.items():
            topic, group = split_key(key)
            if topic:
                self._take_set(key, offsets)
            else:
                self._forget_group(group)
        self.has_set(at)
        return True

    def _take_set(self, key: str, offsets: Mapping[int, int]) -> None:
        self._table(key).update(offsets)
        self._on_commit()

    def has_set(self, at: int) -> None:
        """Note that the table includes all operators' changes in the log up to physical offset `at`."""
        if at > self.set_up_to:
            self.set_up_to, self._is_dirty = at, True

    # --- in a group whose slave acts as master ------------------------------------------------------------------------

    def take_version(self, version: DataVersion) -> None:
        """Continue from data version `version`, because this table now counts for the group, or because another was
        merged into it."""
        self.data_version = version
        self._is_dirty = True

    def begin_to_act(self, version: DataVersion) -> None:
        """Note that this slave's table counts for the group from now on, and continue from data version `version`."""
        self.has_acted = True
        self.acts_since = max(self._clock.wall_ms(), self.acts_since + 1)
        self.take_version(version)

    def take_back_from_slave(
        self,
        value: dict[str, Any],
        known: OperatorChanges | None,
        unheard: Mapping[str, Collection[int]] = NOTHING_UNHEARD,
        copied: OffsetTable | None = None,
    ) -> int:
        """Merge the offsets that a slave (content of its file, or of a page) kept while another broker of its group was
        away into this table: the larger offset of each queue, and the slave's data version. Of two brokers of which one
        has not heard what operators have set or removed last, only the other's offsets count.

        Args:
            known: of which changes by operators the slave knows; None: it does not say (Java's), and counts in any
                case. Call `took_back_from_slave` with them after the last page.
            unheard: `UNHEARD` of the slave's first page. While a reset of such a queue waits here, the group is to go
                back to that.
            copied: offsets that a slave which acts had when it was copied last; those that it has now are put into it.
                Where this table still has such a one, it follows that slave also if the group went back there.

        Returns:
            How many queues moved on.

        Raises:
            RemoteProtocolError: they are not offsets; nothing was changed.
        """
        taken = {
            key: table for key, table in self._of_living_topics(value).items() if not self._is_changed_since(key, known)
        }
        if value.get("dataVersion") is not None:
            self.data_version = DataVersion.from_json(value["dataVersion"])
        self._is_dirty = True
        for key in taken:
            if self._has_missed_change(key, known):
                self._table(key).clear()
            for queue_id in self._reset_offset_table.get(key, {}).keys() & set(unheard.get(key, ())):
                taken[key].pop(queue_id, None)
        last = {} if copied is None else {key: copied.get(key, {}) for key in taken}
        if copied is not None:
            copied.update(taken)
        return sum(_move_on(self._table(key), table, last.get(key, NOTHING_COPIED)) for key, table in taken.items())

    def took_back_from_slave(self, known: OperatorChanges | None, named: Collection[str]) -> None:
        """Note that all pages of a slave's table were merged into this one, which `named` these keys: offsets of groups
        that were removed as far as the slave knows, and that it does not name, go here, too."""
        if known is not None:
            self._follow_removals(known, named)
            self.changes.adopt(known)
            self._is_dirty = True
        self._forget_passed_resets()

    def _is_changed_since(self, key: str, known: OperatorChanges | None) -> bool:
        """Return whether operators have set or removed offsets of this key here, of which a broker that knows the
        changes `known` has not heard."""
        return known is not None and self.changes.tells_more_of(key, known)

    def _has_missed_change(self, key: str, known: OperatorChanges | None) -> bool:
        """Return whether `known` has a change of this key by operators of which this broker has not heard."""
        return known is not None and known.tells_more_of(key, self.changes)

    # --- groups and topics --------------------------------------------------------------------------------------------

    def which_topic_by_consumer(self, group: str) -> set[str]:
        """Return the topics for which the group committed an offset."""
        return set(self._keys.topics.get(group, ()))

    def which_group_by_topic(self, topic: str) -> set[str]:
        """Return the groups that committed an offset of the topic."""
        return set(self._keys.groups.get(topic, ()))

    async def query_min_offset_in_all_group(
        self, topic: str, filter_groups: Iterable[str], min_offset: Callable[[str, int], int]
    ) -> dict[int, int]:
        """Return by queue id the smallest committed offset of all groups except `filter_groups`.

        Offsets of what the store no longer has (below `min_offset(topic, queue_id)`) do not count.
        """
        turns = Turns()
        smallest: dict[int, int] = {}
        for group in self.which_group_by_topic(topic).difference(filter_groups):
            for queue_id, offset in self.query_offsets(group, topic).items():
                if offset >= min_offset(topic, queue_id):
                    smallest[queue_id] = min(offset, smallest.get(queue_id, offset))
            await turns.rest()
        return smallest

    def clone_offset(self, source_group: str, target_group: str, topic: str) -> None:
        """Copy the offsets of `source_group` to `target_group`, also where a reset waits for the target's next pull.
        Does nothing if the source never committed."""
        offsets = self.offset_table.get(f"{topic}@{source_group}")
        if offsets is not None:
            key = f"{topic}@{target_group}"
            self.offset_table[key] = dict(offsets)
            if key in self._reset_offset_table:
                self._reset_offset_table[key] = dict(offsets)
            self._keys.add(key)
            self._on_commit()
            self.changes.note(key, self._clock.wall_ms())
            self._was_set(key, tuple(offsets))

    def remove_offset(self, group: str) -> None:
        """Remove all offsets of a consumer group, as an operator asks."""
        self._forget_group(group)
        key = of_group(group)
        self.changes.note(key, self._clock.wall_ms())
        self._was_set(key, ())

    async def set_is_kept(self) -> None:
        """Return when what operators have set or removed so far outlives this broker. Raises OSError or
        RequestRefusedError if that fails; it counts until the broker ends."""
        self.request_persist()
        await self.persisted()
        for kept in self.also_kept:
            await kept()

    def _forget_group(self, group: str) -> None:
        self._remove(lambda keys: keys.of_group(group))
        for key in [key for key in (*self._reset_offset_table, *self._resets_at_start) if split_key(key)[1] == group]:
            self._forget_resets(key)

    def _forget_resets(self, key: str) -> None:
        self._reset_offset_table.pop(key, None)
        self._resets_at_start.pop(key, None)

    def clean_offset_by_topic(self, topic: str) -> None:
        """Remove the offsets of all groups for a topic."""
        self._remove(lambda keys: keys.of_topic(topic))

    def take_deletion(self, topics: Collection[str], incarnation: int) -> None:
        """Remove the offsets of topics that were deleted at physical offset `incarnation`. Consumers that have pulled
        from them may continue at their old offsets, which may exist in the new topics, too. They are told to continue
        at the beginning, and their commits until then are ignored."""
        # this deletion was handled before: the offsets here belong to the new topics
        if incarnation <= self.deleted_up_to:
            return
        gone = frozenset(topics)
        for topic in gone:
            readers = self._readers_of(topic)
            self.clean_offset_by_topic(topic)
            self._reset_offset_table.update(readers)
            self.slave_commits.forget_topic(topic)
        self.deleted_up_to = incarnation

    def _readers_of(self, topic: str) -> OffsetTable:
        """Return the first offset of each queue that a group has pulled from here, by `topic@group`."""
        if self._settings.store.broker_role == SLAVE:
            return {}
        return {
            key: dict.fromkeys(self._pull_offset_table[key], 0)
            for key in self._pull_keys.of_topic(topic)
            if not split_key(key)[1].startswith(SYSTEM_GROUP_PREFIX)
        }

    def follow_deletions(
        self, deletions_since: Callable[[int], Collection[str]], newest: int, max_offset: Callable[[str, int], int]
    ) -> None:
        """Remove the offsets of topics that were deleted since the table was written; called when the log is loaded.
        Where a table does not say when it was written, as after a Java broker has run on the store, only offsets
        that the new topics cannot have are removed.

        Args:
            deletions_since: see the attribute.
            newest: physical offset of the newest deletion that the log knows.
            max_offset: of a queue.
        """
        self.deletions_since = deletions_since
        if self._says_deletions:
            self.take_deletion(deletions_since(self.deleted_up_to), newest)
            return
        gone = frozenset(deletions_since(0))
        for key, table in self.offset_table.items():
            topic = split_key(key)[0]
            if topic in gone:
                kept = {queue: offset for queue, offset in table.items() if offset <= max_offset(topic, queue)}
                self.offset_table[key] = kept
        self.deleted_up_to, self._is_dirty = newest, True

    def _of_living_topics(self, value: dict[str, Any]) -> OffsetTable:
        """Return the offsets of another broker's table without topics that were deleted since it was made."""
        up_to = _deleted_up_to(value)
        gone = set() if up_to is None else set(self.deletions_since(up_to))
        return {key: table for key, table in read_offset_table(value).items() if split_key(key)[0] not in gone}

    def _remove(self, named: Callable[[KeyIndex], Iterable[str]]) -> None:
        """Remove keys, found by the index of each table: a walk over all keys would take long."""
        for table, index in ((self.offset_table, self._keys), (self._pull_offset_table, self._pull_keys)):
            for key in named(index):
                del table[key]
                index.remove(key)
                if table is self.offset_table:
                    self._places.count_gone()
                self._forget_resets(key)
        self._on_commit()

    # --- the file -----------------------------------------------------------------------------------------------------

    def persist(self) -> None:
        """Write the files that changed since the last call."""
        self.slave_commits.persist()
        super().persist()

    def load(self) -> None:
        """Load the file, its backup, or the file of the other name; and the commits that a slave has yet to give its
        master."""
        super().load()
        self.slave_commits.load()
        if self._settings.store.broker_role != SLAVE:
            self.slave_commits.forget()
        other = self._other_path
        if not self.offset_table and other is not None and self._disk.exists(other):
            log.info("%s is empty or missing: taking over the offsets in %s", self._file, other)
            self.decode(self._disk.read(other))
            self._is_dirty = True

    def encode(self) -> bytes:
        """Encode the tables as Java does, with one line for each key's queues and for each list of topics."""
        return offset_file(self.to_json())

    def rows_from(self, position: int) -> Iterator[tuple[str, bytes]]:
        """Yield the offsets behind the first `position` rows, each with the name of its table in the file, in compact
        JSON. Nothing may change meanwhile."""
        for key, offsets in islice(self.offset_table.items(), position, None):
            yield "offsetTable", offset_row(key, offsets)

    def page(self, mark: str, size: int) -> tuple[dict[str, list[bytes]], str]:
        """Return some rows of the table, of about `size` bytes, by the name of their table, in compact JSON.

        Args:
            mark: what the page before said of this one; empty for the first.

        Returns:
            The rows, and the mark of the next page; empty if there is none. Each row that is in the table all the time
            is on a page; it may be on two.
        """
        position = self._places.position_of(mark)
        rows: dict[str, list[bytes]] = {}
        first = [] if position else [offset_row(key, offsets) for key, offsets in self._oldest_offsets().items()]
        if first:
            rows["offsetTable"] = list(first)
        for name, row in self.rows_from(position):
            if size <= 0:
                return rows, self._places.mark_of(position)
            some = rows.setdefault(name, [])
            if row not in first:
                some.append(row)
            size -= len(row)
            position += 1
        return rows, ""

    def _oldest_offsets(self) -> OffsetTable:
        return {key: dict(self.offset_table[key]) for key in self.oldest_keys if key in self.offset_table}

    def flat_offsets(self) -> dict[str, int]:
        """Return the offsets of groups with one queue per topic, by `topic@group`; none where light queues are off."""
        return {}

    def head(self) -> dict[str, Any]:
        """Return what `to_json` returns with empty tables; the caller inserts their rows one by one."""
        return {"dataVersion": self.data_version.to_json(), "groupTopicMap": {}, "offsetTable": {}} | self._marks()

    def _marks(self) -> dict[str, Any]:
        """Return up to where in the log the table reflects deletions of topics and changes by operators, and whether a
        slave has owned the offsets since its last copy."""
        marks: dict[str, Any] = {"deletions": {"upTo": self.deleted_up_to}} if self.deleted_up_to else {}
        marks |= {"operators": {"upTo": self.set_up_to}} if self.set_up_to >= 0 else {}
        return marks | ({_HAS_ACTED: True} if self.has_acted else {})

    def to_json(self) -> dict[str, Any]:
        marks = self._marks()  # read first: the rows may then be newer than the marks, but not older
        changes = {CHANGES_NAME: numbers} if (numbers := self.changes.to_json()) else {}
        oldest = self._oldest_offsets()
        offsets = {key: dict(table) for key, table in list(self.offset_table.items())} | oldest
        return {
            "dataVersion": self.data_version.to_json(),
            "groupTopicMap": group_topic_map(offsets),
            "offsetTable": offsets,
            **self._kept_resets(),
            **changes,
            **marks,
        }

    def _kept_resets(self) -> dict[str, dict[str, Any]]:
        """Return the resets that no pull has taken, except those of groups that have lost their offsets with a topic:
        who comes later begins as a new one does; and those that waited when this broker became the master. Call it when
        the rows are copied, which may then be older."""
        resets = {key: dict(table) for key, table in list(self._reset_offset_table.items())}
        kept = {
            f"{queue_id}@{key}": offset
            for key, table in resets.items()
            if self.query_offsets(*reversed(split_key(key)))
            for queue_id, offset in table.items()
            if self._ending.get((key, queue_id)) != offset
        }
        at_start = {
            f"{queue_id}@{key}": list(reset)
            for key, table in list(self._resets_at_start.items())
            for queue_id, reset in table.items()
        }
        return ({_RESETS: kept} if kept else {}) | ({_RESETS_AT_START: at_start} if at_start else {})

    def from_json(self, value: dict[str, Any]) -> None:
        self.offset_table = read_offset_table(value)
        takes_resets = self._settings.store.broker_role != SLAVE and self._settings.broker.use_server_side_reset_offset
        self._reset_offset_table = _read_resets(value, _RESETS, int) if takes_resets else {}
        self._resets_at_start = _read_resets(value, _RESETS_AT_START, _ResetAtStart.from_json)
        self._keys = KeyIndex(self.offset_table)
        self._places = PageMarks()
        up_to = _deleted_up_to(value)
        self._says_deletions, self.deleted_up_to = up_to is not None, up_to or 0
        self.set_up_to = _set_up_to(value)
        self.has_acted = tells_of_acting(value)
        self.changes = OperatorChanges.from_json(value) or OperatorChanges()
        if value.get("dataVersion") is not None:
            self.data_version = DataVersion.from_json(value["dataVersion"])
        self._is_dirty = False


def tells_of_acting(value: Mapping[str, Any]) -> bool:
    """Return whether a table of offsets, or a page of it, is that of a slave that has owned the offsets since it last
    copied its master's. RocketMQ's slaves do not say."""
    return value.get(_HAS_ACTED) is True


def _read_resets(value: dict[str, Any], member: str, read: Callable[[Any], _Value]) -> dict[str, dict[int, _Value]]:
    """Read what a member of a stored table says of resets, by `queue@topic@group`."""
    table: dict[str, dict[int, _Value]] = {}
    for name, reset in object_member(value, member).items():
        queue_id, _, key = name.partition("@")
        try:
            table.setdefault(key, {})[int(queue_id)] = read(reset)
        except (TypeError, ValueError):
            raise RemoteProtocolError(f"{member} are numbers by queue@topic@group, not {name}: {reset!r:.80}") from None
    return table


def _deleted_up_to(value: dict[str, Any]) -> int | None:
    """Read `deleted_up_to` of a table; None if it is missing, because a Java broker wrote the table or nothing was
    deleted before."""
    return _mark(value, "deletions")


def _set_up_to(value: dict[str, Any]) -> int:
    """Return the physical offset below which a stored table has the operators' changes of offsets; -1 if it does not
    say."""
    up_to = _mark(value, "operators")
    return -1 if up_to is None else up_to


def _mark(value: dict[str, Any], name: str) -> int | None:
    mark = value.get(name)
    up_to = mark.get("upTo") if isinstance(mark, dict) else None
    return up_to if isinstance(up_to, int) else None


def _move_on(table: dict[int, int], other: dict[int, int], copied: Mapping[int, int] = NOTHING_COPIED) -> int:
    """Take the larger offset of each queue of `other`, and any where the table has the one of `copied`; returns how
    many that changed."""
    changed = {
        queue_id: offset
        for queue_id, offset in other.items()
        if offset > (own := table.get(queue_id, -1)) or (offset != own and own == copied.get(queue_id))
    }
    table.update(changed)
    return len(changed)
