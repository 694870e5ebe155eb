"""The folder of an archive: versions of the manifest, runs that die."""

import signal
import subprocess
import sys
from pathlib import Path, PurePath

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maxq.errors import ConfigError, PipelineError
from maxq.pipeline.archive import check, file_stats
from maxq.pipeline.archive.check import check_file
from maxq.pipeline.archive.coverage import DAMAGED_FILE, UNREADABLE_FILE
from maxq.pipeline.archive.file_stats import entry_of, partition_of
from maxq.pipeline.archive.folder import ArchiveFolder, ArchiveRun
from maxq.pipeline.archive.manifest import FileEntry, Manifest
from maxq.protocol.message.message_queue import MessageQueue
from maxq.runtime.files import durable_files

PLACE = "topic=%25RETRY%25g/date=2026-11-21"


def table(queue_id: int, offsets: list[int], crc: int = -5) -> pa.Table:
    count = len(offsets)
    return pa.table(
        {
            "brokerName": ["broker-a"] * count,
            "queueId": pa.array([queue_id] * count, pa.int32()),
            "queueOffset": offsets,
            "storeTimestamp": pa.array([1000 * (offset + 1) for offset in offsets], pa.timestamp("us", tz="UTC")),
            "bodyCrc": pa.array([crc + offset for offset in offsets], pa.int32()),
            "body": [b"%d" % offset for offset in offsets],
        }
    )


def write(run: ArchiveRun, data: pa.Table) -> list[FileEntry]:
    """A file of the run's, in its place."""
    part = run.new_part()
    folder = Path(run.folder.root) / part / PLACE
    folder.mkdir(parents=True)
    pq.write_table(data, folder / "part-0.zstd.parquet")
    (folder / "_SUCCESS").touch()
    staged = run.staged(part)
    entries = [entry_of(run.folder.filesystem, run.folder.root, file.path, run.name) for file in staged]
    return run.place(staged, entries)


@pytest.fixture
def folder(tmp_path: Path) -> ArchiveFolder:
    return ArchiveFolder(str(tmp_path / "archive"))


def test_an_entry_says_what_is_in_the_file(folder: ArchiveFolder) -> None:
    with folder.run() as run:
        (entry,) = write(run, table(3, [7, 5, 6, 9]))
    (part,) = entry.queues
    assert (entry.topic, entry.date, entry.rows) == ("%RETRY%g", "2026-11-21", 4)
    assert (entry.first_time, entry.last_time) == (6, 10)
    assert (part.queue_id, part.ranges, part.rows) == (3, ((5, 7), (9, 9)), 4)
    assert entry.bytes == (Path(folder.root) / entry.path).stat().st_size
    assert partition_of(entry.path) == ("%RETRY%g", "2026-11-21")


def test_the_checksum_tells_contents_apart_and_cuts_not(folder: ArchiveFolder) -> None:
    def total(*tables: pa.Table) -> int:
        with folder.run() as run:
            return sum(write(run, one)[0].queues[0].checksum for one in tables) % 2**64

    whole = total(table(0, [1, 2, 3, 4]))
    assert whole == total(table(0, [4, 1]), table(0, [3, 2]))
    assert whole != total(table(0, [1, 2, 3]))
    assert whole != total(table(0, [1, 2, 3, 3, 4]))
    assert whole != total(table(0, [1, 2, 3, 4], crc=-4))
    assert whole != total(table(0, [2, 3, 4, 5], crc=-6))


def test_what_a_dead_run_placed_is_removed_by_the_next_and_never_counted(folder: ArchiveFolder) -> None:
    with folder.run() as run:
        kept = write(run, table(0, [0, 1]))
        folder.commit(lambda manifest: manifest.changed(kept))
    with folder.run() as run:  # dies between its data and its manifest
        lost = write(run, table(0, [2, 3]))
        part = Path(folder.root) / run.new_part() / PLACE
        part.mkdir(parents=True)
        (part / "half.parquet").write_bytes(b"PAR1")
        (Path(folder.root) / run.staging).rename(Path(folder.root) / "_runs" / "dead")
    assert folder.orphans() == [lost[0].path]
    assert folder.manifest().coverage() == {MessageQueue("%RETRY%g", "broker-a", 0): [(0, 1)]}
    with folder.run() as run:
        assert run.removed[0] == lost[0].path
        assert run.removed[1].endswith("half.parquet")
    assert folder.data_files() == [kept[0].path]
    assert not list((Path(folder.root) / "_runs").iterdir())


