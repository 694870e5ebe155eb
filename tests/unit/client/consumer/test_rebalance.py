"""The allocation strategies against vectors checked with Java's classes, and their invariants."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxq.client.consumer.rebalance import (
    AllocateMachineRoomNearby,
    AllocateMessageQueueAveragely,
    AllocateMessageQueueAveragelyByCircle,
    AllocateMessageQueueByConfig,
    AllocateMessageQueueByMachineRoom,
    AllocateMessageQueueConsistentHash,
    AllocateMessageQueueStrategy,
)
from maxq.errors import ClientError
from maxq.protocol.message.message_queue import MessageQueue


def queues(count: int, broker: str = "broker-a") -> list[MessageQueue]:
    return [MessageQueue("TopicTest", broker, queue_id) for queue_id in range(count)]


def ids(allocated: list[MessageQueue]) -> list[int]:
    return [queue.queue_id for queue in allocated]


def split(strategy: AllocateMessageQueueStrategy, count: int, clients: list[str]) -> list[list[int]]:
    return [ids(strategy.allocate("G", client, queues(count), clients)) for client in clients]


@pytest.mark.parametrize(
    ("count", "clients", "expected"),
    [
        (8, 3, [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (2, 3, [[0], [1], []]),
        (3, 3, [[0], [1], [2]]),
        (10, 4, [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]),
        (4, 1, [[0, 1, 2, 3]]),
    ],
)
def test_avg_gives_neighbours_and_one_more_to_the_first(count: int, clients: int, expected: list[list[int]]) -> None:
    names = [f"c{n}" for n in range(clients)]
    assert split(AllocateMessageQueueAveragely(), count, names) == expected


def test_circle_deals_queues_like_cards() -> None:
    assert split(AllocateMessageQueueAveragelyByCircle(), 8, ["a", "b", "c"]) == [[0, 3, 6], [1, 4, 7], [2, 5]]


def test_consistent_hash_agrees_with_java() -> None:
    clients = ["10.0.0.1@1", "10.0.0.2@1", "10.0.0.3@1"]
    owners = {
        queue_id: client
        for client, mine in zip(clients, split(AllocateMessageQueueConsistentHash(), 8, clients), strict=True)
        for queue_id in mine
    }
    assert [owners[n][7] for n in range(8)] == ["2", "1", "3", "3", "1", "1", "2", "2"]


def test_consistent_hash_moves_only_the_queues_of_the_client_that_left() -> None:
    clients = [f"10.0.0.{n}@1" for n in range(5)]
    strategy = AllocateMessageQueueConsistentHash()
    before = {q: c for c in clients for q in strategy.allocate("G", c, queues(64), clients)}
    after = {q: c for c in clients[1:] for q in strategy.allocate("G", c, queues(64), clients[1:])}
    assert all(after[queue] == owner for queue, owner in before.items() if owner != clients[0])


def test_config_gives_its_list_to_anybody() -> None:
    fixed = queues(2)
    assert AllocateMessageQueueByConfig(fixed).allocate("G", "nobody", queues(8), ["a"]) == fixed


def test_machine_room_takes_queues_of_listed_rooms_only() -> None:
    mine = [*queues(5, "hz@a"), *queues(3, "sh@a"), *queues(2, "plain")]
    strategy = AllocateMessageQueueByMachineRoom(["hz"])
    assert ids(strategy.allocate("G", "c0", mine, ["c0", "c1"])) == [0, 1, 4]
    assert ids(strategy.allocate("G", "c1", mine, ["c0", "c1"])) == [2, 3]


def test_nearby_serves_own_room_and_shares_rooms_without_clients() -> None:
    everything = [*queues(2, "hz-a"), *queues(2, "sh-a"), *queues(2, "bj-a")]
    strategy = AllocateMachineRoomNearby(
        AllocateMessageQueueAveragely(), lambda queue: queue.broker_name[:2], lambda client: client[:2]
    )
    clients = ["hz-1", "sh-1"]
    assert strategy.name == "MACHINE_ROOM_NEARBY-AVG"
    got = {client: strategy.allocate("G", client, everything, clients) for client in clients}
    assert got["hz-1"] == [*queues(2, "hz-a"), queues(2, "bj-a")[0]]
    assert got["sh-1"] == [*queues(2, "sh-a"), queues(2, "bj-a")[1]]


def test_nearby_refuses_a_client_without_a_room() -> None:
    strategy = AllocateMachineRoomNearby(AllocateMessageQueueAveragely(), lambda _: "hz", lambda _: "")
    with pytest.raises(ClientError, match="no machine room is known for c0"):
        strategy.allocate("G", "c0", queues(1), ["c0"])


def test_a_client_that_is_not_a_member_gets_nothing() -> None:
    for strategy in (AllocateMessageQueueAveragely(), AllocateMessageQueueConsistentHash()):
        assert strategy.allocate("G", "stranger", queues(4), ["a", "b"]) == []


def test_empty_arguments_are_refused_by_name() -> None:
    with pytest.raises(ClientError, match="0 queues"):
        AllocateMessageQueueAveragely().allocate("G", "a", [], ["a"])


def test_strategies_have_the_names_java_uses() -> None:
    strategies = (
        AllocateMessageQueueAveragely(),
        AllocateMessageQueueAveragelyByCircle(),
        AllocateMessageQueueConsistentHash(),
        AllocateMessageQueueByConfig([]),
        AllocateMessageQueueByMachineRoom([]),
    )
    assert [strategy.name for strategy in strategies] == [
        "AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", "CONFIG", "MACHINE_ROOM",
    ]  # fmt: skip


@given(
    count=st.integers(1, 70),
    clients=st.integers(1, 20),
    strategy=st.sampled_from(
        [
            AllocateMessageQueueAveragely(),
            AllocateMessageQueueAveragelyByCircle(),
            AllocateMessageQueueConsistentHash(),
        ]
    ),
)
def test_every_queue_goes_to_exactly_one_client(
    count: int, clients: int, strategy: AllocateMessageQueueStrategy
) -> None:
    names = [f"10.0.0.{n}@x" for n in range(clients)]
    given_out = Counter(q for mine in split(strategy, count, sorted(names)) for q in mine)
    assert given_out == Counter(range(count))


@given(count=st.integers(1, 70), clients=st.integers(1, 20))
def test_avg_and_circle_shares_differ_by_one_at_most(count: int, clients: int) -> None:
    for strategy in (AllocateMessageQueueAveragely(), AllocateMessageQueueAveragelyByCircle()):
        sizes = [len(mine) for mine in split(strategy, count, [f"c{n:02}" for n in range(clients)])]
        assert max(sizes) - min(sizes) <= 1


def test_a_ring_without_points_gives_nobody_a_queue_and_fewer_are_refused() -> None:
    assert AllocateMessageQueueConsistentHash(0).allocate("G", "a", queues(4), ["a"]) == []
    with pytest.raises(ClientError, match="virtual node count -1 is illegal"):
        AllocateMessageQueueConsistentHash(-1)
