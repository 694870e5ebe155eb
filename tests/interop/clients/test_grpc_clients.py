"""RocketMQ's official clients of 5.x, unmodified, against a broker's gRPC server: Python (PyPI) and Java (Maven)."""

import asyncio
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from maxq import Standalone
from maxq.aio import Admin
from maxq.protocol.body.topic_config import TopicConfig
from tests.interop.conftest import or_skip
from tests.interop.processes import peers

pytestmark = pytest.mark.interop

PYTHON_DRIVER = Path(__file__).parents[1] / "processes" / "grpc_python_driver.py"
SETTINGS = {"recallMessageEnable": "true", "transactionTimeOut": "500", "transactionCheckInterval": "1000"}
TYPES = {"normal": "NORMAL", "fifo": "FIFO", "delay": "DELAY", "recall": "DELAY", "transaction": "TRANSACTION",
         "push": "NORMAL"}  # fmt: skip
SECONDS = 180

#: (what, topic) → what the client printed.
Run = Callable[[str, str], Any]


@pytest.fixture(scope="module")
def server() -> Iterator[Standalone]:
    with Standalone(settings=SETTINGS, grpc_port=0) as server:
        yield server


def _printed(command: list[str]) -> Any:
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    for line in done.stdout.splitlines():
        if line.startswith("@@"):
            return json.loads(line[2:])
    raise AssertionError(f"the client ended with {done.returncode}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")


@pytest.fixture(scope="module", params=["python", "java", "java-tls"])
def run(request: pytest.FixtureRequest, server: Standalone) -> Run:
    """Has a client do one thing with a new topic of the right type."""
    if request.param == "python":
        program = [str(or_skip(peers.grpc_python_client)), str(PYTHON_DRIVER)]
    else:
        classpath = or_skip(peers.grpc_java_client)
        program = ["java", "-cp", f"{classpath}/*:{classpath}", "GrpcDriver"]

    def run(what: str, topic: str) -> Any:
        name = f"{topic}-{request.param}"
        asyncio.run(_make(server, name, TYPES[what]))
        keys = ["-tls" if request.param == "java-tls" else "-plain"] if "java" in request.param else ["", ""]
        return _printed([*program, server.grpc_address, *keys, what, f"g-{name}", name])

    return run


async def _make(server: Standalone, topic: str, message_type: str) -> None:
    async with Admin(server.namesrv_address) as admin:
        config = TopicConfig(topic, 4, 4, attributes={"+message.type": message_type})
        await admin.topics.create_in_cluster("DefaultCluster", config)


def test_what_is_sent_arrives(run: Run) -> None:
    told = run("normal", "normal")
    assert sorted(row["body"] for row in told["got"]) == ["0", "1", "2", "3", "hello"]
    (hello,) = [row for row in told["got"] if row["body"] == "hello"]
    assert (hello["id"], hello["tag"], hello["keys"]) == (told["sent"], "green", ["k1"])
    assert (hello["properties"], hello["attempt"]) == ({"colour": "green"}, 1)


def test_messages_of_a_group_arrive_in_order(run: Run) -> None:
    assert run("fifo", "fifo") == [str(number) for number in range(8)]


def test_a_delayed_message_arrives_when_it_is_due(run: Run) -> None:
    assert run("delay", "delay") == {"got": ["late"], "early": False}


def test_transactions_end_as_their_producer_says_also_when_it_is_asked(run: Run) -> None:
    told = run("transaction", "transaction")
    assert told["got"] == ["commit", "open"]
    assert "open" in told["asked"]


def test_a_push_consumer_gets_all_and_what_it_failed_with_again(run: Run) -> None:
    assert run("push", "push") == [["a", 1], ["again", 1], ["again", 2], ["b", 1], ["c", 1]]
