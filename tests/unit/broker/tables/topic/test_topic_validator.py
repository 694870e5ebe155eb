"""Names of topics and groups."""

import pytest

from maxq.broker.tables.topic.topic_validator import (
    is_not_allowed_send_topic,
    is_system_topic,
    validate_group,
    validate_topic,
)


@pytest.mark.parametrize("name", ["T", "%RETRY%G", "a|b-c_D9", "x" * 127, "%RETRY%" + "x" * 248, "%DLQ%" + "x" * 250])
def test_legal_topics_pass(name: str) -> None:
    assert validate_topic(name) is None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "blank. A name has 1 to 127 characters"),
        ("  ", "blank"),
        ("bad name!", "contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("a.b", "('.' is character 2); choose another name"),
        ("тема", "illegal characters"),
        ("T\n", "illegal characters"),
        ("x" * 128, "longer than topic max length: 127 (128 characters); choose another name"),
        ("%RETRY%" + "x" * 249, "longer than topic max length: 255 (256 characters); choose another name"),
    ],
)
def test_illegal_topics_are_refused_with_the_reason(name: str, reason: str) -> None:
    remark = validate_topic(name)
    assert remark is not None and reason in remark


def test_a_name_of_megabytes_is_not_told_whole() -> None:
    for name in ("x" * (1 << 20), "." * (1 << 20)):
        assert len(validate_topic(name) or "") < 500 and len(validate_group(name) or "") < 500


def test_groups_leave_room_for_the_prefixes_of_their_retry_topics() -> None:
    assert validate_group("g" * 120) is None
    assert "longer than group max length: 120" in (validate_group("g" * 121) or "")
    assert "illegal" in (validate_group("a b") or "")
    assert "blank" in (validate_group("") or "")


def test_system_topics_are_those_listed_and_those_with_the_prefix_in_lower_case() -> None:
    assert is_system_topic("SCHEDULE_TOPIC_XXXX")
    assert is_system_topic("rmq_sys_wheel_timer")
    assert not is_system_topic("RMQ_SYS_wheel")
    assert not is_system_topic("T")


def test_clients_may_send_to_benchmark_and_template_but_not_to_the_brokers_own_topics() -> None:
    assert not is_not_allowed_send_topic("BenchmarkTest")
    assert not is_not_allowed_send_topic("TBW102")
    assert is_not_allowed_send_topic("RMQ_SYS_TRANS_HALF_TOPIC")
    assert is_not_allowed_send_topic("SELF_TEST_TOPIC")
