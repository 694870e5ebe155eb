"""Pop consumption over stops, kills and changes of hands: nothing lost, nothing acknowledged comes back."""

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import orjson
import pytest

from maxq.broker.pop import hand_back, pop_revive
from maxq.broker.pop.check_point_buffer import LiveCheckPoint, point_of
from maxq.broker.pop.pop_journal import JOURNAL_GROUP
from maxq.broker.pop.pop_revive import REVIVE_GROUP
from maxq.broker.pop.retry_writer import RetryWriter
from maxq.broker.tables.topic.topic_validator import JOURNAL_TOPIC, REVIVE_TOPIC_PREFIX
from maxq.client.results.pop_result import handle_of
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import StoreRefusedError
from maxq.protocol.body.pop import ACK_TAG, BATCH_ACK_TAG, AckMsg, PopCheckPoint
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.json import json_dialect
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import Message, MessageExt, encode_batch
from maxq.protocol.message.pop_extra_info import retry_topic_v1
from maxq.runtime.interfaces import Clock
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.context.running_flags import DISK_FULL
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import RunningBroker, copy_as_killed, until
from tests.integration.broker.pop.pop_world import GROUP, ack, batch_ack, bodies, pop, pop_all, pop_request, popped
from tests.unit.store.stores import delete_topics

QUICK = {"timerPrecisionMs": "100", "reviveInterval": "100", "timerFlushIntervalMs": "50"}
REVIVE = REVIVE_TOPIC_PREFIX + "DefaultCluster"


def kill(broker: RunningBroker, to: Path) -> str:
    """The store as a kill -9 would leave it, in a folder of its own."""
    copy_as_killed(broker.folder, to)
    return to.name


async def _filled(broker: RunningBroker, count: int, queues: int = 2) -> None:
    broker.create_topic("T", queues)
    await broker.controller.topics.persisted()
    for number in range(count):
        await broker.send("T", b"%03d" % number, queue_id=number % queues)


def _records(broker: RunningBroker, topic: str, queue_id: int) -> list[MessageExt]:
    store = broker.controller.store
    units = store.queue_units(topic, queue_id, 0, store.max_offset(topic, queue_id))
    return [record for unit in units if (record := store.look_message_by_offset(unit[0])) is not None]


async def test_after_a_kill_what_was_acknowledged_stays_away_and_what_was_given_stays_hidden(
    start_broker: Start, tmp_path: Path
) -> None:
    broker = await start_broker(**QUICK)
    await _filled(broker, 40)
    first, second = await popped(broker, max_msg_nums=10), await popped(broker, max_msg_nums=10, invisible_time=5_000)
    await batch_ack(broker, first)
    await ack(broker, second[0])
    successor = await start_broker(kill(broker, tmp_path / "killed"), **QUICK)
    given = await pop_all(successor)
    taken = {message.body for message in first + second}
    assert len(given) == 20 and not taken & {message.body for message in given}
    back: list[MessageExt] = []
    while len(back) < 9:
        back += await popped(successor, poll_time=3_000)
    assert bodies(back) == bodies(second[1:])


async def test_handles_from_before_a_kill_acknowledge(start_broker: Start, tmp_path: Path) -> None:
    broker = await start_broker(**QUICK)
    await _filled(broker, 10)
    given = await popped(broker)
    successor = await start_broker(kill(broker, tmp_path / "killed"), **QUICK)
    assert await pop_all(successor) == []
    await batch_ack(successor, given)
    assert len(successor.controller.popping.buffer) == 0
    offsets = successor.controller.offsets
    assert [offsets.query_offset(GROUP, "T", queue) for queue in range(2)] == [5, 5]


async def test_a_stop_hands_over_what_is_open_as_javas_records(start_broker: Start) -> None:
    broker = await start_broker(**QUICK)
    await _filled(broker, 8, queues=1)
    given = await popped(broker, invisible_time=6_000)
    await batch_ack(broker, given[:5])
    await broker.stop()
    broker = await start_broker(**QUICK)
    assert len(broker.controller.popping.buffer) == 0
    assert broker.controller.offsets.query_offset(GROUP, "T", 0) == 8
    await ack(broker, given[5])
    back: list[MessageExt] = []
    while len(back) < 2:
        back += await popped(broker, poll_time=10_000)
    assert bodies(back) == [b"006", b"007"]
    handle = handle_of(given[0])
    points = [record for record in _records(broker, REVIVE, handle.revive_qid) if record.tags == "ck"]
    point = PopCheckPoint.decode(points[0].body)
    assert (point.topic, point.group, point.num, point.diffs) == ("T", GROUP, 3, [5, 6, 7])
    assert (point.pop_time, point.invisible_time) == (handle.pop_time, 6_000)
    assert points[0].uniq_key == point.unique_key
    assert points[0].properties[const.PROPERTY_TIMER_DELIVER_MS] == str(point.revive_time - 1_000)
    await until(lambda: broker.controller.offsets.query_offset(REVIVE_GROUP, REVIVE, handle.revive_qid) >= 0)


async def test_a_message_that_two_hold_is_acknowledged_by_either_also_after_a_stop(start_broker: Start) -> None:
    """A slave that acted had given the messages to somebody else."""
    broker = await start_broker(**QUICK)
    await _filled(broker, 3, queues=1)
    given = await popped(broker, invisible_time=4_000)
    (row,) = broker.controller.popping.buffer.hand_back()
    of_the_slave = [*row[:4], broker.controller.store.time.now_ms(), 5_000, *row[6:]]
    broker.controller.popping.buffer.take_back(0, [of_the_slave], (), [], [], [])
    assert len(broker.controller.popping.buffer) == 2
    await broker.stop()
    broker = await start_broker(**QUICK)
    assert (await batch_ack(broker, given)).code == ResponseCode.SUCCESS
    assert await popped(broker, poll_time=9_000) == []


