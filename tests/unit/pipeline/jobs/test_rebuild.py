"""Rebuilt files are those of the broker that wrote the store, and a broker starts on them without reading on."""

import asyncio
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from itertools import count, pairwise
from pathlib import Path, PurePath
from typing import Any

import pytest

import maxq
from maxq.api import Admin, Message, Producer
from maxq.config.message_store_config import MessageStoreConfig
from maxq.errors import ConfigError, PipelineError, StoreRefusedError
from maxq.pipeline.jobs.rebuild.job import Rebuild, RebuildOptions, RebuildReport
from maxq.pipeline.jobs.task_frame import inline_runner
from maxq.runtime.files.system import SystemClock, SystemDisk, SystemMappedRegion
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.context.store_context import StoreIdentity
from maxq.store.message_store import MessageStore
from maxq.store.recovery.recovery_report import RecoveryReport
from maxq.store.store_results import PutMessageStatus
from maxq.store.tools.check import StoreCheck
from maxq.store.tools.recover import config_of
from maxq.store.tools.store_files import StoreFiles, StoreSettings
from tests.unit.store.stores import delete_topics, message, new_store, small_config
from tests.unit.store_tools.golden_stores import STORES, expected


def golden(name: str, tmp_path: Path) -> Path:
    store = tmp_path / "store"
    shutil.copytree(STORES / name, store, ignore=shutil.ignore_patterns("*.chunks", "sparse.json", "expected.json"))
    return store


def open_store(store: Path) -> StoreFiles:
    conf = store / "broker.conf"
    settings = StoreSettings.from_properties(conf.read_bytes()) if conf.exists() else None
    return StoreFiles(SystemDisk(), PurePath(store), settings)


def run(store: Path, piece_bytes: int = 1 << 20, **options: Any) -> RebuildReport:
    return Rebuild(open_store(store), RebuildOptions(piece_bytes=piece_bytes, **options), inline_runner).run()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def load(store: Path) -> RecoveryReport:
    """Start a store on it, as a broker does, and close it."""
    files = open_store(store)
    opened = MessageStore(config_of(files), disk=files.disk, clock=SystemClock(), broker=StoreIdentity())
    report = opened.load()
    opened.close()
    return report


def assert_starts_without_replay(store: Path) -> None:
    report = load(store)
    assert report.clean_exit
    assert report.dispatched_records == 0
    assert report.dispatch_from == report.end_offset
    assert report.rebuild_reasons == []
    assert report.faults == []


@pytest.mark.parametrize("piece_bytes", [40_000, 1 << 20])
@pytest.mark.parametrize("name", ["clean", "timer"])
def test_files_are_java_s_byte_for_byte(name: str, piece_bytes: int, tmp_path: Path) -> None:
    store = golden(name, tmp_path)
    before = open_store(store)
    result = run(store, piece_bytes, output=PurePath(tmp_path / "new"))
    for folder in ("consumequeue", "batchconsumequeue"):
        if (store / folder).exists():
            assert contents(tmp_path / "new" / folder) == contents(store / folder)
    java = [path.read_bytes() for path in sorted((store / "index").iterdir())]
    assert [(tmp_path / "new" / "index" / name).read_bytes() for name in result.index_files] == java
    assert open_store(store).queues == before.queues


@pytest.mark.parametrize("name", ["clean", "no-index", "timer", "crashed-no-index", "crashed-torn"])
def test_a_broker_starts_on_it_and_replays_nothing(name: str, tmp_path: Path) -> None:
    store = golden(name, tmp_path)
    run(store)
    assert not (store / "abort").exists()
    assert not (store / "rebuild.maxq").exists()
    assert_starts_without_replay(store)
    assert StoreCheck(open_store(store)).run().faults == []


def test_the_queues_that_java_lost_are_there(tmp_path: Path) -> None:
    store = golden("crashed-no-index", tmp_path)
    result = run(store)
    queues = expected("crashed-no-index-no-checkpoint")["queues"]
    assert result.units == sum(len(queue["units"]) for queue in queues)


