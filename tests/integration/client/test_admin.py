"""What operators ask, against real servers."""

from collections.abc import Callable

import pytest

from maxq.api import Message, async_admin, async_producer, async_push_consumer
from maxq.client.admin.messages import TrackType
from maxq.client.admin.offsets import LATEST
from maxq.errors import BrokerError, ClientError, NoRouteError, RemoteProtocolError
from maxq.protocol.body.subscription import SubscriptionGroupConfig
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.message.message_queue import MessageQueue
from tests.integration.client.helpers import FROM_FIRST, Collector

Name = Callable[[str], str]
CLUSTER = "DefaultCluster"


async def test_topics_are_created_changed_shown_and_deleted(namesrv: str, name: Name) -> None:
    topic = name("T")
    async with async_admin(namesrv) as admin:
        (address,) = await admin.topics.create_in_cluster(CLUSTER, TopicConfig(topic, 3, 5, 6))
        assert topic in await admin.topics.names()
        assert topic in await admin.topics.names_of_cluster(CLUSTER)
        assert await admin.topics.clusters(topic) == [CLUSTER]
        config = await admin.topics.config(address, topic)
        assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (3, 5, 6)
        await admin.topics.create(address, TopicConfig(topic, 8, 8, 4))
        (queue_data,) = (await admin.topics.route(topic)).queue_datas
        assert (queue_data.read_queue_nums, queue_data.perm) == (8, 4)
        assert (await admin.topics.all_configs(address)).topic_config_table[topic].perm == 4
        assert "TBW102" in await admin.topics.system_names(address)
        await admin.topics.delete(topic, CLUSTER)
        with pytest.raises(NoRouteError):
            await admin.topics.route(topic)
        with pytest.raises(BrokerError) as refused:
            await admin.topics.create(address, TopicConfig("SCHEDULE_TOPIC_XXXX"))
        assert refused.value.code == 29
        with pytest.raises(ClientError, match="known clusters: DefaultCluster"):
            await admin.topics.create_in_cluster("nowhere", TopicConfig(topic))


async def test_groups_are_created_shown_and_deleted(namesrv: str, name: Name) -> None:
    group = name("G")
    async with async_admin(namesrv) as admin:
        (address,) = await admin.groups.create_in_cluster(
            CLUSTER, SubscriptionGroupConfig(group, retry_max_times=3, which_broker_when_consume_slowly=2)
        )
        config = await admin.groups.config(address, group)
        assert (config.retry_max_times, config.which_broker_when_consume_slowly) == (3, 2)
        assert group in (await admin.groups.all_configs(address)).subscription_group_table
        await admin.groups.delete(address, group, clean_offset=True)
        assert group not in (await admin.groups.all_configs(address)).subscription_group_table


async def test_messages_are_found_by_every_way(namesrv: str, name: Name) -> None:
    topic = name("T")
    async with async_producer(name("P"), namesrv) as producer, async_admin(namesrv) as admin:
        sent = [await producer.send(Message(topic, b"%d" % n, {"KEYS": f"k{n} even{n % 2}"})) for n in range(10)]
        third = sent[3]
        for found in (
            await admin.messages.view(topic, third.offset_msg_id),
            await admin.messages.view(topic, third.msg_id),
            await admin.messages.view_by_queue_offset(third.message_queue, third.queue_offset),
            *await admin.messages.query_by_key(topic, "k3"),
            *await admin.messages.query_by_unique_key(topic, third.msg_id),
        ):
            assert (found.body, found.msg_id) == (b"3", third.msg_id)
        assert [m.body for m in await admin.messages.query_by_key(topic, "even1")] == [b"1", b"3", b"5", b"7", b"9"]
        assert len(await admin.messages.query_by_key(topic, "even1", max_num=2)) == 2
        assert {m.body async for m in admin.messages.scan(topic)} == {b"%d" % n for n in range(10)}
        assert [m.body async for m in admin.messages.scan(topic, queues=[third.message_queue])][0:1] != []
        with pytest.raises(ClientError, match="the queue holds"):
            await admin.messages.view_by_queue_offset(third.message_queue, 1000)
        with pytest.raises(ClientError, match="no message"):
            await admin.messages.view(topic, "0" * 32)
        with pytest.raises(RemoteProtocolError):
            await admin.messages.view_by_offset_id("xyz")


