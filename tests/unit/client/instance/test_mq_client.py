"""Routes, broker addresses and members of a client instance."""

import asyncio
from typing import Any

import pytest

from maxq.client.client_config import ClientConfig, LitePullConsumerConfig, ProducerConfig
from maxq.client.consumer.lite_pull_consumer import LitePullConsumer
from maxq.client.instance.mq_client import MQClientInstance
from maxq.client.instance.mq_client_manager import MQClientManager
from maxq.client.producer.producer import Producer
from maxq.codes import RequestCode, ResponseCode
from maxq.config.netty_client_config import NettyClientConfig
from maxq.errors import ClientError, NoRouteError
from maxq.protocol.frame.remoting_command import SerializeType
from maxq.protocol.message.message import Message
from maxq.protocol.message.message_queue import MessageQueue
from maxq.remoting.client import RemotingClient
from tests.unit.client.mock_broker import NAMESRV_ADDR, MockCluster, Script, simulate, until

NEVER = 3_600_000


async def started(cluster: MockCluster, **settings: Any) -> MQClientInstance:
    environment = cluster.environment()
    remoting = RemotingClient(NettyClientConfig(), clock=environment.clock, rng=environment.rng)
    instance = MQClientInstance("client", ClientConfig(namesrv_addr=NAMESRV_ADDR, **settings), environment, remoting)
    await instance.start()
    return instance


def producing(cluster: MockCluster) -> Producer:
    """A producer that asks for no route by itself."""
    config = ProducerConfig(namesrv_addr=NAMESRV_ADDR, producer_group="P", poll_name_server_interval=NEVER)
    return Producer(config, cluster.environment())


def reading(cluster: MockCluster) -> LitePullConsumer:
    """A consumer that asks for no route by itself, with an instance of its own."""
    config = LitePullConsumerConfig(
        namesrv_addr=NAMESRV_ADDR, consumer_group="G", poll_name_server_interval=NEVER, instance_name="reader"
    )
    return LitePullConsumer(config, cluster.environment())


def test_a_reader_gets_the_asked_broker_or_another_of_its_group() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        instance = await started(cluster)
        instance.brokers.addresses["full"] = {0: "m:1", 1: "s1:1", 2: "s2:1"}
        instance.brokers.addresses["orphan"] = {2: "s2:1", 3: "s3:1"}
        find = instance.find_broker_address_in_subscribe

        def found(name: str, broker_id: int, only: bool) -> tuple[str, bool] | None:
            broker = find(name, broker_id, only)
            return None if broker is None else (broker.address, broker.is_slave)

        assert found("full", 0, False) == ("m:1", False)
        assert found("full", 1, False) == ("s1:1", True)
        assert found("full", 7, False) == ("m:1", False), "a broker that is not there: any of the group"
        assert found("full", 7, True) is None
        assert found("orphan", 0, False) == ("s2:1", True), "no master: a slave serves"
        assert found("orphan", 0, True) is None
        assert found("orphan", 1, True) == ("s2:1", True), "the next id serves for a slave that is gone"
        assert found("nobody", 0, False) is None
        instance.brokers.addresses["slave"] = {1: "s1:1"}
        assert found("slave", 0, True) is None, "no other id serves for a master that is gone"
        assert instance.find_broker_address_in_publish("orphan") is None
        await instance.shutdown()

    simulate(story)


def test_a_route_that_vanishes_stays_usable_and_a_broker_in_no_route_is_forgotten() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start("broker-a", "broker-b")
        cluster.route("T")
        instance = await started(cluster)
        await instance.routes.subscribe_queues("T")
        del cluster.names.routes["T"]
        with pytest.raises(NoRouteError):
            await instance.routes.update_route("T")
        assert len(await instance.routes.subscribe_queues("T")) == 2
        cluster.route("T", brokers=["broker-b"])
        await instance.routes.update_route("T")
        await asyncio.sleep(31)
        assert set(instance.brokers.addresses) == {"broker-b"}
        await instance.shutdown()

    simulate(story)


def test_a_queue_of_an_unknown_broker_is_an_error_that_names_it() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        instance = await started(cluster)
        with pytest.raises(ClientError, match="broker elsewhere of topic T is in no route"):
            await instance.broker_address(MessageQueue("T", "elsewhere", 0))
        await instance.shutdown()

    simulate(story)


