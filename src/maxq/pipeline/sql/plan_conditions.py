"""Conditions that every use of a relation in a query meets, from Spark's optimized plan.

Spark's own push-down to Python readers is not safe for rows that are used twice (options/predicate.py). What the text
of a query says of a view holds for whatever is made of its result, and goes to the reader as an option.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.datasource import Filter

from maxq.pipeline.options.predicate import condition
from maxq.pipeline.sql.plan_columns import EmptyRelation, items, plans_of

_COMPARISONS: Final = {
    "EqualTo": "=", "LessThan": "<", "LessThanOrEqual": "<=", "GreaterThan": ">", "GreaterThanOrEqual": ">=",
}  # fmt: skip
_TURNED: Final = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_INTEGERS: Final = ("int", "bigint")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def conditions_met(query: DataFrame, relation: EmptyRelation) -> list[Filter]:
    """Conditions on its columns without which no row of the relation is used for the result of `query`; of a relation
    that is read several times those that all its readings have."""
    readings = [
        list(_conditions(condition_above)) for plan in plans_of(query) for condition_above in _readings(plan, relation)
    ]
    if not readings:
        return []
    first, *others = readings
    return [one for one in first if all(one in other for other in others)]


def _readings(node: Any, relation: EmptyRelation, above: Any = None) -> Iterator[Any]:
    """For each reading of the relation the condition of the Filter right above it, None if there is none."""
    children = items(node.children())
    if not children and relation.is_leaf(node):
        yield above
    for child in children:
        yield from _readings(child, relation, node.condition() if node.nodeName() == "Filter" else None)


def _conditions(expression: Any) -> Iterator[Filter]:
    """Those of the parts of an AND that readers can use."""
    if expression is None:
        return
    if _kind(expression) == "And":
        yield from _conditions(expression.left())
        yield from _conditions(expression.right())
        return
    found = _condition(expression)
    if found is not None:
        yield found


def _condition(expression: Any) -> Filter | None:
    kind = _kind(expression)
    if kind in ("In", "InSet"):
        column = expression.value() if kind == "In" else expression.child()
        if _kind(column) != "AttributeReference":
            return None
        if kind == "InSet":
            data_type = column.dataType()
            return condition(column.name(), "in", [_value(one, data_type) for one in items(expression.hset().toSeq())])
        return condition(column.name(), "in", [_literal(one) for one in items(expression.list())])
    if kind not in _COMPARISONS and kind != "ArrayContains":
        return None
    left, right = expression.left(), expression.right()
    operator = _COMPARISONS.get(kind, "contains")
    if _kind(right) == "AttributeReference" and operator in _TURNED:
        left, right, operator = right, left, _TURNED[operator]
    if _kind(left) != "AttributeReference":
        return None
    return condition(left.name(), operator, _literal(right))


def _literal(expression: Any) -> Any:
    """Its value in Python's terms; None for what is no literal, and for types that readers decide nothing by."""
    return _value(expression.value(), expression.dataType()) if _kind(expression) == "Literal" else None


def _value(value: Any, data_type: Any) -> Any:
    """Of Spark's own form."""
    name = data_type.simpleString()
    if value is None:
        return None
    if name == "string":
        return value if isinstance(value, str) else value.toString()
    if name in _INTEGERS:
        return int(value)
    return _EPOCH + timedelta(microseconds=int(value)) if name == "timestamp" else None


def _kind(expression: Any) -> str:
    return str(expression.getClass().getSimpleName())
