from collections.abc import Callable
from dataclasses import replace

import pytest

from maxq.namesrv.broker_registration import BrokerAddrInfo, MinBrokerIdChange
from maxq.namesrv.route_info_manager import RouteInfoManager
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.body.route import QueueData
from maxq.protocol.body.topic_config import TopicConfig, TopicQueueMappingInfo
from tests.unit.namesrv.registrations import CLUSTER, addrs, manager, perms, registration, topic

SLAVE = {"broker_id": 1, "addr": "10.0.0.2:10911"}


def test_a_registered_topic_has_a_route() -> None:
    routes = manager()
    assert routes.register_broker(registration([topic("T", queues=8), "U"]), now_ms=0) is not None
    route = routes.pickup_topic_route_data("T")
    assert route is not None
    assert route.to_json() == {
        "brokerDatas": [
            {
                "brokerAddrs": {0: "10.0.0.1:10911"},
                "brokerName": "broker-a",
                "cluster": CLUSTER,
                "enableActingMaster": False,
            }
        ],
        "filterServerTable": {},
        "queueDatas": [
            {"brokerName": "broker-a", "perm": 6, "readQueueNums": 8, "topicSysFlag": 0, "writeQueueNums": 8}
        ],
    }
    assert routes.pickup_topic_route_data("V") is None


def test_a_route_may_be_changed_by_who_got_it() -> None:
    routes = manager()
    routes.register_broker(registration(), now_ms=0)
    route = routes.pickup_topic_route_data("T")
    assert route is not None
    route.broker_datas[0].broker_addrs.clear()
    route.queue_datas.clear()
    assert addrs(routes, "T") == {"broker-a": {0: "10.0.0.1:10911"}}
    assert perms(routes, "T") == {"broker-a": 6}


def test_an_unknown_broker_id_may_not_enter_with_one_topic_and_leaves_no_trace() -> None:
    routes = manager()
    assert routes.register_broker(registration(["T"]), now_ms=0) is None
    assert routes.cluster_info().to_json() == {"brokerAddrTable": {}, "clusterAddrTable": {}}
    assert routes.expired(10**9) == []
    routes.register_broker(registration(["T", "U"]), now_ms=0)
    assert routes.register_broker(registration(["V"]), now_ms=0) is not None
    assert routes.register_broker(registration(["T"], **SLAVE), now_ms=0) is None
    assert addrs(routes, "T") == {"broker-a": {0: "10.0.0.1:10911"}}


def test_a_broker_without_topics_may_enter() -> None:
    assert manager().register_broker(registration([]), now_ms=0) is not None


def test_a_changed_version_brings_changed_topics_and_keeps_those_not_named() -> None:
    routes = manager()
    routes.register_broker(registration(["T", "U"]), now_ms=0)
    routes.register_broker(registration([topic("T", perm=4), "V"], version=2), now_ms=0)
    assert (perms(routes, "T"), perms(routes, "U"), perms(routes, "V")) == (
        {"broker-a": 4},
        {"broker-a": 6},
        {"broker-a": 6},
    )


def test_topics_no_longer_named_go_if_the_setting_says_so() -> None:
    routes = manager(delete_topic_with_broker_registration=True)
    routes.register_broker(registration(["T", "U"]), now_ms=0)
    routes.register_broker(registration(["T", "V"], version=2), now_ms=0)
    assert sorted(routes.all_topics().topic_list) == ["T", "V"]
    mapping = {"T": TopicQueueMappingInfo("T", "g", 4, "broker-a", 1)}  # static topics are left alone
    routes.register_broker(registration(["T", "W"], version=3, mappings=mapping), now_ms=0)
    assert sorted(routes.all_topics().topic_list) == ["T", "V", "W"]


@pytest.mark.parametrize("setting", [True, False])
def test_topics_that_a_master_does_not_have_go_when_it_says_so(*, setting: bool) -> None:
    """A broker of MaxQ says whether it names all; the setting is for others, and took what one left out that named only
    what had changed."""
    routes = manager(delete_topic_with_broker_registration=setting)
    mapping = {"S": TopicQueueMappingInfo("S", "g", 4, "broker-a", 1)}
    routes.register_broker(registration(["S", "T", "U"], mappings=mapping, is_whole=True), now_ms=0)
    routes.register_broker(registration(["V", "W"], version=2, is_whole=False), now_ms=0)
    assert sorted(routes.all_topics().topic_list) == ["S", "T", "U", "V", "W"]
    other = {"name": "broker-b", "addr": "10.0.0.9:1", "is_whole": True}
    routes.register_broker(registration(["S", "V"], **other), now_ms=0)
    routes.register_broker(registration(["T", "W"], version=3, is_whole=True), now_ms=0)
    assert sorted(routes.all_topics().topic_list) == ["S", "T", "V", "W"]
    assert perms(routes, "S") == {"broker-b": 6}
    route = routes.pickup_topic_route_data("S")
    assert route is not None and not route.topic_queue_mapping_by_broker


