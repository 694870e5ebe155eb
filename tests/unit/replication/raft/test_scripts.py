"""Stories of the core with recorded output: rules of the Raft paper by section, scenarios of dledger.md §20 by number.

`MAXQ_RECORD=1 pytest tests/unit/replication/raft` writes the output anew; look at the difference before you commit it.
"""

import os
from pathlib import Path

import pytest

from tests.unit.replication.raft.scripted import ScriptedGroup

SCRIPTS = sorted((Path(__file__).parents[3] / "data" / "raft").glob("*.txt"))
MARK = "----"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script_tells_what_was_recorded(path: Path) -> None:
    text = path.read_text()
    told = tell(text)
    if os.environ.get("MAXQ_RECORD"):
        path.write_text(told)
    assert told == text or os.environ.get("MAXQ_RECORD")


def tell(text: str) -> str:
    """The script with the output it has now."""
    group = ScriptedGroup()
    blocks = []
    for block in text.strip().split("\n\n"):
        commands = block.split(MARK)[0].strip().splitlines()
        said = [line for command in commands if not command.startswith("#") for line in group.do(command)]
        blocks.append("\n".join([*commands, MARK, *said]) if said else "\n".join(commands))
    return "\n\n".join(blocks) + "\n"
