"""What all parts of a member know: role, term, leader, log, and what goes out (MemberState)."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from maxq.protocol.dledger.dledger_messages import Reply, Request, VoteReply
from maxq.protocol.dledger.ledger import HardState
from maxq.replication.raft.config import RaftConfig
from maxq.replication.raft.outputs import Answer, Commit, Output, Role, RoleChange, SendRequest, StoreTerm
from tests.simulation.raft.sim_ledger import SimLedger

LOOP_MS: Final = 5
PUSH_TIMEOUT_MS: Final = 100


class VoteRound(NamedTuple):
    """Votes that were asked for in `term`; they are awaited until `deadline`."""

    term: int
    answers: dict[str, VoteReply | None]  # None: none came, or one of no meaning
    deadline: int


class JavaState:
    """See the module.

    Attributes:
        known_max_term: the highest term that somebody named.
        raise_at_once: the term must rise before anything is asked, without waiting.
        vote_next_term: it must rise before votes are asked for the next time.
        round: of votes, under way; given up with the role.
        heard_ms: when a leader was heard last.
        transferee: who is being made leader.
    """

    def __init__(self, config: RaftConfig, ledger: SimLedger, hard_state: HardState, now: int) -> None:
        self.config = config
        self.id = config.self_id
        self.ledger = ledger
        self.role = Role.CANDIDATE
        self.term, self.voted_for = hard_state
        self.leader_id: str | None = None
        self.committed_index = ledger.committed_index
        self.known_max_term = -1
        self.raise_at_once = False
        self.vote_next_term = False
        self.round: VoteRound | None = None
        self.heard_ms = now
        self.transferee: str | None = None
        self._outputs: list[Output] = []
        self._asked: dict[int, Callable[[Any, int], None]] = {}
        self._next_id = 1

    # --- what goes out, and comes back ---

    def take(self) -> list[Output]:
        outputs, self._outputs = self._outputs, []
        return outputs

    def put(self, output: Output) -> None:
        self._outputs.append(output)

    def answer(self, token: object, reply: Reply) -> None:
        self.put(Answer(token, reply))

    def ask(self, peer: str, message: Request, done: Callable[[Any, int], None]) -> None:
        """`done` gets the reply, None if there is none, and the time."""
        self._asked[self._next_id] = done
        self.put(SendRequest(peer, self._next_id, message))
        self._next_id += 1

    def replied(self, request_id: int, reply: Reply | None, now: int) -> None:
        self._asked.pop(request_id)(reply, now)

    # --- roles and terms ---

    def say(self) -> None:
        self.put(RoleChange(self.role, self.term, self.leader_id))

    def persist(self, term: int, voted_for: str | None) -> None:
        self.term, self.voted_for = term, voted_for
        self.put(StoreTerm(HardState(term, voted_for)))

    def to_candidate(self, term: int) -> None:
        if term >= self.term:
            self.role, self.leader_id, self.transferee = Role.CANDIDATE, None, None
            self.known_max_term = max(self.known_max_term, term)
            self.round = None
            self.say()

    def to_follower(self, leader: str, now: int) -> None:
        self.role, self.leader_id, self.transferee = Role.FOLLOWER, leader, None
        self.vote_next_term = False
        self.heard_ms = now
        self.say()

    def to_leader(self) -> None:
        self.role, self.leader_id = Role.LEADER, self.id
        self.say()

    # --- the log ---

    def sync(self) -> None:
        self.ledger.begin_flush()
        self.ledger.end_flush()

    def commit(self, index: int) -> None:
        index = min(index, self.ledger.end_index)
        if index > self.committed_index and index >= self.ledger.begin_index:
            self.committed_index = index
            self.put(Commit(index))
