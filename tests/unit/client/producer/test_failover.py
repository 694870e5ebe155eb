"""Clients of a group whose master is replaced: what waits for the old one is tried at the new one; no send fails."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from maxq.client.client_config import ProducerConfig, SimpleConsumerConfig
from maxq.client.consumer.simple_consumer import SimpleConsumer
from maxq.client.errors import SendFailedError
from maxq.client.producer.producer import Producer
from maxq.client.producer.transaction_producer import TransactionProducer
from maxq.client.results.local_transaction_state import LocalTransactionState
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import NoRouteError, RemotingError
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message.message import Message, MessageExt, decode_properties
from maxq.protocol.message.message_queue import MessageQueue
from maxq.testing.sim_network import LinkSettings
from tests.unit.client.consumer.push_consumers import PULL, Got
from tests.unit.client.consumer.push_consumers import make as make_consumer
from tests.unit.client.mock_broker import (
    NAME_SERVER,
    NAMESRV_ADDR,
    MockBroker,
    MockCluster,
    Script,
    simulate,
    until,
)

SEND = RequestCode.SEND_MESSAGE_V2
END = RequestCode.END_TRANSACTION
Q0 = MessageQueue("T", "broker-a", 0)


class Pair:
    """Two members of one group, of which the first is the master at first.

    Attributes:
        old, new: the master, and the one that replaces it.
    """

    def __init__(self, cluster: MockCluster) -> None:
        self.cluster = cluster
        self.old = cluster.brokers["broker-a", 0]
        self.new = cluster.brokers["broker-a", 1]
        self.new.scripts[SEND] = refuse()
        self.route = {topic: cluster.route(topic) for topic in ("T", "%RETRY%G")}

    def replace(self) -> None:
        """The name server says that the new one is the master; it takes sends."""
        self.new.scripts.pop(SEND, None)
        for route in self.route.values():
            (group,) = route.broker_datas
            group.broker_addrs = {0: self.new.address}

    async def replace_after(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self.replace()


def refuse(code: int = ResponseCode.SERVICE_NOT_AVAILABLE) -> Script:
    return lambda request: request.reply(code, "this broker is no master")


async def pair_of(cluster: MockCluster) -> Pair:
    await cluster.start("broker-a", slaves=1)
    return Pair(cluster)


def producer(cluster: MockCluster, **settings: object) -> Producer:
    values: dict[str, object] = {"namesrv_addr": NAMESRV_ADDR, "producer_group": "P", **settings}
    return Producer(ProducerConfig(**values), cluster.environment())  # type: ignore[arg-type]


def ids(broker: MockBroker) -> list[str]:
    return [decode_properties(request.ext.get("i"))["UNIQ_KEY"] for request in broker.requests(SEND)]


async def send(sender: Producer) -> None:
    await sender.send(Message("T", b"x"))


async def send_to_a_queue(sender: Producer) -> None:
    await sender.send(Message("T", b"x"), queue=Q0)


async def send_orderly(sender: Producer) -> None:
    await sender.send_orderly(Message("T", b"x"), lambda queues, message, arg: queues[arg], 0)


async def send_many(sender: Producer) -> None:
    assert len(await sender.send_many([Message("T", b"x") for _ in range(50)])) == 50


WAYS = pytest.mark.parametrize("way", [send, send_to_a_queue, send_orderly, send_many])
Way = Callable[[Producer], Awaitable[None]]


@WAYS
@pytest.mark.parametrize("code", [ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.NOT_LEADER_FOR_QUEUE])
def test_sends_wait_while_a_group_has_no_master_that_takes_them(way: Way, code: int) -> None:
    async def story(cluster: MockCluster) -> None:
        pair = await pair_of(cluster)
        pair.old.scripts[SEND] = refuse(code)
        async with producer(cluster) as sender:
            moving = asyncio.create_task(pair.replace_after(1.5))
            await way(sender)
            assert 1_500 <= pair.new.times(SEND)[-1] - pair.old.times(SEND)[0] < 1_700
            await moving
        assert set(ids(pair.new)) <= set(ids(pair.old)), "another try is the same message"

    simulate(story)


@WAYS
def test_sends_outlast_a_master_that_ends_and_a_route_without_one(way: Way) -> None:
    async def story(cluster: MockCluster) -> None:
        pair = await pair_of(cluster)
        async with producer(cluster) as sender:
            await way(sender)
            (group,) = pair.route["T"].broker_datas
            group.broker_addrs = {1: pair.new.address}
            await pair.old.stop()
            asked = len(cluster.names.seen)
            moving = asyncio.create_task(pair.replace_after(1.5))
            await way(sender)
            assert len(cluster.names.seen) - asked < 50, "it asks again and again, with pauses"
            await moving
        assert pair.new.log

    simulate(story)


@WAYS
def test_sends_leave_a_master_that_stands_still_when_another_one_leads(way: Way) -> None:
    async def story(cluster: MockCluster) -> None:
        pair = await pair_of(cluster)
        async with producer(cluster) as sender:
            await way(sender)
            pair.old.is_paused = True
            moving = asyncio.create_task(pair.replace_after(1.5))
            await way(sender)
            assert cluster.world.clock.monotonic_ms() - 1_000_000 - pair.old.times(SEND)[-1] < 2_500
            await moving

    simulate(story)


@WAYS
def test_a_new_producer_leaves_a_master_whose_machine_is_gone_when_another_one_leads(way: Way) -> None:
    """Nothing refuses its connection, which would be attempted for as long as the send may take."""

    async def story(cluster: MockCluster) -> None:
        pair = await pair_of(cluster)
        async with producer(cluster) as sender:
            cluster.world.network.crash_host(pair.old.address.partition(":")[0])
            began = cluster.world.loop.time()
            moving = asyncio.create_task(pair.replace_after(1.5))
            await way(sender)
            assert cluster.world.loop.time() - began < 2.5
            await moving

    simulate(story)


def test_a_master_that_is_slow_to_connect_to_is_waited_for() -> None:
    async def story(cluster: MockCluster) -> None:
        pair = await pair_of(cluster)
        host = pair.old.address.partition(":")[0]
        async with producer(cluster) as sender:
            cluster.world.network.set_link(host, cluster.environment().host_ip, LinkSettings(delay_ms=(600, 650)))
            await send(sender)
        assert pair.old.log

    simulate(story)


def test_a_slave_that_came_back_does_not_end_the_search_for_the_new_master() -> None:
    async def story(cluster: MockCluster) -> None:
        pair = await pair_of(cluster)
        async with producer(cluster) as sender:
            await send(sender)
            for route in pair.route.values():
                route.broker_datas[0].broker_addrs[2] = "10.0.0.9:10911"  # the next route is another one than before
            pair.old.is_paused = True
            moving = asyncio.create_task(pair.replace_after(1.5))
            await send(sender)
            assert cluster.world.clock.monotonic_ms() - 1_000_000 - pair.old.times(SEND)[-1] < 1_900
            await moving

    simulate(story)


def test_a_connection_that_breaks_may_have_stored_the_message_so_without_retries_it_is_an_error() -> None:
    async def story(cluster: MockCluster) -> None:
        pair = await pair_of(cluster)

        async def end(request: RemotingCommand) -> None:
            pair.replace()
            for connection in pair.old.server.connections:
                connection.abort("the broker is killed")

        pair.old.scripts[SEND] = end
        async with producer(cluster, retry_times_when_send_failed=0) as sender:
            with pytest.raises(SendFailedError):
                await send(sender)
            await asyncio.sleep(0.5)  # the route is asked for meanwhile
            await send(sender)
        assert len(pair.old.requests(SEND)) == 1

    simulate(story)


def test_a_master_that_is_slow_keeps_what_waits_for_it() -> None:
    async def story(cluster: MockCluster) -> None:
        pair = await pair_of(cluster)

        async def slowly(request: RemotingCommand) -> RemotingCommand:
            await asyncio.sleep(2.5)
            return request.reply(ext={"msgId": "0" * 32, "queueId": "0", "queueOffset": "0"})

        pair.old.scripts[SEND] = slowly
        async with producer(cluster) as sender:
            await send(sender)
            assert len(pair.old.requests(SEND)) == 1

    simulate(story)


def test_a_message_without_an_answer_goes_out_once_there_is_a_connection() -> None:
    async def story(cluster: MockCluster) -> None:
        pair = await pair_of(cluster)
        async with producer(cluster) as sender:
            await send(sender)
            await pair.old.stop()
            await asyncio.sleep(0.1)
            moving = asyncio.create_task(pair.replace_after(1.5))
            await sender.send_oneway(Message("T", b"x"))
            await until(lambda: pair.new.log, "stored")
            await moving

    simulate(story)


def test_a_parked_pull_leaves_a_broker_that_stands_still_when_another_one_leads() -> None:
    async def story(cluster: MockCluster) -> None:
        pair = await pair_of(cluster)
        got = Got()
        async with make_consumer(cluster, got):
            await until(lambda: pair.old.requests(PULL), "it pulls")
            await asyncio.sleep(3)
            pair.old.is_paused = True
            await asyncio.sleep(1.5)
            pair.replace()
            pair.new.put("T", b"at the new one")
            await until(lambda: got.bodies == [b"at the new one"], "consumed", 1)
            await until(lambda: pair.new.heartbeats, "the new one knows the consumer", 2)

    simulate(story)


def test_a_consumer_that_a_former_master_refuses_goes_to_the_new_one_at_once() -> None:
    async def story(cluster: MockCluster) -> None:
        pair = await pair_of(cluster)
        got = Got()
        async with make_consumer(cluster, got):
            pair.old.put("T", b"before")
            pair.new.put("T", b"before")
            await until(lambda: got.bodies == [b"before"], "it pulls")
            pair.old.scripts[PULL] = refuse(ResponseCode.SYSTEM_BUSY)
            pair.old.put("T", b"wakes the pull that waits")
            pair.new.put("T", b"after")
            moving = asyncio.create_task(pair.replace_after(0.3))
            await until(lambda: got.bodies[-1] == b"after", "it pulls at the new one", 1.0)
            await moving

    simulate(story)


def test_a_receive_leaves_a_broker_that_stands_still_when_another_one_leads() -> None:
    async def story(cluster: MockCluster) -> None:
        pair = await pair_of(cluster)
        pair.old.is_paused = True
        config = SimpleConsumerConfig(namesrv_addr=NAMESRV_ADDR, consumer_group="G")
        async with SimpleConsumer(config, cluster.environment()) as consumer:
            await consumer.subscribe("T")
            receiving = asyncio.create_task(consumer.receive())
            await pair.replace_after(1.5)
            await until(lambda: pair.new.requests(RequestCode.POP_MESSAGE), "it asks the new one", 1.5)
            receiving.cancel()

    simulate(story)


def test_a_new_producer_waits_for_name_servers_that_restart() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        route, names = cluster.route("T"), cluster.names
        del names.routes["T"]
        names.remark = "[NO_BROKER]No topic route info"
        await names.server.shutdown()

        async def restart() -> None:
            await asyncio.sleep(0.5)
            await names.start()
            await asyncio.sleep(0.5)
            names.routes["T"] = route

        restarting = asyncio.create_task(restart())
        began = cluster.world.clock.monotonic_ms()
        async with producer(cluster) as sender:
            await send(sender)
        assert cluster.world.clock.monotonic_ms() - began < 1_500
        await restarting

    simulate(story)


def test_name_servers_that_cannot_be_reached_are_an_error_when_the_time_is_up() -> None:
    async def story(cluster: MockCluster) -> None:
        began = cluster.world.clock.monotonic_ms()
        async with producer(cluster) as sender:
            with pytest.raises(RemotingError, match=NAME_SERVER):
                await sender.send(Message("T", b"x"), timeout_ms=700)
            assert cluster.world.clock.monotonic_ms() - began < 800

    simulate(story)


def test_a_topic_that_a_living_cluster_does_not_know_is_an_error_at_once() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        began = cluster.world.clock.monotonic_ms()
        async with producer(cluster) as sender:
            with pytest.raises(NoRouteError):
                await send(sender)
            assert cluster.world.clock.monotonic_ms() - began < 100

    simulate(story)


def test_an_older_route_of_another_topic_does_not_stay() -> None:
    """Name servers may know a new master one after the other; brokers are told of by every topic's route."""

    async def story(cluster: MockCluster) -> None:
        pair = await pair_of(cluster)
        cluster.route("U")
        async with producer(cluster) as sender:
            await send(sender)
            pair.replace()
            pair.old.scripts[SEND] = refuse()
            await send(sender)
            await sender.fetch_publish_message_queues("U")  # a route that still names the old one
            await send(sender)

    simulate(story)


