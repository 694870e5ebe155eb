"""A `maxq` command as a process that tests start, pause, kill and ask what it said."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tests.forked_commands import ForkedCommand

START_TIMEOUT_S = 60.0
END_TIMEOUT_S = 30.0
_POLL_S = 0.01


class EndedError(Exception):
    """A process ended that should have gone on; the text is what it said."""


@dataclass
class Process:
    """One `maxq` process, started and ended again and again.

    Attributes:
        command: what runs it, in another network, say; empty: nothing, and it is forked from a process that has
            loaded MaxQ (tests/forked_commands.py).
        module: what is run, with `arguments`, if there is a command.
    """

    name: str
    arguments: list[str]
    ready_file: Path
    command: tuple[str, ...] = ()
    module: str = "tests.watched_server"
    process: "subprocess.Popen[bytes] | ForkedCommand | None" = None
    _log: IO[bytes] = field(default_factory=lambda: tempfile.TemporaryFile("a+b"))  # noqa: SIM115 (as long as the process)

    async def spawn(self) -> None:
        """Start it; it is not ready yet."""
        assert not self.is_running, f"{self.name} runs already"
        self.ready_file.unlink(missing_ok=True)
        self._log.truncate(0)
        self.process = await asyncio.to_thread(self._spawned)

    def _spawned(self) -> "subprocess.Popen[bytes] | ForkedCommand":
        arguments = [*self.arguments, "--ready-file", str(self.ready_file)]
        environment = {**os.environ, "MAXQ_HOLDS": str(self._holds_file)}
        with open(os.devnull, "r+b") as nothing:
            if not self.command:
                streams = (nothing.fileno(), nothing.fileno(), self._log.fileno())
                return ForkedCommand(arguments, streams, environment, new_session=True)
            return subprocess.Popen(
                [*self.command, sys.executable, "-m", self.module, *arguments], stdin=nothing, stdout=nothing,
                stderr=self._log, start_new_session=True, env=environment,
            )  # fmt: skip

    async def ready(self) -> None:
        """Wait until clients can connect."""
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                while not self.ready_file.exists():
                    self.check_alive()
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise EndedError(f"{self.name} was not ready within {START_TIMEOUT_S:g} s: {self.said()}") from None

    async def start(self) -> None:
        await self.spawn()
        await self.ready()

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def check_alive(self) -> None:
        if not self.is_running:
            raise EndedError(f"{self.name} ended by itself: {self.said()}")

    def said(self) -> str:
        """The last of what it wrote to its standard error since its start."""
        return self.log_text().replace("\0", "").strip()[-5000:]

    def log_text(self) -> str:
        """All of it."""
        self._log.seek(0)
        return self._log.read().decode("utf-8", "replace")

    async def kill(self) -> None:
        """kill -9, if it runs."""
        if self.process is not None:
            self.process.kill()
            await self._ended()

    async def stop(self) -> None:
        """SIGTERM, and a clean end.

        Raises:
            EndedError: it ended with an error, or not in time, or something kept its loop from everything else for too
                long since it was made (tests/watched_loop.py).
        """
        self.check_alive()
        assert self.process is not None
        self.process.terminate()
        try:
            code = await asyncio.wait_for(self._ended(), END_TIMEOUT_S)
        except TimeoutError:
            await self.kill()
            code = -1
        if code:
            raise EndedError(f"{self.name} did not end cleanly ({code}): {self.said()}")
        if self._holds_file.exists():
            raise EndedError(f"something held the loop of {self.name}, by request or task: {self._held()}")

    async def _ended(self) -> int:
        """Wait for its end; its exit code."""
        assert self.process is not None
        while (code := self.process.poll()) is None:  # noqa: ASYNC110  # of another process
            await asyncio.sleep(_POLL_S)
        return code

    @property
    def _holds_file(self) -> Path:
        return self.ready_file.with_name(f"{self.ready_file.name}-holds")

    def _held(self) -> str:
        return ", ".join(self._holds_file.read_text().splitlines()[:20])

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self.process is not None and self.is_running
        os.kill(self.process.pid, number)


class StoredProcess(Process):
    """A broker, and the folder of its store."""

    store: Path
