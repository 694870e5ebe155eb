"""One member of a DLedger group, put together from its parts: see the package's docstring for its inputs and outputs.

What leads to what: a candidate's probe and election (leader_elector) → `MemberState.lead` → heart-beats (heart_beats)
find who is in the term → one dispatcher per follower (entry_dispatcher) brings its log in line and pushes → its handler
(entry_handler) writes and acknowledges what is durable → the count (quorum_ack_checker) moves the commit point, which
rides on the next push.

Safety rules that the original does not keep are numbered S1 to S19 in docs/explanation/dledger.md and named where they
are kept.

Source:
    openmessaging/dledger DLedgerServer.java.
"""

from maxq.protocol.dledger.dledger_messages import (
    DLedgerMessage,
    DLedgerResponseCode,
    HeartBeatReply,
    HeartBeatRequest,
    PullReply,
    PullRequest,
    PushReply,
    PushRequest,
    Reply,
    Request,
    TransferRequest,
    VoteRequest,
)
from maxq.protocol.dledger.ledger import HardState, Ledger
from maxq.replication.raft.config import RaftConfig
from maxq.replication.raft.entry_dispatcher import EntryDispatcher
from maxq.replication.raft.entry_handler import EntryHandler
from maxq.replication.raft.heart_beats import HeartBeats
from maxq.replication.raft.leader_elector import LeaderElector
from maxq.replication.raft.leadership_transfer import LeadershipTransfer
from maxq.replication.raft.member_state import MemberState
from maxq.replication.raft.outbox import Outbox
from maxq.replication.raft.outputs import BarrierWanted, Output, ReadReady, Role, RoleChange
from maxq.replication.raft.quorum_ack_checker import QuorumAckChecker
from maxq.runtime.interfaces import Rng


class _Leading:
    """State that a member has only while it leads a term."""

    def __init__(self, node: "RaftNode", state: MemberState, now: int) -> None:
        self.acks = QuorumAckChecker(state.config, state.ledger, state.ledger.end_index + 1)
        self.beats = HeartBeats(state, self._on_in_term, self._committed, now)
        self.dispatchers = {
            peer: EntryDispatcher(peer, state, contact, self.acks, node.count_acks)
            for peer, contact in self.beats.contacts.items()
        }
        self._state = state

    def _on_in_term(self, peer: str, now: int) -> None:
        self.dispatchers[peer].start(now)

    def _committed(self) -> int:
        """Return the commit point for reads: -1 until an entry of this term is committed."""
        committed = self._state.committed_index
        return committed if committed >= self.acks.first_index else -1


