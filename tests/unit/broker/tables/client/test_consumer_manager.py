"""Which consumers are online, and who is told when that changes."""

import asyncio
import logging

import pytest

from maxq.broker.tables.client.consumer_ids_notifier import BATCH_INTERVAL_MS, FRAME_INTERVAL_MS
from maxq.broker.tables.client.housekeeping import ClientHousekeepingService
from maxq.codes import RequestCode
from maxq.testing.sim_clock import SimClock
from maxq.testing.simulation import SimWorld, run_simulation
from tests.unit.broker.broker_world import BrokerWorld, FakeConnection, connection

NOTIFY = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED


async def turns() -> None:
    """Let the loop send what waits for its next turn."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_new_member_is_told_to_all_members_behind_the_answer_to_its_heartbeat() -> None:
    world, first = BrokerWorld(), FakeConnection()
    await world.heartbeat(first, "c1")
    assert first.codes() == []
    await turns()
    assert first.codes() == [NOTIFY]
    assert first.sent[0].ext == {"consumerGroup": "G"}
    assert first.sent[0].is_oneway
    world.notifier.close()


async def test_a_repeated_heartbeat_tells_nobody() -> None:
    world, first = BrokerWorld(), FakeConnection()
    await world.heartbeat(first, "c1")
    await turns()
    first.sent.clear()
    await world.heartbeat(first, "c1")
    await turns()
    assert first.sent == []
    world.notifier.close()


async def test_members_of_a_broadcasting_group_are_not_told() -> None:
    world, first, second = BrokerWorld(), FakeConnection("a:1"), FakeConnection("b:1")
    await world.heartbeat(first, "c1", model="BROADCASTING")
    await world.heartbeat(second, "c2", model="BROADCASTING")
    await turns()
    assert first.sent == second.sent == []


async def test_a_group_may_switch_the_telling_off() -> None:
    world, first = BrokerWorld(), FakeConnection()
    await world.call(200, None, {"groupName": "G", "notifyConsumerIdsChangedEnable": False})
    await world.heartbeat(first, "c1")
    await turns()
    assert first.sent == []


async def test_topics_come_and_go_and_newer_expressions_win() -> None:
    world, fake = BrokerWorld(), FakeConnection()
    await world.heartbeat(fake, "c1", topics={"T": 1, "U": 1})
    info = world.consumers.get_consumer_group_info("G")
    assert info is not None and set(info.subscription_table) == {"T", "U"}
    await world.heartbeat(fake, "c1", topics={"T": 5})
    assert {name: sub.sub_version for name, sub in info.subscription_table.items()} == {"T": 5}
    await world.heartbeat(fake, "c1", topics={"T": 3})
    assert info.subscription_table["T"].sub_version == 5
    assert world.consumers.query_topic_consume_by_who("T") == {"G"}
    assert world.consumers.query_topic_consume_by_who("U") == set()
    world.notifier.close()


async def test_a_closed_connection_takes_its_members_out_of_all_their_groups() -> None:
    world, first, second = BrokerWorld(), FakeConnection("a:1"), FakeConnection("b:1")
    for group in ("G", "H"):
        await world.heartbeat(first, "c1", group, producers=("P",))
    await world.heartbeat(second, "c2", "G")
    second.sent.clear()
    events: list[str] = []
    service = ClientHousekeepingService(world.consumers, world.producers, world.locks, count_event=events.append)
    service.on_close(connection(first))
    service.on_close(connection(first))
    left = world.consumers.get_consumer_group_info("G")
    assert left is not None and left.client_ids() == ["c2"]
    assert world.consumers.get_consumer_group_info("H") is None
    assert world.producers.find_channel("c1") is None
    assert events == ["CLOSE", "CLOSE"]
    world.notifier.close()


async def test_clients_that_fell_silent_are_dropped_and_closed() -> None:
    world, silent, alive = BrokerWorld(), FakeConnection("a:1"), FakeConnection("b:1")
    await world.heartbeat(silent, "c1", producers=("P",))
    world.clock.advance_ms(100_000)
    await world.heartbeat(alive, "c2", producers=("P",))
    world.clock.advance_ms(20_001)
    service = ClientHousekeepingService(world.consumers, world.producers, world.locks, count_event=lambda event: None)
    service.scan()
    info = world.consumers.get_consumer_group_info("G")
    assert info is not None and info.client_ids() == ["c2"]
    assert (silent.is_closed, alive.is_closed) == (True, False)
    assert list(world.producers.group_channel_table["P"]) == [alive]
    world.notifier.close()


async def test_a_jump_of_the_wall_clock_drops_nobody() -> None:
    world, fake = BrokerWorld(), FakeConnection()
    await world.heartbeat(fake, "c1")
    world.clock.jump_wall_ms(10 * 3600_000)
    world.consumers.scan_not_active_channel()
    assert world.consumers.find_channel("G", "c1") is not None
    world.notifier.close()


async def test_leaving_tells_the_members_that_stay() -> None:
    world, first, second = BrokerWorld(), FakeConnection("a:1"), FakeConnection("b:1")
    await world.heartbeat(first, "c1")
    await world.heartbeat(second, "c2")
    await world.call(35, {"clientID": "c1", "consumerGroup": "G", "producerGroup": ""}, fake=first)
    info = world.consumers.get_consumer_group_info("G")
    assert info is not None and info.client_ids() == ["c2"]
    world.notifier.close()


def told(fakes: list[FakeConnection]) -> int:
    return sum(len(fake.sent) for fake in fakes)


def in_virtual_time(story: object) -> None:
    """Run `story(world)` on the simulated loop, with the broker's clock."""

    async def main(sim: SimWorld) -> None:
        await story(sim)  # type: ignore[operator]

    run_simulation(main, seed=1, clock=SimClock())