async def test_offsets_are_shown_reset_and_cloned(namesrv: str, name: Name) -> None:
    topic, group, other = name("T"), name("G"), name("H")
    async with async_producer(name("P"), namesrv) as producer, async_admin(namesrv) as admin:
        sent = [await producer.send(Message(topic, b"%d" % n)) for n in range(8)]
        queues = await admin.offsets.queues(topic)
        assert [await admin.offsets.max(queue) for queue in queues] == [2, 2, 2, 2]
        assert [await admin.offsets.min(queue) for queue in queues] == [0, 0, 0, 0]
        first = await admin.messages.view(topic, sent[0].offset_msg_id)
        queue = sent[0].message_queue
        assert await admin.offsets.search(queue, first.store_timestamp) == 0
        assert await admin.offsets.search(queue, first.store_timestamp + 3_600_000) == 2
        assert await admin.offsets.earliest_store_time(queue) == first.store_timestamp
        for each in (group, other):  # Java's broker takes offsets of known groups only
            await admin.groups.create_in_cluster(CLUSTER, SubscriptionGroupConfig(each))
        await admin.offsets.commit(group, queue, 1)
        assert await admin.offsets.committed(group, queue) == 1
        cloned = await admin.offsets.clone(group, other, topic)
        assert cloned[queue] == 1
        assert await admin.offsets.committed(other, queue) == 1
        assert await admin.offsets.reset_by_time(group, topic, LATEST) == dict.fromkeys(queues, 2)
        assert await admin.offsets.reset_queue(group, queue, 1) == 1
        assert await admin.offsets.committed(group, queue) == 1
        await admin.offsets.commit(group, queue, 0)  # the reset waits for a pull
        assert await admin.offsets.committed(group, queue) == 0
        assert await admin.offsets.reset_queue(other, queue, 2) == 2
        assert (await admin.offsets.clone(group, other, topic))[queue] == 0
        assert await admin.offsets.committed(other, queue) == 0
        with pytest.raises(ClientError, match=f"no broker of cluster Elsewhere has topic {topic}"):
            await admin.offsets.reset_by_time(group, topic, 0, cluster="Elsewhere")


async def test_brokers_tell_their_state_and_settings(namesrv: str, name: Name) -> None:
    async with async_admin(namesrv) as admin:
        info = await admin.cluster_info()
        (broker_name,) = info.cluster_addr_table[CLUSTER]
        address = info.broker_addr_table[broker_name].broker_addrs[0]
        runtime = await admin.brokers.runtime_info(address)
        assert {"brokerVersionDesc", "putTps", "commitLogMaxOffset", "msgPutTotalTodayNow"} <= runtime.keys()
        config = await admin.brokers.config(address)
        assert config["brokerName"] == broker_name
        before = await admin.brokers.config_version(address)
        await admin.brokers.update_config(address, {"fileReservedTime": "73"})
        assert (await admin.brokers.config(address))["fileReservedTime"] == "73"
        await admin.brokers.update_config(address, {"fileReservedTime": config["fileReservedTime"]})
        assert (await admin.brokers.config_version(address)).counter > before.counter
        with pytest.raises(BrokerError):
            await admin.brokers.update_config(address, {"brokerConfigPath": "/tmp/x"})
        await admin.brokers.clean_unused_topic(address)
        await admin.brokers.clean_expired_consume_queue(address)
        await admin.brokers.delete_expired_commit_log(address)


async def test_name_servers_keep_values_and_take_brokers_out_of_service(namesrv: str, name: Name) -> None:
    async with async_admin(namesrv) as admin:
        space = name("NS")
        assert await admin.name_servers.get_kv(space, "k") is None
        assert await admin.name_servers.list_kv(space) == {}
        await admin.name_servers.put_kv(space, "k", "v")
        assert await admin.name_servers.get_kv(space, "k") == "v"
        assert await admin.name_servers.list_kv(space) == {"k": "v"}
        await admin.name_servers.delete_kv(space, "k")
        assert await admin.name_servers.get_kv(space, "k") is None
        assert namesrv in await admin.name_servers.config()

        topic = name("T")
        await admin.topics.create_in_cluster(CLUSTER, TopicConfig(topic, 2, 2))
        (broker_name,) = (await admin.cluster_info()).cluster_addr_table[CLUSTER]
        wiped = await admin.name_servers.wipe_write_perm(broker_name)
        try:
            assert wiped[namesrv] > 0
            assert (await admin.topics.route(topic)).queue_datas[0].perm == 4
        finally:
            await admin.name_servers.add_write_perm(broker_name)
        assert (await admin.topics.route(topic)).queue_datas[0].perm == 6


async def test_members_and_tracks_of_a_group_are_shown(namesrv: str, name: Name) -> None:
    topic, group, got = name("T"), name("G"), Collector()
    consumer = async_push_consumer(group, namesrv, got, consume_from_where=FROM_FIRST)
    consumer.subscribe(topic)
    async with async_producer(name("P"), namesrv) as producer, async_admin(namesrv) as admin:
        sent = await producer.send(Message(topic, b"x"))
        message = await admin.messages.view(topic, sent.offset_msg_id)
        async with consumer:
            await got.wait_for(1)
            await consumer.persist_consumer_offset()
            assert await admin.groups.is_online(group)
            assert topic in (await admin.groups.connections(group)).subscription_table
            assert group in await admin.topics.consumed_by(topic)
            assert group in await admin.groups.names()

            async def tracked() -> list[TrackType]:
                tracks = await admin.messages.track(message)
                return [track.track_type for track in tracks if track.consumer_group == group]

            assert await tracked() == [TrackType.CONSUMED]
            directly = await admin.messages.consume_directly(group, consumer.client_id, topic, sent.offset_msg_id)
            assert directly.consume_result is not None and directly.consume_result.name == "CR_SUCCESS"
            assert len(got.messages) == 2
            queue = MessageQueue(topic, sent.message_queue.broker_name, sent.message_queue.queue_id)
            members = await admin.offsets.of_members(group, topic)
            assert members[consumer.client_id][queue] == 1
        assert not await admin.groups.is_online(group)
        with pytest.raises(BrokerError) as offline:
            await admin.groups.connections(group)
        assert offline.value.code == 206