def test_topics_that_a_slave_lacks_stay() -> None:
    """It may not have copied them yet when its master goes."""
    routes = manager()
    routes.register_broker(registration(["T", "U"], acting=True), now_ms=0)
    routes.unregister_broker(CLUSTER, "10.0.0.1:10911", "broker-a")
    routes.register_broker(registration(["T", "V"], acting=True, is_whole=True, version=2, **SLAVE), now_ms=0)
    routes.register_broker(registration(["T", "W"], acting=True, is_whole=True, version=3, **SLAVE), now_ms=0)
    assert sorted(routes.all_topics().topic_list) == ["T", "V", "W"]


def test_a_topic_that_changed_under_an_equal_version_is_taken() -> None:
    """Java ignores it, for minutes (java-defects.md)."""
    routes = manager()
    routes.register_broker(registration(["T", "U"]), now_ms=0)
    routes.register_broker(registration([topic("T", queues=16), "U"]), now_ms=0)
    route = routes.pickup_topic_route_data("T")
    assert route is not None and route.queue_datas[0].read_queue_nums == 16


def test_a_wiped_permission_stays_until_the_broker_changes_the_topic_or_leaves() -> None:
    """Java gives all back as soon as the broker has a new topic, such as the retry topic of a group."""
    routes = manager()
    routes.register_broker(registration(), now_ms=0)
    assert routes.wipe_write_perm_of_broker("broker-a") == 2
    assert perms(routes, "T") == {"broker-a": 4}
    routes.register_broker(registration(), now_ms=0)
    assert perms(routes, "T") == {"broker-a": 4}
    routes.register_broker(registration(["V"], version=2), now_ms=0)
    routes.register_broker(registration([topic("T"), topic("U", queues=8), "V"], version=3, is_whole=True), now_ms=0)
    assert (perms(routes, "T"), perms(routes, "U")) == ({"broker-a": 4}, {"broker-a": 6})
    routes.unregister_broker(CLUSTER, "10.0.0.1:10911", "broker-a")
    routes.register_broker(registration(version=3), now_ms=0)
    assert perms(routes, "T") == {"broker-a": 6}


def test_a_wiped_permission_comes_back_with_a_master_whose_slave_stayed() -> None:
    routes = manager()
    routes.register_broker(registration(), now_ms=0)
    routes.register_broker(registration(**SLAVE), now_ms=0)
    routes.wipe_write_perm_of_broker("broker-a")
    routes.unregister_broker(CLUSTER, "10.0.0.1:10911", "broker-a")
    routes.register_broker(registration(), now_ms=0)
    assert perms(routes, "T") == {"broker-a": 6}


def test_adding_the_write_permission_gives_read_and_write_to_all_topics_of_that_broker() -> None:
    routes = manager()
    routes.register_broker(registration([topic("T", perm=8), topic("U", perm=1)]), now_ms=0)
    routes.register_broker(registration([topic("T", perm=4), "V"], name="b", addr="10.0.0.9:1"), now_ms=0)
    assert routes.add_write_perm_of_broker("broker-a") == 2
    assert perms(routes, "T") == {"broker-a": 6, "b": 4}
    assert routes.add_write_perm_of_broker("nobody") == 0


def test_a_slave_learns_its_master_and_changes_no_topic() -> None:
    routes = manager()
    assert routes.register_broker(registration(), now_ms=0) == (None, None, None)
    result = routes.register_broker(registration([topic("T", perm=4), "X"], **SLAVE), now_ms=0)
    assert result is not None
    assert (result.ha_server_addr, result.master_addr) == ("10.0.0.1:10911+ha", "10.0.0.1:10911")
    assert perms(routes, "T") == {"broker-a": 6}
    assert perms(routes, "X") == {}
    assert addrs(routes, "T") == {"broker-a": {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}}


@pytest.mark.parametrize(("acting", "expected"), [(None, {}), (False, {"broker-a": 6}), (True, {"broker-a": 4})])
def test_the_smallest_slave_without_master_brings_topics_read_only_where_it_may_act(
    acting: bool | None, expected: dict[str, int]
) -> None:
    routes = manager()
    routes.register_broker(registration(acting=acting, broker_id=3, addr="10.0.0.4:1"), now_ms=0)
    assert perms(routes, "T") == expected
    routes.register_broker(registration(["V", "W"], acting=acting, broker_id=5, addr="10.0.0.5:1"), now_ms=0)
    assert perms(routes, "V") == {}


