"""Each exit code, as a shell sees it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from maxq.cli.terminal.ends import MEANINGS, ExitCode

MAXQ = [sys.executable, "-m", "maxq"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["version"], 0),
        (["admin", "topicList", "-n", "127.0.0.1:1"], 1),
        (["admin", "topicStatus"], 2),
        (["nothing"], 2),
        (["admin"], 2),
        (["broker", "--set", "listenPort=x"], 2),
        (["store", "check", "nowhere"], 2),
        (["pipeline", "archive", "verify", "nowhere", "--offline"], 2),
    ],
)
def test_done_failed_and_wrong(words: list[str], code: int, tmp_path: Path) -> None:
    done = subprocess.run([*MAXQ, *words], capture_output=True, text=True, cwd=tmp_path, env=_environment())
    assert done.returncode == code, done.stderr
    assert bool(done.stderr) == bool(code)


def test_interrupted() -> None:
    with subprocess.Popen(
        [*MAXQ, "shell"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_environment()
    ) as running:  # fmt: skip
        assert running.stdin is not None and running.stdout is not None
        running.stdin.write(b"version\n")
        running.stdin.flush()
        assert running.stdout.readline().startswith(b"maxq ")
        running.send_signal(signal.SIGINT)
        assert running.wait(30) == ExitCode.INTERRUPTED == 130


def test_the_reader_has_gone() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with open(write_end, "wb") as unread:
        done = subprocess.run([*MAXQ, "admin", "--help"], stdout=unread, stderr=subprocess.PIPE, env=_environment())
    assert (done.returncode, done.stderr) == (ExitCode.READER_GONE, b"")
    assert done.returncode == 141


def test_each_code_has_a_meaning() -> None:
    assert list(MEANINGS) == list(ExitCode)


def _environment() -> dict[str, str]:
    return dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
