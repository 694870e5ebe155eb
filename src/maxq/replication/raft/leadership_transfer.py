"""Handing leadership over: an operator's wish, or that of a leader that is not preferred while a preferred one is near,
or whose disk takes nothing while others could do without it.

The leader stops accepting appends, waits until all accepted ones are committed and answered, and orders the transferee
to stand for election, which it does as soon as its log is as long as the leader's. Where a quorum is slow the order
goes after _COMMIT_WAIT_MS all the same. A member that was not heard lately is not ordered. The leader's own deadline
ends a transfer that leads nowhere, whatever has become of its role meanwhile: clients wait for no longer than a second
for a member of ours that does not stand.

The other members vote in such an election although the leader is alive, so the order ends what the leader may promise:
it goes on in its term only if the transferee refused the order (REFUSALS). After every other outcome it gives up its
term, even if its own vote was not needed and it has not heard of the later term.

Source:
    openmessaging/dledger DLedgerServer.java, handleLeadershipTransfer; DLedgerLeaderElector.java.
"""

from typing import Final

from maxq.lazy_dataclass import dataclass
from maxq.protocol.dledger.dledger_messages import DLedgerResponseCode, Reply, TransferReply, TransferRequest
from maxq.replication.raft.heart_beats import HeartBeats
from maxq.replication.raft.leader_elector import LeaderElector
from maxq.replication.raft.member_state import MemberState
from maxq.replication.raft.outputs import Role
from maxq.replication.raft.quorum_ack_checker import QuorumAckChecker

