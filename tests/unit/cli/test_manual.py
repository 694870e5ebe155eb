"""docs/command-line.md and the commands say the same."""

from pathlib import Path

import pytest

from maxq.cli.admin import ENTRIES
from maxq.cli.app import COMMANDS

MANUAL = (Path(__file__).parents[3] / "docs" / "command-line.md").read_text()


@pytest.mark.parametrize(
    ("name", "entry"), [(f"maxq {name}", entry) for name, entry in COMMANDS.items()] + list(ENTRIES.items())
)
def test_every_command_stands_in_the_manual_with_its_summary(name: str, entry) -> None:  # type: ignore[no-untyped-def]
    assert f"| `{name}` | {entry.summary} |" in MANUAL
