"""Quotas of topics, groups and users on a running broker."""

import asyncio

import pytest

from maxq.codes import ResponseCode
from maxq.protocol.body.subscription import SubscriptionGroupConfig
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.frame.remoting_command import RemotingCommand
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import SUBSCRIPTION, SUSPEND, RunningBroker, until
from tests.integration.broker.pop.pop_world import GROUP, pop_request, popped


def set_quota(broker: RunningBroker, topic: str, **quota: int) -> None:
    changes = {f"+quota.{name}": str(value) for name, value in quota.items()}
    broker.controller.topics.update_topic_config(TopicConfig(topic, 1, 1, 6, attributes=changes))


async def test_sends_above_a_topic_s_quota_are_refused_as_busy(broker: RunningBroker) -> None:
    broker.create_topic("orders", queues=1)
    set_quota(broker, "orders", bytes=50)
    assert (await broker.send("orders", b"x" * 10_000)).code == 0  # worth minutes
    reply = await broker.send("orders", b"x")
    assert reply.code == 2 and "[QUOTA]" in (reply.remark or "")
    assert "the limit is 50 bytes a second (attribute quota.bytes of the topic)" in (reply.remark or "")
    assert broker.controller.fast_failure.refused.by_cause["QUOTA"] == 1
    broker.create_topic("other", queues=1)
    assert (await broker.send("other", b"x")).code == 0


async def test_a_topic_is_open_again_when_its_debt_is_over_or_the_quota_is_gone(broker: RunningBroker) -> None:
    broker.create_topic("orders", queues=1)
    set_quota(broker, "orders", bytes=1000)
    tail = broker.controller.store.queues.topic_write_state("orders")
    assert (await broker.send("orders", b"x" * 1200)).code == 0
    await until(lambda: not tail.is_fast_path_open)
    assert (await broker.send("orders", b"x")).code == 2
    await until(lambda: tail.is_fast_path_open)
    assert (await broker.send("orders", b"x" * 100_000)).code == 0
    await until(lambda: not tail.is_fast_path_open)
    broker.controller.topics.update_topic_config(TopicConfig("orders", 1, 1, 6, attributes={"-quota.bytes": ""}))
    assert tail.is_fast_path_open and (await broker.send("orders", b"x")).code == 0


async def test_a_quota_is_there_after_a_restart(start_broker: Start) -> None:
    first = await start_broker()
    first.create_topic("orders", queues=1)
    set_quota(first, "orders", bytes=10)
    await first.stop()
    second = await start_broker()
    tail = second.controller.store.queues.topic_write_state("orders")
    assert (await second.send("orders", b"x" * 10_000)).code == 0
    await until(lambda: not tail.is_fast_path_open)
    assert (await second.send("orders", b"x")).code == 2


async def test_a_group_above_its_quota_waits_for_its_messages(broker: RunningBroker) -> None:
    broker.create_topic("orders", queues=1)
    for _ in range(40):
        await broker.send("orders", b"x")
    broker.controller.groups.update_subscription_group_config(
        SubscriptionGroupConfig(group_name="G", attributes={"+quota.messages": "20"})
    )
    loop = asyncio.get_running_loop()
    began = loop.time()
    first = await broker.pull("orders", 0, max_nums=32)
    second = await broker.pull("orders", 32, max_nums=32, sys_flag=SUBSCRIPTION | SUSPEND, wait_ms=5000)
    assert first.code == second.code == 0
    assert loop.time() - began >= 0.6  # 12 above the quota at 20 a second
    other = await broker.pull("orders", 0, group="H")
    assert other.code == 0


async def test_a_pull_that_may_not_be_held_so_long_finds_nothing(broker: RunningBroker) -> None:
    broker.create_topic("orders", queues=1)
    await broker.send("orders", b"x" * 5000)
    broker.controller.groups.update_subscription_group_config(
        SubscriptionGroupConfig(group_name="G", attributes={"+quota.bytes": "100"})
    )
    assert (await broker.pull("orders", 0)).code == 0
    reply = await broker.pull("orders", 0, sys_flag=SUBSCRIPTION | SUSPEND, wait_ms=50)
    assert (reply.code, reply.ext["nextBeginOffset"]) == (19, "0")
    assert "group G is" in (reply.remark or "") and "100 bytes a second" in (reply.remark or "")
    assert broker.controller.fast_failure.pulls.count == 0


async def test_pops_of_a_group_above_its_quota_wait_too(broker: RunningBroker) -> None:
    broker.create_topic("orders", queues=1)
    for _ in range(40):
        await broker.send("orders", b"x")
    broker.controller.groups.update_subscription_group_config(
        SubscriptionGroupConfig(group_name=GROUP, attributes={"+quota.messages": "10"})
    )
    assert len(await popped(broker, "orders", max_msg_nums=32)) == 32
    reply = await broker.invoke(pop_request("orders", max_msg_nums=32, poll_time=50))
    assert reply.code == ResponseCode.POLLING_TIMEOUT and "10 messages a second" in (reply.remark or "")
    assert len(await popped(broker, "orders", max_msg_nums=32, poll_time=10_000)) == 8


async def test_a_broker_that_ends_does_not_wait_for_quotas(start_broker: Start) -> None:
    broker = await start_broker()
    broker.create_topic("orders", queues=1)
    await broker.send("orders", b"x" * 5000)
    broker.controller.groups.update_subscription_group_config(
        SubscriptionGroupConfig(group_name="G", attributes={"+quota.bytes": "1"})
    )
    assert (await broker.pull("orders", 0)).code == 0
    waiting = asyncio.ensure_future(broker.pull("orders", 0, sys_flag=SUBSCRIPTION | SUSPEND, wait_ms=60_000))
    await until(lambda: broker.controller.fast_failure.pulls.count == 1)
    async with asyncio.timeout(20):
        await broker.controller.shutdown()
    await asyncio.gather(waiting, return_exceptions=True)


@pytest.mark.parametrize("plain", [True, False])
async def test_a_user_above_his_quota_is_refused_on_both_paths(broker: RunningBroker, plain: bool) -> None:
    broker.create_topic("orders", queues=1)
    broker.settings.update({"userQuotas": "alice:messages=2"})
    of_alice = {"AccessKey": "alice"}
    assert (await broker.invoke(RemotingCommand(26, of_alice))).code == 0
    for number in range(4):
        request = broker.send_request("orders", b"x", UNIQ_KEY=f"k{number}")
        request.ext |= {} if plain else of_alice
        await broker.invoke(request)
    charged = broker.controller.quotas._of_user["alice"].charged_messages
    assert charged >= 2
    for _ in range(50):  # a busy machine may take so long that some of them are within the quota
        request = broker.send_request("orders", b"x", UNIQ_KEY="last")
        request.ext |= of_alice
        reply = await broker.invoke(request)
        if reply.code:
            break
    assert reply.code == 2 and "[QUOTA]" in (reply.remark or "")
    assert "2 messages a second (messages of userQuotas)" in (reply.remark or "")


async def test_without_quotas_no_timer_runs(broker: RunningBroker) -> None:
    assert broker.controller.quotas._timer is None
    assert not broker.controller.quotas.limits_pulls and not broker.controller.quotas.limits_users
