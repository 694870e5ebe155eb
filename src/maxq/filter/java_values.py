"""Numbers and comparison as RocketMQ's filters have them: Java's, down to what a text may look like.

A value of an expression is one of

    Java        here
    String      str
    Integer     int, -2^31 … 2^31-1
    Long        Long
    Double      float
    Boolean     bool
    null        None

Source:
    filter/expression/ComparisonExpression.java (__compare), java.lang.{Integer,Long,Double}.valueOf and compareTo.
"""

import math
import re
from typing import Final

from maxq.errors import FilterEvaluationError

Value = str | int | float | None  # bool and Long are ints

INTEGER_BITS: Final = 32
LONG_BITS: Final = 64

_INTEGER = re.compile(r"[+-]?\d+\Z")
_FLOATING = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<word>NaN|Infinity)|(?P<decimal>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    r"|(?P<hex>0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?)\Z"
)
_TRIMMED: Final = "".join(map(chr, range(0x21)))  # String.trim


#: Characters of a text that is taken for a number; the largest Double has 309 digits.
MOST_DIGITS: Final = 400


class Long(int):
    """A 64-bit number. Comparing it with another kind widens that one."""


def parse_integer(text: str, bits: int) -> int:
    """Parse as Integer.valueOf (32 bits) and Long.valueOf (64) do.

    Raises:
        FilterEvaluationError: Java would throw NumberFormatException.
    """
    if (
        len(text) <= MOST_DIGITS
        and _INTEGER.match(text)
        and max(text) <= "\uffff"  # Java looks at UTF-16 units one by one
    ):
        value = int(text)
        limit = 1 << (bits - 1)
        if -limit <= value < limit:
            return value
    raise FilterEvaluationError(f"{text!r:.80} is no number of {bits} bits")


def parse_double(text: str) -> float:
    """Parse as Double.valueOf does.

    Raises:
        FilterEvaluationError: NumberFormatException there.
    """
    found = _FLOATING.match(text.strip(_TRIMMED)) if len(text) <= MOST_DIGITS else None
    if found is None:
        raise FilterEvaluationError(f"{text!r:.80} is no floating-point number")
    if found["word"]:
        value = math.nan if found["word"] == "NaN" else math.inf
    elif found["hex"]:
        value = _hexadecimal(found["hex"])
    else:
        value = float(found["decimal"])
    return -value if found["sign"] == "-" else value


def _hexadecimal(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return math.inf


def negate(value: int | float) -> int | float:
    """Return the negative of a number in the number's own Java type."""
    if isinstance(value, Long):
        return Long(_wrapped(-value, LONG_BITS))
    return _wrapped(-value, INTEGER_BITS) if isinstance(value, int) else -value


def _wrapped(value: int, bits: int) -> int:
    half = 1 << (bits - 1)
    return (value + half) % (1 << bits) - half


def compare_doubles(left: float, right: float) -> int:
    """Compare as Double.compareTo does, in a total order: -0.0 is below 0.0, NaN equals itself and is above
    everything."""
    if left < right:
        return -1
    if left > right:
        return 1
    return _rank(left) - _rank(right)


def _rank(value: float) -> int:
    if math.isnan(value):
        return 1
    return -1 if value == 0 and math.copysign(1, value) < 0 else 0


def compare_values(left: Value, right: Value) -> int:
    """Compare two values that are not null, as ComparisonExpression.__compare does; negative, 0 or positive.

    Kinds that cannot be converted compare as "less".

    Raises:
        FilterEvaluationError: a text that is not a number of the other side's type, or a boolean with a text behind it.
    """
    if isinstance(left, bool):
        if isinstance(right, str):
            # Java's cast fails there
            raise FilterEvaluationError(f"{left} can not be compared with the text {right!r:.80}")
        return left - right if isinstance(right, bool) else -1
    if isinstance(left, str):
        return _compare_text(left, right)
    if isinstance(right, bool) or left is None or right is None:
        return -1
    if isinstance(right, str):
        right = _as_type_of(right, left)
    if isinstance(left, float) or isinstance(right, float):
        return compare_doubles(float(left), float(right))
    return (left > right) - (left < right)


def _compare_text(left: str, right: Value) -> int:
    if isinstance(right, str):
        return (left > right) - (left < right)
    if isinstance(right, bool):
        return (left.lower() == "true") - right
    if right is None:
        return -1
    return compare_values(_as_type_of(left, right), right)


def _as_type_of(text: str, other: int | float) -> int | float:
    if isinstance(other, float):
        return parse_double(text)
    return parse_integer(text, LONG_BITS if isinstance(other, Long) else INTEGER_BITS)
