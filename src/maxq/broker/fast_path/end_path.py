"""The batch path of one-way commits: what RemotingServer.batch_path does with leading END_TRANSACTION frames.

A commit that nobody waits for, of a half message that is open and of this run, becomes its final message without a
Python object for either; all commits of an arrival are dispatched together. Everything else (rollbacks, answers to
checks, copies, delays, refusals) is left to the EndTransactionProcessor, which decides; this module only takes what
that one would have done anyway.
"""

from maxq.broker.bundles import Environment, Messages
from maxq.broker.transaction.transactional_message_check_service import TransactionalMessageCheckService
from maxq.broker.transaction.transactional_message_service import TransactionalMessageService
from maxq.codes import RequestCode
from maxq.protocol.frame.request_scanners_cy import EndScanner
from maxq.protocol.message.message_sys_flag import MessageSysFlag
from maxq.remoting.server import Connection


class EndPath:
    """Answers batches of half messages and commits. One per broker; called for every arrival of bytes on any of its
    connections."""

    def __init__(
        self,
        env: Environment,
        messages: Messages,
        transactions: TransactionalMessageService,
        checks: TransactionalMessageCheckService,
    ) -> None:
        self._transactions = transactions
        self._checks = checks
        self._store = messages.store
        self._acknowledgement = messages.acknowledgement
        self._guard = env.guard
        self._scanner = EndScanner()
        if env.guard is not None:
            self._scanner.expect_signatures()

    def __call__(self, connection: Connection, buffer: bytearray, start: int, end: int) -> int:
        """Take the leading commits of buffer[start:end]; returns the position behind the last one taken."""
        scanner = self._scanner
        position = scanner.scan(buffer, start, end)
        if position == start or not self._may_append():
            return start
        done = start
        while position != done and self._may_end(connection) and self._commit(scanner):
            done = position
            position = scanner.scan(buffer, done, end)
        if done != start:
            self._store.appended()
        return done

    def _may_append(self) -> bool:
        return (
            self._checks.is_ready
            and self._store.admission.refusal() is None
            and self._acknowledgement.refusal() is None
        )

    def _may_end(self, connection: Connection) -> bool:
        scanner = self._scanner
        return self._guard is None or self._guard.session(connection).admits(
            RequestCode.END_TRANSACTION, scanner, scanner.topic
        )

    def _commit(self, scanner: EndScanner) -> bool:
        if scanner.commit_or_rollback != MessageSysFlag.TRANSACTION_COMMIT:
            return False
        return self._transactions.commit_on_fast_path(
            scanner.tran_state_table_offset,
            scanner.commit_log_offset,
            scanner.producer_group,
            None if self._guard is None else scanner.topic,
            scanner.msg_id,
        )
