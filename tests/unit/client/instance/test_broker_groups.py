"""Consumers of a master and a slave, of which one dies, lags or refuses (ha.md §6.2); in virtual time."""

import asyncio
from typing import Any

import pytest

from maxq.client.client_config import LitePullConsumerConfig
from maxq.client.consumer.lite_pull_consumer import LitePullConsumer
from maxq.client.instance.broker_table import SUSPECT_MS, SUSPECT_MS_MAX, BrokerTable
from maxq.client.results.consume_result import ConsumeContext, ConsumeResult
from maxq.codes import RequestCode
from maxq.errors import RemoteProtocolError
from maxq.protocol.body.heartbeat import HeartbeatData
from maxq.protocol.enums import ConsumeFromWhere, MessageModel
from maxq.protocol.message.message import MessageExt
from maxq.testing.sim_clock import SimClock
from tests.unit.client.consumer.push_consumers import FIRST, PULL, Q0, Got, make
from tests.unit.client.instance.broker_groups import COMMIT, QUERY, group_of, pulls
from tests.unit.client.mock_broker import NAMESRV_ADDR, MockCluster, simulate, until

NEVER = 3_600_000
ROUNDS = (
    "poll_name_server_interval", "heartbeat_broker_interval", "persist_consumer_offset_interval", "rebalance_interval"
)  # fmt: skip


# --- the table ---


def test_a_suspect_is_avoided_for_longer_each_time_and_trusted_when_it_answers() -> None:
    clock = SimClock()
    table = BrokerTable(clock)
    table.replace("b", {0: "m:1", 1: "s:1"})

    def reader() -> str:
        broker = table.reader("b", 0)
        assert broker is not None
        return broker.address

    assert reader() == "m:1"
    for length_ms in (SUSPECT_MS, 2 * SUSPECT_MS, 4 * SUSPECT_MS, SUSPECT_MS_MAX, SUSPECT_MS_MAX):
        table.suspect("m:1")
        table.suspect("m:1")  # at the same time: counts once
        clock.advance_ms(length_ms - 1)
        assert reader() == "s:1"
        assert [broker.address for broker in table.candidates("b")] == ["s:1", "m:1"]
        clock.advance_ms(1)
        assert reader() == "m:1"
    table.suspect("m:1")
    table.trust("m:1")
    assert reader() == "m:1"
    table.suspect("m:1")
    table.suspect("s:1")
    assert reader() == "m:1", "all are suspect: the one that was asked for"
    slave = table.reader("b", 1)
    assert slave is not None and slave.address == "s:1"
    clock.advance_ms(SUSPECT_MS)
    assert not table.is_suspect("m:1"), "after it was trusted the first time counts again"


# --- a master that dies ---


@pytest.mark.parametrize("name_server_knows", [True, False])
def test_a_consumer_reads_on_from_the_slave_and_returns(name_server_knows: bool) -> None:
    async def story(cluster: MockCluster) -> None:
        group = await group_of(cluster, 3)
        got = Got()
        async with make(cluster, got):
            await until(lambda: len(got.bodies) == 3, "what was there")
            assert not pulls(group.slave)
            await group.master.stop()
            if name_server_knows:
                group.route(master=False)
            group.put(b"while it is dead")
            await until(lambda: len(got.bodies) == 4, "a message from the slave", 5)
            of_slave = {(int(ext["sysFlag"]) & 1, ext["commitOffset"]) for ext in pulls(group.slave)}
            assert of_slave == {(0, "0")}, "no commit along with such a pull"
            await until(lambda: group.slave.committed.get(("G", Q0)) == 4, "the offset at the slave", 20)
            await group.master.start()
            group.route()
            seen = len(group.master.seen)
            group.put(b"back")
            await until(lambda: len(got.bodies) == 5, "the next one")
            await until(lambda: group.master.committed.get(("G", Q0)) == 5, "the offset at the master", 40)
            group.put(b"again")  # ends a pull that still waits at the slave
            await until(
                lambda: any(r.code == PULL and r.ext["topic"] == "T" for _, r in group.master.seen[seen:]),
                "the master is asked again", 60,
            )  # fmt: skip
        assert got.bodies == [b"0", b"1", b"2", b"while it is dead", b"back", b"again"]

    simulate(story)


