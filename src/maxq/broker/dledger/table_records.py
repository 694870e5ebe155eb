"""TableRecords: the tables of a DLedger group as records of its log.

A member that is elected has all that was committed. So it has all topics, groups, static mappings and request modes
whose making was acknowledged, and the offsets that operators have set (reset, clone): each change of these tables is a
record of `TABLES_TOPIC` (transaction type ROLLBACK, which every broker's dispatch leaves out of queues and index), and
the change is acknowledged when the record is committed. A topic that a message makes is in the log before that message.

A leader writes all rows when it begins, and again in each file of the log, so that no cleaning of the log takes the
last record of a row; between them it writes what changes. Members take the rows when the record is dispatched, after a
restart again. The store waits for the tables before it notes how far it has dispatched. A Java broker passes the
records over; a Java leader writes none, and slaves ask it for its tables as ever (SlaveSynchronize). They ask no other
one: the broker that they take for the leader may have ended, and be back with tables that lack the end of the log.

Body: JSON, compressed with zlib. `whole`: are these all rows? `topics`, `groups`: version, rows by name, names that
are gone. `forbidden`, `mappings`, `modes`: each is a whole table, and is absent if that table has not changed since the
record before. `offsets`, where operators have set some since: by `topic@group` the offsets of queues, and `@group`
without any where all of the group were removed. Offsets that consumers commit are not in the log: consumers that live
commit again. `deletedTopics`, only in a record of all rows: the content of deletions.json, for members whose log begins
behind the records that deleted topics.
"""

import json
import logging
import zlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, TypeVar

from maxq.broker.processors.acknowledgement import Acknowledgement
from maxq.broker.slave.slave_synchronize import SlaveTables
from maxq.broker.tables.offset.offset_table import split_key
from maxq.codes import ResponseCode
from maxq.errors import MaxQError
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.body.subscription import SubscriptionGroupConfig
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.json.json_body import JsonBody
from maxq.protocol.message.message import MessageExt
from maxq.runtime.periodic import PeriodicTasks
from maxq.store.message_store import MessageStore

log: Final = logging.getLogger(__name__)

#: Seconds between two looks whether all rows are in the newest file of the log.
_LOOK: Final = 5.0

_Row = TypeVar("_Row", bound=JsonBody)


