"""Stores written by RocketMQ 5.3.3: opened here on a copy they recover, list and answer as Java's own export says.

Where Java's answer is not the wanted one (golden README, java-defects.md) the test says what is right instead.
"""

import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from maxq.filter.bloom_filter import BloomFilter, has_bits, set_bits
from maxq.filter.sql92 import compile_sql92
from maxq.protocol.enums import BoundaryType
from maxq.protocol.message.message import MessageExt, decode_record
from maxq.store.message_store import MessageStore
from maxq.store.queue.unit_scan_cy import DAMAGED_TAGS_CODE
from tests.golden import STORES, restore
from tests.unit.store.stores import config_of, new_store

NAMES = [
    "clean", "no-index", "crashed", "crashed-torn", "crashed-flip", "crashed-no-index",
    "crashed-no-index-no-checkpoint", "timer", "lmq-cqext", "ha/master", "ha/slave",
]  # fmt: skip
UNCLEAN_WITH_INDEX = {"crashed", "crashed-torn", "crashed-flip"}  # Java dropped the index of the older messages here
LONG_MAX = 2**63 - 1


class Golden:
    """A working copy, what Java says about it, and our store on it."""

    def __init__(self, name: str, folder: Path, *, without: Sequence[str] = ()) -> None:
        """`without`: folders that are deleted before our store sees them."""
        self.name = name
        self.root = restore(name, folder / "store")
        for deleted in without:
            shutil.rmtree(self.root / deleted)
        self.expected = self._expected(name)
        self.store: MessageStore = new_store(config_of(self.root, self.root / "broker.conf"))
        if name == "lmq-cqext":
            self.store.dispatch.bit_map_of = self._bit_map
        self.report = self.store.load()

    def _bit_map(self, topic: str, record: memoryview) -> bytes:
        """As the broker that wrote the store made them; its filter was registered before the messages came."""
        if topic != "Gd_Sql":
            return b""
        bits = bytearray(14)
        if compile_sql92("a > 4 AND b = 'abc'").matches_record(record, 0, len(record)):
            set_bits(bits, BloomFilter(20, 32).generate("Gd_G_Sql#Gd_Sql"))
        return bytes(bits)

    @staticmethod
    def _expected(name: str) -> dict[str, Any]:
        if name == "crashed-no-index":  # Java lost entries; a rebuild of everything is right
            name = "crashed-no-index-no-checkpoint"
        if name == "crashed-flip":  # Java cut 29 good messages behind the damage
            name = "crashed"
        found: dict[str, Any] = json.loads((STORES / name / "expected.json").read_text(encoding="utf-8"))
        return found

    @property
    def damaged(self) -> set[int]:
        """Physical offsets of messages that cannot be read any more."""
        return {damage.physical_offset for damage in self.report.damages}

    def units(self, topic: str, queue_id: int) -> list[list[int]]:
        batch = self.store.queues.batch_queues.get((topic, queue_id))
        if batch is not None:
            return [[u.base_offset, u.physical_offset, u.size, u.tags_code, u.batch_size] for u in batch.units(0)]
        queue = self.store.queue(topic, queue_id)
        if queue is None:
            return []
        found = []
        for offset in range(self.store.min_offset(topic, queue_id), queue.max_offset):
            unit = queue.unit(offset)
            assert unit is not None
            if unit[2] != DAMAGED_TAGS_CODE:
                found.append([offset, *queue.with_tags(unit), 1])
        return found


@pytest.fixture(params=NAMES)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Golden:
    return Golden(request.param, tmp_path)


def test_queues_records_index_and_times_are_what_java_says(golden: Golden) -> None:
    store, expected = golden.store, golden.expected
    assert store.max_physical_offset == expected["maxPhyOffset"]
    assert golden.report.clean_exit == (not expected["abortFileAtLoad"])
    check_queues(golden)
    check_records(golden)
    check_index(golden)
    check_times(golden)
    store.close()
    check_files(golden)


def check_queues(golden: Golden) -> None:
    for queue in golden.expected["queues"]:
        key = (queue["topic"], queue["queueId"])
        bounds = golden.store.min_offset(*key), golden.store.max_offset(*key)
        if not queue["units"]:
            assert bounds in ((queue["minOffset"], queue["maxOffset"]), (-1, 0))
            continue
        assert bounds == (queue["minOffset"], queue["maxOffset"]), key
        wanted = [[*unit[:4], max(1, unit[4])] for unit in queue["units"] if unit[1] not in golden.damaged]
        assert golden.units(*key) == wanted, key
    known = {(queue["topic"], queue["queueId"]) for queue in golden.expected["queues"]}
    assert {(queue.topic, queue.queue_id) for queue in golden.store.queues if queue.max_offset} <= known


def facts(message: MessageExt) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "size": message.store_size,
        "msgId": message.offset_msg_id,
        "flag": message.flag,
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "bornHost": message.born_host_text,
        "storeHost": message.store_host_text,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "properties": message.properties,
        "storedBodyMd5": hashlib.md5(message.body).hexdigest(),
    }


def check_records(golden: Golden) -> None:
    for record in golden.expected["records"]:
        if record["physicalOffset"] in golden.damaged:
            continue
        view = golden.store.select_one_message(record["physicalOffset"])
        assert view is not None, record["physicalOffset"]
        found = facts(decode_record(view))
        found["properties"].pop("__CRC32#", None)
        assert found == {name: record[name] for name in found}
        assert hashlib.md5(decode_record(view, inflate=True).body).hexdigest() == record["bodyMd5"]


