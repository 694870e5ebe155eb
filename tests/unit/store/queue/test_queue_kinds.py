"""A topic whose queue.type is known later than its messages, or another one when it is made again."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from maxq.protocol.message.message import decode_records
from maxq.protocol.message.message_sys_flag import MessageSysFlag
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.log.tails_cy import QueueTail
from maxq.store.message_store import MessageStore
from maxq.store.queue import consume_queue_store
from maxq.store.store_results import GetMessageStatus
from tests.unit.store.stores import delete_topics, message, new_store, small_config


class Brokers:
    """Stores with a table of topics each, which is told when the test wants: topic → is it of BatchCQ?"""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._open: list[MessageStore] = []

    def start(self, name: str = "master", types: dict[str, bool] | None = None, **settings: Any) -> MessageStore:
        store = new_store(small_config(self._root / name, **settings))
        store.queues.is_batch_topic = (types if types is not None else {}).get
        store.load()
        self._open.append(store)
        return store

    def stop(self, store: MessageStore) -> None:
        self._open.remove(store)
        store.close()

    def kill(self, store: MessageStore) -> None:
        """The process ends; the system keeps what it has written."""
        self._open.remove(store)
        store._life.lock.release()

    def stop_all(self) -> None:
        for store in list(self._open):
            self.stop(store)


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    made = Brokers(tmp_path)
    yield made
    made.stop_all()


def put(store: MessageStore, *texts: str, topic: str = "B") -> list[int]:
    results = [store.put_message(message(topic, body=text.encode())) for text in texts]
    assert all(result.ok for result in results), results
    return [result.queue_offset for result in results]


def put_batch(store: MessageStore, text: str, count: int = 3) -> int:
    batch = MessageExtBrokerInner(
        "B", 0, text.encode(), {"INNER_NUM": str(count)}, sys_flag=MessageSysFlag.INNER_BATCH,
        born_host=b"\x7f\0\0\1\0\0\x12\x34",
    )  # fmt: skip
    result = store.put_message(batch)
    assert result.ok, result.remark
    return result.queue_offset


def copy(master: MessageStore, slave: MessageStore) -> None:
    """What the slave lacks of the master's log."""
    start = slave.max_physical_offset
    data = master.commit_log.get(start, master.max_physical_offset - start)
    assert data is not None
    slave.append_from_master(start, data)


def texts(store: MessageStore, offset: int | None = None) -> list[str]:
    """What a reader gets who begins at `offset`, or at the beginning."""
    found: list[str] = []
    offset = store.min_offset("B", 0) if offset is None else offset
    while True:
        result = store.get_message("g", "B", 0, offset, 2, None)
        found += [record.body.decode() for data in result.buffers for record in decode_records(data)]
        if result.status is not GetMessageStatus.FOUND and result.next_begin_offset <= offset:
            return found
        offset = result.next_begin_offset


@pytest.mark.parametrize("is_running", [True, False])
def test_a_slave_that_hears_late_of_a_topic_of_batches_shows_all_messages(brokers: Brokers, is_running: bool) -> None:
    master = brokers.start(types={"B": True})
    heard: dict[str, bool] = {}
    slave = brokers.start("slave", heard, broker_role="SLAVE")
    put(master, "a", "b", "c")
    copy(master, slave)
    assert texts(slave) == ["a", "b", "c"]
    heard["B"] = True
    if is_running:
        slave.queues.take_kind("B")
    else:
        brokers.stop(slave)
        slave = brokers.start("slave", heard, broker_role="SLAVE")
    assert (slave.min_offset("B", 0), texts(slave)) == (0, ["a", "b", "c"])
    put(master, "d")
    put_batch(master, "e")
    copy(master, slave)
    assert texts(slave) == texts(master) == ["a", "b", "c", "d", "e"]
    assert texts(slave, 3) == ["d", "e"]
    brokers.stop(slave)
    promoted = brokers.start("slave", heard)
    assert texts(promoted) == ["a", "b", "c", "d", "e"]
    assert put(promoted, "f") == [7]


def test_a_batch_shows_of_what_kind_a_topic_is_that_nobody_has_heard_of(brokers: Brokers) -> None:
    master = brokers.start(types={"B": True})
    slave = brokers.start("slave", broker_role="SLAVE")
    put(master, "a", "b")
    put_batch(master, "c")
    put(master, "d")
    copy(master, slave)
    assert texts(slave) == ["a", "b", "c", "d"]
    brokers.stop(slave)
    assert texts(brokers.start("slave")) == ["a", "b", "c", "d"]


