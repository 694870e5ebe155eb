"""Tests of a program against a real server, with the fixtures of `maxq[test]`.

pytest examples/clients/test_with_pytest.py
"""

from collections.abc import Callable, Sequence

from maxq.api import Message, MessageExt, Producer


def place_order(producer: Producer, topic: str, order: str) -> None:
    """The program under test."""
    producer.send(Message(topic, order.encode(), {"KEYS": order, "TAGS": "created"}))


def test_an_order_becomes_one_message(
    maxq_producer: Producer, maxq_topic: str, maxq_messages: Callable[[str, int], Sequence[MessageExt]]
) -> None:
    place_order(maxq_producer, maxq_topic, "order-1")

    (message,) = maxq_messages(maxq_topic, 1)
    assert (message.body, message.keys, message.tags) == (b"order-1", "order-1", "created")
