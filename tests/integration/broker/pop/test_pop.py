"""Pop consumption through a running broker: given, hidden, acknowledged, given again."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from maxq.broker.pop.retry_writer import RetryWriter
from maxq.broker.tables.topic.topic_validator import JOURNAL_TOPIC
from maxq.client.results.pop_result import PopStatus, handle_of
from maxq.codes import RequestCode, ResponseCode
from maxq.protocol.body.pop import PopCheckPoint
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.pull import (
    ChangeInvisibleTimeRequestHeader,
    NotificationRequestHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
)
from maxq.protocol.message.message import Message, MessageExt, encode_batch
from maxq.protocol.message.pop_extra_info import ExtraInfo, retry_topic_v1, retry_topic_v2
from maxq.runtime.files.system import SystemClock
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.context.running_flags import DISK_FULL
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import RunningBroker, copy_as_killed, messages_of, until
from tests.integration.broker.pop.pop_world import (
    GROUP,
    LONG_MS,
    ack,
    batch_ack,
    bodies,
    change_time,
    pop,
    pop_all,
    pop_request,
    popped,
)

QUICK = {"timerPrecisionMs": "100", "reviveInterval": "100"}


async def _filled(broker: RunningBroker, count: int, queues: int = 4, topic: str = "T") -> list[bytes]:
    broker.create_topic(topic, queues)
    for number in range(count):
        reply = await broker.send(topic, b"%03d" % number, queue_id=number % queues, TAGS="AB"[number % 2])
        assert reply.code == 0, reply.remark
    return [b"%03d" % number for number in range(count)]


def _under(message: MessageExt, reply: RemotingCommand) -> MessageExt:
    """The message with the handle that a change of its invisible time has given it."""
    old = handle_of(message)
    handle = ExtraInfo(
        old.queue_offset or 0, int(reply.ext["popTime"]), int(reply.ext["invisibleTime"]),
        int(reply.ext["reviveQid"]), old.retry, old.broker_name, old.queue_id, old.queue_offset,
    )  # fmt: skip
    return replace(message, properties={**message.properties, "POP_CK": str(handle)})


async def test_every_message_is_given_once_and_none_comes_after_its_ack(broker: RunningBroker) -> None:
    sent = await _filled(broker, 50)
    found = await pop_all(broker)
    assert bodies(found) == sent
    assert await popped(broker) == []
    for message in found[:20]:
        assert (await ack(broker, message)).code == 0
    assert (await batch_ack(broker, found[20:])).code == 0
    offsets = broker.controller.offsets
    assert [offsets.query_offset(GROUP, "T", queue) for queue in range(4)] == [13, 13, 12, 12]
    assert len(broker.controller.popping.buffer) == 0
    timer_messages = broker.controller.store.max_offset("rmq_sys_wheel_timer", 0)
    assert timer_messages == 0  # what is acknowledged in time costs no timer message


async def test_the_offset_stays_before_what_is_open(broker: RunningBroker) -> None:
    await _filled(broker, 6, queues=1)
    first = await popped(broker, max_msg_nums=2)
    second = await popped(broker, max_msg_nums=4)
    await batch_ack(broker, second)
    assert broker.controller.offsets.query_offset(GROUP, "T", 0) == 0
    await batch_ack(broker, first)
    assert broker.controller.offsets.query_offset(GROUP, "T", 0) == 6


async def test_a_batch_of_several_check_points_is_one_record_of_the_journal(broker: RunningBroker) -> None:
    await _filled(broker, 40)
    found = await pop_all(broker)
    records = broker.controller.store.max_offset(JOURNAL_TOPIC, 0)
    assert (await batch_ack(broker, found)).code == 0
    assert broker.controller.store.max_offset(JOURNAL_TOPIC, 0) == records + 1
    assert [broker.controller.offsets.query_offset(GROUP, "T", queue) for queue in range(4)] == [10] * 4


async def test_where_a_group_begins_in_many_queues_is_one_record_of_the_journal(broker: RunningBroker) -> None:
    """It was one for each queue, all written in one turn of the loop."""
    broker.create_topic("T", 40)
    records = broker.controller.store.max_offset(JOURNAL_TOPIC, 0)
    assert await popped(broker, init_mode=1) == []
    assert broker.controller.store.max_offset(JOURNAL_TOPIC, 0) == records + 1


@pytest.mark.parametrize("has_popped", [False, True], ids=["taken by a pop", "set while it pops"])
async def test_resets_of_many_queues_are_one_record_of_the_journal(broker: RunningBroker, has_popped: bool) -> None:
    """They were one for each queue, all written in one turn of the loop."""
    await _filled(broker, 40, queues=40)
    store, offsets = broker.controller.store, broker.controller.offsets
    if has_popped:
        assert len(await popped(broker)) == 32
    else:
        for queue in range(40):
            offsets.commit_offset("test", GROUP, "T", queue, 1)
    records = store.max_offset(JOURNAL_TOPIC, 0)
    offsets.assign_reset_offsets("T", GROUP, dict.fromkeys(range(40), 1))
    assert store.max_offset(JOURNAL_TOPIC, 0) == records + has_popped
    assert await popped(broker) == []
    assert store.max_offset(JOURNAL_TOPIC, 0) == records + has_popped + 1
    assert not offsets.any_reset


async def test_a_batch_with_a_check_point_that_is_not_in_memory_acknowledges_the_others(broker: RunningBroker) -> None:
    await _filled(broker, 4, queues=2)
    found = await pop_all(broker)
    await ack(broker, found[0])
    await ack(broker, found[2])  # the check point of their queue has ended
    assert (await batch_ack(broker, found)).code == 0
    assert len(broker.controller.popping.buffer) == 0
    assert [broker.controller.offsets.query_offset(GROUP, "T", queue) for queue in range(2)] == [2, 2]


async def test_what_is_not_acknowledged_comes_again_once_counted_and_with_its_first_pop_time(
    start_broker: Start,
) -> None:
    broker = await start_broker(**QUICK)
    await _filled(broker, 3, queues=1)
    first = await popped(broker, invisible_time=1_000)
    await ack(broker, first[1])
    again: list[MessageExt] = []
    async with asyncio.timeout(20):
        while len(again) < 2:
            again += await popped(broker, poll_time=20_000)
    assert bodies(again) == [b"000", b"002"]
    for message in again:
        assert message.topic == "T" and message.reconsume_times == 1
        assert message.properties["1ST_POP_TIME"] == str(handle_of(first[0]).pop_time)
        assert message.properties["ORIGIN_GROUP"] == GROUP
        assert handle_of(message).retry == "1"
        assert (await ack(broker, message)).code == 0
    assert broker.controller.offsets.query_offset(GROUP, retry_topic_v1("T", GROUP), 0) == 2
    assert await popped(broker) == []


async def test_a_revived_message_is_revived_again(start_broker: Start) -> None:
    broker = await start_broker(**QUICK)
    await _filled(broker, 1)
    times = []
    for _ in range(3):
        (message,) = await popped(broker, invisible_time=100, poll_time=20_000)
        times.append(message.reconsume_times)
    assert times == [0, 1, 2]


async def test_a_message_that_was_delayed_is_not_delayed_again(start_broker: Start) -> None:
    broker = await start_broker(messageDelayLevel="1s 1h", **QUICK)
    broker.create_topic("T", 1)
    await broker.send("T", b"x", DELAY="1")
    (message,) = await popped(broker, invisible_time=100, poll_time=10_000)
    assert message.properties["DELAY"] == "1"
    (again,) = await popped(broker, poll_time=20_000)
    assert again.reconsume_times == 1


async def test_retry_topics_of_the_newer_spelling(start_broker: Start) -> None:
    broker = await start_broker(enableRetryTopicV2="true", **QUICK)
    await _filled(broker, 1)
    await popped(broker, invisible_time=100)
    (message,) = await popped(broker, poll_time=20_000)
    assert handle_of(message).retry == "2"
    assert broker.controller.store.max_offset(retry_topic_v2("T", GROUP), 0) == 1
    assert (await ack(broker, message)).code == 0
    assert len(broker.controller.popping.buffer) == 0


async def test_messages_of_the_older_retry_topic_are_found_after_the_change(start_broker: Start) -> None:
    broker = await start_broker(**QUICK)
    await _filled(broker, 1)
    await popped(broker, invisible_time=100)
    await until(lambda: broker.controller.store.max_offset(retry_topic_v1("T", GROUP), 0) == 1)
    await broker.stop()
    broker = await start_broker(enableRetryTopicV2="true", **QUICK)
    found: list[object] = []
    async with asyncio.timeout(20):
        while not found:
            found += await popped(broker)
    assert len(found) == 1


async def test_a_changed_invisible_time_counts_and_the_old_handle_does_not(start_broker: Start) -> None:
    broker = await start_broker(**QUICK)
    await _filled(broker, 1)
    (message,) = await popped(broker)
    reply = await change_time(broker, message, 200)
    assert reply.code == 0
    await until(lambda: broker.controller.offsets.query_offset(GROUP, "T", 0) == 1)
    (again,) = await popped(broker, poll_time=20_000)
    assert again.reconsume_times == 1
    taken_ms = int(again.properties["POP_CK"].split()[1]) - int(reply.ext["popTime"])
    assert taken_ms >= 200


async def test_a_suspended_message_is_not_counted(start_broker: Start) -> None:
    broker = await start_broker(**QUICK)
    await _filled(broker, 1)
    (message,) = await popped(broker)
    assert (await change_time(broker, message, 100, suspend=True)).code == 0
    (again,) = await popped(broker, poll_time=20_000)
    assert again.reconsume_times == 0


async def test_the_new_handle_acknowledges(start_broker: Start) -> None:
    broker = await start_broker(**QUICK)
    await _filled(broker, 1)
    (message,) = await popped(broker)
    message = _under(message, await change_time(broker, message, LONG_MS))
    assert (await ack(broker, message)).code == 0
    assert len(broker.controller.popping.buffer) == 0


@pytest.mark.parametrize("with_others", [False, True])
@pytest.mark.parametrize("by_batch", [False, True])
@pytest.mark.parametrize("by", ["first", "lost", "last"])
async def test_a_change_of_time_that_is_asked_for_again_leaves_one_message(
    start_broker: Start, with_others: bool, by_batch: bool, by: str
) -> None:
    """The first answer was lost, or late. The message does not come again after its ack, whichever handle names it."""
    broker = await start_broker(**QUICK)
    await _filled(broker, 1 + with_others, queues=1)
    message, *others = await popped(broker)
    lost = _under(message, await change_time(broker, message, 2_000))
    last = _under(message, await change_time(broker, message, 2_000))
    acked = {"first": message, "lost": lost, "last": last}[by]
    reply = await (batch_ack(broker, [acked]) if by_batch else ack(broker, acked))
    assert reply.code == 0
    assert broker.controller.popping.buffer.in_flight == ({("T", GROUP, 0): 1} if others else {})
    assert await popped(broker, poll_time=4_000) == []


async def test_a_message_that_was_acknowledged_does_not_come_because_its_time_is_changed_then(
    start_broker: Start,
) -> None:
    broker = await start_broker(**QUICK)
    await _filled(broker, 1)
    (message,) = await popped(broker)
    assert (await ack(broker, message)).code == 0
    assert (await change_time(broker, message, 500)).code == 0
    assert await popped(broker, poll_time=3_000) == []


async def test_a_handle_of_what_was_handed_over_changes_the_time(start_broker: Start) -> None:
    broker = await start_broker(popCkStayBufferTime="300", popCkStayBufferTimeOut="100", **QUICK)
    await _filled(broker, 2, queues=1)
    given = await popped(broker, invisible_time=4_000)
    await until(lambda: len(broker.controller.popping.buffer) == 0)
    later = _under(given[0], await change_time(broker, given[0], 60_000))
    assert bodies(await popped(broker, poll_time=10_000)) == bodies(given[1:])
    await ack(broker, later)


async def test_a_change_of_time_that_the_log_did_not_take_leaves_the_handle_good(start_broker: Start) -> None:
    broker = await start_broker(popCkStayBufferTime="300", popCkStayBufferTimeOut="100", **QUICK)
    await _filled(broker, 1, queues=1)
    (message,) = await popped(broker, invisible_time=4_000)
    await until(lambda: len(broker.controller.popping.buffer) == 0)
    broker.controller.store.flags.set(DISK_FULL, "the disk is full")
    assert (await change_time(broker, message, 3_000)).code == ResponseCode.SYSTEM_ERROR
    broker.controller.store.flags.clear(DISK_FULL)
    assert (await ack(broker, message)).code == ResponseCode.SUCCESS
    assert await popped(broker, poll_time=8_000) == []


async def test_a_made_up_handle_stops_nobody(start_broker: Start) -> None:
    """The broker's name that it says would fit into no record of the journal."""
    broker = await start_broker(maxMessageSize="100000")
    await _filled(broker, 2, queues=1)
    header = ChangeInvisibleTimeRequestHeader(GROUP, "T", 0, f"0 1 60000 0 0 {'b' * 200_000} 0 0", 0, 1_000)
    reply = await broker.invoke(RemotingCommand(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header.encode()))
    assert reply.code != ResponseCode.SUCCESS
    (first, _) = await popped(broker)
    assert (await ack(broker, first)).code == ResponseCode.SUCCESS


