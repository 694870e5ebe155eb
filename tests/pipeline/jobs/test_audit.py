"""`maxq pipeline audit` and `rebuild` on Spark: what was changed is found, nothing else; what is rebuilt is right."""

import json
import shutil
import struct
from pathlib import Path, PurePath

import pytest
from pyspark.sql import SparkSession

from maxq.config.message_store_config import MessageStoreConfig
from maxq.pipeline.jobs.audit.job import AuditOptions, AuditResult, audit, audit_faults
from maxq.pipeline.jobs.audit.report import write_report
from maxq.pipeline.jobs.rebuild.job import RebuildOptions, rebuild
from maxq.runtime.files.system import SystemClock, SystemDisk
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.context.store_context import StoreIdentity
from maxq.store.message_store import MessageStore
from maxq.store.queue.unit_scan_cy import DAMAGED_TAGS_CODE
from maxq.store.tools.store_files import StoreFiles
from tests.unit.store_tools.golden_stores import STORES

UNIT, ENTRY = 20, 20
PARTS = struct.Struct(">qiq")  # of a unit
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


def said(number: int, offset: int, size: int, tags: int) -> str:
    """A unit, as a fault shows it."""
    return f"message {number}: at {offset}, {size} bytes, tags code {tags}"


def run(spark: SparkSession, *stores: Path, piece_bytes: int = 100_000) -> AuditResult:
    return audit(spark, [opened(store) for store in stores], AuditOptions(piece_bytes=piece_bytes))


def run_whole(spark: SparkSession, *stores: Path) -> AuditResult:
    """A task for each file of a log. Logs of Java are cut anywhere in tests/unit/pipeline/store/test_log_pieces.py."""
    return run(spark, *stores, piece_bytes=1 << 30)


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
        ("unit has wrong offset", "consumequeue/T/0/00000000000000000000", UNIT * 70),
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


def test_overwritten_units_are_told_from_missing_ones_and_the_log_is_read_once(
    spark: SparkSession, sound: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    shutil.copytree(sound, store)
    path = store / "consumequeue/T/0/00000000000000000000"
    units = [PARTS.unpack_from(path.read_bytes(), UNIT * number) for number in range(600)]
    offset, size, tags = units[10]
    cases: dict[int, tuple[tuple[int, int, int], str]] = {
        10: ((offset + 1, size, tags), "unit has wrong offset"),
        20: ((1 << 40, *units[20][1:]), "unit has wrong offset"),  # far behind the log's end
        30: ((units[30][0], 7, units[30][2]), "unit has wrong size"),
        40: ((units[40][0], -7, units[40][2]), "unit has wrong size"),
        50: ((*units[50][:2], tags + 1), "unit has wrong tags code"),
        60: ((*units[60][:2], DAMAGED_TAGS_CODE), "unit has wrong tags code"),  # readers pass over it
        70: (units[72], "unit overwritten"),
        80: ((-1, -1, -1), "unit overwritten"),
        90: ((0, 0x7FFFFFFF, 1), "unit overwritten"),
        100: ((0, 0x7FFFFFFF, 0), "unit missing"),  # as before a queue's first unit
        110: ((0, 0, 0), "unit missing"),
        610: ((offset, size, tags), "unit of no record"),
    }
    with open(path, "r+b") as file:
        for number, (unit, _) in cases.items():
            file.seek(UNIT * number)
            file.write(PARTS.pack(*unit))
    faults = audit_faults(spark, [opened(store)], AuditOptions(piece_bytes=100_000))
    shutil.rmtree(store / "commitlog")
    found = [(row.kind, row.position, row.expected, row.found) for row in faults.collect()]
    spark.catalog.clearCache()
    wanted = []
    for number, (unit, kind) in cases.items():
        log_says = "nothing" if number >= 600 else said(number, *units[number])
        missing = (kind, None, log_says, "nothing")
        wanted.append(missing if kind == "unit missing" else (kind, UNIT * number, log_says, said(number, *unit)))
    assert sorted(found, key=str) == sorted(wanted, key=str)


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


def test_units_behind_the_end_of_a_log_are_faults_where_no_broker_runs(
    spark: SparkSession, sound: Path, tmp_path: Path
) -> None:
    """The newest file of the log is gone, and nothing else."""
    store = tmp_path / "store"
    shutil.copytree(sound, store)
    max((store / "commitlog").iterdir()).unlink()
    result = run(spark, store)
    report = rebuild(spark, opened(store), RebuildOptions(output=PurePath(tmp_path / "new")))
    gone = 1200 - report.units
    assert report.lost == gone > 0
    assert {(kind, count) for _, kind, count in result.by_kind} == {
        ("unit of no record", gone), ("entry of no key", 3 * gone),
    }  # fmt: skip


@pytest.mark.slow
def test_golden_corruption_is_named_where_it_is(spark: SparkSession) -> None:
    """What a kill left is sound; beside it, copies of which one has a flipped byte and one a torn tail, whose unit and
    entries are faults, as in `store check`."""
    crashed, flip, torn = (STORES / name for name in ("crashed", "crashed-flip", "crashed-torn"))
    damage = json.loads((flip / "damage.json").read_text())
    end = json.loads((torn / "damage.json").read_text())
    (index,) = [path.name for path in (crashed / "index").iterdir()]
    offset, size = damage["recordPhysicalOffset"], damage["recordSize"]
    assert [tuple(fault.values()) for fault in run_whole(spark, crashed, flip, torn).faults] == [
        (str(flip), damage["file"], damage["recordPositionInFile"], "log damaged", "records",
         f"the CRC of the body is wrong, up to {damage['recordPositionInFile'] + size}"),
        (str(flip), damage["file"], damage["flippedByte"], "copy differs", "1 bytes: 68", "1 bytes: 3d"),
        (str(flip), "consumequeue/Gd_Crash/0/00000000000000002000", 1400, "unit of no record", "nothing",
         said(170, offset, size, 2598919)),
        *[(str(flip), f"index/{index}", position, "entry of no key", "nothing", f"hash {key} at {offset}, second 33")
          for position, key in ((32740, 1095492693), (32760, 1347823630), (32780, 832579563))],
        (str(torn), end["file"], end["recordPositionInFile"], "log damaged", "records",
         "torn tail: the size of the record is not the sum of its parts, up to 262144"),
        (str(torn), "consumequeue/Gd_Crash/2/00000000000000002000", 1600, "unit of no record", "nothing",
         said(180, end["recordPhysicalOffset"], end["recordSize"], 2598921)),
        *[(str(torn), f"index/{index}", position, "entry of no key", "nothing",
           f"hash {key} at {end['recordPhysicalOffset']}, second 33")
          for position, key in ((34000, 82389879), (34020, 1347823665), (34040, 832579567))],
    ]  # fmt: skip


@pytest.mark.parametrize("names", [("clean",), pytest.param(("ha/master", "ha/slave"), marks=pytest.mark.slow)])
def test_java_s_own_stores_are_sound(spark: SparkSession, names: tuple[str, ...]) -> None:
    assert found(run_whole(spark, *(STORES / name for name in names))) == []


@pytest.mark.slow
def test_java_s_own_stores_of_a_dledger_group_differ_by_what_one_has_not_dispatched(spark: SparkSession) -> None:
    result = run_whole(spark, STORES / "dledger/n1", STORES / "dledger/n0")
    assert {(store, kind) for store, kind, _ in result.by_kind} <= {(str(STORES / "dledger/n0"), "unit missing")} | {
        (str(STORES / "dledger/n0"), kind) for kind in ("unit overwritten", "unit of no record")
    }
    assert result.stores[1].compared > 0
