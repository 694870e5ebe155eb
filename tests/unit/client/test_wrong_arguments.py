"""Arguments and settings of the wrong type, or out of their bounds: what was given, what is expected, what to do."""

import dataclasses
import re
from typing import Any

import pytest

from maxq.api import (
    Admin,
    LitePullConsumer,
    Message,
    MessageModel,
    MessageQueue,
    MessageSelector,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionProducer,
)
from maxq.client.client_config import (
    _BOUNDS,
    ClientConfig,
    LitePullConsumerConfig,
    ProducerConfig,
    PushConsumerConfig,
    SimpleConsumerConfig,
)
from maxq.client.errors import NameIllegalError, WrongArgumentError
from maxq.errors import FilterExpressionError, LocalProtocolError, MaxQError

NOWHERE = "127.0.0.1:9876"
CONFIGS = [ClientConfig, ProducerConfig, PushConsumerConfig, LitePullConsumerConfig, SimpleConsumerConfig]


@pytest.mark.parametrize(
    ("attribute", "value", "why"),
    [
        ("keys", 5, "keys is a text .*, or a list of them, not 5"),
        ("keys", ["a", 5], "a key is a text .*, not 5"),
        ("keys", None, "not None"),
        ("tags", 5, "tags is a text"),
        ("tags", ["a", "b"], "a message has one tag"),
        ("delay_level", "3", "whole number .* not '3'"),
        ("delay_level", -1, "at least 0, not -1"),
        ("delay_level", True, "not True"),
        ("delay_time_ms", 1.5, "not 1.5; the unit is the millisecond"),
        ("deliver_time_ms", 1795541825.07, r"int\(time.time\(\) \* 1000\)"),
        ("deliver_time_ms", 1795541825, "multiply by 1000"),
        ("wait_store_msg_ok", "false", "True or False, not 'false'"),
    ],
)
def test_setters_of_a_message_refuse_at_once_what_would_mean_something_else(
    attribute: str, value: Any, why: str
) -> None:
    message = Message("T", b"x")
    with pytest.raises(LocalProtocolError, match=why):
        setattr(message, attribute, value)
    assert message.properties == {}


def test_what_setters_of_a_message_take() -> None:
    message = Message("T", b"x")
    message.keys = ("a", "b")
    message.delay_level = 0
    message.deliver_time_ms = 1_795_541_825_000
    message.wait_store_msg_ok = False
    assert (message.keys, message.delay_level, message.wait_store_msg_ok) == ("a b", 0, False)
    message.deliver_time_ms = 0  # at once
    assert message.deliver_time_ms == 0


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: str(config.__name__))
def test_every_setting_refuses_a_value_of_another_type_and_names_itself(config: Any) -> None:
    for field in dataclasses.fields(config):
        with pytest.raises(WrongArgumentError, match=rf"^{field.name} is .*, not "):
            config(**{field.name: object()})


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: str(config.__name__))
def test_every_number_has_bounds_and_its_default_is_within_them(config: Any) -> None:
    usual = config()
    numbers = [field.name for field in dataclasses.fields(config) if field.type in (int, int | None)]
    for name in numbers:
        low, high = _BOUNDS[name]
        for value in (low, high, getattr(usual, name)):
            config(**{name: value})
        for value in (low - 1, high + 1):
            with pytest.raises(WrongArgumentError, match=f"{name} is a whole number from {low} to {high}, not {value}"):
                config(**{name: value})
        with pytest.raises(WrongArgumentError):
            config(**{name: "1"})


def test_no_setting_is_named_that_does_not_exist() -> None:
    assert _BOUNDS.keys() <= {field.name for config in CONFIGS for field in dataclasses.fields(config)}