def test_a_second_run_gives_the_same(tmp_path: Path) -> None:
    store = golden("clean", tmp_path)
    folders = ("consumequeue", "batchconsumequeue", "index")
    run(store, 50_000)
    first = {folder: contents(store / folder) for folder in folders} | {"": (store / "inventory.json").read_bytes()}
    run(store, 1 << 20)
    second = {folder: contents(store / folder) for folder in folders} | {"": (store / "inventory.json").read_bytes()}
    assert first == second


def opened_with_batches(config: MessageStoreConfig) -> MessageStore:
    """Open a store whose topic Batch has queue.type=BatchCQ."""
    store = new_store(config)
    store.queues.is_batch_topic = {"Batch": True}.get
    store.load()
    return store


def store_with_empty_queues(tmp_path: Path) -> MessageStoreConfig:
    """Make a store with two queues whose five messages have expired; the inventory alone has their numbers."""
    config = small_config(tmp_path)
    store = opened_with_batches(config)
    for _ in range(5):
        store.put_message(message("Old"))
        store.put_message(message("Batch"))
    while store.commit_log.min_offset == 0:
        store.put_message(message("New", body=bytes(8000)))
        if len(store.commit_log.files.files) == 3:
            with store.commit_log.without_first() as first:
                first.destroy()
    queue = store.queue("Old", 0)
    assert queue is not None
    store.queues.empty(queue)
    store.close()
    shutil.rmtree(tmp_path / "batchconsumequeue")
    opened_with_batches(config).close()
    (tmp_path / "broker.conf").write_text(
        "".join(f"{name}={value}\n" for name, value in (
            ("mappedFileSizeCommitLog", config.mapped_file_size_commit_log),
            ("mappedFileSizeConsumeQueue", config.mapped_file_size_consume_queue),
            ("maxHashSlotNum", config.max_hash_slot_num),
            ("maxIndexNum", config.max_index_num),
        ))
    )  # fmt: skip
    return config


def put_behind_the_empty_ones(config: MessageStoreConfig) -> MessageStore:
    store = opened_with_batches(config)
    assert store.put_message(message("Old")).queue_offset == 5
    assert store.put_message(message("Batch")).queue_offset == 5
    return store


def test_queues_without_messages_and_files_keep_their_numbers(tmp_path: Path) -> None:
    config = store_with_empty_queues(tmp_path)
    run(tmp_path)
    store = put_behind_the_empty_ones(config)
    assert store.report.rebuild_reasons == []
    store.close()