def test_a_slave_that_became_master_leaves_its_old_id() -> None:
    routes = manager()
    routes.register_broker(registration(), now_ms=0)
    routes.register_broker(registration(**SLAVE), now_ms=0)
    routes.unregister_broker(CLUSTER, "10.0.0.1:10911", "broker-a")
    routes.register_broker(registration(broker_id=0, addr="10.0.0.2:10911", version=2), now_ms=0)
    assert addrs(routes, "T") == {"broker-a": {0: "10.0.0.2:10911"}}


def test_a_slave_that_became_master_brings_its_topics_anew_under_an_equal_version() -> None:
    routes = manager()
    routes.register_broker(registration(), now_ms=0)
    routes.register_broker(registration(**SLAVE), now_ms=0)
    routes.wipe_write_perm_of_broker("broker-a")
    routes.unregister_broker(CLUSTER, "10.0.0.1:10911", "broker-a")
    routes.register_broker(registration(broker_id=0, addr="10.0.0.2:10911"), now_ms=0)
    assert perms(routes, "T") == {"broker-a": 6}


def test_a_slave_whose_claim_to_be_master_is_outdated_is_out() -> None:
    routes = manager()
    routes.register_broker(registration(state_version=5), now_ms=0)
    routes.register_broker(registration(**SLAVE), now_ms=0)
    routes.register_broker(registration(broker_id=0, addr="10.0.0.2:10911", state_version=4), now_ms=0)
    assert addrs(routes, "T") == {"broker-a": {0: "10.0.0.1:10911"}}
    assert routes.data_version(CLUSTER, "10.0.0.2:10911") is None


def test_an_address_that_was_replaced_expires_without_taking_its_successor_along() -> None:
    routes = manager()
    routes.register_broker(registration(), now_ms=0)
    routes.register_broker(registration(addr="10.0.0.7:1"), now_ms=100_000)
    routes.scan_not_active_broker(120_001)
    assert routes.expired(120_001) == []
    assert addrs(routes, "T") == {"broker-a": {0: "10.0.0.7:1"}}


def test_an_address_in_two_clusters_is_two_brokers() -> None:
    routes = manager()
    first = object()
    routes.register_broker(registration(connection=first), now_ms=0)
    routes.register_broker(registration(name="b", cluster="C2"), now_ms=0)
    routes.on_connection_closed(first)
    assert addrs(routes, "T") == {"b": {0: "10.0.0.1:10911"}}


def test_another_address_for_the_same_id_wins_unless_its_state_is_older() -> None:
    routes = manager()
    routes.register_broker(registration(state_version=5), now_ms=0)
    assert routes.register_broker(registration(addr="10.0.0.7:1", state_version=4), now_ms=0) == (None, None, None)
    assert addrs(routes, "T") == {"broker-a": {0: "10.0.0.1:10911"}}
    routes.register_broker(registration(addr="10.0.0.7:1", state_version=5), now_ms=0)
    assert addrs(routes, "T") == {"broker-a": {0: "10.0.0.7:1"}}


def test_the_last_broker_of_a_name_takes_its_queues_and_cluster_along() -> None:
    routes = manager()
    mapping = {"T": TopicQueueMappingInfo("T", "g", 4, "broker-a", 1)}
    routes.register_broker(registration(mappings=mapping), now_ms=0)
    routes.register_broker(registration(**SLAVE), now_ms=0)
    routes.register_broker(registration(["T", "W"], name="b", addr="10.0.0.9:1", cluster="C2"), now_ms=0)
    routes.unregister_broker(CLUSTER, "10.0.0.1:10911", "broker-a")
    assert perms(routes, "T") == {"broker-a": 6, "b": 6}
    routes.unregister_broker(CLUSTER, "10.0.0.2:10911", "broker-a")
    assert perms(routes, "T") == {"b": 6}
    assert sorted(routes.all_topics().topic_list) == ["T", "W"]
    assert routes.cluster_info().cluster_addr_table == {"C2": ["b"]}
    route = routes.pickup_topic_route_data("T")
    assert route is not None and route.topic_queue_mapping_by_broker is None


def test_unregistering_what_is_not_there_changes_nothing() -> None:
    routes = manager()
    routes.register_broker(registration(), now_ms=0)
    before = routes.cluster_info().to_json()
    routes.unregister_broker(CLUSTER, "10.0.0.1:10911", "ghost")
    routes.unregister_broker(CLUSTER, "10.9.9.9:1", "broker-a")
    assert routes.cluster_info().to_json() == before


def test_a_closed_connection_removes_the_brokers_that_registered_over_it_last() -> None:
    routes = manager()
    old, new = object(), object()
    routes.register_broker(registration(connection=old), now_ms=0)
    routes.register_broker(registration(connection=new), now_ms=0)
    routes.on_connection_closed(old)
    assert perms(routes, "T") == {"broker-a": 6}
    routes.on_connection_closed(new)
    assert routes.pickup_topic_route_data("T") is None


