"""Our slave, given the recorded bytes of a Java master, gets the store that the Java slave got."""

import hashlib
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from maxq.replication.ha.frames import TransferParser
from maxq.store.message_store import MessageStore
from tests.unit.replication.ha.golden_link import (
    SLAVE,
    connections,
    frames,
    log_of,
    master_stream,
)
from tests.unit.store.stores import config_of, opened

SIZES = {"frame by frame": (1 << 20,), "as TCP may cut it": (1, 7, 1000, 30_000)}


def slave(root: Path) -> MessageStore:
    return opened(replace(config_of(root, SLAVE / "broker.conf"), broker_role="SLAVE"))


def feed(store: MessageStore, connection: int, rng: random.Random, sizes: tuple[int, ...]) -> set[int]:
    """All of one connection; what the slave could report on the way."""
    parser, stream = TransferParser(), memoryview(master_stream(connection))
    reported = set()
    while stream:
        part, stream = stream[: (size := rng.choice(sizes))], stream[size:]
        for offset, data in parser.receive_data(part):
            reported.add(store.append_from_master(offset, data))
    store.drop_pending()
    return reported


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("restart", [False, True], ids=["running", "restarted between"])
def test_log_queues_and_index_are_those_of_the_java_slave(
    tmp_path: Path, sizes: tuple[int, ...], restart: bool
) -> None:
    store, rng = slave(tmp_path), random.Random(7)
    ends: set[int] = set()
    for connection in connections():
        ends |= feed(store, connection, rng, sizes)
        if restart:
            store.close()
            store = slave(tmp_path)
    expected = json.loads((SLAVE / "expected.json").read_text())
    assert store.max_physical_offset == expected["maxPhyOffset"]
    for queue in expected["queues"]:
        place = queue["topic"], queue["queueId"]
        assert (store.min_offset(*place), store.max_offset(*place)) == (queue["minOffset"], queue["maxOffset"])
        units = store.queue_units(*place, queue["minOffset"], len(queue["units"]))
        assert [list(unit[:3]) for unit in units] == [unit[1:4] for unit in queue["units"]]
    for query in expected["indexQueries"]:
        found = store.query_message(query["topic"], query["key"], 64, 0, 2**63 - 1)
        assert [int.from_bytes(buffer[28:36], "big") for buffer in found.buffers] == query["physicalOffsets"]
    store.close()
    assert b"".join(path.read_bytes() for path in sorted((tmp_path / "commitlog").iterdir())) == log_of(SLAVE)
    for name, entry in expected["filesAfterCleanShutdown"].items():
        if name.startswith("consumequeue/"):
            assert hashlib.md5((tmp_path / name).read_bytes()).hexdigest() == entry["md5"], name
    index = sorted(hashlib.md5(path.read_bytes()).hexdigest() for path in (tmp_path / "index").iterdir())
    wanted = [entry["md5"] for name, entry in expected["filesAfterCleanShutdown"].items() if name.startswith("index/")]
    assert index == wanted


def test_a_slave_reports_only_ends_of_records(tmp_path: Path) -> None:
    """The Java slave reported whatever it had written; ours vouches for whole records alone."""
    store = slave(tmp_path)
    expected = json.loads((SLAVE / "expected.json").read_text())
    whole = {record["physicalOffset"] + record["size"] for record in expected["records"]}
    file_ends = {0, 262_144}
    rng = random.Random(3)
    for connection in connections():
        assert feed(store, connection, rng, SIZES["as TCP may cut it"]) <= whole | file_ends
    store.close()
    recorded = {frame.offset for frame in frames() if not frame.from_master}
    assert recorded - whole - file_ends  # so Java did
