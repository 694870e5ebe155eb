"""Custom header fields by Java's parse rules."""

import dataclasses

import pytest
from fuzz.targets import HEADERS
from hypothesis import given
from hypothesis import strategies as st

from maxq.errors import MissingFieldError
from maxq.protocol.enums import BoundaryType
from maxq.protocol.frame.header_fields import (
    CommandHeader,
    HeaderFields,
    parse_bool,
    parse_double,
    parse_int,
    parse_long,
)
from maxq.protocol.header.pull import PullMessageRequestHeader
from maxq.protocol.header.send import SendMessageRequestHeader

PULL = {
    "consumerGroup": "G", "topic": "T", "queueId": "1", "queueOffset": "9223372036854775807", "maxMsgNums": "32",
    "sysFlag": "7", "commitOffset": "-1", "suspendTimeoutMillis": "15000", "subVersion": "0",
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("+7", 7), ("-2147483648", -2147483648), ("2147483647", 2147483647), ("2147483648", None), ("", None),
     ("1_0", None), (" 1", None), ("0x1", None), ("1.0", None), ("--1", None), ("٣", None), ("9" * 5000, None)],
)  # fmt: skip
def test_integers_parse_as_in_java(text: str, value: int | None) -> None:
    assert parse_int(text) == value


def test_longs_and_doubles_and_booleans_parse_as_in_java() -> None:
    assert parse_long("-9223372036854775808") == -(1 << 63)
    assert parse_long("9223372036854775808") is None
    assert parse_double("1.5E3") == 1500.0
    assert parse_double("1_0") is None and parse_double("x") is None
    assert [parse_bool(text) for text in ("true", "TRUE", "1", "false", "0", "yes", "")] == [True] * 3 + [False] * 4


@pytest.mark.parametrize("name", PULL)
def test_a_missing_required_field_names_itself(name: str) -> None:
    ext = {key: value for key, value in PULL.items() if key != name}
    with pytest.raises(MissingFieldError, match=f"the custom field <{name}> is null") as caught:
        PullMessageRequestHeader.decode(ext)
    assert caught.value.response_code == 1


def test_a_required_number_that_does_not_parse_is_missing_and_an_optional_one_takes_its_default() -> None:
    with pytest.raises(MissingFieldError, match="queueId"):
        PullMessageRequestHeader.decode(PULL | {"queueId": "one"})
    assert PullMessageRequestHeader.decode(PULL | {"maxMsgBytes": "x"}).max_msg_bytes is None


def test_boundaries_are_named_in_any_case_and_default_to_lower() -> None:
    for text, boundary in (("upper", BoundaryType.UPPER), ("LOWER", BoundaryType.LOWER), ("?", BoundaryType.LOWER)):
        assert BoundaryType.parse(text) == boundary
    assert BoundaryType.parse(None) == BoundaryType.LOWER


def test_letters_of_a_short_send_header_fall_back_to_full_names() -> None:
    header = SendMessageRequestHeader("P", "T", "TBW102", 4, 0, 0, 1700000000000, 0, batch=True, bname="b")
    short = header.encode_v2()
    assert set(short) == set("abcdefghmn")
    assert SendMessageRequestHeader.decode_v2(short) == header
    assert SendMessageRequestHeader.decode_v2(header.encode()) == header
    assert SendMessageRequestHeader.decode_for(10, header.encode()) == header
    assert SendMessageRequestHeader.decode_for(10, header.encode() | {"batch": "1"}).batch is True
    assert SendMessageRequestHeader.decode_v2(header.encode() | {"b": "other"}).topic == "other"


@pytest.mark.parametrize("kind", HEADERS, ids=lambda kind: kind.__name__)
def test_every_header_class_survives_the_wire(kind: type[CommandHeader]) -> None:
    values = {str: "x", int: 7, bool: True, float: 1.5}
    arguments = {}
    for field in dataclasses.fields(kind):
        name = str(field.type)
        (chosen,) = [value for hint, value in values.items() if hint.__name__ in name]
        arguments[field.name] = chosen
    header = kind(**arguments)
    ext = header.encode()
    assert len(ext) == len(arguments)
    assert kind.decode(ext) == header


def test_single_fields_are_read_by_name() -> None:
    fields = HeaderFields({"s": "x", "i": "1", "l": "5000000000", "b": "true", "bad": "x"})
    assert (fields.required_str("s"), fields.required_int("i"), fields.required_long("l")) == ("x", 1, 5000000000)
    assert (fields.opt_str("?"), fields.opt_int("bad"), fields.opt_long("?")) == (None, None, None)
    assert fields.required_bool("b") and fields.opt_bool("b") and fields.opt_bool("?", True)
    for read in (fields.required_str, fields.required_int, fields.required_long, fields.required_bool):
        with pytest.raises(MissingFieldError, match="<nothing>"):
            read("nothing")
    with pytest.raises(MissingFieldError, match="<bad>"):
        fields.required_int("bad")


@given(st.dictionaries(st.sampled_from(sorted(PULL)), st.text(max_size=5)))
def test_any_fields_give_a_header_or_a_missing_field(ext: dict[str, str]) -> None:
    try:
        PullMessageRequestHeader.decode(PULL | ext)
    except MissingFieldError as error:
        assert error.name in PULL
