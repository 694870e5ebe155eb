"""The command line as a user calls it: processes, their output and exit codes."""

import contextlib
import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from maxq.__main__ import main
from maxq.cli.admin import ENTRIES
from maxq.cli.app import COMMANDS

_SECONDS = 60


@dataclass(frozen=True)
class Outcome:
    """What one command printed and how it ended."""

    code: int
    out: str
    err: str


def maxq(
    *arguments: str,
    text: str = "",
    namesrv: str = "",
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Outcome:
    """Run `maxq …` to its end, in a process of its own; `namesrv` goes into NAMESRV_ADDR, unless the whole
    `environment` is given.

    The process is forked from one that has loaded the commands, which is four fifths of what most of them do; how they
    start without that, `maxq_cold` and tests/unit/cli/test_cold_start.py show.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        code = run_forked(
            arguments, out.fileno(), err.fileno(), text=text, namesrv=namesrv, cwd=cwd, environment=environment
        )
        assert code >= 0, f"maxq {' '.join(arguments)}: killed by signal {-code}"
        return Outcome(code, _content(out), _content(err))


def run_forked(
    arguments: Sequence[str],
    out: int,
    err: int,
    *,
    text: str = "",
    namesrv: str = "",
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> int:
    """The same with the given streams; returns how the process ended, as subprocess does."""
    read_end, write_end = os.pipe()
    own = _environment(namesrv) if environment is None else environment
    process = forked(arguments, (read_end, out, err), own, cwd)
    os.close(read_end)
    writer = threading.Thread(target=_write, args=(write_end, text.encode()))
    writer.start()
    process.join(_SECONDS)
    if process.exitcode is None:
        process.kill()
        process.join()
    writer.join()
    code = process.exitcode
    process.close()
    assert code is not None, "it was killed at the latest"
    return code


def forked(
    arguments: Sequence[str], streams: Sequence[int], environment: Mapping[str, str], cwd: Path | None = None
) -> ForkServerProcess:
    """Start `maxq …` with these three streams, which stay the caller's to close."""
    sent = [Connection(os.dup(stream)) for stream in streams]
    process = _FORKS.Process(target=_command, args=(arguments, environment, cwd, sent))
    process.start()
    for stream in sent:
        stream.close()
    return process


def at_a_terminal(words: Sequence[str], text: str, namesrv: str) -> tuple[int, str]:
    """Standard output and error are a terminal; what it showed."""
    ours, theirs = os.openpty()
    shown: list[bytes] = []

    def read() -> None:
        try:
            while data := os.read(ours, 64 * 1024):
                shown.append(data)
        except OSError:  # nobody has the other end any more
            return

    reader = threading.Thread(target=read)
    reader.start()
    try:
        code = run_forked(words, theirs, theirs, text=text, namesrv=namesrv)
    finally:
        os.close(theirs)
        reader.join()
        os.close(ours)
    return code, b"".join(shown).decode()


def maxq_cold(*arguments: str, namesrv: str = "") -> Outcome:
    """The same as a new Python, which loads what it needs."""
    command = [sys.executable, "-m", "maxq", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=_environment(namesrv), timeout=_SECONDS)
    return Outcome(done.returncode, done.stdout, done.stderr)


def load_commands() -> None:
    """What most commands need, for `_FORKS`."""
    on_spark = ("sql", "pipeline")
    for entry in (*(entry for name, entry in COMMANDS.items() if name not in on_spark), *ENTRIES.values()):
        importlib.import_module(entry.module)


def _environment(namesrv: str) -> dict[str, str]:
    """What a command's environment is: without the contexts of whoever runs the tests."""
    own = {"NAMESRV_ADDR": namesrv} if namesrv else {}
    return {**os.environ, "XDG_CONFIG_HOME": _SETTINGS.name, **own}


def _command(
    arguments: Sequence[str], environment: Mapping[str, str], cwd: Path | None, streams: Sequence[Connection]
) -> None:
    """In the forked process: become `maxq`."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what it starts in the background
    for number, stream in enumerate(streams):
        os.dup2(stream.fileno(), number)
        stream.close()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it, and so its children
    sys.stdin = os.fdopen(0, closefd=False)  # multiprocessing has put /dev/null in its place
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", 1, closefd=False)  # of these streams
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    if cwd is not None:
        os.chdir(cwd)
    sys.argv = ["maxq", *arguments]
    sys.exit(main())


def _write(pipe: int, data: bytes) -> None:
    """Standard input of a command, which may end without having read it."""
    with contextlib.suppress(BrokenPipeError), open(pipe, "wb") as file:
        file.write(data)


def _content(file: "tempfile._TemporaryFileWrapper[bytes]") -> str:
    file.seek(0)
    return file.read().decode()


_SETTINGS = tempfile.TemporaryDirectory(prefix="maxq-settings-")
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.integration.cli.preloaded"])
