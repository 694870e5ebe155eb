"""What Java's clients trace is what our pipeline reads: tests/data/trace/java-clients.json came from here."""

import collections
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.harness import maxq
from tests.interop.processes.java_driver import JavaDriver
from tests.interop.processes.servers import MaxqBroker, MaxqNamesrv, free_port_base, stopping
from tests.pipeline import naive_trace

pytestmark = pytest.mark.interop

TRACES = "Traces"
CAPTURED = Path(__file__).parents[2] / "data" / "trace" / "java-clients.json"
FIELDS = ("body", "bornHost", "brokerName", "queueId", "queueOffset", "storeTimestamp")


@pytest.fixture(scope="module")
def namesrv(scratch: Path) -> Iterator[str]:
    """Of a broker of ours."""
    server = MaxqNamesrv(scratch / "namesrv", free_port_base()).start()
    with stopping(server):
        broker = MaxqBroker(scratch / "broker", free_port_base()).start(server.address)
        with stopping(broker):
            yield server.address


def test_traces_of_java_clients_have_the_form_that_is_read(driver: JavaDriver, namesrv: str, scratch: Path) -> None:
    records: list[dict[str, Any]] = []
    found: list[dict[str, Any]] = []
    reader = driver.client("consumer", group="readers", namesrv=namesrv, topic=TRACES, expression="*")
    with traced_traffic(driver, namesrv) as sent, reader as name:
        while missing(records, sent):  # how many trace messages there are is the clients' business
            before = len(found)
            found = driver.call("received", name=name, count=before + 1, seconds=30)
            assert len(found) > before, missing(records, sent)
            records = [record for row in found for record in naive_trace.parse(row["body"].encode())]
    assert not [record for record in records if "fault" in record]
    for msg_id in sent:  # what Java's clients wrote is what our command tells
        told = json.loads(maxq("admin", "queryMsgTraceById", "-i", msg_id, "-t", TRACES, "--json", namesrv=namesrv).out)
        assert {row["traceType"] for row in told} >= {"Pub", "SubBefore", "SubAfter"}, told
        assert {row["groupName"] for row in told} <= {"PG", "TG", "CG"}
    rows = [{**row, "brokerName": "broker-a"} for row in found]
    captured = [{name: row[name] for name in FIELDS} for row in sorted(rows, key=lambda row: row["storeTimestamp"])]
    (scratch / CAPTURED.name).write_text(json.dumps(captured, indent=1))
    kept = [record for row in json.loads(CAPTURED.read_text()) for record in naive_trace.parse(row["body"].encode())]
    assert {record["kind"] for record in kept} == {record["kind"] for record in records}


@contextlib.contextmanager
def traced_traffic(driver: JavaDriver, namesrv: str) -> Iterator[set[str]]:
    """Five messages, a batch of three, a transaction committed and one rolled back; all but that consumed, each after a
    failure. Gives the ids without those of the batch, whose consumption Java's clients do not trace: brokers write no
    region on messages of batches. The clients stay, for one that ends drops traces."""
    where = {"namesrv": namesrv, "traceTopic": TRACES}
    with contextlib.ExitStack() as stack:
        producer = stack.enter_context(driver.client("producer", group="PG", **where))
        plain = driver.call("send", name=producer, topic="Traced", count=5, mode="sync", text="plain", tag="a")
        batch = driver.call("send", name=producer, topic="Traced", count=3, mode="batch", text="batch")
        transactional = stack.enter_context(driver.client("transactionProducer", group="TG", **where))
        ended = driver.call("sendInTransaction", name=transactional, topic="Traced", texts=["c", "r"])
        ids = {row["msgId"] for row in plain} | {ended[0]["msgId"]}
        batched = set(batch[0]["msgId"].split(","))
        reading = {"topic": "Traced", "expression": "*", "failTimes": 1, "retryLevel": 1}
        consumer = stack.enter_context(driver.client("consumer", group="CG", **reading, **where))
        received = driver.call("received", name=consumer, count=2 * len(ids | batched), seconds=60)
        assert {row["msgId"] for row in received} == ids | batched
        yield ids


def missing(records: list[dict[str, Any]], ids: set[str]) -> dict[str, set[str]]:
    """What is not traced yet, by kind: sends, ends of transactions, and consumptions with their ends."""
    there: dict[str, set[str]] = collections.defaultdict(set)
    for record in records:
        there[record["kind"]].update(record["messageId"].split(","))
    wanted = dict.fromkeys(("Pub", "SubBefore", "SubAfter"), ids)
    found = {kind: expected - there[kind] for kind, expected in wanted.items()}
    return {kind: absent for kind, absent in found.items() if absent} | (
        {} if len(there["EndTransaction"]) == 2 else {"EndTransaction": there["EndTransaction"]}
    )
