"""Namespaces, validators, publish and subscribe queues."""

import pytest

from maxq.client.errors import MessageRefusedError, NameIllegalError
from maxq.client.instance.topic_publish_info import TopicPublishInfo, is_route_changed, publish_queues, subscribe_queues
from maxq.client.validators import check_body, check_consumer_group, check_group, check_properties, check_topic
from maxq.protocol.body.route import BrokerData, QueueData, TopicRouteData
from maxq.protocol.message.message_queue import MessageQueue
from maxq.protocol.namespace import retry_topic, unwrap, wrap


@pytest.mark.parametrize(
    ("name", "wire"),
    [
        ("T", "ns%T"),
        ("%RETRY%G", "%RETRY%ns%G"),
        ("%DLQ%G", "%DLQ%ns%G"),
        ("ns%T", "ns%T"),
        ("TBW102", "TBW102"),
        ("SCHEDULE_TOPIC_XXXX", "SCHEDULE_TOPIC_XXXX"),
        ("rmq_sys_wheel_timer", "rmq_sys_wheel_timer"),
        ("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_TRANS"),
    ],
)
def test_names_are_wrapped_once_and_the_systems_own_never(name: str, wire: str) -> None:
    assert wrap("ns", name) == wire
    assert unwrap("ns", wire) == name.removeprefix("ns%")
    assert wrap("", name) == name


def test_another_namespace_is_not_unwrapped() -> None:
    assert unwrap("ns", "other%T") == "other%T"
    assert retry_topic(wrap("ns", "G")) == "%RETRY%ns%G"


@pytest.mark.parametrize("name", ["a", "A-b_c", "%RETRY%G", "a|b", "x" * 127])
def test_legal_topics_pass_and_a_space_more_does_not(name: str) -> None:
    check_topic(name)
    with pytest.raises(NameIllegalError, match=r"characters|more than 127"):
        check_topic(name + " ")


@pytest.mark.parametrize(
    ("name", "why"),
    [("", "empty"), (" ", "empty"), ("a b", "characters"), ("ä", "characters"), ("x" * 128, "more than 127")],
)
def test_illegal_topics_are_refused_with_the_rule_they_break(name: str, why: str) -> None:
    with pytest.raises(NameIllegalError, match=why):
        check_topic(name)


def test_groups_have_their_own_rules() -> None:
    check_group("g" * 255)
    with pytest.raises(NameIllegalError, match="more than 255"):
        check_group("g" * 256)
    with pytest.raises(NameIllegalError, match="DEFAULT_CONSUMER"):
        check_consumer_group("DEFAULT_CONSUMER")


def test_refusals_carry_size_and_limit() -> None:
    with pytest.raises(MessageRefusedError) as refused:
        check_body(b"x" * 11, 10, "T")
    assert (refused.value.size, refused.value.limit, refused.value.response_code) == (11, 10, 13)
    with pytest.raises(MessageRefusedError, match="32767"):
        check_properties(b"x" * 32_768, "T")
    check_properties(b"x" * 32_767, "T")


def route(**changes: object) -> TopicRouteData:
    values: dict[str, object] = {
        "queue_datas": [
            QueueData("b", 2, 3, 6),
            QueueData("a", 1, 2, 6),
            QueueData("c", 2, 2, 4),
            QueueData("d", 2, 2, 2),
        ],
        "broker_datas": [
            BrokerData("C", "a", {0: "a0", 1: "a1"}),
            BrokerData("C", "b", {0: "b0"}),
            BrokerData("C", "c", {0: "c0"}),
            BrokerData("C", "d", {1: "d1"}),
        ],
        **changes,
    }
    return TopicRouteData(**values)  # type: ignore[arg-type]


def test_publish_queues_are_writable_have_a_master_and_come_in_broker_order() -> None:
    queues = publish_queues("T", route())
    assert [(q.broker_name, q.queue_id) for q in queues] == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2)]


def test_an_order_configuration_decides_alone() -> None:
    queues = publish_queues("T", route(order_topic_conf="b:1;c:2"))
    assert [(q.broker_name, q.queue_id) for q in queues] == [("b", 0), ("c", 0), ("c", 1)]


def test_subscribe_queues_are_readable_and_sorted_without_need_of_a_master() -> None:
    queues = subscribe_queues(
        "T", route(queue_datas=[QueueData("d", 2, 2, 4), QueueData("a", 1, 9, 6), QueueData("b", 5, 5, 2)])
    )
    assert queues == [MessageQueue("T", "a", 0), MessageQueue("T", "d", 0), MessageQueue("T", "d", 1)]


def test_a_route_in_another_order_is_the_same_route() -> None:
    old, new = route(), route()
    new.queue_datas.reverse()
    new.broker_datas.reverse()
    assert not is_route_changed(old, new)
    new.broker_datas[0].broker_addrs[0] = "elsewhere"
    assert is_route_changed(old, new)
    assert is_route_changed(None, new)


def test_round_robin_visits_every_queue_and_filters_without_standing_still() -> None:
    queues = [MessageQueue("T", name, n) for name in "ab" for n in range(2)]
    info = TopicPublishInfo(queues, first=7)
    assert {info.select_one() for _ in range(4)} == set(queues)
    assert {info.select_one(lambda q: q.broker_name == "b") for _ in range(4)} == set(queues[2:])
    assert info.select_one(lambda q: False) is None
    assert TopicPublishInfo([], first=0).select_one() is None
