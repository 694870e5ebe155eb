"""`maxq shell`: one command a line, with history and completion.

A line is what would stand behind `maxq`; mqadmin's commands need no `admin` in front. The connection that the shell
was started with is that of every line. Lines from a pipe are a script: they are all run, and the exit code is 1 if one
failed. Ctrl-C, and the end of the script's reader, end the script.
"""

import atexit
import contextlib
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import typer

from maxq.cli.admin import ENTRIES
from maxq.cli.app import COMMANDS, run
from maxq.cli.connection import AccessKey, ContextName, Namesrv, SecretKey, Tls, found_connection
from maxq.cli.connection_variables import (
    CONTEXT_VARIABLE,
    CREDENTIAL_VARIABLES,
    NAMESRV_VARIABLE,
    TLS_VARIABLE,
    set_variable,
)
from maxq.cli.help_pages import CommandApp
from maxq.cli.terminal.completion import suggestions
from maxq.cli.terminal.ends import ExitCode
from maxq.runtime.home import home

app = CommandApp()

HISTORY = ".maxq_history"  # in the user's home
HISTORY_LINES = 2_000
_PROMPT = "maxq> "
_ENDS = ("exit", "quit")
_HELP = """
Here mqadmin's commands need no `admin` in front; `help admin` lists them, `help COMMAND` explains one. Tab completes,
the arrows find earlier lines, `exit` or Ctrl-D ends."""


@app.command()
def shell(
    namesrv: Namesrv = None,
    context: ContextName = None,
    access_key: AccessKey = None,
    secret_key: SecretKey = None,
    tls: Tls = None,
) -> None:
    """Take commands, one a line, until `exit` or Ctrl-D. Tab completes, the arrows find earlier lines.

    The options of the connection hold for all lines that have none of their own.
    """
    # raises if the options are unusable, before any line is read
    found_connection(namesrv, context, access_key, secret_key, tls)
    if context is not None:  # a named context replaces the environment
        for variable in (NAMESRV_VARIABLE, TLS_VARIABLE, *CREDENTIAL_VARIABLES.values()):
            set_variable(variable, "")
        set_variable(CONTEXT_VARIABLE, context)
    given = {NAMESRV_VARIABLE: namesrv, TLS_VARIABLE: tls}
    given |= {CREDENTIAL_VARIABLES["access_key"]: access_key, CREDENTIAL_VARIABLES["secret_key"]: secret_key}
    for variable, value in given.items():
        if value:
            set_variable(variable, value)
    worst: int = ExitCode.DONE
    for line in _lines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            print(f"maxq: {line!r}: {error}", file=sys.stderr)
            worst = max(worst, ExitCode.WRONG_USE)
            continue
        if not words:
            continue
        if words[0] in _ENDS:
            break
        code = _run(words)
        if code in (ExitCode.INTERRUPTED, ExitCode.READER_GONE) and not sys.stdin.isatty():
            raise typer.Exit(code)
        worst = max(worst, code)
    if not sys.stdin.isatty() and worst:
        raise typer.Exit(ExitCode.FAILED)


def _run(words: list[str]) -> int:
    if words == ["help"]:
        run(["--help"])
        print(_HELP)
        return ExitCode.DONE
    if words[0] == "help":
        words = [*words[1:], "--help"]
    if words[0] == "shell":
        print("maxq: this is the shell already", file=sys.stderr)
        return ExitCode.WRONG_USE
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
        except KeyboardInterrupt:  # drops the line that was being typed
            print()


def _use_readline() -> None:
    """Set up history and completion, where Python has readline."""
    with contextlib.suppress(ImportError):
        import readline

        path = home() / HISTORY
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
