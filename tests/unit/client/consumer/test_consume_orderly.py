"""Orderly consumption: locks, and messages one after the other; in virtual time."""

import asyncio

from maxq.client.results.consume_result import ConsumeContext, ConsumeResult
from maxq.codes import RequestCode
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message.message import MessageExt
from tests.unit.client.consumer.push_consumers import PULL, Q0, Got, make, start
from tests.unit.client.mock_broker import MockCluster, simulate, until


def test_an_orderly_consumer_locks_before_it_pulls_and_renews_its_locks() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 3)
        got = Got()
        async with make(cluster, got, orderly=True):
            await until(lambda: len(got.bodies) == 3, "three messages")
            await asyncio.sleep(60)
            locks = cluster.broker.times(RequestCode.LOCK_BATCH_MQ)
            pulls = [at for at, r in cluster.broker.seen if r.code == PULL and r.ext["topic"] == "T"]
            assert locks[0] < pulls[0]
            assert len([at for at in locks if at > 2_000]) in (2, 3)
            assert cluster.broker.locks
        assert not cluster.broker.locks, "leaving unlocks"

    simulate(story)


def test_a_queue_locked_by_somebody_else_waits_for_its_lock() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 3)
        cluster.broker.locks[Q0] = "somebody else"
        got = Got()
        async with make(cluster, got, orderly=True):
            await asyncio.sleep(10)
            assert not got.bodies
            del cluster.broker.locks[Q0]
            await until(lambda: len(got.bodies) == 3, "the queue, once it is free", 3)

    simulate(story)


def test_delivery_stops_when_the_lock_is_lost() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 1)
        got = Got()
        async with make(cluster, got, orderly=True):
            await until(lambda: len(got.bodies) == 1, "the first message")
            cluster.broker.locks[Q0] = "somebody else"
            await asyncio.sleep(25)  # one renewal
            cluster.broker.put("T", b"later")
            await asyncio.sleep(20)
            assert got.bodies == [b"0"]
            del cluster.broker.locks[Q0]
            await until(lambda: got.bodies == [b"0", b"later"], "the second, under our lock again")

    simulate(story)


def test_an_orderly_queue_that_comes_back_while_its_listener_is_busy_is_served_again() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 3)
        gate = asyncio.Event()
        seen: list[bytes] = []

        async def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
            if not gate.is_set():
                await gate.wait()
            seen.append(messages[0].body)

        async with make(cluster, listen, orderly=True) as consumer:
            await until(lambda: Q0 in cluster.broker.locks, "the queue is ours")
            await asyncio.sleep(1)
            members, note = cluster.broker.members["G"], RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
            members["10.0.9.9@0#first"] = members[consumer.client_id]  # takes the only queue
            members[consumer.client_id].send_oneway(RemotingCommand(note, {"consumerGroup": "G"}))
            await asyncio.sleep(2)
            assert Q0 in cluster.broker.locks, "not given up while the listener has a message of it"
            del members["10.0.9.9@0#first"]
            await asyncio.sleep(2)
            gate.set()
            await until(lambda: set(seen) == {b"0", b"1", b"2"}, "the queue goes on", 10)

    simulate(story)


def test_an_orderly_message_goes_to_the_retry_topic_after_its_tries() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 2)
        got = Got(
            lambda m, _: ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT if m.body == b"0" else ConsumeResult.SUCCESS
        )
        async with make(cluster, got, orderly=True, max_reconsume_times=2, suspend_current_queue_time=100):
            await until(lambda: b"1" in got.bodies, "the queue goes on")
            assert got.bodies[:4] == [b"0", b"0", b"0", b"1"]
        copies = [r for r in cluster.broker.requests(RequestCode.SEND_MESSAGE_V2) if r.ext["b"] == "%RETRY%G"]
        assert copies[0].ext["j"] == "3"

    simulate(story)
