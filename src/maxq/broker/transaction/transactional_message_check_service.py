"""TransactionalMessageCheckService: asks producers about transactions that they did not end.

Runs where the group's master is, or the slave that acts as one. A round (transactionCheckInterval) walks over the open
half messages in their order:

* checked transactionCheckMax times, or in the log for longer than fileReservedTime (store/retention/trusted_time.py):
  given up, moved to TRANS_CHECK_MAX_TIME_TOPIC;
* inside its own CHECK_IMMUNITY_TIME_IN_SECONDS: left where it is;
* younger than transactionTimeOut: the round ends, what comes behind is younger still;
* a message whose copy is refused because of its size is asked about without a copy; only this process knows how often;
* else it is written again at the end of the half topic, with its number of checks, and one producer of its group is
  asked; its answer is an END_TRANSACTION. While none is online it stays where it is and is not counted as checked. In a
  DLedger group it is asked when the copy is committed: an answer that came before would name what nobody can read.

Where it differs from Java (docs/explanation/differences.md): Java writes half messages again that are inside their
immunity time or have no producer online, and counts the latter as checked, so that after some minutes without producers
transactions are given up. Here the first open half message is written again only when so many follow it that what a
start has to read would grow without bound.

A failure with one half message is logged with its place, counted (`passed_over`), and harms no other.

A slave that acts as master cannot store copies: it opens the transactions anew at another broker group, if
enableRemoteEscape allows it; Java drops after ten failures what it could not place, here it stays.

Source:
    broker/transaction/{TransactionalMessageCheckService,AbstractTransactionalMessageCheckListener}.java,
    queue/TransactionalMessageServiceImpl.check.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import Final, NamedTuple

from maxq.broker.bundles import Clients, Environment, Messages
from maxq.broker.processors.refusal import Refusal
from maxq.broker.tables.topic.topic_validator import TRANS_HALF_TOPIC
from maxq.broker.transaction.half_message import HALF_QUEUE_ID, check_body, opened_again
from maxq.broker.transaction.transactional_message_service import TransactionalMessageService, is_its_own_fault
from maxq.codes import RequestCode
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.send import CheckTransactionStateRequestHeader
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.transaction_view import number
from maxq.remoting.connection import Connection
from maxq.runtime.background import supervise
from maxq.runtime.passed_over import PassedOver
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.durability.log_marks import NOT_LEADING
from maxq.store.store_results import PutMessageResult, PutMessageStatus

log = logging.getLogger(__name__)

#: Half messages that may follow an open one before it is written again: a start reads the outcomes of all of them.
MOST_BEHIND: Final = 1_000_000
_OPS_MOST_MS: Final = 1_000
_YIELD_EVERY: Final = 16
_ASKED_TOGETHER: Final = 256  # questions whose half messages are in memory at the same time
_HOUR_MS: Final = 3_600_000
_ITS_OWN_FAULT: Final = (PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)

Escape = Callable[[MessageExtBrokerInner], Awaitable[PutMessageResult]]


class _Next(Enum):
    """Whether a round of checks goes on after a half message."""

    ON = auto()
    STOP = auto()


class _Question(NamedTuple):
    """A producer to ask and the message to ask about."""

    connection: Connection
    half: MessageExt


class TransactionalMessageCheckService:
    """Checks open transactions; a MasterOnlyService. It also has the ends of transactions written, and makes them wait
    until `begin` is done.

    Args:
        escape: gives a message to another broker group.

    Attributes:
        passed_over: half messages with which a round has failed.
    """

    def __init__(
        self,
        env: Environment,
        clients: Clients,
        messages: Messages,
        transactions: TransactionalMessageService,
        escape: Escape,
    ) -> None:
        self._transactions = transactions
        self._settings = env.settings
        self._clock = env.clock
        self._store = messages.store
        self._producers = clients.producers
        self._guard = env.guard
        self._broker = env.own
        self._escape = escape
        self._on_failure = env.on_failure
        self._task: asyncio.Task[None] | None = None
        self._refused_topics: set[str] = set()  # in this round, by all other broker groups
        # queue offset → how often it was asked while its copy could not be written
        self._asked_uncopied: dict[int, int] = {}
        self.passed_over = PassedOver(log)
        self._ready = asyncio.Event()

    @property
    def is_ready(self) -> bool:
        """Return whether it is known which transactions are open."""
        return self._ready.is_set()

    async def ready(self) -> None:
        """Wait until it is known which transactions are open."""
        await self._ready.wait()

    def start(self) -> None:
        """Start: this broker is its group's active one from now on."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="transactions")
            supervise(self._task, self._on_failure, "transactions")

    @property
    def _is_slave(self) -> bool:
        """Return whether this broker may not store messages."""
        return self._settings.store.broker_role == "SLAVE"

    def stop(self) -> None:
        """Stop: another broker takes over, or this one shuts down. Transaction ends that arrive from now on wait until
        it is active again. Ends received before are recorded as far as the records they depend on are flushed; the
        others follow from the messages themselves."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        if self.is_ready and not self._is_slave:
            self._transactions.ops.write()
        self._ready.clear()

    async def shutdown(self) -> None:
        """Stop, and wait until all received ends are written."""
        self.stop()
        ops = self._transactions.ops
        if ops.waiting and not self._is_slave:
            await self._store.flush()
            ops.write()

    async def _run(self) -> None:
        await self._transactions.begin()
        self._ready.set()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write_ops(), name="transaction op messages")
            tasks.create_task(self._check_again_and_again(), name="transaction checks")

    async def _write_ops(self) -> None:
        while True:
            ops = self._transactions.ops
            await asyncio.sleep(min(max(ops.due_in_ms(), 10), _OPS_MOST_MS) / 1000)
            with self.passed_over("writing op messages, which is tried again"):
                if self._is_slave:
                    ops.commit_progress()
                else:
                    ops.write_due()

    async def _check_again_and_again(self) -> None:
        while True:
            await asyncio.sleep(self._settings.broker.transaction_check_interval / 1000)
            began_ms = self._clock.monotonic_ms()
            asked = 0
            with self.passed_over("a round of transaction checks, which is tried again"):
                asked = await self.check()
            took_ms = self._clock.monotonic_ms() - began_ms
            if asked:
                log.info("asked producers about %d transactions in %d ms", asked, took_ms)

    # --- one round ---

    async def check(self) -> int:
        """Run one round; returns for how many transactions producers were asked. Messages stored during the round wait
        for the next one."""
        ledger = self._transactions.ledger
        end = self._store.max_offset(TRANS_HALF_TOPIC, HALF_QUEUE_ID)
        self._transactions.skip_gone()
        asked = looked = 0
        self._refused_topics.clear()
        questions: list[_Question] = []
        at = ledger.next_open(0)
        while at < end:
            step, question = _Next.ON, None
            with self.passed_over("the half message at queue offset %d", at):
                step, question = await self._take(at, end)
            if question is not None:
                questions.append(question)
            if step is _Next.STOP:
                break
            if len(questions) == _ASKED_TOGETHER:
                asked += await self._ask(questions)
                questions.clear()
            looked += 1
            if looked % _YIELD_EVERY == 0:
                await asyncio.sleep(0)
            at = ledger.next_open(at + 1)
        return asked + await self._ask(questions)

    async def _take(self, at: int, end: int) -> tuple[_Next, _Question | None]:
        """Return how the round continues behind this half message, and which producer to ask about it."""
        half = self._transactions.half_at(at)
        if half is None:
            self._gone(at)
            return _Next.ON, None
        if self._transactions.ends_with_its_topic(half):
            return _Next.ON, None
        if self._is_slave:
            return await self._escaped(half), None
        return self._look_at(half, end)

    def _gone(self, at: int) -> None:
        log.warning("the half message at queue offset %d is missing or damaged: its transaction has ended", at)
        self._transactions.lost(at)

    def _look_at(self, half: MessageExt, end: int) -> tuple[_Next, _Question | None]:
        transactions = self._transactions
        broker = self._settings.broker
        checked = number(half.properties, const.PROPERTY_TRANSACTION_CHECK_TIMES, 0)
        checked += self._asked_uncopied.get(half.queue_offset, 0)
        if checked >= broker.transaction_check_max or self._is_too_old(half):
            if transactions.is_committed(half):
                return _Next.ON, None
            log.error(
                "transaction %s of topic %s is given up after %d checks: its message is in TRANS_CHECK_MAX_TIME_TOPIC",
                half.uniq_key, half.properties.get(const.PROPERTY_REAL_TOPIC), checked,
            )  # fmt: skip
            if not transactions.give_up(half):
                return _Next.STOP, None
            self._asked_uncopied.pop(half.queue_offset, None)
            return _Next.ON, None
        age_ms = self._clock.wall_ms() - min(half.born_timestamp, half.store_timestamp)
        own = number(half.properties, const.PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS, -1)
        if own >= 0 and 0 <= age_ms <= own * 1000:
            return self._leave(half, end), None
        if own < 0 and 0 <= age_ms <= broker.transaction_time_out:
            return _Next.STOP, None
        connection = self._producer_of(half)
        if connection is None:
            return self._leave(half, end), None
        if transactions.is_committed(half):
            return _Next.ON, None
        copy = transactions.copy(half, checked + 1)
        if isinstance(copy, Refusal):
            if not is_its_own_fault(copy):
                log.warning("producers are not asked about transactions now: %s", copy.remark)
                return _Next.STOP, None
            self._note_uncopied(half, copy)
            copy = half
        return _Next.ON, _Question(connection, copy)

    def _producer_of(self, half: MessageExt) -> Connection | None:
        """Return the connection of a member of the producer's group that may send such a message, because the check
        shows it the message."""
        group = half.properties.get(const.PROPERTY_PRODUCER_GROUP, "")
        return self._producers.get_available_channel(group, lambda member: self._may_see(member, half))

    def _may_see(self, member: Connection, half: MessageExt) -> bool:
        guard, topic = self._guard, half.properties.get(const.PROPERTY_REAL_TOPIC, "")
        return guard is None or guard.client_may(member, topic)

    def _note_uncopied(self, half: MessageExt, refusal: Refusal) -> None:
        asked = self._asked_uncopied
        if half.queue_offset not in asked:
            log.error("the producer of transaction %s is asked without a new copy of its half message at physical "
                      "offset %d: %s", half.uniq_key, half.physical_offset, refusal.remark)  # fmt: skip
        asked[half.queue_offset] = asked.get(half.queue_offset, 0) + 1
        for ended in [at for at in asked if at < self._transactions.ledger.low]:
            del asked[ended]

    def _is_too_old(self, half: MessageExt) -> bool:
        reserved_ms = self._settings.store.file_reserved_time * _HOUR_MS
        return self._store.time.now_ms() - half.store_timestamp > reserved_ms

    def _leave(self, half: MessageExt, end: int) -> _Next:
        """Keep a half message waiting, in its place, unless too many others follow it; then it is written anew at the
        end."""
        if half.queue_offset != self._transactions.ledger.low or end - half.queue_offset < MOST_BEHIND:
            return _Next.ON
        refusal = self._transactions.move_up(half)
        return _Next.ON if refusal is None or is_its_own_fault(refusal) else _Next.STOP

    async def _ask(self, questions: list[_Question]) -> int:
        """Ask producers once their answers can name the copies; returns how many were asked."""
        if not questions or not await self._are_committed():
            return 0
        for question in questions:
            if not self._may_see(*question):  # the rules have changed meanwhile
                continue
            with self.passed_over("the question for the half message at queue offset %d", question.half.queue_offset):
                self._send(*question)
        return len(questions)

    async def _are_committed(self) -> bool:
        """Wait until everything that this leadership has appended is committed. Returns False if it has ended
        before."""
        marks = self._store.marks
        mark = marks.mark()
        while self._store.ledger is not None and not await marks.make_final(mark):
            if marks.mark().term != mark.term or mark.term == NOT_LEADING:
                return False
        return True

    def _send(self, connection: Connection, half: MessageExt) -> None:
        key = half.uniq_key
        header = CheckTransactionStateRequestHeader(
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.physical_offset,
            topic=half.topic,
            msg_id=key,
            transaction_id=key,
            offset_msg_id=half.offset_msg_id,
        )
        ext = {**header.encode(), "bname": self._broker.broker_name}
        connection.send_oneway(RemotingCommand(RequestCode.CHECK_TRANSACTION_STATE, ext, check_body(half)))

    async def _escaped(self, half: MessageExt) -> _Next:
        if self._transactions.is_committed(half):
            return _Next.ON
        topic = half.properties.get(const.PROPERTY_REAL_TOPIC, "")
        if topic in self._refused_topics:
            return _Next.ON
        result = await self._escape(opened_again(half))
        if result.ok:
            self._transactions.escaped(half)
        elif result.status is PutMessageStatus.NO_REMOTE_BROKER_TAKES_IT:
            self._refused_topics.add(topic)
        elif result.status not in _ITS_OWN_FAULT:
            return _Next.STOP
        return _Next.ON
