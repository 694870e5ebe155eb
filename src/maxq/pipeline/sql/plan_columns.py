"""Which columns of a relation a query uses, from Spark's optimized plan.

Spark hands a Python data source no pruned column list, so a query is planned twice: first over relations of the same
columns without rows, which costs no Python worker and no broker, then over sources that make only what it uses.
"""

import re
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

_RELATION: Final = re.compile(r"'UnresolvedRelation \[([^\]]*)\]")


def tables_named(spark: SparkSession, text: str) -> set[str]:
    """Names that a query reads from, as it spells them: tables, views, and what WITH defines.

    Raises:
        ParseException: of Spark.
    """
    plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(text)
    return set(_RELATION.findall(plan.toString()))


class EmptyRelation:
    """A DataFrame of these columns without rows, opaque to the optimizer.

    Args:
        schema: of the relation it stands for.
    """

    def __init__(self, spark: SparkSession, schema: StructType) -> None:
        self.frame = spark.createDataFrame(spark.sparkContext.emptyRDD(), schema)
        self._rdd_id = _plan_of(self.frame).collectLeaves().head().rdd().id()

    def is_leaf(self, leaf: Any) -> bool:
        """Is this leaf of a plan the relation, under whichever names a self-join gave its columns?"""
        return bool(leaf.nodeName() == "LogicalRDD" and leaf.rdd().id() == self._rdd_id)


def columns_used(query: DataFrame, relation: EmptyRelation) -> list[str]:
    """Names of the relation's columns without which `query` can not be answered, in the relation's order.

    A relation that is read several times gives the columns of all its readings.
    """
    plans = plans_of(query)
    used = {attribute.exprId().id() for root in plans for attribute in items(root.output())}
    nodes = [node for root in plans for node in _nodes(root)]
    used |= {attribute.exprId().id() for node in nodes for attribute in items(node.references().toSeq())}
    found: list[str] = []
    for node in nodes:
        if node.children().isEmpty() and relation.is_leaf(node):
            names = [attribute.name() for attribute in items(node.output()) if attribute.exprId().id() in used]
            found += [name for name in names if name not in found]
    order = relation.frame.columns
    return sorted(found, key=order.index)


def plans_of(query: DataFrame) -> list[Any]:
    """Its optimized plan and those of its subqueries."""
    plan = _plan_of(query)
    return [plan, *items(plan.subqueriesAll())]


def _plan_of(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().optimizedPlan()


def _nodes(plan: Any) -> list[Any]:
    return [plan, *(node for child in items(plan.children()) for node in _nodes(child))]


def items(sequence: Any) -> list[Any]:
    """Of a Scala Seq."""
    return [sequence.apply(index) for index in range(sequence.size())]