class TableRecords:
    """Keeps the records of tables for one member. It is made with the broker; call `start` on the loop when the store
    is loaded."""

    def __init__(self, store: MessageStore, acknowledgement: Acknowledgement, tables: SlaveTables) -> None:
        self._store = store
        self._acknowledgement = acknowledgement
        self._tables = tables
        self._tasks = PeriodicTasks()
        # records that were dispatched, on another thread, while the store was being loaded
        self._waiting: list[MessageExt] | None = []
        self._term = -1  # the last term in which this member was leader and wrote all rows
        self._began = -1  # physical offset of its first record in that term
        self._end = -1  # physical offset behind its last record in that term
        self._file = -1  # physical offset at which the log file begins into which it last wrote all rows
        self._is_unsaid = True
        self._topics: dict[str, TopicConfig] = {}  # topics as they were last written to the log
        self._groups: dict[str, SubscriptionGroupConfig] = {}
        self._forbidden: dict[str, dict[str, int]] = {}
        self._mappings: Mapping[str, object] = {}
        self._modes: dict[str, Any] = {}
        self._set_offsets: dict[str, set[int]] = {}  # queues whose offsets operators have set since then
        self._took_offsets = False  # such offsets were read from the log and are not in the file yet

    def start(self) -> None:
        """Apply the records read while the store was loaded, and start."""
        offsets = self._tables.offsets
        log_end = self._store.commit_log.max_offset  # a loss of power may have taken what lay behind it
        offsets.set_up_to = min(offsets.set_up_to, log_end - 1)
        waiting, self._waiting = self._waiting, None
        for message in waiting or ():
            self.dispatched(message)
        self._tasks.every("tables in the log", _LOOK, self.write)

    async def stop(self) -> None:
        """Stop writing; records that are dispatched later are still applied."""
        await self._tasks.stop()

    # --- a leader -----------------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Write changes of the tables to the log. Does nothing on a member that does not lead."""
        term = self._store.leading_term
        if term < 0 or self._waiting is not None or self._acknowledgement.refusal() is not None:
            return
        whole = term != self._term or self._file != self._store.newest_file
        if not whole and not self._is_unsaid:
            return
        result = self._store.put_tables(self._encode(whole))
        if not result.ok:
            log.info("the tables cannot be written to the log now: %s", result.remark or result.status.name)
            return
        if term != self._term:
            self._began = result.physical_offset
        if whole:
            self._file = self._store.newest_file
        self._term, self._end, self._is_unsaid = term, result.end_offset, False
        self._remember()

    async def are_safe(self) -> bool:
        """Returns whether the present content of the tables is committed; False if that cannot be known."""
        self.write()
        if self._is_unsaid or self._term != self._store.leading_term:
            return False
        outcome = self._acknowledgement.outcome(self._end)
        return outcome is None or await outcome is ResponseCode.SUCCESS

    def table_changed(self) -> None:
        """Write changes of a table to the log, on the member that leads."""
        self._is_unsaid = True
        self.write()

    def offsets_set(self, key: str, queue_ids: Collection[int]) -> None:
        """Note the queues for the next record, so that offsets set one queue at a time do not make a record each."""
        self._set_offsets[key] = self._set_offsets.pop(key, set()) | set(queue_ids)  # in the order of the last changes
        self._is_unsaid = True

    def _offsets_now(self) -> dict[str, dict[int, int]]:
        """Return this member's present offsets of the noted queues. If this member did not lead when they were set, or
        could not write, the groups may have committed more since."""
        found: dict[str, dict[int, int]] = {}
        for key, queue_ids in self._set_offsets.items():
            topic, group = split_key(key)
            if not topic:
                found[key] = {}
                continue
            offsets = self._tables.offsets.query_offsets(group, topic)
            if there := {queue_id: offsets[queue_id] for queue_id in queue_ids if queue_id in offsets}:
                found[key] = there
        return found

    def _encode(self, whole: bool) -> bytes:
        tables = self._tables
        topics, groups = tables.topics, tables.groups
        known_topics: Mapping[str, TopicConfig] = {} if whole else self._topics
        known_groups: Mapping[str, SubscriptionGroupConfig] = {} if whole else self._groups
        said: dict[str, Any] = {
            "whole": whole,
            "topics": _part(topics.data_version, topics.topic_config_table, known_topics),
            "groups": _part(groups.data_version, groups.subscription_group_table, known_groups),
        }
        if whole or groups.forbidden_table != self._forbidden:
            said["forbidden"] = groups.forbidden_table
        if whole or tables.mappings.table != self._mappings:
            said["mappings"] = tables.mappings.to_json()
        if whole:
            said["deletedTopics"] = tables.deletions.to_json()
        modes = tables.request_modes.to_json()
        if whole or modes != self._modes:
            said["modes"] = modes
        if offsets := self._offsets_now():
            said["offsets"] = offsets
        return zlib.compress(json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode(), 1)

    def _remember(self) -> None:
        """Keep a copy of the tables as the log has them, to find later changes."""
        tables = self._tables
        self._topics = dict(tables.topics.topic_config_table)
        self._groups = dict(tables.groups.subscription_group_table)
        self._forbidden = dict(tables.groups.forbidden_table)
        self._mappings = dict(tables.mappings.table)
        self._modes = tables.request_modes.to_json()
        self._set_offsets = {}

    # --- all members --------------------------------------------------------------------------------------------------

    def dispatched(self, message: MessageExt) -> None:
        """Apply a committed record of the tables. A leader ignores its own records: they repeat changes that its tables
        have already, and may be older."""
        if self._waiting is not None:
            self._waiting.append(message)
            return
        leading = self._store.leading_term
        if leading >= 0 and leading == self._term and message.physical_offset >= self._began:
            self._tables.offsets.has_set(message.physical_offset)
            return
        try:
            self._take(json.loads(zlib.decompress(message.body)), message.physical_offset)
        except (ValueError, zlib.error, KeyError, TypeError, AttributeError, MaxQError) as error:
            log.error("the record of tables at physical offset %d cannot be read: %r", message.physical_offset, error)

    def _take(self, said: dict[str, Any], at: int) -> None:
        tables = self._tables
        if "deletedTopics" in said and tables.deletions.unknown_before:
            tables.adopt_deletions(said["deletedTopics"])
        topics = _rows(said["topics"], TopicConfig)
        groups = _rows(said["groups"], SubscriptionGroupConfig)
        if "mappings" in said:
            found = said["mappings"]
            version = DataVersion.from_json(found["dataVersion"])
            tables.mappings.take_from_master(found["topicQueueMappingInfoMap"], version)
        version = DataVersion.from_json(said["topics"]["version"])
        gone = said["topics"]["gone"]
        if said["whole"]:
            tables.topics.take_from_master(topics, version)
        elif topics or gone or version != tables.topics.data_version:
            tables.topics.take_rows(topics, gone, version)
        version = DataVersion.from_json(said["groups"]["version"])
        gone = said["groups"]["gone"]
        forbidden = said.get("forbidden", tables.groups.forbidden_table)
        if said["whole"]:
            tables.groups.take_from_master(groups, forbidden, version)
        elif groups or gone or "forbidden" in said or version != tables.groups.data_version:
            tables.groups.take_rows(groups, gone, forbidden, version)
        if "modes" in said:
            tables.request_modes.take_from_master(said["modes"])
        living = {
            key: {int(queue): int(offset) for queue, offset in offsets.items()}
            for key, offsets in said.get("offsets", {}).items()
            if not self._store.is_gone(split_key(key)[0], at)
        }
        if living and tables.offsets.take_set(living, at):
            self._took_offsets = True

    def persist(self) -> None:
        """Make all applied records durable. Blocks."""
        tables = self._tables
        for table in (tables.mappings, tables.topics, tables.groups, tables.request_modes):
            table.persist_changes()
        if self._took_offsets:
            self._took_offsets = False
            try:
                tables.offsets.persist()
            except BaseException:
                self._took_offsets = True
                raise


def _part(version: DataVersion, table: Mapping[str, _Row], known: Mapping[str, _Row]) -> dict[str, Any]:
    """Returns the rows that changed. Rows are replaced, never mutated, so an identical object is unchanged."""
    return {
        "version": version.to_json(),
        "rows": {name: row.to_json() for name, row in table.items() if known.get(name) is not row},
        "gone": _gone(known, table),
    }


def _gone(known: Iterable[str], table: Mapping[str, object]) -> list[str]:
    return [name for name in known if name not in table]


def _rows(part: Mapping[str, Any], kind: type[_Row]) -> dict[str, _Row]:
    return {name: kind.from_json(row) for name, row in part["rows"].items()}
