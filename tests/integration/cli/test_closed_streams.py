"""Standard streams that are closed, or whose disk is full: what a command says, and that nothing counts as done."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from maxq.testing.server_process import facts_of
from tests.integration.cli.every_command import free_port
from tests.integration.cli.harness import maxq
from tests.interop.processes.servers import wait_until

CLOSED = "maxq: standard input or standard output is closed\n"
FULL = "maxq: standard output cannot be written: [Errno 28] No space left on device\n"


def shell(line: str, namesrv: str = "127.0.0.1:1") -> subprocess.CompletedProcess[str]:
    """A line for a shell in which `maxq` is ours."""
    script = f'maxq() {{ "{sys.executable}" -m maxq "$@"; }}; export NAMESRV_ADDR={namesrv}; {line}'
    return subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("line", "code", "err"),
    [
        ("maxq version >&-", 1, "maxq: standard output cannot be written: " + CLOSED.removeprefix("maxq: ")),
        ("maxq version > /dev/full", 1, FULL),
        ("maxq --help > /dev/full", 1, "maxq: [Errno 28] No space left on device\n"),
        ("maxq nope >&-", 2, "maxq: No such command 'nope'; maxq --help explains\n"),
        ("maxq version <&- >&- 2>&-", 1, ""),
    ],
)
def test_a_command_whose_output_cannot_be_written_says_so(line: str, code: int, err: str) -> None:
    done = shell(line)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", err)


def test_a_closed_input_is_no_empty_one(namesrv: str) -> None:
    done = shell("maxq produce Closed <&-", namesrv)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", CLOSED)


@pytest.mark.parametrize("output", [">&-", "> /dev/full"])
def test_what_could_not_be_written_was_not_consumed(namesrv: str, output: str) -> None:
    topic = f"Unwritten_{output.count('full')}"
    maxq("produce", topic, text="1\n2\n3\n", namesrv=namesrv)
    done = shell(f"maxq consume {topic} -g G_{topic} --from earliest --max 3 {output}", namesrv)
    assert done.returncode == 1 and done.stderr.startswith("maxq: ") and done.stderr.count("\n") == 1
    again = maxq("consume", topic, "-g", f"G_{topic}", "--from", "earliest", "--max", "3", namesrv=namesrv)
    assert sorted(again.out.split()) == ["1", "2", "3"]


def test_a_server_needs_no_streams(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    line = f"exec {sys.executable} -m maxq namesrv -p 0 --ready-file {ready} <&- >&- 2>&-"
    process = subprocess.Popen(["sh", "-c", line], cwd=tmp_path)
    try:
        wait_until(ready.exists, 60, "the name server is ready")
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()


def test_sending_without_servers_names_the_one_that_is_missing(tmp_path: Path) -> None:
    nobody = maxq("produce", "T", text="x\n", namesrv=f"127.0.0.1:{free_port()}")
    assert nobody.code == 1 and "Connection refused; does that server run?" in nobody.err
    ready, log = tmp_path / "ready", tmp_path / "log"
    with open(log, "wb") as out:
        command = [sys.executable, "-m", "maxq", "namesrv", "-p", "0", "--ready-file", str(ready)]
        process = subprocess.Popen(command, stdout=out, stderr=out, cwd=tmp_path)
    try:
        wait_until(ready.exists, 60, "the name server is ready")
        address = f"127.0.0.1:{facts_of(log.read_text())['port']}"
        alone = [maxq("produce", "T", text="x\n", namesrv=address), maxq("tail", "T", namesrv=address)]
        for done in alone:
            assert done.code == 1 and "no broker has registered with that name server: start one" in done.err
    finally:
        process.kill()
        process.wait()


def test_what_the_locale_has_no_character_for_ends_no_command(namesrv: str, tmp_path: Path) -> None:
    """Many consoles still speak Latin-1 or GBK, and names of folders may be any bytes."""
    latin = "PYTHONIOENCODING=latin1"
    sent = shell("echo 'price: 5 €' | maxq produce Latin", namesrv)
    assert sent.returncode == 0, sent.stderr
    printed = shell(f"{latin} maxq admin printMsg -t Latin -d true", namesrv)
    assert printed.returncode == 0 and r"price: 5 \u20ac" in printed.stdout, printed.stderr
    folder = tmp_path / "store\udcff"
    command = [sys.executable, "-m", "maxq", "standalone", "--store", str(folder), "--namesrv-port", "0"]
    environment = {**os.environ, "PYTHONIOENCODING": "latin1"}
    with subprocess.Popen([*command, "--broker-port", "0"], stdout=subprocess.PIPE, env=environment) as server:
        assert server.stdout is not None
        said = server.stdout.readline()
        server.terminate()
    assert said.isascii() and facts_of(said.decode())["store"] == str(folder)