def test_a_broker_is_forgotten_after_its_own_time_or_two_minutes() -> None:
    routes = manager()
    routes.register_broker(registration(timeout_ms=10_000), now_ms=0)
    routes.register_broker(registration(["T", "W"], name="b", addr="10.0.0.9:1"), now_ms=0)
    routes.scan_not_active_broker(10_000)
    assert perms(routes, "T") == {"broker-a": 6, "b": 6}
    routes.scan_not_active_broker(10_001)
    assert perms(routes, "T") == {"b": 6}
    assert routes.expired(120_000) == []
    assert routes.expired(120_001) == [(BrokerAddrInfo(CLUSTER, "10.0.0.9:1"), None)]


def test_a_touch_keeps_a_broker_alive_and_ignores_unknown_ones() -> None:
    routes = manager()
    routes.register_broker(registration(timeout_ms=10_000), now_ms=0)
    routes.touch(CLUSTER, "10.0.0.1:10911", now_ms=9_000)
    routes.touch(CLUSTER, "10.9.9.9:1", now_ms=9_000)
    routes.scan_not_active_broker(19_000)
    assert perms(routes, "T") == {"broker-a": 6}


def test_data_version_is_that_of_the_last_registration() -> None:
    routes = manager()
    routes.register_broker(registration(version=7), now_ms=0)
    assert routes.data_version(CLUSTER, "10.0.0.1:10911") == DataVersion(7, 0, 7000)
    assert routes.data_version("other", "10.0.0.1:10911") is None


def test_a_group_that_loses_its_master_becomes_read_only_if_a_slave_may_act() -> None:
    for acting, perm in ((True, 4), (False, 6)):
        routes = manager()
        routes.register_broker(registration(acting=acting), now_ms=0)
        routes.register_broker(registration(acting=acting, **SLAVE), now_ms=0)
        routes.register_broker(registration(acting=acting, broker_id=2, addr="10.0.0.3:10911"), now_ms=0)
        routes.unregister_broker(CLUSTER, "10.0.0.3:10911", "broker-a")
        assert perms(routes, "T") == {"broker-a": 6}
        routes.unregister_broker(CLUSTER, "10.0.0.1:10911", "broker-a")
        assert perms(routes, "T") == {"broker-a": perm}


def test_the_smallest_slave_is_shown_as_master_only_where_everything_allows_it() -> None:
    member_topic = "rmq_sys_SYNC_BROKER_MEMBER_broker-a"
    for supported, acting, shown in ((True, True, 0), (False, True, 1), (True, False, 1)):
        routes = manager(support_acting_master=supported)
        routes.register_broker(registration(["T", member_topic], acting=acting), now_ms=0)
        routes.register_broker(registration(["T", member_topic], acting=acting, **SLAVE), now_ms=0)
        routes.unregister_broker(CLUSTER, "10.0.0.1:10911", "broker-a")
        assert addrs(routes, "T") == {"broker-a": {shown: "10.0.0.2:10911"}}
        assert addrs(routes, member_topic) == {"broker-a": {1: "10.0.0.2:10911"}}
        assert routes.broker_member_group(CLUSTER, "broker-a").broker_addrs == {1: "10.0.0.2:10911"}


def test_the_smaller_of_two_slaves_stands_in_and_the_other_keeps_its_id() -> None:
    routes = manager(support_acting_master=True)
    for broker_id, addr in ((0, "a:1"), (3, "d:1"), (2, "c:1")):
        routes.register_broker(registration(acting=True, broker_id=broker_id, addr=addr), now_ms=0)
    routes.unregister_broker(CLUSTER, "a:1", "broker-a")
    assert addrs(routes, "T") == {"broker-a": {0: "c:1", 3: "d:1"}}


def test_a_group_without_acting_master_has_no_stand_in_though_nobody_may_write_to_it() -> None:
    routes = manager(support_acting_master=True)
    routes.register_broker(registration(acting=False), now_ms=0)
    routes.register_broker(registration(acting=False, **SLAVE), now_ms=0)
    routes.wipe_write_perm_of_broker("broker-a")
    routes.unregister_broker(CLUSTER, "10.0.0.1:10911", "broker-a")
    assert addrs(routes, "T") == {"broker-a": {1: "10.0.0.2:10911"}}


def test_nobody_stands_in_where_an_operator_lets_producers_write() -> None:
    routes = manager(support_acting_master=True)
    routes.register_broker(registration(acting=True), now_ms=0)
    routes.register_broker(registration(acting=True, **SLAVE), now_ms=0)
    routes.unregister_broker(CLUSTER, "10.0.0.1:10911", "broker-a")
    routes.add_write_perm_of_broker("broker-a")
    assert addrs(routes, "T") == {"broker-a": {1: "10.0.0.2:10911"}}


