"""`maxq pipeline audit` and `rebuild` on Spark: what was changed is found, nothing else; what is rebuilt is right."""

import shutil
from pathlib import Path, PurePath

import pytest
from pyspark.sql import SparkSession

from maxq.config.message_store_config import MessageStoreConfig
from maxq.pipeline.jobs.audit import AuditOptions, AuditResult, audit, audit_faults
from maxq.pipeline.jobs.audit_report import write_report
from maxq.pipeline.jobs.rebuild import RebuildOptions, rebuild
from maxq.runtime.system import SystemClock, SystemDisk
from maxq.store.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.message_store import MessageStore
from maxq.store.store_context import StoreIdentity
from maxq.store.tools.store_files import StoreFiles
from tests.unit.store_tools.golden_stores import STORES, needs_golden

UNIT, ENTRY = 20, 20
BODY = 88  # where it begins in a record
SLOTS, ENTRIES = 50, 4000


def fill(root: Path, count: int) -> None:
    config = MessageStoreConfig(
        store_path_root_dir=str(root), mapped_file_size_commit_log=1 << 18, mapped_file_size_consume_queue=20_000,
        max_hash_slot_num=SLOTS, max_index_num=ENTRIES,
    )  # fmt: skip
    store = MessageStore(config, disk=SystemDisk(), clock=SystemClock(), broker=StoreIdentity())
    store.load()
    for number in range(count):
        properties = {"TAGS": f"t{number % 3}", "KEYS": f"k{number} both", "UNIQ_KEY": f"u{number}"}
        assert store.put_message(MessageExtBrokerInner("T", number % 2, b"body " * 40, properties)).ok
    store.close()


def flip(path: Path, position: int, bit: int = 1) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ bit]))


def opened(store: Path) -> StoreFiles:
    own = STORES not in store.parents
    return StoreFiles(
        SystemDisk(), PurePath(store), hash_slots=SLOTS if own else 0, index_entries=ENTRIES if own else 0
    )


def run(spark: SparkSession, *stores: Path) -> AuditResult:
    return audit(spark, [opened(store) for store in stores], AuditOptions(piece_bytes=100_000))


def found(result: AuditResult) -> list[tuple[str, str, int]]:
    return [(fault["kind"], fault["file"], fault["position"]) for fault in result.faults]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("audit") / "master"
    fill(root, 1200)
    return root


def test_each_flipped_bit_is_found_in_its_place(spark: SparkSession, sound: Path, tmp_path: Path) -> None:
    store, slave = tmp_path / "store", tmp_path / "slave"
    shutil.copytree(sound, store)
    shutil.copytree(sound, slave)
    (index,) = [path.name for path in (store / "index").iterdir()]
    entry = 40 + 4 * SLOTS + ENTRY * 100
    flip(store / "consumequeue/T/0/00000000000000000000", UNIT * 70 + 7)  # a physical offset
    flip(store / "consumequeue/T/1/00000000000000000000", UNIT * 80 + 19)  # a tags code
    flip(store / "index" / index, entry + 15)  # seconds
    flip(store / "index" / index, entry + ENTRY + 19)  # the chain
    flip(slave / "commitlog/00000000000000000000", 5000)
    flip(slave / "commitlog/00000000000000262144", 700)
    result = run(spark, store, slave)
    of_store = [fault for fault in result.faults if fault["store"] == str(store)]
    assert [(one["kind"], one["file"], one["position"]) for one in of_store] == [
        ("unit wrong", "consumequeue/T/0/00000000000000000000", UNIT * 70),
        ("unit has wrong tags code", "consumequeue/T/1/00000000000000000000", UNIT * 80),
        ("entry has wrong time", f"index/{index}", entry),
        ("index chain", f"index/{index}", entry + ENTRY + 16),
    ]
    of_slave = [fault for fault in result.faults if fault["store"] == str(slave)]
    differs = [(one["file"], one["position"]) for one in of_slave if one["kind"] == "copy differs"]
    assert differs == [("commitlog/00000000000000000000", 5000), ("commitlog/00000000000000262144", 700)]
    assert result.stores[0].units == 1200
    assert result.stores[0].entries == 3600
    assert result.fault_count == len(result.faults)


def test_a_log_is_read_once(spark: SparkSession, sound: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(sound, store)
    flip(store / "consumequeue/T/0/00000000000000000000", 7 * UNIT + 7)
    faults = audit_faults(spark, [opened(store)], AuditOptions(piece_bytes=100_000))
    shutil.rmtree(store / "commitlog")
    assert [(row.kind, row.position) for row in faults.collect()] == [("unit wrong", 7 * UNIT)]
    spark.catalog.clearCache()


def test_a_flipped_body_is_damage_and_its_entries_are_of_no_record(
    spark: SparkSession, sound: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    shutil.copytree(sound, store)
    with open(store / "consumequeue/T/0/00000000000000000000", "rb") as units:
        units.seek(UNIT * 5)
        record = int.from_bytes(units.read(8), "big")
    flip(store / "commitlog/00000000000000000000", record + BODY + 10)
    result = run(spark, store)
    assert {(kind, count) for _, kind, count in result.by_kind} == {
        ("log damaged", 1),
        ("unit of no record", 1),
        ("entry of no key", 3),
    }
    page = write_report(result, tmp_path / "audit.html", made_ms=1_700_000_000_000).read_text()
    assert "log damaged" in page
    assert "<svg" in page


def test_what_is_missing_is_found(spark: SparkSession, sound: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(sound, store)
    shutil.rmtree(store / "consumequeue/T/1")
    shutil.rmtree(store / "index")
    result = run(spark, store)
    assert {(kind, count) for _, kind, count in result.by_kind} == {("unit missing", 600), ("entry missing", 3600)}
    rebuild(spark, opened(sound), RebuildOptions(output=PurePath(tmp_path / "new")))
    shutil.rmtree(store / "consumequeue")
    for folder in ("consumequeue", "index"):
        shutil.copytree(tmp_path / "new" / folder, store / folder)
    assert run(spark, store).by_kind == []


@needs_golden
def test_java_s_own_stores_are_sound(spark: SparkSession) -> None:
    assert found(run(spark, STORES / "clean")) == []
    assert found(run(spark, STORES / "ha/master", STORES / "ha/slave")) == []
    result = run(spark, STORES / "dledger/n1", STORES / "dledger/n0")
    assert {(store, kind) for store, kind, _ in result.by_kind} <= {(str(STORES / "dledger/n0"), "unit missing")} | {
        (str(STORES / "dledger/n0"), kind) for kind in ("unit wrong", "unit of no record")
    }
    assert result.stores[1].compared > 0
