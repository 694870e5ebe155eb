"""What operators do with static topics."""

import pytest

from maxq.api import (
    ConsumeContext,
    ConsumeFromWhere,
    Message,
    MessageExt,
    MessageQueue,
    MessageSelector,
    async_admin,
    async_producer,
    async_push_consumer,
)
from maxq.client.admin.admin import Admin
from maxq.errors import ClientError
from maxq.protocol.body.subscription import SubscriptionGroupConfig
from maxq.protocol.body.topic_config import TopicConfig
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import RunningBroker, until

FAST = {"poll_name_server_interval": 100, "heartbeat_broker_interval": 100}
GLOBAL = "__syslo__global__"


@pytest.fixture
async def brokers(start_broker: Start, namesrv: str) -> dict[str, RunningBroker]:
    return {name: await start_broker(name, **settings(name, namesrv)) for name in ("broker-a", "broker-b")}


def settings(name: str, namesrv: str) -> dict[str, object]:
    more = {"mappedFileSizeCommitLog": 8 << 20, "enablePropertyFilter": True}
    return {"brokerName": name, "namesrvAddr": namesrv, **more}


async def test_a_group_is_put_where_another_one_is(brokers: dict[str, RunningBroker], namesrv: str) -> None:
    """Numbers and offsets of physical queues were sent as global ones: the group passed over messages."""
    queues = [MessageQueue("Static", GLOBAL, number) for number in range(3)]
    async with async_admin(namesrv) as admin, async_producer("PG", namesrv, **FAST) as producer:
        await admin.static_topics.create("Static", 1, ["broker-b"])
        await admin.static_topics.create("Static", 3, ["broker-a", "broker-b"])
        await admin.static_topics.remap("Static", ["broker-a"])
        assert await admin.offsets.queues("Static") == queues
        for number in range(3):
            for queue in queues:
                await producer.send(Message("Static", b"%d" % number), queue=queue)
        ends = [await admin.offsets.max(queue) for queue in queues]
        assert ends[0] > 3 == ends[1]  # it has moved
        with pytest.raises(ClientError, match="group Source has no offsets of topic Static to clone"):
            await admin.offsets.clone("Source", "Target", "Static")
        for broker in brokers.values():
            for group in ("Source", "Target"):
                await admin.groups.create(broker.address, SubscriptionGroupConfig(group))
        with pytest.raises(ClientError, match="group Source has no offsets of topic Static to clone"):
            await admin.offsets.clone("Source", "Target", "Static")
        await admin.offsets.commit("Source", queues[0], ends[0] - 1)
        await admin.offsets.commit("Source", queues[1], 2)
        cloned = await admin.offsets.clone("Source", "Target", "Static")
        assert cloned == {queues[0]: ends[0] - 1, queues[1]: 2}
        for group in ("Source", "Target"):
            assert [await admin.offsets.committed(group, queue) for queue in queues[:2]] == [ends[0] - 1, 2]


async def test_a_reset_says_where_it_was_not_done(brokers: dict[str, RunningBroker], namesrv: str) -> None:
    async with async_admin(namesrv) as admin:
        await admin.static_topics.create("Static", 2, ["broker-a", "broker-b"])
        await admin.groups.create(brokers["broker-b"].address, SubscriptionGroupConfig("G"))
        with pytest.raises(ClientError, match=r"was reset on broker-b, but not on broker-a: .*Group G does not exist"):
            await admin.offsets.reset_by_time("G", "Static", 0)
        await brokers["broker-a"].stop()
        with pytest.raises(ClientError, match=r"was reset on broker-b, but not on the one that leads queue 0: .*away"):
            await admin.offsets.reset_by_time("G", "Static", 0)


async def test_an_operator_is_told_that_no_broker_leads_a_queue(
    brokers: dict[str, RunningBroker], namesrv: str
) -> None:
    async with async_admin(namesrv) as admin:
        await admin.static_topics.create("Static", 1, ["broker-b"])
        with pytest.raises(ClientError, match="no broker that is online leads queue 7 of static topic Static"):
            await admin.offsets.max(MessageQueue("Static", GLOBAL, 7))


async def _has_no_master(admin: Admin, name: str) -> bool:
    group = (await admin.cluster_info()).broker_addr_table.get(name)
    return group is None or group.master_address is None


