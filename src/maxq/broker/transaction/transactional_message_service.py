"""TransactionalMessageService: what becomes of half messages. Commit, rollback, asking again, giving up.

The end of a transaction counts from the moment it is carried out here, so no check can overtake it. Its rules:

* A transaction ends once. A second end of the same kind is answered as the first; one of the other kind is refused, and
  so are ends for half messages that a copy stands for when the copy has ended. (Java carries out every end: a commit
  that comes twice, or for a half message and for its copy, is delivered twice.)
* A half message from before this run may have been committed by a run that died before it wrote the op message: then
  it counts as committed, and nothing is delivered again (commit_recovery.py).
* A transaction that was given up may still be ended by its producer, as in Java, once.

Source:
    broker/transaction/queue/TransactionalMessageServiceImpl.java, processor/EndTransactionProcessor.java (5.5.0).
"""

import asyncio
import logging
from dataclasses import replace
from typing import Final, NamedTuple

from maxq.broker.bundles import Environment, Messages, Tables
from maxq.broker.processors.refusal import Refusal
from maxq.broker.processors.send.named_message import has_unique_key, is_another
from maxq.broker.processors.send.put_outcome import put_refusal
from maxq.broker.tables.topic.topic_validator import (
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    TRANSACTION_GROUP,
)
from maxq.broker.transaction.commit_recovery import CommitRecovery
from maxq.broker.transaction.half_message import HALF_QUEUE_ID, copy_of, final_message, given_up
from maxq.broker.transaction.op_messages import FinishedHalf, OpMessages
from maxq.broker.transaction.transaction_ledger import TransactionLedger, TransactionOutcome
from maxq.broker.transaction.transaction_metrics import TransactionMetrics
from maxq.codes import ResponseCode
from maxq.errors import RemoteProtocolError
from maxq.protocol.body.topic_config import PERM_READ, PERM_WRITE
from maxq.protocol.header.send import EndTransactionRequestHeader
from maxq.protocol.message import message_const as const
from maxq.protocol.message import record_layout as layout
from maxq.protocol.message.message import MessageExt, decode_record
from maxq.protocol.message.transaction_view import number, origin_of
from maxq.runtime.passed_over import PassedOver
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.recovery.damage_names import DAMAGED_PROPERTY
from maxq.store.store_results import PutMessageResult

log = logging.getLogger(__name__)

_YIELD_EVERY: Final = 500


class EndResult(NamedTuple):
    """Outcome of the end of a transaction.

    Attributes:
        safe_at: when everything below this physical offset is durable, the end can not be forgotten.
    """

    safe_at: int


