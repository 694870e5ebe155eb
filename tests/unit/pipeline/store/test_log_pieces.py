"""However a log is cut into pieces, each record comes out once; damage is named once, and nothing behind it is lost."""

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from maxq.pipeline.records.record_batches import RecordBatches, scan_rows
from maxq.pipeline.records.row_filter import Condition, RowFilter, can_decide
from maxq.pipeline.store import log_pieces as log_pieces_module
from maxq.pipeline.store.log_pieces import Corruption, LogPiece, PieceReader, log_pieces, usual_piece_bytes
from maxq.pipeline.store.store_tables import TABLES, read_table, read_written_units, table_tasks
from maxq.protocol.message.message import MessageExt, encode_record
from maxq.runtime.files.system import SystemDisk
from maxq.store.log import record_cy as rc
from maxq.store.tools.log_walk import LogWalk
from maxq.store.tools.message_lines import messages_of
from maxq.store.tools.offsets import queue_offsets
from maxq.store.tools.queue_files import QueueFiles
from maxq.store.tools.store_files import StoreFiles
from maxq.testing.sim_disk import SimDisk
from tests.unit.store_tools.golden_stores import NAMES, ROOT, golden_disk, open_files

COLUMNS = ("physicalOffset", "topic", "queueId", "queueOffset", "msgId", "uniqKey", "sysFlag", "bornHost")


def read(
    disk: SimDisk, pieces: list[LogPiece], chosen: RowFilter | None = None
) -> tuple[list[dict[str, Any]], list[Corruption]]:
    found: list[dict[str, Any]] = []
    corruption: list[Corruption] = []
    for piece in pieces:
        reader = PieceReader(disk, piece)
        for view, rows in reader.rows():
            rows = chosen.select(view, rows) if chosen else rows
            for batch in RecordBatches(COLUMNS, "b").batches(view, rows):
                found += batch.to_pylist()
        corruption += reader.corruption
    return found, corruption


@pytest.mark.parametrize("piece_bytes", [1000, 30_011, 1 << 30])
@pytest.mark.parametrize("name", NAMES)
def test_any_cut_gives_the_same_messages(name: str, piece_bytes: int) -> None:
    disk = golden_disk(name)
    files = open_files(disk)
    walk = LogWalk(files)
    expected = [{key: row[key] for key in COLUMNS} for batch in walk.batches() for row in messages_of(batch)]
    found, corruption = read(disk, log_pieces(files, piece_bytes=piece_bytes))
    assert found == expected
    if not files.dledger:
        assert [(c.file, c.position, c.end) for c in corruption if not c.reason.startswith("torn")] == [
            (files.name(damage.file.path), damage.start, damage.end) for damage in walk.damages
        ]


def test_a_range_of_physical_offsets_is_read_alone() -> None:
    disk = golden_disk("clean")
    files = open_files(disk)
    whole, _ = read(disk, log_pieces(files))
    low, high = whole[40]["physicalOffset"], whole[90]["physicalOffset"]
    found, _ = read(disk, log_pieces(files, piece_bytes=5000, low=low, high=high))
    assert found == whole[40:90]


def test_a_flipped_bit_costs_its_message_and_is_named() -> None:
    disk = golden_disk("clean")
    files = open_files(disk)
    whole, _ = read(disk, log_pieces(files))
    file = files.log[1]
    struck = next(row for row in whole if row["physicalOffset"] > file.from_offset)
    data = bytearray(disk.read(file.path))
    data[struck["physicalOffset"] - file.from_offset + 100] ^= 1
    disk.put(file.path, bytes(data))
    found, corruption = read(disk, log_pieces(open_files(disk), piece_bytes=4096))
    assert [row for row in whole if row not in found] == [struck]
    (damage,) = corruption
    assert damage.physical_offset == struck["physicalOffset"]
    assert damage.file == f"commitlog/{file.from_offset:020}"


def test_a_file_that_is_gone_meanwhile_has_expired() -> None:
    disk = golden_disk("clean")
    files = open_files(disk)
    pieces = log_pieces(files)
    disk.delete(files.log[0].path)
    found, corruption = read(disk, pieces)
    assert found and not corruption
    assert found[0]["physicalOffset"] >= files.log[1].from_offset