def test_a_reader_at_a_stand_in_asks_for_the_master_long_before_the_route_is_due() -> None:
    async def story(cluster: MockCluster) -> None:
        group = await group_of(cluster, 1)
        await group.master.stop()
        group.route(master=False)
        got = Got()
        settings: dict[str, Any] = dict.fromkeys(ROUNDS, NEVER)
        async with make(cluster, got, **settings):
            await until(lambda: len(got.bodies) == 1, "a message from the slave")
            await asyncio.sleep(30)  # the rounds that a start brings are over
            await group.master.start()
            group.route()
            await until(lambda: bool(pulls(group.master)), "the master", 60)

    simulate(story)


def test_an_offset_goes_to_the_master_also_while_that_is_suspect() -> None:
    async def story(cluster: MockCluster) -> None:
        group = await group_of(cluster, 3)
        got = Got()
        async with make(cluster, got, persist_consumer_offset_interval=3_600_000) as consumer:
            await until(lambda: len(got.bodies) == 3, "three")
            consumer._running().brokers.suspect(group.master.address)
            await consumer.persist_consumer_offset()
            await until(lambda: group.master.committed.get(("G", Q0)) == 3, "the offset at the master", 1)
        assert not group.slave.requests(COMMIT)

    simulate(story)


def test_what_was_done_is_committed_to_the_slave_by_a_consumer_that_stops_while_the_master_is_dead() -> None:
    async def story(cluster: MockCluster) -> None:
        group = await group_of(cluster, 3)
        got = Got()
        async with make(cluster, got, persist_consumer_offset_interval=3_600_000):
            await until(lambda: len(got.bodies) == 3, "three")
            await group.master.stop()
        assert group.slave.committed["G", Q0] == 3

    simulate(story)


def test_offsets_are_asked_of_the_master_first_and_of_the_slave_while_it_is_dead() -> None:
    async def story(cluster: MockCluster) -> None:
        group = await group_of(cluster, 5)
        group.master.committed["G", Q0] = 4
        group.slave.committed["G", Q0] = 3
        got = Got()
        async with make(cluster, got):
            await until(lambda: got.bodies == [b"4"], "the master's offset")
        assert not group.slave.requests(QUERY)
        group.slave.committed["G", Q0] = 3
        await group.master.stop()
        late = Got()
        async with make(cluster, late):
            await until(lambda: late.bodies == [b"3", b"4"], "the slave's offset")

    simulate(story)


def test_a_queue_whose_offset_only_a_dead_master_knows_is_not_taken() -> None:
    async def story(cluster: MockCluster) -> None:
        group = await group_of(cluster, 5)
        group.master.committed["G", Q0] = 2
        await group.master.stop()
        got = Got()
        async with make(cluster, got, consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET):
            await until(lambda: len(group.slave.requests(QUERY)) >= 3, "it asks on")
            assert not pulls(group.slave), "starting at the end would pass over messages"
            await group.master.start()
            await until(lambda: got.bodies == [b"2", b"3", b"4"], "the master's offset")

    simulate(story)


def test_an_orderly_consumer_waits_for_its_master_because_only_that_locks() -> None:
    async def story(cluster: MockCluster) -> None:
        group = await group_of(cluster, 2)
        got = Got()
        async with make(cluster, got, orderly=True):
            await until(lambda: len(got.bodies) == 2, "two")
            await group.master.stop()
            await asyncio.sleep(60)
            group.put(*(b"later %d" % n for n in range(3)))
            await asyncio.sleep(60)
            assert len(got.bodies) == 2, "the locks are over"
            assert not group.slave.requests(RequestCode.LOCK_BATCH_MQ)
            await group.master.start()
            await until(lambda: len(got.bodies) == 5, "the rest")
        assert got.bodies == [b"0", b"1", b"later 0", b"later 1", b"later 2"]
        assert group.master.committed["G", Q0] == 5

    simulate(story)


