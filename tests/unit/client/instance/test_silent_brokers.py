"""Consumers that heard nothing of their broker for long, because it was out of reach or they stood still: others may
have had their queues meanwhile. In virtual time."""

import asyncio
from collections.abc import Callable

import pytest

from maxq.client.client_config import LitePullConsumerConfig
from maxq.client.consumer.lite_pull_consumer import LitePullConsumer
from maxq.client.results.consume_result import ConsumeContext
from maxq.protocol.enums import ConsumeFromWhere
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message.message import MessageExt
from maxq.remoting.connection import Connection
from tests.unit.client.consumer.push_consumers import Q0, Got, make, start
from tests.unit.client.mock_broker import NAMESRV_ADDR, MockCluster, simulate, until

SILENCE_SECONDS = 70


async def be_silent(cluster: MockCluster, meanwhile: Callable[[], None]) -> None:
    """The broker answers nothing for a while."""
    cluster.broker.is_paused = True
    await asyncio.sleep(SILENCE_SECONDS)
    meanwhile()
    cluster.broker.is_paused = False


def another_member_consumes(cluster: MockCluster, up_to: int) -> Callable[[], None]:
    """More messages have come, and another member has had the queue and committed."""

    def work() -> None:
        while len(cluster.broker.queues[Q0]) < up_to:
            cluster.broker.put("T", b"%d" % len(cluster.broker.queues[Q0]))
        cluster.broker.committed["G", Q0] = up_to

    return work


def watch_commits(cluster: MockCluster) -> list[int]:
    """What the group's offset is after each request from now on."""
    seen: list[int] = []
    broker = cluster.broker
    usual = broker._process

    async def process(connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        answer = await usual(connection, request)
        seen.append(broker.committed.get(("G", Q0), -1))
        return answer

    broker.server.register_default(process)
    return seen


async def lite(cluster: MockCluster, *, auto_commit: bool = True) -> LitePullConsumer:
    config = LitePullConsumerConfig(
        namesrv_addr=NAMESRV_ADDR, consumer_group="G", auto_commit=auto_commit,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )  # fmt: skip
    consumer = LitePullConsumer(config, cluster.environment())
    await consumer.subscribe("T")
    return consumer


@pytest.mark.parametrize("is_orderly", [False, True])
def test_a_push_consumer_goes_on_where_another_member_is(is_orderly: bool) -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 4)
        got = Got()
        async with make(cluster, got, orderly=is_orderly):
            await until(lambda: len(got.bodies) == 4 and cluster.broker.committed.get(("G", Q0)) == 4, "the commit")
            await be_silent(cluster, another_member_consumes(cluster, 10))
            seen = watch_commits(cluster)
            cluster.broker.put("T", b"10")
            await until(lambda: b"10" in got.bodies, "the next message", 60)
            await until(lambda: cluster.broker.committed["G", Q0] == 11, "its commit", 60)
        assert got.bodies == [b"0", b"1", b"2", b"3", b"10"]
        assert min(seen) == 10, "the group's offset was moved back"

    simulate(story)


def test_an_orderly_consumer_drops_what_it_had_pulled_of_a_queue_that_another_has_gone_on_with() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 4)
        go_on, got = asyncio.Event(), list[bytes]()

        async def listener(messages: list[MessageExt], context: ConsumeContext) -> None:
            got.extend(message.body for message in messages)
            await go_on.wait()

        async with make(cluster, listener, orderly=True):
            await until(lambda: got, "the first call")
            await be_silent(cluster, another_member_consumes(cluster, 10))
            go_on.set()
            cluster.broker.put("T", b"10")
            await until(lambda: b"10" in got, "the next message", 60)
            await until(lambda: cluster.broker.committed["G", Q0] == 11, "its commit", 60)
        assert got == [b"0", b"10"]

    simulate(story)


@pytest.mark.parametrize("kind", ["push", "lite pull"])
@pytest.mark.parametrize(("up_to", "last"), [(4, "looks"), (10, "goes on")], ids=["nobody", "another member"])
def test_who_looks_where_the_group_is_says_whether_it_goes_on_there(kind: str, up_to: int, last: str) -> None:
    """A slave takes the commits of who goes on there for those of a consumer that has followed an operator's reset."""

    async def story(cluster: MockCluster) -> None:
        await start(cluster, 4)
        asked: list[str] = []
        usual = cluster.broker.query_offset

        def query(request: RemotingCommand) -> RemotingCommand:
            asked.append("looks" if request.ext.get("maxqOnlyLooks") == "true" else "goes on")
            return usual(request)

        cluster.broker.query_offset = query  # type: ignore[method-assign]
        async with make(cluster, Got()) if kind == "push" else await lite(cluster) as consumer:
            if isinstance(consumer, LitePullConsumer):
                await consumer.poll(10_000)
                await consumer.commit()
            await until(lambda: cluster.broker.committed.get(("G", Q0)) == 4, "the commit", 60)
            assert set(asked) == {"goes on"}
            asked.clear()
            await be_silent(cluster, another_member_consumes(cluster, up_to))
            await until(lambda: asked[-1:] == [last], "the look", 60)
        assert asked[0] == "looks"

    simulate(story)


@pytest.mark.parametrize("auto_commit", [True, False])
def test_a_lite_pull_consumer_goes_on_where_another_member_is(auto_commit: bool) -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 4)
        async with await lite(cluster, auto_commit=auto_commit) as consumer:
            got = [message.body for message in await consumer.poll()]
            await consumer.commit()
            await be_silent(cluster, another_member_consumes(cluster, 10))
            seen = watch_commits(cluster)
            cluster.broker.put("T", b"10")
            while b"10" not in got:
                got += [message.body for message in await consumer.poll(60_000)]
            await asyncio.sleep(10)
            await consumer.commit()
        assert got == [b"0", b"1", b"2", b"3", b"10"]
        assert min(seen) == 10, "the group's offset was moved back"
        assert cluster.broker.committed["G", Q0] == 11

    simulate(story)


def test_who_was_alone_goes_on_where_it_was() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 4)
        got = Got()
        async with make(cluster, got):
            await until(lambda: len(got.bodies) == 4, "four messages")
            cluster.broker.committed["G", Q0] = 1  # of a commit that came before the others
            await be_silent(cluster, lambda: None)
            cluster.broker.put("T", b"4")
            await until(lambda: cluster.broker.committed["G", Q0] == 5, "the commit", 60)
        assert got.bodies == [b"0", b"1", b"2", b"3", b"4"]

    simulate(story)