@pytest.mark.parametrize(
    ("condition", "matches"),
    [
        (Condition("topic", "=", ("Gd_Keys",)), lambda row: row["topic"] == "Gd_Keys"),
        (Condition("topic", "in", ("Gd_Keys", "Gd_Order")), lambda row: row["topic"] in ("Gd_Keys", "Gd_Order")),
        (Condition("queueId", "=", (1,)), lambda row: row["queueId"] == 1),
        (Condition("queueOffset", ">=", (20,)), lambda row: row["queueOffset"] >= 20),
        (Condition("queueOffset", "<", (3,)), lambda row: row["queueOffset"] < 3),
        (Condition("queueOffset", "in", (3, 5)), lambda row: row["queueOffset"] in (3, 5)),
    ],
)  # fmt: skip
def test_conditions_choose_rows(condition: Condition, matches: Any) -> None:
    disk = golden_disk("clean")
    pieces = log_pieces(open_files(disk))
    whole, _ = read(disk, pieces)
    assert can_decide(condition)
    found, _ = read(disk, pieces, RowFilter((condition,)))
    assert found == [row for row in whole if matches(row)]
    assert 0 < len(found) < len(whole)


@pytest.mark.parametrize(
    "condition", [Condition("body", "=", (b"",)), Condition("tags", "=", ("x",)), Condition("queueId", "=", ("1",))]
)
def test_other_conditions_are_left_to_spark(condition: Condition) -> None:
    assert not can_decide(condition)


def table(disk: SimDisk, name: str) -> list[dict[str, Any]]:
    files = open_files(disk)
    tasks = table_tasks(files, name, log_pieces(files), 3)
    return [row for task in tasks for batch in read_table(disk, task) for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("crashed", []),
        ("crashed-flip", [(262144, 246631, 247301, "the CRC of the body is wrong")]),
        ("crashed-torn", [(524288, 8903, 262144, "torn tail: the size of the record is not the sum of its parts")]),
        ("dledger/n0", []),
    ],
)
def test_damage_of_golden_stores_is_rows_of_corruption(name: str, damage: list[tuple[int, int, int, str]]) -> None:
    assert table(golden_disk(name), "corruption") == [
        {
            "file": f"commitlog/{file:020}",
            "position": position,
            "end": end,
            "physicalOffset": file + position,
            "reason": reason,
        }
        for file, position, end, reason in damage
    ]


def test_what_can_be_no_unit_is_no_row_of_the_queue_but_is_there_to_be_judged() -> None:
    disk = golden_disk("clean")
    files = open_files(disk)
    (file, *_) = files.queues["Gd_Simple", 0]
    sound = table(disk, "consumequeue")
    data = bytearray(disk.read(file.path))
    data[20 * 3 : 20 * 4] = struct.pack(">qiq", -5, 7, 9)
    data[20 * 5 : 20 * 6] = struct.pack(">qiq", 5, -7, 9)
    data[20 * 7 : 20 * 8] = bytes(20)
    disk.put(file.path, bytes(data))
    name = str(file.path.relative_to(ROOT))
    left = [row for row in sound if row["file"] != name or row["queueOffset"] not in (3, 5, 7)]
    assert table(disk, "consumequeue") == left
    tasks = table_tasks(open_files(disk), "consumequeue", [], 3)
    written = [row for task in tasks for batch in read_written_units(disk, task) for row in batch.to_pylist()]
    assert [row for row in written if row not in left] == [
        next(row for row in sound if (row["file"], row["queueOffset"]) == (name, number))
        | {"physicalOffset": offset, "size": size, "tagsCode": 9}
        for number, offset, size in ((3, -5, 7), (5, 5, -7))
    ]


