"""A slave stands in for its master (enableSlaveActingMaster): a name server, a master and two slaves on real sockets.

The master goes; the smallest slave serves readers with locks and offsets; the master comes back and takes them over.
"""

import asyncio
import functools
import operator
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import orjson
import pytest

from maxq.api import async_push_consumer
from maxq.broker.failover.consumer_offset_ownership import VERSION_JUMP
from maxq.broker.failover.escape_bridge import RemoteQueue
from maxq.broker.pop import hand_back
from maxq.broker.tables.topic.topic_validator import REVIVE_TOPIC_PREFIX, TRANS_HALF_TOPIC
from maxq.client.results.pop_result import handle_of
from maxq.codes import RequestCode, ResponseCode
from maxq.namesrv.controller import NamesrvController
from maxq.protocol.body.offsets import LockBatchRequestBody, LockBatchResponseBody
from maxq.protocol.body.route import BrokerData, TopicRouteData
from maxq.protocol.body.subscription import SubscriptionGroupConfig
from maxq.protocol.body.timer_checkpoint import TimerCheckpoint
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.admin import ExchangeHAInfoHeader
from maxq.protocol.message.message_queue import MessageQueue
from maxq.protocol.message.pop_extra_info import retry_topic_v1
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.store_results import PutMessageResult, PutMessageStatus
from tests.integration.broker.harness import RunningBroker, until
from tests.integration.broker.pop.pop_world import ack, batch_ack, bodies, change_time, pop, pop_all, popped
from tests.integration.broker.transactions.transaction_world import TransactionClient
from tests.integration.client.helpers import FROM_FIRST, Collector
from tests.integration.namesrv.harness import asking_route, name_server

TOPIC, GROUP = "T", "G"
QUEUE = MessageQueue(TOPIC, "broker-a", 0)
MESSAGES = 20


class Group:
    """One broker group under one name server. The brokers' folders outlive the brokers."""

    def __init__(self, folder: Path, names: NamesrvController, settings: dict[str, str]) -> None:
        self._folder = folder
        self._names = names
        self._settings = settings
        self.brokers: dict[str, RunningBroker] = {}

    async def start(self, key: str, broker_id: int = 0, **more: str) -> RunningBroker:
        given = {
            "namesrvAddr": f"127.0.0.1:{self._names.port}",
            "brokerId": str(broker_id),
            "brokerRole": "SLAVE" if broker_id else "ASYNC_MASTER",
            "enableSlaveActingMaster": "true",
            "totalReplicas": "3",
            "brokerHeartbeatInterval": "100",
            "syncBrokerMemberGroupPeriod": "100",
            "timerWheelEnable": "false",
            **self._settings,
            **more,
        }
        broker = self.brokers[key] = RunningBroker(self._folder / key, given)
        await broker.start()
        return broker

    async def stop(self, key: str) -> None:
        await self.brokers.pop(key).stop()

    async def stop_all(self) -> None:
        for key in reversed(list(self.brokers)):
            await self.stop(key)

    async def route(self, topic: str = TOPIC) -> TopicRouteData | None:
        asking = next(iter(self.brokers.values()))
        answer = await asking.client.invoke(f"127.0.0.1:{self._names.port}", asking_route(topic), 3000)
        return TopicRouteData.decode(answer.body_bytes) if answer.code == ResponseCode.SUCCESS else None

    async def until_master_is(self, broker: RunningBroker, perm: int) -> None:
        """Wait until routes show `broker` as id 0 of broker-a, with this permission of the topic."""

        async def shown() -> bool:
            route = await self.route()
            if route is None:
                return False
            group = _group(route, "broker-a")
            perms = [queue.perm for queue in route.queue_datas if queue.broker_name == "broker-a"]
            return group is not None and group.broker_addrs.get(0) == broker.address and perms == [perm]

        await until(shown)


def _group(route: TopicRouteData, name: str) -> BrokerData | None:
    return next((group for group in route.broker_datas if group.broker_name == name), None)


Make = Callable[..., Awaitable[Group]]


@pytest.fixture
async def make_group(tmp_path: Path) -> AsyncIterator[Make]:
    """`await make_group(notify=True, brokerSetting="…")`: a running master, two slaves, and messages on all three."""
    groups: list[Group] = []
    servers = []

    async def make(*, notify: bool = False, **settings: str) -> Group:
        context = name_server(tmp_path, support_acting_master=True, notify_min_broker_id_changed=notify)
        names = await context.__aenter__()
        servers.append(context)
        group = Group(tmp_path, names, settings)
        groups.append(group)
        master = await group.start("master")
        master.create_topic(TOPIC)
        slaves = [await group.start("one", 1), await group.start("two", 2)]
        await until(lambda: not master.controller.failover.acting.is_isolated)
        for number in range(MESSAGES):
            assert (await master.send(TOPIC, b"%d" % number)).code == ResponseCode.SUCCESS
        await master.heartbeat(GROUP, {TOPIC: "*"})
        await commit(master, 7)
        for slave in slaves:
            slave.controller.slave_synchronize.wake()  # on a busy machine the next round comes late
            await until(lambda slave=slave: slave.controller.store.max_offset(TOPIC, 0) == MESSAGES)  # type: ignore[misc]
            await until(lambda slave=slave: slave.controller.offsets.query_offset(GROUP, TOPIC, 0) == 7)  # type: ignore[misc]
            await until(lambda slave=slave: slave.controller.groups.contains_subscription_group(GROUP))  # type: ignore[misc]
        return group

    yield make
    for group in groups:
        await group.stop_all()
    for context in servers:
        await context.__aexit__(None, None, None)


