"""The short form of fuzz/time_fuzzer.py: no parser takes more than linear time, whatever the shape of its input."""

import re

import pytest
from fuzz.run import Finding
from fuzz.time_fuzzer import PARSERS, SHORT_SIZE, Parser, check, main, repeated, sizes

from tests.short_form import times


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.name)
def test_eight_times_the_input_takes_about_eight_times_as_long(parser: Parser) -> None:
    for name in parser.shapes:
        for size in sizes(min(parser.limit, SHORT_SIZE))[::3][: times(3)]:
            check(parser, name, size)


def test_a_quadratic_parser_is_found() -> None:
    """At one of the sizes: a machine that stands still in the shorter run of a comparison hides it at that size."""
    never_ends = re.compile(rb"-[^\n]*\n")
    slow = Parser("slow", lambda data: never_ends.findall(data), 1 << 20, None, {"dashes": repeated(b"-")})
    with pytest.raises(Finding, match="slow, dashes"):
        for size in (16_384, 12_288, 20_480, 16_384):
            check(slow, "dashes", size)


def test_the_command_prints_the_slowest_shape(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--parser", "PROXY line"]) == 0
    assert "PROXY line" in capsys.readouterr().out
