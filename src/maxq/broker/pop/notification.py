"""NOTIFICATION (200054), PEEK_MESSAGE (200052) and POLLING_INFO (200055): whether there are messages, which ones, and
how many requests wait.

Source:
    broker/processor/{NotificationProcessor,PeekMessageProcessor,PollingInfoProcessor}.java.
"""

from collections.abc import Mapping
from typing import Final

from maxq.broker.bundles import Environment, Messages, Tables
from maxq.broker.longpolling.pop_long_polling import PollingResult, PopLongPollingService, PopRequest
from maxq.broker.pop.pop_checks import PopChecks
from maxq.broker.pop.pop_message import CLOCKS_DIFFER_MS
from maxq.broker.pop.pop_reader import PopReader
from maxq.broker.processors.support import RequestProcessor
from maxq.codes import RequestCode, ResponseCode
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.pull import NotificationRequestHeader, PeekMessageRequestHeader, PollingInfoRequestHeader
from maxq.protocol.message.pop_extra_info import retry_topic_v1, retry_topic_v2
from maxq.remoting.connection import Processor
from maxq.remoting.server import Connection
from maxq.store.read.message_reader import TagFilter, tags_codes
from maxq.store.store_results import GetMessageStatus

_UNITS: Final = 32
_MOVED: Final = (GetMessageStatus.OFFSET_TOO_SMALL, GetMessageStatus.OFFSET_OVERFLOW_BADLY)


