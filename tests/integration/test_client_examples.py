"""The small programs in examples/clients do what they say, each in a process of its own at a real server."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from maxq.testing.server_process import StandaloneProcess

ROOT = Path(__file__).parents[2]
SETTINGS = {"enablePropertyFilter": "true", "recallMessageEnable": "true"}
#: Program → the last line that it prints.
LAST_LINES = {
    "send_and_poll": "received hello",
    "push_consumer": "all done",
    "asyncio_clients": "100 events received",
    "filter_by_sql": "red and above 100: [110, 130, 150, 170, 190]",
    "delayed_message": "'tea is ready', ",
    "ordered_messages": "10 orders, each in the order created, paid, packed, sent",
    "request_and_reply": "the answer: HOW DO YOU DO",
    "transaction": "delivered: [2, 40]",
}


@pytest.fixture(scope="module")
def server() -> Iterator[StandaloneProcess]:
    with StandaloneProcess(SETTINGS) as running:
        yield running


def test_every_program_is_tried() -> None:
    programs = {file.stem for file in (ROOT / "examples/clients").glob("*.py")}
    assert programs == {*LAST_LINES, "__init__", "test_with_pytest"}


@pytest.mark.parametrize("name", LAST_LINES)
def test_a_program_ends_well(name: str, server: StandaloneProcess) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"examples.clients.{name}"], cwd=ROOT, capture_output=True, text=True, timeout=120,
        env=dict(os.environ, NAMESRV_ADDR=server.namesrv_address),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith(LAST_LINES[name])
    assert not any(word in done.stderr for word in ("Traceback", "RuntimeWarning", "was never awaited"))


def test_the_example_of_pytest_passes() -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n0", "--rootdir", "examples/clients"]
    done = subprocess.run(
        [*command, "examples/clients/test_with_pytest.py"], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
