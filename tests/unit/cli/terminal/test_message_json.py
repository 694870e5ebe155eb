"""Messages as JSON, both ways."""

import pytest

from maxq.cli.terminal.message_json import message_object, message_of
from maxq.errors import ConfigError
from maxq.protocol.message.message import MessageExt


def stored(body: bytes) -> MessageExt:
    message = MessageExt("T", body)
    message.properties.update({"UNIQ_KEY": "U", "TAGS": "tag", "KEYS": "a b", "mine": "x", "CLUSTER": "C"})
    return message


@pytest.mark.parametrize("body", [b"text", "é".encode(), b"\xff\x00"])
def test_what_is_printed_makes_the_same_message_again(body: bytes) -> None:
    again = message_of(message_object(stored(body)), "Other", "line 1")
    assert (again.topic, again.body, again.tags, again.keys) == ("Other", body, "tag", "a b")
    assert again.properties["mine"] == "x"


def test_what_broker_and_producer_add_is_not_sent_again() -> None:
    again = message_of(message_object(stored(b"x")), "T", "line 1")
    assert not {"UNIQ_KEY", "CLUSTER"} & again.properties.keys()


@pytest.mark.parametrize(
    "value",
    [
        [],
        "text",
        {},
        {"body": 5},
        {"bodyBase64": "?"},
        {"body": "x", "properties": ["p"]},
        {"body": "x", "bodyBase64": 1234},
        {"body": None, "bodyBase64": None},
        {"body": "x", "flag": 2**31},
        {"body": "x", "flag": "3"},
        {"body": "x", "flag": True},
        {"body": "x", "tags": ["a"]},
        {"body": "x", "keys": [None]},
        {"body": "x", "properties": {"a": {"b": 1}}},
    ],
)
def test_anything_else_is_refused_with_its_line(value: object) -> None:
    with pytest.raises(ConfigError, match="line 7"):
        message_of(value, "T", "line 7")


def test_null_counts_as_left_out() -> None:
    value = {"body": "x", "bodyBase64": None, "tags": None, "keys": None, "flag": None, "properties": {"a": None}}
    found = message_of(value, "T", "line 1")
    assert (found.body, dict(found.properties), found.flag) == (b"x", {}, 0)
    assert message_of({"body": None, "bodyBase64": "eA=="}, "T", "line 1").body == b"x"


def test_numbers_and_truth_are_text_as_json_has_them() -> None:
    found = message_of({"body": "x", "properties": {"price": 5, "paid": True}}, "T", "line 1")
    assert dict(found.properties) == {"price": "5", "paid": "true"}


def test_a_copy_is_not_delayed_again_nor_given_back_to_the_topic_it_came_from() -> None:
    properties = {"DELAY": "3", "TIMER_DELAY_MS": "60000", "TRAN_MSG": "true", "RETRY_TOPIC": "Old", "POP_CK": "0 0"}
    dead = stored(b"x")
    dead.properties.update(properties)
    assert dict(message_of(message_object(dead), "T", "line 1").properties) == {
        "TAGS": "tag", "KEYS": "a b", "mine": "x",
    }  # fmt: skip
    fresh = message_of({"body": "x", "properties": {"DELAY": "3"}}, "T", "line 1")
    assert fresh.properties["DELAY"] == "3"  # asked for
