"""Which broker of a group a consumer reads from, as answers, users and refusals say (ha.md §6.2); in virtual time."""

import asyncio
from typing import cast

import pytest

from maxq.client.instance.broker_table import SUSPECT_MS
from maxq.client.instance.mq_client import MQClientInstance
from maxq.client.instance.pull_api import PullAPIWrapper
from maxq.codes import ResponseCode
from maxq.protocol.enums import ConsumeFromWhere
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message.message_queue import MessageQueue
from tests.unit.client.consumer.push_consumers import PULL, Q0, Got, make
from tests.unit.client.instance.broker_groups import COMMIT, Q1, QUERY, group_of, pulls
from tests.unit.client.mock_broker import MockBroker, MockCluster, simulate, until


def suggesting(broker: MockBroker, ids: dict[int, int]) -> None:
    """Have a broker suggest another one for each queue: queue id → broker id."""

    async def answer(request: RemotingCommand) -> RemotingCommand:
        told = await broker.serve_pull(request)
        if request.ext["topic"] == "T":
            told.ext["suggestWhichBrokerId"] = str(ids[int(request.ext["queueId"])])
        return told

    broker.scripts[PULL] = answer


def test_each_queue_is_read_from_the_broker_that_its_own_last_answer_names() -> None:
    pulls_of = PullAPIWrapper(
        cast(MQClientInstance, None), "G", (), unit_mode=False, connect_broker_by_user=None
    )  # fmt: skip
    pulls_of.update_pull_from_which_node(Q0, 1)
    pulls_of.update_pull_from_which_node(Q1, 2)
    found = [pulls_of.recalculate_pull_from_which_node(queue) for queue in (Q0, Q1, MessageQueue("T", "broker-b", 0))]
    assert found == [1, 2, 0]


def test_a_broker_that_the_user_chose_is_read_whatever_answers_suggest() -> None:
    async def story(cluster: MockCluster) -> None:
        group = await group_of(cluster, 100)
        got = Got()
        async with make(cluster, got, connect_broker_by_user=1):
            await until(lambda: len(got.bodies) == 100, "all from the slave")
            assert not pulls(group.master)
            await until(lambda: group.master.committed.get(("G", Q0)) == 100, "the offset at the master", 20)
            assert not group.slave.requests(COMMIT)
            await group.slave.stop()
            group.put(b"while it is dead")
            await until(lambda: len(got.bodies) == 101, "another of the group serves", 5)

    simulate(story)


def test_an_answer_without_messages_names_the_next_broker_too_and_a_queue_that_is_left_is_forgotten() -> None:
    async def story(cluster: MockCluster) -> None:
        group = await group_of(cluster)
        suggesting(group.master, {0: 1})
        suggesting(group.slave, {0: 1})
        async with make(cluster, Got(), broker_suspend_max_time=1_000) as consumer:
            await until(lambda: bool(pulls(group.slave)), "the slave, that the master's empty answer named", 10)
            assert len(pulls(group.master)) == 1
            await consumer._rebalance.drop(Q0)
            await consumer.do_rebalance()
            await until(lambda: len(pulls(group.master)) == 2, "the master, as for any new queue", 10)

    simulate(story)


