"""Timer messages that wait on brokers: MaxQ's own requests 30060 to 30062."""

from collections.abc import AsyncGenerator
from typing import Any

from maxq.client.admin.context import AdminContext
from maxq.client.instance.client_api import fields
from maxq.codes import RequestCode
from maxq.protocol.json import json_dialect

_PAGE = 500


class TimerAdmin:
    """Lists and cancels timer messages; the attribute `timers` of an Admin. Pages are the broker's JSON objects
    (broker/timer/timer_admin.py)."""

    def __init__(self, context: AdminContext) -> None:
        self._api = context.api

    async def pages(
        self, address: str, *, begin_ms: int | None = None, end_ms: int | None = None, topic: str = ""
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the waiting messages of one broker, by due time. Each page costs the broker a few milliseconds."""
        cursor = ""
        while True:
            ext = fields(beginMs=begin_ms, endMs=end_ms, topic=topic, maxNum=_PAGE, cursor=cursor)
            response = await self._api.call(address, RequestCode.MAXQ_LIST_TIMER_MESSAGES, ext)
            page: dict[str, Any] = json_dialect.loads(response.body_bytes)
            yield page
            cursor = page["next"]
            if not cursor:
                return

    async def inspect(self, address: str, key: str, topic: str = "") -> dict[str, Any]:
        """Find one message by its id (UNIQ_KEY). The page has no entries if it does not wait there."""
        ext = fields(key=key, topic=topic)
        response = await self._api.call(address, RequestCode.MAXQ_INSPECT_TIMER_MESSAGE, ext)
        found: dict[str, Any] = json_dialect.loads(response.body_bytes)
        return found

    async def cancel(self, address: str, key: str, topic: str = "") -> None:
        """Cancel a message before it is delivered. Raises BrokerError if it does not wait there, or is due already."""
        await self._api.call(address, RequestCode.MAXQ_CANCEL_TIMER_MESSAGE, fields(key=key, topic=topic))
