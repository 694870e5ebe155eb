"""The parts of an audit that need no Spark: index files against themselves, logs side by side, what the log expects."""

import shutil
from pathlib import Path, PurePath

import numpy as np
import pyarrow.compute as pc
import pytest

from maxq.config.message_store_config import MessageStoreConfig
from maxq.pipeline.jobs.audit import tasks
from maxq.pipeline.jobs.audit.job import AuditResult, StoreFacts, log_end
from maxq.pipeline.jobs.audit.report import write_report
from maxq.pipeline.jobs.rebuild.index_tags import has_tag_entries
from maxq.pipeline.jobs.rebuild.log_dispatch import DispatchSettings
from maxq.pipeline.store.log_pieces import log_pieces
from maxq.runtime.files.system import SystemClock, SystemDisk
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.context.store_context import StoreIdentity
from maxq.store.message_store import MessageStore
from maxq.store.tools.index_files import Geometry, infer_geometry
from maxq.store.tools.log_walk import LogWalk
from maxq.store.tools.offsets import TopicNames
from maxq.store.tools.store_files import StoreFiles
from tests.unit.store_tools.golden_stores import STORES, expected

GEOMETRY = Geometry(1000, 1800)


def opened(store: Path) -> StoreFiles:
    return StoreFiles(SystemDisk(), PurePath(store))


def copied(name: str, tmp_path: Path) -> Path:
    shutil.copytree(STORES / name, tmp_path / "store")
    return tmp_path / "store"


def structure(files: StoreFiles, number: int = 0) -> list[tuple[int, str, str, str]]:
    task = tasks.IndexTask(str(files.root), files.index[number], GEOMETRY)
    rows = [row for batch in tasks.index_structure(task) for row in batch.to_pylist()]
    return [(row["position"], row["kind"], row["expected"], row["found"]) for row in rows]


def change(path: PurePath, position: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(data)


def test_java_s_index_files_agree_with_themselves() -> None:
    for name in ("clean", "ha/master", "timer"):
        files = opened(STORES / name)
        for number in range(len(files.index)):
            assert structure(files, number) == []


def test_chain_slot_and_header_faults_have_their_places(tmp_path: Path) -> None:
    files = opened(copied("clean", tmp_path))
    path = files.index[0].path
    entry = GEOMETRY.entry_position(9)
    with open(path, "rb") as file:
        file.seek(entry)
        key_hash = int.from_bytes(file.read(4), "big")
    slot = GEOMETRY.slot_position(key_hash % 1000)
    change(path, entry + 16, (77).to_bytes(4, "big"))
    change(path, slot, (5).to_bytes(4, "big"))
    change(path, 32, (3).to_bytes(4, "big"))
    found = structure(files)
    assert [(position, kind) for position, kind, _, _ in found] == [
        (entry + 16, "index chain"),
        (slot, "index slot"),
        (32, "index header"),
    ]
    assert found[0][3] == "entry 77"
    assert found[1][3] == "entry 5"
    assert found[2][3] == "slots in use 3"


@pytest.mark.parametrize("name", ["clean", "timer", "lmq-cqext", "dledger/n1"])
def test_expected_units_are_those_java_has(name: str) -> None:
    files = opened(STORES / name)
    topics = TopicNames(files)
    settings = DispatchSettings(files.settings.delay_levels_ms, frozenset(topics.batch))
    found = set()
    for piece in log_pieces(files, piece_bytes=100_000):
        for batch in tasks.log_rows(tasks.AuditPiece(piece, settings, topics)):
            for row in batch.filter(pc.field("what") == tasks.UNIT).to_pylist():
                found.add((row["topic"], row["queueId"], row["queueOffset"], row["physicalOffset"], row["size"]))
    java = {
        (queue["topic"], queue["queueId"], unit[0], unit[1], unit[2])
        for queue in expected(name)["queues"]
        for unit in queue["units"]
    }
    assert found == java


@pytest.mark.parametrize("name", ["clean", "crashed", "dledger/n0"])
def test_the_end_of_a_log_is_where_the_walk_ends(name: str) -> None:
    files = opened(STORES / name)
    walk = LogWalk(files)
    for _ in walk.batches():
        pass
    walk.close()
    assert log_end(files) == walk.end_offset


def test_ranges_that_differ_are_named_across_files(tmp_path: Path) -> None:
    copy = opened(copied("ha/slave", tmp_path))
    master = opened(STORES / "ha/master")
    size = copy.log[0].size
    change(copy.log[0].path, 1000, b"\xff\xfe")
    change(copy.log[0].path, 1040, b"\xfd")  # near: one range
    change(copy.log[0].path, 2000, b"\xff")
    end = log_end(master)
    task = tasks.CompareTask("slave", str(copy.root), tuple(master.log), tuple(copy.log), 0, end)
    rows = [row for batch in tasks.compare(task) for row in batch.to_pylist()]
    assert [(row["store"], row["file"], row["position"]) for row in rows] == [
        ("slave", f"commitlog/{0:020d}", 1000),
        ("slave", f"commitlog/{0:020d}", 2000),
    ]
    assert rows[0]["found"].startswith("41 bytes: ff fe ")
    assert rows[1]["found"] == "1 bytes: ff"
    assert end < size * len(master.log)


def test_differing_ranges() -> None:
    ours = np.zeros(1000, np.uint8)
    theirs = ours.copy()
    assert tasks.differing(ours, theirs) == []
    theirs[[0, 64, 129, 999]] = 1
    assert tasks.differing(ours, theirs) == [(0, 65), (129, 130), (999, 1000)]


def test_java_5_3_indexes_no_tags() -> None:
    files = opened(STORES / "clean")
    assert not has_tag_entries(files, infer_geometry(files, files.index[0]))


def test_a_sound_store_has_a_page_without_plots(tmp_path: Path) -> None:
    result = AuditResult([StoreFacts("/data/store", 0, 1000, 10, 20)])
    page = write_report(result, tmp_path / "a.html", made_ms=0).read_text()
    assert "agree" in page
    assert "<svg" not in page


@pytest.mark.parametrize("tags", [True, False])
def test_an_index_with_tags_is_told_from_one_without(tags: bool, tmp_path: Path) -> None:
    config = MessageStoreConfig(store_path_root_dir=str(tmp_path), max_hash_slot_num=50, max_index_num=200,
                                mapped_file_size_commit_log=1 << 16, index_tag_enable=tags)  # fmt: skip
    store = MessageStore(config, disk=SystemDisk(), clock=SystemClock(), broker=StoreIdentity())
    store.load()
    for number in range(100):
        properties = {"TAGS": f"t{number % 3}", "KEYS": f"k{number}"}
        assert store.put_message(MessageExtBrokerInner("T", 0, b"x", properties)).ok
    store.close()
    assert has_tag_entries(opened(tmp_path), Geometry(50, 200)) is tags
