"""What one pop is given: how much, from where, in which order, and what is noted of it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from maxq.broker.pop.pop_journal import NOT_NOTED
from maxq.broker.pop.pop_reader import INIT_MAX, PopAsk, PopFound, PopReader
from maxq.filter.languages import compile_sql92
from maxq.protocol.body.subscription import SubscriptionData
from maxq.protocol.message import message_const as const
from maxq.protocol.message.java_hash import java_hash
from maxq.protocol.message.message import MessageExt, decode_record
from maxq.protocol.message.pop_extra_info import POP_ORDER_REVIVE_QUEUE, parse_extra_info
from maxq.runtime.files.system import SystemMappedRegion
from maxq.store.context.running_flags import DISK_FULL
from maxq.store.queue.property_filter import PropertyFilter
from maxq.store.store_results import GetMessageResult, GetMessageStatus
from tests.unit.broker.pop.pop_parts import GROUP, NAME, PopParts

RETRY = "%RETRY%G_T"


class Reader:
    """Pops of the group from topic T of `parts`."""

    def __init__(self, parts: PopParts) -> None:
        self.parts = parts
        self.reader = PopReader(parts.env, parts.tables, parts.messages, parts.buffer, parts.orders)

    def pop(self, topic: str = "T", *, may_wait: bool = True, was_read: bool = False, **more: Any) -> PopFound:
        """One pop, of 32 messages from any queue unless it says more."""
        self.parts.clock.now_ms += 1
        group = self.parts.groups.find_subscription_group_config(GROUP)
        config = self.parts.topics.select_topic_config(topic)
        assert group is not None and config is not None
        ask = PopAsk("c", group, config, -1, 32, 60_000, 0, False, None, None, None)
        return self.reader.read(ask._replace(**more), may_wait=may_wait, was_read=was_read)


def _messages(found: PopFound) -> list[MessageExt]:
    records, data = [], b"".join(found.buffers)
    while data:
        records.append(decode_record(data))
        data = data[records[-1].store_size :]
    return records


def _bodies(found: PopFound) -> list[bytes]:
    return [message.body for message in _messages(found)]


def _some(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


@pytest.fixture
def reader(parts: PopParts) -> Reader:
    return Reader(parts)


def test_pops_go_on_where_the_last_one_ended_and_say_what_is_left(reader: Reader, parts: PopParts) -> None:
    parts.fill(_some(0, 10))
    first, second, third = reader.pop(max_msg_nums=4), reader.pop(max_msg_nums=4), reader.pop(max_msg_nums=4)
    assert [_bodies(found) for found in (first, second, third)] == [_some(0, 4), _some(4, 4), _some(8, 2)]
    assert [found.rest_num for found in (first, second, third)] == [6, 2, 0]
    assert parts.offsets.query_offset(GROUP, "T", 0) == 0, "nothing is acknowledged"
    assert reader.pop().count == 0 and parts.buffer.in_flight == {("T", GROUP, 0): 10}


def test_what_is_given_is_noted_and_its_handles_name_it(reader: Reader, parts: PopParts) -> None:
    parts.fill(_some(0, 3))
    reader.pop(max_msg_nums=1)
    found = reader.pop(invisible_time=7_000)
    ((point, revive_qid, next_begin),) = found.points
    assert (point.start_offset, point.open_offsets(), next_begin) == (1, [1, 2], 3)
    assert (point.pop_time, point.invisible_time, point.broker_name) == (parts.clock.now_ms, 7_000, NAME)
    assert (found.start_offset_info, found.msg_offset_info) == (["0 0 1"], ["0 0 1,2"])
    assert (found.pop_time, found.revive_qid) == (point.pop_time, revive_qid)
    assert parts.buffer.find(point.key) is not None
    assert found.end_offset == parts.store.max_physical_offset


def test_revive_queues_take_turns(make_parts: Callable[..., PopParts]) -> None:
    parts = make_parts(reviveQueueNum="3")
    parts.create()
    parts.fill(_some(0, 5))
    reader = Reader(parts)
    assert [reader.pop(max_msg_nums=1).revive_qid for _ in range(5)] == [0, 1, 2, 0, 1]


@pytest.mark.parametrize("order", [False, True])
async def test_while_the_log_takes_nothing_it_is_said_that_nothing_was_noted(
    reader: Reader, parts: PopParts, order: bool
) -> None:
    parts.fill(_some(0, 1))
    parts.store.flags.set(DISK_FULL, "the disk is full")
    assert reader.pop(order=order).end_offset == NOT_NOTED


def test_two_pops_of_one_place_in_one_millisecond_give_it_once(reader: Reader, parts: PopParts) -> None:
    """An administrator sets the group back, within the same millisecond."""
    parts.fill(_some(0, 2))
    assert reader.pop().count == 2
    parts.buffer.set_cursors({("T", GROUP, 0): 0})
    parts.clock.now_ms -= 1
    assert reader.pop().count == 0
    assert reader.pop().count == 2


# --- queues ----------------------------------------------------------------------------------------------------------


def test_all_queues_are_read_until_there_is_enough(make_parts: Callable[..., PopParts]) -> None:
    parts = make_parts()
    parts.create(queues=3)
    for queue_id in range(3):
        parts.fill([b"%d" % queue_id] * 2, queue_id=queue_id)
    found = Reader(parts).pop(max_msg_nums=5)
    assert (found.count, found.rest_num) == (5, 1)
    assert sorted(parts.buffer.in_flight.values()) == [1, 2, 2]
    assert len(found.points) == len(found.start_offset_info) == 3


def test_what_is_left_in_queues_that_were_not_read_is_told(make_parts: Callable[..., PopParts]) -> None:
    parts = make_parts()
    parts.create(queues=2)
    for queue_id in range(2):
        parts.fill([b"%d" % queue_id] * 3, queue_id=queue_id)
    found = Reader(parts).pop(max_msg_nums=3)
    assert (found.count, found.rest_num, len(found.points)) == (3, 3, 1)


@pytest.mark.parametrize("filled", [0, 1])
def test_of_queues_that_were_not_read_an_empty_one_has_nothing_left(
    make_parts: Callable[..., PopParts], filled: int
) -> None:
    parts = make_parts()
    parts.create(queues=2)
    parts.fill(_some(0, 3), queue_id=filled)
    found = Reader(parts).pop(max_msg_nums=3)
    assert (found.count, found.rest_num) == (3, 0)


def test_one_queue_may_be_asked_for(make_parts: Callable[..., PopParts]) -> None:
    parts = make_parts()
    parts.create(queues=3)
    for queue_id in range(3):
        parts.fill([b"%d" % queue_id], queue_id=queue_id)
    assert _bodies(Reader(parts).pop(queue_id=1)) == [b"1"]


def test_topics_of_priorities_are_read_from_the_highest_queue_down(make_parts: Callable[..., PopParts]) -> None:
    parts = make_parts(priorityOrderAsc="true")
    parts.create(queues=3, attributes={"+message.type": "PRIORITY"})
    for queue_id in range(3):
        parts.fill([b"%d" % queue_id], queue_id=queue_id)
    assert _bodies(Reader(parts).pop()) == [b"2", b"1", b"0"]


def test_a_priority_factor_of_100_has_every_pop_begin_at_the_highest_queue(make_parts: Callable[..., PopParts]) -> None:
    parts = make_parts(priorityOrderAsc="true")
    parts.create(queues=5, attributes={"+message.type": "PRIORITY"})
    for queue_id in range(5):
        parts.fill([b"%d" % queue_id] * 450, queue_id=queue_id)
    reader = Reader(parts)
    assert {body for _ in range(450) for body in _bodies(reader.pop(max_msg_nums=1))} == {b"4"}


def test_a_queue_with_too_many_open_messages_rests(make_parts: Callable[..., PopParts]) -> None:
    parts = make_parts(enablePopMessageThreshold="true", popInflightMessageThreshold="3")
    parts.create()
    parts.fill(_some(0, 6))
    reader = Reader(parts)
    first = reader.pop(max_msg_nums=4)
    found = reader.pop()
    assert (found.count, found.rest_num) == (0, 2)
    live = parts.buffer.find(first.points[0][0].key)
    assert live is not None
    parts.buffer.ack(live, [0])
    assert _bodies(reader.pop()) == _some(4, 2)
    assert reader.pop().rest_num == 0


# --- where a queue goes on -------------------------------------------------------------------------------------------


def test_a_new_group_may_begin_at_the_last_message(make_parts: Callable[..., PopParts]) -> None:
    parts = make_parts(initPopOffsetByCheckMsgInMem="false")
    parts.create()
    parts.fill(_some(0, 5))
    assert _bodies(Reader(parts).pop(init_mode=INIT_MAX)) == [b"4"]
    assert parts.offsets.query_offset(GROUP, "T", 0) == 4


def test_a_group_that_has_begun_does_not_begin_again(make_parts: Callable[..., PopParts]) -> None:
    """It has acknowledged nothing, and this consumer would have it begin at the end."""
    parts = make_parts(initPopOffsetByCheckMsgInMem="false")
    parts.create()
    parts.fill(_some(0, 5))
    reader = Reader(parts)
    assert _bodies(reader.pop(max_msg_nums=1)) == [b"0"]
    assert reader.reader.offset("T", GROUP, 0, INIT_MAX) == 1
    assert _bodies(reader.pop(init_mode=INIT_MAX)) == _some(1, 4)
    assert parts.offsets.query_offset(GROUP, "T", 0) == 0


def test_a_reset_of_the_group_counts_once(reader: Reader, parts: PopParts) -> None:
    parts.fill(_some(0, 5))
    assert reader.pop().count == 5
    parts.offsets.assign_reset_offsets("T", GROUP, {0: 3})
    assert [_bodies(reader.pop(max_msg_nums=1)) for _ in range(3)] == [[b"3"], [b"4"], []]


def test_a_place_that_does_not_exist_is_left(reader: Reader, parts: PopParts) -> None:
    parts.fill(_some(0, 3))
    parts.offsets.commit_offset("c", GROUP, "T", 0, 50)
    reader.pop()
    parts.fill(_some(3, 1))
    assert _bodies(reader.pop())[-1:] == [b"3"]


def test_a_slave_moves_no_group_back_that_is_beyond_what_it_has(make_parts: Callable[..., PopParts]) -> None:
    """Another slave, whose log has more, has given that out."""
    slave = make_parts(broker_id=1)
    slave.create()
    slave.fill(_some(0, 3))
    slave.offsets.commit_offset("c", GROUP, "T", 0, 5)
    reader = Reader(slave)
    assert reader.pop().count == 0
    slave.fill(_some(3, 3))
    assert _bodies(reader.pop()) == [b"5"]


def test_what_the_filter_rejects_is_passed_over_also_behind_what_is_open(reader: Reader, parts: PopParts) -> None:
    parts.fill(_some(0, 2), TAGS="A")
    parts.fill(_some(2, 3), TAGS="B")
    wanted = SubscriptionData(topic="T", sub_string="A", tags_set={"A"}, code_set={java_hash("A")})
    assert _bodies(reader.pop(subscription=wanted, max_msg_nums=2)) == _some(0, 2)
    found = reader.pop(subscription=wanted)
    assert (found.count, found.passed) == (0, 3)
    assert reader.reader.offset("T", GROUP, 0) == 5
    assert parts.offsets.query_offset(GROUP, "T", 0) == 0, "two messages are open before them"


def test_what_the_filter_rejects_in_several_queues_is_told_together(make_parts: Callable[..., PopParts]) -> None:
    parts = make_parts()
    parts.create(queues=2)
    for queue_id, count in enumerate((2, 3)):
        parts.fill(_some(0, count), queue_id=queue_id, TAGS="B")
    wanted = SubscriptionData(topic="T", sub_string="A", tags_set={"A"}, code_set={java_hash("A")})
    assert Reader(parts).pop(subscription=wanted).passed == 5


@pytest.mark.parametrize("may_wait", [True, False])
@pytest.mark.parametrize(
    ("where", "percent", "queue_id"), [("T", "0", -1), ("T", "0", 0), (RETRY, "100", -1), (RETRY, "0", -1)]
)
def test_a_pop_that_may_wait_examines_nothing_that_is_on_the_disk(
    make_parts: Callable[..., PopParts], monkeypatch: pytest.MonkeyPatch, where: str, percent: str, queue_id: int,
    may_wait: bool,
) -> None:  # fmt: skip
    """One that waited examines it at once. What lies in the other queues counts as left."""
    parts = make_parts(filterSupportRetry="true", popFromRetryProbability=percent)
    parts.create()
    parts.create(RETRY)
    parts.fill([b"0"], where, a="1")
    parts.store.reader.memory_bytes = 0
    monkeypatch.setattr(SystemMappedRegion, "is_resident", lambda region, start, end: False)
    wanted = PropertyFilter(compile_sql92("a = '1'"))
    found = Reader(parts).pop(may_wait=may_wait, wanted=wanted, queue_id=queue_id)
    assert (found.count, found.unread is not None) == ((0, True) if may_wait else (1, False))


@pytest.mark.parametrize("percent", ["0", "100"])
def test_behind_what_is_on_the_disk_no_queue_is_read(
    make_parts: Callable[..., PopParts], monkeypatch: pytest.MonkeyPatch, percent: str
) -> None:
    parts = make_parts(popFromRetryProbability=percent)
    parts.create()
    parts.create(RETRY)
    for topic in ("T", RETRY):
        parts.fill(_some(0, 3), topic, a="1")
    parts.store.reader.memory_bytes = 0
    monkeypatch.setattr(SystemMappedRegion, "is_resident", lambda region, start, end: False)
    found = Reader(parts).pop(wanted=PropertyFilter(compile_sql92("a = '1'")))
    assert (found.count, found.rest_num, found.unread is not None) == (0, 3, True)


MOVED = [
    GetMessageStatus.OFFSET_TOO_SMALL, GetMessageStatus.OFFSET_OVERFLOW_BADLY, GetMessageStatus.OFFSET_FOUND_NULL,
]  # fmt: skip
PASSED = [
    GetMessageStatus.NO_MATCHED_MESSAGE, GetMessageStatus.MESSAGE_WAS_REMOVING,
    GetMessageStatus.NO_MATCHED_LOGIC_QUEUE,
]  # fmt: skip


@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize("status", [*MOVED, *PASSED])
async def test_a_pop_goes_on_where_the_store_says_that_there_is_something(
    reader: Reader, parts: PopParts, monkeypatch: pytest.MonkeyPatch, status: GetMessageStatus, order: bool
) -> None:
    """At once where the group's offset was wrong, and with the next pop where nothing was for the group."""
    parts.fill(_some(0, 5))
    read = parts.store.get_message

    def get_message(group: str, topic: str, queue_id: int, offset: int, *more: Any, **rest: Any) -> GetMessageResult:
        if offset == 0:
            return GetMessageResult(status, next_begin_offset=3, max_offset=5)
        return read(group, topic, queue_id, offset, *more, **rest)

    monkeypatch.setattr(parts.store, "get_message", get_message)
    first = reader.pop(order=order)
    if status in PASSED:
        assert (first.count, first.passed, first.rest_num) == (0, 3, 2)
        first = reader.pop(order=order)
    assert (_bodies(first), first.rest_num) == (_some(3, 2), 0)
    assert parts.offsets.query_offset(GROUP, "T", 0) == 3


