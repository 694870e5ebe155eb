"""SQL92: Java's answers, a naive second implementation, and what a refusal says."""

import functools
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from maxq.errors import FilterExpressionError
from maxq.filter import expressions, sql92
from maxq.filter.expressions import MAX_DEPTH, MAX_SEARCHES
from maxq.filter.sql92 import MAX_EXPRESSION_SIZE, MAX_EXPRESSION_WORDS, compile_sql92
from maxq.protocol.message.message_properties import encode_properties
from tests.unit.both_forms import both_together
from tests.unit.filter.expressions_at_random import expression, properties
from tests.unit.filter.naive_sql92 import RefusedError, answer, compile_naively

CORPUS = Path(__file__).parents[2] / "data" / "filter" / "sql92.jsonl"
LETTERS = "FTNE"
#: Java's parser stops behind a complete expression and drops the rest; here the rest is an error.
REST_IS_DROPPED_BY_JAVA = {
    "a = 5)",
    "a + 1 = 2",
    "a like 'x'",
    "a = 5 b = 6",
    "a = 05",
    "a = 0L",
    "a = 'x' 'y'",
    "a = 5 -- rest",  # a comment needs the end of its line
}


FORMS = both_together("maxq.filter.nodes_cy", "maxq.filter.comparisons_cy", "maxq.filter.predicates_cy")


