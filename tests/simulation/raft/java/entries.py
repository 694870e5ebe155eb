"""A follower's log: what a leader pushes, in whatever order it comes (EntryHandler)."""

from maxq.errors import LedgerMismatchError
from maxq.protocol.dledger.dledger_messages import DLedgerResponseCode as Code
from maxq.protocol.dledger.dledger_messages import PushReply, PushRequest, PushType
from maxq.replication.raft.outputs import Role
from tests.simulation.raft.java.state import PUSH_TIMEOUT_MS, JavaState
from tests.simulation.raft.sim_ledger import SimRun


class JavaEntries:
    """See the module."""

    def __init__(self, state: JavaState, now: int) -> None:
        self._state = state
        self._ledger = state.ledger
        self._buffer: dict[int, tuple[object, PushRequest, int]] = {}  # by its first index: token, push, since when
        self._checked_ms = now

    def push(self, token: object, request: PushRequest, now: int) -> None:
        if request.type is PushType.APPEND:
            if request.first_index in self._buffer:
                self._done(token, request, Code.REPEATED_PUSH)
            else:
                self._buffer[request.first_index] = (token, request, now)
        elif self._state.role is not Role.FOLLOWER:
            self._done(token, request, Code.NOT_FOLLOWER)
        else:
            if request.type is not PushType.COMMIT:
                self._buffer.clear()
            self._order(token, request)
        self.tick(now)

    def tick(self, now: int) -> None:
        """Append what follows, if the member is a follower."""
        if self._state.role is not Role.FOLLOWER:
            return
        while self._ledger.end_index + 1 in self._buffer:
            token, request, _ = self._buffer.pop(self._ledger.end_index + 1)
            code = self._append(request)
            self._done(token, request, code)
            if code is Code.SUCCESS:
                self._state.commit(request.commit_index)
        if self._buffer and now - self._checked_ms > PUSH_TIMEOUT_MS:
            self._checked_ms = now
            self._check_buffer(now)

    def _append(self, request: PushRequest) -> Code:
        if not self._is_of_leader(request):
            return Code.INCONSISTENT_STATE
        code = Code.SUCCESS
        try:
            for entry in request.entries:
                self._ledger.append_entries(SimRun([entry]))
        except LedgerMismatchError:
            code = Code.INCONSISTENT_STATE
        self._state.sync()
        return code

    def _is_of_leader(self, request: PushRequest) -> bool:
        return request.term == self._state.term and request.leader_id == self._state.leader_id

    def _order(self, token: object, request: PushRequest) -> None:
        """COMMIT, COMPARE or TRUNCATE."""
        state, ledger = self._state, self._ledger
        if request.type is PushType.COMMIT:
            if request.term >= state.term:
                state.commit(request.commit_index)
            self._done(token, request, Code.SUCCESS)
            return
        entry = request.entries[0]
        has = ledger.begin_index <= entry.index <= ledger.end_index and ledger.has(entry)
        if request.type is PushType.COMPARE:
            self._done(token, request, Code.SUCCESS if has else Code.INCONSISTENT_STATE)
            return
        if not self._is_of_leader(request):
            self._done(token, request, Code.INCONSISTENT_STATE)
            return
        if has:
            if entry.index < ledger.end_index:
                ledger.truncate(entry.index)
        else:
            continues = entry.index == ledger.end_index + 1 and entry.pos == ledger.end_position
            if (ledger.end_index >= 0 or entry.index > 0) and not continues:
                ledger.reset(entry.index, entry.pos)  # Java would keep bytes before it that nobody compared
            ledger.append_entries(SimRun([entry]))
            state.sync()
        state.commit(request.commit_index)
        self._done(token, request, Code.SUCCESS)

    def _check_buffer(self, now: int) -> None:
        overdue = []
        for first, (token, request, since) in list(self._buffer.items()):
            if request.last_index <= self._ledger.end_index:
                del self._buffer[first]
                equal = all(self._ledger.has(entry) for entry in request.entries)
                self._done(token, request, Code.SUCCESS if equal else Code.INCONSISTENT_STATE)
            elif now - since > PUSH_TIMEOUT_MS:
                overdue.append(first)
        if overdue:
            token, request, _ = self._buffer.pop(min(overdue))
            self._done(token, request, Code.INCONSISTENT_STATE)

    def _done(self, token: object, request: PushRequest, code: Code) -> None:
        reply = PushReply(
            term=request.term, code=code, index=request.first_index, count=request.count,
            begin_index=self._ledger.begin_index, end_index=self._ledger.end_index,
        )  # fmt: skip
        self._state.answer(token, reply)