@pytest.mark.parametrize("on_disk", [True, False])
def test_what_is_given_is_counted_and_what_is_on_the_disk_is_named(
    reader: Reader, parts: PopParts, monkeypatch: pytest.MonkeyPatch, on_disk: bool
) -> None:
    parts.fill(_some(0, 4))
    parts.store.reader.memory_bytes = 0
    monkeypatch.setattr(SystemMappedRegion, "is_resident", lambda region, start, end: not on_disk)
    told = reader.pop(max_msg_nums=3) if on_disk else None
    assert told is None or (told.count, told.unread is not None) == (0, True)
    found = reader.pop(max_msg_nums=3, may_wait=not on_disk, was_read=on_disk)
    counter = parts.env.stats.get_counter(GROUP, "T", 0)
    assert found.count == 3
    assert (counter.popped_nums, counter.disk_nums) == (3, 3 if on_disk else 0)
    assert counter.popped_size == sum(len(view) for view in found.buffers)
    assert 0 < counter.fall_behind_bytes < counter.popped_size


# --- retry topics ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("percent", "expected"), [("100", [b"again", b"new"]), ("0", [b"new", b"again"])])
def test_what_comes_again_is_given_first_or_last(
    make_parts: Callable[..., PopParts], percent: str, expected: list[bytes]
) -> None:
    parts = make_parts(popFromRetryProbability=percent)
    parts.create()
    parts.create(RETRY)
    parts.fill([b"new"])
    parts.fill([b"again"], RETRY)
    found = Reader(parts).pop()
    assert _bodies(found) == expected
    assert {point.topic for point, _, _ in found.points} == {"T", RETRY}


