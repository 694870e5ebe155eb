"""A member that follows Java's rules (DLedger 0.3.2), to be in one group with ours: what it says and when, not how.

Its loops run every few milliseconds, as there. It votes by the table of dledger.md §8.1, needs two questions for a new
term, stands in an old term first, takes COMPARE without a look at the term, buffers pushes by index alone, pushes one
entry at a time and again after a while. Kept from it are the faults that would break the rules whatever the others do:
it does not lose what it wrote (S2, S3: its disk syncs at once) and commits only entries of its own term (S1, which
0.4.0 keeps, too). Truncations that come late are a hole in its protocol that nobody can close: no duplication and no
delay in its stories.
"""

from collections.abc import Callable
from typing import Any

from maxq.errors import LedgerMismatchError
from maxq.protocol.dledger_messages import DLedgerResponseCode as Code
from maxq.protocol.dledger_messages import (
    HeartBeatReply,
    HeartBeatRequest,
    PushReply,
    PushRequest,
    PushType,
    Reply,
    Request,
    TransferReply,
    TransferRequest,
    VoteReply,
    VoteRequest,
    VoteResult,
)
from maxq.replication.raft.config import RaftConfig
from maxq.replication.raft.ledger import HardState
from maxq.replication.raft.outputs import Answer, Commit, Output, ReadReady, Role, RoleChange, SendRequest, StoreTerm
from maxq.testing.sim_rng import SimRng
from tests.simulation.raft.sim_ledger import SimLedger, SimRun

LOOP_MS = 5
PUSH_TIMEOUT_MS = 100
SLEEP_MS = 30


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


