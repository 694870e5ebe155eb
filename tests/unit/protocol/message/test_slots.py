"""Slots of classes, in the uncompiled form; the compiled one is seen by the tests of sends."""

import pytest

from maxq.protocol.message.message import Message
from maxq.protocol.message.slots import slot_place, slot_value


def test_a_slot_gives_its_value_and_none_when_it_is_empty() -> None:
    body = slot_place(Message, "body")
    message = Message("T", b"x")
    assert slot_value(message, body) == b"x"
    del message.body
    assert slot_value(message, body) is None


def test_what_is_no_slot_has_no_place() -> None:
    with pytest.raises(TypeError, match="'tags'"):
        slot_place(Message, "tags")
