"""Which broker of a group is active, as one of its members sees it."""

from maxq.broker.failover.broker_group import BrokerGroup, MinBrokerChange
from maxq.broker.identity.broker_identity import BrokerAddress
from tests.unit.broker.failover.group_world import MASTER, MASTER_HA, SLAVE_1, SLAVE_2


def member(broker_id: int) -> BrokerGroup:
    return BrokerGroup(BrokerAddress("C", "broker-a", broker_id, "10.0.0.9"))


def test_the_smallest_living_id_is_the_active_one() -> None:
    group = member(2)
    group.on_online(0, MASTER)
    assert group.on_members({0: MASTER, 1: SLAVE_1, 2: SLAVE_2}) is None
    assert group.on_members({1: SLAVE_1, 2: SLAVE_2}) == MinBrokerChange(1, SLAVE_1)
    assert group.on_members({2: SLAVE_2}) == MinBrokerChange(2, SLAVE_2)
    assert group.on_members({2: SLAVE_2}) is None
    assert group.on_members({0: MASTER, 2: SLAVE_2}) == MinBrokerChange(0, MASTER)
    assert group.min_broker_id == 0


def test_a_name_server_that_knows_nobody_changes_nothing() -> None:
    group = member(1)
    group.on_online(0, MASTER)
    assert group.on_members({}) is None
    assert (group.min_broker_id, group.min_broker_addr) == (0, MASTER)


def test_a_notice_and_the_fetch_that_confirms_it_are_one_change() -> None:
    group = member(1)
    group.on_online(1, SLAVE_1)
    assert group.on_notice(0, MASTER, MASTER_HA) == MinBrokerChange(0, MASTER, MASTER_HA)
    assert group.on_members({0: MASTER, 1: SLAVE_1}) is None


def test_a_master_that_moved_is_a_change() -> None:
    group = member(1)
    group.on_online(0, MASTER)
    assert group.on_members({0: "10.0.0.9:10911", 1: SLAVE_1}) == MinBrokerChange(0, "10.0.0.9:10911")


def test_a_master_gives_way_to_nobody() -> None:
    group = member(0)
    group.on_online(0, MASTER)
    assert group.on_members({1: SLAVE_1}) is None
    assert group.on_notice(1, SLAVE_1, None) is None
    assert group.min_broker_id == 0


def test_alive_replicas_count_this_broker_whether_the_name_server_knows_it_or_not() -> None:
    group = member(2)
    assert group.alive_replicas(3) == 3
    group.on_members({0: MASTER, 1: SLAVE_1})
    assert group.alive_replicas(3) == 3
    group.on_members({0: MASTER, 2: SLAVE_2})
    assert group.alive_replicas(3) == 2
