"""Votes: who gets this member's, and how it asks for those of others (DLedgerLeaderElector)."""

from collections.abc import Callable

from maxq.protocol.dledger.dledger_messages import Reply, VoteReply, VoteRequest, VoteResult
from maxq.testing.sim_rng import SimRng
from tests.simulation.raft.java.state import JavaState, VoteRound

_BEHIND = (VoteResult.REJECT_EXPIRED_LEDGER_TERM, VoteResult.REJECT_SMALL_LEDGER_END_INDEX)
_NAMES_A_TERM = (VoteResult.REJECT_EXPIRED_VOTE_TERM, VoteResult.REJECT_TERM_SMALL_THAN_LEDGER)


class JavaElection:
    """`lead` is called when the votes suffice."""

    def __init__(self, state: JavaState, rng: SimRng, lead: Callable[[int], None]) -> None:
        self._state = state
        self._rng = rng
        self._lead = lead
        self._next_vote_ms = -1

    # --- others ask ---

    def vote(self, request: VoteRequest) -> VoteReply:
        result, term = self._judge(request)
        return VoteReply(leader_id=request.leader_id, term=term, vote_result=result)

    def _judge(self, request: VoteRequest) -> tuple[VoteResult, int]:
        state, candidate, ledger = self._state, request.leader_id, self._state.ledger
        if request.ledger_end_term < ledger.end_term:
            return VoteResult.REJECT_EXPIRED_LEDGER_TERM, state.term
        if request.ledger_end_term == ledger.end_term and request.ledger_end_index < ledger.end_index:
            return VoteResult.REJECT_SMALL_LEDGER_END_INDEX, state.term
        if request.term < state.term:
            return VoteResult.REJECT_EXPIRED_VOTE_TERM, state.term
        if request.term == state.term:
            if state.voted_for not in (None, candidate):
                has_leader = state.leader_id is not None
                result = VoteResult.REJECT_ALREADY_HAS_LEADER if has_leader else VoteResult.REJECT_ALREADY_VOTED
                return result, state.term
        else:
            state.to_candidate(request.term)
            state.raise_at_once = True
            return VoteResult.REJECT_TERM_NOT_READY, state.term
        if request.term < ledger.end_term:
            return VoteResult.REJECT_TERM_SMALL_THAN_LEDGER, ledger.end_term
        if candidate != state.voted_for:
            state.persist(state.term, candidate)
        return VoteResult.ACCEPT, state.term

    # --- a candidate asks ---

    def tick(self, now: int) -> None:
        """Of a candidate."""
        state = self._state
        if state.round is not None:
            if now >= state.round.deadline:
                self._conclude(state.round, now)
            return
        if now < self._next_vote_ms and not state.raise_at_once:
            return
        if state.vote_next_term or state.raise_at_once:
            state.persist(max(state.known_max_term, state.term + 1), None)
            state.say()
            state.vote_next_term = False
            if state.raise_at_once:
                state.raise_at_once = False
                self._next_vote_ms = self._back_off(now)
                return
        self._ask_votes(now)

    def _back_off(self, now: int) -> int:
        low, high = self._state.config.min_vote_interval_ms, self._state.config.max_vote_interval_ms
        return now + low + self._rng.below(high - low)

    def _ask_votes(self, now: int) -> None:
        state, config = self._state, self._state.config
        round_ = state.round = VoteRound(state.term, {}, now + 2 * config.max_vote_interval_ms)
        for peer in config.others:
            request = VoteRequest(
                group="g", remote_id=peer, local_id=state.id, leader_id=state.id, term=state.term,
                ledger_end_index=state.ledger.end_index, ledger_end_term=state.ledger.end_term,
            )  # fmt: skip
            state.ask(peer, request, lambda reply, then, peer=peer: self._voted(round_, peer, reply, then))
        own = VoteRequest(
            leader_id=state.id, term=state.term, ledger_end_index=state.ledger.end_index,
            ledger_end_term=state.ledger.end_term,
        )  # fmt: skip
        round_.answers[state.id] = self.vote(own)

    def _voted(self, round_: VoteRound, peer: str, reply: Reply | None, now: int) -> None:
        if round_ is not self._state.round:
            return
        answers, config = round_.answers, self._state.config
        answers[peer] = reply if isinstance(reply, VoteReply) and reply.vote_result is not VoteResult.UNKNOWN else None
        results = [answer.vote_result for answer in answers.values() if answer]
        accepted, not_ready = results.count(VoteResult.ACCEPT), results.count(VoteResult.REJECT_TERM_NOT_READY)
        if (
            VoteResult.REJECT_ALREADY_HAS_LEADER in results
            or accepted + not_ready >= config.quorum
            or len(answers) == len(config.peers)
        ):
            self._conclude(round_, now)

    def _conclude(self, round_: VoteRound, now: int) -> None:
        state, config, quorum = self._state, self._state.config, self._state.config.quorum
        state.round = None
        given = [answer for answer in round_.answers.values() if answer]
        results = [answer.vote_result for answer in given]
        behind = sum(result in _BEHIND for result in results)
        accepted, not_ready = results.count(VoteResult.ACCEPT), results.count(VoteResult.REJECT_TERM_NOT_READY)
        highest = max((answer.term for answer in given if answer.vote_result in _NAMES_A_TERM), default=-1)
        if highest > round_.term:
            self._next_vote_ms = self._back_off(now)
            state.vote_next_term = True
            state.known_max_term = max(state.known_max_term, highest)
        elif VoteResult.REJECT_ALREADY_HAS_LEADER in results:
            self._next_vote_ms = self._back_off(now) + config.election_timeout_ms
        elif len(given) < quorum:
            self._next_vote_ms = self._back_off(now)
        elif len(given) - behind < quorum:
            self._next_vote_ms = self._back_off(now) + config.max_vote_interval_ms
        elif accepted >= quorum:
            if state.term == round_.term:
                self._lead(now)
        elif accepted + not_ready < quorum:
            self._next_vote_ms = self._back_off(now)
            state.vote_next_term = True
