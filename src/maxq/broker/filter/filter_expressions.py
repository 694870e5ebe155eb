"""Which filter languages there are: compiling a subscription's expression, and refusing what is none."""

import threading
from contextlib import suppress
from functools import cache
from typing import Final

from maxq.errors import FilterExpressionError
from maxq.filter.predicates_cy import Predicate
from maxq.protocol.body.subscription import SubscriptionData

SQL92: Final = "SQL92"

CLASS_FILTER_REMARK: Final = (
    "class filters do not exist any more: RocketMQ removed filter servers in 5.x; select by an SQL92 expression "
    "(MessageSelector.bySql) or by tags"
)


def compile_expression(expression_type: str, expression: str) -> Predicate:
    """The predicate of an expression that is none of tags.

    Raises:
        FilterExpressionError: an unknown language, or an expression that is wrong in it.
    """
    if expression_type != SQL92:
        raise FilterExpressionError(
            f"there is no filter of type {expression_type!r:.80}; expressions are of type TAG or {SQL92}"
        )
    return compile_sql92(expression)


def compile_sql92(expression: str) -> Predicate:
    """The predicate of an SQL92 expression; raises FilterExpressionError."""
    from maxq.filter import sql92

    return sql92.compile_sql92(expression)


@cache
def load_sql92() -> threading.Thread:
    """Load the parser of SQL92 in a thread, once in a process, and return that thread. It takes 100 ms of processor
    time, for which a start would wait, or with the first expression all clients of the broker."""
    loading = threading.Thread(target=_load_sql92, name="maxq-sql92")
    loading.start()
    return loading


def _load_sql92() -> None:
    from maxq.filter import sql92

    sql92.load()


def known_expression(expression_type: str, expression: str) -> None:
    """Compile an expression beforehand, right or wrong: the next one who asks for it has the outcome at once."""
    with suppress(FilterExpressionError):
        compile_expression(expression_type, expression)


def check_subscription(subscription: SubscriptionData) -> None:
    """Raises FilterExpressionError if its filter can not be applied."""
    if subscription.class_filter_mode:
        raise FilterExpressionError(CLASS_FILTER_REMARK)
    if not subscription.is_tag_type:
        compile_expression(subscription.expression_type, subscription.sub_string)