@pytest.mark.parametrize("how", ["its connection closes", "it falls silent"])
def test_members_hear_of_a_smallest_id_that_is_gone_without_a_word(how: str) -> None:
    routes, connection = manager(notify_min_broker_id_changed=True), object()
    routes.register_broker(registration(acting=True, addr="a:1", connection=connection, timeout_ms=10), now_ms=0)
    routes.register_broker(registration(acting=True, broker_id=1, addr="b:1"), now_ms=0)
    closes = how == "its connection closes"
    notices = routes.on_connection_closed(connection) if closes else routes.scan_not_active_broker(11)
    assert notices == [MinBrokerIdChange(("b:1",), 1, "b:1", "a:1", None)]


def test_members_hear_of_a_new_smallest_id_if_the_setting_says_so() -> None:
    routes = manager(notify_min_broker_id_changed=True)
    routes.register_broker(registration(acting=True, broker_id=2, addr="c:1"), now_ms=0)
    routes.register_broker(registration(acting=True, broker_id=1, addr="b:1"), now_ms=0)
    result = routes.register_broker(registration(acting=True, addr="a:1"), now_ms=0)
    assert result is not None
    assert result.notice == MinBrokerIdChange(("c:1", "b:1"), 0, "a:1", None, "a:1+ha")
    again = routes.register_broker(registration(acting=True, addr="a:1", version=2), now_ms=0)
    assert again is not None and again.notice is None
    larger = routes.register_broker(registration(acting=True, broker_id=3, addr="d:1"), now_ms=0)
    assert larger is not None and larger.notice is None
    assert routes.unregister_broker(CLUSTER, "d:1", "broker-a") is None
    assert routes.unregister_broker(CLUSTER, "c:1", "broker-a") is None
    notice = routes.unregister_broker(CLUSTER, "a:1", "broker-a")
    assert notice == MinBrokerIdChange(("b:1",), 1, "b:1", "a:1", None)


def test_members_of_a_group_without_acting_master_hear_of_no_loss() -> None:
    routes = manager(notify_min_broker_id_changed=True)
    routes.register_broker(registration(broker_id=1, addr="b:1"), now_ms=0)
    routes.register_broker(registration(addr="a:1"), now_ms=0)
    assert routes.unregister_broker(CLUSTER, "a:1", "broker-a") is None


def test_nobody_hears_of_a_new_smallest_id_by_default() -> None:
    routes = manager()
    routes.register_broker(registration(acting=True, broker_id=1, addr="b:1"), now_ms=0)
    result = routes.register_broker(registration(acting=True, addr="a:1"), now_ms=0)
    assert result is not None and result.notice is None
    assert routes.unregister_broker(CLUSTER, "a:1", "broker-a") is None


def test_a_single_topic_registration_by_217_adds_or_replaces_and_needs_known_brokers() -> None:
    routes = manager()
    routes.register_broker(registration(), now_ms=0)
    route = routes.pickup_topic_route_data("T")
    assert route is not None
    (queue,) = route.queue_datas
    routes.register_topic("New", [queue])
    assert perms(routes, "New") == {"broker-a": 6}
    queue.perm = 2
    routes.register_topic("New", [queue])
    assert perms(routes, "New") == {"broker-a": 2}
    queue.broker_name = "ghost"
    routes.register_topic("Other", [queue])
    assert perms(routes, "Other") == {}
    assert "Other" not in routes.all_topics().topic_list


def test_deleting_a_topic_spares_other_clusters_if_one_is_named() -> None:
    routes = manager()
    routes.register_broker(registration(), now_ms=0)
    routes.register_broker(registration(["T", "W"], name="b", addr="10.0.0.9:1", cluster="C2"), now_ms=0)
    routes.delete_topic("T", "nowhere")
    assert perms(routes, "T") == {"broker-a": 6, "b": 6}
    routes.delete_topic("T", "C2")
    assert perms(routes, "T") == {"broker-a": 6}
    routes.delete_topic("T")
    routes.delete_topic("T")
    assert routes.pickup_topic_route_data("T") is None


def test_lists_of_topics() -> None:
    routes = manager()
    routes.register_broker(
        registration([topic("U1", flag=1), topic("S2", flag=2), topic("B3", flag=3), topic("N0")]), now_ms=0
    )
    routes.register_broker(registration(["N0", "W"], name="b", addr="10.0.0.9:1", cluster="C2"), now_ms=0)
    assert sorted(routes.all_topics().topic_list) == ["B3", "N0", "S2", "U1", "W"]
    assert sorted(routes.topics_by_cluster("C2").topic_list) == ["N0", "W"]
    assert routes.topics_by_cluster("nowhere").topic_list == []
    assert routes.unit_topics().topic_list == ["U1", "B3"]
    assert routes.unit_sub_topics().topic_list == ["S2", "B3"]
    assert routes.unit_sub_non_unit_topics().topic_list == ["S2"]
    system = routes.system_topics()
    assert system.topic_list == [CLUSTER, "broker-a", "C2", "b"]
    assert system.broker_addr == "10.0.0.1:10911"


