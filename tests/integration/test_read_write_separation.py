"""Read/write separation (RW-01 to RW-05, S-18): a name server, a master and a slave on real sockets, and our clients.

Only a backlog goes to the slave, and comes back; the slave serves readers while its master is away, and nobody loses
progress.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from maxq.api import (
    Message,
    MessageModel,
    async_admin,
    async_lite_pull_consumer,
    async_producer,
    async_push_consumer,
)
from maxq.client.consumer.push_consumer import PushConsumer
from maxq.codes import RequestCode, ResponseCode
from maxq.config import NamesrvSettings
from maxq.namesrv.controller import NamesrvController
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message.message_queue import MessageQueue
from maxq.runtime.files.system import SystemClock, SystemDisk, SystemRng
from tests.integration.broker.harness import RunningBroker, until
from tests.integration.client.helpers import FROM_FIRST, Collector
from tests.interop.processes.servers import free_port_base

TOPIC, GROUP = "T", "G"
MEMORY = 20_000  # bytes behind the end of the log that count as in memory
QUICK = {
    "poll_name_server_interval": 300,
    "heartbeat_broker_interval": 2_000,
    "consume_from_where": FROM_FIRST,
}


class BrokerGroup:
    """A name server, a master and its slave; either can go and come back."""

    def __init__(self, folder: Path, slave_settings: dict[str, str]) -> None:
        self._folder = folder
        settings, _ = NamesrvSettings.from_properties({"bindAddress": "127.0.0.1", "listenPort": "0"}, source="test")
        self.names = NamesrvController(settings, disk=SystemDisk(), clock=SystemClock(), rng=SystemRng())
        self._ports = {role: free_port_base() for role in ("master", "slave")}
        self._slave_settings = slave_settings
        self.master: RunningBroker
        self.slave: RunningBroker
        self.running: list[RunningBroker] = []

    @property
    def namesrv(self) -> str:
        return f"127.0.0.1:{self.names.port}"

    async def start(self) -> None:
        await self.names.start()
        await self.start_master()
        self.master.create_topic(TOPIC, queues=1)
        await self.start_slave()
        await until(lambda: TOPIC in self.slave.controller.topics.topic_config_table)

    async def _start(self, role: str, settings: dict[str, str]) -> RunningBroker:
        own = {
            "namesrvAddr": self.namesrv,
            "listenPort": str(self._ports[role]),
            "haListenPort": str(self._ports[role] + 1),
            "slaveReadEnable": "true",
        }
        broker = RunningBroker(self._folder / role, own | settings)
        self.running.append(broker)
        await broker.start()
        broker.controller.store.reader.memory_bytes = MEMORY * 100 // 40
        return broker

    async def start_master(self, **more: str) -> None:
        self.master = await self._start("master", more)

    async def start_slave(self) -> None:
        self.slave = await self._start("slave", {"brokerRole": "SLAVE", "brokerId": "1"} | self._slave_settings)

    async def stop_broker(self, broker: RunningBroker) -> None:
        self.running.remove(broker)
        await broker.stop()

    async def shutdown(self) -> None:
        for broker in reversed(self.running):
            await broker.stop()
        await self.names.shutdown()

    # --- what tests do ---

    async def send(self, *bodies: bytes) -> None:
        async with async_producer("P", self.namesrv) as producer:
            await producer.send_many(Message(TOPIC, body) for body in bodies)

    async def replicated(self) -> None:
        stores = [broker.controller.store for broker in (self.master, self.slave)]
        await until(lambda: stores[0].max_physical_offset == stores[1].max_physical_offset)

    async def copied_offset(self, offset: int) -> None:
        """Until the slave has this offset of the group from its master."""
        await until(lambda: self.committed(self.master) == offset)
        self.slave.controller.slave_synchronize.wake()
        await until(lambda: self.committed(self.slave) == offset)

    def consumer(self, got: Collector, *, orderly: bool = False, **settings: object) -> PushConsumer:
        consumer = async_push_consumer(GROUP, self.namesrv, got, orderly=orderly, **(QUICK | settings))
        consumer.subscribe(TOPIC)
        return consumer

    @staticmethod
    def delivered(broker: RunningBroker, group: str = GROUP) -> int:
        """Messages that a broker has given to the group."""
        item = broker.controller.stats.view("GROUP_GET_NUMS", f"{TOPIC}@{group}")
        return 0 if item is None else item.value

    @staticmethod
    def committed(broker: RunningBroker, group: str = GROUP) -> int:
        return broker.controller.offsets.query_offset(group, TOPIC, 0)


@pytest.fixture
def slave_settings() -> dict[str, str]:
    """More settings of the slave, by RocketMQ's names."""
    return {}


