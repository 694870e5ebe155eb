"""TableChangesProcessor: MAXQ_AWAIT_TABLE_CHANGE (30090), by which a slave asks whether the tables of topics and groups
still are what it has, and whether an operator has set consumer offsets (reset, clone).

Request: ext topicVersion and groupVersion, the versions (JSON) of the slave's copies; offsetsTaken, the number
offsetsSet of the last answer after which it copied the consumer offsets (0 before the first); waitMs; restMs (or 0).
Answer: ext changed; true as soon as one of them is another one, false after waitMs, at most `MOST_MS`; offsetsSet; and
rested, true. A slave of an earlier version leaves out offsetsTaken: nobody waits until it has offsets. A slave that has
just copied large tables asks for no answer during restMs, which is granted unless somebody waits until slaves have a
change (`copied`). Masters of earlier versions do not answer rested, and at once.

A waiting request does not count as slow: it is left out of the latencies of requests. RocketMQ's slaves ask in
intervals, and its masters answer this code with REQUEST_CODE_NOT_SUPPORTED.

A slave that asks has what it names on its disk. So the requests tell which slaves have a change (`copied`). The answer
to a request that made a topic, or set offsets, waits until the slaves that live have it, too: a slave that acts as
master a moment later knows it. (Members of a DLedger group have it by their log: broker/dledger/table_records.py.)
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from maxq.broker.failover.consumer_offset_ownership import is_newer
from maxq.broker.processors.support import RequestProcessor
from maxq.broker.tables.subscription.subscription_group_manager import SubscriptionGroupManager
from maxq.broker.tables.topic.topic_config_manager import TopicConfigManager
from maxq.codes import RequestCode
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.frame.header_fields import HeaderFields
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.connection import Connection, Processor
from maxq.runtime.interfaces import Clock

#: Longest wait in ms; a slave that is gone has been forgotten by then.
MOST_MS: Final = 30_000
#: Assumed for a slave that does not name a version: it has everything that will ever be set.
_ALL: Final = 1 << 62


class _Versions(NamedTuple):
    """Data versions of topics and groups, and the number of times that operators have set offsets."""

    topics: DataVersion
    groups: DataVersion
    offsets: int

    def has(self, other: "_Versions") -> bool:
        """Return whether these versions are as new as `other`. A slave's versions are those of its master."""
        is_older = is_newer(other.topics, self.topics) or is_newer(other.groups, self.groups)
        return not is_older and self.offsets >= other.offsets


class TableChangesProcessor(RequestProcessor):
    """Parks a slave's request until a table has changed (see the module)."""

    def __init__(
        self,
        *,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        clock: Clock,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._offsets_set = clock.wall_ms()  # starts above every number that an earlier run of this broker has used
        self._changed = asyncio.Event()  # set and replaced by each change, because all waiting tasks wake
        self._waiting = 0  # changes that wait until slaves have copied them
        self._asked: dict[Connection, _Versions] = {}  # connection of a slave that asks → the versions that it has
        self._heard = asyncio.Event()  # set and replaced when a slave asks

    def routes(self) -> Mapping[int, Processor]:
        return {RequestCode.MAXQ_AWAIT_TABLE_CHANGE: self.await_change}

    async def await_change(self, connection: Connection, request: RemotingCommand) -> None:
        """Answer when a table has changed, or after the wait time."""
        fields = HeaderFields(request.ext)
        topics = DataVersion.decode(fields.required_str("topicVersion"))
        groups = DataVersion.decode(fields.required_str("groupVersion"))
        wait_ms = min(max(fields.required_int("waitMs"), 0), MOST_MS)
        rest_ms = min(max(fields.opt_int("restMs") or 0, 0), wait_ms)
        self._forget_closed()
        taken = fields.opt_long("offsetsTaken")
        self._asked[connection] = asked = _Versions(topics, groups, _ALL if taken is None else taken)
        self._heard.set()
        self._heard = asyncio.Event()
        changed = await self._has_changed(asked, wait_ms / 1000, rest_ms / 1000)
        answer = {"changed": str(changed).lower(), "rested": "true", "offsetsSet": str(self._offsets_set)}
        connection.send(request.reply(ext=answer))

    async def _has_changed(self, since: _Versions, wait_s: float, rest_s: float) -> bool:
        time = asyncio.get_running_loop().time
        end, rest_end = time() + wait_s, time() + rest_s
        while True:
            now = self._versions()
            is_changed = (now.topics, now.groups) != (since.topics, since.groups) or now.offsets > since.offsets
            if is_changed and (self._waiting or time() >= rest_end):
                return True
            wake = rest_end if is_changed else end
            if time() >= wake:
                return False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(wake):
                    await self._changed.wait()

    def _versions(self) -> _Versions:
        return _Versions(self._topics.data_version.copy(), self._groups.data_version.copy(), self._offsets_set)

    def offsets_set(self, key: str, queue_ids: Collection[int]) -> None:
        """Tell slaves that operators have set consumer offsets."""
        self._offsets_set += 1
        self.table_changed()

    async def copied(self, wanted_slaves: Callable[[int], int], most_ms: int) -> bool:
        """Wait until that many slaves have copied the present tables. Returns False if they have not within `most_ms`.

        Args:
            wanted_slaves: how many must have them, of so many that ask here; asked again whenever one asks.
        """
        wanted = self._versions()
        self._waiting += 1
        self.table_changed()
        try:
            async with asyncio.timeout(most_ms / 1000):
                while not self._have(wanted, wanted_slaves):
                    await self._heard.wait()
        except TimeoutError:
            return self._have(wanted, wanted_slaves)
        finally:
            self._waiting -= 1
        return True

    def _have(self, wanted: _Versions, wanted_slaves: Callable[[int], int]) -> bool:
        self._forget_closed()
        return sum(asked.has(wanted) for asked in self._asked.values()) >= wanted_slaves(len(self._asked))

    def _forget_closed(self) -> None:
        self._asked = {one: asked for one, asked in self._asked.items() if not one.is_closed}

    def table_changed(self) -> None:
        """Tell slaves that topics or groups have changed."""
        self._changed.set()
        self._changed = asyncio.Event()
