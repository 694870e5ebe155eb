"""From a staged request to messages in their topic; and, after a crash, how many of them are there already.

Messages of one request are stored in one turn of the loop, directly behind the ledger's step entry, with nothing
between them. A crash keeps a prefix of the log, or of its unflushed end some records and others not. So the messages of
the last step that exist are those found behind its entry, by their unique keys, as far as the step can have reached.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from maxq.broker.processors.refusal import Refusal
from maxq.broker.processors.send.put_hooks import PutHooks
from maxq.broker.processors.send.send_checks import SendChecks
from maxq.broker.processors.send.send_properties import BrokerProperties
from maxq.broker.tables.attributes import BATCH_CQ, QUEUE_TYPE
from maxq.broker.tables.static_topic.topic_queue_mapping_manager import TopicQueueMappingManager
from maxq.broker.tables.topic.topic_validator import AUTO_CREATE_TOPIC, STAGED_TOPIC
from maxq.broker.two_phase.batch_ledger import StagedRequest
from maxq.broker.two_phase.staged_record import (
    Staged,
    batch_positions,
    read_staged,
)
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import RequestRefusedError
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.frame.send_scanner_cy import SendScanner
from maxq.protocol.header.send import SendMessageRequestHeader
from maxq.protocol.message.message import decode_batch, decode_record
from maxq.runtime.blocking import COLD_READS
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.message_store import MessageStore
from maxq.store.store_results import PutMessageResult, PutMessageStatus

log = logging.getLogger(__name__)

_ILLEGAL: Final = frozenset({PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED})
_READER: Final = "MAXQ_STAGED_DELIVERY"  # group name under which staged records are read, for the statistics
_QUEUES: Final = 4
# bytes that a stored message has more than in a batch's body: head, hosts, topic, added properties
_MOST_OVERHEAD: Final = 2_048


class StagedDelivery:
    """Reads and delivers staged requests of one broker.

    Args:
        mappings: where the queues of static topics are that messages were staged for.
        hooks: what messages meet that are not delivered as a batch; the last of them has those whose queue has moved
            given to the broker that leads it.
        frame_limit: longest frame, bytes.
        on_stored: told topic, queue id and the result of what did not take the compiled way.
    """

    def __init__(
        self,
        store: MessageStore,
        checks: SendChecks,
        mappings: TopicQueueMappingManager,
        hooks: PutHooks,
        own_properties: BrokerProperties,
        frame_limit: int,
        on_stored: Callable[[str, int, PutMessageResult], None],
    ) -> None:
        self._store = store
        self._checks = checks
        self._mappings = mappings
        self._hooks = hooks
        self._own_properties = own_properties
        self._scanner = SendScanner(frame_limit)
        self._on_stored = on_stored

    async def read(self, piece: StagedRequest) -> Staged | None:
        """Returns the staged request; None if it is not there."""
        place = _READER, STAGED_TOPIC, 0, piece.queue_offset, 1, None
        found = self._store.get_message(*place, may_wait=True)
        if found.must_read_first:
            await COLD_READS.run(found.bring_in)
            found = self._store.get_message(*place)
        if not found.buffers:
            return None
        staged = read_staged(decode_record(found.buffers[0]))
        if staged is None or (staged.attempt, staged.sequence) != (piece.attempt, piece.sequence):
            return None  # a master lost the record, and another record has its place
        return staged

    # --- what is there already ---

    def missing(self, staged: Staged, messages: list[int] | None, step_end: int) -> list[int]:
        """Return which messages of a step are not in the log.

        Args:
            messages: their numbers; None: all of them.
            step_end: physical offset behind the step's entry.
        """
        keys = [message.uniq_key for message in decode_batch(staged.body, staged.topic)]
        numbers = list(range(len(keys))) if messages is None else messages
        wanted = {keys[number] for number in numbers}
        end = step_end + 2 * (len(staged.body) + len(numbers) * _MOST_OVERHEAD)  # twice: a file may have ended
        offset, record = self._record(step_end)
        while record is not None and wanted and offset < end:
            message = decode_record(record, check_crc=False)
            wanted.discard(message.uniq_key)
            offset, record = self._record(offset + len(record))
        return [number for number in numbers if keys[number] in wanted]

    def _record(self, offset: int) -> tuple[int, memoryview | None]:
        """Return the first record at or behind `offset`, where a file of the log may have ended, and its offset."""
        store = self._store
        if offset >= store.max_physical_offset:
            return offset, None
        log = store.commit_log
        record = store.select_one_message(log.record_offset(offset))
        if record is None:
            offset = log.next_file_offset(offset)
            record = store.select_one_message(log.record_offset(offset)) if offset < store.max_physical_offset else None
        return log.record_offset(offset), record

    # --- delivery ---

    def destination(self, staged: Staged) -> TopicConfig:
        """Return the topic that takes these messages, which is created if that is allowed.

        Raises:
            RequestRefusedError: there is no such topic or queue now. They were when the messages were staged, so these
                wait for them.
        """
        config = self._checks.accepted_topic(staged.topic, AUTO_CREATE_TOPIC, "staged", _QUEUES, unit_mode=False)
        if isinstance(config, Refusal):
            raise _waits(staged.topic, config.remark)
        refusal = self._checks.queue_id(config, staged.queue_id, "staged")
        if refusal is not None:
            raise _waits(staged.topic, refusal.remark)
        return config

    def deliver(self, staged: Staged, messages: list[int] | None, config: TopicConfig) -> int:
        """Store these messages (None: all) without yielding to the loop.

        Args:
            config: the `destination`.

        Returns:
            How many cannot be stored at all.

        Raises:
            RequestRefusedError: they cannot be stored now; some may have been.
        """
        body, count = staged.body, staged.count
        if messages is not None:
            positions, count = batch_positions(body), len(messages)
            body = b"".join(body[positions[number] : positions[number + 1]] for number in messages)
        home = self._mappings.home_of(staged.topic, staged.queue_id)
        if not staged.plain or home.queue_id is None or config.attributes.get(QUEUE_TYPE) == BATCH_CQ:
            return self._deliver_singly(staged, body)
        staged = replace(staged, queue_id=home.queue_id)
        if self._append_plainly(staged, body):
            return 0
        message = self._message(staged, body, {})
        return self._put(message, count, self._store.put_batch)

    def _append_plainly(self, staged: Staged, body: bytes) -> bool:
        """Append a batch on the fast path of sends; returns whether that was possible."""
        header = SendMessageRequestHeader(
            _READER, staged.topic, AUTO_CREATE_TOPIC, _QUEUES, staged.queue_id, 0, staged.born_timestamp, 0, "",
            batch=True,
        )  # fmt: skip
        frame = bytearray(RemotingCommand(RequestCode.SEND_BATCH_MESSAGE, header.encode_v2(), body).encode())
        scanner = self._scanner
        if scanner.scan(frame, 0, len(frame)) != len(frame) or scanner.count != 1:
            return False
        return self._store.fast_path_writer.append_rows(
            frame, scanner.scratch, scanner.rows, 0, 1, staged.born_host, b""
        ).rows == 1  # fmt: skip

    def _deliver_singly(self, staged: Staged, body: bytes) -> int:
        lost = 0
        for one in decode_batch(body, staged.topic):
            properties = dict(one.properties)
            self._own_properties.add_to(properties)
            message = self._message(staged, one.body, properties)
            message.flag = one.flag
            refusal = self._hooks.apply(message)
            if refusal is None:
                lost += self._put(message, 1, self._store.put_message)
            elif refusal.code == ResponseCode.MESSAGE_ILLEGAL:
                _log_lost(staged.topic, 1, refusal.remark)
                lost += 1
            else:
                raise _waits(staged.topic, refusal.remark)
        return lost

    def _message(self, staged: Staged, body: bytes, properties: dict[str, str]) -> MessageExtBrokerInner:
        return MessageExtBrokerInner(
            staged.topic, staged.queue_id, body, properties, born_timestamp=staged.born_timestamp,
            born_host=staged.born_host,
        )  # fmt: skip

    def _put(
        self, message: MessageExtBrokerInner, count: int, put: Callable[[MessageExtBrokerInner], PutMessageResult]
    ) -> int:
        """Store a message, or a batch of `count`, and return how many can never be stored."""
        result = put(message)
        if result.ok:
            self._on_stored(message.topic, message.queue_id, result)
            return 0
        why = result.remark or result.status.name
        if result.status not in _ILLEGAL:
            raise _waits(message.topic, why)
        _log_lost(message.topic, count, why)
        return count


def _waits(topic: str, why: str) -> RequestRefusedError:
    return RequestRefusedError(ResponseCode.SERVICE_NOT_AVAILABLE, f"staged messages for {topic} wait: {why}")


def _log_lost(topic: str, count: int, why: str) -> None:
    log.error("%d staged messages for %s are lost, because the store does not take them: %s", count, topic, why)
