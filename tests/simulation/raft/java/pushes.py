"""The leader's log on its way to the followers, and what is committed by it (EntryDispatcher, QuorumAckChecker)."""

from typing import Final

from maxq.protocol.dledger.dledger_messages import DLedgerResponseCode as Code
from maxq.protocol.dledger.dledger_messages import PushReply, PushRequest, PushType, Reply
from maxq.replication.raft.outputs import Role
from tests.simulation.raft.java.state import PUSH_TIMEOUT_MS, JavaState

_SLEEP_MS: Final = 30
_PENDING_MAX: Final = 50


class _Dispatcher:
    """One follower's (EntryDispatcher)."""

    def __init__(self) -> None:
        self.kind = PushType.COMPARE
        self.write_index = -1
        self.compare_index = -1
        self.truncate_index = -1
        self.pending: dict[int, int] = {}  # index → when
        self.is_waiting = False
        self.not_before = 0
        self.pushed_ms = 0

    def compare_again(self, not_before: int) -> None:
        self.kind, self.compare_index, self.not_before = PushType.COMPARE, -1, not_before
        self.pending.clear()


class JavaPushes:
    """See the module."""

    def __init__(self, state: JavaState) -> None:
        self._state = state
        self._ledger = state.ledger
        self._marks: dict[str, int] = {}
        self._first_index = 0
        self._dispatchers: dict[str, _Dispatcher] = {}

    @property
    def retain_index(self) -> int:
        state = self._state
        marks = self._marks.values() if state.role is Role.LEADER else ()
        return min([state.committed_index, *marks])

    def begin(self) -> None:
        """The member leads."""
        others = self._state.config.others
        self._first_index = self._ledger.end_index + 1
        self._marks = dict.fromkeys(others, -1)
        self._dispatchers = {peer: _Dispatcher() for peer in others}

    def tick(self, now: int) -> None:
        """Push what may be pushed now, if the member leads."""
        for peer, dispatcher in self._dispatchers.items():
            if self._state.role is Role.LEADER and not dispatcher.is_waiting and now >= dispatcher.not_before:
                if dispatcher.kind is PushType.APPEND:
                    self._append(peer, dispatcher, now)
                elif self._ledger.end_index >= 0:
                    self._compare(peer, dispatcher, now)
        self._count()

    def _compare(self, peer: str, dispatcher: _Dispatcher, now: int) -> None:
        ledger = self._ledger
        if dispatcher.kind is PushType.TRUNCATE:
            index = dispatcher.truncate_index
        else:
            if not ledger.begin_index <= dispatcher.compare_index <= ledger.end_index:
                dispatcher.compare_index = ledger.end_index
            index = dispatcher.compare_index
        dispatcher.is_waiting = True
        self._send(peer, dispatcher, dispatcher.kind, index, now)

    def _append(self, peer: str, dispatcher: _Dispatcher, now: int) -> None:
        ledger = self._ledger
        if dispatcher.write_index < ledger.begin_index:
            dispatcher.compare_again(now)
            return
        while dispatcher.write_index <= ledger.end_index and len(dispatcher.pending) < _PENDING_MAX:
            dispatcher.pending[dispatcher.write_index] = now
            self._send(peer, dispatcher, PushType.APPEND, dispatcher.write_index, now)
            dispatcher.write_index += 1
        for index in [index for index in dispatcher.pending if index <= self._marks[peer]]:
            del dispatcher.pending[index]
        lost = self._marks[peer] + 1
        if now - dispatcher.pending.get(lost, now) > PUSH_TIMEOUT_MS:
            dispatcher.pending[lost] = now
            self._send(peer, dispatcher, PushType.APPEND, lost, now)
        if dispatcher.write_index > ledger.end_index and now - dispatcher.pushed_ms > PUSH_TIMEOUT_MS:
            self._send(peer, dispatcher, PushType.COMMIT, -1, now)

    def _send(self, peer: str, dispatcher: _Dispatcher, kind: PushType, index: int, now: int) -> None:
        state = self._state
        dispatcher.pushed_ms = now
        entries = () if index < 0 else (self._ledger.entry(index),)
        request = PushRequest(
            group="g", remote_id=peer, local_id=state.id, leader_id=state.id, term=state.term, type=kind,
            commit_index=state.committed_index, entries=entries,
        )  # fmt: skip
        state.ask(peer, request, lambda reply, then: self._pushed(peer, dispatcher, kind, index, reply, then))

    def _pushed(
        self, peer: str, dispatcher: _Dispatcher, kind: PushType, index: int, reply: Reply | None, now: int
    ) -> None:
        is_outdated = self._state.role is not Role.LEADER or self._dispatchers.get(peer) is not dispatcher
        if is_outdated or kind is PushType.COMMIT:
            return
        code = reply.code if isinstance(reply, PushReply) else Code.NETWORK_ERROR
        if kind is PushType.APPEND:
            if code is Code.SUCCESS:
                dispatcher.pending.pop(index, None)
                self._mark(peer, index)
            elif code is Code.INCONSISTENT_STATE and dispatcher.kind is PushType.APPEND:
                dispatcher.compare_again(now)
            return
        dispatcher.is_waiting = False
        if not isinstance(reply, PushReply) or code not in (Code.SUCCESS, Code.INCONSISTENT_STATE):
            dispatcher.compare_again(now + _SLEEP_MS)
        elif kind is PushType.TRUNCATE:
            if code is Code.SUCCESS:
                self._begin_append(peer, dispatcher, index)
            else:
                dispatcher.compare_again(now + _SLEEP_MS)
        else:
            self._compared(peer, dispatcher, code, reply)

    def _compared(self, peer: str, dispatcher: _Dispatcher, code: Code, reply: PushReply) -> None:
        index, begin, end = dispatcher.compare_index, self._ledger.begin_index, self._ledger.end_index
        cut = -1
        if code is Code.SUCCESS:
            if index == reply.end_index:
                self._begin_append(peer, dispatcher, index)
                return
            cut = index
        elif reply.end_index < begin or reply.begin_index > end or index < reply.begin_index:
            cut = begin
        elif index > reply.end_index:
            dispatcher.compare_index = reply.end_index
        else:
            dispatcher.compare_index -= 1
        if cut < 0 and dispatcher.compare_index < begin:
            cut = begin
        if cut >= 0:
            dispatcher.kind, dispatcher.truncate_index = PushType.TRUNCATE, cut

    def _begin_append(self, peer: str, dispatcher: _Dispatcher, index: int) -> None:
        dispatcher.kind = PushType.APPEND
        dispatcher.write_index = index + 1
        dispatcher.compare_index = -1
        self._mark(peer, index)

    def _mark(self, peer: str, index: int) -> None:
        self._marks[peer] = max(self._marks[peer], index)
        self._count()

    def _count(self) -> None:
        if self._state.role is Role.LEADER:
            marks = sorted([self._ledger.end_index, *self._marks.values()], reverse=True)
            point = marks[len(marks) // 2]
            if point >= self._first_index:
                self._state.commit(point)