def test_a_slave_that_does_not_know_the_group_yet_is_not_left() -> None:
    """Its copy of the tables, or our heartbeat, is on the way."""

    async def story(cluster: MockCluster) -> None:
        group = await group_of(cluster, 100)
        suggesting(group.master, {0: 1})
        refusals = iter([True, True])

        async def answer(request: RemotingCommand) -> RemotingCommand | None:
            if request.ext["topic"] == "T" and next(refusals, False):
                return request.reply(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist")
            return await group.slave.serve_pull(request)

        group.slave.scripts[PULL] = answer
        got = Got()
        async with make(cluster, got):
            await until(lambda: len(pulls(group.slave)) >= 3, "the slave is asked on", 20)
            assert len(pulls(group.master)) == 1

    simulate(story)


def test_an_offset_is_asked_of_the_master_also_while_that_is_suspect() -> None:
    async def story(cluster: MockCluster) -> None:
        group = await group_of(cluster, 5)
        group.master.committed["G", Q0] = 4
        group.slave.committed["G", Q0] = 3
        got = Got()
        async with make(cluster, got, consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET) as consumer:
            await until(lambda: got.bodies == [b"4"], "the master's offset")
            await consumer._rebalance.drop(Q0)
            consumer._running().brokers.suspect(group.master.address)
            await consumer.do_rebalance()
            await until(lambda: len(group.master.requests(QUERY)) >= 2, "the master is asked again", 10)
        assert not [request for request in group.slave.requests(QUERY) if request.ext["topic"] == "T"]

    simulate(story)


def test_filtered_messages_are_passed_without_a_pause_and_a_slave_that_lacks_some_is_left_without_one() -> None:
    async def story(cluster: MockCluster) -> None:
        group = await group_of(cluster, 100)

        async def filtered(request: RemotingCommand) -> RemotingCommand:
            told = await group.master.serve_pull(request)
            offset = int(request.ext["queueOffset"])
            if request.ext["topic"] == "T" and offset < 90:
                told = request.reply(ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE", dict(told.ext))
                told.ext["nextBeginOffset"] = str(offset + 10)
                told.ext["suggestWhichBrokerId"] = "1" if offset == 80 else "0"
            return told

        def lacks(request: RemotingCommand) -> RemotingCommand:
            ext = {"nextBeginOffset": request.ext["queueOffset"], "minOffset": "0", "maxOffset": "1"}
            ext["suggestWhichBrokerId"] = "0"
            return request.reply(ResponseCode.PULL_RETRY_IMMEDIATELY, "OFFSET_OVERFLOW_BADLY", ext)

        group.master.scripts[PULL], group.slave.scripts[PULL] = filtered, lacks
        got = Got()
        async with make(cluster, got):
            await until(lambda: bool(pulls(group.master)), "the first pull")
            await until(lambda: len(got.bodies) == 10, "the last ten", 0.9)
        assert [ext["queueOffset"] for ext in pulls(group.slave)] == ["90"]

    simulate(story)


def test_a_master_that_refuses_is_not_left_for_its_slave() -> None:
    """It is too busy for a moment, or forbids the group: the slave's copy of its tables says the same, later."""

    async def story(cluster: MockCluster) -> None:
        group = await group_of(cluster, 3)
        group.master.scripts[PULL] = lambda request: request.reply(2, "[REJECTREQUEST]system busy")
        got = Got()
        async with make(cluster, got):
            await until(lambda: len(pulls(group.master)) >= 5, "the master is asked on")
            group.master.scripts.clear()
            await until(lambda: len(got.bodies) == 3, "three")
        assert not pulls(group.slave)

    simulate(story)


@pytest.mark.parametrize("how", ["dies", "refuses"])
def test_a_slave_that_does_not_serve_is_left_for_the_master(how: str) -> None:
    async def story(cluster: MockCluster) -> None:
        group = await group_of(cluster, 100)
        group.master.suggest_which_broker_id = group.slave.suggest_which_broker_id = 1
        if how == "dies":
            await group.slave.stop()
        else:
            group.slave.scripts[PULL] = lambda request: request.reply(2, "[REJECTREQUEST]slaveReadEnable is false")
        got = Got()
        async with make(cluster, got):
            await until(lambda: len(got.bodies) == 100, "all from the master", 5)
            group.slave.scripts.clear()
            if how == "dies":
                await group.slave.start()
            group.put(*(b"more %d" % n for n in range(40)))
            await until(lambda: len(got.bodies) == 140, "more")
            if how == "refuses":
                assert len(pulls(group.slave)) <= 2
            await asyncio.sleep(SUSPECT_MS * 4 / 1000)
            group.put(b"the last")
            await until(lambda: bool(pulls(group.slave)), "the slave again")

    simulate(story)


def test_a_consumer_ahead_of_a_lagging_slave_does_not_ask_in_a_circle_nor_lose_its_place() -> None:
    async def story(cluster: MockCluster) -> None:
        group = await group_of(cluster, 3)

        def lag(request: RemotingCommand) -> RemotingCommand:
            offset, held = int(request.ext["queueOffset"]), len(group.slave.queues[Q0])
            if request.ext["topic"] != "T" or offset < held:
                queue = MessageQueue(request.ext["topic"], "broker-a", 0)
                return group.slave.pull_answer(request, queue, offset)
            ext = {"nextBeginOffset": str(offset), "minOffset": "0", "maxOffset": str(held)}
            ext["suggestWhichBrokerId"] = "0"
            return request.reply(ResponseCode.PULL_RETRY_IMMEDIATELY, "OFFSET_OVERFLOW_BADLY", ext)

        group.slave.scripts[PULL] = lag
        group.master.put("T", b"the slave lacks this")
        got = Got()
        async with make(cluster, got):
            await until(lambda: len(got.bodies) == 4, "four")
            await until(lambda: group.master.committed.get(("G", Q0)) == 4, "committed")
            await group.master.stop()
            await asyncio.sleep(8)
            assert 3 <= len(pulls(group.slave)) <= 10, "about one a second"
            assert {ext["queueOffset"] for ext in pulls(group.slave)} == {"4"}
            group.slave.put("T", b"the slave lacks this")
            group.slave.put("T", b"next")
            await until(lambda: got.bodies[-1] == b"next", "it goes on", 5)
        assert got.bodies == [b"0", b"1", b"2", b"the slave lacks this", b"next"]

    simulate(story)
