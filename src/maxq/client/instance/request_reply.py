"""Request-reply over messages: the requester sends an ordinary message and waits for one that answers it.

The request carries a correlation id, the requester's client id and how long it waits. The consumer sends its reply to
the broker, which pushes it over the requester's connection (PUSH_REPLY_MESSAGE_TO_CLIENT).

Source: apache/rocketmq client/producer/{RequestFutureHolder,RequestResponseFuture}.java, client/utils/MessageUtil.java.
"""

import asyncio

from maxq.errors import ClientError
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import Message, MessageExt

REPLY_MESSAGE_TYPE = "reply"


class PendingRequests:
    """The requests of one client that wait for a reply message."""

    def __init__(self) -> None:
        self._futures: dict[str, asyncio.Future[MessageExt]] = {}

    def open(self, correlation_id: str) -> asyncio.Future[MessageExt]:
        """Return a future for the reply to a request. Call `close` afterwards."""
        future: asyncio.Future[MessageExt] = asyncio.get_running_loop().create_future()
        self._futures[correlation_id] = future
        return future

    def close(self, correlation_id: str) -> None:
        """Stop waiting for the reply to a request; one that comes later is dropped."""
        self._futures.pop(correlation_id, None)

    def on_reply(self, message: MessageExt) -> bool:
        """Give a reply to the waiting request. Returns False if none waits for it."""
        future = self._futures.get(message.properties.get(const.PROPERTY_CORRELATION_ID, ""))
        if future is None or future.done():
            return False
        future.set_result(message)
        return True


def create_reply_message(request: MessageExt, body: bytes) -> Message:
    """Make the reply to a request. Send it as any other message.

    Raises:
        ClientError: `request` does not ask for a reply, or its broker did not say which cluster it is of.
    """
    properties = {const.PROPERTY_MESSAGE_TYPE: REPLY_MESSAGE_TYPE}
    for name in (const.PROPERTY_CORRELATION_ID, const.PROPERTY_MESSAGE_REPLY_TO_CLIENT, const.PROPERTY_MESSAGE_TTL):
        value = request.properties.get(name)
        if value is None:
            raise ClientError(f"message {request.msg_id} asks for no reply: property {name} is missing")
        properties[name] = value
    cluster = request.properties.get(const.PROPERTY_CLUSTER)
    if not cluster:
        raise ClientError(f"message {request.msg_id} cannot be replied to: its broker added no CLUSTER property")
    return Message(f"{cluster}_REPLY_TOPIC", body, properties)


def is_reply(message: Message) -> bool:
    """Return whether a message was made by `create_reply_message`."""
    return message.properties.get(const.PROPERTY_MESSAGE_TYPE) == REPLY_MESSAGE_TYPE
