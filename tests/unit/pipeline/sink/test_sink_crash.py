"""A crash keeps a prefix of the log: the commit is finished, once, from every prefix there is."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from maxq.pipeline.sink.sink_commit import BatchName, commit
from maxq.pipeline.sink.sink_task import TaskResult
from maxq.standalone import Standalone
from tests.unit.pipeline.sink.test_sink_commit import options_of, seen, stage, started

FILE_SIZE = 1 << 20
SETTINGS = {
    "mappedFileSizeCommitLog": str(FILE_SIZE),
    "mappedFileSizeConsumeQueue": "20000",
    "mappedFileSizeTimerLog": "104000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
}
NAME = BatchName("app", 0)
TOPIC = "Prefix"
FIRST = pa.array([b"first-%d" % n for n in range(5)])
SECOND = pa.array([b"second"])


@dataclass
class Broken:
    """A store after a whole commit, and where records end from the first that the commit wrote."""

    folder: Path
    decision_end: int
    ends: list[int]


def record_ends(log: Path) -> Iterator[tuple[int, bytes]]:
    """Where each record of the one file of a log ends, and the record."""
    data = log.read_bytes()
    at = 0
    while size := int.from_bytes(data[at : at + 4], "big"):
        yield at + size, data[at : at + size]
        at += size


def staged_in_two(server: Standalone, column: pa.Array, levels: list[int]) -> list[TaskResult]:
    half = len(column) // 2
    delays = pa.array(levels, pa.int32())
    return [
        stage(server, TOPIC, column[:half], delayTimeLevel=delays[:half]),
        stage(server, TOPIC, column[half:], delayTimeLevel=delays[half:]),
    ]


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Broken:
    folder = tmp_path_factory.mktemp("whole")
    with Standalone(folder, settings=SETTINGS) as server:
        results = staged_in_two(server, FIRST, [0, 0, 0, 0, 18])
        log = folder / "commitlog" / f"{0:020d}"
        before = max(end for end, _ in record_ends(log))
        commit(options_of(server), NAME, results, started())
        assert seen(server, TOPIC) == sorted(FIRST.to_pylist()[:4])
    ends = [end for end, _ in record_ends(log) if end > before]
    return Broken(folder, ends[1], [before, *ends])  # behind the note of who decides


def crashed_at(whole: Broken, end: int, folder: Path) -> Path:
    """The store as a crash leaves it whose log ends at `end`."""
    shutil.copytree(whole.folder, folder, ignore=shutil.ignore_patterns("consumequeue", "index", "checkpoint"))
    with (folder / "commitlog" / f"{0:020d}").open("r+b") as log:
        log.seek(end)
        log.write(bytes(FILE_SIZE - end))
    (folder / "abort").touch()
    return folder


def delayed(server: Standalone) -> list[bytes]:
    return seen(server, "SCHEDULE_TOPIC_XXXX")


def test_the_commit_is_finished_once_from_every_prefix_of_the_log(committed: Broken, tmp_path: Path) -> None:
    assert len(committed.ends) > 10, "a claim, a decision, a delivery, three steps, five messages, the end"
    for end in committed.ends:
        with Standalone(crashed_at(committed, end, tmp_path / str(end)), settings=SETTINGS) as server:
            commit(options_of(server), NAME, staged_in_two(server, SECOND, [0]), started())
            is_decided = end >= committed.decision_end
            assert seen(server, TOPIC) == (sorted(FIRST.to_pylist()[:4]) if is_decided else [b"second"]), end
            assert delayed(server) == ([b"first-4"] if is_decided else []), end
        shutil.rmtree(tmp_path / str(end))


def test_others_may_have_written_between_the_crash_and_the_end_of_the_commit(committed: Broken, tmp_path: Path) -> None:
    for end in committed.ends[3:-1:4]:
        with Standalone(crashed_at(committed, end, tmp_path / str(end)), settings=SETTINGS) as server:
            commit(options_of(server), BatchName("another", 0), [stage(server, "Other", pa.array([b"x"]))], started())
            commit(options_of(server), NAME, [], started())
            assert seen(server, TOPIC) == sorted(FIRST.to_pylist()[:4]), end
            assert seen(server, "Other") == [b"x"]
        shutil.rmtree(tmp_path / str(end))
