"""Popped: a popped message for a gRPC client."""

from typing import NamedTuple


class Popped(NamedTuple):
    """One popped message.

    Attributes:
        answer: a ReceiveMessageResponse with it, as bytes.
        handle: its receipt handle, as a gRPC client gets it.
        tag: None: it has none.
        reconsume_times: how often it was delivered before.
    """

    answer: bytes
    handle: str
    message_id: str
    tag: str | None
    reconsume_times: int
