"""`maxq …` in a process that is forked from one that has loaded MaxQ: two thirds of what a start costs is saved.
`pytest …` is forked in the same way.

A process of its own, with streams, environment, signals and an exit code as after a start of Python. It is no child of
the process that starts it but of the one that has loaded the modules, which waits for it and tells its exit code: so
no zombie is left of one that nobody has waited for yet. How commands and servers start without that is tested where
`maxq_cold`, `python -m maxq` and tests/watched_server.py are run.

Importing this loads nothing of MaxQ: the process that forks does that, by tests/forked_preload.py.
"""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import IO

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.forked_preload"])
_STREAMS = 3


class ForkedCommand:
    """A command that runs: `maxq` unless another module is named. It has what `subprocess.Popen` has for those that
    wait for a process and end it.

    Args:
        streams: standard input, output and error, which stay the caller's to close.
        environment: the whole of it; None is that of this process.
        cwd: None is that of this process.
        new_session: in a session of its own, out of reach of signals for this process's group.
        module: `maxq` or `pytest`.
    """

    stdin: IO[bytes] | None = None

    def __init__(
        self,
        arguments: Sequence[str],
        streams: Sequence[int],
        environment: Mapping[str, str] | None = None,
        *,
        cwd: Path | None = None,
        new_session: bool = False,
        module: str = "maxq",
    ) -> None:
        self.args = [module, *arguments]
        own = dict(os.environ if environment is None else environment)
        sent = [Connection(os.dup(stream)) for stream in streams]
        command = (self.args, own, str(cwd or Path.cwd()), new_session, sent)
        # A daemon, as multiprocessing has it: it is ended with this process, which does not wait for it.
        self._process = _FORKS.Process(target=_become, args=command, daemon=True)
        self._process.start()
        for stream in sent:
            stream.close()
        pid = self._process.pid
        assert pid is not None, "it was started"
        self.pid = pid
        self._asking = threading.Lock()
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, minus the signal that ended it, or None while it runs."""
        with self._asking:
            if self.returncode is None:
                self.returncode = self._process.exitcode
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code when it has ended.

        Raises:
            subprocess.TimeoutExpired: it runs after `timeout` seconds.
        """
        if self.poll() is None:
            wait([self._process.sentinel], timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def forked_server(arguments: Sequence[str], log: int, *, has_input: bool) -> "ForkedCommand":
    """Start a server whose output goes to `log`; with `has_input`, `stdin` of the result is a pipe to it."""
    if not has_input:
        with open(os.devnull, "rb") as nothing:
            return ForkedCommand(arguments, (nothing.fileno(), log, log))
    read_end, write_end = os.pipe()
    try:
        server = ForkedCommand(arguments, (read_end, log, log))
    finally:
        os.close(read_end)
    server.stdin = open(write_end, "wb")  # noqa: SIM115  # as long as the server
    return server


def _become(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    cwd: str,
    new_session: bool,
    streams: Sequence[Connection],
) -> None:
    """In the forked process: do what a new Python does for `python -m`, with these arguments."""
    if new_session:
        os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream.fileno(), number)
        stream.close()
    os.closerange(_STREAMS, 64)  # of the process that forks, and how it tells of ends
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it, and so its children
    sys.stdin = os.fdopen(0, closefd=False)  # multiprocessing has put /dev/null in its place
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", 1, closefd=False)  # of these streams
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.chdir(cwd)
    sys.argv = list(arguments)
    sys.path.insert(0, cwd)
    if arguments[0] == "pytest":
        import pytest

        sys.exit(pytest.console_main())
    from maxq.__main__ import main

    sys.exit(main())
