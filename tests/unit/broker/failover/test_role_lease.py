"""Until when nobody else can act in the place of a group's active broker."""

import pytest

from maxq.broker.failover.role_lease import RoleLease, patience_ms
from maxq.broker.identity.broker_identity import BrokerAddress
from maxq.config.settings import BrokerSettings

OWN = BrokerAddress("C", "broker-a", 0, "10.0.0.1", 10911)


def settings(**more: object) -> BrokerSettings:
    given = {"totalReplicas": "3", "brokerHeartbeatInterval": "1000", **{n: str(value) for n, value in more.items()}}
    return BrokerSettings.from_properties(given, source="test")[0]


@pytest.mark.parametrize(("interval", "patience"), [(1_000, 3_000), (100, 1_500), (5_000, 15_000)])
def test_the_lease_ends_a_quarter_before_others_begin(interval: int, patience: int) -> None:
    given = settings(brokerHeartbeatInterval=interval)
    assert patience_ms(given) == patience
    lease = RoleLease(given, OWN, 0)
    assert lease.doubt(patience * 3 // 4) is None
    assert lease.doubt(patience * 3 // 4 + 1) is not None


def test_a_broker_that_is_alone_holds_its_role_for_good() -> None:
    lease = RoleLease(settings(totalReplicas=1), OWN, 0)
    lease.on_stamp(1, 1_000_000)
    assert lease.doubt(1_000_000) is None
    assert not lease.was_lost(1_000_000)


def test_the_lease_counts_from_the_beginning_of_the_question_that_was_answered() -> None:
    lease = RoleLease(settings(), OWN, 0)
    lease.on_named(1_000, 3_000)
    assert lease.doubt(3_250) is None
    assert lease.doubt(3_251) is not None
    assert lease.is_named(3_250)
    assert not lease.is_named(3_251)


def test_stamps_count_from_the_oldest_of_as_many_slaves_as_there_are() -> None:
    lease = RoleLease(settings(), OWN, 0)
    lease.on_stamp(1, 2_000)
    assert lease.doubt(2_500) is not None
    lease.on_stamp(2, 1_000)
    assert lease.doubt(3_250) is None
    assert lease.doubt(3_251) is not None
    lease.on_stamp(2, 500)  # late
    assert lease.doubt(3_250) is None
    assert not lease.is_named(3_250)


def test_no_more_stamps_are_kept_than_there_are_slaves() -> None:
    lease = RoleLease(settings(), OWN, 0)
    for slave_id in range(1, 100):
        lease.on_stamp(slave_id, 1_000 + slave_id)
    lease.on_stamp(100, 500)
    assert lease._grants == {98: 1_098, 99: 1_099}


@pytest.mark.parametrize(("replicas", "counts"), [(2, True), (3, False)])
def test_that_the_master_is_gone_is_enough_where_nobody_else_can_act(replicas: int, counts: bool) -> None:
    lease = RoleLease(settings(totalReplicas=replicas), OWN, 0)
    lease.on_master_gone(2_000)
    assert (lease.doubt(4_000) is None) is counts


def test_a_lease_that_was_lost_for_long_does_not_come_back_by_itself() -> None:
    lease = RoleLease(settings(), OWN, 0)
    lease.hold(3_000)
    assert not lease.was_lost(6_000)
    assert lease.was_lost(6_001)
    lease.hold(6_001)
    assert lease.was_lost(6_001)
    assert lease.doubt(6_001) is not None
    lease.begin(7_000, all_asked=True)
    assert not lease.was_lost(7_000)
    assert lease.doubt(7_000) is None


def test_a_slave_that_acts_is_told_by_a_name_server_whether_it_still_does() -> None:
    slave = BrokerAddress("C", "broker-a", 1, "10.0.0.2", 10911)
    lease = RoleLease(settings(), slave, 0)
    lease.on_named(6_001, 6_002)
    assert lease.doubt(6_002) is None


def test_where_somebody_could_not_be_asked_name_servers_must_name_the_broker_for_a_while() -> None:
    lease = RoleLease(settings(), OWN, 0)
    lease.begin(1_000, all_asked=False)
    for began_ms, is_sure in ((2_000, False), (4_000, False), (5_099, False), (5_100, True), (5_200, True)):
        lease.on_named(began_ms, began_ms + 100)
        assert (lease.doubt(began_ms + 100) is None) is is_sure