class NotificationProcessor(RequestProcessor):
    """Handles notifications that a pop would find messages, for one broker."""

    def __init__(
        self,
        env: Environment,
        tables: Tables,
        messages: Messages,
        checks: PopChecks,
        reader: PopReader,
        notified: PopLongPollingService,
        popping: PopLongPollingService,
    ) -> None:
        """`notified` has the parked notifications, `popping` the parked pops."""
        self._settings = env.settings
        self._store = messages.store
        self._topics = tables.topics
        self._groups = tables.groups
        self._checks = checks
        self._reader = reader
        self._notified = notified
        self._popping = popping
        self._stats = env.stats
        self._clock = env.clock
        self._rng = env.rng

    def routes(self) -> Mapping[int, Processor]:
        return {
            RequestCode.NOTIFICATION: self.notification,
            RequestCode.PEEK_MESSAGE: self.peek,
            RequestCode.POLLING_INFO: self.polling_info,
        }

    # --- notification ------------------------------------------------------------------------------------------------

    def notification(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Answer hasMsg at once if there are messages, later when some arrive, or false after the wait time."""
        if not request.ext.get("bornTime"):
            request.ext["bornTime"] = str(self._clock.wall_ms())
        header = NotificationRequestHeader.decode(request.ext)
        has_message = self._has_message(connection, header)
        if has_message:
            return _told(request, has_message)
        waiting = PopRequest(
            connection, request, (header.topic, header.consumer_group, header.queue_id), self._again, header.order
        )
        born_ms, now_ms = header.born_time, self._clock.wall_ms()
        if not born_ms or now_ms - born_ms > CLOCKS_DIFFER_MS:
            born_ms = now_ms
        result = self._notified.polling(waiting, born_time=born_ms, poll_time=header.poll_time)
        if result is PollingResult.POLLING_SUC:
            return None
        return _told(request, False, full=result is PollingResult.POLLING_FULL)

    def _again(self, waiting: PopRequest, last: bool) -> bool:
        header = NotificationRequestHeader.decode(waiting.request.ext)
        has_message = self._has_message(waiting.connection, header)
        if has_message or last:
            waiting.connection.send(_told(waiting.request, has_message))
        return has_message or last

    def _has_message(self, connection: Connection, header: NotificationRequestHeader) -> bool:
        topic, _ = self._checks.may_read(connection, header.topic, header.consumer_group, header.queue_id, "peeking")
        subscription, wanted = self._checks.filters.of(header.topic, header.exp, header.exp_type)
        by_tag = None if wanted is not None or not header.exp else subscription
        queues = range(topic.read_queue_nums) if header.queue_id < 0 else (header.queue_id,)
        if any(self._queue_has(header, topic.topic_name, queue_id, by_tag) for queue_id in queues):
            return True
        return any(
            self._queue_has(header, retry.topic_name, queue_id, None)
            for retry in self._retry_topics(header.topic, header.consumer_group)
            for queue_id in range(retry.read_queue_nums)
        )

    def _queue_has(
        self, header: NotificationRequestHeader, topic: str, queue_id: int, by_tag: TagFilter | None
    ) -> bool:
        group = header.consumer_group
        if header.order and self._reader.orders.is_blocked(topic, group, queue_id, header.attempt_id, 0):
            return False
        offset = self._reader.offset(topic, group, queue_id)
        waiting = self._store.max_offset(topic, queue_id) - offset
        broker = self._settings.broker
        codes = tags_codes(by_tag) if broker.use_message_filter_for_notification else None
        if codes is None or not 0 < waiting < broker.max_message_filter_num_for_notification:
            return waiting > 0
        return any(code in codes for _, _, code in self._store.queue_units(topic, queue_id, offset, _UNITS))

    def _retry_topics(self, topic: str, group: str) -> list[TopicConfig]:
        """Returns the retry topics that a pop reads."""
        broker = self._settings.broker
        newer, older = retry_topic_v2(topic, group), retry_topic_v1(topic, group)
        if self._groups.has_retry_topic(older):
            names = [newer]
        else:
            names = [newer] if broker.enable_retry_topic_v2 else []
            if not broker.enable_retry_topic_v2 or broker.retrieve_message_from_pop_retry_topic_v1:
                names.append(older)
        return [config for name in names if (config := self._topics.select_topic_config(name)) is not None]

    # --- peek --------------------------------------------------------------------------------------------------------

    def peek(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Return the messages that the group would be given next, without giving them out."""
        header = PeekMessageRequestHeader.decode(request.ext)
        topic, _ = self._checks.may_read(connection, header.topic, header.consumer_group, header.queue_id, "peeking")
        start = self._rng.below(100)
        count = topic.read_queue_nums
        own = [(start + at) % count for at in range(count)] if header.queue_id < 0 else [header.queue_id]
        queues = [(header.topic, queue_id) for queue_id in own]
        retries = [
            (retry.topic_name, queue_id)
            for retry in self._retry_topics(header.topic, header.consumer_group)
            for queue_id in range(retry.read_queue_nums)
        ]
        buffers: list[memoryview] = []
        found = rest = 0
        for name, queue_id in retries + queues if start % 5 == 0 else queues + retries:
            taken, left = self._peek_queue(header, name, queue_id, header.max_msg_nums - found, buffers)
            found += taken
            rest += left
        code = ResponseCode.SUCCESS if found else ResponseCode.PULL_NOT_FOUND
        ext = {
            "popTime": str(self._clock.wall_ms()), "invisibleTime": "0",
            "reviveQid": str(start % self._settings.broker.revive_queue_num), "restNum": str(rest),
        }  # fmt: skip
        return request.reply(code, "FOUND" if found else "NO_MESSAGE_IN_QUEUE", ext, buffers or None)

    def _peek_queue(
        self,
        header: PeekMessageRequestHeader,
        topic: str,
        queue_id: int,
        most: int,
        buffers: list[memoryview],
    ) -> tuple[int, int]:
        """Return how many messages of this queue were added to `buffers`, and how many wait in it."""
        group = header.consumer_group
        offset = self._reader.offset(topic, group, queue_id)
        waiting = max(0, self._store.max_offset(topic, queue_id) - offset)
        if most <= 0:
            return 0, waiting
        result = self._store.get_message(group, topic, queue_id, offset, most, None)
        if result.status in _MOVED:
            result = self._store.get_message(group, topic, queue_id, result.next_begin_offset, most, None)
        buffers += result.buffers
        if result.message_count:
            counter = self._stats.get_counter(group, topic, queue_id)
            counter.add(result.message_count, result.total_bytes, 0, bool(result.cold))
        return result.message_count, waiting

    # --- polling info ------------------------------------------------------------------------------------------------

    def polling_info(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Return how many pops wait for this topic, group and queue."""
        header = PollingInfoRequestHeader.decode(request.ext)
        self._checks.may_read(connection, header.topic, header.consumer_group, header.queue_id, "peeking")
        number = self._popping.waiting((header.topic, header.consumer_group, header.queue_id))
        return request.reply(ResponseCode.SUCCESS, None, {"pollingNum": str(number)})


def _told(request: RemotingCommand, has_message: bool, *, full: bool = False) -> RemotingCommand:
    ext = {"hasMsg": "true" if has_message else "false", "pollingFull": "true" if full else "false"}
    return request.reply(ResponseCode.SUCCESS, None, ext)
