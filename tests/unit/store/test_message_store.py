"""Putting and getting: what a store promises to the broker above it."""

import asyncio
import shutil
import struct
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from maxq.config.message_store_config import MessageStoreConfig
from maxq.protocol.enums import BoundaryType
from maxq.protocol.message.message import Message, decode_record, decode_records, encode_batch
from maxq.runtime.files.system import SystemDisk, SystemMappedRegion
from maxq.store.append import message_writer
from maxq.store.log.commit_log import CommitLog
from maxq.store.log.tails_cy import QueueTail, jhash
from maxq.store.message_store import MessageStore
from maxq.store.queue.unit_scan_cy import DAMAGED_TAGS_CODE
from maxq.store.store_results import GetMessageResult, GetMessageStatus, PutMessageStatus
from maxq.store.tools.check import StoreCheck
from maxq.store.tools.store_files import StoreFiles
from tests.unit.store import naive
from tests.unit.store.stores import TestClock, message, opened, small_config


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def store(tmp_path: Path, clock: TestClock) -> MessageStore:
    return opened(small_config(tmp_path), clock)


class Tags:
    """A tag subscription."""

    expression_type = "TAG"

    def __init__(self, *tags: str) -> None:
        self.sub_string = " || ".join(tags) or "*"
        self.code_set = [jhash(tag) for tag in tags]


def bodies(result: GetMessageResult) -> list[bytes]:
    found: list[bytes] = []
    for buffer in result.buffers:
        position = 0
        while position < len(buffer):
            record = decode_record(buffer, position)
            found.append(record.body)
            position += record.store_size
    return found


def get(
    store: MessageStore, offset: int, topic: str = "T", queue_id: int = 0, count: int = 32, tags: Tags | None = None
) -> GetMessageResult:
    return store.get_message("g", topic, queue_id, offset, count, tags)


def test_what_was_put_is_got_in_order_and_whole(store: MessageStore, clock: TestClock) -> None:
    for number in range(5):
        clock.now_ms += 10
        result = store.put_message(message(body=b"%d" % number, KEYS="a b", TAGS="x"))
        assert (result.status, result.queue_offset, result.store_timestamp) == (
            PutMessageStatus.PUT_OK,
            number,
            clock.now_ms,
        )
        found = store.look_message_by_offset(result.physical_offset)
        assert found is not None
        assert found.properties == {"KEYS": "a b", "TAGS": "x"}
        assert found.offset_msg_id == result.msg_id
        assert result.end_offset == result.physical_offset + found.store_size == store.max_physical_offset
    found_all = get(store, 0)
    assert found_all.status is GetMessageStatus.FOUND
    assert bodies(found_all) == [b"0", b"1", b"2", b"3", b"4"]
    assert (found_all.next_begin_offset, found_all.min_offset, found_all.max_offset) == (5, 0, 5)
    assert len(found_all.buffers) == 1  # neighbours in the log are one slice