def test_a_broker_that_no_known_route_names_is_asked_for_before_it_is_given_up() -> None:
    """By readers, by senders to a queue, and for what a queue's master is asked, long before the route is due."""

    async def story(cluster: MockCluster) -> None:
        await cluster.start("broker-a", "broker-b")
        late = MessageQueue("T", "broker-b", 0)
        cluster.route("T", brokers=["broker-a"])
        instance = await started(cluster, poll_name_server_interval=NEVER)
        async with producing(cluster) as producer, reading(cluster) as reader:
            await producer.send(Message("T", b"x"))
            await instance.routes.update_route("T")
            assert len(await reader.fetch_message_queues("T")) == 1
            cluster.route("T")
            await producer.send(Message("T", b"late"), queue=late)
            assert await instance.broker_address(late) == cluster.master("broker-b").address
            await reader.assign([late])
            await reader.seek(late, 0)
            assert [message.body for message in await reader.poll(5_000)] == [b"late"]
        await instance.shutdown()

    simulate(story)


def test_who_does_not_lead_a_queue_any_more_is_left_long_before_the_route_is_due() -> None:
    """Code 501, of a static topic's queue that has moved: no connection breaks."""

    async def story(cluster: MockCluster) -> None:
        await cluster.start("broker-a", "broker-b")
        cluster.route("T", brokers=["broker-a"])
        moved: Script = lambda request: request.reply(ResponseCode.NOT_LEADER_FOR_QUEUE, "moved")  # noqa: E731
        async with producing(cluster) as producer, reading(cluster) as reader:
            await producer.send(Message("T", b"x"))
            await reader.assign([MessageQueue("T", "broker-a", 0)])
            await until(lambda: bool(cluster.broker.requests(RequestCode.LITE_PULL_MESSAGE)), "a pull")
            for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.LITE_PULL_MESSAGE):
                cluster.broker.scripts[code] = moved
            cluster.route("T", brokers=["broker-b"])
            assert (await producer.send(Message("T", b"x"))).message_queue.broker_name == "broker-b"
            asked = len(cluster.names.seen)
            cluster.broker.put("T", b"ends the pull that waits")
            await until(lambda: len(cluster.names.seen) > asked, "the reader asks for the route", 60)

    simulate(story)


def test_the_next_name_server_serves_when_one_is_dead() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        config = ProducerConfig(namesrv_addr=f"10.0.0.7:9876; {NAMESRV_ADDR}", producer_group="P")
        for _ in range(4):  # whichever comes first
            async with Producer(config, cluster.environment()) as producer:
                await producer.send(Message("T", b"x"))

    simulate(story)


def test_routes_are_asked_for_in_standard_json() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        async with Producer(
            ProducerConfig(namesrv_addr=NAMESRV_ADDR, producer_group="P"), cluster.environment()
        ) as producer:
            await producer.send(Message("T", b"x"))
        request = cluster.names.seen[0]
        assert request.ext == {"topic": "T", "acceptStandardJsonOnly": "true"}
        assert request.version >= 401

    simulate(story)


def test_requests_travel_in_the_configured_header_form() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        config = ProducerConfig(namesrv_addr=NAMESRV_ADDR, producer_group="P", serialize_type=SerializeType.ROCKETMQ)
        async with Producer(config, cluster.environment()) as producer:
            sent = await producer.send(Message("T", b"x", {"KEYS": "ключ"}))
        (request,) = cluster.broker.requests(RequestCode.SEND_MESSAGE_V2)
        assert request.serialize_type == SerializeType.ROCKETMQ
        assert cluster.broker.log[0].keys == "ключ"
        assert sent.queue_offset == 0

    simulate(story)


def test_client_ids_name_host_process_and_unit() -> None:
    async def story(cluster: MockCluster) -> None:
        manager = MQClientManager(cluster.environment())
        first, second = manager.client_id(ClientConfig()), manager.client_id(ClientConfig())
        assert first != second
        assert first.startswith("10.0.9.9@4711#")
        assert manager.client_id(ClientConfig(instance_name="mine", unit_name="u1")) == "10.0.9.9@mine@u1"
        assert manager.client_id(ClientConfig(), keep_default_name=True) == "10.0.9.9@DEFAULT"

    simulate(story)
