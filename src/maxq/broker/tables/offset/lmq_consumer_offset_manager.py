"""LmqConsumerOffsetManager: offsets where light message queues are on (enableLmq).

A group that is itself named `%LMQ%…` has one queue per topic, so its offsets are kept flat, in `lmqOffsetTable`.

Source:
    broker/offset/LmqConsumerOffsetManager.java.
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from pathlib import PurePath
from typing import Any, Final

from maxq.broker.tables.offset.consumer_offset_manager import FILE_NAME, NOTHING_UNHEARD, ConsumerOffsetManager
from maxq.broker.tables.offset.offset_table import OffsetTable, flat_row, split_key
from maxq.broker.tables.offset.operator_changes import OperatorChanges
from maxq.broker.tables.topic.topic_validator import is_lmq
from maxq.config.settings import BrokerSettings
from maxq.errors import RemoteProtocolError
from maxq.runtime.interfaces import Clock, Disk

LMQ_FILE_NAME: Final = "lmqConsumerOffset.json"


class LmqConsumerOffsetManager(ConsumerOffsetManager):
    """ConsumerOffsetManager with the flat table for LMQ groups."""

    def __init__(
        self, disk: Disk, path: PurePath, *, settings: BrokerSettings, clock: Clock, other_path: PurePath | None = None
    ) -> None:
        super().__init__(disk, path, settings=settings, clock=clock, other_path=other_path)
        self.lmq_offset_table: dict[str, int] = {}  # "topic@group" → offset of queue 0

    def commit_offset(self, client_host: str, group: str, topic: str, queue_id: int, offset: int) -> None:
        if not is_lmq(group):
            super().commit_offset(client_host, group, topic, queue_id, offset)
            return
        self.lmq_offset_table[f"{topic}@{group}"] = offset
        self._on_commit()

    def query_offset(self, group: str, topic: str, queue_id: int) -> int:
        if not is_lmq(group):
            return super().query_offset(group, topic, queue_id)
        return self.lmq_offset_table.get(f"{topic}@{group}", -1)

    def query_committed(self, group: str, topic: str, queue_id: int) -> int:
        if not is_lmq(group):
            return super().query_committed(group, topic, queue_id)
        return self.lmq_offset_table.get(f"{topic}@{group}", -1)

    def query_offsets(self, group: str, topic: str) -> dict[int, int]:
        if not is_lmq(group):
            return super().query_offsets(group, topic)
        offset = self.lmq_offset_table.get(f"{topic}@{group}")
        return {} if offset is None else {0: offset}

    def _reset(self, topic: str, group: str, offsets: Mapping[int, int], committed: Mapping[int, int]) -> None:
        if not is_lmq(group):
            super()._reset(topic, group, offsets, committed)
            return
        key = f"{topic}@{group}"
        self._wait_for_pull(key, offsets)
        self.lmq_offset_table[key] = next(iter(committed.values()))  # such a group has one queue of each topic
        self._on_commit()
        self._was_set(key, tuple(offsets))

    def _take_set(self, key: str, offsets: Mapping[int, int]) -> None:
        if not is_lmq(split_key(key)[1]):
            super()._take_set(key, offsets)
            return
        self.lmq_offset_table[key] = next(iter(offsets.values()))  # such a group has one queue of each topic
        self._on_commit()

    def _all_offsets(self) -> list[tuple[str, Mapping[int, int]]]:
        return [*super()._all_offsets(), *((key, {0: offset}) for key, offset in self.lmq_offset_table.items())]

    def _read(self, value: dict[str, Any]) -> OffsetTable:
        return super()._read(value) | {key: {0: offset} for key, offset in _flat_offsets(value).items()}

    def take_from_master(self, page: dict[str, Any]) -> None:
        taken = _flat_offsets(page)
        super().take_from_master(page)
        own = self.slave_commits.table()
        for key in own.keys() & taken.keys():
            taken[key] = max(taken[key], *own[key].values())
        if any(self.lmq_offset_table.get(key) != offset for key, offset in taken.items()):
            self.lmq_offset_table.update(taken)
            self._is_dirty = True

    def take_back_from_slave(
        self,
        value: dict[str, Any],
        known: OperatorChanges | None,
        unheard: Mapping[str, Collection[int]] = NOTHING_UNHEARD,
        copied: OffsetTable | None = None,
    ) -> int:
        taken = {
            key: offset for key, offset in _flat_offsets(value).items()
            if key not in unheard or key not in self._reset_offset_table
        }  # fmt: skip
        moved = super().take_back_from_slave(value, known, unheard, copied)
        ahead = {
            key: offset for key, offset in taken.items()
            if self._has_missed_change(key, known)
            or (self._follows(key, offset, copied) and not self._is_changed_since(key, known))
        }  # fmt: skip
        self.lmq_offset_table.update(ahead)
        if copied is not None:
            copied.update((key, {0: offset}) for key, offset in taken.items())
        return moved + len(ahead)

    def _follows(self, key: str, offset: int, copied: OffsetTable | None) -> bool:
        """Return whether another broker's offset is larger than the one here, or the one here was `copied` from that
        broker."""
        own = self.lmq_offset_table.get(key, -1)
        return offset > own or (copied is not None and offset != own and copied.get(key, {}).get(0) == own)

    def _forget_group(self, group: str) -> None:
        self._remove_flat([key for key in self.lmq_offset_table if split_key(key)[1] == group])
        super()._forget_group(group)

    def _follow_removals(self, theirs: OperatorChanges, named: Collection[str]) -> None:
        gone = {split_key(name)[1] for name in theirs.unknown_to(self.changes) if not split_key(name)[0]}
        self._remove_flat([key for key in self.lmq_offset_table if split_key(key)[1] in gone and key not in named])
        super()._follow_removals(theirs, named)

    def clean_offset_by_topic(self, topic: str) -> None:
        self._remove_flat([key for key in self.lmq_offset_table if split_key(key)[0] == topic])
        super().clean_offset_by_topic(topic)

    def _remove_flat(self, keys: list[str]) -> None:
        for key in keys:
            del self.lmq_offset_table[key]
            self._places.count_gone()
            self._forget_resets(key)

    def head(self) -> dict[str, Any]:
        return {**super().head(), "lmqOffsetTable": {}}

    def flat_offsets(self) -> dict[str, int]:
        return self.lmq_offset_table

    def rows_from(self, position: int) -> Iterator[tuple[str, bytes]]:
        yield from super().rows_from(position)
        for key, offset in islice(self.lmq_offset_table.items(), max(position - len(self.offset_table), 0), None):
            yield "lmqOffsetTable", flat_row(key, offset)

    def to_json(self) -> dict[str, Any]:
        value = super().to_json()
        offsets = value.pop("offsetTable")
        return {**value, "lmqOffsetTable": dict(self.lmq_offset_table), "offsetTable": offsets}

    def from_json(self, value: dict[str, Any]) -> None:
        self.lmq_offset_table = _flat_offsets(value)
        super().from_json(value)


def _flat_offsets(value: dict[str, Any]) -> dict[str, int]:
    table = value.get("lmqOffsetTable") or {}
    try:
        return {str(key): int(offset) for key, offset in table.items()}
    except (AttributeError, TypeError, ValueError):
        raise RemoteProtocolError(f"lmqOffsetTable is numbers by topic@group, not {table!r:.80}") from None


def create_consumer_offset_manager(
    disk: Disk, config_dir: PurePath, *, settings: BrokerSettings, clock: Clock
) -> ConsumerOffsetManager:
    """Make the manager that enableLmq asks for. Java loses all offsets when that setting is switched; here they are
    read from the file of the other name."""
    plain, lmq = config_dir / FILE_NAME, config_dir / LMQ_FILE_NAME
    if settings.store.enable_lmq:
        return LmqConsumerOffsetManager(disk, lmq, settings=settings, clock=clock, other_path=plain)
    return ConsumerOffsetManager(disk, plain, settings=settings, clock=clock, other_path=lmq)
