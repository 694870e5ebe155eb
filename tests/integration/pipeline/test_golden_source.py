"""Stores that Java wrote, served by our broker: the rows over the wire are what Java says the queues hold."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

import maxq
from maxq.config.properties import parse_properties
from maxq.pipeline.options.read_options import ReadOptions
from maxq.pipeline.source import files
from maxq.pipeline.source.batch_source import Conditions, plan_batch
from maxq.pipeline.source.scan import read_scan
from tests.unit.store_tools.golden_stores import STORES, expected

SAME = (
    "topic", "physicalOffset", "msgId", "uniqKey", "bodyCrc", "sysFlag", "flag", "bornHost", "storeHost",
    "reconsumeTimes", "preparedTransactionOffset",
)  # fmt: skip


@pytest.fixture(scope="module", params=["clean", "crashed"])
def golden(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, maxq.Standalone]]:
    name: str = request.param
    folder = tmp_path_factory.mktemp(name) / "store"
    shutil.copytree(STORES / name, folder, ignore=shutil.ignore_patterns("expected.json", "broker.conf", "damage.json"))
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    conf = parse_properties((STORES / name / "broker.conf").read_bytes(), source="broker.conf")
    sizes = {key: text for key, text in conf.items() if key.startswith(("mapp", "max"))}
    settings = sizes | {"brokerName": conf["brokerName"], "fileReservedTime": "1000000"}  # what is there stays
    with maxq.Standalone(folder, settings=settings) as server:
        yield name, server


def rows_of(server: maxq.Standalone, queues: dict[str, list[int]], **more: str) -> list[dict[str, Any]]:
    assign = json.dumps({topic: {"broker-g": ids} for topic, ids in queues.items()})
    given = {"rocketmq.namesrv": server.namesrv_address, "assign": assign} | more
    options = ReadOptions.parse(given, streaming=False)
    parts = plan_batch(options, Conditions())
    assert "storePath" not in more or any(part.files for part in parts)
    return [row for part in parts for batch in read_scan(options, part) for row in batch.to_pylist()]


def test_rows_are_what_java_says_the_queues_hold(golden: tuple[str, maxq.Standalone]) -> None:
    name, server = golden
    told = expected(name)
    records = {row["physicalOffset"]: row for row in told["records"]}
    wanted = {}
    for queue in told["queues"]:
        plain = queue["topic"].startswith("Gd_") and queue["type"] == "SimpleCQ"
        units = [unit for unit in queue["units"] if records[unit[1]]["queueOffset"] == unit[0]] if plain else []
        if units:
            wanted[queue["topic"], queue["queueId"]] = units
    topics: dict[str, list[int]] = {}
    for topic, queue_id in wanted:
        topics.setdefault(topic, []).append(queue_id)
    # what comes behind was delivered by our broker: delayed messages that are due
    found = [row for row in rows_of(server, topics) if row["physicalOffset"] < told["maxPhyOffset"]]
    rows = {(row["topic"], row["queueId"], row["queueOffset"]): row for row in found}
    assert len(rows) == len(found)
    assert rows.keys() == {(*queue, unit[0]) for queue, units in wanted.items() for unit in units}
    assert len(rows) > 100
    for (topic, queue_id), units in wanted.items():
        for offset, physical_offset, *_ in units:
            row, record = rows[topic, queue_id, offset], records[physical_offset]
            assert {key: row[key] for key in SAME} == {key: record.get(key) for key in SAME}
            assert hashlib.md5(row["body"]).hexdigest() == record["bodyMd5"]
            assert dict(row["properties"]) == record["properties"]
            assert (row["tags"], row["keys"]) == (
                record["properties"].get("TAGS"),
                record["properties"]["KEYS"].split() if "KEYS" in record["properties"] else row["keys"],
            )
            for column in ("bornTimestamp", "storeTimestamp"):
                assert row[column] == datetime.fromtimestamp(record[column] / 1000, UTC)


@pytest.mark.parametrize("dense", [0.0, 1.1])
def test_files_that_java_wrote_give_the_rows_of_the_wire(
    golden: tuple[str, maxq.Standalone], monkeypatch: pytest.MonkeyPatch, dense: float
) -> None:
    name, server = golden
    monkeypatch.setattr(files, "_DENSE", dense)
    topics: dict[str, list[int]] = {}
    for queue in expected(name)["queues"]:
        if queue["topic"].startswith("Gd_"):
            topics.setdefault(queue["topic"], []).append(queue["queueId"])

    def rows(**more: str) -> list[str]:
        found = rows_of(server, topics, **more)
        return sorted(repr(row) for row in found if row["physicalOffset"] < expected(name)["maxPhyOffset"])

    assert rows(readFrom="files", storePath=str(server.store)) == rows()