def test_secrets_are_not_told() -> None:
    with pytest.raises(WrongArgumentError, match="secret_key") as refused:
        ProducerConfig(secret_key=b"Topf-Secret")  # type: ignore[arg-type]
    assert "Topf" not in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"message_model": "BROADCASTING"}, "write MessageModel.BROADCASTING"),
        ({"namesrv_addr": ["a:1", "b:2"]}, "join the parts: a:1;b:2"),
    ],
)
def test_the_remedy_is_told_where_it_is_known(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(WrongArgumentError, match=why):
        PushConsumerConfig(**settings)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: str(config.__name__))
def test_a_namespace_has_the_characters_of_the_names_that_it_is_put_before(config: Any) -> None:
    for legal in ("", "ns", "MQ_INST_1-2|3%", "n" * 255):
        assert config(namespace=legal).namespace == legal
    for illegal in ("a\x02", "\ud800", "ä", " ", "a b", "n" * 256):
        with pytest.raises(NameIllegalError, match="the namespace name"):
            config(namespace=illegal)


@pytest.mark.parametrize("kind", [LitePullConsumer, SimpleConsumer])
def test_groups_are_not_too_long_with_their_namespace(kind: Any) -> None:
    kind("g", NOWHERE, namespace="n" * 253)
    with pytest.raises(NameIllegalError, match="the group name has 256 characters, more than 255"):
        kind("gg", NOWHERE, namespace="n" * 253)


def test_an_unknown_setting_brings_the_most_similar_one() -> None:
    with pytest.raises(TypeError, match="no setting 'send_timeout' of a Producer; did you mean send_msg_timeout"):
        Producer("g", NOWHERE, send_timeout=5)
    with pytest.raises(TypeError, match="ClientConfig lists them all"):
        Admin(NOWHERE, xyz=5)


@pytest.mark.parametrize("kind", [Producer, LitePullConsumer, SimpleConsumer])
@pytest.mark.parametrize(("group", "address"), [(5, NOWHERE), (None, NOWHERE), ("g", 5), ("g", None), ("g", [NOWHERE])])
def test_groups_and_addresses_are_texts(kind: Any, group: Any, address: Any) -> None:
    with pytest.raises(WrongArgumentError, match=r"is a text \(str\), not"):
        kind(group, address)


@pytest.mark.parametrize("kind", [Producer, LitePullConsumer, SimpleConsumer])
@pytest.mark.parametrize("address", ["nonsense", "host:port", "127.0.0.1:99999", "a:1,b", f"{NOWHERE};b"])
def test_an_address_without_a_port_is_refused_before_anything_is_asked(kind: Any, address: str) -> None:
    with pytest.raises(WrongArgumentError, match=r"namesrv_addr: an address is host:port, not .* separated by ';'"):
        kind("g", address)


@pytest.mark.parametrize("listener", [None, 5, "listener"])
def test_a_listener_can_be_called(listener: Any) -> None:
    with pytest.raises(WrongArgumentError, match=re.escape("listener(messages, context)")):
        PushConsumer("g", NOWHERE, listener)
    with pytest.raises(WrongArgumentError, match="execute_local_transaction"):
        TransactionProducer("g", NOWHERE, listener)


@pytest.mark.parametrize("kind", [LitePullConsumer, SimpleConsumer])
@pytest.mark.parametrize("topic", [5, None, ["T"], ""])
def test_topics_are_refused_when_they_are_subscribed_not_at_the_start(kind: Any, topic: Any) -> None:
    with pytest.raises(NameIllegalError, match="topic name"):
        kind("g", NOWHERE).subscribe(topic)
    with pytest.raises(WrongArgumentError, match="not 5"):
        kind("g", NOWHERE).subscribe("T", 5)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda p, m: p.send(m, timeout_ms="1"), r"timeout_ms=int"),
        (lambda p, m: p.send(m, timeout_ms=-1), "the unit is the millisecond"),
        (lambda p, m: p.request(m, timeout_ms=1.5), "timeout_ms"),
        (lambda p, m: p.send(m, queue=5), "LitePullConsumer.fetch_message_queues"),
        (lambda p, m: p.send(m, queue=MessageQueue("T", "b", "0")), "an id"),  # type: ignore[arg-type]
        (lambda p, m: p.send(m, queue=MessageQueue("U", "b", 0)), "message of topic T .* of another topic"),
        (lambda p, m: p.send_many(m), "for one there is `send`"),
        (lambda p, m: p.send_many("abc"), "list of Message"),
        (lambda p, m: p.send_many([m], in_flight=0), "in_flight"),
        (lambda p, m: p.send_orderly(m, 5, 1), "selector"),
    ],
)
def test_what_a_producer_is_given(call: Any, why: str) -> None:
    with Producer("g", NOWHERE) as producer, pytest.raises(WrongArgumentError, match=why):
        call(producer, Message("T", b"x"))