@pytest.fixture
async def group(tmp_path: Path, slave_settings: dict[str, str]) -> AsyncIterator[BrokerGroup]:
    members = BrokerGroup(tmp_path, slave_settings)
    try:
        await members.start()
        yield members
    finally:
        await members.shutdown()


def numbered(count: int, size: int = 1_000) -> list[bytes]:
    return [b"%06d" % n + b"x" * size for n in range(count)]


# --- only a backlog goes to the slave, and comes back -----------------------------------------------------------------


async def test_a_backlog_is_read_from_the_slave_and_what_is_new_from_the_master(group: BrokerGroup) -> None:
    bodies = numbered(300)
    await group.send(*bodies)
    await group.replicated()
    got = Collector()
    async with group.consumer(got):
        await got.wait_for(300)
        assert got.counts() == Counter(bodies)
        from_slave, from_master = group.delivered(group.slave), group.delivered(group.master)
        assert from_slave > 200, "nearly all of it is beyond the memory"
        assert from_master > 0, "the first pull went to the master, which sent it away"
        assert from_slave + from_master == 300
        await until(lambda: group.master.controller.hold_service.held_on(TOPIC, 0) == 1)
        await group.send(b"new")
        await got.wait_for(301)
        assert group.delivered(group.slave) == from_slave
    assert group.committed(group.master) == 301


async def test_a_reader_that_keeps_up_never_meets_the_slave(group: BrokerGroup) -> None:
    got = Collector()
    async with group.consumer(got):
        for body in numbered(50):
            await group.send(body)
        await got.wait_for(50)
    assert group.delivered(group.slave) == 0


async def test_offsets_go_to_the_master_while_the_slave_is_read(group: BrokerGroup) -> None:
    await group.send(*numbered(300))
    await group.replicated()
    commits_of_slave = group.slave.controller.offsets.slave_commits
    async with async_lite_pull_consumer("L", group.namesrv, **QUICK, auto_commit=False) as lite:
        await lite.subscribe(TOPIC)
        read = 0
        while group.delivered(group.slave, "L") == 0 or read < 100:
            read += len(await lite.poll())
        await lite.commit()
        assert group.committed(group.master, "L") > 0
        assert len(commits_of_slave) == 0


@pytest.mark.parametrize("slave_settings", [{"slaveReadEnable": "false"}])
async def test_a_slave_that_may_not_be_read_costs_a_moment_and_no_messages(group: BrokerGroup) -> None:
    bodies = numbered(300)
    await group.send(*bodies)
    await group.replicated()
    got = Collector()
    async with group.consumer(got):
        await got.wait_for(300)
    assert got.counts() == Counter(bodies)
    assert group.delivered(group.slave) == 0


# --- a master that goes and comes back --------------------------------------------------------------------------------


async def test_the_slave_serves_while_its_master_is_away_and_progress_survives(group: BrokerGroup) -> None:
    await group.send(*numbered(20))
    await group.replicated()
    first = Collector()
    async with group.consumer(first) as consumer:
        await first.wait_for(20)
        await consumer.persist_consumer_offset()
        await group.copied_offset(20)
        await group.stop_broker(group.master)
        await until(lambda: group.slave.controller.hold_service.held_on(TOPIC, 0) == 1)
    # Somebody else of the group goes on at the slave: names, members, offsets and messages are all there.
    other = Collector()
    group.slave.controller.offsets.commit_offset("test", GROUP, TOPIC, 0, 5)
    async with group.consumer(other) as consumer:
        await other.wait_for(15)
        assert other.by_queue() == {0: list(range(5, 20))}
        await consumer.persist_consumer_offset()
        await until(lambda: group.committed(group.slave) == 20)
        await group.start_master()
        await group.send(b"after")
        await other.wait_for(16)
        await consumer.persist_consumer_offset()
        await until(lambda: group.committed(group.master) == 21)
    assert other.bodies[-1] == b"after"