@WAYS
def test_sends_to_a_topic_that_does_not_exist_yet_follow_the_brokers_that_will_create_it(way: Way) -> None:
    async def story(cluster: MockCluster) -> None:
        pair = await pair_of(cluster)
        template = pair.route["TBW102"] = cluster.route("TBW102", perm=7)
        own = cluster.names.routes.pop("T")
        async with producer(cluster) as sender:
            await sender.send(Message("T", b"x"))
            pair.replace()
            pair.old.scripts[SEND] = refuse()
            await way(sender)
            assert pair.new.requests(SEND)
            cluster.names.routes["T"] = own
            template.broker_datas[0].broker_addrs = {0: pair.old.address}  # once it exists, its own route counts
            cluster.names.seen.clear()
            await until(lambda: cluster.names.seen, "the routes are asked for from time to time")
            await way(sender)
            assert {request.ext["topic"] for request in cluster.names.seen} == {"T"}

    simulate(story)


def test_the_end_of_a_transaction_is_told_to_the_master_that_there_is_by_then() -> None:
    class Listener:
        def execute_local_transaction(self, message: Message, arg: object) -> LocalTransactionState:
            return LocalTransactionState.COMMIT_MESSAGE

        def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
            return LocalTransactionState.UNKNOW

    async def story(cluster: MockCluster) -> None:
        pair = await pair_of(cluster)
        pair.old.scripts[END] = refuse()
        pair.new.scripts[END] = lambda request: request.reply()
        config = ProducerConfig(namesrv_addr=NAMESRV_ADDR, producer_group="P")
        async with TransactionProducer(config, cluster.environment(), Listener()) as sender:
            moving = asyncio.create_task(pair.replace_after(1.5))
            result = await sender.send_message_in_transaction(Message("T", b"x"), None)
            await moving
            assert result.end_error is None
            assert len(pair.new.requests(END)) == 1

    simulate(story)
