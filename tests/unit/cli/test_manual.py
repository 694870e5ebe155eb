"""docs/reference/command-line.md and the commands say the same."""

from pathlib import Path

import pytest
import typer

from maxq.cli.admin import ENTRIES
from maxq.cli.app import COMMANDS, group
from maxq.cli.manual import manual

MANUAL = (Path(__file__).parents[3] / "docs/reference/command-line.md").read_text()


@pytest.mark.parametrize(
    ("name", "entry"), [(f"maxq {name}", entry) for name, entry in COMMANDS.items()] + list(ENTRIES.items())
)
def test_every_command_stands_in_the_manual_with_its_summary(name: str, entry) -> None:  # type: ignore[no-untyped-def]
    assert f"| `{name}` | {entry.summary} |" in MANUAL


@pytest.mark.parametrize("name", ["admin", "dlq", "timer", "transaction", "store"])
def test_a_group_lists_its_commands_with_whole_sentences(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    context = typer.Context(group)
    _, listed = group.get_command(context, name).get_help(typer.Context(group, info_name=name)).split("Commands:")
    assert "..." not in listed and listed.count(".\n") + listed.endswith(".") >= 3


def test_the_page_of_all_admin_commands_is_what_they_say_of_themselves() -> None:
    """`python -m maxq.cli.manual > docs/reference/admin-commands.md` makes it anew."""
    page = Path(__file__).parents[3] / "docs/reference/admin-commands.md"
    assert page.read_text() == manual()
