"""Into the log: the slow path, for one message and for batches (CommitLog.asyncPutMessage,
DefaultMessageStore.checkBeforePutMessage, MessageExtEncoder). The quick one is fast_path_writer.py."""

from collections.abc import Collection
from itertools import pairwise

from maxq.errors import RemoteProtocolError
from maxq.protocol.dledger.dledger_messages import ENTRY_BODY_MAX
from maxq.protocol.frame.batches_cy import have_bodies, record_places
from maxq.protocol.message.message import BATCH_MOST_BY_ITSELF, BATCH_PROPERTIES_BY_ITSELF, batch_count, each_of_batch
from maxq.protocol.message.message_const import (
    PROPERTY_INNER_BASE,
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    PROPERTY_INNER_NUM,
)
from maxq.protocol.message.message_id import offset_message_id, offset_message_ids
from maxq.protocol.message.message_properties import encode_properties
from maxq.protocol.message.message_sys_flag import TRANSACTION_MASK, MessageSysFlag, is_queued, is_rolled_back
from maxq.protocol.message.record_layout import BATCH_RECORD_SIZE, HEAD_SIZE_MAX, HOSTS_V6, MULTI_TAGS, host_bits
from maxq.store.append.append_admission import AppendAdmission
from maxq.store.append.append_propagation import AppendPropagation
from maxq.store.append.batch_rows import BatchRows
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.context.store_context import StoreContext
from maxq.store.dledger.message_ledger import MessageLedger
from maxq.store.durability.flush import CommitLogFlusher
from maxq.store.log.commit_log import END_FILE_MIN_BLANK_LENGTH, CommitLog
from maxq.store.log.deletions import DELETED_TOPIC, MOST_NAMES, TABLES_TOPIC, encode_names
from maxq.store.log.record_cy import crc31
from maxq.store.queue.consume_queue_store import (
    FOLDER_NAME_MAX,
    LMQ_PREFIX,
    OF_TRANSACTIONS,
    ConsumeQueueStore,
    is_folder_name,
    may_name_queues,
)
from maxq.store.store_results import PutMessageResult, PutMessageStatus

MAX_PROPERTIES = 32767
_MAX_TOPIC = 127
_MAX_RETRY_TOPIC = 255
_PROP_CRC_SIZE = 20
_RETRY_PREFIX = "%RETRY%"
_OF_COPIES = (_RETRY_PREFIX, "%DLQ%")
#: Most bytes by which a record is longer in the log than in the body of a batch, without its topic.
_MORE_THAN_IN_A_BATCH = HEAD_SIZE_MAX - BATCH_RECORD_SIZE
#: Attempts to find room for one more record: write the memory out, enlarge it, allocate blocks; then the same in the
#: next file.
_MOST_CALLS_FOR_ROOM = 6


