"""The blocking clients have the methods of the asynchronous ones, for programs, for `help()` and for type checkers."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from maxq import api
from maxq.client.admin.messages import MessageAdmin
from maxq.client.admin.topics import TopicAdmin
from maxq.client.blocking import calls
from maxq.client.consumer import lite_pull_consumer, simple_consumer
from maxq.client.errors import NotRunningError
from maxq.client.producer import producer
from maxq.errors import ClientError
from maxq.protocol.message.message_queue import MessageQueue
from tests.unit.client.blocking import blocking_stubs

NOWHERE = "127.0.0.1:1"


def test_the_stubs_are_fresh() -> None:
    hint = "run python -m tests.unit.client.blocking.blocking_stubs"
    for module in blocking_stubs.MODULES:
        assert blocking_stubs.path_of(module).read_text() == blocking_stubs.stub(module), hint


@pytest.mark.parametrize(
    ("blocking", "asynchronous"),
    [
        (api.Producer.send, producer.Producer.send),
        (api.Producer.send_batch, producer.Producer.send_batch),
        (api.LitePullConsumer.seek, lite_pull_consumer.LitePullConsumer.seek),
        (api.LitePullConsumer.assignment, lite_pull_consumer.LitePullConsumer.assignment),
        (api.SimpleConsumer.receive, simple_consumer.SimpleConsumer.receive),
        (calls.TopicCalls.create, TopicAdmin.create),
        (calls.MessageCalls.scan, MessageAdmin.scan),
    ],
)
def test_help_shows_signature_and_docstring(blocking: Callable[..., Any], asynchronous: Callable[..., Any]) -> None:
    parameters = inspect.signature(blocking).parameters
    assert parameters == inspect.signature(asynchronous).parameters
    assert not inspect.iscoroutinefunction(blocking)
    assert inspect.getdoc(blocking) == inspect.getdoc(asynchronous)
    assert blocking.__qualname__.endswith(f".{asynchronous.__name__}")


def test_calls_before_the_start_say_so() -> None:
    with pytest.raises(NotRunningError, match="producer of group P is not running: start it first"):
        api.Producer("P", NOWHERE).send(api.Message("T", b""))
    with pytest.raises(NotRunningError, match="consumer of group G is not running: start it first"):
        api.LitePullConsumer("G", NOWHERE).poll(0)
    with pytest.raises(NotRunningError, match="consumer of group G is not running: start it first"):
        api.SimpleConsumer("G", NOWHERE).receive()


def test_what_is_wrong_with_a_subscription_is_said_at_once_before_the_start() -> None:
    consumer = api.LitePullConsumer("G", NOWHERE)
    with pytest.raises(ClientError):
        consumer.subscribe("no topic has spaces")
    consumer.subscribe("T")
    with pytest.raises(ClientError, match="exclude each other"):
        consumer.assign([MessageQueue("T", "broker-a", 0)])
    consumer.unsubscribe("T")
    consumer.assign([MessageQueue("T", "broker-a", 0)])


def test_admin_has_the_parts_of_the_asynchronous_one() -> None:
    with api.Admin(NOWHERE) as admin:
        assert {"topics", "transactions", "access"} <= set(dir(admin))
        assert type(admin.dead_letters).__name__ == "DeadLetterCalls"
        assert admin.topics is admin.topics
        with pytest.raises(AttributeError, match="there are access, brokers"):
            admin.no_such_part  # type: ignore[attr-defined]  # noqa: B018