class TransactionalMessageService:
    """The transactions of one broker. Call `begin` before anything else."""

    def __init__(self, env: Environment, tables: Tables, messages: Messages, metrics: TransactionMetrics) -> None:
        self._clock = env.clock
        self._broker = env.own
        self._settings = env.settings
        self._metrics = metrics
        self._offsets = tables.offsets
        self._topics = tables.topics
        self._hooks = messages.hooks
        self._stats = env.stats
        self._store = messages.store
        self._passed_over = PassedOver(log)
        self._committed_before = CommitRecovery(messages.store)
        self._began_at = 0  # physical offset below which records are from before this run
        self.ledger = TransactionLedger(0)
        self.ops = self._op_messages(0)

    def _op_messages(self, op_offset: int) -> OpMessages:
        return OpMessages(
            self.ledger,
            op_offset,
            store=self._store,
            clock=self._clock,
            config=lambda: self._settings.broker,
            own=self._broker,
            commit=self._commit_offset,
        )

    # --- the beginning ---

    async def begin(self) -> None:
        """Find out from the half and op topics which transactions are open, in several turns of the loop."""
        store = self._store
        await store.wait_for_dispatch()
        self._began_at = store.max_physical_offset
        committed = self._offsets.query_offset(TRANSACTION_GROUP, TRANS_HALF_TOPIC, HALF_QUEUE_ID)
        begin = self._progress(TRANS_HALF_TOPIC)
        self.ledger = TransactionLedger(begin)
        if 0 <= committed < begin:  # which of them had ended is not known: a ledger from there on may be very long
            _tell_lost(f"up to {begin - committed}", committed, begin)
        self.ops = self._op_messages(self._progress(TRANS_OP_HALF_TOPIC))
        await self.ops.read_back()
        self.skip_gone()
        await self._find_open(store.max_offset(TRANS_HALF_TOPIC, HALF_QUEUE_ID))
        open_now = sum(self._metrics.open_transactions().values())
        log.info("transactions: %d open, half messages from %d on", open_now, self.ledger.low)

    def skip_gone(self) -> None:
        """Skip half messages that are no longer in the store, and log how many of them were open."""
        first, begin = self.ledger.low, self._store.min_offset(TRANS_HALF_TOPIC, HALF_QUEUE_ID)
        if skipped := self.ledger.skip_to(begin):
            _tell_lost(str(skipped), first, begin)

    def _progress(self, topic: str) -> int:
        store, offsets = self._store, self._offsets
        committed = offsets.query_offset(TRANSACTION_GROUP, topic, HALF_QUEUE_ID)
        first = max(store.min_offset(topic, HALF_QUEUE_ID), 0)
        return min(max(committed, first), store.max_offset(topic, HALF_QUEUE_ID))

    async def _find_open(self, end: int) -> None:
        """Count the open transactions, and keep one half message of each open."""
        self._metrics.start_anew()
        copies: dict[int, tuple[int, str]] = {}
        seen = 0
        at = self.ledger.next_open(0)
        while at < end:
            with self._passed_over("the half message at queue offset %d", at):
                half = self.half_at(at)
                if half is not None:
                    self._found_open(half, copies)
            seen += 1
            if seen % _YIELD_EVERY == 0:
                await asyncio.sleep(0)
            at = self.ledger.next_open(at + 1)
        for _, topic in copies.values():
            self._metrics.add(topic, 1)

    def _found_open(self, half: MessageExt, copies: dict[int, tuple[int, str]]) -> None:
        ledger, at, origin = self.ledger, half.queue_offset, origin_of(half)
        if origin != at and origin >= ledger.low and ledger.ending(origin) is TransactionOutcome.REMEMBERED:
            self._finish(at, origin, TransactionOutcome.REMEMBERED, 0)  # Java ends a copy by naming its origin
            copies.pop(origin, None)
            return
        if origin in copies:  # a run that was killed had written the copy and not its end
            ledger.copied(copies[origin][0], origin, at)
            self.ops.remember(FinishedHalf(copies[origin][0], half.physical_offset + half.store_size, is_copied=True))
        elif origin != at:
            ledger.standing(origin, at)
        copies[origin] = at, half.properties.get(const.PROPERTY_REAL_TOPIC, "")

    def half_at(self, queue_offset: int) -> MessageExt | None:
        """Return the half message at `queue_offset`; None if its record is gone, unreadable, or torn by a loss of
        power."""
        queue = self._store.queue(TRANS_HALF_TOPIC, HALF_QUEUE_ID)
        try:
            unit = None if queue is None else queue.unit(queue_offset)
            record = None if unit is None else self._store.select_one_message(unit[0])
            if record is None or is_torn(record):
                return None
            half = decode_record(record)
        except (OSError, RemoteProtocolError) as error:
            log.error("the half message at queue offset %d cannot be read: %s", queue_offset, error)
            return None
        if DAMAGED_PROPERTY in half.properties:  # a filler that a start has put over the damaged half message
            return None
        return half if half.topic == TRANS_HALF_TOPIC and half.queue_offset == queue_offset else None

    def prepared(self, topic: str) -> None:
        """Note that a half message of `topic` was stored."""
        self._metrics.add(topic, 1)

    # --- the end ---

    def topic_of(self, header: EndTransactionRequestHeader) -> str | Refusal:
        """Return the topic to which the message of a transaction was sent."""
        found = self._prepared_message(header)
        return found if isinstance(found, Refusal) else found[0].properties.get(const.PROPERTY_REAL_TOPIC, "")

    def commit(self, header: EndTransactionRequestHeader) -> EndResult | Refusal:
        """Store the message of a transaction in its real topic.

        Returns:
            The answer to the producer, or the reason why the commit is refused.
        """
        found = self._prepared_message(header)
        if isinstance(found, Refusal):
            return found
        half, properties = found
        origin = origin_of(half)
        counts = self.ledger.standing_for(half.queue_offset, origin)
        is_open = self.ledger.is_open(counts)
        if not is_open or half.physical_offset < self._began_at:
            known = self._committed_before.final_message(half)
            if known is not None:
                safe_at = known.physical_offset + known.store_size
                if is_open:
                    self._finish(counts, origin, TransactionOutcome.COMMITTED, safe_at)
                return EndResult(safe_at)
            if not is_open and not self._may_end_late(half, counts):
                return _ended_already("commit")
        topic = half.properties.get(const.PROPERTY_REAL_TOPIC, "")
        if self._is_of_deleted_topic(half):
            if is_open:
                self._drop(counts, origin, topic)
            return _of_deleted_topic(topic)
        result = self._put(final_message(half, properties))
        if isinstance(result, Refusal):
            return result
        if is_open:
            self._finish(counts, origin, TransactionOutcome.COMMITTED, result.end_offset)
            self._metrics.add(topic, -1)
            self._metrics.ended(topic, committed=True, born_ms=half.born_timestamp)
        return EndResult(result.end_offset)

    def commit_on_fast_path(
        self, queue_offset: int, physical_offset: int, group: bytes, topic: bytes | None, msg_id: bytes
    ) -> bool:
        """Commit the half messages of EndPath: open ones of this run that are not copies and have no delay. Call
        `store.appended` after one or several. Returns False, without a change, if the message must take `commit`.

        Args:
            topic: the one that whoever asks may send to; None: any.
            msg_id: by which whoever asks names the message; empty: by its places alone.
        """
        store = self._store
        if physical_offset < self._began_at or not self.ledger.is_open(queue_offset):
            return False
        if physical_offset < store.deletions.newest:
            return False  # its topic may have been deleted since
        record = store.select_one_message(physical_offset)
        if record is None or layout.queue_offset_of(record) != queue_offset:
            return False
        if not store.is_in_queue(TRANS_HALF_TOPIC, HALF_QUEUE_ID, queue_offset, physical_offset):
            return False
        if topic is not None and not _is_sent_to(record, topic):
            return False
        if msg_id and not has_unique_key(stored_properties(record), msg_id):
            return False
        if not store.fast_path_writer.append_final(record, group):
            return False
        self.ledger.finish(queue_offset, TransactionOutcome.COMMITTED)
        self._remember(FinishedHalf(queue_offset, store.max_physical_offset))
        self._metrics.add(store.fast_path_writer.final_topic, -1)
        born_ms = int.from_bytes(record[layout.BORN_TIMESTAMP : layout.BORN_TIMESTAMP + 8], "big")
        self._metrics.ended(store.fast_path_writer.final_topic, committed=True, born_ms=born_ms)
        return True

    def rollback(self, header: EndTransactionRequestHeader, *, waits: bool) -> EndResult | Refusal:
        """Discard the message of a transaction.

        Args:
            waits: the producer wants to be told when that is safe.
        """
        found = self._prepared_message(header)
        if isinstance(found, Refusal):
            return found
        half, _ = found
        origin = origin_of(half)
        counts = self.ledger.standing_for(half.queue_offset, origin)
        is_open = self.ledger.is_open(counts)
        if not is_open or half.physical_offset < self._began_at:
            known = self._committed_before.final_message(half)
            if known is not None:
                if is_open:
                    self._finish(counts, origin, TransactionOutcome.COMMITTED, known.physical_offset + known.store_size)
                return _ended_already("roll back")
        if not is_open:
            return self._rolled_back(counts) if waits else EndResult(0)
        self.ledger.end(counts, origin, TransactionOutcome.ROLLED_BACK)
        topic = half.properties.get(const.PROPERTY_REAL_TOPIC, "")
        self._metrics.add(topic, -1)
        self._metrics.ended(topic, committed=False)
        if waits:
            self.ops.remember_now(counts)
            return self._rolled_back(counts)
        self._remember(FinishedHalf(counts, 0))
        return EndResult(0)

    def _rolled_back(self, offset: int) -> EndResult | Refusal:
        """Return the answer for a client that waits for a rollback that was carried out, with the offset at which it is
        safe."""
        if self.ops.waits_with(offset):
            self.ops.write()
        if self.ops.waits_with(offset):
            why = self._store.admission.remark() or "the store did not take it"
            return Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"the rollback cannot be written down now, and a restart would not know of it: {why}. Roll back again",
            )
        return EndResult(self._store.appended_offset)

    def _prepared_message(self, header: EndTransactionRequestHeader) -> tuple[MessageExt, bytes] | Refusal:
        """Return the half message that `header` names, and its property text as stored (checkPrepareMessage)."""
        record = self._store.select_one_message(header.commit_log_offset)
        if record is None:
            return _wrong("Find prepared transaction message failed", header.commit_log_offset)
        half = decode_record(record)
        place = half.topic, half.queue_id, half.queue_offset, header.commit_log_offset
        if half.topic != TRANS_HALF_TOPIC or not self._store.is_in_queue(*place):
            return _wrong("Find prepared transaction message failed", header.commit_log_offset)
        if is_torn(record):
            return _wrong("A loss of power tore the prepared transaction message", header.commit_log_offset)
        if self._is_too_late(half, header):
            return Refusal(
                ResponseCode.ILLEGAL_OPERATION,
                f"{const.PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS} of the message is over: only the answer to a check "
                "ends its transaction now",
            )
        group = half.properties.get(const.PROPERTY_PRODUCER_GROUP)
        if group != header.producer_group:
            return _wrong("The producer group wrong", f"{header.producer_group}, it is of group {group}")
        if half.queue_offset != header.tran_state_table_offset:
            remark = "The transaction state table offset wrong"
            return _wrong(remark, f"{header.tran_state_table_offset}, it is {half.queue_offset}")
        if is_another(half, header.msg_id):
            return _wrong("It is another transaction that is there", f"{half.uniq_key}, and not {header.msg_id}")
        return half, stored_properties(record)

    def _is_too_late(self, half: MessageExt, header: EndTransactionRequestHeader) -> bool:
        """Return whether the end comes too late: a message with an immunity time of its own must be ended within this
        time, or by the answer to a check."""
        if header.from_transaction_check:
            return False
        seconds = half.properties.get(const.PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS)
        if not seconds:
            return False
        timeout_ms = self._settings.broker.transaction_time_out
        own_ms = number(half.properties, const.PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS, 0) * 1000
        return self._clock.wall_ms() - half.store_timestamp > max(own_ms, timeout_ms)

    def _may_end_late(self, half: MessageExt, counts: int) -> bool:
        """Return whether this half message, or a copy of it, was abandoned in this run or an earlier one."""
        ending = self.ledger.ending(counts)
        if ending in (TransactionOutcome.COMMITTED, TransactionOutcome.ROLLED_BACK):
            return False
        return ending is TransactionOutcome.GIVEN_UP or self._committed_before.was_given_up(half)

    def _finish(self, offset: int, origin: int, how: TransactionOutcome, end_offset: int) -> None:
        self.ledger.end(offset, origin, how)
        self._remember(FinishedHalf(offset, end_offset))

    def _remember(self, finished: FinishedHalf) -> None:
        if self.ops.remember(finished):
            self.ops.write()

    def _is_of_deleted_topic(self, half: MessageExt) -> bool:
        return self._store.is_gone(half.properties.get(const.PROPERTY_REAL_TOPIC, ""), half.physical_offset)

    def _drop(self, offset: int, origin: int, topic: str) -> None:
        self.ledger.end(offset, origin, TransactionOutcome.ROLLED_BACK)
        self._metrics.add(topic, -1)
        self._remember(FinishedHalf(offset, 0))

    # --- what checks do ---

    def ends_with_its_topic(self, half: MessageExt) -> bool:
        """Return whether the topic of an open transaction was deleted after its message was stored. The transaction is
        rolled back then."""
        if not self._is_of_deleted_topic(half):
            return False
        self._drop(half.queue_offset, origin_of(half), half.properties.get(const.PROPERTY_REAL_TOPIC, ""))
        return True

    def is_committed(self, half: MessageExt) -> bool:
        """Return whether the transaction was committed before a crash. It is then marked as finished."""
        if half.physical_offset >= self._began_at:
            return False
        known = self._committed_before.final_message(half)
        if known is None:
            return False
        self._finish(
            half.queue_offset, origin_of(half), TransactionOutcome.COMMITTED, known.physical_offset + known.store_size
        )
        self._metrics.add(half.properties.get(const.PROPERTY_REAL_TOPIC, ""), -1)
        return True

    def copy(self, half: MessageExt, check_times: int) -> MessageExt | Refusal:
        """Write a half message again; the copy replaces it."""
        copy = self._copied(half, check_times)
        if not isinstance(copy, Refusal):
            self._remember(FinishedHalf(half.queue_offset, copy.physical_offset + copy.store_size, is_copied=True))
        return copy

    def move_up(self, half: MessageExt) -> Refusal | None:
        """Write the first open half message again at the end, so that the check's progress can pass its old place. No
        op message names the old place: a Java broker that takes over would otherwise end a message within its
        immunity time."""
        copy = self._copied(half, None)
        return copy if isinstance(copy, Refusal) else None

    def _copied(self, half: MessageExt, check_times: int | None) -> MessageExt | Refusal:
        message = copy_of(half, check_times)
        result = self._put(message, hooks=False)
        if isinstance(result, Refusal):
            return result
        self.ledger.copied(half.queue_offset, origin_of(half), result.queue_offset)
        return replace(
            half,
            properties=message.properties,
            queue_offset=result.queue_offset,
            physical_offset=result.physical_offset,
            store_timestamp=result.store_timestamp,
            store_size=result.size,
        )

    def give_up(self, half: MessageExt) -> bool:
        """Move a half message to TRANS_CHECK_MAX_TIME_TOPIC after its last check. Returns False if it could not be
        stored now. One that can never be stored there stays in its place and is abandoned all the same."""
        self._topics.create_topic_in_send_message_back_method(TRANS_CHECK_MAX_TIME_TOPIC, 1, PERM_READ | PERM_WRITE, 0)
        result = self._put(given_up(half), hooks=False)
        if isinstance(result, Refusal):
            if not is_its_own_fault(result):
                return False
            log.error("the half message at physical offset %d is abandoned: %s", half.physical_offset, result.remark)
        end = 0 if isinstance(result, Refusal) else result.end_offset
        self._finish(half.queue_offset, origin_of(half), TransactionOutcome.GIVEN_UP, end)
        self._metrics.add(half.properties.get(const.PROPERTY_REAL_TOPIC, ""), -1)
        return True

    def escaped(self, half: MessageExt) -> None:
        """Note that another broker group has opened the transaction again."""
        self.ledger.end(half.queue_offset, origin_of(half), TransactionOutcome.ESCAPED)

    def lost(self, offset: int) -> None:
        """Note that the store has no record of the half message at `offset` any more."""
        self.ledger.finish(offset, TransactionOutcome.GIVEN_UP)

    def resume(self, message: MessageExt) -> Refusal | None:
        """Make the producer of an abandoned transaction be asked again, starting with the first check."""
        origin = origin_of(message)
        if self.ledger.is_open(self.ledger.standing_for(message.queue_offset if _is_half(message) else -1, origin)):
            return None  # it is being asked already
        if self._is_of_deleted_topic(message):
            return _of_deleted_topic(message.properties.get(const.PROPERTY_REAL_TOPIC, ""))
        if self._committed_before.final_message(message) is not None:
            return _ended_already("ask for")
        result = self._put(copy_of(message, 0), hooks=False)
        if isinstance(result, Refusal):
            return result
        self.ledger.standing(origin, result.queue_offset)
        self._metrics.add(message.properties.get(const.PROPERTY_REAL_TOPIC, ""), 1)
        return None

    # --- the store ---

    def _put(self, message: MessageExtBrokerInner, *, hooks: bool = True) -> PutMessageResult | Refusal:
        if hooks:
            topic = message.topic
            refusal = self._hooks.apply(message)
            if refusal is not None:
                return refusal
            if message.topic != topic:
                # the record gets new properties with its real topic, because it is delivered later
                message.properties_data = None
        result = self._store.put_message(message)
        if not result.ok:
            return put_refusal(result, self._settings.store)
        self._stats.put_counter(message.topic, message.queue_id).add(1, result.size, 0)
        return result

    def _commit_offset(self, topic: str, offset: int) -> None:
        self._offsets.commit_offset(self._broker.address, TRANSACTION_GROUP, topic, HALF_QUEUE_ID, offset)


