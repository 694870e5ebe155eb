"""Planted bugs: each makes the core unsafe in one way, and the campaign must notice.

A mutation is a list of patches of the shipped classes. `make sim` looks for each within 500 seeds, `make test` within
fewer.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

from maxq.protocol.dledger.dledger_messages import DLedgerMessage, DLedgerResponseCode, VoteRequest, VoteResult
from maxq.protocol.dledger.ledger import HardState
from maxq.replication.raft.entry_dispatcher import EntryDispatcher
from maxq.replication.raft.entry_handler import EntryHandler
from maxq.replication.raft.heart_beats import HeartBeats
from maxq.replication.raft.leader_elector import LeaderElector
from maxq.replication.raft.leadership_transfer import LeadershipTransfer
from maxq.replication.raft.member_state import MemberState
from maxq.replication.raft.node import RaftNode, _Leading
from maxq.replication.raft.outbox import Outbox
from maxq.replication.raft.outputs import ReadReady
from maxq.replication.raft.quorum_ack_checker import QuorumAckChecker
from tests.simulation.raft.sim_ledger import SimLedger

Replacement = Callable[..., Any]


Patches = tuple[tuple[type, str, Any], ...]  # owner, attribute, what stands there instead


def _vote_again(self: LeaderElector, candidate: str, now: int) -> VoteResult:
    self._state.voted_for = None
    self._state.vote_for(candidate, self._state.term, now)
    return VoteResult.ACCEPT


def _vote_the_same_again(self: LeaderElector, candidate: str, now: int) -> VoteResult:
    if self._state.voted_for not in (None, candidate):
        return VoteResult.REJECT_ALREADY_VOTED
    self._state.vote_for(candidate, self._state.term, now)
    return VoteResult.ACCEPT


def _vote_blindly(self: LeaderElector, request: VoteRequest, now: int) -> VoteResult:
    state = self._state
    if request.term < state.term or not state.may_elect:
        return VoteResult.REJECT_EXPIRED_VOTE_TERM
    if request.is_pre_vote:
        return VoteResult.ACCEPT if state.leader_id is None else VoteResult.REJECT_ALREADY_HAS_LEADER
    if request.term == state.term:
        return self._judge_same_term(request.leader_id or "", now)
    state.vote_for(request.leader_id or "", request.term, now)
    return VoteResult.ACCEPT


def _count_old_terms(self: QuorumAckChecker) -> int:
    self._marks[self._self_id] = self._ledger.durable_index
    return sorted(self._marks.values(), reverse=True)[self._from_last]


def _count_own_before_sync(self: QuorumAckChecker) -> int:
    self._marks[self._self_id] = self._ledger.end_index
    point = sorted(self._marks.values(), reverse=True)[self._from_last]
    return point if point >= self.first_index else -1


def _count_one_less(self: QuorumAckChecker) -> int:
    self._marks[self._self_id] = self._ledger.durable_index
    point = sorted(self._marks.values(), reverse=True)[self._from_last - 1]
    return point if point >= self.first_index else -1


def _cut_as_told(self: EntryHandler, token: object, request: Any) -> None:
    entry = self._single(request)
    if self._has(entry) and entry.index < self._ledger.end_index:
        self._ledger.truncate(entry.index)
        self.matched_index = entry.index
        self._answer(token, request, DLedgerResponseCode.SUCCESS)
    else:
        _truncate(self, token, request)


_truncate = EntryHandler._truncate
_sender_refusal = RaftNode._sender_refusal
_init = MemberState.__init__


def _take_stale(self: RaftNode, message: DLedgerMessage, now: int) -> DLedgerResponseCode | None:
    refusal = _sender_refusal(self, message, now)
    return None if refusal == DLedgerResponseCode.EXPIRED_TERM else refusal


def _forget_vote(
    self: MemberState, config: Any, ledger: SimLedger, hard_state: HardState, outbox: Outbox, now: int
) -> None:
    """And it elects at once: the time that it waits hides nearly every forgotten vote."""
    _init(self, config, ledger, HardState(hard_state.term, None), outbox, now)
    self.elects_from_ms = now


def _begin_without_probe(self: LeaderElector, *, is_probe: bool, now: int, **more: bool) -> None:
    """The probe alone makes two candidates of one term so rare that no lost vote is noticed."""
    if is_probe:
        self._enter_term(now)
    else:
        _begin(self, is_probe=is_probe, now=now, **more)


_begin = LeaderElector._begin


def _read_by_lease(self: HeartBeats, token: object, now: int) -> None:
    self._state.outbox.put(ReadReady(token, DLedgerResponseCode.SUCCESS, self._state.committed_index))


def _drop_and_say_yes(self: EntryHandler, token: object, request: Any, now: int) -> None:
    first = request.first_index
    if first <= self.matched_index + 1:
        self._append(token, request)
    else:
        self._answer(token, request, DLedgerResponseCode.SUCCESS)


def _commit_to_the_end(self: EntryHandler) -> None:
    self._state.commit(min(self._leader_commit, self._ledger.end_index))
    ready = self._sayable()
    for waiting in [waiting for waiting in self._waiting if waiting.until <= ready]:
        self._waiting.remove(waiting)
        self._answer(waiting.token, waiting.request, DLedgerResponseCode.SUCCESS)


def _speak_at_once(self: Outbox, output: Any) -> None:
    self._outputs.append(output)


def _append_unmatched(self: EntryHandler, token: object, request: Any, now: int) -> None:
    if request.first_index <= self._ledger.end_index + 1 and self._write(request) is DLedgerResponseCode.SUCCESS:
        self.matched_index = max(self.matched_index, request.last_index)
        self._append(token, request)
    else:
        self._answer(token, request, DLedgerResponseCode.INCONSISTENT_STATE)


def _append_at_once(self: EntryDispatcher, now: int) -> None:
    self._compare_again(now)
    self._begin_append(self._acks.first_index - 1, now)


def _compare_index_only(self: EntryHandler, entry: Any) -> bool:
    return bool(self._ledger.begin_index <= entry.index <= self._ledger.end_index)


def _lead_again(self: MemberState, now: int) -> None:
    """Without a new term: the votes of before count again."""
    if self.voted_for == self.config.self_id and self._entered_term < 0:
        self._entered_term = self.term
        return
    _enter_next_term(self, now)


_enter_next_term = MemberState.enter_next_term


def _acknowledge_other_terms(self: EntryHandler) -> None:
    """What waits is answered with 200 when the leader changes."""
    for waiting in self._waiting:
        self._answer(waiting.token, waiting.request, DLedgerResponseCode.SUCCESS)
    self._waiting.clear()
    _leader_changed(self)


_leader_changed = EntryHandler.leader_changed


def _lead_on(self: LeadershipTransfer, code: DLedgerResponseCode, now: int) -> None:
    """The order may still reach the transferee, and the others vote for it while this leader's lease lasts."""
    self._handed_over(code)


