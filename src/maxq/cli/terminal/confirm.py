"""Commands that change much ask first, or take --yes."""

import sys
from typing import Annotated

import typer

from maxq.cli.terminal.ends import ExitCode
from maxq.errors import ConfigError

Yes = Annotated[bool, typer.Option("-y", "--yes", help="Do not ask first.")]


def confirm(question: str, *, yes: bool) -> None:
    """Continue only if a person, or --yes, confirms.

    Raises:
        ConfigError: standard input is not a terminal, so nobody can be asked. typer.Exit: the answer was no; code 1.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(f"{question} Nobody can be asked here: give --yes")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        sys.stderr.write("maxq: nothing was changed\n")
        raise typer.Exit(ExitCode.FAILED)
