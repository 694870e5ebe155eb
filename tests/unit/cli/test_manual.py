"""docs/reference/command-line.md and the commands say the same."""

import re
from pathlib import Path

import pytest
import typer

from maxq.cli.admin import ENTRIES
from maxq.cli.app import COMMANDS, group
from maxq.cli.lazy import Entry
from maxq.cli.manual import manual
from maxq.cli.terminal.ends import MEANINGS

DOCS = Path(__file__).parents[3] / "docs" / "reference"
PAGE = (DOCS / "command-line.md").read_text()


def _sections(part: str) -> dict[str, list[str]]:
    """Heading → rows of the table below it."""
    found = re.findall(r"^\*\*(.+)\*\*\n\n\| command \| what \|\n\|---\|---\|\n((?:\|.*\n)+)", part, re.MULTILINE)
    return {title: rows.splitlines() for title, rows in found}


def _rows(entries: dict[str, Entry], before: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, entry in entries.items():
        found.setdefault(entry.section, []).append(f"| `{before}{name}` | {entry.summary} |")
    return found


def test_the_manual_has_the_commands_in_the_sections_of_the_help() -> None:
    first, _, rest = PAGE.partition("## Connection")
    assert _sections(first) == _rows(COMMANDS, "maxq ")
    assert _sections(rest) == _rows(ENTRIES, "")


def test_the_manual_has_the_exit_codes() -> None:
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", PAGE, re.MULTILINE)
    assert rows == [(str(int(code)), meaning.replace("|", "\\|")) for code, meaning in MEANINGS.items()]


@pytest.mark.parametrize("name", ["dlq", "timer", "transaction", "store", "context"])
def test_a_group_lists_its_commands_with_whole_sentences(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    context = typer.Context(group)
    _, listed = group.get_command(context, name).get_help(typer.Context(group, info_name=name)).split("Commands:")
    assert "..." not in listed and listed.count(".\n") + listed.endswith(".") >= 3


def test_the_page_of_all_admin_commands_is_what_they_say_of_themselves() -> None:
    """`python -m maxq.cli.manual` makes it anew."""
    assert (DOCS / "admin-commands.md").read_text() == manual()
