"""One core under test, with a log in memory whose disk syncs when told."""

from typing import Any, TypeVar

from maxq.protocol.dledger.dledger_messages import (
    DLedgerEntry,
    HeartBeatReply,
    HeartBeatRequest,
    PushRequest,
    PushType,
    Reply,
    Request,
    VoteReply,
    VoteRequest,
    VoteResult,
)
from maxq.protocol.dledger.ledger import HardState
from maxq.replication.raft.config import RaftConfig
from maxq.replication.raft.node import RaftNode
from maxq.replication.raft.outputs import Answer, BarrierWanted, Output, Role, SendRequest, StoreTerm
from maxq.testing.sim_rng import SimRng
from tests.simulation.raft.sim_ledger import SimLedger

Kind = TypeVar("Kind")


def config(**settings: Any) -> RaftConfig:
    """Of n0 in a group of three, with small times."""
    small: dict[str, Any] = {
        "heart_beat_time_interval_ms": 100, "java_heart_beat_time_interval_ms": 200, "min_vote_interval_ms": 30,
        "max_vote_interval_ms": 100, "min_take_leadership_vote_interval_ms": 5, "rpc_timeout_ms": 300,
        "max_take_leadership_vote_interval_ms": 20,
    }  # fmt: skip
    return RaftConfig(**{"self_id": "n0", "peers": ("n0", "n1", "n2"), "group": "g", "maxq": "d1", **small, **settings})


class OneMember:
    """A core and its outputs. Terms are durable at once, the log when `sync` is called."""

    def __init__(
        self,
        *terms: int,
        state: HardState | None = None,
        committed: int = -1,
        began: int | None = None,
        **settings: Any,
    ) -> None:
        """`began`: when it was started; None: long enough ago to elect at once."""
        self.now = 0
        self.config = config(**settings)
        self.ledger = SimLedger("n0", lambda ledger, entry, term: None)
        for term in terms:
            self.ledger.append_own(term, f"t{term}i{self.ledger.end_index + 1}".encode())
        self.ledger.begin_flush()
        self.ledger.end_flush()
        self.ledger.committed_index = self.ledger.live_commit = committed
        began = -self.config.election_timeout_ms if began is None else began
        self.node = RaftNode(self.config, self.ledger, state or HardState(max([0, *terms])), SimRng(1), began)
        self.outputs: list[Output] = []
        self._token = 0
        self._last = 0

    def settle(self) -> None:
        """Take outputs until there are none."""
        while outputs := self.node.take():
            for output in outputs:
                if isinstance(output, StoreTerm):
                    self.node.term_stored(output.state, self.now)
                elif isinstance(output, BarrierWanted):
                    index = self.ledger.append_own(output.term, b"")
                    self.node.appended(index, index, self.now)
            self.outputs += outputs

    def at(self, now: int) -> None:
        """It is `now`."""
        self.now = now
        self.node.tick(now)
        self.settle()

    def ask(self, message: Request) -> Reply | None:
        """A request; its answer, if there is one yet."""
        self._token += 1
        self.node.request(self._token, message, self.now)
        self.settle()
        return self.answer(self._token)

    def answer(self, token: int) -> Reply | None:
        """The answer to the request of that number."""
        found = [output.reply for output in self.all_of(Answer) if output.token == token]
        assert len(found) <= 1
        return found[0] if found else None

    def all_of(self, kind: type[Kind]) -> list[Kind]:
        """All outputs of a kind."""
        return [output for output in self.outputs if isinstance(output, kind)]

    def sent(self, peer: str, kind: type[Kind]) -> list[Kind]:
        """Requests of a kind to `peer`, and forget them."""
        sends = [o for o in self.all_of(SendRequest) if o.peer == peer and isinstance(o.message, kind)]
        for send in sends:
            self.outputs.remove(send)
        self._last = sends[-1].request_id if sends else 0
        return [send.message for send in sends]  # type: ignore[misc]

    def reply_last(self, reply: Reply | None) -> None:
        """Answer the last request that `sent` returned."""
        self.node.reply(self._last, reply, self.now)
        self.settle()

    def sync(self) -> None:
        """The log becomes durable."""
        self.ledger.begin_flush()
        self.ledger.end_flush()
        self.node.durable(self.ledger.durable_index, self.now)
        self.settle()

    def elect(self, maxq: str | None = "d1") -> None:
        """Make it the leader by the vote of n1, which answers its first heart-beat."""
        self.at(50)
        self.sent("n1", VoteRequest)
        self.reply_last(VoteReply(term=self.node.term, vote_result=VoteResult.ACCEPT))
        self.sent("n1", VoteRequest)
        self.reply_last(VoteReply(term=self.node.term, vote_result=VoteResult.ACCEPT))
        assert self.node.role is Role.LEADER
        self.sent("n1", HeartBeatRequest)
        self.reply_last(HeartBeatReply(maxq=maxq))

    def follow(self, leader: str = "n1", term: int = 1, maxq: str | None = "d1") -> None:
        """Let `leader` send a heart-beat."""
        self.ask(HeartBeatRequest(group="g", remote_id="n0", leader_id=leader, term=term, maxq=maxq))

    def push(
        self, kind: PushType, *entries: DLedgerEntry, term: int = 1, commit: int = -1, leader: str = "n1"
    ) -> Reply | None:
        """A push of `leader`."""
        return self.ask(
            PushRequest(
                group="g", remote_id="n0", leader_id=leader, term=term, type=kind, commit_index=commit, entries=entries
            )
        )


def log(*terms: int) -> list[DLedgerEntry]:
    """Entries of these terms, as `OneMember(*terms)` has them."""
    entries: list[DLedgerEntry] = []
    position = 0
    for index, term in enumerate(terms):
        body = f"t{term}i{index}".encode()
        entries.append(DLedgerEntry(size=48 + len(body), index=index, term=term, pos=position, body=body))
        position += 48 + len(body)
    return entries