def test_filter_servers_are_shown_and_forgotten() -> None:
    routes = manager()
    routes.register_broker(registration(filter_servers=["f:1"]), now_ms=0)
    route = routes.pickup_topic_route_data("T")
    assert route is not None and route.filter_server_table == {"10.0.0.1:10911": ["f:1"]}
    routes.register_broker(registration(filter_servers=[]), now_ms=0)
    route = routes.pickup_topic_route_data("T")
    assert route is not None and route.filter_server_table == {}


def test_static_topic_mappings_are_shown() -> None:
    routes = manager()
    mapping = TopicQueueMappingInfo("T", "g", 4, "broker-a", 1)
    routes.register_broker(registration(mappings={"T": mapping}), now_ms=0)
    route = routes.pickup_topic_route_data("T")
    assert route is not None and route.topic_queue_mapping_by_broker == {"broker-a": mapping}


def mappings_of(routes: RouteInfoManager, name: str) -> list[str]:
    """The brokers that have a topic as a static one."""
    route = routes.pickup_topic_route_data(name)
    assert route is not None
    return list(route.topic_queue_mapping_by_broker or {})


@pytest.mark.parametrize("topics", [["T", "U"], ["T"]])
def test_a_static_topic_that_was_made_again_as_an_ordinary_one_loses_its_mapping(topics: list[str]) -> None:
    """This name server has not been told of the deletion."""
    routes = manager()
    mapping = TopicQueueMappingInfo("T", "__global__", 4, "broker-a", 1)
    routes.register_broker(registration(mappings={"T": mapping}), now_ms=0)
    routes.register_broker(registration(["U"], version=2), now_ms=0)
    routes.register_broker(registration(topics, version=3), now_ms=0)
    assert mappings_of(routes, "T") == []


def test_a_part_of_a_registration_that_comes_in_parts_takes_no_mapping_away() -> None:
    """RocketMQ sends all mappings with the last part."""
    routes = manager()
    mapping = TopicQueueMappingInfo("T", "__global__", 4, "broker-a", 1)
    routes.register_broker(registration(["T", "U", "V"], mappings={"T": mapping}), now_ms=0)
    routes.register_broker(registration(["T", "U"], version=2), now_ms=0)
    assert mappings_of(routes, "T") == ["broker-a"]
    routes.register_broker(registration(["V"], version=3, mappings={"T": replace(mapping, epoch=2)}), now_ms=0)
    route = routes.pickup_topic_route_data("T")
    assert route is not None and (route.topic_queue_mapping_by_broker or {})["broker-a"].epoch == 2


def test_a_topic_that_comes_back_after_its_deletion_here_is_static_again() -> None:
    routes = manager()
    mapping = TopicQueueMappingInfo("T", "__global__", 4, "broker-a", 1)
    for _ in range(2):
        routes.register_broker(registration(mappings={"T": mapping}), now_ms=0)
        assert mappings_of(routes, "T") == ["broker-a"]
        routes.delete_topic("T")


def test_a_static_topic_is_never_shown_as_an_ordinary_one_while_it_is_registered() -> None:
    """Messages for a physical queue of it may be behind the end of a part."""
    routes = manager()
    new = registration(
        [f"T{number}" for number in range(2_500)],
        mappings={f"T{number}": TopicQueueMappingInfo(f"T{number}", "g", 4, "broker-a", 1) for number in range(2_500)},
    )
    steps = routes.registering(new, now_ms=0)
    for _ in range(2):
        next(steps)
        shown = routes.all_topics().topic_list
        assert shown and all(mappings_of(routes, topic) for topic in shown)


@pytest.mark.parametrize("queues", [-1, 65_536, (1 << 31) - 1])
def test_a_topic_with_an_impossible_number_of_queues_is_passed_over(queues: int) -> None:
    """Each client that asks for its route would make an object of each queue."""
    routes = manager()
    mapping = TopicQueueMappingInfo("Static", "__global__", queues, "broker-a", 1)
    routes.register_broker(
        registration(["T", topic("U", queues=queues), "Static"], mappings={"Static": mapping}), now_ms=0
    )
    routes.register_topic("V", [QueueData("broker-a", queues, 4, 6, 0), QueueData("broker-a", 4, queues, 6, 0)])
    assert routes.all_topics().topic_list == ["T"]


def test_a_registration_that_says_nothing_new_is_a_sign_of_life() -> None:
    routes, connection = manager(), object()
    routes.register_broker(registration(connection=connection, addr="a", digest=b"1"), now_ms=0)
    result = routes.register_again(CLUSTER, "a", connection, b"1", now_ms=100_000)
    assert result is not None and result.notice is None
    assert routes.expired(200_000) == []


