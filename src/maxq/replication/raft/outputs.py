"""What a `RaftNode` wants done. The driver does it in the order of the list."""

from enum import Enum
from typing import TypeAlias

from maxq.lazy_dataclass import dataclass
from maxq.protocol.dledger.dledger_messages import DLedgerResponseCode, Reply, Request
from maxq.protocol.dledger.ledger import HardState


class Role(Enum):
    """The role of a member in a term: leader, follower or candidate."""

    CANDIDATE = "CANDIDATE"
    FOLLOWER = "FOLLOWER"
    LEADER = "LEADER"


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Send `message` to `peer` and call `RaftNode.reply(request_id, …)` exactly once: with the answer, or with None
    when the connection fails or RaftConfig.rpc_timeout_ms have passed."""

    peer: str
    request_id: int
    message: Request


@dataclass(frozen=True, slots=True)
class Answer:
    """The reply to the request that came with `token`; there is exactly one for each."""

    token: object
    reply: Reply


@dataclass(frozen=True, slots=True)
class StoreTerm:
    """Make term and vote durable, then call `RaftNode.term_stored(state)`. Until then the core holds back its messages.
    If it fails, stop the member."""

    state: HardState


@dataclass(frozen=True, slots=True)
class Commit:
    """Everything up to `index` is committed; the index never falls."""

    index: int


@dataclass(frozen=True, slots=True)
class RoleChange:
    """Role, term or leader changed. A member that ceases to lead accepts no appends from here on (`end_leading`), and
    waiters for commits get TERM_CHANGED (501)."""

    role: Role
    term: int
    leader_id: str | None


@dataclass(frozen=True, slots=True)
class BarrierWanted:
    """This member leads `term` now. Call `begin_leading(term)`, then append the barrier entry, with which the entries
    of older terms commit (S1). It follows its RoleChange in the same list."""

    term: int


@dataclass(frozen=True, slots=True)
class ReadReady:
    """Outcome of `RaftNode.read_index`. SUCCESS: a read is linearizable if it sees entries up to `index`, which holds
    once the Commit outputs before this one are carried out. NOT_LEADER: ask another member."""

    token: object
    code: DLedgerResponseCode
    index: int


@dataclass(frozen=True, slots=True)
class Alarm:
    """A violated invariant that the operator must know of."""

    text: str


Output: TypeAlias = SendRequest | Answer | StoreTerm | Commit | RoleChange | BarrierWanted | ReadReady | Alarm
