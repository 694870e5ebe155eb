"""Heart-beats: a leader's, which steps down without a majority's answers, and those a follower hears
(DLedgerLeaderElector)."""

from maxq.protocol.dledger.dledger_messages import DLedgerResponseCode as Code
from maxq.protocol.dledger.dledger_messages import HeartBeatReply, HeartBeatRequest, Reply
from maxq.replication.raft.outputs import Role
from tests.simulation.raft.java.state import LOOP_MS, JavaState


class JavaBeats:
    """See the module."""

    def __init__(self, state: JavaState) -> None:
        self._state = state
        self._sent_ms = 0
        self._answered_ms = 0  # when a majority had answered
        self._answers: dict[str, Code] = {}
        self._round = 0

    def heard(self, request: HeartBeatRequest, now: int) -> HeartBeatReply:
        state = self._state
        if request.term < state.term:
            return HeartBeatReply(term=state.term, code=Code.EXPIRED_TERM)
        if request.term > state.term:
            state.to_candidate(request.term)
            state.raise_at_once = True
            return HeartBeatReply(code=Code.TERM_NOT_READY)
        if state.leader_id is None:
            state.to_follower(request.leader_id or "", now)
        elif state.leader_id != request.leader_id:
            return HeartBeatReply(code=Code.INCONSISTENT_LEADER)
        state.heard_ms = now
        return HeartBeatReply()

    def begin(self, now: int) -> None:
        """The member leads."""
        self._sent_ms, self._answered_ms = -1 << 40, now

    def tick(self, now: int) -> None:
        """Of a leader, which is none any more if a majority has been silent for too long."""
        if now - self._sent_ms > self._state.config.heart_beat_time_interval_ms:
            self._send(now)
        if now - self._answered_ms > self._state.config.election_timeout_ms:
            self._state.to_candidate(self._state.term)

    def _send(self, now: int) -> None:
        state = self._state
        self._sent_ms = now
        self._round += 1
        self._answers = {state.id: Code.SUCCESS}
        round_, term = self._round, state.term
        for peer in state.config.others:
            request = HeartBeatRequest(group="g", remote_id=peer, local_id=state.id, leader_id=state.id, term=term)
            state.ask(peer, request, lambda reply, then, peer=peer: self._answered(peer, round_, term, reply, then))

    def _answered(self, peer: str, round_: int, term: int, reply: Reply | None, now: int) -> None:
        state, config = self._state, self._state.config
        if state.role is not Role.LEADER or state.term != term or not isinstance(reply, HeartBeatReply):
            return
        if reply.code is Code.EXPIRED_TERM and reply.term > state.term:
            state.to_candidate(reply.term)
            state.raise_at_once = True
        elif reply.code is Code.INCONSISTENT_LEADER:
            state.to_candidate(state.term)
        elif round_ == self._round:
            self._answers[peer] = reply.code
            codes = list(self._answers.values())
            if codes.count(Code.SUCCESS) >= config.quorum:
                self._answered_ms = now
            elif codes.count(Code.SUCCESS) + codes.count(Code.TERM_NOT_READY) >= config.quorum:
                self._sent_ms = now - config.heart_beat_time_interval_ms + LOOP_MS