_NEVER: Final = 1 << 62
_LOOK_INTERVAL_MS: Final = 1000
_COMMIT_WAIT_MS: Final = 500
#: Answers to an order that was not taken and never will be. (A member of Java's may answer so after it stood, too.)
REFUSALS: Final = frozenset(
    (
        DLedgerResponseCode.UNKNOWN_GROUP, DLedgerResponseCode.UNKNOWN_MEMBER, DLedgerResponseCode.INCONSISTENT_LEADER,
        DLedgerResponseCode.INCONSISTENT_TERM, DLedgerResponseCode.UNEXPECTED_ARGUMENT,
        DLedgerResponseCode.ILLEGAL_MEMBER_STATE,
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _HandingOver:
    """This leader is transferring the leadership to `transferee`. `token`: of the request; None: it was not requested,
    but follows from the preference."""

    transferee: str
    term: int
    token: object | None
    request: TransferRequest


@dataclass(frozen=True, slots=True)
class _Taking:
    """State of a member that the leader has asked to take over.

    Attributes:
        tokens: of the request, and of copies of it that the network made.
    """

    tokens: list[object]
    request: TransferRequest
    log_deadline: int
    deadline: int


class LeadershipTransfer:
    """Transfers the leadership; both sides of it, for one member."""

    def __init__(self, state: MemberState, elector: LeaderElector, now: int) -> None:
        self._state = state
        self._config = state.config
        self._elector = elector
        self._handing_over: _HandingOver | None = None
        self._order_ms = _NEVER  # latest time at which the transferee is ordered to stand
        self._give_up_ms = _NEVER  # time at which the leader gives up waiting for it
        self._taking: _Taking | None = None
        self._last_taken: tuple[TransferRequest, DLedgerResponseCode] | None = None  # the last request and its outcome
        self._look_ms = now + _LOOK_INTERVAL_MS
        self._beats: HeartBeats | None = None
        self._acks: QuorumAckChecker | None = None
        self._asked = ""  # the member that was last asked to lead in place of a member without room
        self._told_term = -1  # term for which it was logged that this member gives up the leadership

    @property
    def transferee(self) -> str | None:
        """The member to which this leader is transferring the leadership; None if to none."""
        return None if self._handing_over is None else self._handing_over.transferee

    @property
    def next_tick(self) -> int:
        """Return the time at which `tick` must be called."""
        due = _NEVER
        if self._handing_over is not None:
            due = min(self._give_up_ms, self._order_ms)
        if self._taking is not None:
            is_waiting = self._state.term == self._taking.request.term
            due = min(due, self._taking.log_deadline if is_waiting else self._taking.deadline)
        if self._wants_successor():
            due = min(due, self._look_ms)
        return due

    def leads(self, beats: HeartBeats, acks: QuorumAckChecker, now: int) -> None:
        """Note that this member leads a new term; what it knows of its followers is in `beats` and `acks`."""
        self._beats, self._acks = beats, acks
        self._look_ms = now + _LOOK_INTERVAL_MS

    def request(self, token: object, request: TransferRequest, now: int) -> None:
        """Handle a LEADERSHIP_TRANSFER of an operator or a leader."""
        refusal = self._state.check(request)
        if refusal is not None:
            self._answer(token, request, refusal)
        elif request.transferee_id == self._config.self_id:
            self._take(token, request, now)
        elif request.transfer_id == self._config.self_id:
            self._hand_over(token, request, now)
        else:
            self._answer(token, request, DLedgerResponseCode.UNEXPECTED_ARGUMENT)

    def tick(self, now: int) -> None:
        """Give up transfers that took too long, and hand over to a preferred leader that has caught up."""
        self.order_if_committed(now)
        handing, taking = self._handing_over, self._taking
        if handing is not None and now >= self._give_up_ms:
            self._give_up_term(DLedgerResponseCode.TIMEOUT, now)
        if taking is not None:
            is_waiting = self._state.term == taking.request.term
            if now >= (taking.log_deadline if is_waiting else taking.deadline):
                self._taken(DLedgerResponseCode.TAKE_LEADERSHIP_FAILED)
        if self._wants_successor() and now >= self._look_ms:
            self._look_ms = now + _LOOK_INTERVAL_MS
            if self._handing_over is None:
                self._succeed(now)

    def log_grew(self, now: int) -> None:
        """Check, after new entries, whether this member has all of the leader's."""
        taking = self._taking
        if taking is None or self._state.role is not Role.FOLLOWER or self._state.term != taking.request.term:
            return
        if self._state.ledger.end_index >= taking.request.take_leadership_ledger_index and self._state.may_elect:
            self._elector.stand_at_once(now)

    def role_changed(self) -> None:
        """Note that this member's role or term has changed, or that it follows another leader."""
        state, taking, handing = self._state, self._taking, self._handing_over
        if handing is not None and not state.is_leader_of(handing.term):
            if self._order_ms != _NEVER:
                self._handed_over(DLedgerResponseCode.NOT_LEADER)
            elif handing.token is None:
                self._handing_over = None
        if taking is None:
            return
        if state.term > taking.request.term + 1:
            self._taken(DLedgerResponseCode.EXPIRED_TERM)
        elif state.term == taking.request.term + 1 and state.role is Role.LEADER:
            self._taken(DLedgerResponseCode.SUCCESS)
        elif state.term == taking.request.term + 1 and state.role is Role.FOLLOWER:
            self._taken(DLedgerResponseCode.TAKE_LEADERSHIP_FAILED)

    # --- the leader ---

    def _hand_over(self, token: object, request: TransferRequest, now: int) -> None:
        state, transferee = self._state, request.transferee_id
        code = None
        if transferee not in self._config.others:
            code = DLedgerResponseCode.UNKNOWN_MEMBER
        elif request.term != state.term:
            code = DLedgerResponseCode.INCONSISTENT_TERM
        elif state.role is not Role.LEADER or self._acks is None:
            code = DLedgerResponseCode.NOT_LEADER
        elif self._handing_over is not None:
            code = DLedgerResponseCode.LEADER_TRANSFERRING
        elif self._lag(transferee) >= self._config.max_leadership_transfer_wait_index:
            code = DLedgerResponseCode.FALL_BEHIND_TOO_MUCH
        elif self._beats is None or not self._beats.is_live(transferee, now):
            code = DLedgerResponseCode.NETWORK_ERROR
        if code is None and transferee is not None:
            self._start(token, transferee, request, now)
        elif code is not None:
            self._answer(token, request, code)

    def _start(self, token: object | None, transferee: str, request: TransferRequest, now: int) -> None:
        self._handing_over = _HandingOver(transferee, self._state.term, token, request)
        self._order_ms = now + min(_COMMIT_WAIT_MS, self._config.rpc_timeout_ms // 2)
        self._give_up_ms = self._order_ms + self._patience_ms(transferee)
        self.order_if_committed(now)

    def _patience_ms(self, transferee: str) -> int:
        """Return how long to wait for the effect of an order: a MaxQ member that has the log stands at once."""
        is_ours = self._beats is not None and self._beats.contacts[transferee].maxq is not None
        longest = self._config.leadership_transfer_wait_timeout_ms
        return min(longest, self._config.rpc_timeout_ms) if is_ours else self._config.rpc_timeout_ms

    def order_if_committed(self, now: int) -> None:
        """Order the transferee to stand for election, if all that this leader appended is committed, or that takes too
        long."""
        handing, ledger = self._handing_over, self._state.ledger
        if handing is None or self._order_ms == _NEVER:
            return
        if self._state.committed_index < ledger.end_index and now < self._order_ms:
            return
        self._order_ms = _NEVER
        self._give_up_ms = now + self._patience_ms(handing.transferee)
        self_id, term, transferee = self._config.self_id, handing.term, handing.transferee
        order = TransferRequest(
            group=self._config.group, remote_id=transferee, local_id=self_id, leader_id=self_id, term=term,
            transfer_id=self_id, transferee_id=transferee,
            take_leadership_ledger_index=ledger.end_index,
        )  # fmt: skip
        self._state.outbox.send(transferee, order, lambda _, reply, then: self._replied(handing, reply, then))

    def _replied(self, handing: _HandingOver, reply: Reply | None, now: int) -> None:
        if handing is not self._handing_over:
            return
        code = reply.code if isinstance(reply, TransferReply) else DLedgerResponseCode.NETWORK_ERROR
        if code in REFUSALS:
            self._handed_over(code)
        else:
            self._give_up_term(code, now)

    def _give_up_term(self, code: DLedgerResponseCode, now: int) -> None:
        """End the hand-over and the leadership of its term. The transferee has been elected, or may have the order and
        act on it at any time; in a later term the order has no effect."""
        handing = self._handing_over
        self._handed_over(code)
        if handing is not None and self._state.is_leader_of(handing.term):
            self._state.step_down(handing.term, now)

    def _handed_over(self, code: DLedgerResponseCode) -> None:
        handing, self._handing_over = self._handing_over, None
        self._order_ms = self._give_up_ms = _NEVER
        if handing is not None and handing.token is not None:
            self._answer(handing.token, handing.request, code)

    def _lag(self, peer: str) -> int:
        assert self._acks is not None
        return self._state.ledger.end_index - self._acks.mark(peer)

    def _wants_successor(self) -> bool:
        preferred = self._config.preferred_leader_ids
        is_content = self._state.has_room and (not preferred or self._config.self_id in preferred)
        return self._state.role is Role.LEADER and not is_content

    def _succeed(self, now: int) -> None:
        """Choose the member that should lead instead of this one, and offer it the leadership."""
        beats = self._beats
        if beats is None:
            return
        able = [peer for peer, contact in beats.contacts.items() if beats.is_live(peer, now) and not contact.lacks_room]
        if not self._state.has_room:
            self._give_up(able, now)
        elif preferred := [peer for peer in able if peer in self._config.preferred_leader_ids]:
            self._offer(min(preferred, key=self._lag), now)

    def _give_up(self, able: list[str], now: int) -> None:
        """Hand the leadership over if the others are a majority without this member; otherwise nobody could commit. A
        member that refuses (its disk is full, too) is asked again after the next one."""
        if len(able) < self._config.quorum:
            return
        self._asked = min(able, key=lambda peer: (peer == self._asked, self._lag(peer)))
        if self._offer(self._asked, now) and self._told_term != self._state.term:
            self._told_term = self._state.term
            self._state.alarm(
                f"this leader's disk takes nothing, {len(able)} others have room: the leadership is offered to "
                f"{self._asked}; free space here"
            )

    def _offer(self, peer: str, now: int) -> bool:
        """Hand over to `peer`, unless it lags too far behind."""
        is_near = self._lag(peer) < self._config.max_leadership_transfer_wait_index
        if is_near:
            self._start(None, peer, TransferRequest(term=self._state.term), now)
        return is_near

    # --- the transferee ---

    def _take(self, token: object, request: TransferRequest, now: int) -> None:
        state, taking, last = self._state, self._taking, self._last_taken
        if taking is not None and taking.request == request:
            taking.tokens.append(token)
            return
        if last is not None and last[0] == request:
            self._answer(token, request, last[1])
            return
        code = None
        if state.leader_id is None or request.transfer_id != state.leader_id:
            code = DLedgerResponseCode.INCONSISTENT_LEADER
        elif request.term != state.term:
            code = DLedgerResponseCode.INCONSISTENT_TERM
        elif not state.may_elect or not state.has_room or taking is not None or state.role is not Role.FOLLOWER:
            code = DLedgerResponseCode.ILLEGAL_MEMBER_STATE
        if code is not None:
            self._answer(token, request, code)
            return
        self._taking = _Taking(
            [token], request, now + self._config.leadership_transfer_wait_timeout_ms, now + self._config.rpc_timeout_ms
        )
        self.log_grew(now)

    def _taken(self, code: DLedgerResponseCode) -> None:
        taking, self._taking = self._taking, None
        if taking is not None:
            self._last_taken = (taking.request, code)
            for token in taking.tokens:
                self._answer(token, taking.request, code)

    def _answer(self, token: object, request: TransferRequest, code: DLedgerResponseCode) -> None:
        self._state.outbox.answer(token, TransferReply(group=request.group, term=request.term, code=code))
