"""`rocketmq-store`: what a store's log should hold and does not is an error that names it, or is counted."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from maxq.api import Admin, Message, Producer
from maxq.errors import DataLossError, PipelineError, StoreError
from maxq.pipeline.options.predicate import condition
from maxq.pipeline.store.store_source import RocketMQStoreDataSource
from maxq.protocol.body.topic_config import TopicConfig
from maxq.standalone import Standalone

SETTINGS = {"mappedFileSizeCommitLog": str(64 << 10)}
COUNT = 300
SIZE = 500


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Of a broker that is down: 300 messages of T, then 5 of U, in files of 64 KiB."""
    with Standalone(tmp_path, settings=SETTINGS) as server:
        with Admin(server.namesrv_address) as admin:
            for topic in ("T", "U"):
                admin.topics.create(server.broker_address, TopicConfig(topic, 1, 1))
        with Producer("g", server.namesrv_address) as producer:
            for first in range(0, COUNT, 50):
                producer.send_batch([Message("T", b"text %d" % n + bytes(SIZE)) for n in range(first, first + 50)])
            for n in range(5):
                producer.send(Message("U", b"u %d" % n))
        return Path(server.store)


def read(store: Path, *topics: str, **more: str) -> list[tuple[str, int]]:
    """Topic and queue offset of what the table `messages` gives."""
    from maxq.pipeline.options.predicate import predicate_option

    options = {"path": str(store), "columns": "topic,queueOffset", "brokerName": "b"} | more
    if topics:
        options |= predicate_option([condition("topic", "in", topics)])
    source = RocketMQStoreDataSource(options)
    reader = source.reader(None)  # type: ignore[arg-type]
    found = [
        (row["topic"], row["queueOffset"])
        for part in reader.partitions()
        for batch in reader.read(part)
        for row in batch.to_pylist()  # type: ignore[union-attr]
    ]
    return sorted(one for one in found if one[0] in ("T", "U"))


def everything() -> list[tuple[str, int]]:
    return [("T", n) for n in range(COUNT)] + [("U", n) for n in range(5)]


def test_messages_of_a_topic_that_was_deleted_are_not_shown(tmp_path: Path) -> None:
    with Standalone(tmp_path, settings=SETTINGS) as server:
        with Admin(server.namesrv_address) as admin, Producer("g", server.namesrv_address) as producer:
            for round_ in range(2):
                for topic in ("T", "U"):
                    admin.topics.create(server.broker_address, TopicConfig(topic, 1, 1))
                    producer.send_batch([Message(topic, b"%d" % round_)] * (7 - round_))
                if round_ == 0:
                    admin.topics.delete("T", "DefaultCluster")
        store = Path(server.store)
    assert read(store) == [("T", n) for n in range(6)] + [("U", n) for n in range(13)]
    assert read(store, "T") == [("T", n) for n in range(6)]


def log_files(store: Path) -> list[Path]:
    return sorted((store / "commitlog").iterdir())


def change(store: Path, text: bytes, at: int, new: bytes) -> None:
    for path in log_files(store):
        data = bytearray(path.read_bytes())
        place = data.find(text)
        if place >= 0:
            data[place + at : place + at + len(new)] = new
            path.write_bytes(data)
            return
    raise AssertionError("it is not in the log")


def test_a_whole_store_is_read_whole(store: Path) -> None:
    assert read(store) == everything()


