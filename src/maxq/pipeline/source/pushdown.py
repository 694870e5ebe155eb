"""Filters → conditions that a batch is planned by.

Every filter is left to Spark as well, unless it is exact here, so a filter that means more than is understood costs
only bytes. Store times ascend along a queue as long as the broker's clock is not set back; who does not want to rely on
that reads by offsets.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
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
from maxq.pipeline.wire.pulls import Hint

_SETS: Final = {"topic": "topics", "brokerName": "brokers", "queueId": "queue_ids"}
_BOUNDS: Final = {
    "queueOffset": ("first_offset", "end_offset"),
    "storeTimestamp": ("first_time", "end_time"),
}


def conditions_of(filters: Sequence[Filter], *, with_hint: bool) -> tuple[Conditions, list[Filter]]:
    """What can be decided before reading.

    Args:
        with_hint: may brokers be asked to select by tags and keys?

    Returns:
        Conditions that every wanted row meets; the filters that Spark must still apply.
    """
    found = Conditions()
    left: list[Filter] = []
    for one in filters:
        narrowed = _narrowed(found, one)
        if narrowed is not None:
            found = narrowed
        if narrowed is None or _column(one) == "storeTimestamp":
            left.append(one)
    return replace(found, hint=_hint(filters) if with_hint else None), left


def _column(one: Filter) -> str:
    path: tuple[str, ...] = getattr(one, "attribute", ())
    return str(path[0]) if len(path) == 1 else ""


def _values(one: Filter) -> Sequence[Any] | None:
    if isinstance(one, EqualTo):
        return (one.value,)
    return one.value if isinstance(one, In) else None


def _narrowed(found: Conditions, one: Filter) -> Conditions | None:
    """`found` and this filter; None if it says nothing that is decided here."""
    column = _column(one)
    if column in _SETS:
        values, name = _values(one), _SETS[column]
        if values is None or any(value is None for value in values):
            return None
        before, wanted = getattr(found, name), frozenset(values)
        changes: dict[str, Any] = {name: wanted if before is None else before & wanted}
        return replace(found, **changes)
    if column not in _BOUNDS:
        return None
    bounds = _range(one, column)
    if bounds is None:
        return None
    first_name, end_name = _BOUNDS[column]
    (first, end), (first_before, end_before) = bounds, (getattr(found, first_name), getattr(found, end_name))
    both: dict[str, Any] = {
        first_name: max((mark for mark in (first, first_before) if mark is not None), default=None),
        end_name: min((mark for mark in (end, end_before) if mark is not None), default=None),
    }
    return replace(found, **both)


def _range(one: Filter, column: str) -> tuple[int | None, int | None] | None:
    """First and one past the last number that matches; for times in whole milliseconds, which is what is stored."""
    values = _values(one)
    if values is not None:
        numbers = [number for value in values if (number := _number(value, column)) is not None]
        return (
            (min(numbers), max(numbers) + 1) if numbers and len(numbers) == len(values) and len(numbers) == 1 else None
        )
    if not isinstance(one, (GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)):
        return None
    number = _number(one.value, column)
    if number is None:
        return None
    inexact = column == "storeTimestamp"  # the value may lie between two milliseconds
    if isinstance(one, GreaterThan):
        return (number if inexact else number + 1), None
    if isinstance(one, GreaterThanOrEqual):
        return number, None
    if isinstance(one, LessThan):
        return None, (number + 1 if inexact else number)
    return None, number + 1


def _number(value: Any, column: str) -> int | None:
    if column == "queueOffset":
        return value if type(value) is int else None
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return int(value.timestamp() * 1000 // 1)


def _hint(filters: Iterable[Filter]) -> Hint | None:
    """A selection that every wanted message passes; others may pass, too. By tags alone where there are no keys, for
    any broker can do that."""
    tags = [one for one in filters if _column(one) == "tags" and _texts(_values(one))]
    keys = [key for one in filters if _column(one) == "keys" for key in _keys(one)]
    if not keys:
        values = _values(tags[0]) if tags else None
        if values is None or any("|" in tag or "*" in tag or not tag.strip() for tag in values):
            return None
        return Hint("TAG", " || ".join(values))
    parts = [f"KEYS CONTAINS {_quoted(key)}" for key in keys]
    parts += [f"TAGS IN ({', '.join(_quoted(tag) for tag in _values(one) or ())})" for one in tags]
    return Hint("SQL92", " AND ".join(parts))


def _keys(one: Filter) -> Sequence[str]:
    """Keys that a message must have to pass."""
    if isinstance(one, ArrayContains):
        return (one.value,) if one.value else ()
    return one.value if isinstance(one, EqualTo) and _texts(one.value) else ()


def _texts(values: object) -> bool:
    """Is it a list of texts, with something in it and none of them empty?"""
    return isinstance(values, (list, tuple)) and bool(values) and all(type(value) is str and value for value in values)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
