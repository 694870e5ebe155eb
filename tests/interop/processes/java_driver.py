"""Talks to `java/Driver.java`: RocketMQ's own Java clients and mqadmin in one JVM."""

import contextlib
import itertools
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.interop.processes.servers import SMALL_HEAP, java_command

_names = itertools.count(1)


class DriverError(Exception):
    """The Java side threw; the text is the exception's."""


class JavaDriver:
    """One JVM. Every call is one line there and one line back."""

    def __init__(self, jars: Path, classes: Path, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._log = open(home / "driver.log", "wb")  # noqa: SIM115
        heap = (*SMALL_HEAP, "-Drocketmq.client.logUseSlf4j=false", f"-Drocketmq.client.logRoot={home}/logs")
        self._process = subprocess.Popen(
            java_command(f"{classes}:{jars}/*", home, heap, "Driver"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=home,  # mqadmin's consumerStatus writes files where it stands
            text=True,
            encoding="utf-8",
        )
        self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("@@"):
                answer = json.loads(line[2:])
                if "error" in answer:
                    raise DriverError(answer["error"])
                return answer.get("result")
        raise DriverError(f"the driver's JVM ended with {self._process.wait()}; see {self._log.name}")

    def call(self, op: str, **arguments: Any) -> Any:
        """One operation of Driver.java; its result."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"op": op, **arguments}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    @contextlib.contextmanager
    def client(self, op: str, **arguments: Any) -> Iterator[str]:
        """A running producer, consumer or pull consumer; gives the name by which later calls know it."""
        name = f"client-{next(_names)}"
        self.call(op, name=name, **arguments)
        try:
            yield name
        finally:
            self.call("close", name=name)

    def send(self, namesrv: str, topic: str, count: int, mode: str = "sync", **arguments: Any) -> list[dict[str, Any]]:
        """Messages `text|number|` through a producer of their own."""
        options = {key: arguments.pop(key) for key in ("tls", "vip") if key in arguments}
        with self.client("producer", group=f"PG_{topic}", namesrv=namesrv, **options) as producer:
            return list(
                self.call("send", name=producer, topic=topic, count=count, mode=mode, **{"text": topic, **arguments})
            )

    def consume(self, namesrv: str, topic: str, count: int, **arguments: Any) -> list[dict[str, Any]]:
        """What a push consumer of a group of its own gets within 60 s."""
        options = {"group": f"CG_{topic}", "expression": "*", **arguments}
        with self.client("consumer", namesrv=namesrv, topic=topic, **options) as consumer:
            return list(self.call("received", name=consumer, count=count, seconds=60))

    def mqadmin(self, *arguments: str) -> str:
        """The text that one mqadmin command prints; exceptions it prints itself are in it."""
        return str(self.call("mqadmin", args=list(arguments)))

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()


def read_store(jars: Path, classes: Path, store: Path, home: Path, *settings: str) -> dict[str, Any]:
    """What Java's DefaultMessageStore holds after opening (and recovering) a store directory; see StoreReader.java."""
    home.mkdir(parents=True, exist_ok=True)
    command = java_command(f"{classes}:{jars}/*", home, SMALL_HEAP, "StoreReader", str(store), *settings)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    for line in done.stdout.splitlines():
        if line.startswith("@@"):
            return dict(json.loads(line[2:]))
    raise AssertionError(f"StoreReader ended with {done.returncode}:\n{done.stdout[-3000:]}")
