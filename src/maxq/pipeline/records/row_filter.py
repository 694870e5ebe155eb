"""Conditions of a query that a reader can decide on the scanner's table, before anything is made into columns."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np

from maxq.arrow.schemas import MESSAGE_COLUMNS
from maxq.pipeline.records import places_cy
from maxq.pipeline.records.record_batches import INTEGERS, TIMESTAMPS, Rows, microseconds
from maxq.store.log import record_cy as rc

_COLUMNS: Final = INTEGERS | TIMESTAMPS
_NULLABLE: Final = ("tags", "uniqKey")
_COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": np.equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """`column operator values`, where operator is =, <, <=, >, >= (one value), in (several) or notnull (none)."""

    column: str
    operator: str
    values: tuple[Any, ...]


def can_decide(condition: Condition) -> bool:
    """Return whether a RowFilter decides this condition exactly."""
    if condition.operator == "notnull":
        return condition.column in MESSAGE_COLUMNS and condition.column not in _NULLABLE
    if condition.column == "topic":
        return condition.operator in ("=", "in") and all(isinstance(value, str) for value in condition.values)
    if condition.column not in _COLUMNS or (condition.operator != "in" and condition.operator not in _COMPARISONS):
        return False
    if condition.column in TIMESTAMPS:
        return all(isinstance(value, datetime) and value.tzinfo is not None for value in condition.values)
    return all(isinstance(value, int) and not isinstance(value, bool) for value in condition.values)


@dataclass
class RowFilter:
    """A conjunction of `conditions`, for each of which `can_decide` is true."""

    conditions: tuple[Condition, ...] = ()
    topics: frozenset[str] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        for condition in self.conditions:
            if condition.column == "topic" and condition.values:
                asked = frozenset(condition.values)
                self.topics = asked if self.topics is None else self.topics & asked

    def select(self, view: memoryview, rows: Rows) -> Rows:
        """Return those of `rows` that match all conditions."""
        for condition in self.conditions:
            if not len(rows):
                break
            if condition.column != "topic" and condition.values:
                rows = rows[self._mask(condition, rows)]
        if self.topics is not None and len(rows):
            rows = rows[topic_numbers(view, rows, self.topics) >= 0]
        return rows

    def _mask(self, condition: Condition, rows: Rows) -> Any:
        column = rows[:, _COLUMNS[condition.column]]
        values: Iterable[Any] = condition.values
        if condition.column in TIMESTAMPS:
            column = microseconds(column)
            values = [_microseconds(value) for value in values]
        if condition.operator == "in":
            return np.isin(column, np.array(list(values), np.int64))
        (value,) = values
        return _COMPARISONS[condition.operator](column, value)


def topic_numbers(view: memoryview, rows: Rows, topics: Iterable[str]) -> Rows:
    """Return for each row the position of its topic in `topics`; -1 if it is none of them."""
    found = np.empty(len(rows), np.int64)
    numbers = {topic.encode(): number for number, topic in enumerate(topics)}
    table = np.ascontiguousarray(rows).reshape(-1)
    places_cy.text_numbers(view, table, rc.SCAN_WIDTH, rc.C_TOPIC_POSITION, len(rows), numbers, found)
    return found


@dataclass(frozen=True, slots=True)
class Removed:
    """Messages that a log still has and no reader of their broker gets.

    Attributes:
        deletions: topic → physical offset of the record that deleted it last; earlier messages of it are gone.
        purged: (topic, queue id) → first queue offset that purgeTopic has left.
    """

    deletions: Mapping[str, int] = field(default_factory=dict)
    purged: Mapping[tuple[str, int], int] = field(default_factory=dict)

    def has(self, message: tuple[str, int, int], physical_offset: int) -> bool:
        """Return whether a message (topic, queue id, queue offset) is one of them."""
        topic, queue_id, queue_offset = message
        return physical_offset < self.deletions.get(topic, -1) or queue_offset < self.purged.get((topic, queue_id), 0)

    def without(self, view: memoryview, rows: Rows) -> Rows:
        """Return the rows except those of these messages."""
        topics = sorted({*self.deletions, *(topic for topic, _ in self.purged)})
        if not topics or not len(rows):
            return rows
        numbers = topic_numbers(view, rows, topics)
        ends = np.array([*(self.deletions.get(topic, -1) for topic in topics), -1], np.int64)  # -1: of other topics
        kept = rows[:, rc.C_PHYSICAL_OFFSET] >= ends[numbers]
        for (topic, queue_id), first in self.purged.items():
            of_queue = (numbers == topics.index(topic)) & (rows[:, rc.C_QUEUE_ID] == queue_id)
            kept &= ~of_queue | (rows[:, rc.C_QUEUE_OFFSET] >= first)
        found: Rows = rows[kept]
        return found


def with_tags(view: memoryview, rows: Rows, tags: Iterable[str]) -> Rows:
    """Return the rows that have one of `tags`."""
    count = len(rows)
    places = np.empty(count * 2, np.int64)
    places_cy.find_tags(view, np.ascontiguousarray(rows).reshape(-1), count, places)
    found = np.empty(count, np.int64)
    places_cy.text_numbers(view, places, 2, 0, count, {tag.encode(): 0 for tag in tags}, found)
    chosen: Rows = rows[found == 0]
    return chosen


def _microseconds(value: datetime) -> int:
    span = value - datetime(1970, 1, 1, tzinfo=UTC)
    return (span.days * 86_400 + span.seconds) * 1_000_000 + span.microseconds