def test_a_waiting_reader_of_the_other_kind_of_queue_is_woken(brokers: Brokers) -> None:
    types: dict[str, bool] = {}
    store = brokers.start(types=types)
    woken: list[tuple[str, int]] = []

    def tell(tails: list[QueueTail]) -> None:
        woken.extend((tail.topic, tail.queue_id) for tail in tails)

    store.add_arrival_listener(tell)
    put(store, "a")
    for is_batch, text in ((True, "b"), (False, "c")):
        store.watch("B", 0)
        types["B"] = is_batch
        store.queues.take_kind("B")
        put(store, text)
    assert woken == [("B", 0)] * 2
    assert texts(store) == ["a", "b", "c"]


@pytest.mark.parametrize("is_batch", [True, False])
@pytest.mark.parametrize("is_dispatched", [True, False])
async def test_a_topic_that_is_made_again_has_the_new_kind_of_queues(
    brokers: Brokers, tmp_path: Path, is_batch: bool, is_dispatched: bool
) -> None:
    """Also if the deletion is not visible yet when it is made again."""
    types = {"B": not is_batch}
    store = brokers.start(types=types, flush_disk_type="ASYNC_FLUSH" if is_dispatched else "SYNC_FLUSH")
    put(store, "old", "older")
    await store.flush()
    put(store, "oldest")
    assert store.put_deletion(["B"]).ok
    del types["B"]
    types["B"] = is_batch
    store.queues.take_kind("B")
    assert put(store, "new") == [0]
    await store.finish_deletion(["B"])
    assert put(store, "newer") == [1]
    await store.flush()
    assert texts(store) == ["new", "newer"]
    assert bool(store.queues.batch_queues) is is_batch
    for kind, is_there in (("batchconsumequeue", is_batch), ("consumequeue", not is_batch)):
        assert (tmp_path / "master" / kind / "B").exists() is is_there
    brokers.stop(store)
    store = brokers.start(types=types)
    assert (texts(store), put(store, "newest")) == (["new", "newer"], [2])
    assert bool(store.queues.batch_queues) is is_batch


async def test_a_slave_follows_a_topic_of_batches_that_is_made_again_without(brokers: Brokers) -> None:
    master = brokers.start(types={"B": True})
    heard = {"B": True}
    slave = brokers.start("slave", heard, broker_role="SLAVE")
    put_batch(master, "old")
    await delete_topics(master, "B")
    master.queues.is_batch_topic = {"B": False}.get
    master.queues.take_kind("B")
    put(master, "a", "b")
    copy(master, slave)
    assert texts(slave) == ["a", "b"]
    heard["B"] = False
    slave.queues.take_kind("B")
    put(master, "c")
    copy(master, slave)
    assert texts(slave) == ["a", "b", "c"]
    assert not slave.queues.batch_queues
    brokers.stop(slave)
    promoted = brokers.start("slave", heard)
    assert (texts(promoted), put(promoted, "d")) == (["a", "b", "c"], [3])


def test_a_topic_with_batches_keeps_their_queues_whatever_its_attribute_says(brokers: Brokers) -> None:
    types = {"B": True}
    store = brokers.start(types=types)
    put(store, "a")
    put_batch(store, "b")
    types["B"] = False
    store.queues.take_kind("B")
    assert texts(store) == ["a", "b"]
    brokers.stop(store)
    store = brokers.start(types=types)
    assert (texts(store), put(store, "c")) == (["a", "b"], [4])


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("knows", [True, False])
def test_files_of_both_kinds_are_built_anew(brokers: Brokers, tmp_path: Path, end: str, knows: bool) -> None:
    """Earlier versions left such, and so does a copying that is cut short."""
    types: dict[str, bool] = {}
    store = brokers.start(types=types)
    put(store, "a", "b")
    brokers.stop(store)
    plain, aside = tmp_path / "master" / "consumequeue" / "B", tmp_path / "aside"
    shutil.copytree(plain, aside)
    types["B"] = True
    store = brokers.start(types=types)
    put_batch(store, "c")
    getattr(brokers, end)(store)
    shutil.rmtree(plain, ignore_errors=True)
    shutil.copytree(aside, plain)
    store = brokers.start(types=types if knows else None)
    assert (texts(store), put(store, "d")) == (["a", "b", "c"], [5])
    assert not plain.exists()


