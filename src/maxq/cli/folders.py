"""Folders that a command line names."""

from pathlib import Path

import typer


def folder(text: str | Path) -> Path:
    """A parser: a folder that has a name. The empty one, of a variable that is not set, say, would be the current one.

    Raises:
        typer.BadParameter: it has none.
    """
    if not str(text).strip():
        raise typer.BadParameter(f"{str(text)!r} names no folder; '.' is the current one")
    return Path(text)