MUTATIONS: Final[dict[str, Patches]] = {
    "a member votes twice in a term": ((LeaderElector, "_judge_same_term", _vote_again),),
    "a vote without a look at the log": ((LeaderElector, "_judge", _vote_blindly),),
    "the vote is forgotten at a restart": (
        ((MemberState, "__init__", _forget_vote), (LeaderElector, "_begin", _begin_without_probe))
    ),
    "a vote is given before it is stored": ((Outbox, "_say", _speak_at_once),),
    "who has forgotten its log votes": ((MemberState, "may_elect", property(lambda self: not self.frozen)),),
    "a member with a new disk votes": ((MemberState, "may_vote_for", lambda self, request: self.may_elect),),
    "a term is led again after a restart": (
        ((MemberState, "enter_next_term", _lead_again), (LeaderElector, "_judge_same_term", _vote_the_same_again))
    ),
    "acknowledged before the sync": ((EntryHandler, "_sayable", lambda self: self._ledger.end_index),),
    "the leader counts itself before its sync": ((QuorumAckChecker, "commit_point", _count_own_before_sync),),
    "entries of an older term commit by counting": ((QuorumAckChecker, "commit_point", _count_old_terms),),
    "one less than a quorum commits": ((QuorumAckChecker, "commit_point", _count_one_less),),
    "an old order cuts what was matched since": ((EntryHandler, "_truncate", _cut_as_told),),
    "pushes of an older term are taken": ((RaftNode, "_sender_refusal", _take_stale),),
    "reads trust the lease alone": (
        ((HeartBeats, "read", _read_by_lease), (HeartBeats, "has_lease", lambda self, now: True))
    ),
    "reads before an entry of the own term is committed": (
        ((_Leading, "_committed", lambda self: self._state.committed_index),)
    ),
    "a push that is dropped is acknowledged": ((EntryHandler, "_take_append", _drop_and_say_yes),),
    "a follower commits what it has not matched": ((EntryHandler, "advance", _commit_to_the_end),),
    "neither side compares before appends": (
        (EntryHandler, "_take_append", _append_unmatched),
        (EntryDispatcher, "start", _append_at_once),
    ),
    "comparison by index alone": ((EntryHandler, "_has", _compare_index_only),),
    "a leader goes on after an order to hand over": ((LeadershipTransfer, "_give_up_term", _lead_on),),
    "what waits is acknowledged in the next term": ((EntryHandler, "leader_changed", _acknowledge_other_terms),),
}

#: A seed that has noticed one of them that the first ones do not notice.
NOTED: Final = {
    "the vote is forgotten at a restart": 18,
    "who has forgotten its log votes": 34,
    "a member with a new disk votes": 22,
    "a term is led again after a restart": 38,
    "an old order cuts what was matched since": 27,
    "neither side compares before appends": 21,
    "a leader goes on after an order to hand over": 170,
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The core with this bug."""
    with ExitStack() as stack:
        for owner, attribute, replacement in MUTATIONS[name]:
            stack.enter_context(patch.object(owner, attribute, replacement))
        yield
