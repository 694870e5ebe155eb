"""SQL92 message selectors: text → predicate.

The grammar is RocketMQ's (filter/parser/SelectorParser.jj) with two deliberate differences: what follows a complete
expression is an error, where Java's parser stops reading and drops it; and length and nesting have limits.

An expression is compiled once; equal texts share a predicate.
"""

import re
from functools import cache, lru_cache
from typing import Any, Final, cast

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from maxq.errors import FilterExpressionError
from maxq.filter import nodes_cy as nodes
from maxq.filter.expressions import ExpressionBuilder, Literal, Operand
from maxq.filter.nodes_cy import EQUAL, GREATER, LESS
from maxq.filter.predicates_cy import Predicate

MAX_EXPRESSION_SIZE: Final = 16_384
#: Names, numbers, texts and signs of one expression. Its time goes by them, some 6 µs each: 30 ms, and no other request
#: is answered meanwhile.
MAX_EXPRESSION_WORDS: Final = 4_000
_CACHED_EXPRESSIONS: Final = 1_000
_KINDS: Final = {"CONTAINS": nodes.CONTAINS, "STARTSWITH": nodes.STARTS_WITH, "ENDSWITH": nodes.ENDS_WITH}
#: What can hold two dashes: texts and comments, the last of them perhaps without an end.
_PIECES: Final = re.compile(r"'(?:''|[^'])*(?:'|$)|/\*.*?(?:\*/|$)|--[^\n\r]*(?:\r\n|\n|\r)", re.DOTALL)
#: Words that are counted: texts, names and numbers, and each sign by itself, also in comments.
_WORDS: Final = re.compile(r"'(?:''|[^'])*(?:'|$)|[\w$.]+|\S")
#: Keywords and their terminals; a terminal that begins with _ leaves no trace in the tree.
_KEYWORDS: Final = {
    **{word: f"_{word}" for word in ("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS")},
    **{word: word for word in _KINDS},
}

_GRAMMAR: Final = r"""
?start: or_

?or_: and_
    | or_ _OR and_                                  -> either
?and_: equality
    | and_ _AND equality                            -> both
?equality: comparison
    | equality "=" comparison                      -> equal
    | equality "<>" comparison                     -> not_equal
    | equality _IS _NULL                             -> is_null
    | equality _IS _NOT _NULL                         -> is_not_null
?comparison: unary
    | comparison ">" unary                         -> greater
    | comparison ">=" unary                        -> greater_or_equal
    | comparison "<" unary                         -> less
    | comparison "<=" unary                        -> less_or_equal
    | comparison text_kind STRING                  -> text_test
    | comparison _NOT text_kind STRING              -> not_text_test
    | comparison _BETWEEN unary _AND unary           -> between
    | comparison _NOT _BETWEEN unary _AND unary       -> not_between
    | comparison _IN "(" texts ")"                  -> one_of
    | comparison _NOT _IN "(" texts ")"              -> none_of
?unary: primary
    | "+" unary
    | "-" unary                                    -> negative
    | _NOT unary                                    -> negation
?primary: STRING                                   -> string
    | DECIMAL                                      -> decimal
    | FLOAT                                        -> floating
    | _TRUE                                         -> true
    | _FALSE                                        -> false
    | _NULL                                         -> null
    | NAME                                         -> name
    | "(" or_ ")"
!text_kind: CONTAINS | STARTSWITH | ENDSWITH
texts: STRING ("," STRING)*

%declare _NOT _AND _OR _BETWEEN _IN _TRUE _FALSE _NULL _IS CONTAINS STARTSWITH ENDSWITH

NAME: /[A-Za-z_$][A-Za-z0-9_$]*/
FLOAT.2: /[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+/
DECIMAL.1: /0|[1-9][0-9]*[lL]?/
STRING: /'(?:''|[^'])*'/
BLOCK_COMMENT: /\/\*[^*]*\*(?:\*|[^*\/][^*]*\*)*\//
SPACE: /[ \t\n\r\f]+/
%ignore BLOCK_COMMENT
%ignore SPACE
"""


