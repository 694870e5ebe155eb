"""docs/explanation/mechanisms.md names every mechanism, and what it names as done exists; so do the tests that
docs/explanation/differences.md names."""

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/explanation/mechanisms.md"

COUNTS = {"HA": 9, "RW": 5, "S": 36, "LR": 13, "BR": 12, "DL": 13}
IDS = [f"{group}-{number:02}" for group, count in COUNTS.items() for number in range(1, count + 1)]


class Row(NamedTuple):
    id: str
    what: str
    modules: list[str]
    tests: list[str]
    state: str


@cache
def rows() -> list[Row]:
    found = []
    for line in PAGE.read_text().splitlines():
        if re.match(r"\| [A-Z]+-\d", line):
            name, what, modules, tests, state = (cell.strip() for cell in line.strip("|").split("|"))
            found.append(Row(name, what, words(modules), words(tests), state))
    return found


def words(cell: str) -> list[str]:
    return [word.strip("` ") for word in cell.split(",") if word.strip("` ")]


def test_every_id_has_one_row() -> None:
    assert [row.id for row in rows()] == IDS


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.id)
def test_a_row_says_what_and_whether_it_is_done(row: Row) -> None:
    assert row.what
    assert row.state in ("done", "planned")
    assert row.state == "planned" or (row.modules and row.tests)


@pytest.mark.parametrize("row", [row for row in rows() if row.state == "done"], ids=lambda row: row.id)
def test_modules_and_tests_of_a_done_row_exist(row: Row) -> None:
    for module in row.modules:
        assert (ROOT / "src" / "maxq" / module).is_file(), module
    for test in row.tests:
        file, _, name = test.partition("::")
        source = (ROOT / "tests" / file).read_text()
        assert not name or re.search(rf"^\s*(async )?def {re.escape(name)}\(", source, re.MULTILINE), test


_ROWS = (ROOT / "docs/explanation/differences.md").read_text().partition("\n## Wall clocks")[0].splitlines()
DIFFERENCES = [line for line in _ROWS if line.startswith("| ") and not line.startswith("| Where |")]


@pytest.mark.parametrize("line", DIFFERENCES, ids=lambda line: line.split("|")[1].strip()[:40])
def test_a_difference_names_the_test_files_that_hold_it(line: str) -> None:
    held_by = re.fullmatch(r"\| .* <!-- (.*) --> \|", line)
    assert held_by
    for test in words(held_by[1]):
        assert (ROOT / test).is_file(), test


def test_there_are_differences() -> None:
    assert len(DIFFERENCES) > 250
