"""Expressions and properties at random, for the corpus with Java's answers and for the fuzz against naive_sql92.py."""

import random

NAMES = ["a", "b", "c", "price", "color", "TAGS", "_x", "$y", "missing"]
NUMBERS = ["0", "1", "5", "10", "42", "100", "2147483647", "2147483648", "9223372036854775807", "5L", "10l", "7"]
FLOATS = ["1.5", "5.", ".5", "10.0", "1E2", "1e-3", "5.0", "3.25", "2147483647.0", "9223372036854775807.0"]
TEXTS = ["'red'", "'blue'", "''", "'5'", "'it''s'", "'true'", "'TagA'", "'re'", "'d'", "'5.0'", "'ü'", "'x y'"]
VALUES = [
    "5", "05", "+5", "-5", "5.0", "1.5", "10", "42", "red", "blue", "it's", "true", "TRUE", "false", "TagA", " 5", "5 ",
    "2147483647", "2147483648", "-2147483648", "9223372036854775807", "9223372036854775808", "1e2", "NaN", "Infinity",
    "-Infinity", "0", "-0", "0.0", "-0.0", "0x1p3", "5d", "5f", "5L", "x y", "ü", "٥", "reddish", "x", "-", "+", "1_0",
    "3.25", "100.", ".5", ".", "12345678901234567890.5", "0.1", "999999999999999999", "1000000000000000000", "-7",
]  # fmt: skip
WRONG = [
    "a ==", "= 5", "a = ", "(a = 5", "a = 5)", "a like 'x'", "a = 'x", "a = \"x\"", "a + 1 = 2", "a IN ()", "a IN (5)",
    "a IN 'x'", "5", "'x'", "-a", "a = NULL", "NULL = a", "a <> NULL", "a > 'x'", "a > TRUE", "TRUE > a", "NOT 5",
    "a BETWEEN 5", "a BETWEEN 5 AND", "a BETWEEN 5 AND 1", "a BETWEEN NULL AND 5", "a BETWEEN 'a' AND 'b'", "", " ",
    "a = 9223372036854775808", "a = 0.0", "a = 1E400", "a = 1E-400", "a IS 5", "a IS", "a NOT 5", "a != 5", "a && b",
    "a OR", "OR a", "AND", "a CONTAINS 5", "a CONTAINS b", "a STARTSWITH", "TRUE = 5", "5 = TRUE", "a = 5 b = 6",
    "1 IN ('1')", "-a IN ('1')", "(a = 5) > 3", "a = 5 /* open", "a.b = 5", "a = 5;", "5a = 5", "a = 05", "a = 0L",
    "not", "a not in", "a = 'x' 'y'", "a = - 5", "a = --5", "a = -\n5", "a = +5", "a = - - 5", "a = -+-5", "+a = 5",
    "a = 5 -- rest\n", "a = 5 -- rest", "/* x */ a = 5", "a /***/ = /* ** * */ 5", "a\t=\n5\r\f", "a = 5\u00a0",
    "NOT a", "NOT NOT a", "a", "TRUE", "FALSE", "NULL", "not null", "TRUE IS NULL", "NULL IS NULL", "5 IS NULL",
    "a IS NULL IS NULL", "a = b = c", "(a = 5) = (b = 5)", "a = (b = 5)", "(b = 5) = a", "TRUE = a", "a = TRUE",
    "a <> TRUE", "a = -b", "-a IS NULL", "-(a = 5) IS NULL", "a > -b", "a = -2147483648", "a > -9223372036854775807",
    "a CONTAINS 'e' CONTAINS 'd'", "'abc' CONTAINS 'b'", "'abc' NOT STARTSWITH 'b'", "5 CONTAINS '5'", "(a) IN ('5')",
    "(((a))) = ((5))", "5 BETWEEN 1 AND 10", "a BETWEEN 1 AND 10 AND b = 'red'", "a NOT BETWEEN 1 AND 10 OR c = 5",
    "a BETWEEN b AND c", "a IN ('5','6','7','8','9','10')", "a NOT IN ('5','6','7','8','9','10')", "A = 5",
    "a CONTAINS ''", "a NOT CONTAINS ''", "a ENDSWITH 'd' AND a STARTSWITH 'r'", "aNd = 5", "isx = 5", "in_ IS NULL",
    "a > b", "a >= b", "5 > 3", "5 = 5", "5 = 5.0", "5L = 5", "'5' = 5", "5 = '5'", "'x' = 5", "'5' = 5.0",
    "TRUE = TRUE", "TRUE = FALSE", "TRUE <> FALSE", "-5 = -5", "-5 < 5.5", "5 BETWEEN 6.5 AND 7", "a <= .5",
    "a=5AND b=5",
    "a = 5OR b = 5", "a>5.and b>5", "1 = TRUE", "'true' = TRUE", "a < - 0.5", "- 5 BETWEEN - 10 AND - 1",
    "a BETWEEN 5 AND - 1", "a BETWEEN '1' AND 5", "a BETWEEN TRUE AND 5", "NULL AND a", "NULL OR TRUE",
    "NOT NULL IS NULL",
]  # fmt: skip


