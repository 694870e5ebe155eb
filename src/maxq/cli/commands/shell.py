"""`maxq shell`: one command a line, with history and completion.

A line is what would stand behind `maxq`; mqadmin's commands need no `admin` in front. The name server that the shell
was started with is everybody's. Lines from a pipe are a script: they are all run, and the exit code is 1 if one failed.
Ctrl-C, and the end of the script's reader, end the script.
"""

import atexit
import contextlib
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from maxq.cli.admin import ENTRIES
from maxq.cli.app import COMMANDS, run
from maxq.cli.terminal.completion import suggestions
from maxq.cli.terminal.ends import INTERRUPTED, READER_GONE

app = typer.Typer(rich_markup_mode=None)

HISTORY = Path("~/.maxq_history")
HISTORY_LINES = 2_000
_PROMPT = "maxq> "
_ENDS = ("exit", "quit")
_HELP = """
Here mqadmin's commands need no `admin` in front; `help admin` lists them, `help COMMAND` explains one. Tab completes,
the arrows find earlier lines, `exit` or Ctrl-D ends."""


@app.command()
def shell(
    namesrv: Annotated[
        str | None,
        typer.Option("-n", "--namesrvAddr", envvar="NAMESRV_ADDR", help="Name servers, host:port separated by ';'."),
    ] = None,
) -> None:
    """Take commands, one a line, until `exit` or Ctrl-D. Tab completes, the arrows find earlier lines."""
    if namesrv:
        os.environ["NAMESRV_ADDR"] = namesrv
    worst = 0
    for line in _lines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            print(f"maxq: {line!r}: {error}", file=sys.stderr)
            worst = max(worst, 2)
            continue
        if not words:
            continue
        if words[0] in _ENDS:
            break
        code = _run(words)
        if code in (INTERRUPTED, READER_GONE) and not sys.stdin.isatty():
            raise typer.Exit(code)
        worst = max(worst, code)
    if not sys.stdin.isatty() and worst:
        raise typer.Exit(1)


def _run(words: list[str]) -> int:
    if words == ["help"]:
        run(["--help"])
        print(_HELP)
        return 0
    if words[0] == "help":
        words = [*words[1:], "--help"]
    if words[0] == "shell":
        print("maxq: this is the shell already", file=sys.stderr)
        return 2
    return run(expanded(words))


def expanded(words: list[str]) -> list[str]:
    """Return the line in the form in which it would stand behind `maxq`."""
    return ["admin", *words] if words[0] in ENTRIES and words[0] not in COMMANDS else words


def _lines() -> Iterator[str]:
    if not sys.stdin.isatty():
        yield from (line.rstrip("\n") for line in sys.stdin)
        return
    _use_readline()
    while True:
        try:
            yield input(_PROMPT)
        except EOFError:
            print()
            return
        except KeyboardInterrupt:  # forget this line
            print()


def _use_readline() -> None:
    """Set up history and completion, where Python has readline."""
    with contextlib.suppress(ImportError):
        import readline

        path = HISTORY.expanduser()
        with contextlib.suppress(OSError):
            readline.read_history_file(path)
        readline.set_history_length(HISTORY_LINES)
        atexit.register(_save_history, path)
        readline.set_completer_delims(" \t\n")
        readline.set_completer(complete)
        readline.parse_and_bind("tab: complete")


def _save_history(path: Path) -> None:
    import readline

    with contextlib.suppress(OSError):
        readline.write_history_file(path)
        path.chmod(0o600)  # lines may name users and passwords


def complete(incomplete: str, number: int) -> str | None:
    """Return the suggestion of this number; readline's completer."""
    import readline

    before = readline.get_line_buffer()[: readline.get_begidx()]
    found = words_after(before, incomplete)
    return f"{found[number]} " if number < len(found) else None


def words_after(before: str, incomplete: str) -> list[str]:
    """Return the words that may follow the beginning of a line."""
    try:
        words = shlex.split(before)
    except ValueError:
        return []
    if not words:
        names = [*COMMANDS, *ENTRIES, "help", *_ENDS]
        return [name for name in dict.fromkeys(names) if name.startswith(incomplete) and name != "shell"]
    return [suggestion.word for suggestion in suggestions(expanded(words), incomplete)]
