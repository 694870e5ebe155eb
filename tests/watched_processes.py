"""The servers that tests start by `ServerProcess` are watched, as those are that run in the process of the tests.

They are forked from a process that has loaded MaxQ (tests/forked_commands.py), but for those of `started_cold`.

A test during which something kept a loop from everything else for too long fails, whoever started the server. What a
server does when it is stopped after its last test is told at the end of the run.
"""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import pytest

from maxq.testing.server_process import ServerProcess
from tests.forked_commands import ForkedCommand, forked_server

_launch_as_it_is = ServerProcess.launch


@pytest.fixture(scope="session", autouse=True)
def file_of_holds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What tests/watched_server.py writes its lines into."""
    file = tmp_path_factory.mktemp("holds") / "holds"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ServerProcess, "launch", _launch)
        patch.setenv("MAXQ_HOLDS", str(file))
        yield file
    assert_nothing_held(file)


@pytest.fixture(autouse=True)
def no_process_held_its_loop(file_of_holds: Path) -> Iterator[None]:
    """AssertionError if one did since the test before."""
    yield
    assert_nothing_held(file_of_holds)


@pytest.fixture
def started_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of this test are started as users start them, by a new Python each, and watched."""
    command = (sys.executable, "-m", "tests.watched_server")
    monkeypatch.setattr(ServerProcess, "launch", _launch_as_it_is)
    monkeypatch.setattr(ServerProcess, "command", command)


def _launch(server: ServerProcess, arguments: Sequence[str], log: IO[bytes]) -> ForkedCommand:
    return forked_server(arguments, log.fileno(), has_input=server.standard_input == subprocess.PIPE)


def assert_nothing_held(file: Path) -> None:
    """Take what the file says away; AssertionError if it says anything."""
    if file.exists():
        lines = file.read_text().splitlines()
        file.unlink()
        raise AssertionError(f"something held the loop of a server, by request or task: {', '.join(lines[:20])}")
