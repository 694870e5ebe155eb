"""The master of an acting-master group stops without a word, as a virtual machine that is moved or a host that dies:
real processes, SIGSTOP and SIGKILL. Its connections stay open, so only silence tells."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from benches.load.request import RefusedError, Target

from maxq.api import Message, async_producer, async_push_consumer
from maxq.client.producer.producer import Producer
from maxq.client.results.send_result import SendStatus
from maxq.codes import RequestCode, ResponseCode
from maxq.config.netty_client_config import NettyClientConfig
from maxq.errors import MaxQError
from maxq.protocol.body.offsets import LockBatchRequestBody, LockBatchResponseBody
from maxq.protocol.body.route import BrokerData, TopicRouteData
from maxq.protocol.body.subscription import SubscriptionGroupConfig
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message.message_queue import MessageQueue
from maxq.remoting.client import RemotingClient
from maxq.runtime.files.system import SystemClock, SystemRng
from tests.integration.client.helpers import FROM_FIRST, Collector, eventually
from tests.integration.processes.ha_torture_cluster import MASTER, SLAVE, BrokerProcess
from tests.integration.processes.maxq_process import Process
from tests.interop.processes.servers import free_port_base

TOPIC = "Frozen"
ACTING = {
    "enableSlaveActingMaster": "true",
    "slaveReadEnable": "false",  # so whoever reads at the slave reads at an acting master
    "totalReplicas": "2",
    "brokerHeartbeatInterval": "200",
    "syncBrokerMemberGroupPeriod": "200",
}
SILENCE_S = 30.0  # what is waited for takes two seconds; the machine may be busy


@dataclass
class Group:
    """A name server, a master, its slave."""

    namesrv: str
    name_server: Process
    master: BrokerProcess
    slave: BrokerProcess

    def addresses(self) -> dict[int, str]:
        """Whom the name server shows, by broker id."""
        target = Target("127.0.0.1", int(self.namesrv.rpartition(":")[2]))
        try:
            frame = target.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC})
        except (OSError, RefusedError):
            return {}
        body = frame[8 + (int.from_bytes(frame[4:8], "big") & 0xFFFFFF) :]
        groups: list[BrokerData] = TopicRouteData.decode(body).broker_datas
        return groups[0].broker_addrs if groups else {}

    async def until_route_is(self, *brokers: BrokerProcess) -> None:
        """Until these are ids 0, 1, …"""
        wanted = {number: f"127.0.0.1:{broker.port}" for number, broker in enumerate(brokers)}
        await eventually(lambda: self.addresses() == wanted, f"the route shows {wanted}", SILENCE_S)


@pytest.fixture
async def group(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Group]:
    """A parameter is brokerNotActiveTimeoutMillis."""
    acting = {**ACTING, "brokerNotActiveTimeoutMillis": getattr(request, "param", "1500")}
    port = free_port_base(10)
    conf = tmp_path / "namesrv.conf"
    conf.write_text(f"listenPort={port}\nsupportActingMaster=true\nscanNotActiveBrokerInterval=200\n")
    name_server = Process("name server", ["namesrv", "-c", str(conf)], tmp_path / "namesrv-ready")
    namesrv = f"127.0.0.1:{port}"
    master = BrokerProcess("master", tmp_path / "master", port + 3, namesrv, {**MASTER, **acting})
    slave = BrokerProcess("slave", tmp_path / "slave", port + 8, namesrv, {**SLAVE, **acting})
    running = Group(namesrv, name_server, master, slave)
    try:
        for process in (name_server, master, slave):
            await process.start()
        yield running
    finally:
        for process in (slave, master, name_server):
            await process.kill()


async def send(producer: Producer, count: int) -> None:
    """Until so many are acknowledged: right after a start the slave may not be in sync yet."""
    done = 0
    async with asyncio.timeout(SILENCE_S):
        while done < count:
            try:
                result = await producer.send(Message(TOPIC, b"%d" % done))
            except MaxQError:
                await asyncio.sleep(0.05)
                continue
            done += result.send_status is SendStatus.SEND_OK


async def test_a_slave_stands_in_for_a_frozen_master_and_for_one_killed_while_frozen(group: Group) -> None:
    quick = {"poll_name_server_interval": 200, "heartbeat_broker_interval": 1_000}
    got = Collector()
    consumer = async_push_consumer("G", group.namesrv, got, orderly=True, consume_from_where=FROM_FIRST, **quick)
    consumer.subscribe(TOPIC)
    async with async_producer("P", group.namesrv, send_msg_timeout=1_500, **quick) as producer:
        await send(producer, 50)
        await group.until_route_is(group.master, group.slave)

        group.master.pause()
        await group.until_route_is(group.slave)
        async with consumer:  # locks and offsets, from the acting master
            await got.wait_for(50, SILENCE_S)
            with pytest.raises(MaxQError):
                await producer.send(Message(TOPIC, b"nobody writes"))
            group.master.go_on()
            await group.until_route_is(group.master, group.slave)
            await send(producer, 20)
            await got.wait_for(70, SILENCE_S)

            group.master.pause()
            await group.master.kill()
            await group.until_route_is(group.slave)
            await group.master.start()
            await group.until_route_is(group.master, group.slave)
            await send(producer, 20)
            await got.wait_for(90, SILENCE_S)

    for offsets in got.by_queue().values():
        assert list(dict.fromkeys(offsets)) == list(range(len(set(offsets))))  # in order, none left out
    for broker in (group.slave, group.master):
        await broker.stop()
        assert broker.faults() == []
    assert group.slave.log() == group.master.log()


class Asker:
    """A client that has a connection to one broker, and asks it for a lock and takes its word on offsets."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._address = f"127.0.0.1:{broker.port}"
        self._client = RemotingClient(NettyClientConfig(), clock=SystemClock(), rng=SystemRng())

    async def ask(self, code: int, ext: dict[str, str], body: bytes = b"") -> RemotingCommand:
        return await self._client.invoke(self._address, RemotingCommand(code, ext, body), 60_000)

    async def lock(self, client_id: str) -> RemotingCommand:
        body = LockBatchRequestBody("G", client_id, mq_set=[MessageQueue(TOPIC, "broker-a", 0)])
        return await self.ask(RequestCode.LOCK_BATCH_MQ, {}, body.encode())

    async def commit(self, offset: int) -> RemotingCommand:
        ext = {"consumerGroup": "G", "topic": TOPIC, "queueId": "0", "commitOffset": str(offset)}
        return await self.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext)

    async def close(self) -> None:
        await self._client.close()