def test_a_registration_is_taken_anew_when_it_or_its_connection_or_the_tables_are_others() -> None:
    changes: list[Callable[[RouteInfoManager], object]] = [
        lambda routes: routes.delete_topic("T"),
        lambda routes: routes.wipe_write_perm_of_broker("broker-a"),
        lambda routes: routes.register_topic("V", [QueueData("broker-a", 1, 1, 6, 0)]),
        lambda routes: routes.register_broker(registration(broker_id=1, addr="b"), now_ms=0),
        lambda routes: routes.unregister_broker(CLUSTER, "a", "broker-a"),
    ]
    for change in changes:
        routes, connection = manager(), object()
        routes.register_broker(registration(connection=connection, addr="a", digest=b"1"), now_ms=0)
        assert routes.register_again(CLUSTER, "a", connection, b"2", now_ms=0) is None
        assert routes.register_again(CLUSTER, "a", object(), b"1", now_ms=0) is None
        assert routes.register_again(CLUSTER, "a", connection, b"1", now_ms=0) is not None
        change(routes)
        assert routes.register_again(CLUSTER, "a", connection, b"1", now_ms=0) is None


def test_two_brokers_that_say_nothing_new_do_not_hinder_one_another() -> None:
    routes, connections = manager(), {"a": object(), "b": object()}
    for _ in range(2):
        for name, connection in connections.items():
            routes.register_broker(registration(connection=connection, name=name, addr=name, digest=b"1"), now_ms=0)
    for name, connection in connections.items():
        assert routes.register_again(CLUSTER, name, connection, b"1", now_ms=0) is not None


def test_two_brokers_that_take_one_name_and_id_from_each_other_are_named(caplog: pytest.LogCaptureFixture) -> None:
    routes = manager()
    first, second = registration(addr="10.0.0.1:10911"), registration(addr="10.0.0.2:10911")
    for now_ms, one in enumerate((first, second, first)):
        routes.register_broker(one, now_ms=now_ms)
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "two brokers are called broker-a with id 0: 10.0.0.2:10911 and 10.0.0.1:10911" in record.getMessage()


def test_a_master_that_another_replaced_and_that_is_its_slave_then_is_no_second_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    routes = manager()
    addresses = "10.0.0.1:10911", "10.0.0.2:10911"
    for now_ms in range(4):
        master, slave = addresses[now_ms % 2], addresses[1 - now_ms % 2]
        routes.register_broker(registration(addr=master), now_ms=now_ms)
        routes.register_broker(registration(addr=slave, broker_id=1 + now_ms % 2), now_ms=now_ms)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_long_registration_is_taken_in_steps_and_nothing_is_left_of_a_broker_that_goes_meanwhile() -> None:
    routes = manager()
    long = registration([f"T{number}" for number in range(5_000)])
    steps = routes.registering(long, now_ms=0)
    next(steps)
    assert 0 < len(routes.all_topics().topic_list) < 5_000
    assert routes.data_version(long.cluster_name, long.broker_addr) != long.data_version
    routes.unregister_broker(long.cluster_name, long.broker_addr, long.broker_name)
    assert list(steps) == [] and routes.all_topics().topic_list == [] and not routes.has_brokers
    assert routes.register_broker(long, now_ms=0) is not None
    assert len(routes.all_topics().topic_list) == 5_000
    assert routes.data_version(long.cluster_name, long.broker_addr) == long.data_version


def test_a_registration_that_is_newer_ends_one_that_is_being_taken() -> None:
    routes = manager()
    old = registration([f"T{number}" for number in range(3_000)])
    steps = routes.registering(old, now_ms=0)
    next(steps)
    routes.register_broker(registration([topic("U"), "V"]), now_ms=1)
    assert list(steps) == []
    assert len(routes.all_topics().topic_list) == 1_002


def named(prefix: str, count: int = 2_500) -> list[TopicConfig | str]:
    return [f"{prefix}{number}" for number in range(count)]


def test_a_broker_with_many_topics_is_gone_at_once_and_its_topics_go_in_steps() -> None:
    routes = manager()
    told: list[str] = []
    routes.when_unfinished = lambda: told.append("unfinished")
    gone = registration(named("T"), name="gone", addr="10.0.0.2:10911")
    routes.register_broker(registration(named("T", 1_200)), now_ms=0)
    empty = tables(routes)
    routes.register_broker(gone, now_ms=0)
    routes.unregister_broker(gone.cluster_name, gone.broker_addr, gone.broker_name)
    assert told == ["unfinished"]
    assert all("gone" not in perms(routes, name) for name in gone.topics)
    assert routes.pickup_topic_route_data("T2000") is None
    steps = 1
    while routes.work_off():
        steps += 1
    assert steps == 2 and tables(routes) == empty and not routes.work_off()


