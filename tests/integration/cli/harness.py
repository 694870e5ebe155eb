"""The command line as a user calls it: processes, their output and exit codes."""

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.forked_commands import ForkedCommand

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

    It is forked from a process that has loaded MaxQ (tests/forked_commands.py); how commands start without that,
    `maxq_cold` and tests/unit/cli/test_cold_start.py show.
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
    process = ForkedCommand(arguments, (read_end, out, err), own, cwd=cwd)
    os.close(read_end)
    writer = threading.Thread(target=_write, args=(write_end, text.encode()))
    writer.start()
    try:
        return process.wait(_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
    finally:
        writer.join()


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


def _environment(namesrv: str) -> dict[str, str]:
    """What a command's environment is: without the contexts of whoever runs the tests."""
    own = {"NAMESRV_ADDR": namesrv} if namesrv else {}
    return {**os.environ, "XDG_CONFIG_HOME": _SETTINGS.name, **own}


def _write(pipe: int, data: bytes) -> None:
    """Standard input of a command, which may end without having read it."""
    with contextlib.suppress(BrokenPipeError), open(pipe, "wb") as file:
        file.write(data)


def _content(file: "tempfile._TemporaryFileWrapper[bytes]") -> str:
    file.seek(0)
    return file.read().decode()


_SETTINGS = tempfile.TemporaryDirectory(prefix="maxq-settings-")