def is_its_own_fault(refusal: Refusal) -> bool:
    """Return whether the message itself can never be stored; False if no message can be stored at the moment."""
    return refusal.code == ResponseCode.MESSAGE_ILLEGAL


def stored_properties(record: memoryview) -> bytes:
    """Return the property text of a record, its last part."""
    at = layout.body_size_at(layout.sys_flag_of(record))
    at += 4 + int.from_bytes(record[at : at + 4], "big")  # behind the body
    wide = 2 if int.from_bytes(record[layout.MAGIC : layout.MAGIC + 4], "big") == layout.MAGIC_V2 else 1
    at += wide + int.from_bytes(record[at : at + wide], "big")
    return bytes(record[at + 2 :])


def is_torn(record: memoryview) -> bool:
    """Return whether a loss of power took the end of a half message, the last of its properties; the check sum covers
    the body alone. Sectors that were not written are zeros, and the properties of a half message end with a number.
    Such a message was not flushed and is ignored: a copy without its origin would be a transaction of its own."""
    return record[-1] == 0


def _is_half(message: MessageExt) -> bool:
    return message.topic == TRANS_HALF_TOPIC


def _wrong(remark: str, what: object) -> Refusal:
    return Refusal(ResponseCode.SYSTEM_ERROR, f"{remark}: {what}")


def _of_deleted_topic(topic: str) -> Refusal:
    return _wrong("the topic was deleted after the message was stored, and the message with it", topic)


def _ended_already(verb: str) -> Refusal:
    return Refusal(ResponseCode.SYSTEM_ERROR, f"the transaction has ended already: there is nothing to {verb}")


def _is_sent_to(half: memoryview, topic: bytes) -> bool:
    """Return whether this is a half message of `topic`. Names and values of properties contain neither of the
    separators."""
    return b"\x02REAL_TOPIC\x01%b\x02" % topic in b"\x02%b\x02" % stored_properties(half)


def _tell_lost(count: str, first: int, end: int) -> None:
    log.error(
        "%s transactions are lost: their half messages (of queue offsets %d to %d of %s) were deleted with their log "
        "files before they were committed or rolled back, as happens when the disk is full. Have their producers send "
        "them again. Make room, raise fileReservedTime, or have transactions end earlier (transactionCheckMax, "
        "transactionTimeOut)",
        count, first, end - 1, TRANS_HALF_TOPIC,
    )  # fmt: skip