async def commit(broker: RunningBroker, offset: int) -> None:
    ext = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "commitOffset": str(offset)}
    answer = await broker.invoke(RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext))
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def committed(broker: RunningBroker) -> int:
    ext = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0"}
    answer = await broker.invoke(RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, ext))
    return int(answer.ext["offset"])


async def lock(broker: RunningBroker, client_id: str = "c1") -> bool:
    body = LockBatchRequestBody(GROUP, client_id, False, [QUEUE])
    answer = await broker.invoke(RemotingCommand(RequestCode.LOCK_BATCH_MQ, body=body.encode()))
    return LockBatchResponseBody.decode(answer.body_bytes).lock_ok_mq_set == [QUEUE]


@pytest.mark.parametrize("notify", [False, True], ids=["by the fetched group", "by notification"])
async def test_consumers_go_on_at_the_acting_master_and_its_offsets_come_back(make_group: Make, notify: bool) -> None:
    period = "600000" if notify else "100"  # with notifications nobody has to ask
    group = await make_group(notify=notify, syncBrokerMemberGroupPeriod=period, compatibleWithOldNameSrv="false")
    master, one, two = group.brokers["master"], group.brokers["one"], group.brokers["two"]
    await group.until_master_is(master, 6)
    assert [await lock(broker) for broker in (master, one, two)] == [True, False, False]

    await group.stop("master")
    await group.until_master_is(one, 4)
    await until(lambda: one.controller.failover.acting.is_acting_master)
    assert [await lock(broker) for broker in (one, two)] == [True, False]
    assert not await lock(one, "c2")
    assert one.controller.slave_synchronize.master_address == ""
    assert one.controller.offsets.data_version.counter >= VERSION_JUMP
    assert len(await one.pull_messages(TOPIC, 7, group=GROUP)) == MESSAGES - 7
    assert await committed(one) == 7
    await commit(one, 15)
    assert (await one.send(TOPIC, b"x")).code == ResponseCode.SERVICE_NOT_AVAILABLE

    master = await group.start("master")
    assert await committed(master) == 15
    await group.until_master_is(master, 6)
    await until(lambda: not one.controller.failover.acting.is_acting_master)
    assert [await lock(broker, "c2") for broker in (one, master)] == [False, True]
    assert (await master.send(TOPIC, b"new")).code == ResponseCode.SUCCESS
    for slave in (one, two):
        await until(lambda slave=slave: slave.controller.store.max_offset(TOPIC, 0) == MESSAGES + 1)  # type: ignore[misc]


@pytest.mark.parametrize("wheel", [True, False])
async def test_a_master_that_comes_back_asks_how_far_the_timer_has_come_if_it_has_one(
    make_group: Make, wheel: bool
) -> None:
    group = await make_group(timerWheelEnable=str(wheel).lower())
    one = group.brokers["one"]
    await group.stop("two")  # it would ask, too
    await group.stop("master")
    await until(lambda: one.controller.failover.acting.is_acting_master)
    asked: list[RemotingCommand] = []

    def answer(connection: object, request: RemotingCommand) -> RemotingCommand:
        asked.append(request)
        return request.reply(body=TimerCheckpoint().encode())

    one.controller.server.register(RequestCode.GET_TIMER_CHECK_POINT, answer)
    await group.until_master_is(await group.start("master"), 6)
    assert bool(asked) is wheel


async def test_an_orderly_consumer_goes_on_through_a_masters_death_and_return(make_group: Make) -> None:
    """Its listener sees every message of the queue, once and in order: the acting master keeps its offset."""
    group = await make_group()
    names = next(iter(group.brokers.values())).controller.client.name_servers[0]
    got = Collector()
    settings = {"poll_name_server_interval": 200, "heartbeat_broker_interval": 1_000, "consume_from_where": FROM_FIRST}
    consumer = async_push_consumer("ORDERLY", names, got, orderly=True, **settings)
    consumer.subscribe(TOPIC)
    async with consumer:
        await got.wait_for(MESSAGES)
        await group.stop("master")
        one = group.brokers["one"]
        await until(lambda: one.controller.failover.acting.is_acting_master)
        await consumer.persist_consumer_offset()
        await until(lambda: one.controller.offsets.query_offset("ORDERLY", TOPIC, 0) == MESSAGES)
        await until(lambda: one.controller.hold_service.held_on(TOPIC, 0) == 1)
        master = await group.start("master")
        assert master.controller.offsets.query_offset("ORDERLY", TOPIC, 0) == MESSAGES
        for number in range(5):
            assert (await master.send(TOPIC, b"after %d" % number)).code == ResponseCode.SUCCESS
        await got.wait_for(MESSAGES + 5)
    assert got.by_queue() == {0: list(range(MESSAGES + 5))}


async def test_the_next_slave_takes_over_from_the_acting_master(make_group: Make) -> None:
    group = await make_group()
    await group.stop("master")
    one, two = group.brokers["one"], group.brokers["two"]
    await group.until_master_is(one, 4)
    await group.stop("one")
    await group.until_master_is(two, 4)
    await until(lambda: two.controller.failover.acting.is_acting_master)
    assert await lock(two)
    one = await group.start("one", 1)
    await until(lambda: one.controller.failover.acting.is_acting_master)
    await until(lambda: not two.controller.failover.acting.is_acting_master)


