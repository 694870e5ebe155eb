"""The root of the command line: its commands, and what becomes of errors.

An error is one line on standard error; the exit codes are those of `terminal.ends.ExitCode`.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import typer

from maxq import __version__
from maxq.cli.connection_variables import scoped_variables
from maxq.cli.lazy import Entry, LazyGroup, NearGroup
from maxq.cli.terminal.ends import ExitCode, drop_unread_output, flush_output
from maxq.cli.terminal.error_text import error_line
from maxq.errors import MaxQError

SUMMARY = "RocketMQ's broker in Python: servers, producing and consuming, administration, stores."
#: Heading in the help → command → its module, one line about it, and its name in the module if that has several.
_SECTIONS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "Servers": {
        "standalone": ("commands.servers", "Name server and broker in one process.", "standalone"),
        "namesrv": ("commands.servers", "A name server.", "namesrv"),
        "broker": ("commands.servers", "A broker, or several (--workers).", "broker"),
        "proxy": ("commands.proxy", "A gRPC proxy in front of the brokers of a cluster.", "proxy"),
        "dledger": ("commands.dledger", "A bare DLedger server (replicated log), and its client."),
    },
    "Messages": {
        "produce": ("commands.messages", "Send lines or JSON as messages.", "produce"),
        "consume": ("commands.messages", "Print a topic's messages as a member of a group.", "consume"),
        "tail": ("commands.messages", "Print what arrives in a topic from now on.", "tail"),
    },
    "Administration": {
        "admin": ("admin", "mqadmin's commands."),
        "dlq": ("commands.dlq", "Dead letters of consumer groups: list, show, export, redrive."),
        "timer": ("commands.timer", "Messages with a delivery time: list, inspect, cancel."),
        "transaction": ("commands.transaction", "Transactions: list, inspect, resume."),
        "context": ("commands.context", "Named connections: add, list, show, use, remove."),
    },
    "Stores": {
        "store": ("commands.store", "Look into, check and recover store directories, offline."),
    },
    "Spark": {
        "sql": ("pipeline.sql", "Ask SQL of topics, consumer groups and store directories (Spark)."),
        "pipeline": ("pipeline.group", "Jobs on Spark: archive, audit, rebuild, replay, trace, stats, dlq."),
    },
    "Shell": {
        "shell": ("commands.shell", "Take commands one a line, with history and completion."),
        "schema": ("commands.schema", "The JSON schema of a command's output with --json."),
        "completion": ("terminal.completion", "Print the script that makes a shell complete commands."),
    },
}
COMMANDS = {
    name: Entry(f"maxq.cli.{module}", summary, command[0] if command else None, section)
    for section, commands in _SECTIONS.items()
    for name, (module, summary, *command) in commands.items()
}


def _commands_of_groups() -> Iterator[str]:
    """Yield every command that has a group's name before it, such as `admin topicList`."""
    context = typer.Context(group)
    for name in COMMANDS:
        command = group.get_command(context, name)
        if isinstance(command, NearGroup):
            yield from (f"{name} {member}" for member in command.list_commands(context))


group = LazyGroup(
    "maxq",
    SUMMARY,
    COMMANDS,
    elsewhere=_commands_of_groups,
    epilog="maxq version prints the release, maxq help COMMAND describes a command.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns its exit code."""
    code: int = ExitCode.DONE
    try:
        with scoped_variables():
            code = _run(list(arguments))
        flush_output()
        return code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:  # `maxq consume … | head`
        drop_unread_output()
        return ExitCode.READER_GONE
    except OSError as error:  # `maxq … > file` on a disk that is full
        drop_unread_output()
        return code or _fail(f"standard output cannot be written: {error_line(error)}", ExitCode.FAILED)


def _run(words: list[str]) -> int:
    if words in (["--version"], ["-V"], ["version"]):
        print(f"maxq {__version__}")
        return ExitCode.DONE
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    try:
        # not `group.main`, which exits with 1 when a reader has gone and with 130 at the end of the input
        with group.make_context("maxq", words) as context:
            group.invoke(context)
        return ExitCode.DONE
    except typer.Exit as error:
        return error.exit_code
    except typer.TyperException as error:  # a wrong command line, whichever way
        message = error.format_message()
        if message.startswith("Usage:"):  # a group without a command: its help
            print(message, file=sys.stderr)
            return error.exit_code
        where = getattr(getattr(error, "ctx", None), "command_path", "maxq")
        return _fail(f"{message.rstrip('.')}; {where} --help explains", error.exit_code, where)
    except typer.Abort:
        return ExitCode.INTERRUPTED
    except MaxQError as error:
        return _fail(error_line(error), ExitCode.WRONG_USE if error.is_wrong_value else ExitCode.FAILED)
    except BrokenPipeError:
        raise
    except OSError as error:
        return _fail(error_line(error), ExitCode.FAILED)
    except UnicodeEncodeError as error:  # only file names can have such bytes
        if error.reason != "surrogates not allowed":
            raise
        return _fail(f"{error.object!r:.80} has bytes that are no UTF-8; correct the argument", ExitCode.WRONG_USE)


def _fail(message: str, code: int, where: str = "maxq") -> int:
    if message:
        print(f"{where}: {' '.join(message.split())}", file=sys.stderr)
    return code
