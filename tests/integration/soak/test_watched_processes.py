"""A server that a test starts as a process of its own makes the test fail if something holds its loop."""

import subprocess
import sys
from pathlib import Path

import pytest

from maxq.testing.server_process import StandaloneProcess
from tests.watched_processes import assert_nothing_held

HOLDING = """
import time
from maxq.runtime import holds
from maxq.runtime.files.system import SystemClock
from tests.watched_server import WatchedHolds
found = WatchedHolds(SystemClock())
for cause, seconds in (("short", 0.001), ("long", 1.0)):
    began = found.now()
    while found.now() - began < seconds * 1e9:
        pass
    found.ended(cause, began)
"""


def test_what_holds_a_loop_in_another_process_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "holds"
    monkeypatch.setenv("MAXQ_HOLDS", str(file))
    assert_nothing_held(file)
    subprocess.run([sys.executable, "-c", HOLDING], check=True)
    with pytest.raises(AssertionError, match=r"held the loop of a server, by request or task: long \d+ ms$"):
        assert_nothing_held(file)
    assert_nothing_held(file)


@pytest.mark.parametrize("started", ["forked", "cold"])
def test_a_standalone_server_of_a_test_is_watched(
    started: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if started == "cold":
        request.getfixturevalue("started_cold")
    monkeypatch.setenv("MAXQ_HOLDS", str(tmp_path / "holds"))
    monkeypatch.setenv("MAXQ_HOLDS_MS", "0")
    with StandaloneProcess() as server:
        command = Path(f"/proc/{server.pid}/cmdline").read_bytes().split(b"\0")
    assert (b"tests.watched_server" in command) == (started == "cold")
    with pytest.raises(AssertionError, match=r"held the loop of a server"):
        assert_nothing_held(tmp_path / "holds")