async def _part(group: Group, key: str) -> None:
    """Let the slave `key` have messages of its own at the end, and the master another one instead."""
    await group.stop(key)
    alone = await group.start(key, enableSlaveActingMaster="false", namesrvAddr="")
    for _ in range(3):
        assert (await alone.send(TOPIC, b"at the slave alone")).code == ResponseCode.SUCCESS
    await group.stop(key)
    assert (await group.brokers["master"].send(TOPIC, b"at the master alone")).code == ResponseCode.SUCCESS


async def test_a_slave_whose_log_is_another_leaves_its_place_to_the_next_one_also_after_a_restart(
    make_group: Make,
) -> None:
    """It has more than its master, which sends it nothing."""
    group = await make_group()
    two = group.brokers["two"]
    await _part(group, "one")
    one = await group.start("one", 1)
    await until(lambda: one.controller.ha_service.is_apart)
    await group.stop("master")
    await group.until_master_is(two, 4)
    await until(lambda: two.controller.failover.acting.is_acting_master)
    assert [await lock(broker) for broker in (one, two)] == [False, True]
    await group.stop("one")
    stops: list[bool] = []
    two.controller.failover.services.register("stops", _Noted(stops))
    one = await group.start("one", 1)
    assert one.controller.ha_service.is_apart
    assert [await lock(broker) for broker in (one, two)] == [False, True]
    for _ in range(5):
        await one.controller.failover.acting.sync_member_group()
        await two.controller.failover.acting.sync_member_group()
    assert two.controller.failover.acting.is_acting_master and stops == [True]
    await group.until_master_is(await group.start("master"), 6)

    async def is_one_shown() -> bool:
        route = await group.route()
        broker = _group(route, "broker-a") if route else None
        return broker is not None and broker.broker_addrs.get(1) == one.address

    await until(is_one_shown)
    assert not await lock(one)


class _Noted:
    """A master-only service that notes when it is started and stopped."""

    def __init__(self, runs: list[bool]) -> None:
        self._runs = runs

    def start(self) -> None:
        self._runs.append(True)

    def stop(self) -> None:
        self._runs.append(False)


async def test_a_pull_parked_at_the_acting_master_is_answered_when_the_master_is_back(make_group: Make) -> None:
    group = await make_group()
    await group.stop("master")
    one = group.brokers["one"]
    await until(lambda: one.controller.failover.acting.is_acting_master)
    pulling = asyncio.create_task(one.pull(TOPIC, MESSAGES, group=GROUP, sys_flag=6, wait_ms=60_000))
    await one.until_held(TOPIC)
    await group.start("master")
    answer = await pulling
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert answer.ext["suggestWhichBrokerId"] == "0"


async def test_a_restarted_name_server_learns_of_all_brokers_within_seconds(tmp_path: Path) -> None:
    """By a sign of life: without it slaves would take a master that has not registered yet for dead, for 30 s."""
    async with name_server(tmp_path, support_acting_master=True) as names:
        port = names.port
        group = Group(tmp_path, names, {})
        master, slave = await group.start("master"), await group.start("one", 1)
        master.create_topic(TOPIC)
        await group.until_master_is(master, 6)
        await names.shutdown()
        again = name_server(tmp_path, support_acting_master=True)
        names = await again.__aenter__()
        assert names.port != port
        for broker in (master, slave):
            broker.controller.client.update_name_servers([f"127.0.0.1:{names.port}"])
        group._names = names
        await group.until_master_is(master, 6)
        await until(lambda: slave.controller.failover.acting.min_broker_id == 0)
        await until(lambda: master.controller.ha_service.alive_replicas() == 2)  # of three
        await group.stop_all()
        await again.__aexit__(None, None, None)


async def test_906_and_908_tell_and_set_what_brokers_of_a_group_exchange(make_group: Make) -> None:
    group = await make_group()
    master, slave = group.brokers["master"], group.brokers["one"]
    ask = RemotingCommand(RequestCode.EXCHANGE_BROKER_HA_INFO)
    info = ExchangeHAInfoHeader.decode((await master.invoke(ask)).ext)
    assert info.master_address == master.address
    assert info.master_ha_address == master.controller.address.ha_address
    assert info.master_flush_offset == 0  # where its log ended when it started
    assert (await slave.invoke(RemotingCommand(RequestCode.EXCHANGE_BROKER_HA_INFO))).ext == {}
    reset = RemotingCommand(RequestCode.RESET_MASTER_FLUSH_OFFSET, {"masterFlushOffset": "77"})
    for broker, offset in ((slave, 77), (master, 0)):
        assert (await broker.invoke(reset)).code == ResponseCode.SUCCESS
        assert broker.controller.store.checkpoint.master_flushed_offset == offset


