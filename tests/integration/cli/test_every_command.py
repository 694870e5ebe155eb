"""Every command in a pipe, in a pipe that nobody reads, at a terminal and interrupted: how it ends, and what it says.

The commands are forked from a process that has loaded them. `make test` interrupts some, `make hostile` does all of it.
Those that start Spark are in the tables, so that none is forgotten, and are not run here.
"""

import json
import os
import re
import select
import signal
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from maxq.cli.terminal.ends import ExitCode
from maxq.testing.server_process import StandaloneProcess
from tests.forked_commands import ForkedCommand
from tests.integration.cli.every_command import (
    ENDING,
    ENDLESS,
    ON_SPARK,
    REFUSED,
    Surroundings,
    command_of,
    commands,
    input_of,
    takes_json,
)
from tests.integration.cli.harness import at_a_terminal, maxq, run_forked

_QUICK = ("standalone", "namesrv", "broker", "tail", "consume", "admin")
LINES = [(line, code) for table, code in ((ENDING, 0), (REFUSED, 1)) for line in table.split("\n") if line]
#: What users made, and what servers call by numbers.
_THEIRS = {"properties", "body", "keys", "tags", "msgId", "uniqKey", "orderConf", "value"}
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?")


@pytest.fixture(scope="module")
def around(server: StandaloneProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Surroundings]:
    yield Surroundings(server, tmp_path_factory.mktemp("every"))


def test_the_tables_have_every_command() -> None:
    lines = [line for table in (ENDING, REFUSED, ENDLESS, ON_SPARK) for line in table.split("\n") if line]
    assert {command_of(line) for line in lines} == set(commands())


@pytest.mark.slow
@pytest.mark.parametrize(("line", "code"), LINES, ids=[line for line, _ in LINES])
def test_a_command_in_a_pipe_without_a_reader_andat_a_terminal(
    line: str, code: int, around: Surroundings, namesrv: str
) -> None:
    more = ["--json"] if takes_json(command_of(line)) and not line.startswith("produce") else []
    piped = maxq(*around.words(line), *more, text=input_of(line), namesrv=namesrv)
    assert piped.code == 0 if code == 0 else piped.code in (1, 2), piped
    assert "Traceback" not in piped.err
    if code:
        assert piped.out in ("", "[]\n") and piped.err.startswith("maxq") and piped.err.count("\n") == 1, piped
    elif more:
        for value in _json(piped.out):
            assert not list(_numbers_as_text(value)), value
    unread_code, err = _without_reader(around.words(line), input_of(line), namesrv)
    assert unread_code == (ExitCode.READER_GONE if _prints(line, code) else piped.code)
    assert err == "" if unread_code == ExitCode.READER_GONE else "Traceback" not in err
    shown_code, shown = at_a_terminal(around.words(line), input_of(line), namesrv)
    assert (shown_code, "Traceback" in shown) == (piped.code, False), shown
    is_json = line.startswith(("admin topicRoute", "admin allocateMQ", "schema"))  # mqadmin's two print it, too
    assert is_json or not shown.startswith(("{", "[{")), "people read no JSON"


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(line, marks=[] if line.startswith(_QUICK) else pytest.mark.slow)
        for line in ENDLESS.split("\n")
        if line
    ],
)
def test_ctrl_c_ends_what_goes_on(line: str, around: Surroundings, namesrv: str) -> None:
    words = around.words(line)
    read_end, write_end = os.pipe()
    with open(os.devnull, "rb") as nothing:
        environment = dict(os.environ, NAMESRV_ADDR=namesrv)
        process = ForkedCommand(words, (nothing.fileno(), write_end, write_end), environment)
    os.close(write_end)
    with open(read_end, "rb") as said:
        select.select([said], [], [], 60)  # each says when it has begun
        process.send_signal(signal.SIGINT)
        try:
            code = process.wait(60)
        finally:
            process.kill()
        text = said.read().decode()
    is_server = words[0] in ("standalone", "namesrv", "broker", "dledger")
    assert (code, "Traceback" in text) == (0 if is_server else ExitCode.INTERRUPTED, False), text


def _prints(line: str, code: int) -> bool:
    """Does it write to standard output? `produce` says on standard error what it did, `consume` has nothing more."""
    if line.startswith("dledger") and line.endswith("status"):  # those that answered, and why the others did not
        return True
    return code == 0 and not line.startswith(("produce", "consume"))


def _json(text: str) -> list[Any]:
    try:
        return [json.loads(text)]
    except json.JSONDecodeError:  # one value a line
        return [json.loads(line) for line in text.splitlines()]


def _numbers_as_text(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in _THEIRS:
                yield from _numbers_as_text(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from _numbers_as_text(inner, path)
    elif isinstance(value, str) and (_NUMBER.fullmatch(value) or value in ("true", "false")):
        yield f"{path}: {value!r}"


def _without_reader(words: list[str], text: str, namesrv: str) -> tuple[int, str]:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with tempfile.TemporaryFile() as err:
        try:
            code = run_forked(words, write_end, err.fileno(), text=text, namesrv=namesrv)
        finally:
            os.close(write_end)
        err.seek(0)
        return code, err.read().decode()