@pytest.mark.parametrize("is_batch", [True, False])
def test_a_kill_after_the_copying_loses_nothing(brokers: Brokers, is_batch: bool) -> None:
    types = {"B": not is_batch}
    store = brokers.start(types=types)
    put(store, "a", "b")
    brokers.stop(store)
    store = brokers.start(types=types)
    types["B"] = is_batch
    store.queues.take_kind("B")
    put(store, "c")
    brokers.kill(store)
    store = brokers.start(types=types)
    assert (texts(store), put(store, "d")) == (["a", "b", "c"], [3])


@pytest.mark.parametrize("is_batch", [True, False])
def test_a_full_disk_leaves_the_queues_as_they_are(
    brokers: Brokers, is_batch: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    types = {"B": not is_batch}
    store = brokers.start(types=types)
    put(store, *"abcdefghijklmnopqrstuvwxyz")
    types["B"] = is_batch

    def is_full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(store.queues, "_move_aside", is_full)
        store.queues.take_kind("B")
    assert texts(store) == list("abcdefghijklmnopqrstuvwxyz")
    assert put(store, "!") == [26]
    brokers.stop(store)
    store = brokers.start(types=types)
    assert texts(store) == list("abcdefghijklmnopqrstuvwxyz!")
    assert bool(store.queues.batch_queues) is is_batch
    assert not list((tmp_path / "master" / ("consumequeue" if is_batch else "batchconsumequeue")).glob("B/*/*"))


def test_many_units_wait_for_the_next_start(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    """To copy them takes time, and can be read where they are."""
    monkeypatch.setattr(consume_queue_store, "_MOST_COPIED", 1)
    master = brokers.start(types={"B": True})
    types: dict[str, bool] = {}
    slave = brokers.start("slave", types, broker_role="SLAVE")
    put(master, "a", "b")
    copy(master, slave)
    types["B"] = True
    slave.queues.take_kind("B")
    assert (texts(slave), list(slave.queues.batch_queues)) == (["a", "b"], [])
    put(master, "c")
    copy(master, slave)
    assert texts(slave) == ["a", "b", "c"]
    put_batch(master, "d")
    copy(master, slave)
    assert (texts(slave), len(slave.queues.batch_queues)) == (["a", "b", "c", "d"], 1)


def test_numbering_goes_on_in_the_other_kind_of_queue_when_no_message_is_left(brokers: Brokers) -> None:
    types: dict[str, bool] = {}
    store = brokers.start(types=types)
    put(store, "a", "b")
    queue = store.queue("B", 0)
    assert queue is not None
    store.queues.empty(queue)
    for is_batch in (True, False, True):
        types["B"] = is_batch
        store.queues.take_kind("B")
        assert (store.max_offset("B", 0), store.taken_offset("B", 0)) == (2, 2)
        brokers.stop(store)
        store = brokers.start(types=types)
        assert store.max_offset("B", 0) == 2


def test_a_slave_of_a_java_broker_notices_that_a_topic_of_batches_was_made_again(brokers: Brokers) -> None:
    """Java writes no record of the deletion: queue offsets begin at 0 again."""
    old, new = brokers.start("old", {"B": True}), brokers.start("new", {"B": True})
    slave = brokers.start("slave", {"B": True}, broker_role="SLAVE")
    put(old, "a", "b")
    put_batch(old, "c")
    copy(old, slave)
    put(new, *["filling"] * 4, topic="Other")
    put_batch(new, "d", 2)
    put(new, "e")
    assert texts(new) == ["d", "e"]
    at = slave.max_physical_offset
    start = next(unit.physical_offset for unit in new.queues.batch_queues["B", 0].units(0))
    data = new.commit_log.get(start, new.max_physical_offset - start)
    assert data is not None
    slave.append_from_master(at, _moved(data, at - start))
    assert (slave.min_offset("B", 0), texts(slave)) == (0, ["d", "e"])


def _moved(data: memoryview, by: int) -> memoryview:
    """The records with other physical offsets."""
    moved, position = bytearray(data), 0
    while position < len(moved):
        at = slice(position + 28, position + 36)
        moved[at] = (int.from_bytes(moved[at], "big") + by).to_bytes(8, "big")
        position += int.from_bytes(moved[position : position + 4], "big")
    return memoryview(moved)