def test_a_flipped_body_is_an_error_that_names_the_message(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    change(store, b"text 7\0", 5, b"x")
    with pytest.raises(DataLossError, match=r"queue T/b/0: wanted offset 7, 1 offsets \(7 to 7\).*CRC"):
        read(store)
    assert read(store, failOnDataLoss="false") == [one for one in everything() if one != ("T", 7)]
    assert "1 messages are lost and skipped" in caplog.text
    assert read(store, "U") == [("U", n) for n in range(5)]  # nothing of this topic is lost


def test_a_damaged_head_is_an_error_that_names_the_place(store: Path) -> None:
    change(store, b"text 9\0", -88 + 5, b"\0")
    with pytest.raises(DataLossError, match=r"commitlog/0+: bytes \d+ to \d+ \(excluded\) are no record"):
        read(store)
    assert read(store, failOnDataLoss="false") == [one for one in everything() if one != ("T", 9)]


def test_a_filler_that_a_start_put_over_damage_is_a_loss_and_no_row(store: Path) -> None:
    change(store, b"text 7\0", 5, b"x")
    (store / "abort").write_bytes(b"")  # a start without a clean exit before it looks for damage
    with Standalone(store, settings=SETTINGS | {"checkCRCOnRecover": "true"}) as server:
        assert server.store == store
        with pytest.raises(DataLossError, match=r"queue T/b/0: wanted offset 7.*filler"):
            read(store)
        assert read(store, failOnDataLoss="false") == [one for one in everything() if one != ("T", 7)]


def test_a_log_file_that_is_missing_is_an_error(store: Path) -> None:
    log_files(store)[1].unlink()
    with pytest.raises(DataLossError, match=r"offsets 65536 to 131072 \(excluded\) of the log: there is no file"):
        read(store)
    found = read(store, failOnDataLoss="false")
    assert found and len(found) < COUNT


@pytest.mark.parametrize("how", ["file", "zeros"])
def test_a_log_that_ends_before_its_queues_is_an_error(store: Path, how: str) -> None:
    if how == "file":
        for path in log_files(store)[-2:]:
            path.unlink()
    else:
        last = log_files(store)[-1]
        last.write_bytes(bytes(last.stat().st_size))
    with pytest.raises(DataLossError, match=r"queue [TU]/b/0: wanted offset \d+.*the log ends before the records"):
        read(store)
    found = read(store, failOnDataLoss="false")
    with pytest.raises(DataLossError, match=r"queue T/b/0: wanted offset (\d+)") as raised:
        read(store, "T")
    assert raised.value.wanted == len(found) and raised.value.end == COUNT


@pytest.mark.parametrize("live", [False, True])
def test_a_store_without_a_log_is_an_error_if_its_queues_have_messages(store: Path, live: bool) -> None:
    """As one whose log is kept elsewhere (storePathCommitLog): it was read as empty."""
    folder = store / "commitlog"
    with contextlib.ExitStack() as stack:
        if live:
            stack.enter_context(Standalone(store, settings=SETTINGS))
        folder.rename(store / "elsewhere")
        stack.callback((store / "elsewhere").rename, folder)
        with pytest.raises(DataLossError, match=r"queue [TU]/b/0: .*the store has no file of the log"):
            read(store)
        assert read(store, failOnDataLoss="false") == []


@pytest.fixture
def running(store: Path) -> Iterator[Standalone]:
    with Standalone(store, settings=SETTINGS) as server:
        yield server


def test_a_store_whose_broker_runs_is_no_loss(running: Standalone) -> None:
    assert read(Path(running.store)) == everything()


def with_deleted(folder: Path) -> Path:
    """The store of a broker that is down: T was deleted with its 10 messages, U has 3."""
    with Standalone(folder, settings=SETTINGS) as server:
        with Admin(server.namesrv_address) as admin, Producer("g", server.namesrv_address) as producer:
            for topic in ("T", "U"):
                admin.topics.create(server.broker_address, TopicConfig(topic, 1, 1))
            for n in range(10):
                producer.send(Message("T", b"text %d" % n + bytes(SIZE)))
            admin.topics.delete("T", "DefaultCluster")
            for n in range(3):
                producer.send(Message("U", b"u %d" % n))
        return Path(server.store)


def test_a_damaged_message_of_a_deleted_topic_is_no_loss(tmp_path: Path) -> None:
    store = with_deleted(tmp_path)
    change(store, b"text 7\0", 0, b"T")
    assert read(store) == [("U", n) for n in range(3)]


def test_a_list_of_deleted_topics_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """Else their messages would be back."""
    store = with_deleted(tmp_path)
    path = store / "deletions.json"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(StoreError, match=r"deletions\.json cannot be read: .* Start the store's broker on it once"):
        read(store)


def test_a_list_of_deleted_topics_that_is_missing_is_an_error_where_the_log_deletes_one(tmp_path: Path) -> None:
    store = with_deleted(tmp_path)
    known = (store / "deletions.json").read_bytes()
    (store / "deletions.json").unlink()
    with pytest.raises(PipelineError, match=r"physical offset \d+ deletes T, which deletions\.json does not know"):
        read(store)
    (store / "deletions.json").write_bytes(known)
    assert read(store) == [("U", n) for n in range(3)]


def test_purged_messages_stay_away(tmp_path: Path) -> None:
    """Also where they are damaged: whoever may not read them has not lost them."""
    with Standalone(tmp_path, settings=SETTINGS) as server:
        with Admin(server.namesrv_address) as admin, Producer("g", server.namesrv_address) as producer:
            for topic in ("T", "U"):
                admin.topics.create(server.broker_address, TopicConfig(topic, 1, 1))
                for n in range(10):
                    producer.send(Message(topic, b"text %d" % n + bytes(SIZE)))
            admin.operations.purge_topic(server.broker_address, "T", dry_run=False)
            for _ in range(3):
                producer.send(Message("T", b"later"))
            expected = [("T", n) for n in range(10, 13)] + [("U", n) for n in range(10)]
            assert read(Path(server.store)) == expected
        store = Path(server.store)
    change(store, b"text 7\0", 0, b"T")
    assert read(store) == expected
