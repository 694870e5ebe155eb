"""Expressions of subscriptions in the broker: loading their parser in advance, and refusing invalid ones."""

import threading
from contextlib import suppress
from functools import cache
from typing import Final

from maxq.errors import FilterExpressionError
from maxq.filter.languages import compile_expression
from maxq.protocol.body.subscription import SubscriptionData

CLASS_FILTER_REMARK: Final = (
    "class filters do not exist any more: RocketMQ removed filter servers in 5.x; select by an SQL92 expression "
    "(MessageSelector.bySql) or by tags"
)


@cache
def load_sql92() -> threading.Thread:
    """Load the parser of SQL92 in a thread, once in a process, and return that thread. Loading takes 100 ms of
    processor time, which would delay a start, or all clients of the broker at the first expression."""
    loading = threading.Thread(target=_load_sql92, name="maxq-sql92")
    loading.start()
    return loading


def _load_sql92() -> None:
    from maxq.filter import sql92

    sql92.load()


def known_expression(expression_type: str, expression: str) -> None:
    """Compile an expression in advance, valid or not: the next caller gets the result at once."""
    with suppress(FilterExpressionError):
        compile_expression(expression_type, expression)


def check_subscription(subscription: SubscriptionData) -> None:
    """Raise FilterExpressionError if the subscription's filter cannot be applied."""
    if subscription.class_filter_mode:
        raise FilterExpressionError(CLASS_FILTER_REMARK)
    if not subscription.is_tag_type:
        compile_expression(subscription.expression_type, subscription.sub_string)