async def test_what_an_acting_master_must_write_escapes_to_another_group(make_group: Make) -> None:
    group = await make_group(enableRemoteEscape="true")
    master, one = group.brokers["master"], group.brokers["one"]
    master.create_topic("Only")
    for topic in ("Only", TOPIC):
        await TransactionClient(master).prepare(topic)
    await until(lambda: one.controller.store.max_offset(TRANS_HALF_TOPIC, 0) == 2)
    await group.stop("master")
    await until(lambda: one.controller.failover.acting.is_acting_master)
    message = MessageExtBrokerInner(TOPIC, 0, b"escaped", {"KEYS": "k", "TAGS": "a"}, flag=3, reconsume_times=2)
    alone = await one.controller.failover.escape.put_message(message)
    assert alone.status is PutMessageStatus.PUT_TO_REMOTE_BROKER_FAIL
    assert "no broker group but broker-a" in alone.remark

    other = await group.start("other", brokerName="broker-b", totalReplicas="1")
    other.create_topic(TOPIC, queues=1)

    async def both_known() -> bool:
        route = await group.route()
        return route is not None and _group(route, "broker-b") is not None

    await until(both_known)
    result = await one.controller.failover.escape.put_message(message)
    assert result.status is PutMessageStatus.PUT_OK, result.remark
    checks = one.controller.transactions.checks
    await checks.ready()
    await checks.check()  # of the topic that no other group has, too: it holds up no other
    (half,) = await other.pull_messages(TRANS_HALF_TOPIC, 0, group=GROUP)
    assert half.properties["REAL_TOPIC"] == TOPIC
    (stored,) = await other.pull_messages(TOPIC, 0, group=GROUP)
    assert (stored.body, stored.flag, stored.reconsume_times) == (b"escaped", 3, 2)
    assert (stored.properties["KEYS"], stored.properties["TAGS"]) == ("k", "a")
    assert one.controller.store.max_offset(TOPIC, 0) == MESSAGES


async def test_what_the_slave_has_delivered_to_another_group_its_master_delivers_no_more(make_group: Make) -> None:
    group = await make_group(
        enableRemoteEscape="true", timerWheelEnable="true", timerPrecisionMs="100", messageDelayLevel="1s 2s",
        delayOffsetUpdateVersionStep="1",
    )  # fmt: skip
    other = await group.start("other", brokerName="broker-b", totalReplicas="1")
    other.create_topic(TOPIC, queues=1)
    master, one = group.brokers["master"], group.brokers["one"]
    waiting = {b"waits %d" % number for number in range(60)}
    for number, body in enumerate(sorted(waiting)):
        kind = {"DELAY": "2"} if number % 2 else {"TIMER_DELAY_MS": str(1_000 + 40 * number)}
        assert (await master.send(TOPIC, body, **kind)).code == ResponseCode.SUCCESS
    await until(lambda: one.controller.store.max_physical_offset == master.controller.store.max_physical_offset)
    await group.stop("master")
    await until(lambda: other.controller.store.max_offset(TOPIC, 0) > 5)
    master = await group.start("master")
    found: list[bytes] = []

    async def all_came() -> bool:
        found.clear()
        for broker, first in ((master, MESSAGES), (other, 0)):
            while broker.controller.store.max_offset(TOPIC, 0) > first:
                messages = await broker.pull_messages(TOPIC, first, group=GROUP)
                found.extend(message.body for message in messages)
                first += len(messages)
        return set(found) == waiting

    await until(all_came)
    assert len(found) == len(waiting)


async def _take_over(group: Group) -> RunningBroker:
    """The master goes, and pops go on at the slave with id 1."""
    master, one = group.brokers["master"], group.brokers["one"]
    await until(lambda: one.controller.store.max_physical_offset == master.controller.store.max_physical_offset)
    await group.stop("master")
    await until(lambda: one.controller.failover.acting.is_acting_master)
    await until(lambda: one.controller.popping.service.not_ready() is None)
    return one


async def _come_back(group: Group) -> RunningBroker:
    master = await group.start("master")
    await until(lambda: master.controller.popping.service.not_ready() is None)
    return master


def _is_copied(group: Group) -> bool:
    """Whether the slaves have the master's log."""
    master, *slaves = (group.brokers[key].controller.store for key in ("master", "one", "two"))
    return all(slave.max_physical_offset == master.max_physical_offset for slave in slaves)