async def test_what_a_broker_brings_back_of_a_deleted_topic_is_not_taken_into_the_new_one(
    brokers: dict[str, RunningBroker], start_broker: Start, namesrv: str
) -> None:
    """The next command took the old chain for the queue's, and new messages were never read."""
    names = ["broker-a", "broker-b"]
    async with async_admin(namesrv) as admin, async_producer("PG", namesrv, **FAST) as producer:
        await admin.static_topics.create("Static", 1, ["broker-a"])
        await producer.send(Message("Static", b"old"))
        await admin.static_topics.remap("Static", ["broker-b"])
        await brokers["broker-b"].stop()
        await until(lambda: _has_no_master(admin, "broker-b"))
        left = await admin.topics.delete("Static", "DefaultCluster")
        assert left.startswith("brokers with a part of static topic Static have no master now (broker-b, the one that ")
        await admin.static_topics.create("Static", 1, ["broker-a"])
        again = await start_broker("broker-b", **settings("broker-b", namesrv))
        for command in (admin.static_topics.create("Static", 2, names), admin.static_topics.remap("Static", names)):
            with pytest.raises(ClientError, match="broker-b still has an older topic of the name Static"):
                await command
        await admin.topics.delete_in_broker(again.address, "Static")
        await admin.static_topics.create("Static", 2, names)
        assert not await admin.topics.delete("Static", "DefaultCluster")


async def test_an_ordinary_topic_keeps_its_queues_when_a_broker_brings_a_static_one_of_the_name_back(
    brokers: dict[str, RunningBroker], start_broker: Start, namesrv: str
) -> None:
    """Its queues were seen by nobody: messages were not read, and none could be sent."""
    read: list[bytes] = []

    def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
        read.extend(message.body for message in messages)

    pulling, assigned = (
        async_push_consumer(
            f"Readers{by_client}", namesrv, listen, rebalance_interval=100, client_rebalance=by_client, **FAST,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        for by_client in (True, False)
    )  # fmt: skip
    async with async_admin(namesrv) as admin, async_producer("PG", namesrv, **FAST) as producer:
        await admin.static_topics.create("Static", 2, ["broker-a", "broker-b"])
        await producer.send(Message("Static", b"old"), queue=MessageQueue("Static", GLOBAL, 1))
        await brokers["broker-b"].stop()
        await until(lambda: _has_no_master(admin, "broker-b"))
        await admin.topics.delete("Static", "DefaultCluster")
        await admin.topics.create(brokers["broker-a"].address, TopicConfig("Static", 2, 2))
        sent = [b"%d" % number for number in range(8)]
        async with async_producer("PG2", namesrv, **FAST) as fresh:
            for body in sent[:4]:
                await fresh.send(Message("Static", body))
            await start_broker("broker-b", **settings("broker-b", namesrv))
            await until(lambda: _has_global_queues(admin))
            pulling.subscribe("Static")
            assigned.subscribe("Static")
            async with pulling, assigned:
                for body in sent[4:]:
                    await fresh.send(Message("Static", body))
                await until(lambda: all(read.count(body) == 2 for body in sent))


async def _has_global_queues(admin: Admin) -> bool:
    return any(queue.broker_name == GLOBAL for queue in await admin.offsets.queues("Static"))


async def test_consumers_start_and_read_while_the_broker_that_leads_the_first_queue_is_away(
    brokers: dict[str, RunningBroker], namesrv: str
) -> None:
    read: list[bytes] = []

    def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
        read.extend(message.body for message in messages)

    consumer = async_push_consumer(
        "Readers", namesrv, listen, rebalance_interval=100, client_rebalance=False, **FAST,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )  # fmt: skip
    consumer.subscribe("Static", MessageSelector.by_sql("TAGS IS NULL"))
    async with async_admin(namesrv) as admin, async_producer("PG", namesrv, **FAST) as producer:
        await admin.static_topics.create("Static", 2, ["broker-a", "broker-b"])
        await producer.send(Message("Static", b"there"), queue=MessageQueue("Static", GLOBAL, 1))
        await brokers["broker-a"].stop()
        await until(lambda: _has_no_master(admin, "broker-a"))
        async with consumer:
            await until(lambda: b"there" in read)