QUEUE = MessageQueue("T", "b", 0)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda c: c.poll("1"), "timeout_ms"),
        (lambda c: c.poll(-1), "timeout_ms"),
        (lambda c: c.seek("T", 1), "a queue is"),
        (lambda c: c.seek(QUEUE, "1"), "offset"),
        (lambda c: c.seek(QUEUE, -1), "offset"),
        (lambda c: c.commit([1]), "dict of MessageQueue to int"),
        (lambda c: c.commit({"x": 1}), "a queue is"),
        (lambda c: c.commit({QUEUE: -1}), "the offset of"),
        (lambda c: c.offset_for_timestamp(QUEUE, "x"), "timestamp_ms"),
        (lambda c: c.pause(QUEUE), r"for one queue write \[queue\]"),
        (lambda c: c.resume(["x"]), "a queue is"),
        (lambda c: c.committed("x"), "a queue is"),
        (lambda c: c.assign(5), "queues are a list"),
        (lambda c: c.fetch_message_queues(5), "topic name"),
    ],
)
def test_what_a_lite_pull_consumer_is_given(call: Any, why: str) -> None:
    with LitePullConsumer("g", NOWHERE) as consumer, pytest.raises(MaxQError, match=why):
        call(consumer)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda c: c.receive("1"), "max_messages"),
        (lambda c: c.receive(33), "from 1 to 32, not 33"),
        (lambda c: c.receive(1, -1), "invisible_ms"),
        (lambda c: c.receive(1, wait_ms="1"), "wait_ms"),
        (lambda c: c.ack("x"), "a message that `receive` returned, not 'x'"),
        (lambda c: c.ack_all("x"), "a message that `receive` returned"),
        (lambda c: c.ack_all([5]), "a message that `receive` returned"),
        (lambda c: c.change_invisible_duration(5, 1), "a message that `receive` returned"),
    ],
)
def test_what_a_simple_consumer_is_given(call: Any, why: str) -> None:
    with SimpleConsumer("g", NOWHERE) as consumer, pytest.raises(WrongArgumentError, match=why):
        call(consumer)


def test_the_models_are_enumerations() -> None:
    assert PushConsumerConfig(message_model=MessageModel.BROADCASTING).message_model is MessageModel.BROADCASTING


@pytest.mark.parametrize("kind", [LitePullConsumer, PushConsumer, SimpleConsumer])
@pytest.mark.parametrize(
    ("expression", "language", "why"),
    [
        ("a > ", "SQL92", "at its end: something is missing"),
        ("a == 1", "SQL92", "at character 4"),
        ("", "SQL92", "needs an expression"),
        ("a > 1", "SQL93", "no filter of type 'SQL93'"),
    ],
)
def test_a_wrong_expression_is_refused_when_it_is_subscribed_to(
    kind: Any, expression: str, language: str, why: str
) -> None:
    consumer = (
        PushConsumer("G", NOWHERE, lambda messages, context: None) if kind is PushConsumer else kind("G", NOWHERE)
    )
    with pytest.raises(FilterExpressionError, match=why):
        consumer.subscribe("T", expression, language)
    with pytest.raises(FilterExpressionError, match=why):
        consumer.subscribe("T", MessageSelector(language, expression))