class JavaMember:
    """The same inputs and outputs as RaftNode."""

    is_java = True

    def __init__(self, config: RaftConfig, ledger: SimLedger, hard_state: HardState, rng: SimRng, now: int) -> None:
        self._config = config
        self._id = config.self_id
        self._ledger = ledger
        self._rng = rng
        self.role = Role.CANDIDATE
        self.term, self._voted_for = hard_state
        self.leader_id: str | None = None
        self.committed_index = ledger.committed_index
        self._outputs: list[Output] = []
        self._asked: dict[int, Callable[[Reply | None, int], None]] = {}
        self._next_id = 1
        self._now = now
        self._known_max_term = -1
        self._raise_at_once = False
        self._vote_next_term = False
        self._next_vote_ms = -1
        self._round: tuple[int, dict[str, VoteReply | None], int] | None = None  # term, answers, deadline
        self._heard_ms = now
        self._beat_sent_ms = -1 << 40
        self._beat_heard_ms = now
        self._beat: dict[str, Code] = {}
        self._beat_round = 0
        self._marks: dict[str, int] = {}
        self._first_index = 0
        self._dispatchers: dict[str, _Dispatcher] = {}
        self._buffer: dict[int, tuple[object, PushRequest, int]] = {}
        self._checked_ms = now
        self._transferee: str | None = None
        self._taking: tuple[object, TransferRequest, int] | None = None

    # --- facts and inputs ---

    @property
    def retain_index(self) -> int:
        return min([self.committed_index, *self._marks.values()]) if self.role is Role.LEADER else self.committed_index

    def append_refusal(self, now: int) -> Code | None:
        if self.role is not Role.LEADER:
            return Code.NOT_LEADER
        return Code.LEADER_TRANSFERRING if self._transferee else None

    def next_tick(self) -> int:
        return self._now + LOOP_MS

    def take(self) -> list[Output]:
        outputs, self._outputs = self._outputs, []
        return outputs

    def request(self, token: object, message: Request, now: int) -> None:
        self._now = now
        if isinstance(message, VoteRequest):
            self._outputs.append(Answer(token, self._vote(message)))
        elif isinstance(message, HeartBeatRequest):
            self._outputs.append(Answer(token, self._heart_beat(message, now)))
        elif isinstance(message, PushRequest):
            self._push(token, message, now)
        else:
            assert isinstance(message, TransferRequest)
            self._transfer(token, message, now)

    def reply(self, request_id: int, reply: Reply | None, now: int) -> None:
        self._now = now
        self._asked.pop(request_id)(reply, now)

    def tick(self, now: int) -> None:
        self._now = now
        if self.role is Role.CANDIDATE:
            self._be_candidate(now)
        elif self.role is Role.LEADER:
            self._be_leader(now)
        elif now - self._heard_ms > self._config.election_timeout_ms:
            self._to_candidate(self.term)
        self._handle(now)
        self._take_leadership(now)

    def appended(self, first: int, last: int, now: int) -> None:
        self._sync()
        self._dispatch(now)
        self._count()

    def durable(self, index: int, now: int) -> None: ...

    def term_stored(self, state: HardState, now: int) -> None: ...

    def peer_lost(self, peer: str, now: int) -> None: ...

    def read_index(self, token: object, now: int) -> None:
        self._outputs.append(ReadReady(token, Code.NOT_LEADER, -1))

    # --- roles (MemberState) ---

    def _say(self) -> None:
        self._outputs.append(RoleChange(self.role, self.term, self.leader_id))

    def _persist(self, term: int, voted_for: str | None) -> None:
        self.term, self._voted_for = term, voted_for
        self._outputs.append(StoreTerm(HardState(term, voted_for)))

    def _to_candidate(self, term: int) -> None:
        if term >= self.term:
            self.role, self.leader_id, self._transferee = Role.CANDIDATE, None, None
            self._known_max_term = max(self._known_max_term, term)
            self._round = None
            self._say()

    def _to_follower(self, leader: str, now: int) -> None:
        self.role, self.leader_id, self._transferee = Role.FOLLOWER, leader, None
        self._vote_next_term = False
        self._heard_ms = now
        self._say()

    def _to_leader(self, now: int) -> None:
        self.role, self.leader_id = Role.LEADER, self._id
        self._beat_sent_ms, self._beat_heard_ms = -1 << 40, now
        self._first_index = self._ledger.end_index + 1
        self._marks = dict.fromkeys(self._config.others, -1)
        self._dispatchers = {peer: _Dispatcher() for peer in self._config.others}
        self._say()

    # --- election (DLedgerLeaderElector) ---

    def _back_off(self, now: int) -> int:
        low, high = self._config.min_vote_interval_ms, self._config.max_vote_interval_ms
        return now + low + self._rng.below(high - low)

    def _judge(self, request: VoteRequest) -> tuple[VoteResult, int]:
        candidate, ledger = request.leader_id, self._ledger
        if request.ledger_end_term < ledger.end_term:
            return VoteResult.REJECT_EXPIRED_LEDGER_TERM, self.term
        if request.ledger_end_term == ledger.end_term and request.ledger_end_index < ledger.end_index:
            return VoteResult.REJECT_SMALL_LEDGER_END_INDEX, self.term
        if request.term < self.term:
            return VoteResult.REJECT_EXPIRED_VOTE_TERM, self.term
        if request.term == self.term:
            if self._voted_for not in (None, candidate):
                has_leader = self.leader_id is not None
                result = VoteResult.REJECT_ALREADY_HAS_LEADER if has_leader else VoteResult.REJECT_ALREADY_VOTED
                return result, self.term
        else:
            self._to_candidate(request.term)
            self._raise_at_once = True
            return VoteResult.REJECT_TERM_NOT_READY, self.term
        if request.term < ledger.end_term:
            return VoteResult.REJECT_TERM_SMALL_THAN_LEDGER, ledger.end_term
        if candidate != self._voted_for:
            self._persist(self.term, candidate)
        return VoteResult.ACCEPT, self.term

    def _vote(self, request: VoteRequest) -> VoteReply:
        result, term = self._judge(request)
        return VoteReply(leader_id=request.leader_id, term=term, vote_result=result)

    def _be_candidate(self, now: int) -> None:
        if self._round is not None:
            if now >= self._round[2]:
                self._conclude(now)
            return
        if now < self._next_vote_ms and not self._raise_at_once:
            return
        if self._vote_next_term or self._raise_at_once:
            self._persist(
                max(self._known_max_term, self.term + 1) if self._known_max_term > self.term else self.term + 1, None
            )
            self._say()
            self._vote_next_term = False
            if self._raise_at_once:
                self._raise_at_once = False
                self._next_vote_ms = self._back_off(now)
                return
        self._ask_votes(now)

    def _ask_votes(self, now: int) -> None:
        round_ = (self.term, {}, now + 2 * self._config.max_vote_interval_ms)
        self._round = round_
        for peer in self._config.others:
            request = VoteRequest(
                group="g", remote_id=peer, local_id=self._id, leader_id=self._id, term=self.term,
                ledger_end_index=self._ledger.end_index, ledger_end_term=self._ledger.end_term,
            )  # fmt: skip
            self._ask(peer, request, lambda reply, then, peer=peer: self._voted(round_, peer, reply, then))
        own = VoteRequest(
            leader_id=self._id, term=self.term, ledger_end_index=self._ledger.end_index,
            ledger_end_term=self._ledger.end_term,
        )  # fmt: skip
        round_[1][self._id] = self._vote(own)

    def _voted(self, round_: Any, peer: str, reply: Reply | None, now: int) -> None:
        if round_ is not self._round:
            return
        answers = round_[1]
        answers[peer] = reply if isinstance(reply, VoteReply) and reply.vote_result is not VoteResult.UNKNOWN else None
        results = [answer.vote_result for answer in answers.values() if answer]
        accepted, not_ready = results.count(VoteResult.ACCEPT), results.count(VoteResult.REJECT_TERM_NOT_READY)
        if (
            VoteResult.REJECT_ALREADY_HAS_LEADER in results
            or accepted + not_ready >= self._config.quorum
            or len(answers) == len(self._config.peers)
        ):
            self._conclude(now)

    def _conclude(self, now: int) -> None:
        assert self._round is not None
        term, answers, _ = self._round
        self._round = None
        given = [answer for answer in answers.values() if answer]
        results = [answer.vote_result for answer in given]
        quorum, config = self._config.quorum, self._config
        behind = sum(
            result in (VoteResult.REJECT_EXPIRED_LEDGER_TERM, VoteResult.REJECT_SMALL_LEDGER_END_INDEX)
            for result in results
        )
        accepted, not_ready = results.count(VoteResult.ACCEPT), results.count(VoteResult.REJECT_TERM_NOT_READY)
        highest = max(
            (answer.term for answer in given if answer.vote_result in (
                VoteResult.REJECT_EXPIRED_VOTE_TERM, VoteResult.REJECT_TERM_SMALL_THAN_LEDGER)), default=-1,
        )  # fmt: skip
        if highest > term:
            self._next_vote_ms = self._back_off(now)
            self._vote_next_term = True
            self._known_max_term = max(self._known_max_term, highest)
        elif VoteResult.REJECT_ALREADY_HAS_LEADER in results:
            self._next_vote_ms = self._back_off(now) + config.election_timeout_ms
        elif len(given) < quorum:
            self._next_vote_ms = self._back_off(now)
        elif len(given) - behind < quorum:
            self._next_vote_ms = self._back_off(now) + config.max_vote_interval_ms
        elif accepted >= quorum:
            if self.term == term:
                self._to_leader(now)
        elif accepted + not_ready < quorum:
            self._next_vote_ms = self._back_off(now)
            self._vote_next_term = True

    # --- heart-beats ---

    def _heart_beat(self, request: HeartBeatRequest, now: int) -> HeartBeatReply:
        if request.term < self.term:
            return HeartBeatReply(term=self.term, code=Code.EXPIRED_TERM)
        if request.term > self.term:
            self._to_candidate(request.term)
            self._raise_at_once = True
            return HeartBeatReply(code=Code.TERM_NOT_READY)
        if self.leader_id is None:
            self._to_follower(request.leader_id or "", now)
        elif self.leader_id != request.leader_id:
            return HeartBeatReply(code=Code.INCONSISTENT_LEADER)
        self._heard_ms = now
        return HeartBeatReply()

    def _be_leader(self, now: int) -> None:
        if now - self._beat_sent_ms > self._config.heart_beat_time_interval_ms:
            self._send_beats(now)
        if now - self._beat_heard_ms > self._config.election_timeout_ms:
            self._to_candidate(self.term)
            return
        self._dispatch(now)
        self._count()

    def _send_beats(self, now: int) -> None:
        self._beat_sent_ms = now
        self._beat_round += 1
        self._beat = {self._id: Code.SUCCESS}
        for peer in self._config.others:
            request = HeartBeatRequest(group="g", remote_id=peer, local_id=self._id, leader_id=self._id, term=self.term)
            round_, term = self._beat_round, self.term
            self._ask(
                peer, request, lambda reply, then, peer=peer, r=round_, t=term: self._beaten(peer, r, t, reply, then)
            )

    def _beaten(self, peer: str, round_: int, term: int, reply: Reply | None, now: int) -> None:
        if self.role is not Role.LEADER or self.term != term or not isinstance(reply, HeartBeatReply):
            return
        if reply.code is Code.EXPIRED_TERM and reply.term > self.term:
            self._to_candidate(reply.term)
            self._raise_at_once = True
        elif reply.code is Code.INCONSISTENT_LEADER:
            self._to_candidate(self.term)
        elif round_ == self._beat_round:
            self._beat[peer] = reply.code
            codes = list(self._beat.values())
            if codes.count(Code.SUCCESS) >= self._config.quorum:
                self._beat_heard_ms = now
            elif codes.count(Code.SUCCESS) + codes.count(Code.TERM_NOT_READY) >= self._config.quorum:
                self._beat_sent_ms = now - self._config.heart_beat_time_interval_ms + LOOP_MS

    # --- the leader's pushes (EntryDispatcher, QuorumAckChecker) ---

    def _dispatch(self, now: int) -> None:
        for peer, dispatcher in self._dispatchers.items():
            if self.role is Role.LEADER and not dispatcher.is_waiting and now >= dispatcher.not_before:
                if dispatcher.kind is PushType.APPEND:
                    self._append(peer, dispatcher, now)
                elif self._ledger.end_index >= 0:
                    self._compare(peer, dispatcher, now)

    def _compare(self, peer: str, dispatcher: _Dispatcher, now: int) -> None:
        ledger = self._ledger
        if dispatcher.kind is PushType.TRUNCATE:
            index = dispatcher.truncate_index
        else:
            if not ledger.begin_index <= dispatcher.compare_index <= ledger.end_index:
                dispatcher.compare_index = ledger.end_index
            index = dispatcher.compare_index
        dispatcher.is_waiting = True
        self._send_push(peer, dispatcher, dispatcher.kind, index, now)

    def _append(self, peer: str, dispatcher: _Dispatcher, now: int) -> None:
        ledger = self._ledger
        if dispatcher.write_index < ledger.begin_index:
            self._compare_again(dispatcher, now)
            return
        while dispatcher.write_index <= ledger.end_index and len(dispatcher.pending) < 50:
            dispatcher.pending[dispatcher.write_index] = now
            self._send_push(peer, dispatcher, PushType.APPEND, dispatcher.write_index, now)
            dispatcher.write_index += 1
        for index in [index for index in dispatcher.pending if index <= self._marks[peer]]:
            del dispatcher.pending[index]
        lost = self._marks[peer] + 1
        if now - dispatcher.pending.get(lost, now) > PUSH_TIMEOUT_MS:
            dispatcher.pending[lost] = now
            self._send_push(peer, dispatcher, PushType.APPEND, lost, now)
        if dispatcher.write_index > ledger.end_index and now - dispatcher.pushed_ms > PUSH_TIMEOUT_MS:
            self._send_push(peer, dispatcher, PushType.COMMIT, -1, now)

    def _send_push(self, peer: str, dispatcher: _Dispatcher, kind: PushType, index: int, now: int) -> None:
        dispatcher.pushed_ms = now
        entries = () if index < 0 else (self._ledger.entry(index),)
        request = PushRequest(
            group="g", remote_id=peer, local_id=self._id, leader_id=self._id, term=self.term, type=kind,
            commit_index=self.committed_index, entries=entries,
        )  # fmt: skip
        self._ask(peer, request, lambda reply, then: self._pushed(peer, dispatcher, kind, index, reply, then))

    def _pushed(
        self, peer: str, dispatcher: _Dispatcher, kind: PushType, index: int, reply: Reply | None, now: int
    ) -> None:
        if self.role is not Role.LEADER or self._dispatchers.get(peer) is not dispatcher or kind is PushType.COMMIT:
            return
        code = reply.code if isinstance(reply, PushReply) else Code.NETWORK_ERROR
        if kind is PushType.APPEND:
            if code is Code.SUCCESS:
                dispatcher.pending.pop(index, None)
                self._marks[peer] = max(self._marks[peer], index)
                self._count()
            elif code is Code.INCONSISTENT_STATE and dispatcher.kind is PushType.APPEND:
                self._compare_again(dispatcher, now)
            return
        dispatcher.is_waiting = False
        if not isinstance(reply, PushReply) or code not in (Code.SUCCESS, Code.INCONSISTENT_STATE):
            self._compare_again(dispatcher, now + SLEEP_MS)
        elif kind is PushType.TRUNCATE:
            if code is Code.SUCCESS:
                self._begin_append(peer, dispatcher, index)
            else:
                self._compare_again(dispatcher, now + SLEEP_MS)
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
        self._marks[peer] = max(self._marks[peer], index)
        self._count()

    def _compare_again(self, dispatcher: _Dispatcher, not_before: int) -> None:
        dispatcher.kind, dispatcher.compare_index, dispatcher.not_before = PushType.COMPARE, -1, not_before
        dispatcher.pending.clear()

    def _count(self) -> None:
        if self.role is Role.LEADER:
            marks = sorted([self._ledger.end_index, *self._marks.values()], reverse=True)
            point = marks[len(marks) // 2]
            if point >= self._first_index:
                self._commit(point)

    def _commit(self, index: int) -> None:
        index = min(index, self._ledger.end_index)
        if index > self.committed_index and index >= self._ledger.begin_index:
            self.committed_index = index
            self._outputs.append(Commit(index))

    # --- the follower (EntryHandler) ---

    def _push(self, token: object, request: PushRequest, now: int) -> None:
        if request.type is PushType.APPEND:
            if request.first_index in self._buffer:
                self._done(token, request, Code.REPEATED_PUSH)
            else:
                self._buffer[request.first_index] = (token, request, now)
        elif self.role is not Role.FOLLOWER:
            self._done(token, request, Code.NOT_FOLLOWER)
        else:
            if request.type is not PushType.COMMIT:
                self._buffer.clear()
            self._order(token, request)
        self._handle(now)

    def _order(self, token: object, request: PushRequest) -> None:
        ledger = self._ledger
        if request.type is PushType.COMMIT:
            if request.term >= self.term:
                self._commit(request.commit_index)
            self._done(token, request, Code.SUCCESS)
            return
        entry = request.entries[0]
        has = ledger.begin_index <= entry.index <= ledger.end_index and ledger.has(entry)
        if request.type is PushType.COMPARE:
            self._done(token, request, Code.SUCCESS if has else Code.INCONSISTENT_STATE)
            return
        if request.term != self.term or request.leader_id != self.leader_id:
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
            self._sync()
        self._commit(request.commit_index)
        self._done(token, request, Code.SUCCESS)

    def _handle(self, now: int) -> None:
        if self.role is not Role.FOLLOWER:
            return
        while self._ledger.end_index + 1 in self._buffer:
            token, request, _ = self._buffer.pop(self._ledger.end_index + 1)
            code = Code.INCONSISTENT_STATE
            if request.term == self.term and request.leader_id == self.leader_id:
                try:
                    for entry in request.entries:
                        self._ledger.append_entries(SimRun([entry]))
                    code = Code.SUCCESS
                except LedgerMismatchError:
                    pass
                self._sync()
            self._done(token, request, code)
            if code is Code.SUCCESS:
                self._commit(request.commit_index)
        if self._buffer and now - self._checked_ms > PUSH_TIMEOUT_MS:
            self._checked_ms = now
            self._check_buffer(now)

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

    def _sync(self) -> None:
        self._ledger.begin_flush()
        self._ledger.end_flush()

    def _done(self, token: object, request: PushRequest, code: Code) -> None:
        self._outputs.append(
            Answer(token, PushReply(
                term=request.term, code=code, index=request.first_index, count=request.count,
                begin_index=self._ledger.begin_index, end_index=self._ledger.end_index,
            ))
        )  # fmt: skip

    # --- transfer ---

    def _transfer(self, token: object, request: TransferRequest, now: int) -> None:
        code = None
        if request.transferee_id == self._id:
            if request.transfer_id != self.leader_id or request.term != self.term or self._taking:
                code = Code.INCONSISTENT_LEADER
            else:
                self._taking = (token, request, now + self._config.leadership_transfer_wait_timeout_ms)
        elif self.role is not Role.LEADER or self._transferee or request.transferee_id not in self._config.others:
            code = Code.NOT_LEADER
        else:
            self._hand_over(token, request)
        if code is not None:
            self._outputs.append(Answer(token, TransferReply(code=code)))

    def _hand_over(self, token: object, request: TransferRequest) -> None:
        transferee = self._transferee = request.transferee_id or ""
        order = TransferRequest(
            group="g", remote_id=transferee, leader_id=self._id, term=self.term, transfer_id=self._id,
            transferee_id=transferee, take_leadership_ledger_index=self._ledger.end_index,
        )  # fmt: skip

        def done(reply: Reply | None, now: int) -> None:
            self._transferee = None
            code = reply.code if isinstance(reply, TransferReply) else Code.NETWORK_ERROR
            self._outputs.append(Answer(token, TransferReply(code=code)))

        self._ask(transferee, order, done)

    def _take_leadership(self, now: int) -> None:
        if self._taking is None:
            return
        token, request, deadline = self._taking
        code = None
        if self.term > request.term:
            code = Code.SUCCESS if self.role is Role.LEADER else None
            if self.role is Role.FOLLOWER or now > deadline + 10 * self._config.max_vote_interval_ms:
                code = Code.TAKE_LEADERSHIP_FAILED
        elif self.role is Role.FOLLOWER and self._ledger.end_index >= request.take_leadership_ledger_index:
            self._to_candidate(self.term + 1)
            self._raise_at_once = True
        elif now > deadline:
            code = Code.TAKE_LEADERSHIP_FAILED
        if code is not None:
            self._taking = None
            self._outputs.append(Answer(token, TransferReply(code=code)))

    def _ask(self, peer: str, message: Request, done: Callable[[Any, int], None]) -> None:
        self._asked[self._next_id] = done
        self._outputs.append(SendRequest(peer, self._next_id, message))
        self._next_id += 1
