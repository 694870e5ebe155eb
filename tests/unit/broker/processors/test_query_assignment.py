"""Rebalance by the broker."""

import pytest

from maxq.broker.processors.clients.query_assignment import (
    ROUTE_MAX_AGE_MS,
    allocate_averagely,
    allocate_by_circle,
    allocate_for_pop,
)
from maxq.errors import RemotingTimeoutError
from maxq.protocol.json import json_dialect
from maxq.protocol.message.message_queue import MessageQueue
from tests.unit.broker.broker_world import BrokerWorld, FakeConnection, parsed


def ask(client_id: str = "c1", **members: str) -> dict[str, object]:
    return {
        "clientId": client_id, "consumerGroup": "G", "messageModel": "CLUSTERING", "strategyName": "AVG", "topic": "T",
        **members,
    }  # fmt: skip


async def assigned(world: BrokerWorld, body: dict[str, object], mode: str = "PULL") -> list[tuple[str, int]] | None:
    value = parsed(await world.call(400, None, body))
    rows = value.get("messageQueueAssignments")
    if rows is None:
        return None
    assert all(row["mode"] == mode and row["messageQueue"]["topic"] == "T" for row in rows)
    return [(row["messageQueue"]["brokerName"], row["messageQueue"]["queueId"]) for row in rows]


async def world_of_two() -> BrokerWorld:
    world = BrokerWorld()
    world.add_route("T", 2, "b", "a")
    await world.heartbeat(FakeConnection("x:1"), "c2")
    await world.heartbeat(FakeConnection("x:2"), "c1")
    world.notifier.close()
    return world


async def test_queues_of_all_brokers_are_divided_among_the_members() -> None:
    world = await world_of_two()
    assert await assigned(world, ask("c1")) == [("a", 0), ("a", 1)]
    assert await assigned(world, ask("c2")) == [("b", 0), ("b", 1)]
    assert await assigned(world, ask("c1", strategyName="AVG_BY_CIRCLE")) == [("a", 0), ("b", 0)]


async def test_broadcasting_members_get_all_queues() -> None:
    world = await world_of_two()
    assert len(await assigned(world, ask("anyone", messageModel="BROADCASTING")) or []) == 4


async def test_who_is_not_a_member_gets_nothing_and_an_undecidable_question_no_answer() -> None:
    world = await world_of_two()
    assert await assigned(world, ask("stranger")) == []
    assert await assigned(world, ask(consumerGroup="Offline")) is None
    assert await assigned(world, ask(strategyName="CONSISTENT_HASH")) is None
    assert await assigned(world, ask(topic="Unknown")) is None


async def test_the_name_server_is_asked_once_in_5_seconds_and_may_be_away() -> None:
    world = await world_of_two()
    for _ in range(10):
        await assigned(world, ask())
    assert world.routes_asked == 1
    world.clock.advance_ms(ROUTE_MAX_AGE_MS + 1)
    world.route_error = RemotingTimeoutError("no answer")
    assert await assigned(world, ask()) == [("a", 0), ("a", 1)]
    assert world.routes_asked == 2


async def test_a_light_message_queue_needs_no_route() -> None:
    world = BrokerWorld()
    await world.heartbeat(FakeConnection(), "c1")
    value = parsed(await world.call(400, None, ask(topic="%LMQ%q")))
    queue = value["messageQueueAssignments"][0]["messageQueue"]
    assert queue == {"brokerName": "broker-w", "queueId": 0, "topic": "%LMQ%q"}
    world.notifier.close()


@pytest.mark.parametrize(("queues", "members"), [(0, 1), (1, 3), (7, 3), (8, 2), (9, 10)])
def test_every_queue_goes_to_exactly_one_member_and_shares_differ_by_one_at_most(queues: int, members: int) -> None:
    everything = [MessageQueue("T", "a", queue_id) for queue_id in range(queues)]
    for strategy in (allocate_averagely, allocate_by_circle):
        shares = [strategy(everything, index, members) for index in range(members)]
        assert sorted(queue for share in shares for queue in share) == everything
        sizes = [len(share) for share in shares]
        assert max(sizes) - min(sizes) <= 1


async def test_a_mode_is_kept() -> None:
    world = BrokerWorld()
    world.add_topic("T")
    mode = {"topic": "T", "consumerGroup": "G", "mode": "PULL", "popShareQueueNum": 0}
    assert (await world.call(401, None, mode)).code == 0
    assert parsed(await world.call(402))["messageRequestModeMap"]["T"]["G"]["mode"] == "PULL"
    again = BrokerWorld(disk=world.disk)
    again.modes.load()
    assert again.modes.get_message_request_mode("T", "G") is not None
    assert (await world.call(401, None, {**mode, "mode": "POP"})).code == 0


async def test_modes_of_retry_topics_and_unknown_topics_are_refused() -> None:
    world = BrokerWorld()
    mode = {"topic": "%RETRY%G", "consumerGroup": "G", "mode": "PULL"}
    assert (await world.call(401, None, mode)).code == 16
    assert (await world.call(401, None, {**mode, "topic": "Unknown"})).code == 17


async def test_members_of_a_group_that_pops_share_the_queues_of_all_brokers() -> None:
    world = await world_of_two()
    world.modes.decode(
        json_dialect.dumps({"messageRequestModeMap": {"T": {"G": {"consumerGroup": "G", "mode": "POP", "topic": "T"}}}})
    )
    assert await assigned(world, ask("c1"), "POP") == [("a", -1), ("b", -1)]
    assert await assigned(world, ask("stranger"), "POP") == [("a", -1), ("b", -1)]


@pytest.mark.parametrize(
    ("queues", "members", "share", "index", "expected"),
    [
        (4, 4, 1, 0, [0, 1]),
        (4, 4, 1, 3, [3, 0]),
        (4, 4, 2, 1, [1, 2, 3]),
        (4, 4, 3, 1, [-1] * 4),
        (4, 4, 0, 1, [-1] * 4),
        (2, 5, 1, 3, [1]),
        (0, 5, 1, 3, []),
    ],
)
def test_a_member_pops_from_its_own_queues_and_those_of_the_next_ones(
    queues: int, members: int, share: int, index: int, expected: list[int]
) -> None:
    everything = [MessageQueue("T", "a", queue_id) for queue_id in range(queues)]
    clients = [f"c{number}" for number in range(members)]
    found = allocate_for_pop(allocate_averagely, everything, clients, f"c{index}", share)
    assert [queue.queue_id for queue in found] == expected


async def test_java_s_file_of_modes_is_read() -> None:
    world = BrokerWorld()
    world.take_golden_config("dledger/n0", "messageRequestMode.json")
    world.modes.load()
    assert parsed(await world.call(402)) == {"messageRequestModeMap": {}}
