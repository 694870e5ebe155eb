from maxq.namesrv.client_request_processor import filter_by_zone
from maxq.protocol.body.route import BrokerData, QueueData, TopicRouteData


def route(*brokers: tuple[str, str | None, int]) -> TopicRouteData:
    """Of (name, zone, smallest id)."""
    return TopicRouteData(
        queue_datas=[QueueData(name, 4, 4, 6) for name, _, _ in brokers],
        broker_datas=[BrokerData("c", name, {i: f"{name}:{i}"}, zone_name=zone) for name, zone, i in brokers],
        filter_server_table={f"{name}:{i}": ["f"] for name, _, i in brokers},
    )


def names(found: TopicRouteData) -> tuple[list[str], list[str], list[str]]:
    return (
        [broker.broker_name for broker in found.broker_datas],
        [queue.broker_name for queue in found.queue_datas],
        [addr.partition(":")[0] for addr in found.filter_server_table],
    )


def test_brokers_of_other_zones_go_with_queues_and_filter_servers() -> None:
    found = filter_by_zone(route(("a", "East", 0), ("b", "west", 0), ("c", None, 0)), "eAST")
    assert names(found) == (["a"], ["a"], ["a"])


def test_a_group_without_master_stays_whatever_its_zone() -> None:
    found = filter_by_zone(route(("a", "east", 0), ("b", "west", 1)), "east")
    assert names(found) == (["a", "b"], ["a", "b"], ["a", "b"])
