"""Which filter languages there are, and compiling an expression of one."""

from maxq.errors import FilterExpressionError
from maxq.filter.predicates_cy import Predicate
from maxq.protocol.body.subscription import SQL92


def compile_expression(expression_type: str, expression: str) -> Predicate:
    """Compile an expression that does not select by tags.

    Raises:
        FilterExpressionError: an unknown language, or an expression that is wrong in it.
    """
    if expression_type != SQL92:
        raise FilterExpressionError(
            f"there is no filter of type {expression_type!r:.80}; expressions are of type TAG or {SQL92}"
        )
    return compile_sql92(expression)


def compile_sql92(expression: str) -> Predicate:
    """Compile an SQL92 expression; raises FilterExpressionError."""
    from maxq.filter import sql92

    return sql92.compile_sql92(expression)
