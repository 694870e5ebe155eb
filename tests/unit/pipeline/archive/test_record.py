"""The record of what was sent again."""

from collections.abc import Iterable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from maxq.api import Admin, Message, Producer
from maxq.errors import ConfigError
from maxq.pipeline.archive.coverage import incarnations
from maxq.pipeline.archive.record import SentRecord, piece_name
from maxq.pipeline.archive.same_messages import messages_on_brokers, other_queues
from maxq.pipeline.jobs.archive.job import ArchiveConfig, deleted_in_stores
from maxq.pipeline.options.read_options import ConnectionOptions, ReadOptions
from maxq.pipeline.wire.wire_client import WireClient
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.message.message_queue import MessageQueue
from maxq.standalone import Standalone

QUEUE = MessageQueue("%DLQ%g", "broker-a", 0)
OTHER = MessageQueue("T", "broker-a", 0)


def test_what_is_done_is_known_to_the_next_run_under_the_same_id(tmp_path: Path) -> None:
    one = SentRecord(tmp_path / "new" / "record", "work")
    one.begin()
    one.add(3, {QUEUE: [(0, 4)]})
    one.add(2, {QUEUE: [(5, 6), (9, 9)]})
    other = SentRecord(tmp_path / "new" / "record", "work")
    assert (other.id, other.rows, other.coverage) == (one.id, 5, {QUEUE: [(0, 6), (9, 9)]})
    assert piece_name(one.id, {QUEUE: [(0, 4)]}) == piece_name(other.id, {QUEUE: [(0, 4)]})
    assert piece_name(one.id, {QUEUE: [(0, 4)]}) != piece_name(one.id, {QUEUE: [(0, 5)]})


