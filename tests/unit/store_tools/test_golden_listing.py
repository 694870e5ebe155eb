"""Messages and offsets of every golden store, against what the Java broker said of it."""

from typing import Any

import pytest

from maxq.store.tools.log_walk import LogWalk
from maxq.store.tools.message_lines import messages_of
from maxq.store.tools.offsets import queue_offsets
from maxq.store.tools.store_files import StoreFiles
from tests.unit.store_tools.golden_stores import NAMES, expected, golden_files


def listed(files: StoreFiles) -> tuple[list[dict[str, Any]], LogWalk]:
    walk = LogWalk(files)
    found = [message for batch in walk.batches() for message in messages_of(batch)]
    walk.close()
    return found, walk


@pytest.mark.parametrize("name", NAMES)
def test_messages_are_those_that_java_found(name: str) -> None:
    found, _ = listed(golden_files(name))
    assert found == sorted(found, key=lambda message: message["physicalOffset"])
    by_place = {message["physicalOffset"]: message for message in found}
    for record in expected(name)["records"]:
        record = {key: value for key, value in record.items() if key != "notInAnyQueue"}
        assert by_place.pop(record["physicalOffset"]) == record
    # Java lost the good records behind a flipped byte, and 14 of one DLedger member's messages
    more = {"crashed-flip": 29, "dledger/n0": 14}
    assert len(by_place) == more.get(name, 0)


@pytest.mark.parametrize("name", NAMES)
def test_log_ends_where_java_found_its_end(name: str) -> None:
    _, walk = listed(golden_files(name))
    if name == "crashed-flip":
        assert walk.end_offset == expected("crashed")["maxPhyOffset"]
    else:
        assert walk.end_offset == expected(name)["maxPhyOffset"]
    if not name.startswith("dledger"):
        assert walk.blanks == expected("crashed" if name == "crashed-flip" else name)["blankRecords"]


#: Stores of which Java's own answer is wrong, and the store that has the right one (see the golden README).
RIGHT_ANSWER = {
    "crashed-flip": "crashed",
    "crashed-no-index": "crashed-no-index-no-checkpoint",
    "dledger/n0": "dledger/n1",
}


@pytest.mark.parametrize("name", NAMES)
def test_offsets_are_those_that_java_found(name: str) -> None:
    found = [queue.to_json() for queue in queue_offsets(golden_files(name))]
    right = expected(RIGHT_ANSWER.get(name, name))["queues"]
    wanted = [{key: queue[key] for key in ("topic", "queueId", "minOffset", "maxOffset")} for queue in right]
    assert found == sorted(wanted, key=lambda queue: (queue["topic"], queue["queueId"]))


def test_damage_is_named_by_file_and_position() -> None:
    _, walk = listed(golden_files("crashed-flip"))
    assert [(fault.file, fault.position) for fault in walk.faults] == [("commitlog/00000000000000262144", 246631)]
    assert "damage of 670 bytes" in walk.faults[0].what
    _, walk = listed(golden_files("crashed-torn"))
    assert [(fault.file, fault.position) for fault in walk.faults] == [("commitlog/00000000000000524288", 8903)]
    assert "torn tail" in walk.faults[0].what
