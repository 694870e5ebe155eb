"""TableChangesProcessor: MAXQ_AWAIT_TABLE_CHANGE (30090), a slave's question whether the tables of topics and groups
still are what it has.

Request: ext topicVersion and groupVersion, the versions (JSON) of the slave's copies, and waitMs. Answer: ext changed;
true as soon as one of the versions is another one, false after waitMs, at most `MOST_MS`.

A question that waits is no slow answer: the latencies of requests do not count it. RocketMQ's slaves ask in intervals,
and its masters answer this code with REQUEST_CODE_NOT_SUPPORTED.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from maxq.broker.processors.support import RequestProcessor
from maxq.broker.subscription.subscription_group_manager import SubscriptionGroupManager
from maxq.broker.topic.topic_config_manager import TopicConfigManager
from maxq.codes import RequestCode
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.header_fields import HeaderFields
from maxq.protocol.remoting_command import RemotingCommand
from maxq.remoting.connection import Connection, Processor

#: Longest wait, in ms: a slave that is gone is forgotten by then.
MOST_MS: Final = 30_000


class TableChangesProcessor(RequestProcessor):
    """See the module."""

    def __init__(self, *, topics: TopicConfigManager, groups: SubscriptionGroupManager) -> None:
        self._topics = topics
        self._groups = groups
        self._changed = asyncio.Event()  # replaced by each change, for whoever waits was woken
        topics.when_changed = groups.when_changed = self._wake

    def routes(self) -> Mapping[int, Processor]:
        return {RequestCode.MAXQ_AWAIT_TABLE_CHANGE: self.await_change}

    async def await_change(self, connection: Connection, request: RemotingCommand) -> None:
        """Answers when there is something to say."""
        fields = HeaderFields(request.ext)
        topics = DataVersion.decode(fields.required_str("topicVersion"))
        groups = DataVersion.decode(fields.required_str("groupVersion"))
        wait_ms = min(max(fields.required_int("waitMs"), 0), MOST_MS)
        try:
            async with asyncio.timeout(wait_ms / 1000):
                while self._topics.data_version == topics and self._groups.data_version == groups:
                    await self._changed.wait()
        except TimeoutError:
            changed = "false"
        else:
            changed = "true"
        connection.send(request.reply(ext={"changed": changed}))

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
