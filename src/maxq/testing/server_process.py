"""Servers in processes of their own: for tests that kill them, for benchmarks and for the examples.

with StandaloneProcess() as server:
    ...  # clients of server.namesrv_address
    server.kill()
    server.start_again()
"""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar, Self

from maxq.errors import MaxQError

_START_SECONDS = 60
_STOP_SECONDS = 60
_POLL_SECONDS = 0.005
_IS_READY = '{"event": "ready", '


class ServerProcess:
    """`maxq namesrv`, `maxq broker` or `maxq standalone` as a child.

    Args:
        name: of its log (and ready file) in `folder`.
        folder: made if it is not there.
        arguments: of the command, without --ready-file.
    """

    command: ClassVar[Sequence[str]] = (sys.executable, "-m", "maxq")
    standard_input: ClassVar[int] = subprocess.DEVNULL

    def __init__(self, name: str, folder: Path, arguments: Sequence[str]) -> None:
        self.name = name
        self.folder = folder
        self._arguments = list(arguments)
        self._process: subprocess.Popen[bytes] | None = None
        self.facts: dict[str, Any] = {}  # what the server reported when it was ready last
        self.ready_seconds = 0.0  # from starting the command to its ready file

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    @property
    def pid(self) -> int:
        assert self._process is not None, "asked for the pid of a server that was not started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Return whether the process was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Start and wait for the ready file.

        Raises:
            MaxQError: it ended or is not ready within 60 s; the text has the end of its log.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        ready_file = self.folder / f"{self.name}.ready"
        ready_file.unlink(missing_ok=True)
        self.log.touch()
        before = self.log.stat().st_size
        started = time.monotonic()
        with open(self.log, "ab") as log:
            self._process = self.launch([*self.arguments(), "--ready-file", str(ready_file)], log)
        while not ready_file.exists():
            if self._process.poll() is not None or time.monotonic() - started > _START_SECONDS:
                tail = self.log.read_bytes()[before:].decode(errors="replace")[-2000:]
                self.stop()
                raise MaxQError(f"the {self.name} server did not start: {tail}")
            time.sleep(_POLL_SECONDS)
        self.ready_seconds = time.monotonic() - started
        said = self.log.read_bytes()[before:].decode(errors="replace")
        self.facts = facts_of(said)
        return self

    def launch(self, arguments: Sequence[str], log: IO[bytes]) -> "subprocess.Popen[bytes]":
        """Start the command with these arguments, and its output going to `log`."""
        return subprocess.Popen([*self.command, *arguments], stdout=log, stderr=log, stdin=self.standard_input)

    def arguments(self) -> list[str]:
        """Return the arguments to start it with now."""
        return self._arguments

    def kill(self) -> None:
        """Kill the process, as a crash would."""
        assert self._process is not None, "asked to kill a server that was not started"
        self._process.kill()
        self._process.wait()
        self._forget()

    def start_again(self) -> Self:
        """Start the process again after it was killed, with the same store and ports."""
        if self._process is not None:
            self._process.wait()
            self._forget()
        return self.start()

    def stop(self) -> int | None:
        """Shut it down; returns its exit code, or None if it did not run. Files stay."""
        if self._process is None:
            return None
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._forget()
        return code

    def _forget(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class StandaloneProcess(ServerProcess):
    """`maxq standalone` as a child, on a temporary store unless told otherwise.

    Args:
        settings: broker properties for --set. Without grpcServerPort it has no port for gRPC clients.
        folder: where store, log and ready file go; None is a temporary one, deleted at the end.
        namesrv_port, broker_port: 0 takes free ones, which stay the same when it is started again.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        folder: Path | None = None,
        namesrv_port: int = 0,
        broker_port: int = 0,
    ) -> None:
        super().__init__("standalone", folder or Path(tempfile.mkdtemp(prefix="maxq-")), ())
        self._settings = {"grpcServerPort": "0", **(settings or {})}
        self._temporary = folder is None
        self._ports = (namesrv_port, broker_port)

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def namesrv_address(self) -> str:
        return f"127.0.0.1:{self._ports[0]}"

    @property
    def broker_address(self) -> str:
        """Address, host:port, of the broker."""
        return f"127.0.0.1:{self._ports[1]}"

    def start(self) -> Self:
        super().start()
        self._ports = (_port(self.facts["nameServer"]), _port(self.facts["broker"]))
        return self

    def arguments(self) -> list[str]:
        arguments = ["standalone", "--store", str(self.store)]
        arguments += ["--namesrv-port", str(self._ports[0]), "--broker-port", str(self._ports[1])]
        for key, value in self._settings.items():
            arguments += ["--set", f"{key}={value}"]
        return arguments

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)


class MaxQServer(StandaloneProcess):
    """`maxq standalone` for tests: it ends with the process that started it, however that one ends."""

    standard_input: ClassVar[int] = subprocess.PIPE

    def arguments(self) -> list[str]:
        return [*super().arguments(), "--end-with-input"]

    def delete_store(self) -> None:
        """Delete the store of a server that was stopped."""
        shutil.rmtree(self.store, ignore_errors=True)


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def facts_of(text: str) -> dict[str, Any]:
    """Return the facts of the server in `text` that was the last to be ready (maxq.cli.terminal.server_lines), such as
    nameServer or port; empty if no server was."""
    facts: dict[str, Any] = {}
    for line in text.splitlines():
        if line.startswith(_IS_READY):
            facts = json.loads(line)
    return facts
