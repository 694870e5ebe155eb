"""Which conditions a reader narrows its reading by: those in its option `predicate`.

A program that knows that all uses of a DataFrame meet a condition sets this option; for a query the session's optimizer
does it (spark/NarrowReads.java). It is not Spark's own push-down, for Spark 4.3 keeps what one use of a DataFrame
pushed down to a Python reader for every use of it (PythonDataSourceV2.readInfo): a UNION of two conditions on one
DataFrame, or a count after a filtered query, would read what the last condition chose.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
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

from maxq.arrow.schemas import base_column
from maxq.pipeline.options.option_values import OptionValues

PREDICATE: Final = "predicate"
ALLOWED: Final = (
    "a JSON list of conditions [column, operator, value] with =, <, <=, >, >=, in (a list) or contains (keys), such as "
    '[["tags", "in", ["a", "b"]], ["queueId", "=", 0], ["storeTimestamp", ">=", 1700000000000000]] '
    "(timestamps in microseconds since 1970)"
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class ArrayContains(Filter):
    """`array_contains(column, value)`, for which Spark has no filter."""

    attribute: tuple[str, ...]
    value: str


_KINDS: Final[dict[str, Any]] = {
    "=": EqualTo, "<": LessThan, "<=": LessThanOrEqual, ">": GreaterThan, ">=": GreaterThanOrEqual, "in": In,
    "contains": ArrayContains,
}  # fmt: skip
_OPERATORS: Final = {kind: operator for operator, kind in _KINDS.items()}
_TEXTS: Final = ("topic", "brokerName", "tags", "keys", "uniqKey", "msgId", "bornHost", "storeHost")
_TIMES: Final = ("storeTimestamp", "bornTimestamp")
_NUMBERS: Final = (
    "queueId", "queueOffset", "physicalOffset", "sysFlag", "flag", "reconsumeTimes", "preparedTransactionOffset",
    "bodyCrc",
)  # fmt: skip


def condition(column: str, operator: str, value: object) -> Filter | None:
    """Return one condition; None if readers cannot use it.

    Args:
        operator: =, <, <=, >, >=, in, or contains (of `keys`).
        value: a text, a number or a time of the column's type; of `in` several.
    """
    if operator == "in":
        values = value if isinstance(value, (list, tuple)) else ()
        return In((column,), tuple(values)) if values and all(_fits(column, one) for one in values) else None
    if operator not in _KINDS or not _fits(column, value) or (column == "keys") != (operator == "contains"):
        return None
    found: Filter = _KINDS[operator]((column,), value)
    return found


def predicate_option(conditions: Iterable[Filter | None]) -> dict[str, str]:
    """Return the option with these conditions (of `condition`), all of which every wanted row meets; {} for none."""
    rows = [
        (one.attribute[0], _OPERATORS[type(one)], _plain(one.value))  # type: ignore[attr-defined]
        for one in conditions
        if one is not None
    ]
    return {PREDICATE: json.dumps(rows)} if rows else {}


def given_conditions(values: OptionValues) -> list[Filter]:
    """Return the conditions of the option `predicate`.

    Raises:
        ConfigError: it is something else than `ALLOWED`.
    """
    text = values.text(PREDICATE)
    if text is None:
        return []
    try:
        rows = json.loads(text)
    except ValueError as error:
        raise values.wrong(PREDICATE, text, f"{ALLOWED} ({error})") from None
    found = [_condition_of(row) for row in rows] if isinstance(rows, list) else [None]
    if None in found:
        raise values.wrong(PREDICATE, text, ALLOWED)
    return [one for one in found if one is not None]


def moment(wall_ms: int) -> datetime:
    """Return a time in ms since 1970 in the form that conditions have."""
    return _EPOCH + timedelta(milliseconds=wall_ms)


def _condition_of(row: object) -> Filter | None:
    if not isinstance(row, list) or len(row) != 3 or not isinstance(row[0], str) or not isinstance(row[1], str):
        return None
    column, operator, value = base_column(row[0]), row[1], row[2]
    if column in _TIMES:
        several = value if isinstance(value, list) else [value]
        if not all(type(one) is int and 0 <= one < 1 << 57 for one in several):
            return None
        times = [_EPOCH + timedelta(microseconds=one) for one in several]
        value = times if isinstance(value, list) else times[0]
    return condition(column, operator, value)


def _fits(column: str, value: object) -> bool:
    """Return whether the column can have this value."""
    if column in _TEXTS:
        return isinstance(value, str)
    if column in _TIMES:
        return isinstance(value, datetime) and value.tzinfo is not None
    return column in _NUMBERS and type(value) is int and -(1 << 63) <= value < 1 << 63


def _plain(value: Any) -> Any:
    """Return the value in a form that JSON can represent."""
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, datetime):
        return (value - _EPOCH) // timedelta(microseconds=1)
    return value
