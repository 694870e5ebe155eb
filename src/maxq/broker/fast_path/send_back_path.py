"""The batch path of messages that come back: leading CONSUMER_SEND_MSG_BACK frames of an arrival.

A consumer that fails gives back by the thousand. A message without peculiarities, one of a group that has its retry
topic, with tries left, becomes its delayed copy from record to record (store/append/record_copy_cy.py); all copies of
a run are dispatched, waited for and answered together. Everything else (dead letters, a retry topic that is not there
yet, refusals) is left to the SendBackProcessor, which decides; this module only takes what that one would have stored
anyway.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from maxq.broker.bundles import Environment, Messages, Tables
from maxq.broker.processors.refusal import Refusal
from maxq.broker.processors.send.named_message import has_unique_key
from maxq.broker.processors.send.retry_topics import RetryTopics
from maxq.broker.processors.send.send_back import level_of, unsafe_remark
from maxq.broker.schedule_message.delay_levels import DelayLevels, queue_id_of
from maxq.broker.tables.topic.topic_validator import SCHEDULE_TOPIC, retry_topic
from maxq.codes import CURRENT_VERSION, RequestCode, ResponseCode
from maxq.protocol.body.route import MASTER_ID
from maxq.protocol.body.subscription import SubscriptionGroupConfig
from maxq.protocol.body.topic_config import PERM_WRITE
from maxq.protocol.frame.remoting_command import RESPONSE_FLAG, RemotingCommand, SerializeType
from maxq.protocol.frame.request_scanners_cy import SendBackScanner
from maxq.protocol.message.message_id import offset_message_id
from maxq.remoting.server import Connection
from maxq.store.append.record_copy_cy import RecordCopy

#: Most frames that are handled in one run, some hundred microseconds; then other connections get their turn.
_MOST: Final = 64
_SCHEDULE: Final = SCHEDULE_TOPIC.encode()
_DONE: Final = b'{"code":0,"flag":1,"language":"PYTHON","opaque":%%d,"serializeTypeCurrentRPC":"JSON","version":%d}' % (
    CURRENT_VERSION
)


class _Group(NamedTuple):
    name: bytes
    config: SubscriptionGroupConfig
    retry_topic: bytes


class SendBackPath:
    """Answers batches of messages that consumers give back. One per broker; called for every arrival of bytes on any of
    its connections."""

    def __init__(
        self,
        env: Environment,
        tables: Tables,
        messages: Messages,
        retries: RetryTopics,
        levels: DelayLevels,
        on_delayed: Callable[[int], None],
    ) -> None:
        self._retries = retries
        self._own = env.own
        self._store = messages.store
        self._acknowledgement = messages.acknowledgement
        self._settings = env.settings
        self._guard = env.guard
        self._topics = tables.topics
        self._on_delayed = on_delayed
        self._levels = levels
        self._rng = env.rng
        self._scanner = SendBackScanner()
        if env.guard is not None:
            self._scanner.expect_signatures()
        self._copy = RecordCopy()

    def __call__(self, connection: Connection, buffer: bytearray, start: int, end: int) -> int:
        """Take the leading frames of buffer[start:end]; returns the position behind the last one taken."""
        scanner = self._scanner
        position = scanner.scan(buffer, start, end)
        if position == start or not self._may_append(connection):
            return start
        opaques: list[tuple[int, bool]] = []
        came_back: dict[tuple[str, bytes], int] = {}
        group: _Group | None = None
        done = start
        while position != done and len(opaques) < _MOST and self._may_give_back(connection):
            if group is None or group.name != scanner.group:
                group = self._group(scanner.group)
            origin = b"" if group is None else self._take(connection, group)
            if group is None or not origin:
                break
            key = (group.config.group_name, origin)
            came_back[key] = came_back.get(key, 0) + 1
            opaques.append((scanner.opaque, scanner.binary))
            done = position
            position = scanner.scan(buffer, done, end)
        if opaques:
            for (name, topic), count in came_back.items():
                self._retries.count_sent_back(name, topic.decode("utf-8", "replace"), count)
            self._answer_when_safe(connection, opaques)
        return done

    def _may_append(self, connection: Connection) -> bool:
        """Return whether sends can be stored now. Otherwise the processor makes the refusals, with their remarks."""
        return (
            self._own.broker_id == MASTER_ID
            and bool(self._settings.broker.broker_permission & PERM_WRITE)
            and RequestCode.CONSUMER_SEND_MSG_BACK not in connection.excluded_codes
            and self._store.admission.refusal() is None
            and self._acknowledgement.refusal() is None
        )

    def _may_give_back(self, connection: Connection) -> bool:
        """Return whether the guard has allowed such a request on this connection before, and this one is signed by the
        same user."""
        guard = self._guard
        scanner = self._scanner
        return guard is None or guard.session(connection).admits(
            RequestCode.CONSUMER_SEND_MSG_BACK, scanner, scanner.group
        )

    def _group(self, name: bytes) -> _Group | None:
        config = self._retries.group(name.decode("utf-8", "replace"))
        if isinstance(config, Refusal) or config.retry_queue_nums <= 0:
            return None
        topic = retry_topic(config.group_name)
        known = self._topics.select_topic_config(topic)
        if known is None or not known.perm & PERM_WRITE:
            return None
        return _Group(name, config, topic.encode())

    def _take(self, connection: Connection, group: _Group) -> bytes:
        """Store the copy of a message that the scanned frame gives back. Returns the message's original topic; an empty
        text if the processor must handle the request, because of the request's form or because the guard has not
        allowed this client to read the topic."""
        scanner, copy, config = self._scanner, self._copy, group.config
        record = self._store.select_one_message(scanner.offset)
        if record is None or not copy.read(record):
            return b""
        if scanner.origin and not has_unique_key(copy.properties, scanner.origin):
            return b""
        if self._guard is not None and not self._guard.session(connection).may_read(scanner, copy.topic):
            return b""
        times = copy.reconsume_times
        asked = scanner.most_times if scanner.most_times >= 0 else None
        if times >= self._retries.most_times(config, asked, scanner.version):
            return b""
        level = scanner.delay_level or level_of(self._levels, config, times)
        if level <= 0:
            return b""
        level = self._levels.capped(level)
        queue_id = self._rng.below(config.retry_queue_nums)
        message_id = offset_message_id(copy.store_host, scanner.offset)
        properties = copy.sent_back(group.retry_topic, b"%d" % queue_id, b"%d" % level, message_id.encode())
        self._on_delayed(level)
        writer = self._store.fast_path_writer
        stored = writer.append_copy(record, copy, _SCHEDULE, queue_id_of(level), properties, times + 1)
        return (copy.retry_topic or copy.topic) if stored else b""

    # ---- answers ------------------------------------------------------------------------------------------------

    def _answer_when_safe(self, connection: Connection, opaques: list[tuple[int, bool]]) -> None:
        store = self._store
        store.appended()
        end = store.appended_offset
        later = partial(self._answer, connection, opaques)
        if not self._acknowledgement.when(end, later):
            later(ResponseCode.SUCCESS)

    def _answer(self, connection: Connection, opaques: list[tuple[int, bool]], code: ResponseCode) -> None:
        """Answer these requests as the processor does."""
        answers, remark = bytearray(), unsafe_remark(code)
        for opaque, binary in opaques:
            if not remark and not binary:
                text = _DONE % opaque
                answers += (4 + len(text)).to_bytes(4, "big") + len(text).to_bytes(4, "big") + text
                continue
            command = RemotingCommand(ResponseCode.SUCCESS, opaque=opaque, flag=RESPONSE_FLAG)
            if remark:
                command.code, command.remark = ResponseCode.SYSTEM_ERROR, remark
            command.serialize_type = SerializeType.ROCKETMQ if binary else SerializeType.JSON
            answers += command.encode()
        connection.write([memoryview(answers)])
