"""Stores whose log ends in the middle of a record, or in rubbish, as a loss of power leaves them.

Each broker opens what the other wrote, finds every whole message, no more and no less, and goes on where the log is
whole.
"""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.harness import maxq
from tests.interop.processes.java_driver import JavaDriver
from tests.interop.processes.servers import Broker, JavaBroker, MaxqBroker, MaxqNamesrv, free_port_base

pytestmark = pytest.mark.interop

TOPIC = "Torn"
SIZE = 3000  # larger ones are compressed
LOG_FILE = 512 << 10
FIRST, MORE = 240, 20  # the first fill one file of log and a part of the next
SETTINGS = {"mappedFileSizeCommitLog": str(LOG_FILE)}
HEADER = 40  # bytes that are left of a record's 91 before its topic
RUBBISH = 5_000  # more than a record

Record = dict[str, Any]
Bodies = Counter[str]


class TornStore:
    """One store, and what is whole in it."""

    def __init__(self, folder: Path, driver: JavaDriver, jars: Path) -> None:
        self._folder = folder / "broker"
        self._driver = driver
        self._jars = jars
        self._names = MaxqNamesrv(folder / "namesrv", free_port_base()).start()
        self._port = free_port_base()
        self._broker: Broker | None = None
        self._sent = 0
        self._asked = 0
        self.whole = Bodies()

    def start(self, kind: str) -> None:
        namesrv = self._names.address
        if kind == "java":
            self._broker = java = JavaBroker(self._folder, self._port)
            java.start(self._jars, namesrv, SETTINGS)
        else:
            self._broker = ours = MaxqBroker(self._folder, self._port)
            ours.start(namesrv, SETTINGS)

    def kill(self) -> None:
        if self._broker is not None:
            self._broker.kill()

    def stop(self) -> None:
        assert self._broker is not None
        self._broker.stop()

    def close(self) -> None:
        self.kill()
        self._names.stop()

    def log_file(self, offset: int) -> Path:
        return self._folder / "store" / "commitlog" / f"{offset - offset % LOG_FILE:020d}"

    def check(self) -> tuple[int, str]:
        """Exit code and words of `maxq store check`."""
        done = maxq("store", "check", str(self._folder / "store"), "-c", str(self._folder / "broker.conf"))
        return done.code, done.out + done.err

    def send(self, count: int) -> None:
        self._sent += 1
        text = f"sending-{self._sent}"
        rows = self._driver.send(self._names.address, TOPIC, count, "async", text=text, size=SIZE)
        assert {row["status"] for row in rows} == {"SEND_OK"}
        self.whole.update(f"{text}|{number}|".ljust(SIZE, "x") for number in range(count))

    def last_record(self) -> Record:
        """As the log has it; it is one of the messages that were sent."""
        listed = maxq("store", "messages", str(self._folder / "store"), "--json")
        assert listed.code == 0, listed.err
        record: Record = json.loads(listed.out.splitlines()[-1])
        assert record["topic"] == TOPIC
        return record

    def body_at(self, record: Record) -> str:
        start = record["physicalOffset"] % LOG_FILE
        content = self.log_file(record["physicalOffset"]).read_bytes()[start : start + record["size"]]
        begin = content.index(b"sending-")
        return content[begin : begin + SIZE].decode()

    def write(self, offset: int, content: bytes) -> None:
        """Into the log, as far as its file goes."""
        with open(self.log_file(offset), "r+b") as file:
            file.seek(offset % LOG_FILE)
            file.write(content[: LOG_FILE - offset % LOG_FILE])

    def received(self) -> list[Record]:
        """What a new group of Java's push consumer gets, in the order of the queues."""
        rows = self._driver.consume(self._names.address, TOPIC, self.whole.total(), group=self._group())
        return sorted(rows, key=lambda row: (row["queueId"], row["queueOffset"]))

    def queue_sizes(self) -> dict[int, int]:
        """Queue id → how many messages Java's pull consumer finds up to its end."""
        found = self._driver.call("digests", namesrv=self._names.address, topic=TOPIC, group=self._group())
        return {int(queue): count for queue, (count, _) in found.items()}

    def _group(self) -> str:
        self._asked += 1
        return f"CG_torn_{self._asked}"

    def found_by_key(self, row: Record) -> bool:
        said = self._driver.mqadmin("queryMsgByKey", "-n", self._names.address, "-t", TOPIC, "-k", row["keys"])
        return row["msgId"] in said


def cut_in_its_body(store: TornStore) -> int:
    """Where the log is whole up to."""
    return _cut(store, SIZE // 2)


def cut_in_its_header(store: TornStore) -> int:
    return _cut(store, HEADER)


def _cut(store: TornStore, left: int) -> int:
    record = store.last_record()
    store.whole -= Counter([store.body_at(record)])
    store.write(record["physicalOffset"] + left, bytes(record["size"] - left))
    return int(record["physicalOffset"])


def rubbish_behind_it(store: TornStore) -> int:
    record = store.last_record()
    end = record["physicalOffset"] + record["size"]
    store.write(end, random.Random(end).randbytes(RUBBISH))
    return int(end)


TAILS = (cut_in_its_body, cut_in_its_header, rubbish_behind_it)


@pytest.fixture
def store(driver: JavaDriver, jars: Path, tmp_path: Path) -> Iterator[TornStore]:
    running = TornStore(tmp_path, driver, jars)
    yield running
    running.close()


def assert_whole(store: TornStore) -> None:
    """Every whole message is there once, queue offsets have no gap, and the last one is found by its key."""
    rows = store.received()
    assert Bodies(row["body"] for row in rows) == store.whole
    offsets: dict[int, list[int]] = {}
    for row in rows:
        offsets.setdefault(row["queueId"], []).append(row["queueOffset"])
    assert offsets == {queue: list(range(len(found))) for queue, found in offsets.items()}
    assert store.queue_sizes() == {queue: len(found) for queue, found in offsets.items()}
    assert store.found_by_key(max(rows, key=lambda row: row["physicalOffset"]))


@pytest.mark.parametrize("tear", TAILS, ids=lambda tear: tear.__name__)
@pytest.mark.parametrize(("first", "second"), [("ours", "java"), ("java", "ours")])
def test_the_other_broker_goes_on_where_a_torn_log_is_whole(
    store: TornStore, first: str, second: str, tear: Callable[[TornStore], int]
) -> None:
    store.start(first)
    store.send(FIRST)
    store.kill()
    end = tear(store)
    code, said = store.check()
    assert code == 1 and store.log_file(end).name in said and str(end % LOG_FILE) in said, said

    store.start(second)
    assert_whole(store)
    store.send(MORE)
    store.kill()
    tear(store)

    store.start(first)
    assert_whole(store)
    store.send(MORE)
    assert_whole(store)
    store.stop()
    code, said = store.check()
    damaged = {line.partition("/")[0] for line in said.splitlines() if "/" in line and ": byte " in line}
    if first == "java":  # its recovery drops index files of after the checkpoint, and enters again only what it scans
        damaged.discard("index")
    else:
        assert code == 0, said
    assert not damaged, said
