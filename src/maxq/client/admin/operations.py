"""Requests that only MaxQ brokers know: where the time of sends goes, purging topics."""

from typing import Any

from maxq.client.admin.context import AdminContext
from maxq.client.instance.client_api import fields
from maxq.codes import RequestCode
from maxq.protocol.json import json_dialect


class OperationsAdmin:
    """Calls for the operation of a broker; the attribute `operations` of an Admin. Answers are the broker's JSON
    objects."""

    def __init__(self, context: AdminContext) -> None:
        self._api = context.api

    async def why_slow(self, address: str) -> dict[str, Any]:
        """Return the stages of recent sends, and refusals by cause (broker/stats/stage_times.py)."""
        response = await self._api.call(address, RequestCode.MAXQ_WHY_SLOW)
        found: dict[str, Any] = json_dialect.loads(response.body_bytes)
        return found

    async def purge_topic(
        self,
        address: str,
        topic: str,
        *,
        queue_id: int | None = None,
        before_ms: int | None = None,
        before_offset: int | None = None,
        dry_run: bool = True,
    ) -> dict[str, Any]:
        """Hide messages of a topic on one master, or with `dry_run` report which would be hidden (PURGE_TOPIC, a
        request of MaxQ)."""
        ext = fields(
            topic=topic,
            queueId=queue_id,
            beforeTimestamp=before_ms,
            beforeOffset=before_offset,
            dryRun="true" if dry_run else "false",
        )
        response = await self._api.call(address, RequestCode.MAXQ_PURGE_TOPIC, ext)
        found: dict[str, Any] = json_dialect.loads(response.body_bytes)
        return found