class RaftNode:
    """The Raft core of one member, without any I/O."""

    def __init__(self, config: RaftConfig, ledger: Ledger, hard_state: HardState, rng: Rng, now: int) -> None:
        """
        Args:
            ledger: its log, loaded.
            hard_state: term and vote as they were stored last.
            rng: for back-offs.
            now: monotonic milliseconds, as everywhere here.
        """
        self._config = config
        self._ledger = ledger
        self._now = now
        self._outbox = Outbox()
        self._state = MemberState(config, ledger, hard_state, self._outbox, now)
        self._state.on_change = self._role_changed
        self._elector = LeaderElector(self._state, rng, now)
        self._handler = EntryHandler(self._state)
        self._transfer = LeadershipTransfer(self._state, self._elector, now)
        self._leading: _Leading | None = None

    # --- facts ---

    @property
    def role(self) -> Role:
        """The role of this member in its current term."""
        return self._state.role

    @property
    def term(self) -> int:
        """The member's term, which may not be durable yet."""
        return self._state.term

    @property
    def leader_id(self) -> str | None:
        """Return the member that it considers the leader of its term."""
        return self._state.leader_id

    @property
    def leader_is_java(self) -> bool:
        """Return whether the present leader has sent a heart-beat and is a Java member."""
        return self._state.leader_is_java

    @property
    def committed_index(self) -> int:
        """The index up to which everything is committed, as far as this member knows."""
        return self._state.committed_index

    @property
    def retain_index(self) -> int:
        """Return the index behind which all entries are still needed by a living follower, or not committed (S17)."""
        if self._leading is None:
            return self._state.committed_index
        live = [self._leading.acks.mark(peer) for peer in self._config.others if self._is_live(peer)]
        return min([self._state.committed_index, *live])

    def mark(self, peer: str) -> int:
        """Return the highest entry that a leader knows `peer` to have; -1 if this member does not lead."""
        return -1 if self._leading is None else self._leading.acks.mark(peer)

    def status(self) -> dict[str, str]:
        """Return the state for operators (the extra key of METADATA)."""
        state, ledger = self._state, self._ledger
        status = {
            "role": state.role.value, "term": str(state.term), "leaderId": state.leader_id or "",
            "votedFor": state.voted_for or "", "ledgerBeginIndex": str(ledger.begin_index),
            "ledgerEndIndex": str(ledger.end_index), "ledgerEndTerm": str(ledger.end_term),
            "durableIndex": str(ledger.durable_index), "committedIndex": str(state.committed_index),
        }  # fmt: skip
        if state.frozen:
            status["frozen"] = "true"
        if not state.has_room:
            status["lacksRoom"] = "true"
        if state.is_amnesiac:
            status["amnesiacUntil"] = str(ledger.amnesiac_until)
        if self._leading is not None:
            for peer in self._config.others:
                status[f"mark.{peer}"] = str(self._leading.acks.mark(peer))
                status[f"live.{peer}"] = str(self._is_live(peer)).lower()
        return status

    def promise_refusal(self, now: int) -> DLedgerResponseCode | None:
        """Return why this member may not act as the leader at the moment; None if it may. The lease decides: while it
        lasts, no other member can have been elected, unless a hand-over is under way."""
        leading = self._leading
        if leading is None or not leading.beats.has_lease(now):
            return DLedgerResponseCode.NOT_LEADER
        return DLedgerResponseCode.LEADER_TRANSFERRING if self._transfer.transferee is not None else None

    def append_refusal(self, now: int) -> DLedgerResponseCode | None:
        """Return why a client's append cannot be accepted now; None if it can."""
        state, refusal = self._state, self.promise_refusal(now)
        if refusal is not None:
            return refusal
        if self._ledger.end_index - state.committed_index >= self._config.max_pending_requests_num:
            return DLedgerResponseCode.LEADER_PENDING_FULL
        return None

    # --- inputs ---

    def request(self, token: object, message: Request, now: int) -> None:
        """Handle a peer's request, or an operator's LEADERSHIP_TRANSFER; Answer(token, …) follows exactly once."""
        self._now = now
        if isinstance(message, PushRequest):
            self._push(token, message, now)
        elif isinstance(message, HeartBeatRequest):
            self._heart_beat(token, message, now)
        elif isinstance(message, VoteRequest):
            self._elector.vote(token, message, now)
        elif isinstance(message, TransferRequest):
            self._transfer.request(token, message, now)
        else:
            assert isinstance(message, PullRequest), f"the core does not answer {type(message).__name__}"
            self._outbox.answer(token, PullReply(group=self._config.group, code=DLedgerResponseCode.UNSUPPORTED))

    def reply(self, request_id: int, reply: Reply | None, now: int) -> None:
        """Handle the answer to a SendRequest; None means that there will be none."""
        self._now = now
        self._outbox.replied(request_id, reply, now)

    def tick(self, now: int) -> None:
        """Do what is due at `now`: elections, heartbeats, retries, transfers. Times are monotonic ms."""
        self._now = now
        self._elector.tick(now)
        self._handler.tick(now)
        self._transfer.tick(now)
        if self._leading is not None:
            self._leading.beats.tick(now)
        if self._leading is not None:
            for dispatcher in self._leading.dispatchers.values():
                dispatcher.pump(now)

    def next_tick(self) -> int:
        """Return when `tick` must be called at the latest."""
        due = min(self._elector.next_tick, self._handler.next_tick, self._transfer.next_tick)
        if self._leading is not None:
            due = min(due, self._leading.beats.next_tick)
            for dispatcher in self._leading.dispatchers.values():
                due = min(due, dispatcher.next_tick(self._now))
        return due

    def appended(self, first: int, last: int, now: int) -> None:
        """Push entries first..last, which the leader's store has appended, while they are being flushed."""
        self._now = now
        if self._leading is not None:
            for dispatcher in self._leading.dispatchers.values():
                dispatcher.pump(now)
            self.count_acks(now)

    def durable(self, index: int, now: int) -> None:
        """Note that this member's log survives a loss of power up to `index`."""
        self._now = now
        assert index <= self._ledger.durable_index, f"durable up to {index}, the log says {self._ledger.durable_index}"
        if self._leading is not None:
            self.count_acks(now)
        elif self._state.role is Role.FOLLOWER:
            self._handler.advance()

    def term_stored(self, state: HardState, now: int) -> None:
        """Continue the work that waited for a StoreTerm, which is durable now."""
        self._now = now
        if self._outbox.stored(state):
            self._elector.term_stored(state, now)

    def link_lost(self, peer: str, now: int) -> None:
        """Handle that this member's connection to `peer` broke. A follower may have been restarted. A leader may still
        lead and relies on this member's answers, so this member keeps following it."""
        self._now = now
        if self._leading is not None and peer in self._leading.beats.contacts:
            self._leading.beats.lost(peer, now)

    def peer_lost(self, peer: str, now: int) -> None:
        """Handle that the connections with `peer` broke in both directions. If it leads, its process has probably
        ended; if not, its own connection broke too, and it no longer relies on this member's word."""
        self.link_lost(peer, now)
        if self._state.role is Role.FOLLOWER and self._state.leader_id == peer:
            self._elector.leader_lost(now)

    def room(self, has_room: bool) -> None:
        """Note whether the disk accepts own appends. A leader whose disk does not hands over, and a member without room
        is not made leader by another one's transfer."""
        self._state.has_room = has_room

    def read_index(self, token: object, now: int) -> None:
        """Begin a linearizable read; the output ReadReady(token, …) follows once."""
        self._now = now
        if self._leading is None or not self._leading.beats.has_lease(now):
            self._outbox.put(ReadReady(token, DLedgerResponseCode.NOT_LEADER, -1))
        else:
            self._leading.beats.read(token, now)

    def take(self) -> list[Output]:
        """Return all outputs since the last call, in the order in which they are to be carried out."""
        return self._outbox.take()

    # --- inside ---

    def count_acks(self, now: int) -> None:
        """Commit the entries that a quorum has, because water marks have risen."""
        leading = self._leading
        if leading is not None and self._state.commit(leading.acks.commit_point()):
            leading.beats.release_reads(now)
            self._transfer.order_if_committed(now)

    def _is_live(self, peer: str) -> bool:
        return self._leading is not None and self._leading.beats.is_live(peer, self._now)

    def _role_changed(self, now: int) -> None:
        state = self._state
        if self._leading is not None:
            self._leading.beats.end()
            self._leading = None
        self._handler.leader_changed()
        self._elector.role_changed(now)
        self._outbox.put(RoleChange(state.role, state.term, state.leader_id))
        if state.role is Role.LEADER:
            self._leading = leading = _Leading(self, state, now)
            self._transfer.leads(leading.beats, leading.acks, now)
            self._outbox.put(BarrierWanted(state.term))
            leading.beats.tick(now)
        self._transfer.role_changed()

    def _sender_refusal(self, message: DLedgerMessage, now: int) -> DLedgerResponseCode | None:
        """Check the sender of a leader's message: adopt its term and follow it, or return why not."""
        state, leader = self._state, message.leader_id
        refusal = state.check(message)
        if refusal is not None:
            return refusal
        if leader is None or leader not in self._config.peers:
            return DLedgerResponseCode.UNKNOWN_MEMBER
        if leader == self._config.self_id:
            return DLedgerResponseCode.UNEXPECTED_MEMBER
        if message.term < state.term:
            return DLedgerResponseCode.EXPIRED_TERM
        if message.term == state.term and state.leader_id not in (None, leader):
            return DLedgerResponseCode.INCONSISTENT_LEADER
        if message.term > state.term or state.leader_id is None:
            state.follow(leader, message.term, now)
        return None

    def _heart_beat(self, token: object, request: HeartBeatRequest, now: int) -> None:
        maxq = self._config.maxq or None
        refusal = self._sender_refusal(request, now)
        if refusal is None:
            self._state.leader_heard_ms = now
            self._state.leader_is_maxq = request.maxq is not None
            self._state.leader_is_java = request.maxq is None
            self._outbox.answer(token, HeartBeatReply(maxq=maxq))
        else:
            term = self._state.term if refusal == DLedgerResponseCode.EXPIRED_TERM else -1
            self._outbox.answer(token, HeartBeatReply(group=self._config.group, term=term, code=refusal, maxq=maxq))

    def _push(self, token: object, request: PushRequest, now: int) -> None:
        refusal = self._sender_refusal(request, now)
        if refusal is None:
            self._handler.push(token, request, now)
            self._transfer.log_grew(now)
            return
        ledger = self._ledger
        term = self._state.term if refusal == DLedgerResponseCode.EXPIRED_TERM else request.term
        self._outbox.answer(
            token,
            PushReply(
                group=self._config.group, term=term, code=refusal, index=request.first_index if request.count else None,
                count=request.count, begin_index=ledger.begin_index, end_index=ledger.end_index,
            ),
        )  # fmt: skip
