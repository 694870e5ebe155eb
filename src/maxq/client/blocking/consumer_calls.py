"""The methods of the blocking consumers that are made from those of the asynchronous ones (face.py).

The stub `consumer_calls.pyi` is written by `python -m tests.unit.client.blocking.blocking_stubs`.
"""

from maxq.client.blocking.face import Face
from maxq.client.consumer import lite_pull_consumer, push_consumer, simple_consumer


class PushConsumerCalls(
    Face[push_consumer.PushConsumer],
    of=push_consumer.PushConsumer,
    calls=("assigned_queues", "wait_for_assignment"),
    before_start=("subscribe", "unsubscribe", "suspend", "resume"),
):
    """Methods that the blocking PushConsumer has from the asynchronous one; each returns when its call is done."""


class LitePullConsumerCalls(
    Face[lite_pull_consumer.LitePullConsumer],
    of=lite_pull_consumer.LitePullConsumer,
    calls=(
        "committed",
        "seek",
        "seek_to_begin",
        "seek_to_end",
        "offset_for_timestamp",
        "fetch_message_queues",
        "assignment",
        "wait_for_assignment",
        "pause",
        "resume",
    ),
    before_start=("subscribe", "unsubscribe", "assign"),
):
    """Methods that the blocking LitePullConsumer has from the asynchronous one; each returns when its call is done."""


class SimpleConsumerCalls(
    Face[simple_consumer.SimpleConsumer],
    of=simple_consumer.SimpleConsumer,
    calls=("receive", "ack", "ack_all", "change_invisible_duration"),
    before_start=("subscribe", "unsubscribe"),
):
    """Methods that the blocking SimpleConsumer has from the asynchronous one; each returns when its call is done."""