@pytest.mark.parametrize("restarts", [False, True], ids=["the slave goes on", "the slave is restarted meanwhile"])
async def test_what_a_group_did_while_the_master_was_away_is_not_done_again(group: BrokerGroup, restarts: bool) -> None:
    await group.send(*numbered(30))
    await group.replicated()
    lite = async_lite_pull_consumer(GROUP, group.namesrv, **QUICK, auto_commit=False)
    await lite.subscribe(TOPIC)
    async with lite:
        await lite.commit({MessageQueue(TOPIC, "broker-a", 0): 10})
        await group.copied_offset(10)
        await group.stop_broker(group.master)
        await lite.commit({MessageQueue(TOPIC, "broker-a", 0): 25})
    assert group.committed(group.slave) == 25
    if restarts:
        await group.stop_broker(group.slave)
        await group.start_slave()
    await group.start_master()
    await until(lambda: group.committed(group.master) == 25)
    assert group.committed(group.slave) == 25, "the next copy has not undone it"
    got = Collector()
    async with group.consumer(got):
        await got.wait_for(5)
    assert got.by_queue() == {0: list(range(25, 30))}


@pytest.mark.parametrize("begins", [False, True], ids=["who only looks", "who begins there"])
async def test_commits_at_the_slave_end_a_reset_if_their_reader_has_begun_there(
    group: BrokerGroup, begins: bool
) -> None:
    """The master died before any pull took the reset: it is back, and the reset still waits. Consumers look where the
    group is when they have heard nothing of their broker for long, to learn whether another one has gone on."""
    await group.send(*numbered(30))
    await group.replicated()
    queue = MessageQueue(TOPIC, "broker-a", 0)
    await group.master.pull(TOPIC)  # makes the group
    async with async_admin(group.namesrv) as admin:
        await admin.offsets.commit(GROUP, queue, 20)
        await group.copied_offset(20)
        await admin.offsets.reset_queue(GROUP, queue, 3)
        await group.copied_offset(3)
        await until(lambda: GROUP in group.slave.controller.groups.subscription_group_table)
        await group.stop_broker(group.master)
    place = {"topic": TOPIC, "consumerGroup": GROUP, "queueId": "0"}
    ask = RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, place | ({} if begins else {"maxqOnlyLooks": "true"}))
    assert (await group.slave.invoke(ask)).ext["offset"] == "3"
    commit = RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, {**place, "commitOffset": "25"})
    assert (await group.slave.invoke(commit)).code == 0
    await group.start_master()
    await until(lambda: len(group.slave.controller.offsets.slave_commits) == 0)
    assert group.committed(group.master) == (25 if begins else 3)
    assert (await group.master.pull(TOPIC, 25)).code == (0 if begins else ResponseCode.PULL_OFFSET_MOVED)


async def test_a_commit_at_the_slave_for_a_topic_that_was_deleted_is_not_one_for_its_successor(
    group: BrokerGroup,
) -> None:
    """The slave hands it over before its log has come to the deletion."""
    await group.send(*numbered(10))
    await group.replicated()
    queue = MessageQueue(TOPIC, "broker-a", 0)
    await group.master.pull(TOPIC)  # makes the group
    await until(lambda: GROUP in group.slave.controller.groups.subscription_group_table)
    await group.stop_broker(group.master)
    async with async_admin(group.namesrv) as admin:
        await admin.offsets.commit(GROUP, queue, 8)
        await group.stop_broker(group.slave)
        await group.start_master(haFlowControlEnable="true", maxHaTransferByteInSecond="1024")
        await group.send(*numbered(10, size=2_000))
        await admin.topics.delete(TOPIC, "DefaultCluster")
    group.master.create_topic(TOPIC, queues=1)
    await group.send(*numbered(20))
    await group.start_slave()
    await until(lambda: len(group.slave.controller.offsets.slave_commits) == 0)
    assert group.committed(group.master) == -1


