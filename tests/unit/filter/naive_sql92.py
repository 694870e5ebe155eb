"""A second, naive implementation of RocketMQ's SQL92: tokens, recursive descent, objects that evaluate to values.

It follows filter/expression/*.java method by method, with one class of value per Java class, and shares nothing with
maxq.filter.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

TOKEN = re.compile(
    r"(?P<skip>[ \t\n\r\f]+|--[^\n\r]*(?:\r\n|\n|\r)|/\*(?:[^*]|\*+[^*/])*\*+/)"
    r"|(?P<float>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<decimal>0|[1-9][0-9]*[lL]?)|(?P<text>'(?:''|[^'])*')|(?P<id>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<sign><>|<=|>=|[=<>(),+-])"
)
WORDS = {"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH"}


class RefusedError(Exception):
    """The expression does not compile."""


class ThrownError(Exception):
    """Evaluation throws."""


@dataclass(frozen=True)
class Num:
    """A boxed number: kind I, L or D."""

    kind: str
    value: float


Evaluate = Callable[[Mapping[str, str]], object]


@dataclass
class Expr:
    evaluate: Evaluate
    is_boolean: bool = False
    is_constant: bool = False
    is_property: bool = False
    constant: object = None


def wrap(value: int, bits: int) -> int:
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def java_int(text: str, bits: int) -> Num:
    if not re.fullmatch(r"[+-]?\d+", text) or any(ord(c) > 0xFFFF for c in text):
        raise ThrownError(text)
    if not -(1 << bits - 1) <= int(text) < 1 << bits - 1:
        raise ThrownError(text)
    return Num("I" if bits == 32 else "L", int(text))


def java_double(text: str) -> Num:
    text = text.strip("".join(map(chr, range(33))))
    found = re.fullmatch(
        r"([+-]?)(NaN|Infinity|0[xX][0-9a-fA-F.]+[pP][+-]?[0-9]+|[0-9.]+(?:[eE][+-]?[0-9]+)?)([fFdD]?)", text
    )
    if not found or (found[3] and found[2] in ("NaN", "Infinity")):
        raise ThrownError(text)
    try:
        value = float.fromhex(found[2]) if found[2][:2].lower() == "0x" else float(found[2])
    except ValueError:
        raise ThrownError(text) from None
    return Num("D", -value if found[1] == "-" else value)


def java_compare(left: object, right: object) -> int:
    """__compare with convertStringExpressions."""
    if type(left) is not type(right) or (isinstance(left, Num) and isinstance(right, Num) and left.kind != right.kind):
        if isinstance(left, bool):
            if isinstance(right, str):
                raise ThrownError("ClassCastException")
            return -1
        if isinstance(left, Num):
            if isinstance(right, str):
                right = java_double(right) if left.kind == "D" else java_int(right, 32 if left.kind == "I" else 64)
            elif isinstance(right, Num):
                if "D" in (left.kind, right.kind):
                    left, right = Num("D", float(left.value)), Num("D", float(right.value))
            else:
                return -1
        elif isinstance(left, str):
            if isinstance(right, bool):
                left = left.lower() == "true"
            elif isinstance(right, Num):
                left = java_double(left) if right.kind == "D" else java_int(left, 32 if right.kind == "I" else 64)
            else:
                return -1
    if isinstance(left, Num) and isinstance(right, Num):
        if left.kind == "D":
            return compare_to(left.value, right.value)
        return (left.value > right.value) - (left.value < right.value)
    assert isinstance(left, str | bool) and isinstance(right, str | bool)
    return (left > right) - (left < right)  # type: ignore[operator]


def compare_to(a: float, b: float) -> int:
    def key(x: float) -> tuple[int, float, int]:
        return (1, 0, 0) if math.isnan(x) else (0, x, 0 if math.copysign(1, x) < 0 else 1)

    return (key(a) > key(b)) - (key(a) < key(b))


class Parser:
    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(text):
            found = TOKEN.match(text, at)
            if not found:
                raise RefusedError(f"at {at}")
            kind, image = str(found.lastgroup), found[0]
            if kind == "id" and image.upper() in WORDS:
                kind, image = "word", image.upper()
            if kind != "skip":
                self.tokens.append((kind, image))
            at = found.end()
        self.at = 0

    def peek(self, ahead: int = 0) -> str:
        if self.at + ahead >= len(self.tokens):
            return "end"
        kind, image = self.tokens[self.at + ahead]
        return image if kind in ("word", "sign") else kind

    def take(self, wanted: str) -> str:
        if self.peek() != wanted:
            raise RefusedError(f"{wanted} wanted, {self.peek()} found")
        self.at += 1
        return self.tokens[self.at - 1][1]

    def accept(self, wanted: str) -> bool:
        if self.peek() == wanted:
            self.at += 1
            return True
        return False

    def whole(self) -> Expr:
        found = boolean(self.either())
        self.take("end") if self.peek() != "end" else None
        return found

    def either(self) -> Expr:
        left = self.both()
        while self.accept("OR"):
            left = logic(boolean(left), boolean(self.both()), True)
        return left

    def both(self) -> Expr:
        left = self.equality()
        while self.accept("AND"):
            left = logic(boolean(left), boolean(self.equality()), False)
        return left

    def equality(self) -> Expr:
        left = self.comparison()
        while True:
            if self.accept("="):
                left = checked_equal(left, self.comparison())
            elif self.accept("<>"):
                left = negation(checked_equal(left, self.comparison()))
            elif self.accept("IS"):
                negated = self.accept("NOT")
                self.take("NULL")
                left = equal(left, Expr(lambda m: None))
                left = negation(left) if negated else left
            else:
                return left

    def comparison(self) -> Expr:
        left = self.unary()
        while True:
            sign = self.peek()
            if sign in ("<", "<=", ">", ">="):
                self.at += 1
                left = order(left, sign, self.unary())
                continue
            negated = sign == "NOT"
            word = self.peek(1) if negated else sign
            if word not in ("CONTAINS", "STARTSWITH", "ENDSWITH", "BETWEEN", "IN"):
                return left
            self.at += 2 if negated else 1
            if word == "BETWEEN":
                low = self.unary()
                self.take("AND")
                left = between(left, low, self.unary(), negated)
            elif word == "IN":
                left = self.one_of(left, negated)
            else:
                left = text_test(left, word, unquoted(self.take("text")), negated)

    def one_of(self, left: Expr, negated: bool) -> Expr:
        self.take("(")
        texts = [unquoted(self.take("text"))]
        while self.accept(","):
            texts.append(unquoted(self.take("text")))
        self.take(")")
        if not left.is_property:
            raise RefusedError("IN of no property")

        def evaluate(message: Mapping[str, str]) -> object:
            value = left.evaluate(message)
            return None if value is None else (value in texts) != negated

        return Expr(evaluate, is_boolean=True)

    def unary(self) -> Expr:
        if self.accept("+"):
            return self.unary()
        if self.accept("-"):
            return minus(self.unary())
        if self.accept("NOT"):
            return negation(boolean(self.unary()))
        return self.primary()

    def primary(self) -> Expr:
        if self.accept("("):
            found = self.either()
            self.take(")")
            return found
        if self.accept("TRUE"):
            return literal(True, True)
        if self.accept("FALSE"):
            return literal(False, True)
        if self.accept("NULL"):
            return literal(None, True)
        kind = self.peek()
        if kind == "id":
            name = self.take("id")
            return Expr(lambda message: message.get(name), is_property=True)
        if kind == "text":
            return literal(unquoted(self.take("text")))
        if kind == "decimal":
            value = int(self.take("decimal").rstrip("lL"))
            if value >= 1 << 63:
                raise RefusedError("too large")
            return literal(Num("I" if value < 1 << 31 else "L", value))
        double = float(self.take("float"))
        if double == math.inf or double < 5e-324:
            raise RefusedError("out of range")
        return literal(Num("D", double))


def unquoted(image: str) -> str:
    return image[1:-1].replace("''", "'")


def literal(value: object, is_boolean: bool = False) -> Expr:
    return Expr(lambda message: value, is_boolean=is_boolean, is_constant=True, constant=value)


def boolean(found: Expr) -> Expr:
    if found.is_boolean:
        return found
    if found.is_property:
        return Expr(lambda message: None if found.evaluate(message) is None else False, is_boolean=True)
    raise RefusedError("no boolean")


def logic(left: Expr, right: Expr, winner: bool) -> Expr:
    def evaluate(message: Mapping[str, str]) -> object:
        one = left.evaluate(message)
        if one is winner:
            return winner
        other = right.evaluate(message)
        if other is winner:
            return winner
        return None if one is None or other is None else not winner

    return Expr(evaluate, is_boolean=True)


def negation(found: Expr) -> Expr:
    def evaluate(message: Mapping[str, str]) -> object:
        value = found.evaluate(message)
        return None if value is None else not value

    return Expr(evaluate, is_boolean=True)


def minus(found: Expr) -> Expr:
    def evaluate(message: Mapping[str, str]) -> object:
        value = found.evaluate(message)
        if not isinstance(value, Num):
            return None
        if value.kind == "D":
            return Num("D", -value.value)
        return Num(value.kind, wrap(-int(value.value), 32 if value.kind == "I" else 64))

    return Expr(evaluate)


def checked_equal(left: Expr, right: Expr) -> Expr:
    for side in (left, right):
        if side.is_constant and side.constant is None:
            raise RefusedError("NULL")
    if left.is_constant and right.is_constant and left.is_boolean and not right.is_boolean:
        raise RefusedError("incompatible")
    return equal(left, right)


def equal(left: Expr, right: Expr) -> Expr:
    def evaluate(message: Mapping[str, str]) -> object:
        one, other = left.evaluate(message), right.evaluate(message)
        if (one is None) != (other is None):
            return None if one is None else False
        if one is None:
            return True
        return java_compare(one, other) == 0

    return Expr(evaluate, is_boolean=True)


def order(left: Expr, sign: str, right: Expr) -> Expr:
    for side in (left, right):
        if side.is_constant:
            if not isinstance(side.constant, Num):
                raise RefusedError("not a number")
        elif side.is_boolean:
            raise RefusedError("boolean")

    def evaluate(message: Mapping[str, str]) -> object:
        one = left.evaluate(message)
        if one is None:
            return None
        other = right.evaluate(message)
        if other is None:
            return None
        if isinstance(one, str) and isinstance(other, str):
            one, other = java_double(one), java_double(other)
        answer = java_compare(one, other)
        return {"<": answer < 0, "<=": answer <= 0, ">": answer > 0, ">=": answer >= 0}[sign]

    return Expr(evaluate, is_boolean=True)


def between(value: Expr, low: Expr, high: Expr, negated: bool) -> Expr:
    if negated:
        return logic(order(value, "<", low), order(value, ">", high), True)
    if low.is_constant and high.is_constant:
        if low.constant is None or high.constant is None:
            raise RefusedError("NULL")
        try:
            if java_compare(high.constant, low.constant) < 0:
                raise RefusedError("empty")
        except ThrownError as error:
            raise RefusedError(str(error)) from None
    return logic(order(value, ">=", low), order(value, "<=", high), False)


def text_test(left: Expr, word: str, text: str, negated: bool) -> Expr:
    def evaluate(message: Mapping[str, str]) -> object:
        if not text:
            return False
        value = left.evaluate(message)
        if not isinstance(value, str):
            return False
        found = {"CONTAINS": text in value, "STARTSWITH": value.startswith(text), "ENDSWITH": value.endswith(text)}
        return found[word] != negated

    return Expr(evaluate, is_boolean=True)


def compile_naively(text: str) -> Expr:
    """Raises RefusedError."""
    return Parser(text).whole()


def answer(found: Expr, message: Mapping[str, str]) -> str:
    """T, F, N (null) or E (it throws)."""
    try:
        value = found.evaluate(message)
    except ThrownError:
        return "E"
    return "N" if value is None else "T" if value else "F"