def random_case(rng: random.Random, word: str) -> str:
    return "".join(rng.choice((letter.lower(), letter.upper())) for letter in word) if rng.random() < 0.2 else word


def constant(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.45:
        text = rng.choice(NUMBERS)
    elif kind < 0.65:
        text = rng.choice(FLOATS)
    elif kind < 0.93:
        return rng.choice(TEXTS)
    else:
        return rng.choice(("TRUE", "FALSE", "NULL"))
    return ("-" if rng.random() < 0.2 else "") + text


def number(rng: random.Random) -> str:
    return ("-" if rng.random() < 0.2 else "") + rng.choice(NUMBERS if rng.random() < 0.6 else FLOATS)


def operand(rng: random.Random, depth: int) -> str:
    kind = rng.random()
    if kind < 0.55:
        return rng.choice(NAMES)
    if kind < 0.92 or depth <= 0:
        return constant(rng)
    return f"({expression(rng, depth - 1)})" if kind < 0.97 else f"-{operand(rng, depth - 1)}"


def comparison(rng: random.Random, depth: int) -> str:
    name, negated = rng.choice(NAMES), "NOT " if rng.random() < 0.35 else ""
    kind = rng.randrange(12)
    if kind < 4:
        return f"{operand(rng, depth)} {rng.choice(('=', '<>'))} {operand(rng, depth)}"
    if kind < 7:
        sides = [name, number(rng) if rng.random() < 0.8 else operand(rng, depth)]
        if rng.random() < 0.2:
            sides.reverse()
        return f"{sides[0]} {rng.choice(('<', '<=', '>', '>='))} {sides[1]}"
    if kind == 7:
        low, high = number(rng), number(rng)
        return f"{name} {negated}BETWEEN {low} AND {high}"
    if kind == 8:
        texts = ", ".join(rng.choice(TEXTS) for _ in range(rng.randint(1, 7)))
        return f"{name} {negated}IN ({texts})"
    if kind == 9:
        return f"{operand(rng, depth)} IS {negated}NULL"
    word = rng.choice(("CONTAINS", "STARTSWITH", "ENDSWITH"))
    return f"{name if rng.random() < 0.8 else operand(rng, depth)} {negated}{word} {rng.choice(TEXTS)}"


def expression(rng: random.Random, depth: int = 3) -> str:
    """One expression; most are legal."""
    kind = rng.random()
    if depth <= 0 or kind < 0.3:
        return comparison(rng, depth)
    if kind < 0.8:
        word = random_case(rng, rng.choice(("AND", "OR")))
        return f"{expression(rng, depth - 1)} {word} {expression(rng, depth - 1)}"
    if kind < 0.9:
        return f"{random_case(rng, 'NOT')} ({expression(rng, depth - 1)})"
    return f"({expression(rng, depth - 1)})" if kind < 0.97 else f"NOT {rng.choice(NAMES)}"


def properties(rng: random.Random) -> dict[str, str]:
    names = [name for name in NAMES if name != "missing"]
    rng.shuffle(names)
    return {name: rng.choice(VALUES) for name in names[: rng.randint(0, len(names))]}