@pytest.mark.parametrize("sent_before", [0, 3, 5], ids=["at once", "behind some new messages", "behind as many"])
async def test_commits_of_messages_that_nobody_has_any_more_pass_over_none_that_get_their_places(
    group: BrokerGroup, sent_before: int
) -> None:
    """The master lost its end with its power before the slave had copied it, and a consumer had read it. The slave
    hands over what that had committed, perhaps when the master has taken new messages."""
    await group.send(*numbered(10))
    await group.replicated()
    await group.master.pull(TOPIC)  # makes the group
    await until(lambda: GROUP in group.slave.controller.groups.subscription_group_table)
    await group.stop_broker(group.master)
    async with async_admin(group.namesrv) as admin:
        await admin.offsets.commit(GROUP, MessageQueue(TOPIC, "broker-a", 0), 15)
    await group.stop_broker(group.slave)
    await group.start_master()
    await group.send(*numbered(sent_before))
    await group.start_slave()
    assert len(group.slave.controller.offsets.slave_commits) == 1
    await until(lambda: len(group.slave.controller.offsets.slave_commits) == 0)
    await group.send(*numbered(5 - sent_before))
    got = Collector()
    async with group.consumer(got):
        await got.wait_for(5)
    assert got.by_queue() == {0: list(range(10, 15))}


async def test_a_reader_ahead_of_the_slave_keeps_its_place(group: BrokerGroup) -> None:
    await group.send(*numbered(10))
    await group.replicated()
    got = Collector()
    async with group.consumer(got):
        await got.wait_for(10)
        await group.stop_broker(group.slave)
        await group.send(*(b"the slave lacks %d" % n for n in range(5)))
        await got.wait_for(15)
        await group.stop_broker(group.master)
        await group.start_slave()
        slave = group.slave.controller
        await until(lambda: slave.hold_service.held_on(TOPIC, 0) == 1)
        (held,) = slave.hold_service._by_queue[TOPIC, 0]
        assert (held.offset, slave.store.max_offset(TOPIC, 0)) == (15, 10)
        await group.start_master()
        await group.send(b"next")
        await got.wait_for(16)
    assert group.committed(group.master) == 16
    assert got.by_queue() == {0: list(range(16))}, "nothing twice, nothing left out"


async def test_bytes_from_the_master_wake_a_reader_at_the_slave(group: BrokerGroup) -> None:
    await group.send(b"first")
    await group.replicated()
    pull = asyncio.create_task(group.slave.pull(TOPIC, 1, sys_flag=6, wait_ms=8_000))
    await group.slave.until_held(TOPIC)
    await group.send(b"second")
    reply = await pull
    assert (reply.code, reply.ext["nextBeginOffset"]) == (0, "2")


async def test_orderly_consumers_wait_for_their_master_and_go_on_in_order(group: BrokerGroup) -> None:
    await group.send(*numbered(10))
    await group.replicated()
    got = Collector()
    async with group.consumer(got, orderly=True, lock_interval=500):
        await got.wait_for(10)
        await group.stop_broker(group.master)
        await until(lambda: group.slave.controller.hold_service.held_on(TOPIC, 0) == 1)
        await group.start_master()
        await group.send(*(b"later %d" % n for n in range(10)))
        await got.wait_for(20)
    assert got.by_queue() == {0: list(range(20))}


async def test_broadcasting_consumers_read_on_from_the_slave(group: BrokerGroup, tmp_path: Path) -> None:
    await group.send(*numbered(10))
    await group.replicated()
    got = Collector()
    own_offsets: dict[str, Any] = {
        "message_model": MessageModel.BROADCASTING,
        "local_offset_store_dir": str(tmp_path / "offsets"),
    }
    async with group.consumer(got, **own_offsets):
        await got.wait_for(10)
    await group.stop_broker(group.master)
    again = Collector()
    async with group.consumer(again, **own_offsets, instance_name="another"):
        await again.wait_for(10)
    assert again.counts() == got.counts()


async def test_tools_look_at_the_slave_while_the_master_is_away(group: BrokerGroup) -> None:
    await group.send(*numbered(10))
    await group.replicated()
    got = Collector()
    async with group.consumer(got):
        await got.wait_for(10)
    await group.copied_offset(10)
    await group.stop_broker(group.master)
    async with async_admin(group.namesrv) as admin:
        queue = MessageQueue(TOPIC, "broker-a", 0)
        assert await admin.offsets.max(queue) == 10
        assert await admin.offsets.committed(GROUP, queue) == 10


async def test_the_read_code_of_a_lite_pull_is_served_by_slaves_too(group: BrokerGroup) -> None:
    await group.send(b"one")
    await group.replicated()
    assert (await group.slave.pull(TOPIC, 0, code=RequestCode.LITE_PULL_MESSAGE)).code == 0
