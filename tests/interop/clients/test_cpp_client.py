"""RocketMQ's C++ client (PyPI `rocketmq` 0.4.4, which bundles it), unmodified, against every mixture of servers."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.interop.conftest import Deployment
from tests.interop.processes.java_driver import JavaDriver
from tests.interop.processes.servers import JavaBroker

pytestmark = pytest.mark.interop
COUNT = 20
DRIVER = Path(__file__).parents[1] / "processes" / "cpp_driver.py"


def cpp(
    package: Path, deployment: Deployment, what: str, topic: str, home: Path, count: int = COUNT
) -> list[dict[str, Any]]:
    """One run of cpp_driver.py; it writes its logs below `home`."""
    home.mkdir(exist_ok=True)
    command = [sys.executable, str(DRIVER), str(package), deployment.namesrv, what, topic, str(count)]
    done = subprocess.run(
        command, env={"HOME": str(home), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, timeout=120
    )
    for line in done.stdout.splitlines():
        if line.startswith("@@"):
            return list(json.loads(line[2:]))
    raise AssertionError(f"the C++ client ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")


@pytest.fixture(scope="module")
def sent_by_cpp(cpp_package: Path, deployment: Deployment, scratch: Path) -> list[dict[str, Any]]:
    """Twenty messages of topic Cpp."""
    return cpp(cpp_package, deployment, "send", "Cpp", scratch / "cpp-send")


def test_cpp_producer_is_acknowledged(sent_by_cpp: list[dict[str, Any]]) -> None:
    assert [row["status"] for row in sent_by_cpp] == [0] * COUNT
    assert len({row["msgId"] for row in sent_by_cpp}) == COUNT


@pytest.mark.parametrize("how", ["consume", "orderly"])
def test_cpp_consumer_gets_every_message(
    how: str, sent_by_cpp: list[dict[str, Any]], cpp_package: Path, deployment: Deployment, scratch: Path
) -> None:
    rows = cpp(cpp_package, deployment, how, "Cpp", scratch / f"cpp-{how}")
    assert sorted(row["body"] for row in rows) == sorted(f"Cpp|{number}|" for number in range(COUNT))
    assert {(row["tags"], row["topic"]) for row in rows} == {("cpp", "Cpp")}


def test_java_consumer_reads_what_cpp_sent(
    sent_by_cpp: list[dict[str, Any]], deployment: Deployment, driver: JavaDriver
) -> None:
    rows = driver.consume(deployment.namesrv, "Cpp", COUNT, group="CG_java_of_cpp")
    assert sorted(row["keys"] for row in rows) == sorted(f"Cpp-key-{number}" for number in range(COUNT))


def test_cpp_pull_consumer_reads_what_java_sent(
    cpp_package: Path, deployment: Deployment, driver: JavaDriver, scratch: Path
) -> None:
    driver.send(deployment.namesrv, "JavaToCpp", COUNT)
    rows = cpp(cpp_package, deployment, "pull", "JavaToCpp", scratch / "cpp-pull")
    assert sorted(row["body"] for row in rows) == sorted(f"JavaToCpp|{number}|" for number in range(COUNT))


def test_cpp_client_sends_and_gets_what_kinds_it_knows(
    cpp_package: Path, deployment: Deployment, driver: JavaDriver, scratch: Path
) -> None:
    """It has no transactions and no expressions in SQL92."""
    where = ("-n", deployment.namesrv, "-c", "DefaultCluster")
    assert "success" in driver.mqadmin("updateTopic", *where, "-t", "CppKinds", "-r", "4", "-w", "4")
    once = [*(f"order-{n}" for n in range(4)), "delayed", "fails", "oneway"]
    rows = cpp(cpp_package, deployment, "kinds", "CppKinds", scratch / "cpp-kinds", len(once) + 1)
    assert sorted(row["body"] for row in rows) == sorted([*once, "fails"])
    in_order = [row for row in rows if row["tags"] == "order"]
    assert len({row["queueId"] for row in in_order}) == 1
    assert [row["body"] for row in sorted(in_order, key=lambda row: row["queueOffset"])] == once[:4]
    (delayed,) = (row for row in rows if row["body"] == "delayed")
    assert delayed["waited"] >= 1000
    assert sorted(row["times"] for row in rows if row["body"] == "fails") == [0, 1]
    assert {row["times"] for row in rows if row["body"] != "fails"} == {0}


def test_a_cpp_batch_is_taken_apart_here_and_is_one_message_at_javas_broker(
    cpp_package: Path, deployment: Deployment, driver: JavaDriver, scratch: Path
) -> None:
    """It writes the header's `batch` as 1, which Java's broker takes for false (docs/reference/message-kinds.md)."""
    where = ("-n", deployment.namesrv, "-c", "DefaultCluster")
    assert "success" in driver.mqadmin("updateTopic", *where, "-t", "CppBatch", "-r", "1", "-w", "1")
    sent = cpp(cpp_package, deployment, "batch", "CppBatch", scratch / "cpp-batch", 3)
    assert [row["status"] for row in sent] == [0]
    if isinstance(deployment.broker, JavaBroker):
        (whole,) = driver.consume(deployment.namesrv, "CppBatch", 1, group="CG_cpp_batch")
        assert all(f"CppBatch|{number}|" in whole["body"] for number in range(3))
    else:
        rows = sorted(
            driver.consume(deployment.namesrv, "CppBatch", 3, group="CG_cpp_batch"), key=lambda row: row["body"]
        )
        assert [row["body"] for row in rows] == [f"CppBatch|{number}|" for number in range(3)]
        assert [row["keys"] for row in rows] == [f"CppBatch-key-{number}" for number in range(3)]
