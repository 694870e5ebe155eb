"""Messages as JSON, both ways."""

import pytest

from maxq.cli.message_json import message_object, message_of
from maxq.errors import ConfigError
from maxq.protocol.message import MessageExt


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
    "value", [[], "text", {}, {"body": 5}, {"bodyBase64": "?"}, {"body": "x", "properties": ["p"]}]
)
def test_anything_else_is_refused_with_its_line(value: object) -> None:
    with pytest.raises(ConfigError, match="line 7"):
        message_of(value, "T", "line 7")
