"""In which order a replay takes the files of an archive, and what it makes of messages that were not sent."""

import pytest

from maxq.errors import DataLossError
from maxq.pipeline.archive.manifest import FileEntry, QueuePart
from maxq.pipeline.jobs.replay import _tell_gone, neighbours
from maxq.pipeline.records.losses import Losses
from maxq.protocol.message.message_queue import MessageQueue


def file_of(name: str, first_time: int, **queues: int) -> FileEntry:
    """A file that begins, in each queue of `queues`, at this offset."""
    parts = tuple(QueuePart("b", int(queue[1:]), ((first, first + 9),), 10, 0) for queue, first in queues.items())
    return FileEntry(name, "T", "2026-01-01", 10, 100, 0, first_time, first_time + 5, "run", parts)


def order(*files: FileEntry) -> list[str]:
    return [entry.path for group in neighbours(files, 100) for entry in group]


def test_files_go_in_the_order_of_time() -> None:
    assert order(file_of("b", 20, q1=0), file_of("a", 10, q0=0), file_of("c", 30, q0=10)) == ["a", "b", "c"]


def test_a_queue_keeps_its_order_where_the_clock_of_its_broker_went_back() -> None:
    later = file_of("later", 900, q0=10, q1=0)
    assert order(later, file_of("first", 1000, q0=0), file_of("last", 800, q1=10)) == ["first", "later", "last"]


def test_messages_that_a_condition_leaves_out_the_second_time_are_not_lost(caplog: pytest.LogCaptureFixture) -> None:
    queue = MessageQueue("T", "b", 0)
    with pytest.raises(
        DataLossError, match=r"queue T/b/0: .*6 offsets \(0 to 5\) are lost: 10 messages were to be sent"
    ):
        _tell_gone({queue: [(0, 5)]}, 4, 10, Losses(fail=True))
    _tell_gone({queue: []}, 4, 10, Losses(fail=True))
    assert "10 messages were to be sent and 4 were, and all are there" in caplog.text