def test_a_record_that_does_not_fit_goes_whole_into_the_next_file(store: MessageStore, tmp_path: Path) -> None:
    sizes = [store.put_message(message(body=bytes(9000))) for _ in range(20)]
    assert {result.physical_offset // 65_536 for result in sizes} == {0, 1, 2}
    for result in sizes:
        end = result.physical_offset % 65_536 + result.size
        assert end + 8 <= 65_536
    assert len(naive.java_reads(tmp_path)[0]) == 20  # BLANK records lead from file to file
    store.close()


def test_a_record_may_end_exactly_eight_bytes_before_the_end_of_its_file(store: MessageStore) -> None:
    overhead = store.put_message(message(body=b"")).size
    left = 65_536 - overhead - 8
    while left > 2 * 16_000:
        store.put_message(message(body=bytes(16_000 - overhead)))
        left -= 16_000
    half = left // 2
    store.put_message(message(body=bytes(half - overhead)))
    assert store.put_message(message(body=bytes(left - half - overhead))).end_offset == 65_536 - 8
    assert store.put_message(message()).physical_offset == 65_536


@pytest.mark.parametrize(
    ("offset", "status", "following"),
    [
        (-1, "OFFSET_TOO_SMALL", 0), (3, "OFFSET_OVERFLOW_ONE", 3), (4, "OFFSET_OVERFLOW_BADLY", 3),
        (99, "OFFSET_OVERFLOW_BADLY", 3),
    ],
)  # fmt: skip
def test_offsets_outside_the_queue_are_told_apart(
    store: MessageStore, offset: int, status: str, following: int
) -> None:
    for _ in range(3):
        store.put_message(message())
    result = get(store, offset)
    assert (result.status.name, result.next_begin_offset, result.buffers) == (status, following, [])


def test_unknown_and_empty_queues_are_told_apart(store: MessageStore) -> None:
    assert get(store, 0, "Nope").status is GetMessageStatus.NO_MATCHED_LOGIC_QUEUE
    store.queues.open("T", 0)
    result = get(store, 7)
    assert (result.status, result.next_begin_offset) == (GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0)


def test_tags_filter_by_hash_and_move_on_over_what_does_not_match(store: MessageStore) -> None:
    for number in range(9):
        store.put_message(message(body=b"%d" % number, **({"TAGS": "ABC"[number % 3]} if number % 3 < 2 else {})))
    assert bodies(get(store, 0, tags=Tags("A"))) == [b"0", b"3", b"6"]
    assert bodies(get(store, 0, tags=Tags("A", "B"))) == [b"0", b"1", b"3", b"4", b"6", b"7"]
    assert len(bodies(get(store, 0, tags=Tags()))) == 9
    nothing = get(store, 0, tags=Tags("Z"))
    assert (nothing.status, nothing.next_begin_offset) == (GetMessageStatus.NO_MATCHED_MESSAGE, 9)


def test_a_pull_is_limited_by_count_and_bytes_but_gets_at_least_one(tmp_path: Path) -> None:
    store = opened(small_config(tmp_path, mapped_file_size_consume_queue=2000))
    for _ in range(50):
        store.put_message(message(body=bytes(1000)))
    assert get(store, 0, count=7).message_count == 7
    assert get(store, 0, count=100).message_count == 32
    assert store.get_message("g", "T", 0, 0, 32, None, 2500).message_count == 2
    assert store.get_message("g", "T", 0, 0, 32, None, 100).message_count == 1


def test_reads_go_on_from_queue_file_to_queue_file(store: MessageStore) -> None:
    for number in range(47):  # 20 units a file
        store.put_message(message(body=b"%d" % number))
    found: list[bytes] = []
    offset = 0
    while offset < 47:
        result = get(store, offset)
        found += bodies(result)
        offset = result.next_begin_offset
    assert found == [b"%d" % number for number in range(47)]


def test_slices_stay_valid_when_their_file_is_deleted(store: MessageStore) -> None:
    store.put_message(message(body=b"kept"))
    result = get(store, 0)
    for _ in range(10):
        store.put_message(message(body=bytes(9000)))
    with store.commit_log.without_first() as first:
        first.destroy()
    assert bodies(result) == [b"kept"]
    assert get(store, 0).status is GetMessageStatus.OFFSET_TOO_SMALL
    assert store.min_offset("T", 0) > 0


def _long_files(tmp_path: Path) -> MessageStoreConfig:
    return small_config(tmp_path, mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=2000)


@pytest.mark.parametrize("is_resident", [True, False])
def test_backlog_beyond_memory_suggests_a_slave_and_small_portions(
    tmp_path: Path, clock: TestClock, monkeypatch: pytest.MonkeyPatch, is_resident: bool
) -> None:
    monkeypatch.setattr(SystemMappedRegion, "is_resident", lambda region, start, end: is_resident)
    store = opened(_long_files(tmp_path), clock)
    store.reader.memory_bytes = 100_000  # of which 40 %: 40 000 bytes count as memory
    for _ in range(80):
        store.put_message(message(body=bytes(1000)))
    far, near = get(store, 0), get(store, 70)
    most = 32 if is_resident else 8
    assert (far.message_count, far.suggest_pulling_from_slave, bool(far.cold)) == (most, True, not is_resident)
    assert (near.message_count, near.suggest_pulling_from_slave, bool(near.cold)) == (10, False, False)
    assert sum(part.end - part.start for part in far.cold) == (0 if is_resident else far.total_bytes)
    far.bring_in()


def test_of_a_backlog_that_is_in_memory_in_part_a_small_portion_comes_from_either(
    tmp_path: Path, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(_long_files(tmp_path), clock)
    store.reader.memory_bytes = 0
    for _ in range(60):
        store.put_message(message(body=bytes(1000)))
    record = store.max_physical_offset // 60
    monkeypatch.setattr(SystemMappedRegion, "is_resident", lambda region, start, end: end <= 20 * record)
    first, border, behind = get(store, 0, count=20), get(store, 10), get(store, 15)
    assert [part.message_count for part in (first, border, behind)] == [20, 8, 8]
    assert [bool(part.cold) for part in (first, border, behind)] == [False, False, True]


def test_units_of_a_queue_that_are_on_the_disk_are_read_first_by_who_can_wait(
    tmp_path: Path, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_config(tmp_path, mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=40_000)
    store = opened(config, clock)
    for _ in range(1200):
        store.put_message(message(body=b"x"))
    monkeypatch.setattr(SystemMappedRegion, "is_resident", lambda region, start, end: False)
    told = store.get_message("G", "T", 0, 100, 32, None, may_wait=True)
    assert (told.status, told.must_read_first, told.next_begin_offset) == (
        GetMessageStatus.NO_MATCHED_MESSAGE, True, 100,
    )  # fmt: skip
    assert [(part.start, part.end) for part in told.cold] == [(0, 24_000)], "and the units about them"
    told.bring_in()
    assert get(store, 100).message_count == 32
    assert store.get_message("G", "T", 0, 1180, 32, None, may_wait=True).message_count == 20


def test_who_comes_to_what_is_being_read_ahead_waits_for_it_and_has_a_large_portion(
    tmp_path: Path, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(_long_files(tmp_path), clock)
    store.reader.memory_bytes = 0
    for _ in range(60):
        store.put_message(message(body=bytes(1000)))
    is_resident = False
    monkeypatch.setattr(SystemMappedRegion, "is_resident", lambda region, start, end: is_resident)
    monkeypatch.setattr(store._context.jobs, "start", lambda work, threads: Future[None]())
    first = store.get_message("G", "T", 0, 0, 32, None, may_wait=True)
    assert (first.must_read_first, first.chunk, bool(first.cold)) == (True, None, True)
    second = store.get_message("G", "T", 0, 8, 32, None, may_wait=True)
    assert (second.message_count, second.must_read_first) == (0, True)
    assert second.chunk is not None
    assert (second.chunk.start, second.chunk.end) == (0, store.max_physical_offset)
    assert get(store, 8).message_count == 8, "who cannot wait has a small one"
    is_resident = True
    assert get(store, 8).message_count == 32


class _BadPage:
    """A kernel that has only loaded pages of the log in memory, and whose disk cannot read the page at `place`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, place: int) -> None:
        self._place = place
        self._loaded: list[tuple[int, int]] = []
        monkeypatch.setattr(SystemMappedRegion, "is_resident", lambda region, start, end: self._is_there(start, end))
        monkeypatch.setattr(SystemMappedRegion, "load", lambda region, start, end: self._load(start, end))

    def _is_there(self, start: int, end: int) -> bool:
        return any(first <= start and end <= last for first, last in self._loaded)

    def _load(self, start: int, end: int) -> None:
        if start <= self._place < end:
            raise OSError(5, f"the device cannot read all of bytes {start} to {end}")
        self._loaded.append((start, end))


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - threads set nothing on the loop
            await asyncio.sleep(0.001)


def _pulled(store: MessageStore, offset: int) -> GetMessageResult:
    """Pull in the steps of a broker: a second look at most, and between both what is cold is brought in."""
    store.get_message("G", "T", 0, offset, 32, None, may_wait=True)  # the fast path, which leaves what is cold
    result = store.get_message("G", "T", 0, offset, 32, None, may_wait=True)
    if result.cold:
        result.bring_in()
    return store.get_message("G", "T", 0, offset, 32, None) if result.must_read_first else result


@pytest.mark.parametrize("is_noted", [False, True])
async def test_beside_a_page_that_cannot_be_read_the_other_messages_of_its_chunk_are_answered(
    tmp_path: Path, clock: TestClock, monkeypatch: pytest.MonkeyPatch, is_noted: bool
) -> None:
    store = opened(_long_files(tmp_path), clock)
    store.reader.memory_bytes = 0
    ends = [store.put_message(message(body=bytes(1000))).end_offset for _ in range(60)]
    _BadPage(monkeypatch, ends[20] + 500)  # in message 21
    log_file = store.commit_log.file_at(0)
    assert log_file is not None
    if is_noted:
        store.get_message("G", "T", 0, 0, 32, None, may_wait=True)
        await _until(lambda: bool(log_file.pages.failed))
    behind = _pulled(store, 22)
    assert behind.message_count == (8 if is_noted else 32)
    await _until(lambda: bool(log_file.pages.failed))
    assert _pulled(store, 0).message_count == 8
    told = store.get_message("G", "T", 0, 20, 32, None, may_wait=True)
    assert (told.message_count, told.must_read_first, told.chunk) == (0, True, None), "nothing is touched before"
    with pytest.raises(OSError, match="cannot read"):
        told.bring_in()


def test_where_a_pull_ends_decides_whether_a_slave_is_suggested(tmp_path: Path, clock: TestClock) -> None:
    store = opened(small_config(tmp_path, mapped_file_size_commit_log=1 << 20), clock)
    for _ in range(20):
        store.put_message(message(body=bytes(1000)))
    lag = store.max_physical_offset - get(store, 15, count=4).last_physical_offset  # where such a pull ends
    for in_memory, is_suggested in ((lag, False), (lag - 1, True)):
        store.reader.memory_bytes = -(-in_memory * 100 // 40)  # of which 40 % count
        found = get(store, 15, count=4)
        assert (found.message_count, found.suggest_pulling_from_slave) == (4, is_suggested)


def test_arrivals_are_told_once_per_watch(store: MessageStore) -> None:
    told: list[list[QueueTail]] = []
    store.add_arrival_listener(told.append)
    store.watch("T", 1)
    store.put_message(message(queue_id=0))
    store.put_message(message(queue_id=1))
    store.put_message(message(queue_id=1))
    assert [[(tail.topic, tail.queue_id) for tail in tails] for tails in told] == [[("T", 1)]]


def test_every_listener_hears_of_an_arrival_in_the_order_in_which_they_were_added(store: MessageStore) -> None:
    heard: list[tuple[str, str]] = []
    for name in ("pulls", "pops", "notifications"):
        store.add_arrival_listener(lambda tails, name=name: heard.extend((name, tail.topic) for tail in tails))
    store.watch("T", 1)
    store.put_message(message(queue_id=1))
    assert heard == [("pulls", "T"), ("pops", "T"), ("notifications", "T")]


# --- refusals: cause, measured value, limit, remedy ---


@pytest.mark.parametrize(
    ("bad", "status", "words"),
    [
        (message(topic="x" * 128), "MESSAGE_ILLEGAL", "128 bytes, at most 127"),
        (message(topic="%RETRY%" + "x" * 249), "MESSAGE_ILLEGAL", "256 bytes, at most 255"),
        (message(body=bytes(16_385)), "MESSAGE_ILLEGAL", "16385 bytes, at most 16384 are allowed (maxMessageSize)"),
        (message(a="x" * 32_765), "PROPERTIES_SIZE_EXCEEDED", "32768 bytes, at most 32767"),
        (message(INNER_NUM="3"), "MESSAGE_ILLEGAL", "INNER_NUM"),
    ],
)
def test_a_message_that_must_not_be_stored_is_refused_with_its_size_and_limit(
    store: MessageStore, bad: object, status: str, words: str
) -> None:
    result = store.put_message(bad)  # type: ignore[arg-type]
    assert result.status.name == status
    assert words in result.remark
    assert store.max_physical_offset == 0


def test_a_long_retry_topic_is_stored_as_version_2(store: MessageStore) -> None:
    topic = "%RETRY%" + "x" * 200
    found = store.look_message_by_offset(store.put_message(message(topic=topic)).physical_offset)
    assert found is not None
    assert (found.topic, found.version) == (topic, 2)


def test_a_message_larger_than_a_log_file_is_refused(tmp_path: Path) -> None:
    store = opened(small_config(tmp_path, max_message_size=1 << 20))
    result = store.put_message(message(body=bytes(65_536)))
    assert result.status is PutMessageStatus.MESSAGE_ILLEGAL
    assert "mappedFileSizeCommitLog" in result.remark


def test_a_slave_takes_no_messages(tmp_path: Path) -> None:
    class Slave(type(small_config(tmp_path))):  # type: ignore[misc]
        pass

    store = opened(small_config(tmp_path))
    object.__setattr__(store.config, "broker_role", "SLAVE")
    assert store.admission.refusal() is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert "SLAVE" in store.put_message(message()).remark


def test_an_append_that_took_too_long_makes_the_page_cache_busy(store: MessageStore, clock: TestClock) -> None:
    original = clock.wall_ms

    def slow() -> int:
        clock.now_ms += 1500
        return original()

    clock.wall_ms = slow  # type: ignore[method-assign]
    assert store.put_message(message()).ok
    clock.wall_ms = original  # type: ignore[method-assign]
    assert store.admission.refusal() is PutMessageStatus.OS_PAGE_CACHE_BUSY
    assert "took 1500 ms, the limit is 1000 ms (osPageCacheBusyTimeOutMills)" in store.put_message(message()).remark
    clock.now_ms += 1001
    assert store.admission.refusal() is None


# --- batches ---


def test_a_batch_becomes_consecutive_messages_with_their_own_properties(store: MessageStore) -> None:
    store.put_message(message())
    parts = [Message("T", b"%d" % number, {"KEYS": f"k{number}"}, flag=number) for number in range(4)]
    result = store.put_batch(message(body=encode_batch(parts)))
    assert (result.queue_offset, result.message_count, len(result.msg_id.split(","))) == (1, 4, 4)
    records = [decode_record(store.select_one_message(_offset(id)) or b"") for id in result.msg_id.split(",")]
    assert [record.body for record in records] == [b"0", b"1", b"2", b"3"]
    assert [record.flag for record in records] == [0, 1, 2, 3]
    assert records[2].properties == {"KEYS": "k2"}
    assert [record.queue_offset for record in records] == [1, 2, 3, 4]
    assert result.end_offset == store.max_physical_offset
    assert result.size == sum(record.store_size for record in records)


def _offset(msg_id: str) -> int:
    return int(msg_id[16:], 16)


def test_a_batch_that_does_not_fit_goes_whole_into_the_next_file(store: MessageStore) -> None:
    for _ in range(4):
        store.put_message(message(body=bytes(15_000)))
    result = store.put_batch(message(body=encode_batch([Message("T", bytes(3000)) for _ in range(5)])))
    assert result.physical_offset == 65_536


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (message(body=b""), "holds no message"),
        (message(body=b"\0\0\0\x30rubbish"), "malformed"),
        (message(topic="%RETRY%g", body=encode_batch([Message("T", b"1")])), "retry topic"),
    ],
)
def test_bad_batches_are_refused_and_leave_nothing_behind(store: MessageStore, bad: object, words: str) -> None:
    result = store.put_batch(bad)  # type: ignore[arg-type]
    assert result.status is PutMessageStatus.MESSAGE_ILLEGAL
    assert words in result.remark
    assert store.max_physical_offset == 0


def test_batch_queues_count_messages_and_keep_the_batch_whole(tmp_path: Path, clock: TestClock) -> None:
    store = opened(small_config(tmp_path), clock)
    store.queues.topic_write_state("B").has_batch_queues = True
    body = encode_batch([Message("B", b"1"), Message("B", b"2"), Message("B", b"3")])
    inner = message("B", body=body, INNER_NUM="3", UNIQ_KEY="u")
    inner.sys_flag = 0xC0
    told: list[list[QueueTail]] = []
    store.add_arrival_listener(told.append)
    store.watch("B", 0)
    assert [store.put_message(inner).queue_offset for _ in range(3)] == [0, 3, 6]
    assert len(told) == 1
    assert store.put_message(message("B", body=b"single")).queue_offset == 9
    assert (store.min_offset("B", 0), store.max_offset("B", 0)) == (0, 10)
    result = store.get_message("g", "B", 0, 4, 32, None)  # inside the second batch: it comes whole
    assert (result.message_count, len(result.buffers), result.next_begin_offset) == (7, 3, 10)
    assert decode_record(result.buffers[0]).properties["INNER_BASE"] == "3"
    store.close()
    store = opened(small_config(tmp_path), clock)
    assert (store.min_offset("B", 0), store.max_offset("B", 0)) == (0, 10)
    assert store.put_message(message("B", body=b"single")).queue_offset == 10
    assert not (tmp_path / "consumequeue" / "B").exists()
    store.close()


# --- several queues ---


def test_a_message_reaches_every_light_queue_it_names(tmp_path: Path) -> None:
    store = opened(small_config(tmp_path, enable_lmq=True, enable_multi_dispatch=True))
    first = store.put_message(message(INNER_MULTI_DISPATCH="%LMQ%a,%LMQ%b"))
    store.put_message(message(INNER_MULTI_DISPATCH="%LMQ%b"))
    assert (store.max_offset("%LMQ%a", 0), store.max_offset("%LMQ%b", 0), store.max_offset("T", 0)) == (1, 2, 2)
    found = store.look_message_by_offset(first.physical_offset)
    assert found is not None
    assert found.properties["INNER_MULTI_QUEUE_OFFSET"] == "0,0"
    assert store.get_message("g", "%LMQ%b", 0, 0, 32, None).message_count == 2
    store.close()


@pytest.mark.parametrize("topic", ["RMQ_SYS_TRANS_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", "%DLQ%G"])
def test_what_java_gave_a_place_that_it_must_not_have_is_passed_over_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic: str
) -> None:
    config = small_config(tmp_path, enable_lmq=True, enable_multi_dispatch=True)
    store = opened(config)
    named = {"INNER_MULTI_DISPATCH": "%LMQ%a"}
    assert store.put_message(message(body=b"0", **named)).ok
    with monkeypatch.context() as java:
        java.setattr(message_writer, "may_name_queues", lambda topic: True)
        assert store.put_message(message(topic, body=b"hidden", **named)).ok
    assert store.put_message(message(body=b"2", **named)).ok
    assert store.put_message(message(topic, body=b"not placed", **named)).ok
    assert store.put_message(message(body=b"3", **named)).ok
    for _ in range(2):
        found = store.get_message("g", "%LMQ%a", 0, 0, 32, None)
        bodies = [record.body for buffer in found.buffers for record in decode_records(buffer)]
        assert bodies == [b"0", b"2", b"3"]
        assert store.max_offset("%LMQ%a", 0) == 4
        store.close()
        assert StoreCheck(StoreFiles(SystemDisk(), tmp_path)).run().faults == []
        shutil.rmtree(tmp_path / "consumequeue")
        store = opened(config)
    store.close()


@pytest.mark.parametrize(
    "names", ["%LMQ%a,plain", "plain", "%LMQ%a,", "%LMQ%a/b", "%LMQ%a\0b", "%LMQ%" + 251 * "x", "%LMQ%" + 126 * "ä"]
)
def test_lists_that_name_what_is_no_light_queue_are_refused_at_send(tmp_path: Path, names: str) -> None:
    store = opened(small_config(tmp_path, enable_lmq=True, enable_multi_dispatch=True))
    result = store.put_message(message(INNER_MULTI_DISPATCH=names))
    assert result.status is PutMessageStatus.MESSAGE_ILLEGAL
    assert store.max_physical_offset == 0
    assert store.put_message(message(INNER_MULTI_DISPATCH="%LMQ%" + 250 * "x")).ok  # 255 bytes: the longest
    store.close()


def test_a_light_queue_that_no_folder_can_be_named_after_does_not_stop_dispatch(tmp_path: Path) -> None:
    store = opened(small_config(tmp_path))  # without multi-dispatch, lists are not looked at
    store.put_message(message(INNER_MULTI_DISPATCH="%LMQ%" + 300 * "x", INNER_MULTI_QUEUE_OFFSET="0"))
    store.close()
    shutil.rmtree(tmp_path / "consumequeue")
    store = opened(small_config(tmp_path, enable_lmq=True, enable_multi_dispatch=True))
    assert store.put_message(message()).ok
    assert store.max_offset("T", 0) == 2
    store.close()


def test_more_light_queues_than_allowed_are_refused(tmp_path: Path) -> None:
    store = opened(small_config(tmp_path, enable_lmq=True, enable_multi_dispatch=True, max_lmq_consume_queue_num=2))
    assert store.put_message(message(INNER_MULTI_DISPATCH="%LMQ%a,%LMQ%b")).ok
    assert (
        store.put_message(message(INNER_MULTI_DISPATCH="%LMQ%c")).status
        is PutMessageStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED
    )
    assert store.put_message(message(INNER_MULTI_DISPATCH="%LMQ%a")).ok


# --- by time, by key, by place ---


def test_offsets_by_time_have_a_lower_and_an_upper_boundary(store: MessageStore, clock: TestClock) -> None:
    start = clock.now_ms
    for delay in (0, 10, 10, 10, 20):
        clock.now_ms = start + delay
        store.put_message(message())
    cases = {-5: (0, 0), 0: (0, 0), 5: (1, 0), 10: (1, 3), 15: (4, 3), 20: (4, 4), 99: (5, 4)}
    for delay, (lower, upper) in cases.items():
        assert store.offset_by_time("T", 0, start + delay, BoundaryType.LOWER) == lower, delay
        assert store.offset_by_time("T", 0, start + delay, BoundaryType.UPPER) == upper, delay
    assert store.offset_by_time("Nope", 0, start) == 0
    assert (store.earliest_store_time("T", 0), store.store_time_at("T", 0, 4)) == (start, start + 20)
    assert store.store_time_at("T", 0, 5) == -1


@pytest.mark.parametrize(
    "damaged", [{0}, {1}, {5}, {10}, {19}, {20}, {3, 4, 5, 9, 10, 11}, set(range(10, 21)), set(range(21))]
)
@pytest.mark.parametrize("hole", [4, 56])  # where eight bytes are zeros: from the magic on; the store time
def test_a_damaged_record_does_not_lead_the_search_by_time_astray(
    store: MessageStore, clock: TestClock, damaged: set[int], hole: int
) -> None:
    start = clock.now_ms
    for number in range(21):
        clock.now_ms = start + 10 * number
        store.put_message(message())
    for number in damaged:
        ((physical_offset, _, _),) = store.queue_units("T", 0, number, 1)
        file = store.commit_log.file_at(physical_offset)
        assert file is not None
        at = physical_offset - file.file_from_offset + hole
        file.view[at : at + 8] = bytes(8)
    for delay in range(-5, 216, 5):
        lower = store.offset_by_time("T", 0, start + delay, BoundaryType.LOWER)
        upper = store.offset_by_time("T", 0, start + delay, BoundaryType.UPPER)
        at_or_after = [number for number in range(21) if 10 * number >= delay]
        before = [number for number in range(21) if 10 * number < delay]
        assert set(at_or_after) <= set(range(lower, 21)), (delay, lower)  # none is skipped
        assert not set(before) & set(range(lower, 21)) - damaged, (delay, lower)
        assert not set(range(upper + 1)) & {number for number in range(1, 21) if 10 * number > delay} - damaged
        readable = {number for number in range(21) if 10 * number <= delay} - damaged
        assert readable <= set(range(upper + 1)), (delay, upper)


@pytest.mark.parametrize("boundary", BoundaryType)
def test_a_search_by_time_does_not_ask_for_each_record_of_a_long_damaged_part(
    store: MessageStore, clock: TestClock, boundary: BoundaryType, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, count, damaged = clock.now_ms, 2_000, {*range(200, 900), *range(905, 1_600), *range(1_990, 2_000)}
    for number in range(count):
        clock.now_ms = start + 10 * number
        store.put_message(message())
    for number in damaged:
        ((physical_offset, size, _),) = store.queue_units("T", 0, number, 1)
        file = store.commit_log.file_at(physical_offset)
        assert file is not None
        at = physical_offset - file.file_from_offset
        file.view[at : at + size] = bytes(size)
    asked: list[int] = []
    real = CommitLog.store_timestamp

    def store_timestamp(log: CommitLog, offset: int, *size: int) -> int:
        asked.append(offset)
        return real(log, offset, *size)

    monkeypatch.setattr(CommitLog, "store_timestamp", store_timestamp)
    upper = boundary is BoundaryType.UPPER
    cases = {
        100: (100, 100), 500: (200, 199), 902: (902, 902), 904: (904, 904), 1_000: (905, 904), 1_600: (905, 1_600),
        1_700: (1_700, 1_700), 1_989: (1_989, 1_999), 1_995: (1_990, 1_999),
    }  # fmt: skip
    for number, expected in cases.items():
        asked.clear()
        assert store.offset_by_time("T", 0, start + 10 * number, boundary) == expected[upper], number
        assert len(asked) < 200, number


def test_keys_find_their_messages_within_a_time_range(store: MessageStore, clock: TestClock) -> None:
    start = clock.now_ms
    for number in range(300):  # three index files
        clock.now_ms = start + number * 1000
        store.put_message(message(KEYS="all" if number % 50 == 0 else f"k{number}", UNIQ_KEY=f"u{number}"))

    def query(key: str, begin: int = 0, end: int = 1 << 62, most: int = 64) -> list[int]:
        found = store.query_message("T", key, most, begin, end)
        return [decode_record(buffer).queue_offset for buffer in found.buffers]

    assert query("k7") == [7]
    assert query("u299") == [299]
    assert query("all") == [0, 50, 100, 150, 200, 250]
    assert query("all", start + 60_000, start + 210_000) == [100, 150, 200]
    assert query("all", most=2) == [200, 250]
    assert query("nope") == []
    assert len(store.index.files) > 2


def test_a_physical_offset_from_anybody_never_gives_more_than_a_record_there(store: MessageStore) -> None:
    results = [store.put_message(message(body=b"x" * 200)) for _ in range(3)]
    assert store.select_one_message(results[1].physical_offset) is not None
    for offset in (-1, -(2**63), 1, results[1].physical_offset + 1, store.max_physical_offset, 2**62):
        assert store.select_one_message(offset) is None


def test_the_place_of_a_damaged_message_has_no_record(store: MessageStore) -> None:
    for body in (b"0", b"1"):
        store.put_message(message("T", 0, body))
    queue = store.queue("T", 0)
    assert queue is not None
    following = queue.unit(1)
    assert following is not None
    queue.put_unit(0, (*following[:2], DAMAGED_TAGS_CODE))
    found = [store.record_in_queue("T", 0, place) for place in range(3)]
    assert [record and bytes(decode_record(record).body) for record in found] == [None, b"1", None]
    assert store.record_in_queue("Unknown", 0, 0) is None


def test_a_unit_that_points_nowhere_is_passed_over_and_counted(store: MessageStore) -> None:
    for number in range(4):
        store.put_message(message(body=b"%d" % number))
    queue = store.queue("T", 0)
    assert queue is not None
    unit = queue.unit(1)
    assert unit is not None
    queue.put_unit(1, (unit[0] + 3, unit[1], unit[2]))
    result = get(store, 0)
    assert bodies(result) == [b"0", b"2", b"3"]
    assert result.next_begin_offset == 4
    assert store.reader.damaged_units == 1


def test_the_crc_property_is_the_last_twenty_bytes(tmp_path: Path) -> None:
    store = opened(small_config(tmp_path, enabled_append_prop_crc=True, force_verify_prop_crc=True))
    result = store.put_message(message(KEYS="k"))
    record = bytes(store.select_one_message(result.physical_offset) or b"")
    assert record[-20:-11] == b"__CRC32#\x01"
    store._life.lock.release()
    again = opened(small_config(tmp_path, enabled_append_prop_crc=True, force_verify_prop_crc=True))
    assert again.max_physical_offset == result.end_offset
    again.close()


def test_runtime_info_has_java_s_names(store: MessageStore) -> None:
    store.put_message(message())
    get(store, 0)
    info = store.runtime_info()
    assert info["commitLogMaxOffset"] == str(store.max_physical_offset)
    assert (info["putMessageTimesTotal"], info["getTransferedMsgCountTotal"], info["dispatchBehindBytes"]) == (
        "1",
        "1",
        "0",
    )
    assert {"commitLogDiskRatio", "consumeQueueDiskRatio", "earliestMessageTimeStamp", "putTps", "runtime"} <= set(info)


def test_units_have_the_form_of_the_specification(store: MessageStore, tmp_path: Path) -> None:
    result = store.put_message(message(TAGS="TagA"))
    negative = store.put_message(message(TAGS="payment"))
    store.close()
    data = (tmp_path / "consumequeue" / "T" / "0" / ("0" * 20)).read_bytes()
    assert data[:20] == struct.pack(">qi", 0, result.size) + bytes.fromhex("000000000027a807")
    assert data[20:40] == struct.pack(">qi", negative.physical_offset, negative.size) + bytes.fromhex(
        "ffffffffd11c3206"
    )


def test_delayed_messages_carry_their_delivery_time_as_tags_code(store: MessageStore, clock: TestClock) -> None:
    store.put_message(message("SCHEDULE_TOPIC_XXXX", 2, DELAY="3", TAGS="x"))
    queue = store.queue("SCHEDULE_TOPIC_XXXX", 2)
    assert queue is not None
    unit = queue.unit(0)
    assert unit is not None
    assert unit[2] == clock.now_ms + 10_000
