"""Conditions of a query → what a batch is planned by.

Every condition stays with Spark as well, so one that means more than is understood here costs only bytes; but no row
that Spark would take may be left out. So brokers are only given conditions that they compare as Spark does: brokers
strip blanks from tags, and compare hashes of the rest.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from maxq.pipeline.options.predicate import ArrayContains
from maxq.pipeline.source.batch_source import Conditions
from maxq.pipeline.wire.pulls import SelectionHint

_SETS: Final = {"topic": "topics", "brokerName": "brokers", "queueId": "queue_ids"}
_BOUNDS: Final = {
    "queueOffset": ("first_offset", "end_offset"),
    "storeTimestamp": ("first_time", "end_time"),
}
#: Largest step back, in ms, that is expected in the store times of a queue. They ascend unless a broker's clock is set
#: back, or a master takes over whose clock is behind; after larger steps, read by offsets.
CLOCKS_APART_MS: Final = 60_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_REPLACED: Final = "\ufffd"  # stands for bytes that are no UTF-8, which brokers compare as they are


def conditions_of(filters: Sequence[Filter], *, with_hint: bool) -> Conditions:
    """Return conditions that hold for every row that meets all `filters`.

    Args:
        with_hint: may brokers be asked to select by tags and keys?
    """
    found = Conditions(hint=_hint(filters) if with_hint else None)
    for one in filters:
        found = _narrowed(found, one)
    return found


def _column(one: Filter) -> str:
    path: tuple[str, ...] = getattr(one, "attribute", ())
    return str(path[0]) if len(path) == 1 else ""


def _values(one: Filter) -> Sequence[Any] | None:
    if isinstance(one, EqualTo):
        return (one.value,)
    return one.value if isinstance(one, In) else None


def _narrowed(found: Conditions, one: Filter) -> Conditions:
    """Return `found` narrowed by this filter, as far as it is understood."""
    column = _column(one)
    if column in _SETS:
        values, name = _values(one), _SETS[column]
        if values is None or any(value is None for value in values):
            return found
        before, wanted = getattr(found, name), frozenset(values)
        changes: dict[str, Any] = {name: wanted if before is None else before & wanted}
        return replace(found, **changes)
    bounds = _range(one, column) if column in _BOUNDS else None
    if bounds is None:
        return found
    first_name, end_name = _BOUNDS[column]
    (first, end), (first_before, end_before) = bounds, (getattr(found, first_name), getattr(found, end_name))
    both: dict[str, Any] = {
        first_name: max((mark for mark in (first, first_before) if mark is not None), default=None),
        end_name: min((mark for mark in (end, end_before) if mark is not None), default=None),
    }
    return replace(found, **both)


def _range(one: Filter, column: str) -> tuple[int | None, int | None] | None:
    """Return the first number that may match, and one past the last."""
    values = _values(one)
    if values is None:
        values = [one.value] if isinstance(one, (GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)) else []
    numbers = [number for value in values if (number := _number(value, column)) is not None]
    if not numbers or len(numbers) < len(values):
        return None
    first, end = min(numbers), max(numbers) + 1
    if column == "storeTimestamp":
        first, end = max(0, first - CLOCKS_APART_MS), end + CLOCKS_APART_MS
    elif isinstance(one, GreaterThan):
        first += 1
    elif isinstance(one, LessThan):
        end -= 1
    if isinstance(one, (GreaterThan, GreaterThanOrEqual)):
        return first, None
    return (None, end) if isinstance(one, (LessThan, LessThanOrEqual)) else (first, end)


def _number(value: Any, column: str) -> int | None:
    """Return the offset; or the millisecond that contains the time, because whole milliseconds are stored."""
    if column == "queueOffset":
        return value if type(value) is int else None
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // timedelta(milliseconds=1)


def _hint(filters: Iterable[Filter]) -> SelectionHint | None:
    """Return a selection that every wanted message passes; others may pass, too. It uses tags alone where there are no
    keys, because any broker can select by tags."""
    tags = [one for one in filters if _column(one) == "tags" and _texts(_values(one))]
    keys = [key for one in filters if isinstance(one, ArrayContains) and _texts([key := one.value])]
    if not keys:
        values = _values(tags[0]) if tags else None
        if values is None or any("|" in tag or "*" in tag or not _is_whole(tag) for tag in values):
            return None
        return SelectionHint("TAG", " || ".join(values))
    parts = [f"KEYS CONTAINS {_quoted(key)}" for key in keys]
    parts += [f"TAGS IN ({', '.join(_quoted(tag) for tag in _values(one) or ())})" for one in tags]
    return SelectionHint("SQL92", " AND ".join(parts))


def _texts(values: Sequence[Any] | None) -> bool:
    """Return whether the values are texts, none of them empty, that brokers compare as Spark does."""
    return bool(values) and all(type(one) is str and one and _REPLACED not in one for one in values or ())


def _is_whole(tag: str) -> bool:
    """Return whether the text has no blanks at its ends that either side would strip. Java's trim strips control
    characters, Python's strip other blanks of Unicode."""
    return tag == tag.strip() and tag[0] > " " and tag[-1] > " "


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
