"""RetryWriter: messages that nobody acknowledged in time, put where their group finds them again.

The copy goes to the group's retry topic for the topic. It keeps body, flags, properties, times and keys, and is counted
as tried once more. A message from a retry topic goes into the same retry topic again.

Source:
    broker/processor/PopReviveService.java reviveRetry.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from maxq.broker.bundles import Environment, Messages, Tables
from maxq.broker.pop.pop_counts import PopCounts
from maxq.broker.pop.unfinished_revives import UnfinishedRevives
from maxq.broker.tables.topic.topic_validator import REVIVE_GROUP, is_lmq, is_retry_topic
from maxq.errors import MaxQError, RemoteProtocolError
from maxq.protocol.body.pop import PopCheckPoint
from maxq.protocol.body.topic_config import PERM_READ, PERM_WRITE
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import MessageExt, decode_batch, decode_record
from maxq.protocol.message.message_sys_flag import MessageSysFlag
from maxq.protocol.message.pop_extra_info import normal_topic, retry_topic_v1, retry_topic_v2
from maxq.runtime.blocking import COLD_READS
from maxq.runtime.passed_over import PassedOver
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.store_results import GetMessageStatus, PutMessageResult, PutMessageStatus

log = logging.getLogger(__name__)

_OF_A_BATCH: Final = (const.PROPERTY_INNER_NUM, const.PROPERTY_INNER_BASE, const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX)
_TOO_LARGE: Final = (PutMessageStatus.PROPERTIES_SIZE_EXCEEDED, PutMessageStatus.MESSAGE_ILLEGAL)
_LATER: Final = (GetMessageStatus.OFFSET_OVERFLOW_ONE, GetMessageStatus.OFFSET_OVERFLOW_BADLY)

ReadElsewhere = Callable[[str, str, int, int], Awaitable[MessageExt | None]]
"""Broker name, topic, queue id, offset: one message of another broker; None: it is gone. Raises MaxQError."""


class RetryWriter:
    """Writes messages whose invisible time is over to the retry topic, for one broker."""

    def __init__(
        self,
        env: Environment,
        tables: Tables,
        messages: Messages,
        put: Callable[[MessageExtBrokerInner], Awaitable[PutMessageResult]],
        read_elsewhere: ReadElsewhere,
        counts: PopCounts,
        wake: Callable[[str, str], None],
    ) -> None:
        self._groups = tables.groups
        self._wake = wake
        self._topics = tables.topics
        self._store = messages.store
        self._counts = counts
        self._put = put
        self._stats = env.stats
        self._own = env.own
        self._read_elsewhere = read_elsewhere
        self._settings = env.settings
        self._offsets = tables.offsets
        self._interrupted: UnfinishedRevives | None = None
        self._passed_over = PassedOver(log)

    def go_on_with(self, interrupted: UnfinishedRevives) -> None:
        """Continue work that a kill interrupted, so that no part is done twice."""
        self._interrupted = interrupted

    async def revive(self, point: PopCheckPoint) -> list[int]:
        """Put the unacknowledged messages of a check point into the retry topic. Returns the queue offsets of those
        that failed and must be retried.

        On a master nothing else happens from the first copy on until the caller goes on, who notes at once that the
        check point has ended (see UnfinishedRevives). A topic with messages in the log counts as existing: a broker
        that has just become master may not have heard of it before its master died."""
        topic = normal_topic(point.topic, point.group)
        if not self._knows_topic(point):
            log.warning("%s is gone: %d messages popped from it are not revived", topic, len(point.open_offsets()))
            return []
        if self._groups.find_named_group(point.group, point.logged_at) is None:
            log.warning("group %s is gone: messages it popped from %s are not revived", point.group, topic)
            return []
        log_end = self._store.max_physical_offset
        retry_topic = await self._make_retry_topic(point)
        messages: dict[int, MessageExt] = {}
        failed = []
        for offset in point.open_offsets():
            with self._passed_over(*_named(point, offset)) as attempt:
                await self._read(point, offset, messages)
            if attempt.failed:
                failed.append(offset)
        if self._store.deletions.is_deleted_since(point.topic, log_end):  # others may be in their places by now
            log.warning("%s was deleted: %d messages popped before are not revived", point.topic, point.num)
            return []
        for offset, message in messages.items():
            # acknowledged, or its invisible time changed, while other messages were waited for
            if not point.is_open(offset):
                continue
            with self._passed_over(*_named(point, offset)) as attempt:
                for one in _singles(message):
                    await self._put_copy(point, one, retry_topic)
            if attempt.failed:
                failed.append(offset)
        if len(failed) < point.num:
            self._wake(topic, point.group)
        return [offset for offset in failed if point.is_open(offset)]

    def knows(self, point: PopCheckPoint) -> bool:
        """Return whether topic and group of a check point are here. To a slave, whose tables are copies, they may be
        unknown although they are not deleted."""
        return self._knows_topic(point) and self._groups.contains_subscription_group(point.group)

    def _knows_topic(self, point: PopCheckPoint) -> bool:
        is_in_table = self._topics.select_topic_config(normal_topic(point.topic, point.group)) is not None
        return is_in_table or self._store.max_offset(point.topic, point.queue_id) > 0

    async def _read(self, point: PopCheckPoint, offset: int, messages: dict[int, MessageExt]) -> None:
        """Add the message unless it no longer exists. Raises MaxQError or OSError if it cannot be read now."""
        message = await self._message(point, offset)
        if message is None or _is_later(message, point, offset):
            log.warning("message %d of %s-%d is gone, it is not revived", offset, point.topic, point.queue_id)
        else:
            messages[offset] = message

    async def _put_copy(self, point: PopCheckPoint, message: MessageExt, topic: str) -> None:
        """Store the copy of a message that was popped and not acknowledged in time.

        Raises:
            MaxQError: the store takes nothing at present; try again later.
        """
        for properties in (_properties(point, message), dict(message.properties)):
            copy = self._copy(point, message, topic, properties)
            if self._interrupted is not None and self._interrupted.claim(
                copy, behind=self._offset_in_queue_of(copy, point, message), since_ms=point.pop_time
            ):
                return
            result = await self._put(copy)
            # the copy is too large: try again without the properties that it has beyond its message
            if result.status not in _TOO_LARGE:
                break
        self._counts.retried[point.group, point.topic, result.status.name] += 1
        if not result.ok:
            raise MaxQError(result.remark or result.status.name)
        self._stats.put_counter(copy.topic, copy.queue_id).add(1, max(result.size, 0), 0)

    def _offset_in_queue_of(self, copy: MessageExtBrokerInner, point: PopCheckPoint, message: MessageExt) -> int:
        """Return the message's queue offset if it lies in the queue that gets its copy; else -1."""
        is_here = point.broker_name in ("", self._own.broker_name)
        is_same = is_here and (point.topic, point.queue_id) == (copy.topic, copy.queue_id)
        return message.queue_offset if is_same else -1

    async def _message(self, point: PopCheckPoint, offset: int) -> MessageExt | None:
        """Returns the message; None if it no longer exists. Raises MaxQError if it cannot be read now."""
        if point.broker_name not in ("", self._own.broker_name):
            return await self._read_elsewhere(point.broker_name, point.topic, point.queue_id, offset)
        place = REVIVE_GROUP, point.topic, point.queue_id, offset, 1, None
        result = self._store.get_message(*place, may_wait=True)
        if result.must_read_first:
            await COLD_READS.run(result.bring_in)
            result = self._store.get_message(*place)
        if result.status in _LATER:
            raise MaxQError(f"the queue ends at {result.max_offset}")
        if result.status is not GetMessageStatus.FOUND or result.next_begin_offset <= offset:
            return None
        return decode_record(result.buffers[0])

    def _copy(
        self, point: PopCheckPoint, message: MessageExt, topic: str, properties: dict[str, str]
    ) -> MessageExtBrokerInner:
        queue_id = point.queue_id if self._settings.broker.use_separate_retry_queue else 0  # a light queue's, too
        properties.pop(const.PROPERTY_DELAY_TIME_LEVEL, None)  # the message has waited for this level already
        return MessageExtBrokerInner(
            topic, queue_id, message.body, properties,
            flag=message.flag,
            sys_flag=message.sys_flag,
            born_timestamp=message.born_timestamp,
            born_host=self._own.store_host,
            reconsume_times=message.reconsume_times + (0 if point.suspend else 1),
        )  # fmt: skip

    async def _make_retry_topic(self, point: PopCheckPoint) -> str:
        """Make the retry topic of a check point, with a queue for its copies, and return its name. A new topic is
        durable before it gets a message, because nobody would read a topic that a crash removed from the table."""
        topic = point.topic
        if not is_retry_topic(topic):
            topic = retry_topic_v1(point.topic, point.group)
            if self._settings.broker.enable_retry_topic_v2 or self._groups.has_retry_topic(topic):
                topic = retry_topic_v2(point.topic, point.group)
        queues = 1
        if self._settings.broker.use_separate_retry_queue:
            config = self._topics.select_topic_config(normal_topic(point.topic, point.group))
            queues = max(point.queue_id + 1, 0 if config is None else config.read_queue_nums)
        known = self._topics.select_topic_config(topic)
        if known is not None:
            if self._topics.widen(known, queues):
                await self._topics.persisted()
            return topic
        self._topics.create_topic_in_send_message_back_method(topic, queues, PERM_READ | PERM_WRITE, 0)
        for queue_id in range(queues):
            if self._offsets.query_offset(point.group, topic, queue_id) < 0:
                self._offsets.commit_offset("initPopRetryOffset", point.group, topic, queue_id, 0)
        await self._topics.persisted()
        return topic


