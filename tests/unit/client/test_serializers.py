"""Bodies from values and values from bodies, with and without msgspec and pydantic."""

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from maxq.client import serializers
from maxq.client.errors import BodyFormatError, WrongArgumentError
from maxq.client.serializers import from_json, json_body
from maxq.protocol.message.message import Message, MessageExt


@dataclass
class Order:
    id: int
    lines: list[str]


@pytest.fixture(params=["msgspec", "pydantic"])
def only(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The one library that is installed."""
    pytest.importorskip(request.param)
    library = serializers._library
    monkeypatch.setattr(serializers, "_library", lambda name: library(name) if name == request.param else None)
    serializers._decoder.cache_clear()
    name: str = request.param
    return name


@pytest.fixture
def without_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serializers, "_library", lambda name: None)
    serializers._decoder.cache_clear()


@pytest.mark.parametrize("value", [None, True, 1, 1.5, "text", [1, "x"], {"a": {"b": [None]}}])
def test_plain_values_come_back(value: object) -> None:
    assert from_json(Message("T", json_body(value))) == value
    if value is not None:
        assert from_json(json_body(value), type(value)) == value


def test_dataclasses_times_and_ids_are_written() -> None:
    one = uuid.UUID(int=1)
    body = json_body({"order": Order(1, ["a"]), "at": datetime(2026, 1, 2, tzinfo=UTC), "id": one})
    assert from_json(body) == {"order": {"id": 1, "lines": ["a"]}, "at": "2026-01-02T00:00:00+00:00", "id": str(one)}


def test_what_cannot_be_written_is_named() -> None:
    with pytest.raises(
        WrongArgumentError, match=r"a dict cannot be written as JSON: there is no rule for the class object; make"
    ):
        json_body({"a": object()})


@pytest.mark.usefixtures("only")
def test_types_are_checked_by_the_library() -> None:
    assert from_json(json_body(Order(1, ["a"])), Order) == Order(1, ["a"])
    assert from_json(json_body([Order(1, [])]), list[Order]) == [Order(1, [])]
    message = MessageExt("Orders", b'{"id": 1}', {"UNIQ_KEY": "A1"}, broker_name="b", queue_id=2, queue_offset=7)
    with pytest.raises(BodyFormatError) as caught:
        from_json(message, Order)
    text = str(caught.value)
    assert "the body of message A1 of topic Orders (queue 2 of b, offset 7) is no Order: " in text
    assert "lines" in text and "delay_level_when_next_consume = -1" in text and caught.value.__cause__ is not None


def test_structs_of_msgspec() -> None:
    msgspec = pytest.importorskip("msgspec")
    kind: Any = msgspec.defstruct("Paid", [("amount", int)])
    assert json_body([kind(3)]) == b'[{"amount":3}]'
    assert from_json(Message("T", json_body(kind(3))), kind) == kind(3)


def test_models_of_pydantic_are_pydantics_although_msgspec_is_there() -> None:
    pydantic = pytest.importorskip("pydantic")
    kind: Any = pydantic.create_model("Paid", amount=(int, ...))
    assert json_body({"paid": kind(amount=3)}) == b'{"paid":{"amount":3}}'
    assert from_json(Message("T", json_body(kind(amount=3))), kind) == kind(amount=3)
    with pytest.raises(BodyFormatError, match="is no Paid: "):
        from_json(b'{"amount": "many"}', kind)


@pytest.mark.usefixtures("without_libraries")
def test_without_libraries_plain_types_are_checked_and_others_refused() -> None:
    assert from_json(b"3", int) == 3 and from_json(b"3", float) == 3.0
    with pytest.raises(BodyFormatError, match="the body of a message of topic T is no int: it is a bool"):
        from_json(Message("T", b"true"), int)
    with pytest.raises(BodyFormatError, match="the body is no JSON: "):
        from_json(b"\xff")
    with pytest.raises(WrongArgumentError, match="to make Order of JSON, install msgspec or pydantic"):
        from_json(b"{}", Order)
