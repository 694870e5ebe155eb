"""RocketMQ's C++ client (PyPI `rocketmq` 0.4.4, which bundles it), unmodified, against every mixture of servers."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.interop.conftest import Deployment
from tests.interop.java_driver import JavaDriver

pytestmark = pytest.mark.interop
COUNT = 20
DRIVER = Path(__file__).parent / "cpp_driver.py"


def cpp(package: Path, deployment: Deployment, what: str, topic: str, home: Path) -> list[dict[str, Any]]:
    """One run of cpp_driver.py; it writes its logs below `home`."""
    home.mkdir(exist_ok=True)
    command = [sys.executable, str(DRIVER), str(package), deployment.namesrv, what, topic, str(COUNT)]
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