async def test_what_a_slave_tells_twice_is_taken_over_once_though_it_has_ended_since(start_broker: Start) -> None:
    broker = await start_broker(**QUICK)
    await _filled(broker, 3, queues=1)
    await popped(broker, max_msg_nums=1)
    buffer, failover = broker.controller.popping.buffer, broker.controller.failover
    told = orjson.loads(hand_back.encode(buffer.journal.end, buffer, broker.controller.popping._orders, 1 << 40))
    (row,) = told["live"]
    of_the_slave = {**told, "noted": [], "live": [row, [row[0] + 1, *row[1:7], 1, [0], 2, *row[10:]]]}
    for _ in range(2):
        failover.metadata._pops["10.0.0.2:10912"] = orjson.dumps(of_the_slave)
        failover.services.begin_again()
        await until(lambda: broker.controller.popping.service.not_ready() is None)
        (live, *more) = sorted(buffer.those([point_of(row).key for row in of_the_slave["live"]]), key=_start)
        assert [_start(one) for one in more] == [1] * len(more)
        if more:
            buffer.finish(more)
    assert _start(live) == 0 and not more, "it was acknowledged at the master"


def _start(live: LiveCheckPoint) -> int:
    return live.point.start_offset


async def test_what_is_open_for_long_is_handed_over_and_bounds_the_journal(start_broker: Start) -> None:
    broker = await start_broker(popCkStayBufferTime=300, popCkStayBufferTimeOut=100, **QUICK)
    await _filled(broker, 4, queues=1)
    given = await popped(broker, invisible_time=60_000)
    buffer = broker.controller.popping.buffer
    offsets = broker.controller.offsets
    await until(lambda: len(buffer) == 0 and offsets.query_offset(GROUP, "T", 0) == 4)
    await until(lambda: offsets.query_offset(JOURNAL_GROUP, JOURNAL_TOPIC, 0) >= 2)
    await batch_ack(broker, given)
    assert broker.controller.store.max_offset("rmq_sys_wheel_timer", 0) == 2  # the check point, and its acks


async def test_what_is_hidden_for_longer_than_the_timer_keeps_is_handed_over_too(start_broker: Start) -> None:
    broker = await start_broker(popCkStayBufferTime=300, popCkStayBufferTimeOut=100, timerMaxDelaySec=4, **QUICK)
    await _filled(broker, 2, queues=1)
    given = await popped(broker, invisible_time=60_000)
    await until(lambda: len(broker.controller.popping.buffer) == 0)
    await ack(broker, given[0])
    revive = broker.controller.popping.revive
    await until(lambda: revive.waiting == 1)
    assert [point.start_offset for queue in revive._queues for point in queue.points.values()] == [0]
    await until(lambda: [point.open_offsets() for queue in revive._queues for point in queue.points.values()] == [[1]])


def _put(broker: RunningBroker, tag: str, body: bytes, queue_id: int = 3) -> None:
    broker.controller.store.put_message(MessageExtBrokerInner(REVIVE, queue_id, body, {const.PROPERTY_TAGS: tag}))


async def test_javas_check_points_and_acks_are_read(start_broker: Start) -> None:
    broker = await start_broker(**QUICK)
    await _filled(broker, 6, queues=1)
    await pop(broker)  # the group is known
    point = PopCheckPoint("T", GROUP, 0, 0, 1_000, 500, "broker-a", [0, 1, 2, 4], 4)
    _put(broker, "ck", point.encode())
    _put(broker, ACK_TAG, b'{"ackOffset":1,"startOffset":0,"consumerGroup":"G","topic":"T","queueId":0,"popTime":1000}')
    _put(broker, BATCH_ACK_TAG, AckMsg("T", GROUP, 0, 0, 1_000, "broker-a", [2], is_batch=True).encode())
    _put(broker, "ck", b"not a check point")
    await until(lambda: broker.controller.offsets.query_offset(REVIVE_GROUP, REVIVE, 3) == 3)
    retried = _records(broker, retry_topic_v1("T", GROUP), 0)
    assert bodies(retried) == [b"000", b"004"]


