"""Compaction topics and ConsumeQueueExt go from one broker to the other and back, in each other's files."""

import time
from pathlib import Path

import pytest

from tests.interop.processes.java_driver import JavaDriver
from tests.interop.processes.servers import Broker, JavaBroker, MaxqBroker, MaxqNamesrv, free_port_base

pytestmark = pytest.mark.interop
SETTINGS = {
    "compactionMappedFileSize": "20000",
    "compactionCqMappedFileSize": "4600",
    "compactionScheduleInternal": "500",
    "enableConsumeQueueExt": "true",
    "mappedFileSizeConsumeQueueExt": "4096",
}
KEYS, COUNT = 10, 200
KEPT, TAGGED = "Kept", "Tagged"


class Store:
    """One store, and the broker that has it now."""

    def __init__(self, driver: JavaDriver, jars: Path, folder: Path, namesrv: str) -> None:
        self._driver = driver
        self._jars = jars
        self._folder = folder
        self._namesrv = namesrv
        self._port = free_port_base()
        self.broker: Broker | None = None

    def start(self, kind: str) -> None:
        self.stop()
        if kind == "java":
            self.broker = JavaBroker(self._folder, self._port).start(self._jars, self._namesrv, SETTINGS)
        else:
            self.broker = MaxqBroker(self._folder, self._port).start(self._namesrv, SETTINGS)

    def stop(self) -> None:
        if self.broker is not None:
            self.broker.stop()
            self.broker = None

    def create(self, topic: str, *attributes: str) -> None:
        said = self._driver.mqadmin(
            "updateTopic", "-n", self._namesrv, "-c", "DefaultCluster", "-t", topic, "-r", "1", "-w", "1", *attributes
        )
        assert "success" in said, said

    def send(self, text: str) -> None:
        with self._driver.client("kindsProducer", group="PG_store", namesrv=self._namesrv) as name:
            rows = self._driver.call(
                "kindsSend", name=name, topic=KEPT, count=COUNT, keyCount=KEYS, text=text, size=100
            )
        assert {row.get("status") for row in rows} == {"SEND_OK"}, rows[0]
        for tag in ("TagA", "TagB"):
            self._driver.send(self._namesrv, TAGGED, 5, text=f"{text}-{tag}", tag=tag)

    def kept(self) -> list[tuple[int, str, str]]:
        """What is kept: (queue offset, key, which sending)."""
        options = {"namesrv": self._namesrv, "broker": "broker-a", "route": KEPT, "group": "CG_store"}
        rows = self._driver.call("pullQueue", name=f"pull-{time.monotonic_ns()}", topic=KEPT, **options)
        return [(row["queueOffset"], row["keys"], row["body"].split("|")[0]) for row in rows]

    def compacted(self, most: int) -> list[tuple[int, str, str]]:
        """The same when fewer than `most` are left."""
        deadline = time.monotonic() + 60
        while len(rows := self.kept()) >= most and time.monotonic() < deadline:
            pass
        assert len(rows) < most
        return rows

    def tagged(self, group: str, count: int) -> list[str]:
        rows = self._driver.consume(self._namesrv, TAGGED, count, group=group, expression="TagB")
        return sorted(row["body"] for row in rows)


@pytest.mark.parametrize(("first", "second"), [("ours", "java"), ("java", "ours")])
def test_the_other_broker_goes_on_with_what_one_compacted(
    driver: JavaDriver, jars: Path, tmp_path: Path, first: str, second: str
) -> None:
    namesrv = MaxqNamesrv(tmp_path / "namesrv", free_port_base()).start()
    store = Store(driver, jars, tmp_path / "broker", namesrv.address)
    try:
        store.start(first)
        store.create(KEPT, "-a", "+cleanup.policy=COMPACTION")
        store.create(TAGGED)
        store.send("one")
        written = store.compacted(COUNT)
        assert any((tmp_path / "broker" / "store" / "consumequeue_ext").rglob("0" * 20))
        store.start(second)
        assert {row[1] for row in store.kept()} == {f"key-{n}" for n in range(KEYS)}
        assert max(store.kept()) == max(written)
        store.send("two")
        newest = {key: text for _, key, text in store.compacted(COUNT + len(written))}
        assert newest == {f"key-{n}": "two" for n in range(KEYS)}
        tagged = store.tagged(f"CG_{second}", 10)
        assert len(tagged) == 10 and all("TagB" in body for body in tagged)
        store.start(first)
        assert {key: text for _, key, text in store.kept()} == newest
        assert store.tagged(f"CG_{first}_again", 10) == tagged
    finally:
        store.stop()
        namesrv.stop()