@pytest.mark.parametrize("step", range(10))
def test_queues_without_messages_keep_their_numbers_wherever_a_rebuild_is_killed(
    tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old files were gone before the new ones had their names, and the next start numbered from 0."""
    config = store_with_empty_queues(tmp_path)
    steps = count()

    def killed(do: Callable[..., None]) -> Callable[..., None]:
        def step_or_death(*args: Any, **more: Any) -> None:
            if next(steps) == step:
                raise KeyboardInterrupt
            do(*args, **more)

        return step_or_death

    finish = Rebuild._finish
    with monkeypatch.context() as patch:

        def finish_and_die(*args: Any) -> None:
            for name in ("delete_tree", "delete", "rename"):
                patch.setattr(SystemDisk, name, killed(getattr(SystemDisk, name)))
            finish(*args)

        patch.setattr(Rebuild, "_finish", finish_and_die)
        with suppress(KeyboardInterrupt):
            run(tmp_path)
    put_behind_the_empty_ones(config).close()


def test_damage_is_refused_and_nothing_changed(tmp_path: Path) -> None:
    store = golden("crashed-flip", tmp_path)
    before = contents(store)
    with pytest.raises(PipelineError, match=r"the log is damaged: commitlog/.*maxq store recover --rebuild"):
        run(store)
    assert contents(store) == before


@pytest.mark.parametrize(
    ("name", "why"), [("lmq-cqext", "consumequeue_ext"), ("dledger/n1", "the log is a DLedger one")]
)
def test_what_the_log_does_not_tell_is_refused_by_name(name: str, why: str, tmp_path: Path) -> None:
    store = golden(name, tmp_path)
    with pytest.raises(PipelineError, match=why):
        run(store)


def test_compacted_topics_of_a_broker_that_died_are_left_to_it(tmp_path: Path) -> None:
    store = golden("crashed", tmp_path)
    (store / "compaction/compactionLog/Topic/0").mkdir(parents=True)
    with pytest.raises(PipelineError, match="start the broker once"):
        run(store)
    assert (store / "abort").exists()
    run(store, output=PurePath(tmp_path / "new"))


def make_store(root: Path, count: int, topic: str = "T", first: int = 0, **config: Any) -> MessageStore:
    """A store with messages of two queues; it is open."""
    files = {"mapped_file_size_commit_log": 1 << 16, "mapped_file_size_consume_queue": 1000}
    settings = {**files, "max_hash_slot_num": 50, "max_index_num": 70, **config}
    made = MessageStoreConfig(store_path_root_dir=str(root), **settings)
    opened = MessageStore(made, disk=SystemDisk(), clock=SystemClock(), broker=StoreIdentity())
    opened.load()
    put(opened, topic, range(first, first + count))
    return opened


def put(opened: MessageStore, topic: str, numbers: range) -> None:
    for number in numbers:
        properties = {"TAGS": f"t{number % 3}", "KEYS": f"k{number} both", "UNIQ_KEY": f"u{number}"}
        result = opened.put_message(MessageExtBrokerInner(topic, number % 2, b"x" * 300, properties))
        assert result.status is PutMessageStatus.PUT_OK


def test_maxq_s_own_files_come_out_the_same(tmp_path: Path) -> None:
    make_store(tmp_path / "s", 900).close()
    store = tmp_path / "s"
    before = contents(store)
    run(store, 10_000)
    after = contents(store)
    names = sorted(name for name in before if name.startswith("index/"))
    rebuilt = sorted(name for name in after if name.startswith("index/"))
    assert len(names) == 40
    assert [after[name] for name in rebuilt] == [before[name] for name in names]
    queues = {name: data for name, data in before.items() if name.startswith(("consumequeue/", "checkpoint"))}
    assert len(queues) == 19
    assert {name: after[name] for name in queues} == queues
    assert_starts_without_replay(store)


def test_the_store_goes_on_behind_the_last_message(tmp_path: Path) -> None:
    make_store(tmp_path / "s", 100).close()
    run(tmp_path / "s")
    opened = make_store(tmp_path / "s", 50, first=100)
    assert [queue.max_offset for queue in opened.queues.of_topic("T")] == [75, 75]
    opened.close()
    files = open_store(tmp_path / "s")
    assert StoreCheck(StoreFiles(files.disk, files.root, hash_slots=50, index_entries=70)).run().faults == []


def test_a_queue_without_messages_keeps_its_numbers(tmp_path: Path) -> None:
    make_store(tmp_path / "s", 40, topic="Old").close()
    opened = make_store(tmp_path / "s", 700, topic="New")
    opened.close()
    for name in ("00000000000000000000", "00000000000000065536"):
        (tmp_path / "s" / "commitlog" / name).unlink()  # as a broker cleans up
    result = run(tmp_path / "s")
    assert result.kept_queues == 2
    assert result.log_start == 131072
    assert_starts_without_replay(tmp_path / "s")
    opened = make_store(tmp_path / "s", 2, topic="Old")
    assert [queue.max_offset for queue in opened.queues.of_topic("Old")] == [21, 21]
    opened.close()


def test_what_was_deleted_gets_no_units(tmp_path: Path) -> None:
    opened = make_store(tmp_path / "s", 300)
    put(opened, "Gone", range(50))
    asyncio.run(delete_topics(opened, "T", "Gone"))  # with a loop that runs on, files would be made ahead by threads
    put(opened, "T", range(120))
    opened.close()
    before = contents(tmp_path / "s")
    run(tmp_path / "s", 10_000)
    after = contents(tmp_path / "s")
    queues = {name: data for name, data in before.items() if name.startswith("consumequeue/")}
    assert {name: data for name, data in after.items() if name.startswith("consumequeue/")} == queues
    assert_starts_without_replay(tmp_path / "s")
    (tmp_path / "s" / "deletions.json").unlink()
    with pytest.raises(PipelineError, match=r"Gone, T were deleted here, which deletions\.json does not know"):
        run(tmp_path / "s", 10_000)


def test_a_store_that_a_broker_holds_is_refused(tmp_path: Path) -> None:
    opened = make_store(tmp_path / "s", 10)
    with pytest.raises(StoreRefusedError, match="another broker runs on this store"):
        run(tmp_path / "s")
    opened.close()


@pytest.mark.parametrize("piece_bytes", [5000, 1 << 20])
def test_a_queue_that_does_not_join_is_refused(piece_bytes: int, tmp_path: Path) -> None:
    opened = make_store(tmp_path / "s", 60)
    unit = opened.queues.of_topic("T")[0].unit(22)
    assert unit is not None
    opened.close()
    with open(tmp_path / "s" / "commitlog" / f"{0:020d}", "r+b") as log:
        log.seek(unit[0] + 20)
        log.write((35).to_bytes(8, "big"))
    with pytest.raises(PipelineError, match=rf"queue T-0: message 35 at physical offset {unit[0]} follows message 21"):
        run(tmp_path / "s", piece_bytes)


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    make_store(tmp_path / "s", 10).close()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("mine")
    with pytest.raises(ConfigError, match="is not empty, and no rebuild made it"):
        run(tmp_path / "s", output=PurePath(tmp_path / "other"))
    assert contents(tmp_path / "other") == {"file": b"mine"}


def test_a_whole_server_starts_on_it_and_gives_the_messages(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="maxq.store.store_life")
    with maxq.Standalone(tmp_path / "s") as server, Producer("p", server.namesrv_address) as producer:
        for number in range(20):
            message = Message("Orders", b"%d" % number)
            message.keys = f"k{number}"
            producer.send(message)
    run(tmp_path / "s")
    caplog.clear()
    with maxq.Standalone(tmp_path / "s") as server, Admin(server.namesrv_address) as admin:
        found = admin.messages.query_by_key("Orders", "k7")
        assert [bytes(message.body) for message in found] == [b"7"]
    assert any("dispatched again: 0 records" in line for line in caplog.messages)


@pytest.mark.parametrize("ends_clean", [False, True])
def test_what_a_broker_that_died_may_not_have_flushed_is_written_again_before_the_files_call_it_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, ends_clean: bool
) -> None:
    """A sync that failed leaves bytes in memory only, and a later sync says nothing about them."""
    config = MessageStoreConfig(
        store_path_root_dir=str(tmp_path / "store"), mapped_file_size_commit_log=65_536, max_message_size=4096,
        mapped_file_size_consume_queue=400, max_hash_slot_num=100, max_index_num=200,
    )  # fmt: skip
    store = MessageStore(config, disk=SystemDisk(), clock=SystemClock(), broker=StoreIdentity())
    store.load()
    for number in range(300):
        store.put_message(MessageExtBrokerInner("T", 0, b"x" * 1000, {"KEYS": f"k{number}"}))
    store.flusher.flush_inline()
    store.checkpoint.flush()
    flushed = store.flushed_offset
    for number in range(100):
        store.put_message(MessageExtBrokerInner("T", 0, b"y" * 1000, {"KEYS": f"l{number}"}))
    end = store.max_physical_offset
    if ends_clean:
        store.close()
    else:
        store._life.lock.release()  # what a killed process leaves
    written: list[tuple[int, int]] = []
    real = SystemMappedRegion.write_again

    def write_again(region: SystemMappedRegion, start: int, stop: int) -> None:
        base = int(os.path.basename(os.readlink(f"/proc/self/fd/{region._fd}")))
        written.append((base + start, base + stop))
        real(region, start, stop)

    monkeypatch.setattr(SystemMappedRegion, "write_again", write_again)
    (tmp_path / "store" / "broker.conf").write_text(
        "mappedFileSizeCommitLog=65536\nmappedFileSizeConsumeQueue=400\nmaxHashSlotNum=100\nmaxIndexNum=200\n"
    )
    run(tmp_path / "store")
    if ends_clean:
        assert not written
        return
    assert written[0][0] == flushed
    assert all(before[1] == after[0] for before, after in pairwise(written))
    assert written[-1][1] >= end
    assert_starts_without_replay(tmp_path / "store")