def compile_sql92(expression: str) -> Predicate:
    """Compile an SQL92 expression.

    Raises:
        FilterExpressionError: it is wrong; the message says where and why.
    """
    outcome = _outcome(expression)
    if isinstance(outcome, str):
        raise FilterExpressionError(outcome)
    return outcome


def load() -> None:
    """Build the parser, which takes some 40 ms. Otherwise the first expression builds it."""
    _compiler()


def forget_outcomes() -> None:
    """Forget compiled expressions, for measurements."""
    _outcome.cache_clear()


@lru_cache(_CACHED_EXPRESSIONS)
def _outcome(expression: str) -> Predicate | str:
    """Return the predicate, or the error, which is cached as well: clients repeat a wrong expression again and
    again."""
    try:
        return _compile(expression)
    except FilterExpressionError as error:
        return str(error)


def _compile(expression: str) -> Predicate:
    if not expression.strip():
        raise FilterExpressionError("an SQL92 subscription needs an expression")
    if len(expression) > MAX_EXPRESSION_SIZE:
        raise FilterExpressionError(
            f"the SQL92 expression has {len(expression)} characters, the limit is {MAX_EXPRESSION_SIZE}; "
            "select by fewer values, or by a property that stands for them"
        )
    if (words := len(_WORDS.findall(expression))) > MAX_EXPRESSION_WORDS:
        raise FilterExpressionError(
            f"the SQL92 expression has {words} names, values and signs, the limit is {MAX_EXPRESSION_WORDS}; "
            "select by fewer values, or by a property that stands for them"
        )
    try:
        return _compiler().compile(_without_line_comments(expression))
    except UnexpectedInput as error:
        raise FilterExpressionError(f"the SQL92 expression {_short(expression)} is wrong {_place(error)}") from None
    except FilterExpressionError as error:
        raise FilterExpressionError(f"the SQL92 expression {_short(expression)} is wrong: {error}") from None


def _without_line_comments(expression: str) -> str:
    """Replace line comments by blanks, so that everything else keeps its position. Two dashes without a line end behind
    them are minus signs and not a comment.

    Comments are not terminals of the grammar: a lexer that searches for the line end at every sign of `----…` takes
    time that grows with the square of its length.
    """
    end = max(expression.rfind("\n"), expression.rfind("\r")) + 1
    if "--" not in expression[:end]:
        return expression
    return _PIECES.sub(_blank, expression[:end]) + expression[end:]


def _blank(piece: re.Match[str]) -> str:
    text = piece.group()
    return " " * len(text) if text.startswith("--") else text


def _short(expression: str) -> str:
    return repr(expression if len(expression) <= 200 else expression[:200] + "…")


#: Syntax of other SQL dialects → how RocketMQ's writes the same.
_OTHERWISE: Final = {
    "!": "; not equal is <>",
    "&": "; write AND",
    "|": "; write OR",
    '"': "; texts stand in single quotes",
    "LIKE": "; write STARTSWITH, ENDSWITH or CONTAINS",
}


def _place(error: UnexpectedInput) -> str:
    if isinstance(error, UnexpectedCharacters):
        said = f"at character {1 + int(error.pos_in_stream or 0)}: {error.char!r} means nothing here"
        return said + _OTHERWISE.get(error.char, "")
    if isinstance(error, UnexpectedToken) and error.token.type != "$END":
        said = f"at character {(error.token.start_pos or 0) + 1}: {str(error.token)!r:.80} is not expected here"
        return said + _OTHERWISE.get(str(error.token).upper(), "")
    return "at its end: something is missing"