async def _cut_off(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slaves copy no more of the master's log."""
    for slave in (group.brokers["one"], group.brokers["two"]):
        slave.controller.ha_service.update_master_ha_address("")
        monkeypatch.setattr(slave.controller.ha_service, "update_master_ha_address", lambda address: None)
        await until(lambda slave=slave: not slave.controller.ha_service.is_client_connected)  # type: ignore[misc]


async def test_pops_and_acks_at_the_acting_master_are_the_masters_when_it_is_back(make_group: Make) -> None:
    group = await make_group()
    master = group.brokers["master"]
    before = await popped(master, max_msg_nums=4)
    assert bodies(before) == _numbers(7, 11)  # the group of the fixture has read the first seven
    assert (await batch_ack(master, before[:3])).code == ResponseCode.SUCCESS
    one = await _take_over(group)
    there = await popped(one, max_msg_nums=3)
    assert bodies(there) == _numbers(11, 14)
    assert (await batch_ack(one, [before[3], *there[:2]])).code == ResponseCode.SUCCESS
    open_there = [there[2], *await popped(one, max_msg_nums=2)]
    master = await _come_back(group)
    rest = await popped(master)
    assert bodies(rest) == _numbers(16, MESSAGES), "what is open at the slave is not given again before its time"
    assert (await batch_ack(master, [*open_there, *rest])).code == ResponseCode.SUCCESS
    await until(lambda: master.controller.offsets.query_offset(GROUP, TOPIC, 0) == MESSAGES)


async def test_acks_in_order_at_the_acting_master_are_the_masters_when_it_is_back(make_group: Make) -> None:
    group = await make_group()
    one = await _take_over(group)
    there = await popped(one, max_msg_nums=3, order=True, queue_id=0)
    assert len(there) == 3
    assert (await ack(one, there[0])).code == ResponseCode.SUCCESS
    master = await _come_back(group)
    assert (await pop(master, order=True, queue_id=0)).messages == [], "two of them are still open"
    for message in there[1:]:
        assert (await ack(master, message)).code == ResponseCode.SUCCESS
    following = await popped(master, max_msg_nums=1, order=True, queue_id=0)
    assert [int(message.body) for message in following] == [int(there[-1].body) + 1]


async def test_a_slave_whose_master_asks_and_does_not_come_goes_on_with_what_was_popped(
    make_group: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hand_back, "HELD_MS", 100)
    group = await make_group()
    one = await _take_over(group)
    there = await popped(one, max_msg_nums=2)
    told = await one.invoke(RemotingCommand(RequestCode.MAXQ_HAND_BACK_POPS))
    assert told.code == ResponseCode.SUCCESS and told.body_length
    again = await one.invoke(RemotingCommand(RequestCode.MAXQ_HAND_BACK_POPS))
    assert again.body == told.body, "the first answer may have been lost"
    await until(lambda: one.controller.popping.service.not_ready() is None)
    assert (await batch_ack(one, there)).code == ResponseCode.SUCCESS
    (following,) = await popped(one, max_msg_nums=1)
    assert int(following.body) == int(there[-1].body) + 1


async def test_a_slave_that_handed_back_promises_nothing_until_its_master_is_there(make_group: Make) -> None:
    group = await make_group()
    one = await _take_over(group)
    queue = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0"}
    commit = RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, {**queue, "commitOffset": "9"})
    assert (await one.invoke(commit)).code == ResponseCode.SUCCESS
    await one.invoke(RemotingCommand(RequestCode.MAXQ_HAND_BACK_POPS))
    late = RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, {**queue, "commitOffset": "10"})
    assert (await one.invoke(late)).code == ResponseCode.SERVICE_NOT_AVAILABLE
    for taken in (RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.MAXQ_HAND_BACK_POPS):
        assert (await one.invoke(RemotingCommand(taken))).code == ResponseCode.SUCCESS
    master = await _come_back(group)
    assert master.controller.offsets.query_offset(GROUP, TOPIC, 0) == 9