def test_what_a_broker_announces_anew_while_its_former_topics_go_stays() -> None:
    routes = manager()
    mapped = {f"T{number}": TopicQueueMappingInfo(f"T{number}") for number in range(2_500)}
    before = registration(named("T"), mappings=mapped)
    routes.register_broker(before, now_ms=0)
    routes.unregister_broker(before.cluster_name, before.broker_addr, before.broker_name)
    again = registration([topic("T2000", queues=7), "T1", "U"], mappings={"T1": mapped["T1"], "T2000": mapped["T2"]})
    routes.register_broker(again, now_ms=1)
    while routes.work_off():
        pass
    assert sorted(routes.all_topics().topic_list) == ["T1", "T2000", "U"]
    route = routes.pickup_topic_route_data("T2000")
    assert route is not None and route.queue_datas[0].read_queue_nums == 7
    assert route.topic_queue_mapping_by_broker == {"broker-a": mapped["T2"]}


def test_permissions_of_many_topics_change_in_steps_and_in_the_order_in_which_it_was_asked() -> None:
    routes = manager()
    one = registration(named("T"))
    routes.register_broker(one, now_ms=0)
    assert routes.wipe_write_perm_of_broker("broker-a") == 2_500
    assert perms(routes, "T0") == {"broker-a": 4} and perms(routes, "T2000") == {"broker-a": 6}
    routes.register_broker(registration([topic("T2000"), "U"], version=2), now_ms=1)  # after it was asked for
    assert routes.add_write_perm_of_broker("broker-a") == 2_501
    assert routes.wipe_write_perm_of_broker("broker-a") == 2_501
    routes.delete_topic("T2400")
    while routes.work_off():
        pass
    assert {name: perms(routes, name)["broker-a"] for name in routes.all_topics().topic_list} == dict.fromkeys(
        [name for name in [*map(str, named("T")), "U"] if name != "T2400"], 4
    )
    assert routes.wipe_write_perm_of_broker("broker-a") == 2_500
    routes.register_broker(registration([topic("T2000", queues=8), "U"], version=3), now_ms=2)
    while routes.work_off():
        pass
    assert perms(routes, "T2000") == {"broker-a": 6} and perms(routes, "T2001") == {"broker-a": 4}


def test_topics_that_a_registration_leaves_out_go_in_steps() -> None:
    routes = manager(delete_topic_with_broker_registration=True)
    routes.register_broker(registration(named("T", 5_000)), now_ms=0)
    steps = routes.registering(registration(["U", "V"], version=2), now_ms=1)
    next(steps)
    assert 0 < len(routes.all_topics().topic_list) < 5_000
    assert list(steps) and routes.all_topics().topic_list == ["U", "V"]


def tables(routes: RouteInfoManager) -> dict[str, int]:
    """How many entries each table has."""
    return {name: len(table) for name, table in vars(routes).items() if isinstance(table, dict)}


def test_a_broker_of_a_name_in_another_cluster_leaves_nothing_behind() -> None:
    routes = manager()
    empty = tables(routes)
    connections = object(), object()
    routes.register_broker(registration(cluster="C1", connection=connections[0]), now_ms=0)
    other = registration(cluster="C2", connection=connections[1], filter_servers=["f:1"], **SLAVE)
    routes.register_broker(other, now_ms=0)
    routes.on_connection_closed(connections[0])
    assert addrs(routes, "T") == {"broker-a": {1: "10.0.0.2:10911"}}
    routes.on_connection_closed(connections[1])
    assert tables(routes) == empty


def test_a_broker_that_is_unregistered_under_a_wrong_name_is_forgotten_when_it_goes() -> None:
    routes = manager()
    empty = tables(routes)
    connection = object()
    routes.register_broker(registration(connection=connection), now_ms=0)
    routes.unregister_broker(CLUSTER, "10.0.0.1:10911", "ghost")
    routes.on_connection_closed(connection)
    assert tables(routes) == empty


def test_a_mapping_ends_with_its_topic_and_is_taken_from_its_own_broker_only() -> None:
    routes = manager()
    empty = tables(routes)
    connection = object()
    for name in ("broker-a", "somebody-else"):
        mapping = TopicQueueMappingInfo(topic="T", bname=name)
        routes.register_broker(registration(mappings={"T": mapping}, connection=connection), now_ms=0)
    routes.delete_topic("T")
    route = routes.pickup_topic_route_data("T")
    assert route is None
    routes.register_broker(registration(version=9, connection=connection), now_ms=0)
    route = routes.pickup_topic_route_data("T")
    assert route is not None and route.topic_queue_mapping_by_broker is None
    routes.on_connection_closed(connection)
    assert tables(routes) == empty
