"""Voting, and standing for election.

A candidate first asks whether it would win (the probe round, DLedger's WAIT_TO_REVOTE and Raft's pre-vote): a VOTE of
its present term, marked for members of ours, which change nothing for it; a Java member answers it by its own table.
Only if a quorum would follow it does it enter the next term, vote for itself, make that durable and ask for votes that
count. So a member that is cut off never raises its term (S12), and no member leads a term twice (S4): a probe elects
nobody, whatever the answers are.

A vote of a later term is taken and given at once, with the term, in one durable step; Java members need a second
question (REJECT_TERM_NOT_READY), which is asked again in the same term. Leaders that are alive are protected by the
probe, not by refusing votes: a Java leader's transfer needs those.

A group is founded when all its members have answered a probe and no log has an entry. A member without anything, which
may have lost its disk, stands and votes only then; so two members that lost theirs cannot vote away what the third one
has while it is down. Java members found a group with a majority.

Source:
    openmessaging/dledger DLedgerLeaderElector.java, handleVote, maintainAsCandidate; sections 5.2, 5.4.1
    of the Raft paper, 9.6 of Ongaro's thesis.
"""

from typing import Final

from maxq.protocol.dledger.dledger_messages import DLedgerResponseCode, Reply, VoteReply, VoteRequest, VoteResult
from maxq.protocol.dledger.ledger import HardState
from maxq.replication.raft.heart_beats import TERM_NOT_READY_MS
from maxq.replication.raft.member_state import MemberState
from maxq.replication.raft.outputs import Role
from maxq.runtime.interfaces import Rng

_NEVER: Final = 1 << 62
#: Answers to a probe of peers that would follow in the next term: their logs are no longer than the candidate's and
#: they have no leader. (Also of Java's members, which compare the logs first.)
_WOULD_FOLLOW: Final = frozenset((VoteResult.ACCEPT, VoteResult.REJECT_TERM_NOT_READY, VoteResult.REJECT_ALREADY_VOTED))
#: Milliseconds after which a group that has not been founded logs for which members it waits.
_FOUNDING_ALARM_MS: Final = 10_000
_LOG_IS_BEHIND: Final = frozenset((VoteResult.REJECT_EXPIRED_LEDGER_TERM, VoteResult.REJECT_SMALL_LEDGER_END_INDEX))


class _Round:
    """One round of questions to all other members."""

    __slots__ = ("deadline", "is_founding", "is_probe", "is_transfer", "results", "term")

    def __init__(self, term: int, is_probe: bool, is_transfer: bool, is_founding: bool, deadline: int) -> None:
        self.term = term
        self.is_probe = is_probe
        self.is_transfer = is_transfer
        self.is_founding = is_founding
        self.deadline = deadline
        self.results: dict[str, VoteResult | None] = {}  # None: no answer