@pytest.mark.parametrize("kept", [1, 5, 30])
def test_a_line_that_was_torn_is_as_if_it_was_never_begun(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "record"
    one = SentRecord(path, "work")
    one.begin()
    head = path.read_bytes()
    one.add(3, {QUEUE: [(0, 4)]})
    path.write_bytes(path.read_bytes()[: len(head) + kept])
    other = SentRecord(path, "work")
    assert (other.id, other.rows, other.coverage) == (one.id, 0, {})
    other.add(3, {QUEUE: [(0, 4)]})
    assert SentRecord(path, "work").rows == 3


def test_a_piece_that_was_begun_and_not_done_is_known(tmp_path: Path) -> None:
    one = SentRecord(tmp_path / "record", "work")
    one.begin_piece({QUEUE: [(0, 4)]}, 3)
    other = SentRecord(tmp_path / "record", "work")
    assert (other.pending, other.pending_rows, other.coverage) == ({QUEUE: [(0, 4)]}, 3, {})
    other.add(2, {QUEUE: [(1, 4)]})  # the first one was deleted
    again = SentRecord(tmp_path / "record", "work")
    assert (other.pending, again.pending, again.pending_rows, again.coverage) == ({}, {}, None, {QUEUE: [(1, 4)]})


def test_a_torn_head_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "record"
    path.write_bytes(b'{"maxqRec')
    SentRecord(path, "work").add(1, {QUEUE: [(0, 0)]})
    assert SentRecord(path, "work").rows == 1


def test_the_record_of_other_work_is_refused(tmp_path: Path) -> None:
    SentRecord(tmp_path / "record", "work").begin()
    with pytest.raises(ConfigError, match="records other work"):
        SentRecord(tmp_path / "record", "other")
    (tmp_path / "text").write_text("hello\n")
    with pytest.raises(ConfigError, match="line 1"):
        SentRecord(tmp_path / "text", "work")


def test_the_record_of_a_topic_that_was_made_again_is_refused(tmp_path: Path) -> None:
    """Its first offsets counted as sent, and were left out in silence."""
    path, now = tmp_path / "record", {QUEUE: 700}

    def record() -> SentRecord:
        return SentRecord(path, "work", lambda queues: {queue: now[queue] for queue in queues if queue in now})

    record().add(3, {QUEUE: [(0, 4)], OTHER: [(0, 1)]})
    again = record()
    again.begin_piece({QUEUE: [(5, 6)]})
    now[OTHER] = 900
    with pytest.raises(ConfigError, match=r"records messages of T/broker-a/0 whose topic was deleted since.*another"):
        record()
    del now[OTHER]
    now[QUEUE] = 800
    again.add(2, {QUEUE: [(5, 6)]})  # of the topic that the piece was begun with
    with pytest.raises(ConfigError, match="records messages of %DLQ%g/broker-a/0 whose topic was deleted since"):
        record()


def test_lines_of_before_do_not_say_which_topic_they_are_of(tmp_path: Path) -> None:
    path = tmp_path / "record"
    SentRecord(path, "work").add(3, {QUEUE: [(0, 4)]})
    path.write_text(path.read_text().replace(', "incarnations": {}', ""))
    assert SentRecord(path, "work", lambda queues: dict.fromkeys(queues, 7)).rows == 3


def make_again(server: Standalone) -> None:
    with Admin(server.namesrv_address) as admin, Producer("g", server.namesrv_address) as producer:
        admin.topics.delete("T", "DefaultCluster")
        admin.topics.create(server.broker_address, TopicConfig("T", 1, 1))
        producer.send(Message("T", b"text"))


def test_brokers_and_stores_say_that_a_topic_was_made_again(tmp_path: Path) -> None:
    store = tmp_path / "store"
    config = ArchiveConfig("", store=(str(store),), topics=("T",), broker_name="broker-a")
    with Standalone(store) as server:
        make_again(server)
        connection = ConnectionOptions(server.namesrv_address)
        redriven, replayed = partial(incarnations, connection), partial(deleted_in_stores, config)
        SentRecord(tmp_path / "redriven", "work", redriven).add(1, {OTHER: [(0, 0)], QUEUE: [(0, 3)]})
        SentRecord(tmp_path / "redriven", "work", redriven)
        make_again(server)
        with pytest.raises(ConfigError, match="T/broker-a/0 whose topic was deleted since"):
            SentRecord(tmp_path / "redriven", "work", redriven)
    SentRecord(tmp_path / "replayed", "work", replayed).add(1, {OTHER: [(0, 0)]})
    SentRecord(tmp_path / "replayed", "work", replayed)
    with Standalone(store) as server:
        make_again(server)
    with pytest.raises(ConfigError, match="T/broker-a/0 whose topic was deleted since"):
        SentRecord(tmp_path / "replayed", "work", replayed)


def test_a_broker_that_does_not_answer_at_once_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its topic counted as one that was never deleted; a record that noted so was refused later."""
    whole, questions = WireClient.max_offsets, count()

    def silent_at_first(client: WireClient, queues: Iterable[MessageQueue]) -> Any:
        asked = list(queues)
        if next(questions) == 0:
            return {}, {queue: OSError("no answer") for queue in asked}
        return whole(client, asked)

    with Standalone(tmp_path / "store") as server:
        make_again(server)
        make_again(server)
        connection = ConnectionOptions(server.namesrv_address)
        known = incarnations(connection, [OTHER])
        monkeypatch.setattr(WireClient, "max_offsets", silent_at_first)
        assert incarnations(connection, [OTHER, MessageQueue("T", "no-such-broker", 0)]) == known
    assert known[OTHER] > 0
    assert "1 queues, such as" in caplog.text


def test_the_newest_messages_say_that_a_topic_was_made_again(tmp_path: Path) -> None:
    """As of Java's brokers, which do not tell it."""
    with Standalone(tmp_path / "store") as server:
        make_again(server)
        given = {"rocketmq.namesrv": server.namesrv_address, "subscribe": "T"}
        reading = ReadOptions.parse(given, streaming=False)
        newest = messages_on_brokers(reading, {OTHER: 0, QUEUE: 3, MessageQueue("T", "no-such-broker", 0): 0})
        assert [*newest] == [OTHER]
        SentRecord(tmp_path / "record", "work").begin_piece({OTHER: [(0, 0)]}, 1, newest)
        record = SentRecord(tmp_path / "record", "work")
        assert record.newest[OTHER].is_same(newest[OTHER])
        record.refuse(other_queues(reading, record.newest))
        shorter = {OTHER: newest[OTHER]._replace(offset=1)}
        assert other_queues(reading, shorter) == [OTHER]
        make_again(server)
        with pytest.raises(ConfigError, match="T/broker-a/0 whose topic was deleted since"):
            record.refuse(other_queues(reading, record.newest))