def test_times_of_damaged_files_that_no_timestamp_has_become_the_last_or_first_one() -> None:
    """Arrow refuses numbers that it has no room for, and NumPy's wrap: a time of the year -290308 came of it."""
    disk = golden_disk("clean")
    last_us = ((1 << 63) - 1) // 1000 * 1000
    disk.put(ROOT / "checkpoint", struct.pack(">qqqqqq", 1 << 62, -(1 << 62), 7, 1, 2, 3) + bytes(4048))
    (row,) = raw_table(disk, "checkpoint")
    assert [row[f"{name}MsgTimestamp"] for name in ("physic", "logics", "index")] == [last_us, -last_us, 7000]
    file = open_files(disk).index[0]
    data = bytearray(disk.read(file.path))
    data[:8] = struct.pack(">q", (1 << 63) - 1)
    disk.put(file.path, bytes(data))
    name = f"index/{file.path.name}"
    times = [row["storeTimestamp"] for row in raw_table(disk, "index") if row["file"] == name]
    assert min(times) > last_us - 10**13


def raw_table(disk: SimDisk, name: str) -> list[dict[str, Any]]:
    """`table` with timestamps as numbers: Python's times end with the year 9999."""
    files = open_files(disk)
    batches = [batch for task in table_tasks(files, name, [], 3) for batch in read_table(disk, task)]
    whole = pa.Table.from_batches(batches)
    numbers = [pa.int64() if pa.types.is_timestamp(kind) else kind for kind in whole.schema.types]
    return whole.cast(pa.schema(list(zip(whole.schema.names, numbers, strict=True)))).to_pylist()


def test_queue_units_are_those_of_the_files() -> None:
    disk = golden_disk("clean")
    files = open_files(disk)
    expected = [
        (topic, queue_id, index, unit.physical_offset, unit.size, unit.tags_code)
        for (topic, queue_id), sequence in sorted(files.queues.items())
        for index, unit in QueueFiles(files, sequence).units()
        if not unit.is_pre_blank
    ]
    columns = ("topic", "queueId", "queueOffset", "physicalOffset", "size", "tagsCode")
    rows = [tuple(row[key] for key in columns) for row in table(disk, "consumequeue") if "batch" not in row["file"]]
    assert rows == expected
    batches = [row for row in table(disk, "consumequeue") if "batch" in row["file"]]
    assert sum(row["messageCount"] for row in batches) == 21  # Gd_Bcq


def test_index_entries_lead_to_messages() -> None:
    disk = golden_disk("clean")
    rows = table(disk, "index")
    whole, _ = read(disk, log_pieces(open_files(disk)))
    assert rows
    assert {row["physicalOffset"] for row in rows} <= {row["physicalOffset"] for row in whole}
    assert all(row["number"] > row["previous"] for row in rows)


def test_offsets_and_checkpoint() -> None:
    disk = golden_disk("clean")
    found = [(row["topic"], row["queueId"], row["minOffset"], row["maxOffset"]) for row in table(disk, "offsets")]
    assert found == [(q.topic, q.queue_id, q.min_offset, q.max_offset) for q in queue_offsets(open_files(disk))]
    (checkpoint,) = table(disk, "checkpoint")
    assert checkpoint["physicMsgTimestamp"].year > 2020


def test_every_table_of_an_empty_store_is_empty() -> None:
    disk = golden_disk("clean")
    disk.delete_tree(ROOT)
    disk.put(ROOT / "checkpoint", b"")
    for name in TABLES.keys() - {"timer"}:  # which reads a real disk: see the next test
        assert table(disk, name) == [], name