@pytest.fixture(params=FORMS, ids=["uncompiled", "installed"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Both forms of the nodes."""
    monkeypatch.setattr(expressions, "nodes", request.param)
    monkeypatch.setattr(expressions, "comparisons", request.param)
    monkeypatch.setattr(expressions, "Predicate", request.param.Predicate)
    sql92._outcome.cache_clear()
    yield
    sql92._outcome.cache_clear()


def text_of(pairs: dict[str, str]) -> bytes:
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs.items()).encode()


def ours(text: str, sets: list[dict[str, str]]) -> str:
    try:
        predicate = compile_sql92(text)
    except FilterExpressionError:
        return "X"
    return "".join(LETTERS[predicate.test(text_of(pairs))] for pairs in sets)


def naive(text: str, sets: list[dict[str, str]]) -> str:
    try:
        found = compile_naively(text)
    except RefusedError:
        return "X"
    return "".join(answer(found, pairs) for pairs in sets)


@pytest.mark.usefixtures("form")
def test_a_thousand_expressions_have_javas_answers() -> None:
    different = []
    lines = CORPUS.read_text(encoding="utf-8").splitlines()
    for line in lines:
        text, wanted, sets = json.loads(line)
        found = ours(text, sets)
        if found != wanted:
            different.append((text, wanted, found))
    assert len(lines) == 1_000
    assert {text for text, _, _ in different} == REST_IS_DROPPED_BY_JAVA
    assert all(found == "X" for _, _, found in different)


def test_the_naive_implementation_has_javas_answers_too() -> None:
    for line in CORPUS.read_text(encoding="utf-8").splitlines():
        text, wanted, sets = json.loads(line)
        assert naive(text, sets) == wanted or text in REST_IS_DROPPED_BY_JAVA, text


@functools.cache
def at_random() -> list[tuple[str, list[dict[str, str]], str]]:
    """Expressions, sets of properties, and the naive answers; made once for both forms."""
    found = []
    for seed in range(3_000):
        rng = random.Random(seed)
        text = expression(rng)
        sets = [properties(rng) for _ in range(4)]
        found.append((text, sets, naive(text, sets)))
    return found


@pytest.mark.usefixtures("form")
def test_expressions_at_random_agree_with_the_naive_implementation() -> None:
    for seed, (text, sets, wanted) in enumerate(at_random()):
        assert ours(text, sets) == wanted, f"seed {seed}: {text} of {sets}"


def test_a_chain_of_a_thousand_alternatives_is_one_row_and_no_depth() -> None:
    predicate = compile_sql92(" OR ".join(f"a = {number}" for number in range(1_000)))
    assert predicate.matches(b"a\x01999\x02")
    assert not predicate.matches(b"a\x011000\x02")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = ", "at its end"),
        ("a = 5 b", "at character 7: 'b' is not expected here"),
        ("a # 5", "at character 3: '#' means nothing here"),
        ("a != 5", "'!' means nothing here; not equal is <>"),
        ('a = "x"', "means nothing here; texts stand in single quotes"),
        ("a = 1 && b = 2", "'&' means nothing here; write AND"),
        ("a like 'x%'", "'like' is not expected here; write STARTSWITH, ENDSWITH or CONTAINS"),
        ("a = NULL", "IS NULL"),
        ("a > 'x'", "'x' can not be compared"),
        ("a BETWEEN 5 AND 1", "the first limit is the greater one"),
        ("5", "5 stands where something true or false is wanted"),
        ("a = 9223372036854775808", "does not fit into 64 bits"),
        ("a = 0.0", "write 0"),
        (" \n", "needs an expression"),
        ("NOT " * MAX_DEPTH + "a", f"more than {MAX_DEPTH} deep"),
        ("(" * 1_900 + "a" + ")" * 1_900 + " b", "at character 3803"),
        ("a = 1 OR " * (MAX_EXPRESSION_WORDS // 4) + "a = 1", f"the limit is {MAX_EXPRESSION_WORDS}"),
        ("a = '" + "x" * MAX_EXPRESSION_SIZE + "'", f"the limit is {MAX_EXPRESSION_SIZE}"),
        ("a CONTAINS 'x' OR " * MAX_SEARCHES + "a CONTAINS 'x'", f"more than {MAX_SEARCHES} CONTAINS"),
    ],
)
def test_a_wrong_expression_is_refused_with_place_and_reason(text: str, said: str) -> None:
    with pytest.raises(FilterExpressionError) as caught:
        compile_sql92(text)
    assert said in str(caught.value)
    assert caught.value.response_code == 23
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("number", ["0", "-0", "1.", "0.", "."])
def test_a_text_of_more_than_400_characters_is_no_number(number: str) -> None:
    """To read one again and again for a long expression held the loop for 0.4 s a message."""
    for size, expected in ((400, True), (401, False)):
        value = number + "0" * (size - len(number))
        for text in ("a < 5", "a < 5.5"):
            if "." not in number or "." in text:
                assert compile_sql92(text).matches(f"a\x01{value}\x02".encode()) == expected


def test_the_last_of_equal_names_counts_and_one_without_value_is_absent() -> None:
    assert compile_sql92("a = '2'").matches(b"a\x011\x02b\x01x\x02a\x012")
    assert compile_sql92("a IS NULL").matches(b"a\x01\x02\x01x\x02a")
    assert compile_sql92("a = '1\x01'").matches(b"a\x011\x01\x02")


def test_properties_that_are_not_utf8_are_texts_with_replacements() -> None:
    assert compile_sql92("a = b").matches(b"a\x01\xff\x02b\x01\xfe\x02")
    assert compile_sql92("a > 5").test(b"a\x01\xff\x02") == 3


@pytest.mark.parametrize(
    ("expression", "plain"),
    [
        ("a = 1 -- one\n AND b = 2", "a = 1 AND b = 2"),
        ("a = '--x\n' -- text\r\n", "a = '--x\n'"),
        ("a = '''--\n--''' -- text\r", "a = '''--\n--'''"),
        ("/* -- */ a = 1 -- x /* \n/* y */", "a = 1"),
        ("-- first\n--second\n a = --1", "a = --1"),
        ("a = 1 --\n", "a = 1"),
        ("a = '\n--'", "a = '\n--'"),  # the text begins before the last end of a line and ends behind it
        ("a = 1 /* \n -- */", "a = 1"),
    ],
)
def test_line_comments_are_blanks(expression: str, plain: str) -> None:
    rows = [{"a": value, "b": "2"} for value in ("1", "--x\n", "'--\n--'", "\n--", "x")]
    found, expected = (
        [compile_sql92(text).matches(encode_properties(row).encode()) for row in rows] for text in (expression, plain)
    )
    assert found == expected and any(found)


def test_a_line_comment_ends_with_its_line() -> None:
    with pytest.raises(FilterExpressionError, match=r"something is missing|not expected"):
        compile_sql92("a = 1 -- no end")


def test_a_wrong_expression_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = "a = = 'parsed once'"
    for _ in range(2):
        with pytest.raises(FilterExpressionError, match="not expected"):
            compile_sql92(wrong)
        monkeypatch.setattr(sql92, "_compile", None)  # would be called
