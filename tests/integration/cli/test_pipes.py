"""`produce` and `consume` in pipes: real processes, interrupted and killed."""

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pytest

from maxq.cli.terminal.ends import ExitCode
from tests.integration.cli.harness import maxq
from tests.integration.cli.test_messages_commands import lines


@contextmanager
def started(*arguments: str, namesrv: str, **streams: int | IO[bytes] | None) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "maxq", *arguments, "-n", namesrv]
    with subprocess.Popen(command, **streams) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


def rest_of(topic: str, group: str, namesrv: str) -> list[str]:
    """What a group has not committed; it is read until nothing comes, for a busy machine may be silent for a second."""
    found: list[str] = []
    while True:
        got = maxq("consume", topic, "--group", group, "--idle", "1", namesrv=namesrv)
        assert got.code == 0, got.err
        if not got.out:
            return found
        found += got.out.splitlines()


def wait_for_lines(topic: str, group: str, count: int, namesrv: str) -> list[str]:
    got = maxq("consume", topic, "--group", group, "--max", str(count), namesrv=namesrv)
    assert got.code == 0, got.err
    return got.out.splitlines()


def test_a_line_is_sent_when_it_comes(namesrv: str) -> None:
    maxq("produce", "Follow", text="0\n", namesrv=namesrv)
    with started("produce", "Follow", namesrv=namesrv, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as producing:
        assert producing.stdin is not None
        for number in (1, 2, 3):
            producing.stdin.write(b"%d\n\n" % number)
            producing.stdin.flush()
            assert str(number) in wait_for_lines("Follow", f"G_follow{number}", number + 1, namesrv)
        producing.stdin.write(b"no end of line")
        producing.stdin.close()
        assert producing.wait(30) == 0
    assert len(wait_for_lines("Follow", "G_follow", 5, namesrv)) == 5


def test_ctrl_c_ends_produce_at_a_terminal(namesrv: str) -> None:
    maxq("produce", "Typed", text="makes the topic\n", namesrv=namesrv)
    ours, theirs = pty.openpty()
    try:
        with started("produce", "Typed", namesrv=namesrv, stdin=theirs, stderr=subprocess.PIPE) as producing:
            os.write(ours, b"typed\n")
            assert "typed" in wait_for_lines("Typed", "G_typed", 2, namesrv)
            producing.send_signal(signal.SIGINT)
            _, err = producing.communicate(timeout=30)
            assert (producing.returncode, err) == (130, b"maxq: interrupted; 1 message acknowledged\n")
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize("more", [[], ["--pop", "--invisible", "1"]], ids=["pull", "pop"])
def test_what_nobody_has_taken_out_of_the_pipe_is_not_committed(namesrv: str, more: list[str]) -> None:
    topic, group = f"Head{len(more)}", f"G_head{len(more)}"
    maxq("produce", topic, text=lines(200), namesrv=namesrv)
    with started(
        "consume", topic, "-g", group, *more, namesrv=namesrv, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as consuming:
        assert consuming.stdout is not None
        first = os.read(consuming.stdout.fileno(), 64 * 1024).decode()
        consuming.stdout.close()
        assert consuming.wait(30) == ExitCode.READER_GONE, "its reader has enough"
        assert consuming.stderr is not None and consuming.stderr.read() == b""
    assert first.count("\n") == 1
    found = set()
    while len(found) < 199:
        found |= set(rest_of(topic, group, namesrv) if not more else wait_popped(topic, group, 199, namesrv))
    assert found == set(lines(200).splitlines()) - {first.rstrip()}


def wait_popped(topic: str, group: str, count: int, namesrv: str) -> list[str]:
    got = maxq("consume", topic, "-g", group, "--pop", "--max", str(count), namesrv=namesrv)
    return got.out.splitlines()


@pytest.mark.parametrize("end", ["kill produce", "kill consume", "interrupt both", "end of input"])
def test_a_copy_loses_nothing_however_it_ends(namesrv: str, end: str) -> None:
    name = end.replace(" ", "_")
    source, copy, group = f"Source_{name}", f"Copy_{name}", f"G_{name}"
    count = 4_000
    for topic, text in ((source, lines(count)), (copy, "makes the topic\n")):
        assert maxq("produce", topic, text=text, namesrv=namesrv).code == 0
    more = ["--max", str(count)] if end == "end of input" else []
    read, write = os.pipe()
    with (
        started("consume", source, "-g", group, "--json", *more, namesrv=namesrv, stdout=write) as consuming,
        started("produce", copy, "--json", namesrv=namesrv, stdin=read, stderr=subprocess.PIPE) as producing,
    ):
        os.close(read)
        os.close(write)
        if not more:
            wait_for_lines(copy, f"{group}_seen", 300, namesrv)
        if end == "kill produce":
            producing.kill()
            assert consuming.wait(30) == ExitCode.READER_GONE
        elif end == "kill consume":
            consuming.kill()
            _, err = producing.communicate(timeout=60)
            whole = producing.returncode == 0  # else the kill met a write that was longer than the pipe had room for
            assert whole or (producing.returncode == 2 and b"ended in the middle of this line" in err), err
        elif end == "interrupt both":
            for process in (consuming, producing):
                process.send_signal(signal.SIGINT)
            assert (consuming.wait(30), producing.wait(30)) == (130, 130)
        else:
            assert (consuming.wait(60), producing.wait(60)) == (0, 0)
    left = set(rest_of(source, group, namesrv))
    copied = set(rest_of(copy, f"{group}_all", namesrv))
    assert left | copied >= set(lines(count).splitlines())
    if end != "kill consume":  # which may die before its first commit
        assert len(left) < count, "something was committed"
    if more:
        assert not left


def test_a_stuck_reader_keeps_nobody_from_interrupting(namesrv: str) -> None:
    maxq("produce", "Stuck", text=lines(20_000), namesrv=namesrv)
    with started("consume", "Stuck", "-g", "G_stuck", namesrv=namesrv, stdout=subprocess.PIPE) as consuming:
        assert consuming.stdout is not None
        taken = b""
        while taken.count(b"\n") < 3_000:  # all at once by now; then it reads no more
            taken += os.read(consuming.stdout.fileno(), 4096)
        time.sleep(0.1)
        consuming.send_signal(signal.SIGINT)
        assert consuming.wait(30) == 130
    left = rest_of("Stuck", "G_stuck", namesrv)
    whole = taken.decode().splitlines()[: taken.count(b"\n")]
    assert len(left) == 20_000 - len(whole) and not set(left) & set(whole)


def test_a_last_line_that_was_cut_is_named_and_not_sent(namesrv: str) -> None:
    got = maxq("produce", "Cut", "--json", text='{"body": "whole"}\n{"body": "cu', namesrv=namesrv)
    assert (got.code, "line 2 is not JSON" in got.err, "ended in the middle of this line" in got.err) == (2, True, True)
    assert "1 message before it sent" in got.err
    assert wait_for_lines("Cut", "G_cut", 1, namesrv) == ["whole"]
    assert rest_of("Cut", "G_cut", namesrv) == []