async def test_a_message_that_is_acknowledged_while_it_is_made_ready_to_come_again_does_not_come(
    start_broker: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others of its check point are read from a slow disk."""
    broker = await start_broker(**QUICK)
    await _filled(broker, 2, queues=1)
    real = RetryWriter._message
    given: list[MessageExt] = []

    async def message(writer: RetryWriter, point: PopCheckPoint, offset: int) -> MessageExt | None:
        if offset == 1:
            assert (await ack(broker, given[0])).code == 0
        return await real(writer, point, offset)

    monkeypatch.setattr(RetryWriter, "_message", message)
    given += await popped(broker, invisible_time=500)
    again: list[MessageExt] = []
    while not again:
        again += await popped(broker, poll_time=3_000)
    assert bodies(again) == [b"001"]


async def test_acks_of_one_arrival_share_a_record_and_odd_ones_among_them_are_answered_too(
    broker: RunningBroker,
) -> None:
    sent = await _filled(broker, 64, queues=2)
    found = await pop_all(broker)
    records = broker.controller.store.max_offset(JOURNAL_TOPIC, 0)
    stray = MessageExt(topic="T", properties={"POP_CK": "0 1 60000 0 0 broker-a 0 3"})
    replies = await asyncio.gather(*(ack(broker, message) for message in [*found[:30], stray, *found[30:]]))
    assert {reply.code for reply in replies} == {0} and len(sent) == 64
    assert broker.controller.store.max_offset(JOURNAL_TOPIC, 0) - records < 10
    assert len(broker.controller.popping.buffer) == 0
    stats = broker.controller.stats
    item = stats.view("GROUP_ACK_NUMS", f"T@{GROUP}")
    assert item is not None and item.value == 65
    again = await asyncio.gather(*(ack(broker, message) for message in found[:3]))
    assert {reply.code for reply in again} == {0}


async def test_with_sync_flush_acks_are_answered_when_the_disk_has_them(start_broker: Start) -> None:
    broker = await start_broker(flushDiskType="SYNC_FLUSH")
    await _filled(broker, 8, queues=1)
    found = await pop_all(broker)
    replies = await asyncio.gather(*(ack(broker, message) for message in found))
    assert {reply.code for reply in replies} == {0}
    store = broker.controller.store
    assert store.flushed_offset == store.max_physical_offset
    ((physical, size, _),) = store.queue_units(JOURNAL_TOPIC, 0, store.max_offset(JOURNAL_TOPIC, 0) - 1, 1)
    assert physical + size <= store.flushed_offset


async def test_an_ack_that_cannot_be_stored_is_refused(broker: RunningBroker) -> None:
    await _filled(broker, 1, queues=1)
    broker.controller.store.flags.set(DISK_FULL, "the disk is full")
    stray = MessageExt(topic="T", properties={"POP_CK": "0 1 60000 0 0 broker-a 0 0"})
    reply = await ack(broker, stray)
    assert reply.code == ResponseCode.SYSTEM_ERROR and "comes again" in (reply.remark or "")


@pytest.mark.parametrize("how", ["ack", "batch", "ack without the batch path", "change of time"])
async def test_nothing_is_acknowledged_while_the_log_takes_nothing(
    start_broker: Start, tmp_path: Path, how: str
) -> None:
    """Also not when it is asked again; and when the log takes it, the message stays away after a kill."""
    broker = await start_broker(flushDiskType="SYNC_FLUSH")
    await _filled(broker, 6, queues=1)
    messages = await popped(broker)
    if how == "ack without the batch path":
        broker.controller.server.batch_path = broker.controller.server.batched_reads.path = None

    async def give_back() -> RemotingCommand:
        if how == "change of time":
            return await change_time(broker, messages[0], LONG_MS)
        return await (batch_ack(broker, messages[:1]) if how == "batch" else ack(broker, messages[0]))

    broker.controller.store.flags.set(DISK_FULL, "the disk is full")
    for _ in range(2):
        reply = await give_back()
        assert reply.code == ResponseCode.SYSTEM_ERROR and "comes again" in (reply.remark or "")
    broker.controller.store.flags.clear(DISK_FULL)
    if how == "change of time":
        return
    assert (await give_back()).code == ResponseCode.SUCCESS
    copy_as_killed(broker.folder, tmp_path / "killed")
    successor = await start_broker("killed")
    assert (await ack(successor, messages[1])).code == ResponseCode.SUCCESS  # the others still are the group's
    assert successor.controller.popping.buffer.in_flight == {("T", GROUP, 0): 4}


async def test_nothing_is_given_away_while_the_log_takes_nothing(broker: RunningBroker) -> None:
    await _filled(broker, 2, queues=1)
    broker.controller.store.flags.set(DISK_FULL, "the disk is full")
    for order in (False, True):
        reply = await broker.invoke(pop_request(order=order))
        assert reply.code == ResponseCode.SYSTEM_BUSY and "no messages are delivered now" in (reply.remark or "")
    broker.controller.store.flags.clear(DISK_FULL)
    assert len(await popped(broker)) == 2


class Later:
    """Promises nothing yet."""

    done: Callable[[ResponseCode], None] | None = None

    def when(self, end_offset: int, done: Callable[[ResponseCode], None]) -> bool:
        assert end_offset > 0
        self.done = done
        return True


async def test_a_pop_is_answered_when_what_it_gave_away_is_safe(broker: RunningBroker) -> None:
    await _filled(broker, 1)
    promise = Later()
    broker.controller.popping._pops._acknowledgement = promise  # type: ignore[assignment]
    waiting = asyncio.ensure_future(popped(broker))
    await until(lambda: promise.done is not None)
    info = PollingInfoRequestHeader(GROUP, "T", -1)
    await broker.invoke(RemotingCommand(RequestCode.POLLING_INFO, info.encode()))  # its answer would come behind
    assert not waiting.done()
    assert promise.done is not None
    promise.done(ResponseCode.SUCCESS)
    assert len(await waiting) == 1


async def test_acks_that_replicas_do_not_have_in_time_say_so(start_broker: Start) -> None:
    broker = await start_broker(brokerRole="SYNC_MASTER", inSyncReplicas="2", slaveTimeout="100")
    broker.create_topic("T", 1)
    for body in (b"1", b"2"):
        broker.controller.store.put_message(MessageExtBrokerInner("T", 0, body, {}))
    found = await popped(broker)
    replies = [await ack(broker, found[0]), await batch_ack(broker, found[1:])]
    assert {reply.code for reply in replies} == {ResponseCode.FLUSH_SLAVE_TIMEOUT}
    assert all("may come again" in (reply.remark or "") for reply in replies)
    assert len(broker.controller.popping.buffer) == 0


# --- waiting ---------------------------------------------------------------------------------------------------------


async def test_a_waiting_pop_is_answered_by_the_append(broker: RunningBroker) -> None:
    broker.create_topic("T")
    waiting = asyncio.ensure_future(pop(broker, poll_time=10_000))
    polling = broker.controller.popping.polling
    await until(lambda: polling.total == 1)
    await broker.send("T", b"x", queue_id=3)
    (message,) = (await waiting).messages
    assert message.body == b"x" and polling.total == 0


async def test_one_of_two_waiting_pops_gets_one_message(broker: RunningBroker) -> None:
    broker.create_topic("T")
    waiting = [asyncio.ensure_future(pop(broker, poll_time=10_000)) for _ in range(2)]
    polling = broker.controller.popping.polling
    await until(lambda: polling.total == 2)
    await broker.send("T", b"x")
    done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert len(done) == 1 and polling.total == 1
    await broker.send("T", b"y")
    assert bodies([message for task in waiting for message in (await task).messages]) == [b"x", b"y"]


async def test_a_pop_whose_time_is_over_is_answered_210(broker: RunningBroker) -> None:
    broker.create_topic("T")
    reply = await broker.invoke(pop_request(poll_time=150))
    assert (reply.code, reply.remark) == (ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE")
    assert {"popTime", "invisibleTime", "reviveQid", "restNum"} <= reply.ext.keys()
    born_ms = SystemClock().wall_ms() - 60_000
    late = await broker.invoke(pop_request(poll_time=100, born_time=born_ms))
    assert late.code == ResponseCode.POLLING_TIMEOUT and "timeout too much" in (late.remark or "")


async def test_too_many_waiting_pops_are_told_so(start_broker: Start) -> None:
    broker = await start_broker(maxPopPollingSize=1)
    broker.create_topic("T")
    waiting = asyncio.ensure_future(pop(broker, poll_time=1_000))
    await until(lambda: broker.controller.popping.polling.total == 1)
    assert (await broker.invoke(pop_request(poll_time=1_000))).code == ResponseCode.POLLING_FULL
    info = PollingInfoRequestHeader(GROUP, "T", -1)
    reply = await broker.invoke(RemotingCommand(RequestCode.POLLING_INFO, info.encode()))
    assert reply.ext["pollingNum"] == "1"
    assert (await waiting).status is PopStatus.POLLING_NOT_FOUND


async def test_a_notification_tells_of_messages_and_takes_none(broker: RunningBroker) -> None:
    broker.create_topic("T")

    def ask(poll_ms: int, **more: object) -> RemotingCommand:
        header = NotificationRequestHeader(GROUP, "T", -1, poll_ms, 0, **more)  # type: ignore[arg-type]
        return RemotingCommand(RequestCode.NOTIFICATION, header.encode())

    reply = await broker.invoke(ask(0))
    assert (reply.code, reply.ext["hasMsg"]) == (0, "false")
    waiting = asyncio.ensure_future(broker.invoke(ask(10_000)))
    await until(lambda: broker.controller.popping.notified.total == 1)
    await broker.send("T", b"x", TAGS="A")
    assert (await waiting).ext["hasMsg"] == "true"
    assert (await broker.invoke(ask(0, exp="B", exp_type="TAG"))).ext["hasMsg"] == "false"
    assert (await broker.invoke(ask(0, exp="A", exp_type="TAG"))).ext["hasMsg"] == "true"
    assert bodies(await popped(broker)) == [b"x"]
    assert (await broker.invoke(ask(0))).ext["hasMsg"] == "false"


async def test_peeking_shows_what_comes_next_and_leaves_it(broker: RunningBroker) -> None:
    sent = await _filled(broker, 5)
    for _ in range(2):
        header = PeekMessageRequestHeader("T", -1, 32, GROUP)
        reply = await broker.invoke(RemotingCommand(RequestCode.PEEK_MESSAGE, header.encode()))
        assert bodies(messages_of(reply)) == sent
    assert bodies(await pop_all(broker)) == sent
    reply = await broker.invoke(RemotingCommand(RequestCode.PEEK_MESSAGE, header.encode()))
    assert reply.code == ResponseCode.PULL_NOT_FOUND


# --- what is asked for -----------------------------------------------------------------------------------------------


async def test_tags_choose_and_the_cursor_passes_over_the_others(broker: RunningBroker) -> None:
    await _filled(broker, 10, queues=2)
    found = await pop_all(broker, exp="A", exp_type="TAG")
    assert bodies(found) == [b"%03d" % number for number in range(0, 10, 2)]
    await batch_ack(broker, found)
    assert broker.controller.offsets.query_offset(GROUP, "T", 1) == 5
    assert await popped(broker, exp="A") == []


async def test_tags_choose_in_light_queues_too(start_broker: Start) -> None:
    """Handles name the places in the light queue, which are others than those in the topic's."""
    broker = await start_broker(**QUICK, enableMultiDispatch="true", enableLmq="true")
    broker.create_topic("T", 1)
    assert (await broker.send("T", b"elsewhere")).code == 0
    for number, tag in enumerate("BABAA"):
        reply = await broker.send("T", b"%d" % number, TAGS=tag, INNER_MULTI_DISPATCH="%LMQ%x")
        assert reply.code == 0, reply.remark
    found = await popped(broker, "%LMQ%x", exp="A", max_msg_nums=2)
    found += await popped(broker, "%LMQ%x", exp="A")
    places = [(message.body, (handle_of(message).queue_offset, handle_of(message).queue_id)) for message in found]
    assert places == [(b"1", (1, 0)), (b"3", (3, 0)), (b"4", (4, 0))]
    for message in found:
        assert (await ack(broker, message)).code == 0
    assert broker.controller.offsets.query_offset(GROUP, "%LMQ%x", 0) == 5


async def test_a_group_named_as_a_light_queue_gets_again_what_it_did_not_acknowledge(start_broker: Start) -> None:
    """There is such a group without being in the table."""
    broker = await start_broker(**QUICK, enableLmq="true")
    await _filled(broker, 2, queues=1)
    group = "%LMQ%g"
    given = await popped(broker, consumer_group=group, invisible_time=500)
    assert bodies(given) == [b"000", b"001"]
    assert (await ack(broker, given[0], group)).code == ResponseCode.SUCCESS
    assert bodies(await popped(broker, consumer_group=group, poll_time=5_000)) == [b"001"]


@pytest.mark.parametrize("after", ["copy", "pop"])
async def test_what_was_popped_of_queues_that_were_added_since_the_retry_topic_was_made_comes_again(
    start_broker: Start, after: str
) -> None:
    """Copies go to the queues of their messages."""
    broker = await start_broker(**QUICK, useSeparateRetryQueue="true", popFromRetryProbability="100")
    await _filled(broker, 1, queues=1)
    await popped(broker, invisible_time=300)
    (again,) = await popped(broker, poll_time=5_000)
    await ack(broker, again)
    broker.create_topic("T", 3)
    if after == "pop":  # before it was known that copies need a queue of their own
        copy = MessageExtBrokerInner(retry_topic_v1("T", GROUP), 2, b"new", {})
        assert broker.controller.store.put_message(copy).ok
    else:
        await broker.send("T", b"new", queue_id=2)
        await popped(broker, invisible_time=300)
    (back,) = await popped(broker, poll_time=5_000)
    assert (back.body, (await ack(broker, back)).code) == (b"new", ResponseCode.SUCCESS)


async def test_an_inner_batch_is_given_as_one_message(start_broker: Start) -> None:
    broker = await start_broker(**QUICK)
    broker.create_topic("B", 1, attributes={"+queue.type": "BatchCQ"})
    for count in (4, 3):
        batch = encode_batch([Message("B", b"%d" % number, {}) for number in range(count)])
        assert (await broker.invoke(broker.send_request("B", batch, batch=True))).code == 0
    given = await popped(broker, "B")
    assert [(handle_of(one).start_offset, handle_of(one).queue_offset) for one in given] == [(0, 0), (0, 4)]


async def test_a_damaged_inner_batch_is_passed_over_by_pops_and_pulls(start_broker: Start) -> None:
    broker = await start_broker(**QUICK)
    broker.create_topic("B", 1, attributes={"+queue.type": "BatchCQ"})
    for count in (4, 3):
        batch = encode_batch([Message("B", b"%d" % number, {}) for number in range(count)])
        assert (await broker.invoke(broker.send_request("B", batch, batch=True))).code == 0
    store = broker.controller.store
    await store.flush()
    unit = store.queues.batch_queues["B", 0].unit(0)
    assert unit is not None
    file = store.commit_log.files.find(unit.physical_offset)
    assert file is not None
    file.view[unit.physical_offset : unit.physical_offset + unit.size] = bytes(unit.size)
    pulled = await broker.pull("B")
    assert [one.queue_offset for one in messages_of(pulled)] == [4]
    given = await popped(broker, "B")
    assert [handle_of(one).queue_offset for one in given] == [4]
    assert store.reader.damaged_units == 2


async def test_properties_choose(start_broker: Start) -> None:
    broker = await start_broker(enablePropertyFilter="true")
    broker.create_topic("T", 1)
    for number in range(6):
        await broker.send("T", b"%d" % number, price=str(number))
    found = await popped(broker, exp="price > 3", exp_type="SQL92")
    assert bodies(found) == [b"4", b"5"]
    assert handle_of(found[0]).start_offset == 0
    assert (await batch_ack(broker, found)).code == 0
    assert len(broker.controller.popping.buffer) == 0
    bad = await broker.invoke(pop_request(exp="price >", exp_type="SQL92"))
    assert bad.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


async def test_a_new_group_may_begin_at_the_end(start_broker: Start) -> None:
    broker = await start_broker(initPopOffsetByCheckMsgInMem="false")
    await _filled(broker, 5, queues=1)
    assert bodies(await popped(broker, init_mode=1)) == [b"004"]


async def test_one_queue_may_be_asked_for(broker: RunningBroker) -> None:
    await _filled(broker, 8)
    assert bodies(await popped(broker, queue_id=2)) == [b"002", b"006"]


async def test_queues_of_high_priority_come_first(broker: RunningBroker) -> None:
    broker.create_topic("T", 4, attributes={"+message.type": "PRIORITY"})
    for priority in (0, 3, 1, 2):
        await broker.send("T", b"%d" % priority, _SYS_MSG_PRIORITY_=str(priority))
    assert [message.body for message in await popped(broker)] == [b"3", b"2", b"1", b"0"]


async def test_rest_num_tells_what_is_left(broker: RunningBroker) -> None:
    await _filled(broker, 10, queues=1)
    assert (await pop(broker, max_msg_nums=4)).rest_num == 6


async def test_too_many_open_messages_stop_a_queue(start_broker: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maxq.broker.pop.pop_messages._SAFETY_NET_SECONDS", 3_600)  # its look does not help
    broker = await start_broker(enablePopMessageThreshold="true", popInflightMessageThreshold=2)
    await _filled(broker, 10, queues=1)
    first = await popped(broker, max_msg_nums=3)
    assert await popped(broker) == []
    waiting = asyncio.ensure_future(pop(broker, poll_time=300_000))
    await until(lambda: broker.controller.popping.polling.total == 1)
    await batch_ack(broker, first)
    assert len((await waiting).messages) == 7


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        ({"topic": "Unknown"}, ResponseCode.TOPIC_NOT_EXIST, "not exist"),
        ({"max_msg_nums": 33}, ResponseCode.INVALID_PARAMETER, "greater than 32"),
        ({"queue_id": 4}, ResponseCode.INVALID_PARAMETER, "readQueueNums:[4]"),
        ({"exp": "a >", "exp_type": "SQL92"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED, ""),
    ],
)
async def test_refusals_say_why(broker: RunningBroker, change: dict[str, object], code: int, says: str) -> None:
    broker.create_topic("T")
    if change.get("exp_type") == "SQL92":
        code = ResponseCode.SYSTEM_ERROR  # enablePropertyFilter is false
    topic = str(change.pop("topic", "T"))
    reply = await broker.invoke(pop_request(topic, **change))
    assert reply.code == code and says in (reply.remark or "")


async def test_acks_of_what_is_not_there_are_refused(broker: RunningBroker) -> None:
    await _filled(broker, 1, queues=1)
    (message,) = await popped(broker)
    handle = handle_of(message)
    message.properties["POP_CK"] = str(handle._replace(queue_offset=7))
    assert (await ack(broker, message)).code == ResponseCode.NO_MESSAGE
    message.properties["POP_CK"] = str(handle._replace(queue_id=9))
    assert (await ack(broker, message)).code == ResponseCode.MESSAGE_ILLEGAL
    assert (await change_time(broker, message, 1)).code == ResponseCode.MESSAGE_ILLEGAL
    assert (await batch_ack(broker, [])).code == ResponseCode.NO_MESSAGE