def check_index(golden: Golden) -> None:
    for query in golden.expected["indexQueries"]:
        result = golden.store.query_message(query["topic"], query["key"], 64, 0, LONG_MAX)
        found = [int.from_bytes(buffer[28:36], "big") for buffer in result.buffers]
        wanted = [offset for offset in query["physicalOffsets"] if offset not in golden.damaged]
        if golden.name in UNCLEAN_WITH_INDEX:
            assert set(wanted) <= set(found)
            assert found, query
        else:
            assert found == wanted, query


def check_times(golden: Golden) -> None:
    if golden.damaged:
        return  # Java's export of the whole store does not know the hole
    for entry in golden.expected["offsetByTime"]:
        for name, boundary in (("lower", BoundaryType.LOWER), ("upper", BoundaryType.UPPER)):
            found = golden.store.offset_by_time(entry["topic"], entry["queueId"], entry["timestamp"], boundary)
            assert found == entry[name], (entry, name)


def check_files(golden: Golden) -> None:
    """Rebuilt queue, batch queue and index files are byte-equal to Java's (index files but for their names)."""
    if golden.damaged:
        return
    wanted = golden.expected["filesAfterCleanShutdown"]
    for name, entry in wanted.items():
        if not name.startswith(("consumequeue/", "consumequeue_ext/", "batchconsumequeue/", "commitlog/")):
            continue
        data = (golden.root / name).read_bytes()
        if golden.name == "crashed-torn":
            continue  # Java leaves the torn record and its unit behind the end; ours are zero there
        assert hashlib.md5(data).hexdigest() == entry["md5"], name
    if golden.name not in UNCLEAN_WITH_INDEX:
        mine = sorted(hashlib.md5(path.read_bytes()).hexdigest() for path in (golden.root / "index").glob("*"))
        assert mine == sorted(entry["md5"] for name, entry in wanted.items() if name.startswith("index/"))


def test_one_flipped_byte_costs_one_message_not_thirty(tmp_path: Path) -> None:
    golden = Golden("crashed-flip", tmp_path)
    damage = json.loads((STORES / "crashed-flip" / "damage.json").read_text())
    assert [(found.physical_offset, found.size) for found in golden.report.damages] == [
        (damage["recordPhysicalOffset"], damage["recordSize"])
    ]
    assert damage["file"] in str(golden.report.damages[0])
    assert str(damage["recordPositionInFile"]) in str(golden.report.damages[0])
    lost = [record for record in golden.expected["records"] if record["physicalOffset"] in golden.damaged]
    assert len(lost) == 1
    golden.store.close()


def test_a_torn_record_is_cut(tmp_path: Path) -> None:
    golden = Golden("crashed-torn", tmp_path)
    assert golden.report.cut_bytes > 0
    assert golden.report.damages == []
    golden.store.close()


@pytest.mark.parametrize("name", ["clean", "crashed", "crashed-flip"])
def test_the_second_start_finds_nothing_to_do(name: str, tmp_path: Path) -> None:
    golden = Golden(name, tmp_path)
    golden.store.close()
    again = new_store(golden.store.config)
    report = again.load()
    assert (report.clean_exit, report.dispatched_records, report.faults, report.damages) == (True, 0, [], [])
    again.close()


def test_extension_units_built_anew_are_byte_equal_to_javas(tmp_path: Path) -> None:
    folders = ("consumequeue", "consumequeue_ext")
    golden = Golden("lmq-cqext", tmp_path, without=folders)
    golden.store.close()
    compared = 0
    for folder in folders:
        for path in (STORES / "lmq-cqext" / folder).rglob("0*"):
            if path.is_file():
                assert (golden.root / path.relative_to(STORES / "lmq-cqext")).read_bytes() == path.read_bytes()
                compared += 1
    assert compared == 11


def test_javas_extension_units_are_read(tmp_path: Path) -> None:
    golden = Golden("lmq-cqext", tmp_path)
    queue = golden.store.queue("Gd_Sql", 0)
    assert queue is not None and queue.ext is not None
    bits = BloomFilter(20, 32).generate("Gd_G_Sql#Gd_Sql")
    predicate = compile_sql92("a > 4 AND b = 'abc'")
    for offset in range(queue.max_offset):
        unit = queue.unit(offset)
        assert unit is not None
        found = queue.ext.get(unit[2])
        record = golden.store.select_one_message(unit[0])
        assert found is not None and record is not None
        assert has_bits(found.bit_map, bits) == predicate.matches_record(record, 0, unit[1])
        assert found.store_time == decode_record(record).store_timestamp
    golden.store.close()


def test_tags_of_units_with_extension_addresses_still_match(tmp_path: Path) -> None:
    """Units of a Java store with ConsumeQueueExt carry addresses instead of tags codes: nothing may be lost."""
    golden = Golden("lmq-cqext", tmp_path)
    queue = next(queue for queue in golden.expected["queues"] if queue["topic"] == "Gd_Sql" and queue["units"])
    consume_queue = golden.store.queue("Gd_Sql", queue["queueId"])
    assert consume_queue is not None
    for unit in queue["units"]:
        consume_queue.put_unit(unit[0], (unit[1], unit[2], -(2**63) + 20 * unit[0]))

    class Tags:
        sub_string = "TagX"
        code_set = (12345,)
        expression_type = "TAG"

    result = golden.store.get_message("g", "Gd_Sql", queue["queueId"], 0, 32, Tags())
    assert result.message_count == min(32, len(queue["units"]))
    golden.store.close()
