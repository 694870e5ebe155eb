"""Errors name what was asked, of whom, for which topic or group, and what to do."""

import pickle
from collections.abc import Callable
from copy import copy

import pytest

from maxq import api
from maxq.client.errors import MessageRefusedError, RequestTimeoutError, SendFailedError
from maxq.errors import (
    BrokerError,
    DataLossError,
    MaxQError,
    MissingFieldError,
    RemotingConnectError,
    RemotingTimeoutError,
)

NOWHERE = "127.0.0.1:1"
QUEUE = api.MessageQueue("Orders", "b", 0)


def send() -> None:
    with api.Producer("p", NOWHERE, send_msg_timeout=200) as producer:
        producer.send(api.Message("Orders", b"x"))


def send_a_batch_of_delayed() -> None:
    with api.Producer("p", NOWHERE) as producer:
        producer.send_batch([api.Message("Orders", b"x"), api.Message("Orders", b"x", {"DELAY": "1"})])


def send_a_batch_of_two_topics() -> None:
    with api.Producer("p", NOWHERE) as producer:
        producer.send_batch([api.Message("Orders", b"x"), api.Message("Paid", b"x")])


def receive() -> None:
    with api.SimpleConsumer("g", NOWHERE) as consumer:
        consumer.subscribe("Orders")
        consumer.receive(wait_ms=1)


def receive_nothing() -> None:
    with api.SimpleConsumer("g", NOWHERE) as consumer:
        consumer.receive(wait_ms=1)


def seek() -> None:
    with api.LitePullConsumer("g", NOWHERE) as consumer:
        consumer.seek(QUEUE, 1)


def subscribe_and_assign() -> None:
    consumer = api.LitePullConsumer("g", NOWHERE)
    consumer.subscribe("Orders")
    consumer.assign([QUEUE])


def ask() -> None:
    with api.Admin(f"{NOWHERE};127.0.0.1:2") as admin:
        admin.topics.names()


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (
            send,
            ["sending to topic Orders failed for 200 ms", NOWHERE, "Connection refused", "see whether one runs there"],
        ),
        (send_a_batch_of_delayed, ["a batch of Orders", "send them one by one"]),
        (send_a_batch_of_two_topics, ["Orders and Paid", "send two batches"]),
        (
            receive,
            ["the route of topic Orders is not known", f"<{NOWHERE}>", "(namesrv_addr)", "can be reached from here"],
        ),
        (receive_nothing, ["the consumer of group g", "subscribe to a topic before you receive"]),
        (seek, ["cannot seek", "Orders", "group g"]),
        (subscribe_and_assign, ["exclude each other", "group g has subscribed before"]),
        (ask, [NOWHERE, "127.0.0.1:2", "see whether one runs there"]),
        (lambda: api.Producer("p", NOWHERE).send(api.Message("T", b"x")), ["producer of group p", "start it first"]),
        (lambda: api.LitePullConsumer("g", NOWHERE).poll(), ["consumer of group g", "start it first"]),
        (lambda: api.Producer("p", NOWHERE, access_key="a").start(), ["secret_key is missing"]),
    ],
)
def test_errors_say_what_was_tried_and_what_to_do(call: Callable[[], object], parts: list[str]) -> None:
    with pytest.raises(MaxQError) as caught:
        call()
    assert [part for part in parts if part not in str(caught.value)] == [], str(caught.value)


def test_an_error_that_says_more_is_the_same_error() -> None:
    error = RemotingConnectError("refused", address="h:1", is_refused=True)
    told = error.told_as(f"no name server answers: {error}")
    assert type(told) is RemotingConnectError and (told.address, told.is_refused) == ("h:1", True)
    assert str(error) == "refused" and str(told) == str(copy(told)) == "no name server answers: refused"
    late = RemotingTimeoutError("late", address="h:1", timeout_ms=7).told_as("sending to topic T: late")
    assert (late.address, late.timeout_ms) == ("h:1", 7)


@pytest.mark.parametrize(
    "error",
    [
        BrokerError(13, "too large", address="h:1"),
        RequestTimeoutError("no reply", timeout_ms=7),
        SendFailedError("failed twice", [("a", BrokerError(2, "busy")), ("b", RemotingTimeoutError("late"))]),
        DataLossError("t/b/0", 3, (5, 9), "was deleted"),
        MissingFieldError("topic"),
        MessageRefusedError("too large", size=9, limit=5),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_survives_the_way_to_another_process(error: MaxQError) -> None:
    error.may_be_stored = True
    error.add_note("a note")
    for other in (pickle.loads(pickle.dumps(error)), copy(error)):
        assert type(other) is type(error)
        assert str(other) == str(error)
        facts, known = vars(other), vars(error)
        assert {name: str(fact) for name, fact in facts.items()} == {name: str(fact) for name, fact in known.items()}
