"""Lite topics of RocketMQ 5.5: queues of their own below a parent topic. MaxQ has none; Java's brokers answer these.

Answers are dictionaries with the wire's names.6 lists them.
"""

from typing import Any

from maxq.client.admin.context import AdminContext
from maxq.client.instance.client_api import Field, fields
from maxq.codes import RequestCode
from maxq.errors import RemoteProtocolError
from maxq.protocol.json import json_dialect


class LiteTopicAdmin:
    """Shows lite topics and their subscribers; the attribute `lite_topics` of an Admin. Addresses are host:port of
    brokers."""

    def __init__(self, context: AdminContext) -> None:
        self._api = context.api

    async def broker_info(self, address: str) -> dict[str, Any]:
        """Counts of one broker, and its parent topics and groups (200074)."""
        return await self._ask(address, RequestCode.GET_BROKER_LITE_INFO)

    async def parent_topic(self, address: str, topic: str) -> dict[str, Any]:
        """Return a parent topic: lifetime, lite topics, groups (200075)."""
        return await self._ask(address, RequestCode.GET_PARENT_TOPIC_INFO, topic=topic)

    async def lite_topic(self, address: str, parent: str, lite: str) -> dict[str, Any]:
        """Return one lite topic: offsets and subscribers (200076)."""
        return await self._ask(address, RequestCode.GET_LITE_TOPIC_INFO, parentTopic=parent, liteTopic=lite)

    async def client(
        self, address: str, parent: str, group: str, client_id: str, *, max_count: int = 1_000
    ) -> dict[str, Any]:
        """Return what one client has subscribed to (200077)."""
        code = RequestCode.GET_LITE_CLIENT_INFO
        return await self._ask(address, code, parentTopic=parent, group=group, clientId=client_id, maxCount=max_count)

    async def group(self, address: str, group: str, lite: str | None = None, *, top_k: int = 20) -> dict[str, Any]:
        """Return how far behind a group is, in one lite topic or in those where it is furthest behind (200078)."""
        return await self._ask(address, RequestCode.GET_LITE_GROUP_INFO, group=group, liteTopic=lite, topK=top_k)

    async def trigger_dispatch(self, address: str, group: str, client_id: str | None = None) -> None:
        """Check again for messages of a group's clients (200079)."""
        ext = fields(group=group, clientId=client_id)
        await self._api.call(address, RequestCode.TRIGGER_LITE_DISPATCH, ext)

    async def _ask(self, address: str, code: RequestCode, **values: Field) -> dict[str, Any]:
        response = await self._api.call(address, code, fields(**values))
        found = json_dialect.loads(response.body_bytes)
        if not isinstance(found, dict):
            raise RemoteProtocolError(f"the answer of {address} to {code.name} is no JSON object")
        return found
