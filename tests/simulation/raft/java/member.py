"""A member by Java's rules, with the inputs and outputs of RaftNode."""

from maxq.protocol.dledger.dledger_messages import DLedgerResponseCode as Code
from maxq.protocol.dledger.dledger_messages import (
    HeartBeatRequest,
    PushRequest,
    Reply,
    Request,
    TransferRequest,
    VoteRequest,
)
from maxq.protocol.dledger.ledger import HardState
from maxq.replication.raft.config import RaftConfig
from maxq.replication.raft.outputs import Output, ReadReady, Role
from maxq.testing.sim_rng import SimRng
from tests.simulation.raft.java.beats import JavaBeats
from tests.simulation.raft.java.election import JavaElection
from tests.simulation.raft.java.entries import JavaEntries
from tests.simulation.raft.java.pushes import JavaPushes
from tests.simulation.raft.java.state import LOOP_MS, JavaState
from tests.simulation.raft.java.transfer import JavaTransfer
from tests.simulation.raft.sim_ledger import SimLedger


class JavaMember:
    """The same inputs and outputs as RaftNode."""

    is_java = True

    def __init__(self, config: RaftConfig, ledger: SimLedger, hard_state: HardState, rng: SimRng, now: int) -> None:
        self._state = JavaState(config, ledger, hard_state, now)
        self._election = JavaElection(self._state, rng, self._lead)
        self._beats = JavaBeats(self._state)
        self._pushes = JavaPushes(self._state)
        self._entries = JavaEntries(self._state, now)
        self._transfer = JavaTransfer(self._state)
        self._now = now

    # --- facts ---

    @property
    def role(self) -> Role:
        return self._state.role

    @property
    def term(self) -> int:
        return self._state.term

    @property
    def leader_id(self) -> str | None:
        return self._state.leader_id

    @property
    def committed_index(self) -> int:
        return self._state.committed_index

    @property
    def retain_index(self) -> int:
        return self._pushes.retain_index

    def append_refusal(self, now: int) -> Code | None:
        if self.role is not Role.LEADER:
            return Code.NOT_LEADER
        return Code.LEADER_TRANSFERRING if self._state.transferee else None

    def next_tick(self) -> int:
        return self._now + LOOP_MS

    # --- inputs and outputs ---

    def take(self) -> list[Output]:
        return self._state.take()

    def request(self, token: object, message: Request, now: int) -> None:
        self._now = now
        if isinstance(message, VoteRequest):
            self._state.answer(token, self._election.vote(message))
        elif isinstance(message, HeartBeatRequest):
            self._state.answer(token, self._beats.heard(message, now))
        elif isinstance(message, PushRequest):
            self._entries.push(token, message, now)
        else:
            assert isinstance(message, TransferRequest)
            self._transfer.request(token, message, now)

    def reply(self, request_id: int, reply: Reply | None, now: int) -> None:
        self._now = now
        self._state.replied(request_id, reply, now)

    def tick(self, now: int) -> None:
        self._now = now
        if self.role is Role.CANDIDATE:
            self._election.tick(now)
        elif self.role is Role.LEADER:
            self._beats.tick(now)
            self._pushes.tick(now)
        elif now - self._state.heard_ms > self._state.config.election_timeout_ms:
            self._state.to_candidate(self.term)
        self._entries.tick(now)
        self._transfer.tick(now)

    def appended(self, first: int, last: int, now: int) -> None:
        self._state.sync()
        self._pushes.tick(now)

    def durable(self, index: int, now: int) -> None: ...

    def term_stored(self, state: HardState, now: int) -> None: ...

    def peer_lost(self, peer: str, now: int) -> None: ...

    def read_index(self, token: object, now: int) -> None:
        self._state.put(ReadReady(token, Code.NOT_LEADER, -1))

    def _lead(self, now: int) -> None:
        self._beats.begin(now)
        self._pushes.begin()
        self._state.to_leader()