def test_broadcasting_and_lite_pull_read_on_from_the_slave() -> None:
    async def story(cluster: MockCluster) -> None:
        group = await group_of(cluster, 2)
        got = Got()
        lite_got: list[MessageExt] = []
        lite = LitePullConsumer(
            LitePullConsumerConfig(namesrv_addr=NAMESRV_ADDR, consumer_group="L", consume_from_where=FIRST),
            cluster.environment(),
        )
        await lite.subscribe("T")
        async with make(cluster, got, message_model=MessageModel.BROADCASTING), lite:
            while len(lite_got) < 2:
                lite_got += await lite.poll()
            await until(lambda: len(got.bodies) == 2, "two")
            await group.master.stop()
            group.put(b"from the slave")
            while len(lite_got) < 3:
                lite_got += await lite.poll()
            await until(lambda: len(got.bodies) == 3, "the third")
            await lite.commit({Q0: 3})
            assert group.slave.committed["L", Q0] == 3
            assert (await lite.offset_for_timestamp(Q0, 0)) == 0

    simulate(story)


def test_members_are_asked_of_the_slave_while_the_master_is_dead() -> None:
    async def story(cluster: MockCluster) -> None:
        group = await group_of(cluster, 2)
        group.slave.committed["G", Q0] = 0
        await group.master.stop()
        got = Got()
        async with make(cluster, got):
            await until(lambda: len(got.bodies) == 2, "two")
        assert group.slave.requests(RequestCode.GET_CONSUMER_LIST_BY_GROUP)

    simulate(story)


# --- what must not stop a round ---


def test_an_unreadable_answer_to_a_heartbeat_does_not_fail_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(cluster: MockCluster) -> None:
        group = await group_of(cluster, 2)
        got = Got()
        async with make(cluster, got) as consumer:
            await until(lambda: len(got.bodies) == 2, "two")
            api = consumer._running().api
            heartbeat = api.heartbeat

            async def unreadable(address: str, data: HeartbeatData) -> int:
                if address == group.master.address:
                    raise RemoteProtocolError("the answer is not readable")
                return await heartbeat(address, data)

            monkeypatch.setattr(api, "heartbeat", unreadable)
            await consumer._running().heartbeat_all()
            beats = len(group.slave.heartbeats)
            await until(lambda: len(group.slave.heartbeats) > beats, "the next round")

    simulate(story)


def test_a_queue_that_is_given_up_is_not_taken_again_before_its_listener_has_ended() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        cluster.route("%RETRY%G")
        for n in range(3):
            cluster.broker.put("T", b"%d" % n)
        gate, running = asyncio.Event(), [0, 0]

        async def slow(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
            running[0] += 1
            running[1] = max(running)
            await gate.wait()
            running[0] -= 1
            return ConsumeResult.SUCCESS

        async with make(cluster, slow, orderly=True) as consumer:
            await until(lambda: running[0] == 1, "the listener is at work")
            held = consumer._rebalance.process_queues[Q0]
            dropping = asyncio.create_task(consumer._rebalance.drop(Q0))
            await asyncio.sleep(3)
            await consumer.do_rebalance()
            assert consumer._rebalance.process_queues[Q0] is held and held.dropped
            assert running == [1, 1]
            gate.set()
            await dropping
            await until(lambda: consumer._rebalance.process_queues.get(Q0) not in (None, held), "taken anew")
            await until(lambda: cluster.broker.committed.get(("G", Q0)) == 3, "all done")
        assert running == [0, 1]

    simulate(story)