class MessageWriter:
    """Checks, assigns queue offsets, appends, rolls files.

    Attributes:
        ledger: whose log it is; None: of no DLedger group.
    """

    def __init__(
        self,
        context: StoreContext,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        flusher: CommitLogFlusher,
        admission: AppendAdmission,
        propagation: AppendPropagation,
    ) -> None:
        self._context = context
        self._commit_log = commit_log
        self._queues = queues
        self._flusher = flusher
        self._admission = admission
        self._propagation = propagation
        self.ledger: MessageLedger | None = None

    def _check_state(self) -> PutMessageResult | None:
        refusal = self._admission.refusal()
        return None if refusal is None else PutMessageResult(refusal, remark=self._admission.remark())

    def _check(self, message: MessageExtBrokerInner) -> PutMessageResult | None:
        refused = self._check_state()
        if refused is not None:
            return refused
        if message.topic in (DELETED_TOPIC, TABLES_TOPIC):
            return _illegal(f"records of {message.topic} delete or make topics: only the broker writes them")
        if is_rolled_back(message.sys_flag):
            return _illegal(
                f"sysFlag {message.sys_flag:#x} says that the message is rolled back: it would be stored and never "
                "delivered. Only the store writes such records: fillers over damage, and what deletes and makes topics"
            )
        size = len(message.topic.encode())
        limit = _MAX_RETRY_TOPIC if message.topic.startswith(_RETRY_PREFIX) else _MAX_TOPIC
        if size > limit:
            return _illegal(f"the topic has {size} bytes, at most {limit} are allowed; choose a shorter name")
        limit = self._context.config.max_message_size
        if len(message.body) > limit:
            return _illegal(
                f"the message body has {len(message.body)} bytes, at most {limit} are allowed (maxMessageSize); "
                "send less in one message or raise the setting"
            )
        return None

    # --- one message ---

    def put_message(self, message: MessageExtBrokerInner) -> PutMessageResult:
        """Store one message (see `MessageStore.put_message`)."""
        if message.topic.startswith(_OF_COPIES) and not message.sys_flag & MessageSysFlag.INNER_BATCH:
            message.properties = _of_no_batch(message.properties)
        refused = self._check(message) or self._check_inner_batch(message)
        if refused is not None:
            return refused
        # the property belongs to the message of which this is a copy
        if PROPERTY_INNER_MULTI_QUEUE_OFFSET in message.properties:
            message.properties = _without_places(message.properties)
            message.properties_data = None
        if self._queues.topic_write_state(message.topic).has_batch_queues:
            return self._put_in_batch_queue(message)
        if names := self._named_queues(message):
            refused = self._check_multi_dispatch(names)
            if refused is not None or may_name_queues(message.topic):
                return refused or self._put_multi_dispatch(message, names)
        tail = self._queues.open(message.topic, message.queue_id).tail
        counted = is_queued(message.sys_flag)
        result = self._append(message, tail.next_queue_offset if counted else 0, message.encoded_properties())
        if result.ok:
            tail.next_queue_offset += 1 if counted else 0
            self._propagation.appended()
        return result

    def put_deletion(self, topics: Collection[str]) -> PutMessageResult:
        """Do what `MessageStore.put_deletion` says."""
        names = sorted(topics)
        result = PutMessageResult(PutMessageStatus.PUT_OK)
        for start in range(0, len(names), MOST_NAMES):
            some = names[start : start + MOST_NAMES]
            result = self._put_fact(DELETED_TOPIC, encode_names(some))
            if not result.ok:
                return result
            for name in some:
                self._queues.number_anew(name, result.physical_offset)
            self._propagation.appended()
        return result

    def put_tables(self, body: bytes) -> PutMessageResult:
        """Store a copy of the broker's tables in the log (see `MessageStore.put_tables`)."""
        result = self._put_fact(TABLES_TOPIC, body)
        if result.ok:
            self._propagation.appended()
        return result

    def _put_fact(self, topic: str, body: bytes) -> PutMessageResult:
        """Store a record that the dispatch of every broker leaves out of queues and index. The caller dispatches it."""
        message = MessageExtBrokerInner(
            topic, 0, body, sys_flag=MessageSysFlag.TRANSACTION_ROLLBACK, born_timestamp=self._context.clock.wall_ms(),
            born_host=self._context.identity.store_host,
        )  # fmt: skip
        return self._check_state() or self._append(message, 0, b"")

    def _append(self, message: MessageExtBrokerInner, queue_offset: int, properties: bytes) -> PutMessageResult:
        """Write one record. The caller counts and dispatches it."""
        config = self._context.config
        reserved = _PROP_CRC_SIZE if config.enabled_append_prop_crc else 0
        if len(properties) + reserved > MAX_PROPERTIES:
            return PutMessageResult(
                PutMessageStatus.PROPERTIES_SIZE_EXCEEDED,
                remark=f"the properties have {len(properties) + reserved} bytes, at most {MAX_PROPERTIES} are "
                "allowed; "
                "send fewer or shorter properties",
            )
        topic = message.topic.encode()
        store_host = message.store_host or self._context.identity.store_host
        sys_flag = message.sys_flag & ~HOSTS_V6 | host_bits(len(message.born_host), len(store_host))
        state = self._queues.topic_write_state(message.topic)
        if state.multi_tags:
            sys_flag |= MULTI_TAGS
        size = HEAD_SIZE_MAX + len(message.body) + len(topic) + len(properties) + reserved
        if self._context.is_dledger and size > ENTRY_BODY_MAX:
            return _too_long_for_an_entry(size)
        if size + self._commit_log.tail.head + END_FILE_MIN_BLANK_LENGTH > config.mapped_file_size_commit_log:
            return _illegal(
                f"the message takes {size} bytes of log, a CommitLog file has {config.mapped_file_size_commit_log} "
                "(mappedFileSizeCommitLog); send less in one message"
            )
        began = self._context.clock.monotonic_ms()
        now = self._context.clock.wall_ms()
        crc = crc31(message.body)
        log = self._commit_log
        while True:
            written = log.tail.append_record(
                topic, message.queue_id, message.flag, queue_offset, sys_flag, message.born_timestamp,
                message.born_host, now, store_host, message.reconsume_times, message.prepared_transaction_offset,
                memoryview(message.body), properties, crc, config.enabled_append_prop_crc,
            )  # fmt: skip
            if written > 0:
                break
            refused = self._admission.make_room(size)
            if refused is not None:
                return refused
        self._admission.took(began)
        end = log.max_offset
        state.put_nums += 1
        state.put_bytes += written
        self._flusher.appended_timestamp = now
        return PutMessageResult(
            PutMessageStatus.PUT_OK, end - written, end, written, queue_offset, now,
            offset_message_id(store_host, end - written), 1,
        )  # fmt: skip

    # --- batches ---

    def put_batch(self, message: MessageExtBrokerInner) -> PutMessageResult:
        """Store the messages of a batch (see `MessageStore.put_batch`)."""
        refused = self._check(message)
        if refused is not None:
            return refused
        if message.topic.startswith(_RETRY_PREFIX) or message.sys_flag & TRANSACTION_MASK:
            return _illegal(
                "a batch cannot go to a retry topic and cannot be part of a transaction; send single messages"
            )
        if self._queues.topic_write_state(message.topic).has_batch_queues:
            return _illegal(f"topic {message.topic} is a BatchCQ topic: send it an inner batch, or single messages")
        try:
            count = batch_count(message.body)
        except RemoteProtocolError as error:
            return _illegal(f"the batch body is malformed: {error}")
        if not count:
            return _illegal("the batch holds no message")
        more = _MORE_THAN_IN_A_BATCH + len(message.topic.encode()) + _PROP_CRC_SIZE + self._commit_log.tail.head
        size = len(message.body) + count * more
        if size + END_FILE_MIN_BLANK_LENGTH > self._context.config.mapped_file_size_commit_log:
            return _illegal(
                f"the batch takes up to {size} bytes of log, a CommitLog file has "
                f"{self._context.config.mapped_file_size_commit_log} (mappedFileSizeCommitLog); send fewer "
                "messages at a time"
            )
        if self._context.is_dledger and size > ENTRY_BODY_MAX:
            longest = self._longest_record(message, count)
            if longest > ENTRY_BODY_MAX:  # refused before any of them is stored
                return _too_long_for_an_entry(longest)
        result = self._put_batch_as_rows(message, count)
        if result is not None:
            return result
        if count > BATCH_MOST_BY_ITSELF:
            return _illegal(
                f"the batch has {count} messages and must be stored one by one (enabledAppendPropCRC, messages "
                f"without a body, or places in light queues): the limit is then {BATCH_MOST_BY_ITSELF}; send smaller "
                "batches"
            )
        parts, properties = [], 0
        for part in each_of_batch(message.body, message.topic):
            properties += len(part.properties)
            if properties > BATCH_PROPERTIES_BY_ITSELF:
                return _illegal(
                    f"the messages of the batch have more than {BATCH_PROPERTIES_BY_ITSELF} properties together and "
                    "must be stored one by one; send smaller batches"
                )
            parts.append(part)
        # each message's own properties only, as RocketMQ 5.5 stores them: those of the request would hide its UNIQ_KEY
        encoded = [encode_properties(_without_places(part.properties)).encode() for part in parts]
        if any(len(properties) + _PROP_CRC_SIZE > MAX_PROPERTIES for properties in encoded):
            return PutMessageResult(
                PutMessageStatus.PROPERTIES_SIZE_EXCEEDED,
                remark=f"the properties of a message of the batch have more than "
                f"{MAX_PROPERTIES - _PROP_CRC_SIZE} bytes; "
                "send fewer or shorter properties",
            )
        failed = self._room_for_batch(size, count)
        if failed is not None:
            return failed
        return self._put_parts(message, [(part.body, part.flag) for part in parts], encoded)

    def _longest_record(self, message: MessageExtBrokerInner, count: int) -> int:
        """Bytes of log that the longest of the batch's `count` messages takes."""
        reserved = _PROP_CRC_SIZE if self._context.config.enabled_append_prop_crc else 0
        more = _MORE_THAN_IN_A_BATCH + len(message.topic.encode()) + reserved
        places = record_places(message.body, count, 0, more)
        places.append(len(message.body) + count * more)
        return max(end - start for start, end in pairwise(places))

    def _room_for_batch(self, size: int, count: int) -> PutMessageResult | None:
        """Make room for a batch of `count` messages, `size` bytes of log, before the first one is stored: all in one
        file, or, in a DLedger log, in this one and the next. Returns what to answer if there is no room."""
        tail, ledger = self._commit_log.tail, self.ledger
        while size + END_FILE_MIN_BLANK_LENGTH > tail.file_size - tail.wrote_position:
            if ledger is not None:
                return self._admission.room(lambda: ledger.secure(size, count), size)
            failed = self._admission.make_room(size)
            if failed is not None:
                return failed
        return None

    def _put_batch_as_rows(self, message: MessageExtBrokerInner, count: int) -> PutMessageResult | None:
        """Store the batch of `count` messages on the compiled path. Returns None, and stores nothing, if that path
        cannot handle it."""
        context, log, body = self._context, self._commit_log, message.body
        if (
            context.config.enabled_append_prop_crc
            or PROPERTY_INNER_MULTI_QUEUE_OFFSET.encode() in body
            or not have_bodies(body, count, MAX_PROPERTIES)
        ):
            return None
        self._queues.open(message.topic, message.queue_id)
        state = self._queues.topic_write_state(message.topic)
        if state.has_batch_queues or not 0 <= message.queue_id <= state.max_queue_id:
            return None
        store_host = message.store_host or context.identity.store_host
        rows = BatchRows(message, count, log.tail.head, store_host)
        began, now = context.clock.monotonic_ms(), context.clock.wall_ms()
        was_open = state.is_fast_path_open
        state.is_fast_path_open = True  # opened for this append: the caller has made the checks for which it was closed
        try:
            failed = self._append_whole(rows, now) if self.ledger is None else self._append_in_parts(rows, now)
        finally:
            state.is_fast_path_open = was_open
        if not rows.done:
            return failed
        self._admission.took(began)
        self._flusher.appended_timestamp = now
        self._propagation.appended()
        return failed or PutMessageResult(
            PutMessageStatus.PUT_OK, rows.places[0], log.max_offset, rows.size - log.tail.head * count,
            rows.queue_offset, now, offset_message_ids(store_host, rows.places), count,
        )  # fmt: skip

    def _append_whole(self, rows: BatchRows, now_ms: int) -> PutMessageResult | None:
        """Store the batch in one file. Returns the refusal if there is no room; MessageWriter's slow path stores what
        was left without a refusal."""
        log, tail = self._commit_log, self._commit_log.tail
        while not rows.append(tail, self._queues.topics, now_ms, rows.count):
            is_whole_and_empty = tail.wrote_position == 0 and tail.file_size == log.files.file_size
            if not tail.full or is_whole_and_empty:
                return None
            if (failed := self._admission.make_room()) is not None:
                return failed
        return None

    def _append_in_parts(self, rows: BatchRows, now_ms: int) -> PutMessageResult | None:
        """Store the batch in a DLedger log in two parts: the messages that fit into the current file, and the rest in
        the next file. A DLedger log begins a new file only for an entry that does not fit, as Java's followers
        require. Returns the result of the batch, also if only its first part could be stored."""
        failed = self._room_for_batch(rows.size, rows.count)
        tail, calls = self._commit_log.tail, 0
        while failed is None and rows.done < rows.count:
            fitting = rows.fitting(tail.file_size - tail.wrote_position)
            if fitting:
                is_taken = rows.append(tail, self._queues.topics, now_ms, fitting)
                assert is_taken, "whether the compiled path takes the batch was asked before, and it was found to fit"
                calls = 0
            else:
                calls += 1
                assert calls <= _MOST_CALLS_FOR_ROOM, f"{calls} calls make no room for {rows.next_size} bytes"
                failed = self._admission.make_room(rows.next_size)
        return failed

    def _put_parts(
        self, message: MessageExtBrokerInner, parts: list[tuple[bytes, int]], encoded: list[bytes]
    ) -> PutMessageResult:
        queue = self._queues.open(message.topic, message.queue_id).tail
        ids: list[str] = []
        first: PutMessageResult | None = None
        size = end = 0
        for (body, flag), properties in zip(parts, encoded, strict=True):
            single = MessageExtBrokerInner(
                message.topic, message.queue_id, body, {}, None, flag, message.sys_flag, message.born_timestamp,
                message.born_host, message.store_host, message.reconsume_times,
            )  # fmt: skip
            result = self._append(single, queue.next_queue_offset, properties)
            if not result.ok:
                assert self._context.is_dledger, f"space was checked, yet: {result.remark}"
                self._propagation.appended()
                return result
            queue.next_queue_offset += 1
            ids.append(result.msg_id)
            size += result.size
            first, end = first or result, result.end_offset
        assert first is not None, "a batch has messages"
        self._propagation.appended()
        first.end_offset = end
        first.size, first.msg_id, first.message_count = size, ",".join(ids), len(ids)
        return first

    # --- BatchCQ topics ---

    def _check_inner_batch(self, message: MessageExtBrokerInner) -> PutMessageResult | None:
        inner = bool(message.sys_flag & MessageSysFlag.INNER_BATCH)
        if PROPERTY_INNER_NUM in message.properties and not inner:
            return _illegal("the message has INNER_NUM but is no inner batch; leave the property away")
        if inner and not self._queues.topic_write_state(message.topic).has_batch_queues:
            return _illegal(
                f"topic {message.topic} is no BatchCQ topic; set its attribute queue.type=BatchCQ or send a plain batch"
            )
        return None

    def _put_in_batch_queue(self, message: MessageExtBrokerInner) -> PutMessageResult:
        queue = self._queues.open_batch(message.topic, message.queue_id)
        base, count = queue.next_queue_offset, 1
        data = message.encoded_properties()
        if message.sys_flag & MessageSysFlag.INNER_BATCH:
            text = message.properties.get(PROPERTY_INNER_NUM, "1")
            if not (text.isascii() and text.isdigit()) or not 0 < int(text) <= 32767:
                return _illegal(f"INNER_NUM is {text!r}; it must be 1…32767")
            count = int(text)
            properties = {**message.properties, PROPERTY_INNER_NUM: text, PROPERTY_INNER_BASE: str(base)}
            data = encode_properties(properties).encode()
        result = self._append(message, base, data)
        if result.ok:
            queue.next_queue_offset = base + count
            self._propagation.appended()
        return result

    # --- several queues ---

    def _named_queues(self, message: MessageExtBrokerInner) -> list[str]:
        """Return the further queues into which the message is put. A message that opens a transaction goes into them
        when it is committed."""
        names = message.properties.get(PROPERTY_INNER_MULTI_DISPATCH)
        is_held_back = message.topic in OF_TRANSACTIONS
        if not names or not self._context.config.enable_multi_dispatch:
            return []
        return names.split(",") if is_held_back or may_name_queues(message.topic) else []

    def _put_multi_dispatch(self, message: MessageExtBrokerInner, names: list[str]) -> PutMessageResult:
        tails = [self._queues.open(name, 0).tail for name in names]
        offsets: list[str] = []
        for number, tail in enumerate(tails):  # a queue that is listed twice takes two offsets
            offsets.append(str(tail.next_queue_offset + names[:number].count(names[number])))
        properties = {**message.properties, PROPERTY_INNER_MULTI_QUEUE_OFFSET: ",".join(offsets)}
        own = self._queues.open(message.topic, message.queue_id).tail
        result = self._append(message, own.next_queue_offset, encode_properties(properties).encode())
        if result.ok:
            own.next_queue_offset += 1
            for tail in tails:
                tail.next_queue_offset += 1
            self._propagation.appended()
        return result

    def _check_multi_dispatch(self, names: list[str]) -> PutMessageResult | None:
        for name in names:
            if not name.startswith(LMQ_PREFIX) or name == LMQ_PREFIX or not is_folder_name(name):
                return _illegal(
                    f"INNER_MULTI_DISPATCH names {name!r} ({len(name.encode())} bytes); only light queues can be named:"
                    f" {LMQ_PREFIX}…, without '/' and NUL, of {FOLDER_NAME_MAX} bytes at most"
                )
        if not self._context.config.enable_lmq:
            return _illegal("INNER_MULTI_DISPATCH names light queues, but enableLmq is false; set it in broker.conf")
        limit = self._context.config.max_lmq_consume_queue_num
        known = sum(1 for topic in self._queues.topics.values() if topic.topic.startswith(LMQ_PREFIX))
        new = sum(1 for name in set(names) if self._queues.find(name, 0) is None)
        if new and known + new > limit:
            return PutMessageResult(
                PutMessageStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED,
                remark=f"there are {known} light queues, at most {limit} are allowed (maxLmqConsumeQueueNum); "
                "use fewer queues or raise the setting",
            )
        return None


def _of_no_batch(properties: dict[str, str]) -> dict[str, str]:
    """Return the properties without those of inner batches, which a message may still have from the batch in which its
    producer sent it."""
    if PROPERTY_INNER_NUM not in properties:
        return properties
    return {name: value for name, value in properties.items() if name not in (PROPERTY_INNER_NUM, PROPERTY_INNER_BASE)}


def _without_places(properties: dict[str, str]) -> dict[str, str]:
    """Return the properties without queue offsets. The store assigns these; offsets set by a client would belong to
    other messages."""
    if PROPERTY_INNER_MULTI_QUEUE_OFFSET not in properties:
        return properties
    return {name: value for name, value in properties.items() if name != PROPERTY_INNER_MULTI_QUEUE_OFFSET}


def _too_long_for_an_entry(size: int) -> PutMessageResult:
    return _illegal(
        f"the message takes {size} bytes of log, an entry of DLedger takes {ENTRY_BODY_MAX}; send less in one message"
    )


def _illegal(remark: str) -> PutMessageResult:
    return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL, remark=remark)
