"""The examples of the pages on the Python client, Arrow and trace, and of the tutorials, do what they say."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from subprocess import PIPE

import pytest

from maxq.api import ConsumeFromWhere, LitePullConsumer, MessageExt
from maxq.standalone import Standalone

DOCS = Path(__file__).parents[3] / "docs"
CLIENT = DOCS / "howto/python-client.md"
ARROW = DOCS / "howto/arrow.md"
TRACE = DOCS / "howto/trace.md"


def examples(page: Path) -> list[tuple[str, str]]:
    """Section → its first example."""
    return re.findall(r"^## ([^\n]+)\n.*?```python\n(.*?)```", page.read_text(), re.DOTALL | re.MULTILINE)


EXAMPLES = examples(CLIENT)
ALL = EXAMPLES + examples(ARROW) + examples(TRACE)
#: Section → the packages of which its example needs one.
NEEDED = {
    "Values as bodies": ("msgspec", "pydantic"),
    "pyarrow": ("pyarrow",),
    "pandas": ("pandas",),
    "Polars": ("polars",),
    "DuckDB": ("duckdb",),
}


def test_every_section_has_an_example() -> None:
    assert [title for title, _ in EXAMPLES] == [
        "Send",
        "Send in a transaction",
        "Values as bodies",
        "Errors, and when to try again",
        "Consume",
        "Receive and acknowledge",
        "Read at will",
        "Start again",
        "Ask",
        "In an event loop",
        "Hooks",
    ]


def test_tables_are_shown_with_every_library_that_is_promised() -> None:
    assert [title for title, _ in examples(ARROW)] == ["pyarrow", "pandas", "Polars", "DuckDB"]


@pytest.mark.parametrize(("title", "code"), ALL, ids=[title for title, _ in ALL])
def test_examples_run(title: str, code: str, namesrv: str, capsys: pytest.CaptureFixture[str]) -> None:
    needed = NEEDED.get(title)
    if needed and not any(map(find_spec, needed)):
        pytest.skip(f"not installed: {' or '.join(needed)} (pip install {needed[0]})")
    assert "127.0.0.1:9876" in code
    exec(compile(code.replace("127.0.0.1:9876", namesrv), title, "exec"), {})


@pytest.mark.parametrize("name", ["transactions.md", "asyncio-consumer.md"])
def test_a_tutorial_prints_what_it_shows(
    name: str, namesrv: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (DOCS / "tutorials" / name).read_text()
    found = re.search(r"```python\n(.*?)```\n\nIt prints[^\n]*:\n\n((?: {4}[^\n]*\n)+)", page, re.DOTALL)
    assert found is not None
    monkeypatch.chdir(tmp_path)
    exec(compile(found[1].replace("127.0.0.1:9876", namesrv), name, "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.split() == found[2].split()


def programs(page: str, namesrv: str) -> list[str]:
    """The programs of a tutorial, for a server at `namesrv`."""
    found = re.findall(r"```python\n(.*?)```", (DOCS / "tutorials" / page).read_text(), re.DOTALL)
    return [code.replace("127.0.0.1:9876", namesrv) for code in found]


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_orders_of_a_tutorial_are_summed_until_the_program_is_stopped(namesrv: str, ending: signal.Signals) -> None:
    _, send_orders, sum_orders = programs("asyncio-consumer.md", namesrv)
    sent = subprocess.run([sys.executable, "-c", send_orders], check=True, capture_output=True, text=True)
    assert sent.stdout == "1000 orders sent\n"
    with subprocess.Popen([sys.executable, "-c", sum_orders], stdout=PIPE, stderr=PIPE, text=True) as summing:
        assert summing.stdout is not None
        for line in summing.stdout:
            if line.startswith("1000 orders"):
                break
        summing.send_signal(ending)
        said, errors = summing.communicate(timeout=60)
    assert (said, errors, summing.returncode) == ("stopped at 1000 orders, sum 499500\n", "", 0)


@pytest.fixture
def impatient() -> Iterator[str]:
    """Address of a name server with a broker that soon asks how a transaction ended."""
    with Standalone(settings={"transactionCheckInterval": "500", "transactionTimeOut": "500"}) as server:
        yield server.namesrv_address


def test_a_payment_of_a_tutorial_is_told_although_its_producer_was_killed(impatient: str, tmp_path: Path) -> None:
    payments, answer = programs("transactions.md", impatient)
    killing = re.search(r"\n\n( {8}import os\n {8}os\.kill[^\n]*\n)", (DOCS / "tutorials/transactions.md").read_text())
    assert killing is not None
    last = "        return LocalTransactionState.COMMIT_MESSAGE\n"
    assert payments.count(last) == 1
    (tmp_path / "payments.py").write_text(payments.replace(last, killing[1] + last))
    (tmp_path / "answer.py").write_text(answer)
    killed = subprocess.run([sys.executable, "payments.py"], cwd=tmp_path, check=False, capture_output=True)
    assert killed.returncode == -signal.SIGKILL
    consumer = LitePullConsumer("tellers", impatient, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    told: list[MessageExt] = []
    with subprocess.Popen([sys.executable, "answer.py"], cwd=tmp_path) as answering, consumer:
        consumer.subscribe("Payments")
        while not told and answering.poll() is None:
            told = consumer.poll(1000)
        answering.kill()
    assert [message.body for message in told] == [b"alice paid 40"]