async def granted(asker: Asker, client_id: str) -> bool:
    """Does this client hold the queue now, as the broker says?"""
    try:
        reply = await asker.lock(client_id)
    except MaxQError:
        return False
    return reply.code == ResponseCode.SUCCESS and bool(LockBatchResponseBody.decode(reply.body_bytes).lock_ok_mq_set)


async def until_granted(asker: Asker, client_id: str) -> None:
    async with asyncio.timeout(SILENCE_S):
        while not await granted(asker, client_id):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def has_topic_and_group(group: Group) -> None:
    target = Target("127.0.0.1", group.master.port)
    ext = {"topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
           "topicFilterType": "SINGLE_TAG", "order": "false"}  # fmt: skip
    target.call(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)
    target.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, SubscriptionGroupConfig("G").encode())
    await group.until_route_is(group.master, group.slave)
    async with async_producer("P", group.namesrv, send_msg_timeout=1_500) as producer:
        await send(producer, 2)  # to commit
    at_slave = Asker(group.slave)
    async with asyncio.timeout(SILENCE_S):
        while (await at_slave.commit(0)).code != ResponseCode.SUCCESS:  # not copied yet  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    await at_slave.close()


async def test_a_master_that_was_replaced_while_it_stood_still_promises_nothing(group: Group) -> None:
    await has_topic_and_group(group)
    at_master, at_slave = Asker(group.master), Asker(group.slave)
    await until_granted(at_master, "one")
    group.master.pause()
    await group.until_route_is(group.slave)
    await until_granted(at_slave, "two")
    assert (await at_slave.commit(2)).code == ResponseCode.SUCCESS
    late = [asyncio.ensure_future(work) for work in (at_master.lock("one"), at_master.commit(1))]
    await asyncio.sleep(0)  # they are on their way
    group.master.go_on()
    assert [(await answer).code for answer in late] == [ResponseCode.SERVICE_NOT_AVAILABLE] * 2
    await group.until_route_is(group.master, group.slave)
    await until_granted(at_master, "two")
    ext = {"consumerGroup": "G", "topic": TOPIC, "queueId": "0"}
    offset = await at_master.ask(RequestCode.QUERY_CONSUMER_OFFSET, ext)
    assert offset.ext["offset"] == "2"
    await at_master.close()
    await at_slave.close()


async def test_a_stand_in_that_was_replaced_while_it_stood_still_promises_nothing(group: Group) -> None:
    await has_topic_and_group(group)
    await group.master.kill()
    await group.until_route_is(group.slave)
    at_slave = Asker(group.slave)
    await until_granted(at_slave, "one")
    group.slave.pause()
    await group.master.start()
    at_master = Asker(group.master)
    await until_granted(at_master, "two")
    late = [asyncio.ensure_future(work) for work in (at_slave.lock("one"), at_slave.commit(1))]
    await asyncio.sleep(0)
    group.slave.go_on()
    answers = [await answer for answer in late]
    assert not any(reply.code == ResponseCode.SUCCESS for reply in answers)
    await at_master.close()
    await at_slave.close()


@pytest.mark.parametrize("group", ["60000"], indirect=True)
async def test_a_master_that_stands_still_while_its_name_server_is_started_anew_is_the_only_one(group: Group) -> None:
    """It goes on soon enough to be sure of its role."""
    await has_topic_and_group(group)
    at_master, at_slave = Asker(group.master), Asker(group.slave)
    await until_granted(at_master, "one")
    group.master.pause()
    await group.name_server.kill()
    await group.name_server.start()
    await group.until_route_is(group.slave)
    for _ in range(20):  # the slave looks five times a second
        assert not await granted(at_slave, "two")
        await asyncio.sleep(0.05)
    group.master.go_on()
    await group.until_route_is(group.master, group.slave)
    assert not await granted(at_master, "two")
    assert await granted(at_master, "one")
    await at_master.close()
    await at_slave.close()