def _is_later(message: MessageExt, point: PopCheckPoint, offset: int) -> bool:
    """Return whether a read at `offset` has given a later message, because the one there was compacted away, or is
    damaged."""
    # records of a light queue carry the number of another queue
    return message.queue_offset > offset and not is_lmq(point.topic)


def _singles(message: MessageExt) -> list[MessageExt]:
    """Return the messages of an inner batch one by one, because retry topics have ordinary queues; of any other
    message, or of a batch that cannot be read, the message itself."""
    if not message.sys_flag & MessageSysFlag.INNER_BATCH:
        return [message]
    sys_flag = message.sys_flag & ~(MessageSysFlag.INNER_BATCH | MessageSysFlag.NEED_UNWRAP)
    try:
        singles = decode_batch(message.body, message.topic)
    except RemoteProtocolError:
        return [replace(message, sys_flag=sys_flag)]
    own = {name: value for name, value in message.properties.items() if name not in _OF_A_BATCH}
    return [
        replace(message, sys_flag=sys_flag, body=one.body, flag=one.flag, properties=own | one.properties)
        for one in singles
    ]


def _named(point: PopCheckPoint, offset: int) -> tuple[str, int, str, int, str]:
    """Return the fields that name a message for PassedOver."""
    name = "message %d of %s-%d, which %s did not acknowledge and gets again later,"
    return name, offset, point.topic, point.queue_id, point.group


def _properties(point: PopCheckPoint, message: MessageExt) -> dict[str, str]:
    """Return the properties of a copy: when its message was first given out, and to which group."""
    properties = dict(message.properties)
    if message.reconsume_times == 0 or const.PROPERTY_FIRST_POP_TIME not in properties:
        properties[const.PROPERTY_FIRST_POP_TIME] = str(point.pop_time)
    properties[const.PROPERTY_ORIGIN_GROUP] = point.group
    return properties