def test_a_storm_of_new_members_is_told_a_bounded_number_of_times_and_the_last_change_is_told() -> None:
    async def story(sim: SimWorld) -> None:
        world = BrokerWorld()
        fakes = [FakeConnection(f"10.0.0.{n}:1") for n in range(100)]
        for number, fake in enumerate(fakes):
            await world.heartbeat(fake, f"c{number}")
            await asyncio.sleep(0.005)
        before = told(fakes[-1:])
        await asyncio.sleep(2 * len(fakes) * FRAME_INTERVAL_MS / 1000)
        assert told(fakes) <= 500 / FRAME_INTERVAL_MS + 2 * len(fakes)
        assert told(fakes[-1:]) > before, "the last one that came must hear of itself"
        quiet = told(fakes)
        await asyncio.sleep(10)
        assert told(fakes) == quiet
        world.notifier.close()

    in_virtual_time(story)


def test_members_of_a_small_group_hear_of_a_second_newcomer_before_it_has_asked_for_its_queues() -> None:
    async def story(sim: SimWorld) -> None:
        world = BrokerWorld()
        fakes = [FakeConnection(f"10.0.0.{n}:1") for n in range(4)]
        for number, fake in enumerate(fakes):
            await world.heartbeat(fake, f"c{number}")
            await asyncio.sleep(0.002)
            assert told(fakes[:1]) == number + 1, "as long as the old owner knows nothing, both read the queue"
        world.notifier.close()

    in_virtual_time(story)


def test_changes_are_collected_for_15_seconds_when_they_need_not_be_told_at_once() -> None:
    async def story(sim: SimWorld) -> None:
        world = BrokerWorld({"realTimeNotifyConsumerChange": "false"})
        first, second = FakeConnection("a:1"), FakeConnection("b:1")
        await world.heartbeat(first, "c1")
        await world.heartbeat(second, "c2")
        assert told([first, second]) == 0
        await asyncio.sleep(BATCH_INTERVAL_MS / 1000 + 0.1)
        assert (len(first.sent), len(second.sent)) == (1, 1)
        world.notifier.close()

    in_virtual_time(story)


async def test_what_is_logged_of_long_subscriptions_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    world = BrokerWorld()
    caplog.set_level(logging.INFO)
    for member in ("c1", "c2"):
        subscriptions = [
            {"topic": f"T{n}", "expressionType": "SQL92", "subVersion": 1, "subString": f"a = '{member}{'x' * 8_000}'"}
            for n in range(20)
        ]
        consumer = {"groupName": "G", "subscriptionDataSet": subscriptions}
        await world.call(34, None, {"clientID": member, "consumerDataSet": [consumer]}, fake=FakeConnection(member))
    assert "subscribe differently" in caplog.text
    assert max(len(record.getMessage()) for record in caplog.records) < 5_000
    world.notifier.close()