def _promote(token: Token) -> Token:
    """Turn a name that is a keyword, in any case of letters, into that keyword."""
    terminal = _KEYWORDS.get(token.value.upper())
    return token if terminal is None else Token.new_borrow_pos(terminal, token.value, token)


class _Sql92ToNodes(Transformer[Token, Operand]):
    """Turns each rule of the grammar into a call of the builder. The parser calls it while it reads: nothing here is
    recursive."""

    builder: ExpressionBuilder

    # literals and names

    def string(self, found: list[Token]) -> Operand:
        return self.builder.text(found[0])

    def decimal(self, found: list[Token]) -> Operand:
        return self.builder.decimal(found[0])

    def floating(self, found: list[Token]) -> Operand:
        return self.builder.floating(found[0])

    def true(self, found: list[Token]) -> Operand:
        return self.builder.true()

    def false(self, found: list[Token]) -> Operand:
        return self.builder.false()

    def null(self, found: list[Token]) -> Operand:
        return self.builder.null()

    def name(self, found: list[Token]) -> Operand:
        return self.builder.name(str(found[0]))

    # logic

    def either(self, found: list[Operand]) -> Operand:
        return self.builder.either(*found)

    def both(self, found: list[Operand]) -> Operand:
        return self.builder.both(*found)

    def negation(self, found: list[Operand]) -> Operand:
        return self.builder.negation(*found)

    def negative(self, found: list[Operand]) -> Operand:
        return self.builder.negative(*found)

    # comparison

    def equal(self, found: list[Operand]) -> Operand:
        return self.builder.equal(*found)

    def not_equal(self, found: list[Operand]) -> Operand:
        return self.builder.not_equal(*found)

    def is_null(self, found: list[Operand]) -> Operand:
        return self.builder.is_null(*found)

    def is_not_null(self, found: list[Operand]) -> Operand:
        return self.builder.is_not_null(*found)

    def greater(self, found: list[Operand]) -> Operand:
        return self.builder.ordered(found[0], GREATER, found[1])

    def greater_or_equal(self, found: list[Operand]) -> Operand:
        return self.builder.ordered(found[0], GREATER | EQUAL, found[1])

    def less(self, found: list[Operand]) -> Operand:
        return self.builder.ordered(found[0], LESS, found[1])

    def less_or_equal(self, found: list[Operand]) -> Operand:
        return self.builder.ordered(found[0], LESS | EQUAL, found[1])

    def between(self, found: list[Operand]) -> Operand:
        return self.builder.between(*found)

    def not_between(self, found: list[Operand]) -> Operand:
        return self.builder.not_between(*found)

    def texts(self, found: list[Token]) -> list[Literal]:
        return [self.builder.text(image) for image in found]

    def one_of(self, found: list[Any]) -> Operand:
        return self.builder.one_of(found[0], found[1], negated=False)

    def none_of(self, found: list[Any]) -> Operand:
        return self.builder.one_of(found[0], found[1], negated=True)

    def text_kind(self, found: list[Token]) -> int:
        return _KINDS[found[0].type]

    def text_test(self, found: list[Any]) -> Operand:
        return self.builder.text_test(found[0], found[1], self.builder.text(found[2]), negated=False)

    def not_text_test(self, found: list[Any]) -> Operand:
        return self.builder.text_test(found[0], found[1], self.builder.text(found[2]), negated=True)


class _Compiler:
    """Makes the parser, by `load` or when the first expression arrives."""

    def __init__(self) -> None:
        self._to_nodes = _Sql92ToNodes()
        self._parser = Lark(
            _GRAMMAR,
            parser="lalr",
            lexer="basic",
            lexer_callbacks={"NAME": _promote},
            transformer=self._to_nodes,
        )

    def compile(self, expression: str) -> Predicate:
        self._to_nodes.builder = ExpressionBuilder()
        return self._to_nodes.builder.finish(cast(Operand, self._parser.parse(expression)))


@cache
def _compiler() -> _Compiler:
    return _Compiler()