class LeaderElector:
    """Elects leaders, from one member's point of view."""

    def __init__(self, state: MemberState, rng: Rng, now: int) -> None:
        self._state = state
        self._config = state.config
        self._ledger = state.ledger
        self._rng = rng
        self._round: _Round | None = None
        self._ask_again: dict[str, int] = {}  # Java members whose term was not ready → when to ask them again
        self._next_vote_ms = now + self._soon()
        # how long answers with votes are waited for; disks may be slow
        self._patience_ms = self._config.max_vote_interval_ms
        self._founding_alarm_ms = now + _FOUNDING_ALARM_MS

    @property
    def next_tick(self) -> int:
        """Return the time at which `tick` must be called."""
        if self._state.role is Role.LEADER:
            return _NEVER
        if self._state.role is Role.FOLLOWER:
            return self._state.leader_heard_ms + self._state.leader_timeout_ms + 1
        if not self._state.may_elect or self._state.outbox.storing:
            return _NEVER
        if self._round is None:
            return max(self._next_vote_ms, self._state.elects_from_ms)
        return min(self._round.deadline, min(self._ask_again.values(), default=_NEVER))

    def tick(self, now: int) -> None:
        """Give up a silent leader; begin or end a round."""
        state = self._state
        if state.role is Role.FOLLOWER:
            if now > state.leader_heard_ms + state.leader_timeout_ms:
                self.leader_lost(now)
            return
        if state.role is Role.LEADER or not state.may_elect or state.outbox.storing:
            return
        if self._round is not None:
            for peer in [peer for peer, due in self._ask_again.items() if due <= now]:
                del self._ask_again[peer]
                self._ask(peer, self._round)
            if now >= self._round.deadline:
                self._conclude(self._round, now)
        elif now >= max(self._next_vote_ms, state.elects_from_ms):
            self._begin(is_probe=True, now=now)

    def leader_lost(self, now: int) -> None:
        """Prepare to stand, because the leader is silent or its connection broke: soon, but not all members at once."""
        self._state.step_down(self._state.term, now)
        self._next_vote_ms = now + self._soon()

    def stand_at_once(self, now: int) -> None:
        """Stand without a probe, because the leader hands over (leadership transfer)."""
        self._enter_term(now, is_transfer=True)

    def role_changed(self, now: int) -> None:
        """End an earlier round, because role, term or leader changed."""
        self._round = None
        self._ask_again.clear()
        self._next_vote_ms = max(self._next_vote_ms, now + self._back_off())
        if self._state.leader_id is not None:
            self._patience_ms = self._config.max_vote_interval_ms

    def term_stored(self, state: HardState, now: int) -> None:
        """Continue when a vote is durable. After its own vote this member asks the others; in a group of one that is
        the election. After a vote for another it gives that member time to win."""
        round_ = self._round
        if round_ is None or round_.is_probe:
            self._next_vote_ms = max(self._next_vote_ms, now + self._back_off())
        elif state.term == round_.term == self._state.term:
            round_.deadline = now + self._patience_ms + self._rng.below(self._config.max_vote_interval_ms)
            self._count(round_, now)

    # --- voting ---

    def vote(self, token: object, request: VoteRequest, now: int) -> None:
        """Decide on a candidate's request for a vote, and answer it."""
        result = self._judge(request, now)
        code, term = DLedgerResponseCode.SUCCESS, self._state.term
        refusal = self._state.check(request)
        if refusal is not None:
            code, term = refusal, request.term
        elif result is VoteResult.REJECT_TERM_SMALL_THAN_LEDGER:
            term = self._ledger.end_term
        self._state.outbox.answer(
            token,
            VoteReply(
                group=request.group, leader_id=request.leader_id, local_id=request.local_id,
                remote_id=request.remote_id, term=term, code=code, vote_result=result,
            ),
        )  # fmt: skip

    def _judge(self, request: VoteRequest, now: int) -> VoteResult:
        """Decide on a vote, in the order of checks of DLedgerLeaderElector.handleVote."""
        state, ledger, candidate = self._state, self._ledger, request.leader_id
        if state.check(request) is not None or not state.may_vote_for(request):
            return VoteResult.UNKNOWN
        if candidate is None or candidate not in self._config.peers:
            return VoteResult.REJECT_UNKNOWN_LEADER
        if candidate == self._config.self_id:
            return VoteResult.REJECT_UNEXPECTED_LEADER
        if request.ledger_end_term < ledger.end_term:
            return VoteResult.REJECT_EXPIRED_LEDGER_TERM
        if request.ledger_end_term == ledger.end_term and request.ledger_end_index < ledger.end_index:
            return VoteResult.REJECT_SMALL_LEDGER_END_INDEX
        if request.term < state.term:
            return VoteResult.REJECT_EXPIRED_VOTE_TERM
        # a leader that is a candidate itself no longer leads
        if request.is_pre_vote and state.leader_id not in (None, candidate):
            return VoteResult.REJECT_ALREADY_HAS_LEADER
        if request.is_pre_vote:
            return VoteResult.ACCEPT if now >= state.elects_from_ms else VoteResult.UNKNOWN
        if not request.is_transfer and state.role is Role.FOLLOWER and state.leader_id != candidate:
            # The leader may still rely on what this member has answered. In a later term the member abstains: Java's
            # candidate does not mark that a leader hands over to it, and ends a round at the first answer "has a
            # leader", although that leader votes for it.
            return VoteResult.UNKNOWN if request.term > state.term else VoteResult.REJECT_ALREADY_HAS_LEADER
        if not request.is_transfer and now < state.elects_from_ms:
            return VoteResult.UNKNOWN
        if not state.begin_electing():
            return VoteResult.UNKNOWN
        if request.term == state.term:
            return self._judge_same_term(candidate, now)
        state.vote_for(candidate, request.term, now)
        return VoteResult.ACCEPT

    def _judge_same_term(self, candidate: str, now: int) -> VoteResult:
        state = self._state
        if state.leader_id is not None and state.leader_id != candidate:
            return VoteResult.REJECT_ALREADY_HAS_LEADER
        if state.voted_for not in (None, candidate):
            return VoteResult.REJECT_ALREADY_VOTED
        if self._ledger.end_term == state.term:  # this term had its leader: it must not be led again (S4)
            return VoteResult.REJECT_ALREADY_VOTED
        state.vote_for(candidate, state.term, now)
        return VoteResult.ACCEPT

    # --- standing ---

    def _begin(self, *, is_probe: bool, now: int, is_transfer: bool = False, is_founding: bool = False) -> None:
        timeout = self._config.max_vote_interval_ms + self._rng.below(self._config.max_vote_interval_ms)
        self._round = _Round(self._state.term, is_probe, is_transfer, is_founding, now + timeout)
        self._ask_again.clear()
        for peer in self._config.others:
            self._ask(peer, self._round)
        if is_probe:
            self._count(self._round, now)

    def _enter_term(self, now: int, *, is_transfer: bool = False, is_founding: bool = False) -> None:
        if not self._state.begin_electing():
            self._next_vote_ms = now + self._back_off()
            return
        self._state.enter_next_term(now)
        self._begin(is_probe=False, now=now, is_transfer=is_transfer, is_founding=is_founding)

    def _ask(self, peer: str, round_: _Round) -> None:
        request = VoteRequest(
            group=self._config.group, remote_id=peer, local_id=self._config.self_id, leader_id=self._config.self_id,
            term=round_.term, ledger_end_index=self._ledger.end_index, ledger_end_term=self._ledger.end_term,
            is_pre_vote=round_.is_probe, is_transfer=round_.is_transfer, is_founding=round_.is_founding,
        )  # fmt: skip
        self._state.outbox.send(peer, request, lambda request_id, reply, now: self._replied(peer, round_, reply, now))

    def _replied(self, peer: str, round_: _Round, reply: Reply | None, now: int) -> None:
        state = self._state
        if not isinstance(reply, VoteReply) or reply.code != DLedgerResponseCode.SUCCESS:
            if round_ is self._round:
                round_.results[peer] = None
                self._count(round_, now)
            return
        if state.role is Role.FOLLOWER:
            return  # an answer to an older question, after which this member may have answered the leader
        if reply.term > state.term:
            state.step_down(reply.term, now)
        elif round_ is self._round:
            round_.results[peer] = reply.vote_result
            if reply.vote_result is VoteResult.REJECT_TERM_NOT_READY and not round_.is_probe:
                self._ask_again[peer] = now + TERM_NOT_READY_MS
            self._count(round_, now)

    def _count(self, round_: _Round, now: int) -> None:
        results = round_.results.values()
        quorum = self._config.quorum
        if round_.is_probe:
            if self._is_probe_won(round_, now):
                is_founding = self._ledger.end_index < 0 and self._followers(round_) == len(self._config.others)
                self._enter_term(now, is_founding=is_founding)
                return
        elif self._state.outbox.storing:
            return  # the own vote does not count yet
        elif 1 + sum(result is VoteResult.ACCEPT for result in results) >= quorum:
            self._state.lead(now)
            return
        if len(results) == len(self._config.others) and not self._ask_again:
            self._conclude(round_, now)

    def _followers(self, round_: _Round) -> int:
        """Return how many others would follow this member."""
        return sum(result in _WOULD_FOLLOW for result in round_.results.values())

    def _is_probe_won(self, round_: _Round, now: int) -> bool:
        """Return whether enough members would follow. With an empty log all members must answer, so that the group can
        be founded: an empty member would otherwise refuse its vote."""
        followers, others = self._followers(round_), len(self._config.others)
        if self._ledger.end_index >= 0:
            return 1 + followers >= self._config.quorum
        if followers == others:
            return True
        is_over = len(round_.results) == others or now >= round_.deadline
        return is_over and not self._state.is_new and 1 + followers >= self._config.quorum

    def _conclude(self, round_: _Round, now: int) -> None:
        """End a round that elected no leader: wait, and let a member with a longer log stand first."""
        if round_.is_probe and self._is_probe_won(round_, now):
            self._enter_term(now)
            return
        results = round_.results.values()
        if self._state.is_new and now >= self._founding_alarm_ms:
            self._tell_who_is_missing(round_, now)
        if not round_.is_probe and now >= round_.deadline:
            self._patience_ms = min(2 * self._patience_ms, self._config.rpc_timeout_ms)
        self._round = None
        self._ask_again.clear()
        self._next_vote_ms = now + self._back_off()
        if any(result in _LOG_IS_BEHIND for result in results):
            self._next_vote_ms += self._config.max_vote_interval_ms
        if VoteResult.REJECT_ALREADY_HAS_LEADER in results:
            self._next_vote_ms += self._config.heart_beat_time_interval_ms

    def _tell_who_is_missing(self, round_: _Round, now: int) -> None:
        """Log why there is no leader: name the members whose log is unknown."""
        missing = [peer for peer in self._config.others if round_.results.get(peer) is None]
        if not missing or any(result in _LOG_IS_BEHIND for result in round_.results.values()):
            return  # a member with entries will lead, and this one is given them
        self._founding_alarm_ms = now + 6 * _FOUNDING_ALARM_MS
        self._state.alarm(
            f"this member's log is empty, and {', '.join(missing)} did not answer: without them it cannot know whether "
            "the group is new. Start them; of a member that is gone for good see `maxq dledger bless`"
        )

    def _back_off(self) -> int:
        low, high = self._config.min_vote_interval_ms, self._config.max_vote_interval_ms
        return low + self._rng.below(high - low + 1) + self._want_of_room()

    def _soon(self) -> int:
        low, high = self._config.min_take_leadership_vote_interval_ms, self._config.max_take_leadership_vote_interval_ms
        return low + self._rng.below(high - low + 1) + self._want_of_room()

    def _want_of_room(self) -> int:
        """Returns the extra wait of a member without room on its disk, which lets the others stand first."""
        return 0 if self._state.has_room else self._config.max_vote_interval_ms
