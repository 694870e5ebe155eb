"""The root of the command line: its commands, and what becomes of errors.

Exit codes: 0 done; 1 the work failed, or a check found a fault; 2 the command line or a setting is wrong; 130 after
Ctrl-C; 141 when the reader of the output has gone. The last two are what shells give a program that SIGINT or SIGPIPE
ended. What went wrong is one line on standard error.
"""

import sys
from collections.abc import Iterator, Sequence

import typer

from maxq import __version__
from maxq.cli.lazy import Entry, LazyGroup, NearGroup
from maxq.cli.terminal.ends import INTERRUPTED, READER_GONE, drop_unread_output, flush_output
from maxq.cli.terminal.error_text import error_line
from maxq.errors import MaxQError

SUMMARY = "RocketMQ's broker in Python: servers, producing and consuming, administration, stores."
COMMANDS = {
    "standalone": Entry("maxq.cli.commands.servers", "Name server and broker in one process.", "standalone"),
    "namesrv": Entry("maxq.cli.commands.servers", "A name server.", "namesrv"),
    "dledger": Entry("maxq.cli.commands.dledger", "A bare DLedger server (replicated log), and its client."),
    "broker": Entry("maxq.cli.commands.servers", "A broker, or several (--workers).", "broker"),
    "produce": Entry("maxq.cli.commands.messages", "Send lines or JSON as messages.", "produce"),
    "consume": Entry("maxq.cli.commands.messages", "Print a topic's messages as a member of a group.", "consume"),
    "tail": Entry("maxq.cli.commands.messages", "Print what arrives in a topic from now on.", "tail"),
    "admin": Entry("maxq.cli.admin", "mqadmin's commands."),
    "dlq": Entry("maxq.cli.commands.dlq", "Dead letters of consumer groups: list, show, export, redrive."),
    "timer": Entry("maxq.cli.commands.timer", "Messages with a delivery time: list, inspect, cancel."),
    "transaction": Entry("maxq.cli.commands.transaction", "Transactions: list, inspect, resume."),
    "store": Entry("maxq.cli.commands.store", "Look into, check and recover store directories, offline."),
    "sql": Entry("maxq.cli.pipeline.sql", "Ask SQL of topics, consumer groups and store directories (Spark)."),
    "pipeline": Entry("maxq.cli.pipeline.group", "Jobs on Spark: archive, audit, rebuild, replay, trace, stats, dlq."),
    "shell": Entry("maxq.cli.commands.shell", "Take commands one a line, with history and completion."),
    "completion": Entry("maxq.cli.terminal.completion", "Print the script that makes bash or zsh complete commands."),
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
    epilog="maxq version says which release this is, maxq help COMMAND what a command does.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns its exit code."""
    code = 0
    try:
        code = _run(list(arguments))
        flush_output()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # `maxq consume … | head`
        drop_unread_output()
        return READER_GONE
    except OSError as error:  # `maxq … > file` on a disk that is full
        drop_unread_output()
        return code or _fail(f"standard output cannot be written: {error_line(error)}", 1)


def _run(words: list[str]) -> int:
    if words in (["--version"], ["-V"], ["version"]):
        print(f"maxq {__version__}")
        return 0
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    try:
        # Not `group.main`: it makes 1 of a reader that has gone, and 130 of an end of input.
        with group.make_context("maxq", words) as context:
            group.invoke(context)
        return 0
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
        return INTERRUPTED
    except MaxQError as error:
        return _fail(error_line(error), 2 if error.is_wrong_value else 1)
    except BrokenPipeError:
        raise
    except OSError as error:
        return _fail(error_line(error), 1)


def _fail(message: str, code: int, where: str = "maxq") -> int:
    if message:
        print(f"{where}: {' '.join(message.split())}", file=sys.stderr)
    return code