async def test_acks_that_stand_far_behind_their_check_point_are_read_before_it_is_revived(
    start_broker: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading takes longer than one turn may, as after a long pause."""
    monkeypatch.setattr(pop_revive, "_UNITS", 1)
    broker = await start_broker(reviveScanTime="2", **QUICK)
    await _filled(broker, 2, queues=1)
    await pop(broker)  # the group is known
    revive, clock = broker.controller.popping.revive, broker.controller.env.clock
    turns = itertools.count()
    monkeypatch.setattr(revive, "_clock", SlowTurns(clock, turns))
    _put(broker, "ck", PopCheckPoint("T", GROUP, 0, 0, 1_000, 500, "broker-a", [0, 1], 2).encode())
    for _ in range(20):
        _put(broker, "ck", b"not a check point")
    _put(broker, BATCH_ACK_TAG, AckMsg("T", GROUP, 0, 0, 1_000, "broker-a", [0], is_batch=True).encode())
    retry_topic = retry_topic_v1("T", GROUP)
    await until(lambda: broker.controller.store.max_offset(retry_topic, 0) > 0 and revive.waiting == 0)
    assert bodies(_records(broker, retry_topic, 0)) == [b"001"]


class SlowTurns(NamedTuple):
    """A clock by which everything takes a millisecond."""

    real: Clock
    turns: Iterator[int]

    def wall_ms(self) -> int:
        return self.real.wall_ms()

    def monotonic_ms(self) -> int:
        return next(self.turns)


async def test_check_points_of_what_is_gone_are_passed_over(start_broker: Start) -> None:
    broker = await start_broker(**QUICK)
    await _filled(broker, 1)
    for topic, group in (("Gone", GROUP), ("T", "Unknown")):
        _put(broker, "ck", PopCheckPoint(topic, group, 0, 0, 1_000, 500, "broker-a", [0], 1).encode())
    await until(lambda: broker.controller.offsets.query_offset(REVIVE_GROUP, REVIVE, 3) == 1)
    assert retry_topic_v1("T", "Unknown") not in broker.controller.topics.topic_config_table


async def _turn(broker: RunningBroker) -> None:
    """Wait until the pop service has noted where it is, twice."""
    service, clock = broker.controller.popping.service, broker.controller.env.clock
    for _ in range(2):
        since = clock.monotonic_ms()
        await until(lambda: service._revived_ms > since)  # noqa: B023 - it is awaited here


async def _commit(broker: RunningBroker, offset: int, **more: str) -> None:
    ext = {"consumerGroup": GROUP, "topic": "T", "queueId": "0", "commitOffset": str(offset), **more}
    reply = await broker.invoke(RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext))
    assert reply.code == ResponseCode.SUCCESS, reply.remark


async def _set(broker: RunningBroker, offset: int) -> None:
    """As an operator."""
    ext = {"topic": "T", "group": GROUP, "timestamp": "-1", "isForce": "true", "queueId": "0", "offset": str(offset)}
    reply = await broker.invoke(RemotingCommand(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext))
    assert reply.code == ResponseCode.SUCCESS, reply.remark


async def test_where_an_operator_has_set_a_group_goes_with_the_topic(start_broker: Start, tmp_path: Path) -> None:
    broker = await start_broker(**QUICK)
    await _filled(broker, 4, queues=1)
    broker.create_topic("Other", 1)
    await broker.send("Other", b"x")
    await popped(broker, "Other")  # so that a start reads the journal
    await batch_ack(broker, await popped(broker, max_msg_nums=2))
    await _set(broker, 1)
    assert (await broker.pull("T", 2)).code == ResponseCode.PULL_OFFSET_MOVED
    await _turn(broker)
    reply = await broker.invoke(RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}))
    assert reply.code == ResponseCode.SUCCESS, reply.remark
    await _turn(broker)
    broker.controller.offsets.persist()
    successor = await start_broker(kill(broker, tmp_path / "killed"), **QUICK)
    assert f"T@{GROUP}" not in successor.controller.offsets.offset_table


async def test_where_an_operator_has_set_a_group_counts_no_more_after_a_kill_when_it_has_gone_on_by_pulls(
    start_broker: Start, tmp_path: Path
) -> None:
    broker = await start_broker(**QUICK)
    await _filled(broker, 10, queues=1)
    await popped(broker, consumer_group="Other")  # so that a start reads the journal
    await batch_ack(broker, await popped(broker, max_msg_nums=2))
    await _set(broker, 1)
    assert (await broker.pull("T", 2)).code == ResponseCode.PULL_OFFSET_MOVED
    await _turn(broker)
    await _commit(broker, 9)
    broker.controller.offsets.persist()
    successor = await start_broker(kill(broker, tmp_path / "killed"), **QUICK)
    assert successor.controller.offsets.query_offset(GROUP, "T", 0) == 9
    assert bodies(await popped(successor)) == [b"009"]


@pytest.mark.parametrize("is_killed", [False, True])
async def test_of_a_group_that_pulls_and_pops_nothing_is_lost_and_commits_count_as_they_come(
    start_broker: Start, tmp_path: Path, is_killed: bool
) -> None:
    broker = await start_broker(**QUICK)
    await _filled(broker, 10, queues=1)
    held = await popped(broker, max_msg_nums=2, invisible_time=5_000)
    pulled = await broker.pull_messages("T", 0, max_nums=6)
    assert len(pulled) == 6  # also those that are held
    acknowledged = await popped(broker, max_msg_nums=6)
    await batch_ack(broker, acknowledged)
    await _commit(broker, 6)
    await _turn(broker)
    broker.controller.offsets.persist()
    if is_killed:
        broker = await start_broker(kill(broker, tmp_path / "killed"), **QUICK)
    last = await popped(broker)
    assert bodies(last) == [b"008", b"009"]  # pops go on behind what was popped
    back: list[MessageExt] = []
    while len(back) < 2:
        back += await popped(broker, poll_time=10_000)
    assert bodies(back) == bodies(held)
    await until(lambda: broker.controller.offsets.query_offset(GROUP, "T", 0) == 8)
    await _commit(broker, 7)  # as a member may that pulls, and is late
    assert bodies(await popped(broker)) == []  # behind 008 and 009, which are held
    await batch_ack(broker, last)
    assert broker.controller.offsets.query_offset(GROUP, "T", 0) == 10
    await _commit(broker, 7)
    assert bodies(await popped(broker)) == [b"007", b"008", b"009"]


async def test_where_an_operator_has_set_a_group_counts_no_more_after_a_stop_while_the_disk_is_full(
    start_broker: Start,
) -> None:
    """What it has consumed is committed all the same."""
    broker = await start_broker(**QUICK)
    await _filled(broker, 10, queues=1)
    await popped(broker, consumer_group="Other")  # so that a start reads the journal
    await batch_ack(broker, await popped(broker, max_msg_nums=2))
    await _set(broker, 1)
    assert (await broker.pull("T", 2)).code == ResponseCode.PULL_OFFSET_MOVED
    await _turn(broker)
    broker.controller.store.flags.set(DISK_FULL, "the disk is full")
    await _commit(broker, 9)
    await broker.stop()
    broker = await start_broker(**QUICK)
    assert bodies(await popped(broker)) == [b"009"]


@pytest.mark.parametrize("is_new", ["true", "false"])
async def test_a_group_that_begins_anew_by_pulls_goes_on_there_after_a_kill(
    start_broker: Start, tmp_path: Path, is_new: str
) -> None:
    """It was deleted, with its offsets, and had popped before."""
    broker = await start_broker(**QUICK)
    await _filled(broker, 10, queues=1)
    await popped(broker, consumer_group="Other")
    await popped(broker, max_msg_nums=2)
    ext = {"groupName": GROUP, "cleanOffset": "true"}
    reply = await broker.invoke(RemotingCommand(RequestCode.DELETE_SUBSCRIPTIONGROUP, ext))
    assert reply.code == ResponseCode.SUCCESS, reply.remark
    assert (await broker.pull("T", 4)).code == ResponseCode.SUCCESS
    await _commit(broker, 4, maxqIfNone=is_new)
    broker.controller.offsets.persist()
    successor = await start_broker(kill(broker, tmp_path / "killed"), **QUICK)
    assert successor.controller.offsets.query_offset(GROUP, "T", 0) == 4


def _make_slave_without_group(folder: Path) -> None:
    """Have the broker of this folder be one that was a slave, and has not heard of the group."""
    owner, groups = folder / "owner.json", folder / "config" / "subscriptionGroup.json"
    owner.write_bytes(owner.read_bytes().replace(b"ASYNC_MASTER", b"SLAVE"))
    table = json_dialect.loads(groups.read_bytes())
    del table["subscriptionGroupTable"][GROUP]
    groups.write_bytes(json_dialect.dumps(table))


@pytest.mark.parametrize("auto", ["true", "false"])
async def test_a_slave_that_became_the_master_revives_what_a_group_popped_of_which_it_has_not_heard_after_two_starts(
    start_broker: Start, auto: str
) -> None:
    """An administrator may have made it just before the master went."""
    broker = await start_broker(**QUICK)
    await _filled(broker, 2, queues=1)
    await popped(broker, invisible_time=6_000)
    await broker.stop()
    _make_slave_without_group(broker.folder)
    for _ in range(2):
        broker = await start_broker(**QUICK, autoCreateSubscriptionGroup=auto)
        await broker.stop()
    broker = await start_broker(**QUICK, autoCreateSubscriptionGroup=auto)
    await until(lambda: broker.controller.groups.contains_subscription_group(GROUP))
    assert bodies(await popped(broker, poll_time=5_000)) == [b"000", b"001"]


async def test_a_group_of_which_a_slave_that_became_the_master_has_not_heard_may_pop_and_acknowledge_at_once(
    start_broker: Start, tmp_path: Path
) -> None:
    broker = await start_broker(**QUICK)
    await _filled(broker, 3, queues=1)
    given = await popped(broker, max_msg_nums=2)
    name = kill(broker, tmp_path / "killed")
    _make_slave_without_group(tmp_path / "killed")
    successor = await start_broker(name, **QUICK, autoCreateSubscriptionGroup="false")
    assert bodies(await popped(successor)) == [b"002"]
    assert (await batch_ack(successor, given)).code == ResponseCode.SUCCESS
    assert successor.controller.offsets.query_offset(GROUP, "T", 0) == 2


@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_group_that_was_deleted_where_a_slave_became_the_master_is_not_made_again_after_a_start(
    start_broker: Start, tmp_path: Path, is_killed: bool
) -> None:
    """A check point of it in the revive topic was taken for that of a group of which the slave had not heard."""
    broker = await start_broker(**QUICK)
    await _filled(broker, 2, queues=1)
    await popped(broker, invisible_time=6_000)
    await popped(broker, consumer_group="other", invisible_time=6_000)
    await broker.stop()
    owner = broker.folder / "owner.json"
    owner.write_bytes(owner.read_bytes().replace(b"ASYNC_MASTER", b"SLAVE"))
    broker = await start_broker(**QUICK)
    deleted = await broker.invoke(RemotingCommand(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": GROUP}))
    assert deleted.code == ResponseCode.SUCCESS
    folder = kill(broker, tmp_path / "killed") if is_killed else broker.folder.name
    await broker.stop()
    broker = await start_broker(folder, **QUICK)
    assert bodies(await popped(broker, consumer_group="other", poll_time=10_000)) == [b"000", b"001"]
    await until(lambda: broker.controller.popping.revive.waiting == 0)
    assert not broker.controller.groups.contains_subscription_group(GROUP)


async def test_without_the_timer_wheel_pop_works(start_broker: Start, tmp_path: Path) -> None:
    broker = await start_broker(timerWheelEnable="false", **QUICK)
    await _filled(broker, 2, queues=1)
    given = await popped(broker, invisible_time=1_000)
    await ack(broker, given[0])
    (again,) = await popped(broker, poll_time=20_000)
    assert again.body == b"001"
    await broker.stop()
    successor = await start_broker(timerWheelEnable="false", **QUICK)
    assert len(successor.controller.popping.buffer) == 1
    await ack(successor, again)
    assert len(successor.controller.popping.buffer) == 0


async def test_a_topic_that_was_deleted_begins_anew(start_broker: Start) -> None:
    broker = await start_broker(**QUICK)
    await _filled(broker, 4, queues=1)
    assert len(await popped(broker)) == 4
    broker.controller.topics.delete_topic_configs(["T"])
    broker.controller.offsets.clean_offset_by_topic("T")
    await delete_topics(broker.controller.store, "T")
    await _filled(broker, 2, queues=1)
    assert bodies(await popped(broker)) == [b"000", b"001"]


async def test_a_topic_that_was_deleted_begins_anew_after_a_kill_too(start_broker: Start, tmp_path: Path) -> None:
    """What the journal tells of the deleted topic moved the cursor of the new one over its first messages."""
    broker = await start_broker(**QUICK)
    await _filled(broker, 4, queues=1)
    old = await popped(broker)
    await ack(broker, old[0])
    deleted = await broker.invoke(RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}))
    assert deleted.code == 0, deleted.remark
    await _filled(broker, 6, queues=1)
    successor = await start_broker(kill(broker, tmp_path / "killed"), **QUICK)
    assert bodies(await pop_all(successor)) == [b"%03d" % number for number in range(6)]
    assert len(successor.controller.popping.buffer) == 1  # nothing of the deleted topic


async def test_a_cursor_that_was_set_back_stays_set_back_after_a_kill(start_broker: Start, tmp_path: Path) -> None:
    broker = await start_broker(useServerSideResetOffset="true", **QUICK)
    await _filled(broker, 4, queues=1)
    await batch_ack(broker, await popped(broker))
    broker.controller.offsets.assign_reset_offsets("T", GROUP, {0: 1})
    assert bodies(await popped(broker, max_msg_nums=1)) == [b"001"]
    successor = await start_broker(kill(broker, tmp_path / "killed"), useServerSideResetOffset="true", **QUICK)
    assert bodies(await popped(successor)) == [b"002", b"003"]


async def test_a_check_point_of_a_deleted_topic_gives_nothing_of_the_new_one(start_broker: Start) -> None:
    """What had been handed over copied the messages that the new topic has at these places, acknowledged ones, too."""
    broker = await start_broker(popCkStayBufferTime=300, popCkStayBufferTimeOut=100, **QUICK)
    await _filled(broker, 2, queues=1)
    assert len(await popped(broker, invisible_time=3_000)) == 2
    await until(lambda: len(broker.controller.popping.buffer) == 0)
    deleted = await broker.invoke(RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}))
    assert deleted.code == 0, deleted.remark
    await _filled(broker, 3, queues=1)
    assert (await batch_ack(broker, await popped(broker, max_msg_nums=2))).code == 0
    others = await popped(broker, invisible_time=3_000)  # handed over behind the deletion
    revive = broker.controller.popping.revive
    await until(lambda: revive.revived == 2)
    assert bodies(await pop_all(broker)) == bodies(others) == [b"002"]


@pytest.mark.parametrize("newer", ["true", "false"])
async def test_a_deleted_topic_takes_the_retry_topic_of_a_deleted_group_along(start_broker: Start, newer: str) -> None:
    """When both were made again, the group got messages of the deleted topic."""
    broker = await start_broker(enableRetryTopicV2=newer, **QUICK)
    await _filled(broker, 1, queues=1)
    assert len(await popped(broker, invisible_time=1)) == 1
    await until(lambda: len(broker.controller.popping.buffer) == 0)
    for code, ext in (
        (RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": GROUP, "cleanOffset": "true"}),
        (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}),
    ):
        reply = await broker.invoke(RemotingCommand(code, ext))
        assert reply.code == 0, reply.remark
    broker.create_topic("T", 1)
    await broker.send("T", b"new", queue_id=0)
    assert bodies(await pop_all(broker)) == [b"new"]


async def _reset(broker: RunningBroker, offset: int) -> None:
    ext = {"topic": "T", "group": GROUP, "timestamp": "-1", "isForce": "true", "queueId": "0", "offset": str(offset)}
    reply = await broker.invoke(RemotingCommand(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext))
    assert reply.code == 0, reply.remark


@pytest.mark.parametrize("order", [False, True])
async def test_a_reset_that_was_answered_outlives_a_kill(start_broker: Start, tmp_path: Path, order: bool) -> None:
    """The journal told of the pops before, and moved the group on again."""
    broker = await start_broker(**QUICK)
    await _filled(broker, 4, queues=1)
    for message in await popped(broker, order=order, attempt_id="a"):
        assert (await ack(broker, message)).code == 0
    await _reset(broker, 1)
    successor = await start_broker(kill(broker, tmp_path / "killed"), **QUICK)
    assert bodies(await popped(successor, order=order, attempt_id="b")) == [b"001", b"002", b"003"]


@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize("acked", [2, 1])
async def test_a_reset_that_a_pop_has_taken_is_not_taken_again_after_a_kill(
    start_broker: Start, tmp_path: Path, order: bool, acked: int
) -> None:
    """The file of offsets still had it: what was acknowledged since came again."""
    broker = await start_broker(**QUICK)
    await _filled(broker, 4, queues=1)
    await batch_ack(broker, await popped(broker, max_msg_nums=4, order=order, attempt_id="a"))
    await _set(broker, 0)
    file = broker.folder / "config" / "consumerOffset.json"
    before = file.read_bytes()
    again = await popped(broker, max_msg_nums=2, order=order, attempt_id="b")
    assert bodies(again) == [b"000", b"001"]
    await batch_ack(broker, again[:acked])
    name = kill(broker, tmp_path / "killed")
    (tmp_path / name / "config" / file.name).write_bytes(before)
    successor = await start_broker(name, **QUICK)
    if acked == 1:  # the other one is held
        rest = [b"001", b"002", b"003"] if order else [b"002", b"003"]
        assert bodies(await popped(successor, order=order, attempt_id="b" if order else "c")) == rest
    else:
        assert bodies(await popped(successor, order=order, attempt_id="c")) == [b"002", b"003"]


@pytest.mark.parametrize(
    ("count", "order", "is_acked"),
    [(3, False, True), (1, False, True), (1, True, True), (3, True, False), (1, False, False)],
)
async def test_a_group_gets_the_message_that_has_the_place_of_a_damaged_one(
    start_broker: Start, tmp_path: Path, count: int, order: bool, is_acked: bool
) -> None:
    """The journal, whose records behind the damaged message were whole, had the group go on behind it."""
    broker = await start_broker(**QUICK)
    await _filled(broker, count, queues=1)
    given = await popped(broker, order=order, attempt_id="a")
    if is_acked:
        await batch_ack(broker, given)
    place, size, _ = broker.controller.store.queue_units("T", 0, count - 1, 1)[0]
    name = kill(broker, tmp_path / "killed")
    folder = tmp_path / name
    log = min((folder / "commitlog").iterdir())
    data = bytearray(log.read_bytes())
    data[place : place + size] = bytes(size)
    log.write_bytes(data)
    (folder / "checkpoint").unlink(missing_ok=True)
    shutil.rmtree(folder / "consumequeue")
    successor = await start_broker(name, **QUICK)
    await popped(successor, "T", consumer_group="Nobody")  # the journal is read
    assert successor.controller.store.max_offset("T", 0) == count - 1
    await successor.send("T", b"new", queue_id=0)
    again = bodies(given[:-1]) if order and not is_acked else []  # they come in order, in one block
    assert bodies(await popped(successor, order=order, attempt_id="b")) == [*again, b"new"]


@pytest.mark.parametrize("what", ["reset", "delete"])
async def test_what_an_operator_orders_while_the_log_takes_nothing_is_refused_until_a_start_would_know_of_it(
    start_broker: Start, tmp_path: Path, what: str
) -> None:
    """It was answered, and a start read of the pops before in the journal."""
    broker = await start_broker(**QUICK)
    await _filled(broker, 4, queues=1)
    await popped(broker, max_msg_nums=2)

    async def order() -> RemotingCommand:
        if what == "delete":
            ext = {"groupName": GROUP, "cleanOffset": "true"}
            return await broker.invoke(RemotingCommand(RequestCode.DELETE_SUBSCRIPTIONGROUP, ext))
        ext = {"topic": "T", "group": GROUP, "timestamp": "-1", "isForce": "true", "queueId": "0", "offset": "0"}
        return await broker.invoke(RemotingCommand(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext))

    broker.controller.store.flags.set(DISK_FULL, "the disk is full")
    refused = await order()
    assert refused.code == ResponseCode.SYSTEM_ERROR and "order it again" in (refused.remark or "")
    broker.controller.store.flags.clear(DISK_FULL)
    assert (await order()).code == ResponseCode.SUCCESS
    successor = await start_broker(kill(broker, tmp_path / "killed"), **QUICK)
    assert bodies(await popped(successor)) == [b"000", b"001", b"002", b"003"]


async def test_acks_of_what_was_given_before_do_not_undo_a_reset(start_broker: Start) -> None:
    broker = await start_broker(**QUICK)
    await _filled(broker, 4, queues=1)
    given = await popped(broker)
    await _reset(broker, 1)
    await batch_ack(broker, given)
    await broker.stop()
    successor = await start_broker(**QUICK)
    assert bodies(await popped(successor)) == [b"001", b"002", b"003"]


async def test_a_reset_of_a_group_that_does_not_pop_is_not_repeated_by_a_start(
    start_broker: Start, tmp_path: Path
) -> None:
    broker = await start_broker(**QUICK)
    await _filled(broker, 4, queues=1)
    broker.controller.groups.find_subscription_group_config(GROUP)
    offsets = broker.controller.offsets
    offsets.commit_offset("here", GROUP, "T", 0, 4)
    await _reset(broker, 1)
    offsets.query_then_erase_reset_offset("T", GROUP, 0)  # as a pull does
    offsets.commit_offset("here", GROUP, "T", 0, 3)
    offsets.persist()
    successor = await start_broker(kill(broker, tmp_path / "killed"), **QUICK)
    await until(lambda: successor.controller.popping.service.not_ready() is None)
    assert successor.controller.offsets.query_offset(GROUP, "T", 0) == 3


@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize("killed", ["not", "at once", "behind its first pop"])
async def test_a_group_that_was_deleted_with_its_offsets_begins_anew(
    start_broker: Start, tmp_path: Path, order: bool, killed: str
) -> None:
    """It went on at its old place if it was made again within 30 s, or if the journal still told of its pops."""
    broker = await start_broker(**QUICK)
    await _filled(broker, 5, queues=1)
    given = await popped(broker, max_msg_nums=4, order=order, attempt_id="a")
    for message in given[:2]:
        assert (await ack(broker, message)).code == 0
    ext = {"groupName": GROUP, "cleanOffset": "true"}
    deleted = await broker.invoke(RemotingCommand(RequestCode.DELETE_SUBSCRIPTIONGROUP, ext))
    assert deleted.code == 0, deleted.remark
    wanted = [b"000", b"001", b"002", b"003", b"004"]
    if killed == "at once":
        broker = await start_broker(kill(broker, tmp_path / "killed"), **QUICK)
    first = await popped(broker, max_msg_nums=1, order=order, attempt_id="b")
    if killed == "behind its first pop":
        broker = await start_broker(kill(broker, tmp_path / "killed"), **QUICK)
    await ack(broker, given[2])  # of the group before
    assert (await ack(broker, first[0])).code == 0
    assert bodies([*first, *await popped(broker, order=order, attempt_id="c")]) == wanted
    assert broker.controller.offsets.query_offset(GROUP, "T", 0) == 1


async def test_a_group_that_was_deleted_and_begins_at_the_end_gets_what_comes_then_also_after_a_kill(
    start_broker: Start, tmp_path: Path
) -> None:
    broker = await start_broker(initPopOffsetByCheckMsgInMem="false", **QUICK)
    await _filled(broker, 3, queues=1)
    await batch_ack(broker, await popped(broker))
    ext = {"groupName": GROUP, "cleanOffset": "true"}
    await broker.invoke(RemotingCommand(RequestCode.DELETE_SUBSCRIPTIONGROUP, ext))
    (last,) = await popped(broker, init_mode=1)
    await ack(broker, last)
    for body in (b"003", b"004"):
        await broker.send("T", body)
    successor = await start_broker(kill(broker, tmp_path / "killed"), initPopOffsetByCheckMsgInMem="false", **QUICK)
    assert bodies(await popped(successor, init_mode=1)) == [b"003", b"004"]


@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize(("before", "expression"), [(3, "*"), (0, "*"), (3, "A")])
async def test_a_group_that_begins_at_the_end_gets_what_comes_then_also_after_a_kill(
    start_broker: Start, tmp_path: Path, order: bool, before: int, expression: str
) -> None:
    """It began at the end that the queue had after the kill: the file of offsets did not tell of it yet."""
    settings = {"initPopOffsetByCheckMsgInMem": "false", **QUICK}
    broker = await start_broker(**settings)
    await _filled(broker, before, queues=1)
    more = {"init_mode": 1, "exp_type": "TAG", "exp": expression, "order": order}
    held = await popped(broker, attempt_id="a", **more)
    assert bodies(held) == ([b"002"] if before and expression == "*" else [])
    for number in range(3):
        await broker.send("T", b"new %d" % number, TAGS="A")
    successor = await start_broker(kill(broker, tmp_path / "killed"), **settings)
    if held and order:  # else it is held, and no other comes
        await ack(successor, held[0])
    assert bodies(await popped(successor, attempt_id="b", **more)) == [b"new 0", b"new 1", b"new 2"]


async def test_acks_that_the_timer_does_not_take_yet_are_waited_for(start_broker: Start) -> None:
    """The check point was revived while its acks lay before the timer, which an operator had stopped."""
    broker = await start_broker(popCkStayBufferTime=300, popCkStayBufferTimeOut=100, **QUICK)
    await _filled(broker, 2, queues=1)
    given = await popped(broker, invisible_time=3_000)
    end_ms = handle_of(given[0]).pop_time + 3_000
    timer, store = broker.controller.timed.service, broker.controller.store
    await until(lambda: timer.enqueued == 1)
    for is_stopped in (True, False):
        ext = b"timerStopEnqueue=" + (b"true" if is_stopped else b"false")
        reply = await broker.invoke(RemotingCommand(RequestCode.UPDATE_BROKER_CONFIG, body=ext))
        assert reply.code == 0, reply.remark
        if is_stopped:
            assert (await ack(broker, given[0])).code == 0
            await until(lambda: timer.timer.read_time_ms > end_ms + 4_000)
            for _ in range(3):
                await broker.controller.popping.revive.run_once()
            assert store.max_offset(retry_topic_v1("T", GROUP), 0) <= 0
    assert bodies(await popped(broker, poll_time=20_000)) == [b"001"]


async def test_a_slave_gives_nothing_and_knows_all_when_it_becomes_master(start_broker: Start) -> None:
    master = await start_broker("master", **QUICK)
    slave = await start_broker("slave", brokerRole="SLAVE", brokerId="1", **QUICK)
    await _filled(master, 10, queues=1)
    given = await popped(master, max_msg_nums=6)
    await batch_ack(master, given[:4])
    slave.create_topic("T", 1)
    slave.controller.groups.find_subscription_group_config(GROUP)
    reply = await slave.invoke(pop_request())
    assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE and "is not the active one of its group" in (
        reply.remark or ""
    )
    source, target = master.controller.store, slave.controller.store
    while (at := target.max_physical_offset) < source.max_physical_offset:
        data = source.log_bytes(at, 1 << 20)
        assert data is not None
        target.append_from_master(at, data)
    assert (await ack(slave, given[4])).code == ResponseCode.SERVICE_NOT_AVAILABLE
    await slave.controller.change_to_master()
    await until(lambda: slave.controller.popping.service.not_ready() is None)
    assert bodies(await pop_all(slave)) == [b"006", b"007", b"008", b"009"]
    await batch_ack(slave, given[4:])
    assert slave.controller.offsets.query_offset(GROUP, "T", 0) == 6


# --- kills at the worst moment ---------------------------------------------------------------------------------------


def _kill_before_noting(broker: RunningBroker, kind: str, to: Path) -> list[str]:
    """Copy the store when records of that kind are about to be noted; the folder's name, as soon as that was so."""
    journal = broker.controller.popping.buffer.journal
    done: list[str] = []
    write = journal.write

    def spied(entries: dict[str, list[object]]) -> tuple[int, int]:
        if kind in entries and not done:
            done.append(kill(broker, to))
        return write(entries)

    journal.write = spied  # type: ignore[method-assign]
    return done


async def test_a_kill_between_a_copy_and_its_note_gives_no_second_copy(start_broker: Start, tmp_path: Path) -> None:
    broker = await start_broker(**QUICK)
    await _filled(broker, 3, queues=1)
    killed = _kill_before_noting(broker, "e", tmp_path / "killed")
    given = await popped(broker, invisible_time=1_000)
    await ack(broker, given[0])
    await until(lambda: bool(killed))
    successor = await start_broker(killed[0], **QUICK)
    await until(lambda: len(successor.controller.popping.buffer) == 0)
    again = await popped(successor)
    assert bodies(again) == [b"001", b"002"]
    assert (await batch_ack(successor, again)).code == 0
    assert successor.controller.store.max_offset(retry_topic_v1("T", GROUP), 0) == 2


async def test_a_kill_between_handing_over_and_its_note_hands_over_once(start_broker: Start, tmp_path: Path) -> None:
    more = {"popCkStayBufferTime": 300, "popCkStayBufferTimeOut": 100, **QUICK}
    broker = await start_broker(**more)
    await _filled(broker, 2, queues=1)
    killed = _kill_before_noting(broker, "e", tmp_path / "killed")
    given = await popped(broker)
    await until(lambda: bool(killed))
    successor = await start_broker(killed[0], **more)
    await until(lambda: successor.controller.popping.service.not_ready() is None)
    assert len(successor.controller.popping.buffer) == 0
    assert successor.controller.offsets.query_offset(GROUP, "T", 0) == 2
    await batch_ack(successor, given)
    assert successor.controller.store.max_offset("rmq_sys_wheel_timer", 0) == 2  # the check point, and its acks


async def test_what_was_revived_from_the_revive_topic_is_not_revived_again_after_a_kill(
    start_broker: Start, tmp_path: Path
) -> None:
    broker = await start_broker(**QUICK)
    await _filled(broker, 2, queues=1)
    given = await popped(broker)
    open_long = PopCheckPoint("T", GROUP, 0, 0, handle_of(given[0]).pop_time, 60_000, "broker-a", [0], 1)
    _put(broker, "ck", open_long.encode())  # the committed offset stays before it
    _put(broker, "ck", PopCheckPoint("T", GROUP, 0, 1, 1_000, 500, "broker-a", [0], 1).encode())
    retry_topic = retry_topic_v1("T", GROUP)
    await until(lambda: broker.controller.popping.revive.revived == 1)
    successor = await start_broker(kill(broker, tmp_path / "killed"), **QUICK)
    await until(lambda: successor.controller.popping.revive.waiting == 1)
    _put(successor, "ck", PopCheckPoint("T", GROUP, 0, 1, 2_000, 500, "broker-a", [0], 1).encode())
    await until(lambda: "2000" in _first_pop_times(successor, retry_topic))
    assert _first_pop_times(successor, retry_topic) == ["1000", "2000"]


def _first_pop_times(broker: RunningBroker, topic: str) -> list[str]:
    return [record.properties["1ST_POP_TIME"] for record in _records(broker, topic, 0)]


async def test_check_points_in_rocksdb_are_not_passed_over_in_silence(start_broker: Start, tmp_path: Path) -> None:
    folder = tmp_path / "store" / "kvStore"
    folder.mkdir(parents=True)
    (folder / "000004.log").write_bytes(b"")
    await (await start_broker()).stop()
    (folder / "000004.log").write_bytes(b"records")
    with pytest.raises(StoreRefusedError, match="exportPopRecord"):
        await start_broker()


POISON = [
    b"", b"{", b"null", b"[]", b'{"p":1}', b'{"p":[1]}', b'{"p":{"a":1}}', b'{"p":[[1]]}', b'{"a":[[1]]}',
    b'{"e":["x"]}', b'{"d":[["0",1]]}', b'{"r":[["T","G","0","x"]]}', b'{"o":[["T","G",0]]}',
    b'{"o":[["T","G",0,1,{"o":["x"]}]]}',
    b'{"o":[["T","G",0,1,{"o":[1e30],"popTime":1e300,"i":1e300}]]}', b'{"o":[["T","G",0,1,{"o":[1],"i":1e999}]]}',
    b'{"p":[[1,"T","G","0",1,1,0,0,[0],1,0,"b"]]}', b'{"p":[[6,"T","G",0,1,1,0,0,["0"],1,0,"broker-a"]]}',
    b'{"p":[[7,"T",null,0,1,1,0,0,[0],1,0,"broker-a"]]}', b'{"p":[[8,"T","G",0,1,1,0,0,[0],"1",0,"broker-a"]]}',
    b'{"p":[[9,"T","G",0,1,1,0,"0",[0],1,0,"broker-a"]]}', b'{"p":[[15,5,"G",0,1,1,0,0,[0],1,0,"broker-a"]]}',
    b'{"p":[[19,"T","G",0,1.5,1,0,0.5,[0],1,0,"broker-a"]]}', b'{"p":[[11,"T","G",-5,1,1,-9,-3,[-7],1,0,"zz"]]}',
]  # fmt: skip


async def test_records_of_the_journal_that_are_none_stop_no_start(
    start_broker: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each start would read them again."""
    broker = await start_broker(**QUICK)
    await _filled(broker, 5, queues=1)
    first = await popped(broker, max_msg_nums=1)
    for body in POISON:
        assert broker.controller.store.put_message(MessageExtBrokerInner(JOURNAL_TOPIC, 0, body)).ok
        assert (await broker.send(JOURNAL_TOPIC, body or b"x")).code == ResponseCode.NO_PERMISSION
    second = await popped(broker, max_msg_nums=1)
    await ack(broker, second[0])
    successor = await start_broker(kill(broker, tmp_path / "killed"), **QUICK)
    failed: list[str] = []
    successor.controller.set_failure_listener(lambda service, error: failed.append(f"{service}: {error!r}"))
    given = await pop_all(successor)
    assert not failed
    assert bodies(given) == [b"002", b"003", b"004"]
    assert (await ack(successor, first[0])).code == 0
    named = [record.getMessage() for record in caplog.records if " of the pop journal" in record.getMessage()]
    assert any("record 1 of the pop journal (physical offset " in line for line in named)
    assert len(named) == len(POISON) - 3  # the last one is a check point, and order infos are looked at by themselves


async def test_a_check_point_that_cannot_be_revived_keeps_no_other_from_it(
    start_broker: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start_broker(**QUICK)
    await _filled(broker, 4, queues=1)
    real = RetryWriter._message

    async def message(reviver: RetryWriter, point: PopCheckPoint, offset: int) -> MessageExt | None:
        if offset == 1:
            raise RuntimeError("a bug of ours")
        return await real(reviver, point, offset)

    monkeypatch.setattr(RetryWriter, "_message", message)
    for _ in range(4):
        await popped(broker, max_msg_nums=1, invisible_time=1_000)
    back: set[bytes] = set()
    while back < {b"000", b"002", b"003"}:
        back |= {one.body for one in await popped(broker, poll_time=3_000)}
    assert b"001" not in back
    assert "message 1 of T-0, which G did not acknowledge and gets again later, is skipped" in caplog.text
    monkeypatch.setattr(RetryWriter, "_message", real)


@pytest.mark.parametrize("wheel", ["true", "false"])
async def test_a_message_whose_properties_leave_no_room_for_more_comes_again(start_broker: Start, wheel: str) -> None:
    broker = await start_broker(**QUICK, timerWheelEnable=wheel)
    topic, group = "t" * 127, "g" * 120
    broker.create_topic(topic, 1)
    reply = await broker.send(topic, b"large", filler="x" * 32_500)
    assert reply.code == 0
    assert bodies(await popped(broker, topic, consumer_group=group, invisible_time=1_000)) == [b"large"]
    back: list[MessageExt] = []
    while not back:
        back = await popped(broker, topic, consumer_group=group, poll_time=3_000)
    assert bodies(back) == [b"large"] and back[0].reconsume_times == 1


async def test_messages_of_a_topic_that_only_the_log_knows_come_again(start_broker: Start) -> None:
    """A slave that becomes master before it has heard of the topic."""
    broker = await start_broker(**QUICK)
    await _filled(broker, 1, queues=1)
    broker.controller.groups.find_subscription_group_config(GROUP)
    _put(broker, "ck", PopCheckPoint("T", GROUP, 0, 0, 1_000, 500, "broker-a", [0], 1).encode())
    del broker.controller.topics.topic_config_table["T"]
    retry_topic = retry_topic_v1("T", GROUP)
    await until(lambda: broker.controller.store.max_offset(retry_topic, 0) == 1)
    assert bodies(_records(broker, retry_topic, 0)) == [b"000"]


async def test_a_batch_of_which_a_group_has_consumed_a_part_is_acknowledged(start_broker: Start) -> None:
    """Whoever acknowledges many at once counts from the start of the check point."""
    broker = await start_broker(**QUICK)
    broker.create_topic("B", 1, attributes={"+queue.type": "BatchCQ"})
    for count in (4, 3):
        batch = encode_batch([Message("B", b"%d" % number, {}) for number in range(count)])
        assert (await broker.invoke(broker.send_request("B", batch, batch=True))).code == 0
    broker.controller.offsets.commit_offset("c", GROUP, "B", 0, 2)
    given = await popped(broker, "B", invisible_time=1_000)
    assert [(handle_of(one).start_offset, handle_of(one).queue_offset) for one in given] == [(0, 0), (0, 4)]
    assert (await batch_ack(broker, given)).code == 0
    await until(lambda: broker.controller.offsets.query_offset(GROUP, "B", 0) == 7)
    assert await popped(broker, "B", poll_time=1_500) == []


async def test_messages_of_a_batch_that_were_popped_come_again(start_broker: Start) -> None:
    """An inner batch is one message of its queue; and a plain batch may have messages with properties of such a one."""
    broker = await start_broker(**QUICK)
    broker.create_topic("B", 1, attributes={"+queue.type": "BatchCQ"})
    broker.create_topic("T", 1)
    batch = encode_batch([Message("B", b"1", {"TAGS": "a"}), Message("B", b"2", {"INNER_NUM": "7", "KEYS": "k"})])
    for topic in ("B", "T"):
        assert (await broker.invoke(broker.send_request(topic, batch, batch=True))).code == 0
        given = 0
        while given < (1 if topic == "B" else 2):
            given += len(await popped(broker, topic, invisible_time=1_000, poll_time=1_000))
        back: list[MessageExt] = []
        while len(back) < 2:
            back += await popped(broker, topic, poll_time=3_000)
        assert bodies(back) == [b"1", b"2"]
        assert {one.tags for one in back} == {"a", None} and not any(one.sys_flag & 0xC0 for one in back)