def test_what_comes_again_has_its_own_topic_and_a_handle_that_tells_its_place(reader: Reader, parts: PopParts) -> None:
    parts.create(RETRY)
    parts.fill([b"0", b"1"], RETRY)
    reader.pop(max_msg_nums=1)
    (message,) = _messages(reader.pop(invisible_time=9_000))
    handle = parse_extra_info(message.properties[const.PROPERTY_POP_CK])
    assert (message.topic, handle.retry, handle.queue_id, handle.queue_offset) == ("T", "1", 0, 1)
    assert (handle.start_offset, handle.pop_time, handle.invisible_time) == (1, parts.clock.now_ms, 9_000)


def test_the_actual_retry_topic_may_be_wanted(make_parts: Callable[..., PopParts]) -> None:
    parts = make_parts(popResponseReturnActualRetryTopic="true")
    parts.create()
    parts.create(RETRY)
    parts.fill([b"0"], RETRY)
    (message,) = _messages(Reader(parts).pop())
    assert message.topic == RETRY and const.PROPERTY_POP_CK not in message.properties


def test_the_retry_topic_of_a_group_that_is_called_so_is_not_read(reader: Reader, parts: PopParts) -> None:
    """%RETRY%G_T is where a group G_T finds what it is to consume again."""
    parts.groups.find_subscription_group_config("G_T")
    parts.create(RETRY)
    parts.fill([b"not G's"], RETRY)
    assert reader.pop().count == 0


