"""State of this member: its role, its term, whom it voted for, whom it follows.

All parts of the core change role and term through here, so that the rules are in one place: a term never falls; a new
term or vote is stored before any further message is sent (S3); a member votes once in a term; and it leads only a term
that it entered itself in this run (S4).

Source:
    openmessaging/dledger MemberState.java.
"""

from collections.abc import Callable
from errno import EDQUOT, ENOSPC

from maxq.protocol.dledger.dledger_messages import DLedgerMessage, DLedgerResponseCode, VoteRequest
from maxq.protocol.dledger.ledger import HardState, Ledger
from maxq.replication.raft.config import RaftConfig
from maxq.replication.raft.outbox import Outbox
from maxq.replication.raft.outputs import Alarm, Commit, Role


class MemberState:
    """Role, term, vote and commit point of one member.

    Attributes:
        role, term, voted_for, leader_id: as in Java. `leader_id` is None for a candidate.
        committed_index: the highest index that is known to be committed; it never falls.
        leader_heard_ms: when the last heart-beat of the leader arrived.
        leader_is_maxq: whether the last heart-beat came from a MaxQ member.
        leader_is_java: whether the present leader has sent a heart-beat, and the last one came from a Java member.
        frozen: a leader wanted to remove a committed entry (S8): this member neither votes nor stands for election
            until it is restarted.
        elects_from_ms: before this time it elects nobody, except when a leader hands over: just before its end, the
            previous process may have answered a leader that relies on the answer. The wait ends when that leader is
            heard, or one that was elected after that leader could no longer rely on the answer.
        has_room: whether its disk has room for own appends. A member without room leads only if no other member can.
        on_change: called with the current time after role, term or leader have changed.
    """

    def __init__(self, config: RaftConfig, ledger: Ledger, hard_state: HardState, outbox: Outbox, now: int) -> None:
        self.config = config
        self.ledger = ledger
        self.outbox = outbox
        self.role = Role.CANDIDATE
        self.term = max(hard_state.term, ledger.end_term)
        self.voted_for = hard_state.voted_for if hard_state.term == self.term else None
        self.leader_id: str | None = None
        self.leader_heard_ms = now
        self.leader_is_maxq = False
        self.leader_is_java = False
        has_answered_none = self.term == 0 or config.quorum == 1
        self.elects_from_ms = now if has_answered_none else now + config.election_timeout_ms
        self.frozen = False
        self.has_room = True
        self.committed_index = ledger.committed_index
        self.on_change: Callable[[int], None] = lambda now: None
        self._standing: tuple[Role, int, str | None] = (self.role, self.term, self.leader_id)
        self._entered_term = -1  # the term that this run of the member stands for or leads

    @property
    def is_amnesiac(self) -> bool:
        """Whether this member has lost entries that it had acknowledged (S10)."""
        return self.ledger.amnesiac_until >= 0

    @property
    def is_new(self) -> bool:
        """Return whether this member has no entry and has never given a vote. Then either the group is new, or this
        member's disk was replaced; the member cannot distinguish the two. It takes part in an election only if the log
        of every member is empty."""
        return self.ledger.amnesiac_until == 0 and self.ledger.end_index < 0

    @property
    def may_elect(self) -> bool:
        """Whether it may vote and stand for election."""
        return not self.frozen and (not self.is_amnesiac or self.is_new)

    def may_vote_for(self, request: VoteRequest) -> bool:
        """Return whether this member may vote for the candidate. A member without entries votes only if every member of
        the group is known to have an empty log: one that is away may have acknowledged entries."""
        if not self.is_new:
            return self.may_elect
        return self.may_elect and request.ledger_end_index < 0 and (request.is_pre_vote or request.is_founding)

    def begin_electing(self) -> bool:
        """Note durably, before a vote of its own or for another, that a new member is one of the group's founders.
        Returns False if the disk has no room for the note."""
        if self.is_new:
            try:
                self.ledger.remembered()
            except OSError as error:
                if error.errno not in (ENOSPC, EDQUOT):
                    raise
                return False
        return True

    @property
    def leader_timeout_ms(self) -> int:
        """Time in ms without a heartbeat after which the leader is given up."""
        interval = self.config.heart_beat_time_interval_ms
        if not self.leader_is_maxq:
            interval = max(interval, self.config.java_heart_beat_time_interval_ms)
        return interval * self.config.max_heart_beat_leak

    def is_leader_of(self, term: int) -> bool:
        """Return whether it leads `term` at the moment."""
        return self.role is Role.LEADER and self.term == term

    def check(self, message: DLedgerMessage) -> DLedgerResponseCode | None:
        """Returns the refusal of a request that is not for this member, or None."""
        if message.group != self.config.group:
            return DLedgerResponseCode.UNKNOWN_GROUP
        if message.remote_id != self.config.self_id:
            return DLedgerResponseCode.UNKNOWN_MEMBER
        return None

    def enter_next_term(self, now: int) -> None:
        """Stand for election: the next term, with the own vote."""
        self.term += 1
        self._entered_term = self.term
        self.voted_for = self.config.self_id
        self.outbox.store(HardState(self.term, self.voted_for))
        self._change(Role.CANDIDATE, None, now)

    def vote_for(self, candidate: str, term: int, now: int) -> None:
        """Give the vote of `term`, which is this member's or a later one."""
        assert term > self.term or self.voted_for in (None, candidate), (
            f"{self.config.self_id} voted for {self.voted_for} in term {term}, and now for {candidate}"
        )
        is_new_term = term > self.term
        if is_new_term or self.voted_for is None:
            self.term = term
            self.voted_for = candidate
            self.outbox.store(HardState(term, candidate))
        if is_new_term:
            self._change(Role.CANDIDATE, None, now)

    def step_down(self, term: int, now: int) -> None:
        """Become a candidate in `term`, its own or a later one, without a leader."""
        self._adopt(term)
        self._change(Role.CANDIDATE, None, now)

    def follow(self, leader_id: str, term: int, now: int) -> None:
        """Become a follower of `leader_id` in `term`, its own or a later one."""
        self._adopt(term)
        self.leader_heard_ms = now
        self.elects_from_ms = min(self.elects_from_ms, now)
        self._change(Role.FOLLOWER, leader_id, now)

    def lead(self, now: int) -> None:
        """Become the leader of the term in which this member stood."""
        assert self._entered_term == self.term and self.voted_for == self.config.self_id, (
            f"{self.config.self_id} would lead term {self.term}, which it did not enter"
        )
        self._change(Role.LEADER, self.config.self_id, now)

    def commit(self, index: int) -> bool:
        """Note that everything up to `index` is committed. Returns whether that is new."""
        if index <= self.committed_index:
            return False
        assert index <= self.ledger.end_index, f"commit of {index}, the log ends at {self.ledger.end_index}"
        self.committed_index = index
        self.outbox.put(Commit(index))
        return True

    def alarm(self, text: str) -> None:
        """Report a fault to the operator, as an output of the machine."""
        self.outbox.put(Alarm(text))

    def _adopt(self, term: int) -> None:
        assert term >= self.term, f"{self.config.self_id} in term {self.term} goes back to {term}"
        if term > self.term:
            self.term = term
            self.voted_for = None
            self.outbox.store(HardState(term, None))

    def _change(self, role: Role, leader_id: str | None, now: int) -> None:
        self.role = role
        self.leader_id = leader_id
        standing = (role, self.term, leader_id)
        if standing != self._standing:
            self._standing = standing
            self.leader_is_java = False
            self.on_change(now)
