"""ReviveRecordWriter: check points and acks as Java stores them: timer messages that come to the revive topic when the
messages' invisible time is over (PopMessageProcessor.buildCkMsg, AckMessageProcessor.appendAck).
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from maxq.broker.bundles import Environment, Messages
from maxq.broker.pop.pop_counts import PopCounts
from maxq.broker.tables.topic.topic_validator import REVIVE_TOPIC_PREFIX
from maxq.protocol.body.pop import CK_TAG, AckMsg, PopCheckPoint
from maxq.protocol.body.route import MASTER_ID
from maxq.protocol.message import message_const as const
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.store_results import PutMessageResult, PutMessageStatus

ACK_INTERVAL_MS: Final = 1_000
"""A check point comes so long before its acks."""

LOGGED_AT: Final = "maxqLoggedAt"
"""Property of a check point's record: PopCheckPoint.logged_at. The timer gives the record another place in the log."""

_NOTHING: Final[Mapping[str, str]] = {}


class ReviveRecordWriter:
    """Writes check points and acks to the revive topic, here or, from an acting slave, in another group.

    Attributes:
        counts: counters of written records, for the metrics.
    """

    def __init__(
        self,
        env: Environment,
        messages: Messages,
        put: Callable[[MessageExtBrokerInner], Awaitable[PutMessageResult]],
        counts: PopCounts,
    ) -> None:
        self._settings = env.settings
        self._own = env.own
        self._hooks = messages.hooks
        self._log = messages.store
        self._clock = env.clock
        self._put = put
        self.counts = counts

    @property
    def topic(self) -> str:
        """Name of the revive topic of this cluster."""
        return REVIVE_TOPIC_PREFIX + self._own.cluster

    async def put_check_point(self, point: PopCheckPoint, revive_qid: int) -> PutMessageResult:
        """Write the check point to the revive topic, so that its messages become visible again after its invisible
        time."""
        deliver_ms = min(point.revive_time, self._latest_ms()) - ACK_INTERVAL_MS
        more = {LOGGED_AT: str(self._log.max_physical_offset)}
        result = await self._store(point.encode(), CK_TAG, point.unique_key, revive_qid, deliver_ms, more)
        self.counts.put[point.group, point.topic, "CK", result.status.name] += 1
        return result

    async def put_ack(self, ack: AckMsg, revive_qid: int, revive_time_ms: int) -> PutMessageResult:
        """Store an ack behind its check point. An acting slave cannot: in another group the ack would not meet its
        check point."""
        if self._own.broker_id != MASTER_ID:
            return PutMessageResult(
                PutMessageStatus.SERVICE_NOT_AVAILABLE,
                remark="its check point was handed over to the log, which this broker, a slave, does not write; ask "
                "the master, when it is back",
            )
        deliver_ms = min(revive_time_ms, self._latest_ms())
        result = await self._store(ack.encode(), ack.tag, ack.unique_key, revive_qid, deliver_ms)
        self.counts.put[ack.group, ack.topic, "ACK", result.status.name] += 1
        return result

    def _latest_ms(self) -> int:
        """Return the longest time, in ms, for which the timer keeps a message; records with a longer delay wait behind
        the revive topic."""
        return self._clock.wall_ms() + self._settings.store.timer_max_delay_sec * 1000 - ACK_INTERVAL_MS

    async def _store(
        self, body: bytes, tag: str, key: str, revive_qid: int, deliver_ms: int, more: Mapping[str, str] = _NOTHING
    ) -> PutMessageResult:
        message = MessageExtBrokerInner(
            self.topic,
            revive_qid % self._settings.broker.revive_queue_num,
            body,
            {const.PROPERTY_TAGS: tag, const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX: key, **more},
            born_timestamp=self._clock.wall_ms(),
            born_host=self._own.store_host,
        )
        if self._settings.store.timer_wheel_enable:
            message.properties[const.PROPERTY_TIMER_DELIVER_MS] = str(deliver_ms)
            if self._own.broker_id == MASTER_ID:
                refusal = self._hooks.apply(message)
                if refusal is not None:
                    return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL, remark=refusal.remark)
        return await self._put(message)