async def test_a_slave_that_begins_to_act_when_its_master_has_asked_promises_nothing_until_the_master_is_there(
    make_group: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Name servers forget the master that was killed as its next process starts: both would be active."""
    group = await make_group()
    one = group.brokers["one"]
    commit = RemotingCommand(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "commitOffset": "9"},
    )
    await one.invoke(RemotingCommand(RequestCode.MAXQ_HAND_BACK_POPS))
    one.controller.failover.services.change(True)
    assert (await one.invoke(commit)).code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert one.controller.popping.service.not_ready() is not None
    one.controller.failover.services.change(False)
    monkeypatch.setattr(hand_back, "HELD_MS", 0)
    await one.invoke(RemotingCommand(RequestCode.MAXQ_HAND_BACK_POPS))
    one.controller.failover.services.change(True)
    assert (await one.invoke(commit)).code == ResponseCode.SUCCESS
    await until(lambda: one.controller.popping.service.not_ready() is None)


async def test_a_slave_that_heard_of_its_master_before_the_master_asked_hands_back_all_the_same(
    make_group: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = await make_group()
    one = await _take_over(group)
    there = await popped(one, max_msg_nums=2)
    assert (await ack(one, there[0])).code == ResponseCode.SUCCESS
    one.controller.failover.services.change(False)
    asked = RemotingCommand(RequestCode.MAXQ_HAND_BACK_POPS)
    told = orjson.loads((await one.invoke(asked)).body_bytes)
    assert [row[12] for row in told["live"]] == [0b01]
    monkeypatch.setattr(hand_back, "HELD_MS", 0)
    one.controller.failover.services.change(True)
    await until(lambda: one.controller.popping.service.not_ready() is None)
    one.controller.failover.services.change(False)
    assert (await one.invoke(asked)).body_length == 0, "what it knew long ago is of no use"


@pytest.mark.parametrize("ends_first", [False, True])
async def test_a_slave_that_ends_to_act_as_its_master_asks_tells_it_until_the_answer_has_come(
    make_group: Make, ends_first: bool
) -> None:
    """What the master has had it has not to be told for another return: much of it has ended by then. It has had what
    it was told if it has written its journal since; it may have been killed before."""
    group = await make_group()
    one = await _take_over(group)
    await popped(one, max_msg_nums=2)

    async def asked(return_id: str) -> list[object]:
        told = await one.invoke(RemotingCommand(RequestCode.MAXQ_HAND_BACK_POPS, {"returnId": return_id}))
        return orjson.loads(told.body_bytes)["live"] if told.body_length else []

    if ends_first:
        one.controller.failover.services.change(False)
    first = await asked("1")
    one.controller.failover.services.change(False)
    assert first and await asked("1") == first
    assert await asked("2") == first
    master = await group.start("master", skipPreOnline="true")
    _, end = master.controller.popping.buffer.journal.write({"e": []})
    await until(lambda: one.controller.store.max_physical_offset >= end)
    assert await asked("3") == []


@pytest.mark.parametrize("is_asked", [False, True])
async def test_a_slave_that_acts_again_before_its_master_has_come_knows_what_it_gave_and_was_told(
    make_group: Make, is_asked: bool
) -> None:
    """The master was heard of, asked perhaps, and was gone again before it took anything."""
    group = await make_group()
    one = await _take_over(group)
    there = await popped(one, max_msg_nums=3)
    assert (await ack(one, there[0])).code == ResponseCode.SUCCESS
    if is_asked:
        await one.invoke(RemotingCommand(RequestCode.MAXQ_HAND_BACK_POPS))
    one.controller.failover.services.change(False)
    one.controller.failover.services.change(True)
    await until(lambda: one.controller.popping.service.not_ready() is None)
    rest = await popped(one)
    assert not set(bodies(rest)) & set(bodies(there))
    assert (await batch_ack(one, there[1:])).code == ResponseCode.SUCCESS
    assert len(one.controller.popping.buffer.hand_back()) == 1, "what was popped last is open"


@pytest.mark.parametrize("has_taken", [False, True])
async def test_a_slave_that_acts_again_goes_by_the_journal_for_what_its_master_has_taken_over(
    make_group: Make, has_taken: bool
) -> None:
    """The master wrote something before it was gone again: the end of what it did before, or what it took over, of
    which all has ended since."""
    group = await make_group()
    one = await _take_over(group)
    there = await popped(one, max_msg_nums=3)
    service = one.controller.popping.service
    (row,) = one.controller.popping.buffer.hand_back()
    one.controller.failover.services.change(False)
    master = await group.start("master", skipPreOnline="true")
    journal = master.controller.popping.buffer.journal
    if has_taken:
        journal.write({"p": [row[:12]]})
    _, end = journal.write({"e": [row[0]]})
    await until(lambda: one.controller.store.max_physical_offset >= end)
    await group.stop("master")
    await until(lambda: one.controller.failover.acting.is_acting_master and service.not_ready() is None)
    assert not set(bodies(await popped(one))) & set(bodies(there))
    still_open = [known for known in one.controller.popping.buffer.hand_back() if known[4] == row[4] and not known[12]]
    assert len(still_open) == (not has_taken), "it would come again although it has ended at the master"


async def test_a_master_that_stood_still_revives_nothing_before_it_has_looked_at_its_group(
    make_group: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stand-in may have been told acks. A pop that waited is given nothing, either."""
    group = await make_group(brokerHeartbeatInterval="600000", brokerNotActiveTimeoutMillis="120000", totalReplicas="1")
    master = group.brokers["master"]
    assert len(await popped(master, max_msg_nums=2, invisible_time=300)) == 2
    service, acting = master.controller.popping.service, master.controller.failover.acting
    turns: list[None] = []
    pause = service._pause

    async def counted() -> None:
        turns.append(None)
        await pause()

    monkeypatch.setattr(service, "_pause", counted)
    acting._looked_ms -= 1 << 40
    await until(lambda: bool(master.controller.popping.buffer.take_due()))
    before = len(turns)
    await until(lambda: len(turns) > before + 3)
    assert len(master.controller.popping.buffer.take_due()) == 1, "not revived"
    refusal = service.not_ready()
    assert refusal is not None and refusal.code == ResponseCode.SERVICE_NOT_AVAILABLE
    await acting.look()
    await until(lambda: service.not_ready() is None)
    got: list[bytes] = []

    async def has_all() -> bool:
        got.extend(bodies(await pop_all(master)))
        return len(got) == MESSAGES - 7

    await until(has_all)


async def test_what_is_acknowledged_at_the_slave_does_not_come_though_its_master_has_handed_it_over(
    make_group: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A master that ends in order hands over what is open, and its slave does not copy that any more."""
    group = await make_group(timerWheelEnable="true", timerPrecisionMs="100", reviveInterval="100")
    master, one = group.brokers["master"], group.brokers["one"]
    given = await popped(master, max_msg_nums=2, invisible_time=4_000)
    (not_acknowledged,) = await popped(master, max_msg_nums=1, invisible_time=5_000)
    await until(lambda: one.controller.store.max_physical_offset == master.controller.store.max_physical_offset)
    with monkeypatch.context() as cut:
        await _cut_off(group, cut)
        await group.stop("master")
    await until(lambda: one.controller.failover.acting.is_acting_master)
    await until(lambda: one.controller.popping.service.not_ready() is None)
    assert len(one.controller.popping.buffer) == 2
    assert (await batch_ack(one, given)).code == ResponseCode.SUCCESS
    master = await _come_back(group)
    came: list[bytes] = []

    async def comes_again() -> bool:
        came.extend(bodies(await pop_all(master)))
        return not_acknowledged.body in came

    await until(comes_again)
    assert not set(bodies(given)) & set(came)


async def test_what_no_slave_knows_is_not_handed_over_so_that_the_acks_of_whoever_gets_it_there_count(
    make_group: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The master gave messages while its slaves copied nothing, and one of them gave them to somebody else."""
    group = await make_group(
        timerWheelEnable="true", timerPrecisionMs="100", reviveInterval="100",
        popCkStayBufferTime="200", popCkStayBufferTimeOut="100",
    )  # fmt: skip
    master = group.brokers["master"]
    known = await popped(master, max_msg_nums=1, invisible_time=60_000)
    await until(lambda: len(master.controller.popping.buffer) == 0)  # what the slaves know is handed over
    await until(lambda: _is_copied(group))
    with monkeypatch.context() as cut:
        await _cut_off(group, cut)
        given = await popped(master, max_msg_nums=2, invisible_time=6_000)
        (not_acknowledged,) = await popped(master, max_msg_nums=1, invisible_time=6_000)
        await group.stop("master")
    one = group.brokers["one"]
    await until(lambda: one.controller.failover.acting.is_acting_master)
    await until(lambda: one.controller.popping.service.not_ready() is None)
    there = await popped(one, max_msg_nums=3, invisible_time=7_000)
    assert bodies(there) == bodies([*given, not_acknowledged])
    master = await _come_back(group)
    assert (await batch_ack(master, there[:2])).code == ResponseCode.SUCCESS
    came: list[bytes] = []

    async def comes_again() -> bool:
        came.extend(bodies(await pop_all(master)))
        return not_acknowledged.body in came

    await until(comes_again)
    assert not set(bodies([*known, *given])) & set(came)


async def test_acks_that_the_slave_delivers_meet_the_check_point_that_its_master_delivered(make_group: Make) -> None:
    """A check point comes a second before its acks, and the master dies in between. With enableRemoteEscape the slave
    delivers to another group, where the check point is not."""
    group = await make_group(
        enableRemoteEscape="true", timerWheelEnable="true", timerPrecisionMs="100", reviveInterval="100",
        popCkStayBufferTime="300", popCkStayBufferTimeOut="100",
    )  # fmt: skip
    other = await group.start("other", brokerName="broker-b", totalReplicas="1")
    other.create_topic(TOPIC, queues=1)
    master, one = group.brokers["master"], group.brokers["one"]
    given = await popped(master, max_msg_nums=3, invisible_time=5_000)
    await until(lambda: len(master.controller.popping.buffer) == 0)  # handed over
    assert (await batch_ack(master, given)).code == ResponseCode.SUCCESS
    revive, queue_id = REVIVE_TOPIC_PREFIX + "DefaultCluster", handle_of(given[0]).revive_qid
    await until(lambda: one.controller.store.max_offset(revive, queue_id) == 1)
    await group.stop("master")
    await until(lambda: one.controller.failover.acting.is_acting_master)
    due_ms = handle_of(given[0]).pop_time + 5_000 + 3_000
    await until(lambda: one.controller.timed.service.timer.read_time_ms > due_ms)
    await until(lambda: one.controller.popping.revive.waiting == 0)
    assert one.controller.popping.revive.revived == 0
    master = await _come_back(group)
    assert bodies(await pop_all(master)) == _numbers(10, MESSAGES)


async def test_a_slave_that_acts_again_revives_nothing_that_was_acknowledged_when_it_acted_before(
    make_group: Make,
) -> None:
    """It reads the revive topic anew, and the acks that it keeps for its master are not there."""
    group = await make_group(
        enableRemoteEscape="true", timerWheelEnable="true", timerPrecisionMs="100", reviveInterval="100",
        popCkStayBufferTime="300", popCkStayBufferTimeOut="100",
    )  # fmt: skip
    other = await group.start("other", brokerName="broker-b", totalReplicas="1")
    for topic in (TOPIC, retry_topic_v1(TOPIC, GROUP)):
        other.create_topic(topic, queues=1)
    master, one = group.brokers["master"], group.brokers["one"]
    given = await popped(master, max_msg_nums=3, invisible_time=5_000)
    await until(lambda: len(master.controller.popping.buffer) == 0)  # handed over
    assert (await batch_ack(master, given[:2])).code == ResponseCode.SUCCESS
    revive, queue_id = REVIVE_TOPIC_PREFIX + "DefaultCluster", handle_of(given[0]).revive_qid
    await until(lambda: one.controller.store.max_offset(revive, queue_id) == 1)
    await group.stop("master")
    popping = one.controller.popping
    await until(lambda: bool(popping.buffer.hand_back()))  # its timer has delivered the acks
    assert popping.revive.waiting == 1
    one.controller.failover.services.begin_again()
    await until(lambda: popping.revive.revived == 1)
    retry_topic = retry_topic_v1(TOPIC, GROUP)
    revived = await other.pull_messages(retry_topic, 0, group=GROUP)
    assert bodies(revived) == bodies(given[2:])
    told = orjson.loads((await one.invoke(RemotingCommand(RequestCode.MAXQ_HAND_BACK_POPS))).body_bytes)
    done = [row[12] for row in told["live"] if row[7] == handle_of(given[0]).start_offset]
    assert functools.reduce(operator.or_, done) == 0b111, "else the master would deliver it once more"
    master = await _come_back(group)
    assert bodies(await pop_all(master)) == _numbers(10, MESSAGES)


async def test_what_is_on_its_way_to_another_group_when_the_master_asks_is_told_when_it_is_there(
    make_group: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time was over at the slave; the master would deliver it once more."""
    group = await make_group(enableRemoteEscape="true")
    other = await group.start("other", brokerName="broker-b", totalReplicas="1")
    for topic in (TOPIC, retry_topic_v1(TOPIC, GROUP)):
        other.create_topic(topic, queues=1)
    one = await _take_over(group)
    escape, taken = one.controller.failover.escape, asyncio.Event()
    send = escape._send

    async def slowly(message: MessageExtBrokerInner, queue: RemoteQueue) -> PutMessageResult:
        result = await send(message, queue)
        taken.set()
        await asyncio.sleep(0.2)
        return result

    monkeypatch.setattr(escape, "_send", slowly)
    given = await popped(one, max_msg_nums=2, invisible_time=300)
    await asyncio.wait_for(taken.wait(), 20)
    told = orjson.loads((await one.invoke(RemotingCommand(RequestCode.MAXQ_HAND_BACK_POPS))).body_bytes)
    delivered = await other.pull_messages(retry_topic_v1(TOPIC, GROUP), 0, group=GROUP)
    assert bodies(delivered) == bodies(given)[:1]
    assert [row[12] for row in told["live"]] == [0b01]


async def test_a_change_of_time_that_the_slave_refuses_leaves_the_message_to_who_has_it(
    make_group: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slave acts for a master whose last pop it does not know."""
    group = await make_group()
    master, one = group.brokers["master"], group.brokers["one"]
    await _cut_off(group, monkeypatch)
    given = await popped(master, max_msg_nums=3, invisible_time=6_000)
    await group.stop("master")
    await until(lambda: one.controller.failover.acting.is_acting_master)
    await until(lambda: one.controller.popping.service.not_ready() is None)
    assert (await change_time(one, given[0], 60_000)).code != ResponseCode.SUCCESS
    monkeypatch.undo()
    master = await _come_back(group)
    again: list[bytes] = []

    async def all_came() -> bool:
        again.extend(bodies(await popped(master, invisible_time=60_000)))
        return set(bodies(given)) <= set(again)

    await until(all_came)


async def test_a_message_of_which_the_slave_changed_the_time_is_acknowledged_by_the_masters_receipt(
    make_group: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = await make_group()
    master, one = group.brokers["master"], group.brokers["one"]
    await _cut_off(group, monkeypatch)
    of_the_master = await popped(master, max_msg_nums=1, invisible_time=60_000)
    await group.stop("master")
    await until(lambda: one.controller.failover.acting.is_acting_master)
    await until(lambda: one.controller.popping.service.not_ready() is None)
    of_the_slave = await popped(one, max_msg_nums=1)
    assert bodies(of_the_slave) == bodies(of_the_master)
    assert (await change_time(one, of_the_slave[0], 4_000)).code == ResponseCode.SUCCESS
    monkeypatch.undo()
    master = await _come_back(group)
    assert (await ack(master, of_the_master[0])).code == ResponseCode.SUCCESS
    assert len(master.controller.popping.buffer) == 0, "it would come again when the time is over"


async def test_a_message_that_master_and_slave_gave_to_different_consumers_is_acknowledged_by_either(
    make_group: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slave acted for a master whose last pop it does not know."""
    group = await make_group()
    master, one = group.brokers["master"], group.brokers["one"]
    await _cut_off(group, monkeypatch)
    of_the_master = await popped(master, max_msg_nums=3, invisible_time=2_000)
    await group.stop("master")
    await until(lambda: one.controller.failover.acting.is_acting_master)
    await until(lambda: one.controller.popping.service.not_ready() is None)
    of_the_slave = await popped(one, max_msg_nums=3)
    assert bodies(of_the_slave) == bodies(of_the_master)
    assert (await ack(one, of_the_slave[0])).code == ResponseCode.SUCCESS
    monkeypatch.undo()
    master = await _come_back(group)
    assert (await ack(master, of_the_slave[1])).code == ResponseCode.SUCCESS
    rest = await popped(master)
    assert bodies(rest) == _numbers(10, MESSAGES)
    assert (await batch_ack(master, rest)).code == ResponseCode.SUCCESS
    await until(lambda: master.controller.popping.revive.waiting == 0 and len(master.controller.popping.buffer) == 1)
    assert (await ack(master, of_the_slave[2])).code == ResponseCode.SUCCESS
    await until(lambda: master.controller.offsets.query_offset(GROUP, TOPIC, 0) == MESSAGES)
    assert await pop_all(master) == []


@pytest.mark.parametrize(
    ("code", "ext", "body"),
    [
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, SubscriptionGroupConfig("New").encode()),
        (RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": GROUP}, b""),
        (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
         {"topic": TOPIC, "group": GROUP, "timestamp": "1", "isForce": "true"}, b""),
    ],
)  # fmt: skip
async def test_an_acting_master_changes_no_table_for_the_change_would_go_when_the_master_comes(
    make_group: Make, code: int, ext: dict[str, str], body: bytes
) -> None:
    group = await make_group()
    one = await _take_over(group)
    reply = await one.invoke(RemotingCommand(code, ext, body))
    assert reply.code == ResponseCode.SLAVE_NOT_AVAILABLE and "back" in (reply.remark or "")


async def test_a_master_that_is_asked_to_hand_back_goes_on(make_group: Make) -> None:
    group = await make_group()
    master = group.brokers["master"]
    there = await popped(master, max_msg_nums=2)
    assert (await master.invoke(RemotingCommand(RequestCode.MAXQ_HAND_BACK_POPS))).body_length == 0
    assert (await batch_ack(master, there)).code == ResponseCode.SUCCESS


def _numbers(first: int, end: int) -> list[bytes]:
    return sorted(b"%d" % number for number in range(first, end))
