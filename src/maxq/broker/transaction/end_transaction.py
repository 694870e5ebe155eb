"""END_TRANSACTION (37): a producer commits or rolls back, of itself or when asked. RESUME_CHECK_HALF_MESSAGE (323): an
administrator has the producer of a transaction that was given up asked again.

Source:
    broker/processor/{EndTransactionProcessor,AdminBrokerProcessor}.java.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Mapping
from typing import Final

from maxq.broker.admission.access import sent_to
from maxq.broker.bundles import Environment, Messages
from maxq.broker.processors.acknowledgement import remark_of
from maxq.broker.processors.refusal import Refusal
from maxq.broker.processors.support import RequestProcessor
from maxq.broker.tables.topic.topic_validator import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC
from maxq.broker.transaction.transactional_message_check_service import TransactionalMessageCheckService
from maxq.broker.transaction.transactional_message_service import EndResult, TransactionalMessageService
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import RemoteProtocolError
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.admin import ResumeCheckHalfMessageRequestHeader
from maxq.protocol.header.send import EndTransactionRequestHeader
from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.message_id import decode_message_id
from maxq.protocol.message.message_sys_flag import MessageSysFlag
from maxq.remoting.connection import Connection, Processor

log = logging.getLogger(__name__)


class EndTransactionProcessor(RequestProcessor):
    """Answers the end of transactions and `resume_check`. An end is usually oneway; a client that waits is answered
    when the end is as safe as the settings promise (Java answers at once)."""

    def __init__(
        self,
        env: Environment,
        messages: Messages,
        transactions: TransactionalMessageService,
        checks: TransactionalMessageCheckService,
    ) -> None:
        self._transactions = transactions
        self._checks = checks
        self._settings = env.settings
        self._store = messages.store
        self._acknowledgement = messages.acknowledgement
        self._guard = env.guard

    def routes(self) -> Mapping[int, Processor]:
        return {
            RequestCode.END_TRANSACTION: self.end_transaction,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self.resume_check,
        }

    # --- 37 ---

    def end_transaction(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand] | None:
        """End a transaction. Returns None if the request expects no response, or if it says "unknown", which has
        none."""
        header = EndTransactionRequestHeader.decode(request.ext)
        refusal = self._refusal()
        if refusal is not None:
            return refusal.reply_to(request)
        if header.commit_or_rollback not in _ENDS:
            log.info("transaction %s is still open, says %s: %s", header.transaction_id, connection, request.remark)
            return None
        rules = None if self._guard is None else self._guard.rules
        if self._store.confirm_offset <= header.commit_log_offset < self._store.max_physical_offset:
            # the queue does not have the half message yet
            return self._end_when_ready(connection, request, header, rules)
        refused = self._refusal_of(connection, request, header)
        if refused is not None:
            return refused
        if not self._checks.is_ready:
            return self._end_when_ready(connection, request, header, rules)
        outcome = self._end(connection, request, header)
        if isinstance(outcome, Refusal):
            return outcome.reply_to(request)
        if request.is_oneway:
            return None
        safe = self._acknowledgement.outcome(outcome.safe_at) if outcome.safe_at else None
        return request.reply() if safe is None else _answer_when(safe, request)

    def _refusal_of(
        self, connection: Connection, request: RemotingCommand, header: EndTransactionRequestHeader
    ) -> RemotingCommand | None:
        """Refuse clients that may not send to the transaction's topic; the topic that the request names does not
        matter."""
        if self._guard is None:
            return None
        topic = self._transactions.topic_of(header)
        if isinstance(topic, Refusal):
            return topic.reply_to(request)
        return self._guard.also(connection, request, topic)

    def _refusal(self) -> Refusal | None:
        if self._settings.store.broker_role == "SLAVE":
            master = self._store.master_address
            return Refusal(
                ResponseCode.SLAVE_NOT_AVAILABLE,
                f"this broker is a SLAVE: transactions end at the master of its group{master and f' {master}'}",
            )
        remark = self._acknowledgement.refusal()
        return None if remark is None else Refusal(ResponseCode.SYSTEM_ERROR, remark)

    async def _end_when_ready(
        self, connection: Connection, request: RemotingCommand, header: EndTransactionRequestHeader, since: object
    ) -> RemotingCommand:
        """End the transaction when the store is ready for it, if the account of the request may still do so. The access
        rules had version `since` when the request was accepted."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DISPATCH_SECONDS):
                await self._store.wait_for_dispatch()
        await self._checks.ready()
        if self._guard is not None:
            refused = self._guard.again(connection, request, since) or self._refusal_of(connection, request, header)
            if refused is not None:
                return refused
        outcome = self._end(connection, request, header)
        if isinstance(outcome, Refusal):
            return outcome.reply_to(request)
        safe = self._acknowledgement.outcome(outcome.safe_at) if outcome.safe_at and not request.is_oneway else None
        return request.reply() if safe is None else await _answer_when(safe, request)

    def _end(
        self, connection: Connection, request: RemotingCommand, header: EndTransactionRequestHeader
    ) -> EndResult | Refusal:
        if header.commit_or_rollback == MessageSysFlag.TRANSACTION_COMMIT:
            outcome = self._transactions.commit(header)
        else:
            outcome = self._transactions.rollback(header, waits=not request.is_oneway)
        if isinstance(outcome, Refusal):
            log.warning("a transaction cannot be ended (%s): %s, asked by %s", header, outcome.remark, connection)
        return outcome

    # --- 323 ---

    async def resume_check(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Resume the checks of a message, named by its offset id in the half topic or in the topic of abandoned
        transactions."""
        header = ResumeCheckHalfMessageRequestHeader.decode(request.ext)
        refusal = self._refusal()
        if refusal is not None:
            return refusal.reply_to(request)
        found = self._message(header.msg_id or "")
        if isinstance(found, Refusal):
            return found.reply_to(request)
        refused = None if self._guard is None else self._guard.also(connection, request, sent_to(found))
        if refused is not None:
            return refused
        await self._checks.ready()
        refusal = self._transactions.resume(found)
        return request.reply() if refusal is None else refusal.reply_to(request)

    def _message(self, msg_id: str) -> MessageExt | Refusal:
        try:
            _, physical_offset = decode_message_id(msg_id)
        except RemoteProtocolError as error:
            return Refusal(ResponseCode.SYSTEM_ERROR, f"msgId {msg_id!r} is no offset message id: {error}")
        message = self._store.look_message_by_offset(physical_offset)
        if (
            message is None
            or message.topic not in (TRANS_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC)
            or not self._store.is_in_queue(message.topic, message.queue_id, message.queue_offset, physical_offset)
        ):
            return Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"msgId {msg_id} is no message of {TRANS_HALF_TOPIC} or {TRANS_CHECK_MAX_TIME_TOPIC}; "
                "`maxq transaction list` shows the ids",
            )
        return message


async def _answer_when(safe: Awaitable[ResponseCode], request: RemotingCommand) -> RemotingCommand:
    code = await safe
    if code is ResponseCode.SUCCESS:
        return request.reply()
    return request.reply(code, remark_of(code, "the end of the transaction", "its producer is asked again"))


_DISPATCH_SECONDS: Final = 3.0  # a producer waits no longer for an answer
_ENDS = (MessageSysFlag.TRANSACTION_COMMIT, MessageSysFlag.TRANSACTION_ROLLBACK)