def test_new_folders_are_durable_before_the_manifest_names_what_is_in_them(
    folder: ArchiveFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loss of power could take a topic's first file from an archive whose manifest had it."""
    synced: list[Path] = []
    whole = durable_files.sync_folder

    def sync_folder(path: PurePath) -> None:
        synced.append(Path(path))
        whole(path)

    monkeypatch.setattr(durable_files, "sync_folder", sync_folder)
    root = Path(folder.root)
    with folder.run() as run:
        (entry,) = write(run, table(0, [0]))
        place = (root / entry.path).parent
        assert {root.parent, root, place.parent, place} <= {*synced}
        synced.clear()
        folder.commit(lambda manifest: manifest.changed([entry]))
        assert {root, root / "_manifest"} <= {*synced}


def test_files_of_a_run_that_lives_stay(folder: ArchiveFolder) -> None:
    with folder.run() as one:
        placed = write(one, table(0, [0]))
        with folder.run() as other:
            assert not other.removed
        assert folder.data_files() == [placed[0].path]
        assert (Path(folder.root) / "_runs" / f"{one.name}.lock").exists()


_DIES = """
import os, signal, sys
from maxq.pipeline.archive.folder import ArchiveFolder
from tests.unit.pipeline.archive.test_folder import table, write
with ArchiveFolder(sys.argv[1]).run() as run:
    write(run, table(0, [0, 1]))
    print("placed", flush=True)
    sys.stdin.read(1)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_that_is_killed_between_its_data_and_its_manifest_is_a_dead_run(folder: ArchiveFolder) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _DIES, folder.root], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "placed\n"
        (lost,) = folder.data_files()
        assert folder.clean() == []
        process.stdin.write("x")
        process.stdin.flush()
        assert process.wait() == -signal.SIGKILL
    assert folder.orphans() == [lost]
    with folder.run() as run:
        assert run.removed == [lost]
        kept = write(run, table(0, [0, 1]))
        folder.commit(lambda manifest: manifest.changed(kept))
    assert folder.data_files() == [kept[0].path]


def test_two_runs_that_commit_at_once_are_both_in_the_manifest(folder: ArchiveFolder) -> None:
    with folder.run() as one, folder.run() as other:
        first, second = write(one, table(0, [0])), write(other, table(0, [1]))
        seen: list[int] = []

        def late(manifest: Manifest) -> Manifest:
            seen.append(manifest.number)
            if len(seen) == 1:
                folder.commit(lambda newest: newest.changed(second))
            return manifest.changed(first)

        after = folder.commit(late)
    assert seen == [0, 1]
    assert after == folder.manifest()
    assert {entry.path for entry in after.files} == {first[0].path, second[0].path}


def test_few_versions_are_kept(folder: ArchiveFolder) -> None:
    for _ in range(6):
        folder.commit(lambda manifest: manifest.changed([]))
    names = sorted(path.name for path in (Path(folder.root) / "_manifest").iterdir())
    assert names == ["000000000004.jsonl", "000000000005.jsonl", "000000000006.jsonl"]


def test_a_folder_without_a_manifest_is_no_archive(folder: ArchiveFolder) -> None:
    with pytest.raises(ConfigError, match="holds no archive"):
        folder.existing()


def test_a_file_that_cannot_be_read_now_is_not_damaged(folder: ArchiveFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was deleted by `archive verify --repair`, though it was whole."""
    with folder.run() as run:
        (entry,) = write(run, table(0, [0]))
        folder.commit(lambda manifest: manifest.changed([entry]))
    assert check_file(folder, entry) == []

    def refuse(*_: object) -> None:
        raise PermissionError("not yours")

    with monkeypatch.context() as patch:
        patch.setattr(file_stats, "crc_of", refuse)
        patch.setattr(check, "crc_of", refuse)
        assert [one.kind for one in check_file(folder, entry)] == [UNREADABLE_FILE]
    path = Path(folder.root) / entry.path
    data = bytearray(path.read_bytes())
    data[-9] ^= 1  # in the footer
    path.write_bytes(data)
    assert [one.kind for one in check_file(folder, entry)] == [DAMAGED_FILE]


def test_a_damaged_file_that_is_taken_out_is_kept_aside(folder: ArchiveFolder) -> None:
    """It was deleted, with the rows that could still be read, though no broker may have them any more."""
    with folder.run() as run:
        damaged, missing, kept = (write(run, table(queue, [0]))[0] for queue in range(3))
        folder.commit(lambda manifest: manifest.changed([damaged, missing, kept]))
    (Path(folder.root) / missing.path).unlink()
    folder.take_out([damaged.path, missing.path])
    assert [entry.path for entry in folder.manifest().files] == [kept.path]
    with folder.run() as run:
        assert run.removed == []
    assert pq.read_table(Path(folder.root) / "_damaged" / damaged.path)["queueOffset"].to_pylist() == [0]
    with pytest.raises(PipelineError, match="is no longer in the archive"):
        folder.take_out([kept.path, missing.path])
    assert folder.data_files() == [kept.path]
