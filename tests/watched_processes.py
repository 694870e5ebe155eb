"""The servers that tests start by `ServerProcess` are watched, as those are that run in the process of the tests.

A test during which something kept a loop from everything else for too long fails, whoever started the server. What a
server does when it is stopped after its last test is told at the end of the run.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from maxq.testing.server_process import ServerProcess


@pytest.fixture(scope="session", autouse=True)
def file_of_holds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What tests/watched_server.py writes its lines into."""
    file = tmp_path_factory.mktemp("holds") / "holds"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ServerProcess, "command", (sys.executable, "-m", "tests.watched_server"))
        patch.setenv("MAXQ_HOLDS", str(file))
        yield file
    assert_nothing_held(file)


@pytest.fixture(autouse=True)
def no_process_held_its_loop(file_of_holds: Path) -> Iterator[None]:
    """AssertionError if one did since the test before."""
    yield
    assert_nothing_held(file_of_holds)


def assert_nothing_held(file: Path) -> None:
    """Take what the file says away; AssertionError if it says anything."""
    if file.exists():
        lines = file.read_text().splitlines()
        file.unlink()
        raise AssertionError(f"something held the loop of a server, by request or task: {', '.join(lines[:20])}")
