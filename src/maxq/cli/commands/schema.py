"""`maxq schema`: the JSON schema of what a command prints with --json."""

import difflib
import json
import sys
from typing import Annotated

import typer

from maxq.cli.help_pages import CommandApp
from maxq.cli.json_schemas import SCHEMAS, schema_of
from maxq.errors import ConfigError

app = CommandApp()


@app.command()
def schema(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[COMMAND]...", help="The command, such as: admin topicStatus.")
    ] = None,
) -> None:
    """Print the JSON schema (draft 2020-12) of what a command prints with --json; without a command, list the commands
    that have one."""
    command = " ".join(words or ())
    if not command:
        sys.stdout.writelines(f"{name}\n" for name in sorted(SCHEMAS))
        return
    if command not in SCHEMAS:
        near = difflib.get_close_matches(command, SCHEMAS, n=1)
        remedy = f"did you mean {near[0]}?" if near else "maxq schema lists the commands that have"
        raise ConfigError(f"{command!r:.80} has no --json; {remedy}")
    sys.stdout.write(json.dumps(schema_of(command), indent=2, ensure_ascii=False) + "\n")
