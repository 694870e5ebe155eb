"""MessageSelector: which messages of a topic a consumer wants (client/consumer/MessageSelector.java)."""

from dataclasses import dataclass
from typing import Self

from maxq.client.errors import WrongArgumentError
from maxq.protocol.body.subscription import SQL92, TAG, is_tag_type


@dataclass(frozen=True, slots=True)
class MessageSelector:
    """An expression that selects messages, and its language. Made by `by_sql` or `by_tag`."""

    expression_type: str
    expression: str

    @classmethod
    def by_sql(cls, sql: str) -> Self:
        """Select messages for whose properties an SQL92 expression is true, such as `price BETWEEN 10 AND 20 AND color
        = 'red'`. The broker needs enablePropertyFilter. A wrong expression is refused at the subscription."""
        return cls(SQL92, sql)

    @classmethod
    def by_tag(cls, tags: str) -> Self:
        """Select messages with one of the tags, which are separated by `||`; `*` selects all."""
        return cls(TAG, tags)


def expression_of(selection: str | MessageSelector, expression_type: str) -> tuple[str, str]:
    """Return expression and language of an argument of `subscribe`: a selector, or a text in `expression_type`.

    Raises:
        WrongArgumentError: it gave something else.
        FilterExpressionError: an SQL92 expression that is wrong, or an unknown language.
    """
    if isinstance(selection, MessageSelector):
        expression_type, selection = selection.expression_type, selection.expression
    if not isinstance(selection, str):
        raise WrongArgumentError(
            f"a subscription is a text such as '*' or 'TagA || TagB', or a MessageSelector, not {selection!r:.60}"
        )
    if not isinstance(expression_type, str):
        raise WrongArgumentError(f"the type of an expression is TAG or SQL92, not {expression_type!r:.60}")
    if not is_tag_type(expression_type):
        from maxq.filter.languages import compile_expression  # imported on use: its parser takes time to load

        compile_expression(expression_type, selection)
    return selection, expression_type
