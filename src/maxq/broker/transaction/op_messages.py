"""OpMessages: remembers on disk which half messages are finished.

An op message lies in RMQ_SYS_TRANS_OP_HALF_TOPIC, queue 0, tag `d`; its body is the queue offsets of finished half
messages, each followed by a comma (`5,6,7,`). Many share one: a message is written when transactionOpMsgMaxSize bytes
are together, or after transactionOpBatchInterval. One with the property MAXQ_COPIED names half messages for which a
later copy stands; Java reads it like any other: these places are finished.

The message that ends a transaction must be on the disk before its op message: a power failure that lost the former and
kept the latter would lose the transaction. So an op message names only half messages whose final message is flushed.

Progress of group CID_RMQ_SYS_TRANS, a pair that Java reads too: every half message below the one offset is finished,
and op messages below the other name no others. It is committed when everything it rests on is flushed, in a DLedger
group committed.

Source:
    broker/transaction/queue/{TransactionalMessageServiceImpl,TransactionalOpBatchService,MessageQueueOpContext}.java;
    5.5.0. Java's batch service can spin on a core after transactions; this one sleeps while there is nothing to write.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from maxq.broker.identity.broker_identity import BrokerAddress
from maxq.broker.tables.topic.topic_validator import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from maxq.broker.transaction.half_message import HALF_QUEUE_ID
from maxq.broker.transaction.transaction_ledger import TransactionLedger, TransactionOutcome
from maxq.config.broker_config import BrokerConfig
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import decode_record
from maxq.protocol.message.transaction_view import PROPERTY_COPIED, REMOVE_TAG, SEPARATOR, half_offsets
from maxq.runtime.interfaces import Clock
from maxq.runtime.passed_over import PassedOver
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.durability.log_marks import LogMark
from maxq.store.message_store import MessageStore

log = logging.getLogger(__name__)

_YIELD_EVERY: Final = 100


class FinishedHalf(NamedTuple):
    """A half message that is finished.

    Attributes:
        queue_offset: where it is in the half topic.
        end_offset: physical end of what ended it; 0 if nothing was written.
        is_copied: a copy stands for it.
    """

    queue_offset: int
    end_offset: int
    is_copied: bool = False


class Progress(NamedTuple):
    """How far the op topic has been processed; see the module's docstring.

    Attributes:
        mark: end of the log when it was taken.
    """

    half: int
    op: int
    mark: LogMark


class OpMessages:
    """Writes and reads op messages; one per broker that runs checks.

    Args:
        op_offset: queue offset; the op messages below it need not be read again.
        commit: is called with a topic and a queue offset to commit for it, when all messages below are finished.
    """

    def __init__(
        self,
        ledger: TransactionLedger,
        op_offset: int,
        *,
        store: MessageStore,
        clock: Clock,
        config: Callable[[], BrokerConfig],
        own: BrokerAddress,
        commit: Callable[[str, int], None],
    ) -> None:
        self._ledger = ledger
        self._store = store
        self._clock = clock
        self._config = config
        self._own = own
        self._commit = commit
        self._passed_over = PassedOver(log)
        self._waiting: deque[FinishedHalf] = deque()
        self._waiting_bytes = 0
        self._first_ms = 0  # monotonic ms at which the first waiting entry was added
        self._op_offset = op_offset
        # of each op message: its queue offset, and the largest half offset that it names
        self._largest: deque[tuple[int, int]] = deque()
        self._taken = self._progress()
        self._committed = (-1, -1)

    @property
    def waiting(self) -> int:
        """Return the number of finished half messages that no op message names yet."""
        return len(self._waiting)

    def remember(self, finished: FinishedHalf) -> bool:
        """Remember that a half message is finished.

        Returns:
            Return whether so many entries wait that `write` should be called now.
        """
        if not self._waiting:
            self._first_ms = self._clock.monotonic_ms()
        self._waiting.append(finished)
        self._waiting_bytes += len(str(finished.queue_offset)) + 1
        return self._waiting_bytes > self._config().transaction_op_msg_max_size

    def remember_now(self, queue_offset: int) -> None:
        """Write an op message for one half message at once: the transaction is rolled back, and its producer waits
        until that is durable. If the write is refused, the half message is remembered like the others."""
        if self._put([FinishedHalf(queue_offset, 0)]) == 0:
            self.remember(FinishedHalf(queue_offset, 0))

    def waits_with(self, queue_offset: int) -> bool:
        """Return whether this half message is finished and no op message names it yet."""
        return any(finished.queue_offset == queue_offset for finished in self._waiting)

    def due_in_ms(self) -> int:
        """Return in how many ms `write_due` must be called; 0: now."""
        interval = self._config().transaction_op_batch_interval
        if not self._waiting:
            return interval
        if self._waiting_bytes > self._config().transaction_op_msg_max_size:
            return 0
        return max(0, self._first_ms + interval - self._clock.monotonic_ms())

    def write_due(self) -> None:
        """Write op messages that have waited long enough, and commit the progress."""
        if self._waiting and self.due_in_ms() == 0:
            self.write()
        self.commit_progress()

    def write(self) -> int:
        """Write op messages for the finished half messages whose ends are safe.

        Returns:
            Physical end of the last one; 0 if none was written.
        """
        end = 0
        flushed = self._store.flushed_offset
        while self._waiting and self._waiting[0].end_offset <= flushed:
            batch = self._take(flushed)
            written = self._put(batch)
            if written == 0:  # the store refused all of them and gives the reason; they stay
                self._waiting.extendleft(reversed(batch))
                self._waiting_bytes += sum(len(str(finished.queue_offset)) + 1 for finished in batch)
                break
            end = written
        self._first_ms = self._clock.monotonic_ms()
        return end

    def _take(self, flushed: int) -> list[FinishedHalf]:
        limit = self._config().transaction_op_msg_max_size
        batch: list[FinishedHalf] = []
        size = 0
        waiting = self._waiting
        is_copied = waiting[0].is_copied
        while waiting and size < limit and waiting[0].end_offset <= flushed:
            if waiting[0].is_copied != is_copied:
                break
            batch.append(waiting.popleft())
            size += len(str(batch[-1].queue_offset)) + 1
        self._waiting_bytes -= size
        return batch

    def _put(self, batch: list[FinishedHalf]) -> int:
        """Write one op message. Returns its physical end, 0 if it was refused."""
        body = "".join([f"{finished.queue_offset}{SEPARATOR}" for finished in batch]).encode()
        properties = {const.PROPERTY_TAGS: REMOVE_TAG, const.PROPERTY_WAIT_STORE_MSG_OK: "false"}
        if batch[0].is_copied:
            properties[PROPERTY_COPIED] = "true"
        message = MessageExtBrokerInner(
            TRANS_OP_HALF_TOPIC,
            HALF_QUEUE_ID,
            body,
            properties,
            born_timestamp=self._clock.wall_ms(),
            born_host=self._own.store_host,
        )
        result = self._store.put_message(message)
        if not result.ok:
            log.warning(
                "%d commits and rollbacks of transactions could not be written yet: %s", len(batch), result.remark
            )
            return 0
        self._largest.append((result.queue_offset, max(finished.queue_offset for finished in batch)))
        return result.end_offset

    # --- what was written before ---

    async def read_back(self) -> None:
        """Read the op messages from `op_offset` on, in several turns of the loop."""
        if self._store.queue(TRANS_OP_HALF_TOPIC, HALF_QUEUE_ID) is None:
            return
        at = self._op_offset = max(self._op_offset, self._store.min_offset(TRANS_OP_HALF_TOPIC, HALF_QUEUE_ID))
        end = self._store.max_offset(TRANS_OP_HALF_TOPIC, HALF_QUEUE_ID)
        for op_offset in range(at, end):
            record = self._store.record_in_queue(TRANS_OP_HALF_TOPIC, HALF_QUEUE_ID, op_offset)
            if record is not None:
                with self._passed_over(
                    "op message %d, so the producers of its transactions are asked again", op_offset
                ):
                    self._take_back(op_offset, record)
            if op_offset % _YIELD_EVERY == 0:
                await asyncio.sleep(0)
        self._taken = self._progress()

    def _take_back(self, op_offset: int, record: memoryview) -> None:
        message = decode_record(record)
        offsets = half_offsets(message.body) if message.tags == REMOVE_TAG else []
        how = TransactionOutcome.COPIED if PROPERTY_COPIED in message.properties else TransactionOutcome.REMEMBERED
        for offset in offsets:
            if self._ledger.is_open(offset) and self._lay_before(offset, message.physical_offset):
                self._ledger.finish(offset, how)
        self._largest.append((op_offset, max(offsets, default=-1)))

    def _lay_before(self, half_offset: int, physical_offset: int) -> bool:
        """Return whether the half message of this queue offset was in the log when the op message was written. If not,
        a loss of power took the half message, and its queue offset was given again, or will be."""
        units = self._store.queue_units(TRANS_HALF_TOPIC, HALF_QUEUE_ID, half_offset, 1)
        return bool(units) and units[0][0] < physical_offset

    # --- progress ---

    def commit_progress(self) -> None:
        """Commit the last recorded progress if all it depends on is safe, and record it anew."""
        taken = self._taken
        if not self._store.marks.is_final(taken.mark):
            return
        if (taken.half, taken.op) != self._committed:
            self._committed = (taken.half, taken.op)
            self._commit(TRANS_HALF_TOPIC, taken.half)
            self._commit(TRANS_OP_HALF_TOPIC, taken.op)
        self._taken = self._progress()

    def _progress(self) -> Progress:
        low, largest = self._ledger.low, self._largest
        while largest and largest[0][1] < low:
            self._op_offset = largest.popleft()[0] + 1
        return Progress(low, self._op_offset, self._store.marks.mark())