@pytest.mark.parametrize("separate", ["true", "false"])
@pytest.mark.parametrize("queue_id", [0, 2])
def test_a_retry_topic_that_only_the_log_knows_is_read(
    make_parts: Callable[..., PopParts], queue_id: int, separate: str
) -> None:
    """A master made it, and died before its slave heard of it; the slave's settings may be other ones."""
    parts = make_parts(useSeparateRetryQueue=separate)
    parts.create(queues=4)
    parts.fill([b"0"], RETRY, queue_id)
    assert _bodies(Reader(parts).pop()) == [b"0"]
    made = parts.topics.select_topic_config(RETRY)
    assert made is not None and made.read_queue_nums == (4 if separate == "true" else queue_id + 1)


def test_a_retry_topic_of_the_older_spelling_that_only_the_log_knows_is_read_beside_the_newer(
    make_parts: Callable[..., PopParts],
) -> None:
    parts = make_parts(enableRetryTopicV2="true", retrieveMessageFromPopRetryTopicV1="true")
    parts.create()
    parts.create("%RETRY%G+T")
    parts.fill([b"0"], RETRY)
    reader = Reader(parts)
    assert [body for _ in range(20) for body in _bodies(reader.pop())] == [b"0"]


def test_a_retry_topic_without_messages_is_not_made(reader: Reader, parts: PopParts) -> None:
    assert reader.pop().count == 0
    parts.store.queues.topic_write_state(RETRY)
    assert reader.pop().count == 0
    assert parts.topics.select_topic_config(RETRY) is None