def test_the_timer_table_of_an_empty_store_is_empty(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").touch()
    disk = SystemDisk()
    (task,) = table_tasks(StoreFiles(disk, tmp_path), "timer", [], 3)
    assert list(read_table(disk, task)) == []


@pytest.mark.parametrize(("mib", "usual", "narrow"), [(10, 64, 128), (600, 150, 300), (20_000, 256, 512)])
def test_a_read_that_passes_bodies_over_is_cut_into_half_as_many_pieces(mib: int, usual: int, narrow: int) -> None:
    assert usual_piece_bytes(mib << 20) == usual << 20
    assert usual_piece_bytes(mib << 20, narrow=True) == narrow << 20


@pytest.mark.parametrize("finished_after", [1, 100, None])
def test_the_newest_record_of_a_running_broker_is_read_when_it_is_finished(
    finished_after: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its body is there and good, its properties are being written by a broker that is slow, or stopped."""
    disk = golden_disk("clean")
    files = open_files(disk)
    whole, _ = read(disk, log_pieces(files))
    last = whole[-1]["physicalOffset"]
    file = files.log_file_at(last)
    assert file is not None
    region = disk.map(file.path, file.size)
    position = last - file.from_offset
    rows, end, _ = scan_rows(region.view, position, file.size, file.from_offset, 1)
    start = int(rows[0, rc.C_PROPERTIES_POSITION])
    written = bytes(region.view[start:end])
    region.view[start:end] = bytes(end - start)
    looks = []

    def broker_goes_on(_: float) -> None:
        looks.append(1)
        if len(looks) == finished_after:
            region.view[start:end] = written

    monkeypatch.setattr(log_pieces_module, "sleep", broker_goes_on)
    pieces = [replace(piece, live=True) for piece in log_pieces(files)]
    assert read(disk, pieces) == (whole if finished_after else whole[:-1], [])
    assert looks


def forged(at: int, size: int) -> bytes:
    """A body of records, for physical offset `at` on."""
    found = bytearray()
    while len(found) < size:
        found += encode_record(
            MessageExt(topic="Payments", body=b"forged", physical_offset=at + len(found), store_timestamp=1)
        )
    return bytes(found)


@pytest.mark.parametrize("piece_bytes", [1_000, 4_999, 12_000, 30_011])
@pytest.mark.parametrize("damaged", [False, True])
def test_a_body_that_looks_like_records_is_a_body_wherever_a_piece_begins(
    monkeypatch: pytest.MonkeyPatch, piece_bytes: int, damaged: bool
) -> None:
    """No record is as long as what a piece looks at before it begins."""
    monkeypatch.setattr(log_pieces_module, "MAX_RECORD", 24_000)
    data = bytearray()
    for number in range(40):
        offset, body = len(data), bytes(400)
        if number % 10 == 9:
            body = forged(offset + 88, 20_000)  # a body is 88 bytes behind its record's begin
        message = MessageExt(topic="Mine", body=body, queue_offset=number, physical_offset=offset, store_timestamp=1)
        data += encode_record(message)
    if damaged:
        at = data.find(b"Mine", data.find(b"forged")) + 200  # in the body of the record behind the first long one
        data[at] ^= 1
    disk = golden_disk("clean")
    path = ROOT / "commitlog" / f"{0:020}"
    for file in open_files(disk).log:
        disk.delete(file.path)
    disk.put(path, bytes(data).ljust(128 << 10, b"\0"))
    pieces = log_pieces(open_files(disk), piece_bytes=piece_bytes)
    assert len(pieces) > 2
    found, corruption = read(disk, pieces)
    assert [row["queueOffset"] for row in found] == [number for number in range(40) if not damaged or number != 10]
    assert {row["topic"] for row in found} == {"Mine"}
    assert [one.message for one in corruption] == ([("Mine", 0, 10)] if damaged else [])


# --- DLedger ---


def heads_of(disk: SimDisk) -> list[tuple[int, int, int]]:
    """File, position and size of each entry of a DLedger log."""
    found = []
    for number, file in enumerate(open_files(disk).log):
        data, at = disk.read(file.path), 0
        while at + 48 <= len(data) and data[at : at + 4] == b"\0\0\0\x01":
            size = int.from_bytes(data[at + 4 : at + 8], "big")
            found.append((number, at, size))
            at += size
    return found


@pytest.fixture(scope="module")
def ledger() -> tuple[list[tuple[int, int, int]], list[dict[str, Any]]]:
    """The entries and the messages of a DLedger log that is whole."""
    disk = golden_disk("dledger/n0")
    return heads_of(disk), read(disk, log_pieces(open_files(disk)))[0]


#: Byte of the head, and what is written there; None: it is zeros from end to end.
HARM = [None, (0, 0xFF), (4, 0x40), (7, 4), (8, 1), (15, 16), (16, 0x80), (23, 0x40), (31, 1), (33, 1), (46, 8)]


@pytest.mark.parametrize("harm", HARM)
def test_a_damaged_head_of_an_entry_costs_that_message_at_most_and_is_named(
    harm: tuple[int, int] | None, ledger: tuple[list[tuple[int, int, int]], list[dict[str, Any]]]
) -> None:
    heads, whole = ledger
    firsts = [number for number, (_, at, _) in enumerate(heads) if at == 0]
    chosen = {*firsts, *(first + 1 for first in firsts), firsts[1] - 1, 77, len(heads) - 2}
    for number in sorted(chosen):
        disk = golden_disk("dledger/n0")
        files = open_files(disk)
        file, at, _ = heads[number]
        data = bytearray(disk.read(files.log[file].path))
        if harm is None:
            data[at : at + 48] = bytes(48)
        else:
            data[at + harm[0]] ^= harm[1]
        disk.put(files.log[file].path, bytes(data))
        for committed_only in (False, True):
            found, corruption = read(disk, log_pieces(open_files(disk), committed_only=committed_only))
            lost = [row for row in whole if row not in found]
            assert lost in ([], [whole[number]]), (number, len(lost))
            named = [one.message for one in corruption]
            assert named == [(row["topic"], row["queueId"], row["queueOffset"]) for row in lost], (number, corruption)
        assert harm is not None or lost


def test_a_message_whose_body_is_damaged_is_named() -> None:
    disk = golden_disk("dledger/n0")
    path = open_files(disk).log[0].path
    whole, _ = read(disk, log_pieces(open_files(disk)))
    data = bytearray(disk.read(path))
    data[whole[20]["physicalOffset"] + 100] ^= 1
    disk.put(path, bytes(data))
    found, (one,) = read(disk, log_pieces(open_files(disk)))
    assert found == whole[:20] + whole[21:]
    assert one.physical_offset == whole[20]["physicalOffset"] and not one.is_tail
    assert one.message == (whole[20]["topic"], whole[20]["queueId"], whole[20]["queueOffset"])


def test_entries_that_a_member_has_cut_away_are_not_read(ledger: Any) -> None:
    """Behind what was written over them in a newer term their rest is still there."""
    heads, whole = ledger
    disk = golden_disk("dledger/n0")
    checkpoint = b"endIndex=99\ncommittedIndex=99\n"
    disk.put(ROOT / "dledger-n0" / "checkpoint", checkpoint)
    path = open_files(disk).log[0].path
    data = bytearray(disk.read(path))
    at = heads[100][1]
    data[at + 16 : at + 24] = (1_000).to_bytes(8, "big")  # term
    data[heads[101][1] : heads[101][1] + 48] = bytes(range(48))
    disk.put(path, bytes(data))
    found, _ = read(disk, log_pieces(open_files(disk)))
    assert found[:101] == whole[:101]
    assert found[101:] == [row for row in whole if row["physicalOffset"] >= open_files(disk).log[1].from_offset]


def test_entries_that_are_not_known_to_be_committed_are_left_out_and_counted(
    caplog: pytest.LogCaptureFixture, ledger: Any
) -> None:
    """What is read stays: a later cut of the log's end takes none of it back."""
    heads, whole = ledger
    disk = golden_disk("dledger/n0")
    disk.put(ROOT / "dledger-n0" / "checkpoint", b"committedIndex=3\nendIndex=5\n")
    found, corruption = read(disk, log_pieces(open_files(disk), committed_only=True))
    assert (found, corruption) == (whole[:4], [])
    assert caplog.text.count("not known to be committed") == 2  # for each file
    assert "318 messages behind byte" in caplog.text and "148 messages behind byte" in caplog.text
    for file in open_files(disk).log:
        keep = heads[4][1] if file.from_offset == 0 else 0
        disk.put(file.path, disk.read(file.path)[:keep].ljust(file.size, b"\0"))
    assert read(disk, log_pieces(open_files(disk), committed_only=True)) == (whole[:4], [])


def test_a_log_that_ends_before_what_is_committed_is_a_loss(ledger: Any) -> None:
    heads, whole = ledger
    disk = golden_disk("dledger/n0")
    file = open_files(disk).log[1]
    _, at, _ = heads[450]
    disk.put(file.path, disk.read(file.path)[:at].ljust(file.size, b"\0"))
    found, (one,) = read(disk, log_pieces(open_files(disk), committed_only=True))
    assert found == whole[:450]
    assert one.reason == "the log ends with entry 449, and 469 is committed" and not one.is_tail
    assert read(disk, log_pieces(open_files(disk))) == (whole[:450], [])  # whoever wants to see the log as it is