def test_with_separate_retry_queues_a_master_widens_a_retry_topic_that_has_fewer(
    make_parts: Callable[..., PopParts],
) -> None:
    for broker_id, expected in ((0, 4), (1, 1)):
        parts = make_parts(broker_id=broker_id, useSeparateRetryQueue="true")
        parts.create(queues=4)
        parts.create(RETRY)
        Reader(parts).pop()
        made = parts.topics.select_topic_config(RETRY)
        assert made is not None and made.read_queue_nums == expected


def test_what_comes_again_is_not_looked_at_when_there_is_enough(make_parts: Callable[..., PopParts]) -> None:
    parts = make_parts(popFromRetryProbability="0")
    parts.create()
    parts.create(RETRY)
    parts.fill([b"0"])
    parts.fill([b"again"], RETRY)
    found = Reader(parts).pop(max_msg_nums=1)
    assert (_bodies(found), found.rest_num) == ([b"0"], 0)


# --- chance ----------------------------------------------------------------------------------------------------------


class Chance:
    """Draws what the test says, below 100."""

    def __init__(self, parts: PopParts, monkeypatch: pytest.MonkeyPatch) -> None:
        self.drawn = 0
        monkeypatch.setattr(parts.env.rng, "below", lambda bound: self.drawn)


def test_every_queue_is_the_first_to_be_read_sometimes(
    make_parts: Callable[..., PopParts], monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = make_parts(priorityOrderAsc="false")
    parts.create(queues=3)
    chance, reader = Chance(parts, monkeypatch), Reader(parts)
    for queue_id in range(3):
        parts.fill([b"%d" % queue_id] * 2, queue_id=queue_id)
    for drawn, expected in ((2, b"2"), (3, b"0"), (97, b"1")):
        chance.drawn = drawn
        assert _bodies(reader.pop(max_msg_nums=1)) == [expected]


@pytest.mark.parametrize(
    ("drawn", "percent", "first"), [(0, "0", b"new"), (0, "1", b"again"), (49, "50", b"again"), (50, "50", b"new")]
)
def test_what_comes_again_is_given_first_as_often_as_the_setting_says(
    make_parts: Callable[..., PopParts], monkeypatch: pytest.MonkeyPatch, drawn: int, percent: str, first: bytes
) -> None:
    parts = make_parts(popFromRetryProbability=percent)
    parts.create()
    parts.create(RETRY)
    parts.fill([b"new"])
    parts.fill([b"again"], RETRY)
    Chance(parts, monkeypatch).drawn = drawn
    assert _bodies(Reader(parts).pop(max_msg_nums=1)) == [first]


@pytest.mark.parametrize(("factor", "is_first"), [("0", True), ("1", False), (None, False)])
def test_priorities_count_as_often_as_the_factor_of_the_group_says(
    make_parts: Callable[..., PopParts], monkeypatch: pytest.MonkeyPatch, factor: str | None, is_first: bool
) -> None:
    """Where they do, what comes again comes first as often as another setting says."""
    parts = make_parts(popFromRetryProbability="100", popFromRetryProbabilityForPriority="0")
    parts.create(attributes={"+message.type": "PRIORITY"})
    parts.create(RETRY)
    parts.fill([b"new"])
    parts.fill([b"again"], RETRY)
    group = parts.groups.subscription_group_table[GROUP]
    if factor is not None:
        group = replace(group, attributes={"priority.factor": factor})
    Chance(parts, monkeypatch)
    found = Reader(parts).pop(max_msg_nums=1, group=group)
    assert _bodies(found) == [b"again" if is_first else b"new"]


@pytest.mark.parametrize(("drawn", "reads_older", "expected"), [
    (2, "true", b"older"), (3, "true", b"newer"), (2, "false", b"newer")
])  # fmt: skip
def test_of_both_spellings_of_a_retry_topic_one_is_read_at_a_time(
    make_parts: Callable[..., PopParts], monkeypatch: pytest.MonkeyPatch, drawn: int, reads_older: str, expected: bytes
) -> None:
    parts = make_parts(enableRetryTopicV2="true", retrieveMessageFromPopRetryTopicV1=reads_older)
    for topic in ("T", RETRY, "%RETRY%G+T"):
        parts.create(topic)
    parts.fill([b"older"], RETRY)
    parts.fill([b"newer"], "%RETRY%G+T")
    Chance(parts, monkeypatch).drawn = drawn
    assert _bodies(Reader(parts).pop()) == [expected]


# --- in order --------------------------------------------------------------------------------------------------------


async def test_in_order_only_the_same_attempt_gets_something_of_a_blocked_queue(
    reader: Reader, parts: PopParts
) -> None:
    parts.create(RETRY)
    parts.fill([b"never in order"], RETRY)
    parts.fill(_some(0, 4))
    first = reader.pop(order=True, attempt_id="a", max_msg_nums=2)
    assert (first.revive_qid, first.points, _bodies(first)) == (POP_ORDER_REVIVE_QUEUE, [], _some(0, 2))
    assert first.end_offset == parts.store.max_physical_offset
    assert reader.pop(order=True, attempt_id="b").count == 0
    assert first.order_count_info == ["0 0 0"]
    again = reader.pop(order=True, attempt_id="a", max_msg_nums=2)
    assert _bodies(again) == _some(0, 2)
    for offset in range(2):
        parts.orders.ack("T", GROUP, 0, offset, again.pop_time, "c")
    assert _bodies(reader.pop(order=True, attempt_id="b")) == _some(2, 2)
    assert set(_bodies(reader.pop())) == {b"never in order", *_some(2, 2)}, "the block is one for pops in order"


async def test_a_reset_lifts_the_block(reader: Reader, parts: PopParts) -> None:
    parts.fill(_some(0, 2))
    reader.pop(order=True, attempt_id="a")
    parts.offsets.assign_reset_offsets("T", GROUP, {0: 1})
    assert _bodies(reader.pop(order=True, attempt_id="b")) == [b"1"]


def test_every_group_has_its_own_place(reader: Reader, parts: PopParts) -> None:
    parts.fill(_some(0, 2))
    reader.pop()
    other = parts.groups.find_subscription_group_config("H")
    assert other is not None
    assert _bodies(reader.pop(group=replace(other))) == _some(0, 2)
