"""The leader's count of who has what: the commit point.

An entry is committed when a quorum has it durably, and only entries of the leader's own term are committed by counting
(section 5.4.2 of the Raft paper); older ones go with them, or when every member has them. The leader counts itself
like the others: with what its own disk has (S2).

Source:
    openmessaging/dledger DLedgerEntryPusher.java, QuorumAckChecker; safety rules S1, S2, S11.
"""

from maxq.protocol.dledger.ledger import Ledger
from maxq.replication.raft.config import RaftConfig


class QuorumAckChecker:
    """The water marks of one term.

    Args:
        first_index: of the first entry of the leader's term; all from there on are of that term.
    """

    def __init__(self, config: RaftConfig, ledger: Ledger, first_index: int) -> None:
        self.first_index = first_index
        self._self_id = config.self_id
        self._ledger = ledger
        self._from_last = len(config.peers) // 2
        self._marks = dict.fromkeys(config.peers, -1)

    def mark(self, peer: str) -> int:
        """Return the highest entry that this leader knows `peer` to have durably."""
        return self._marks[peer]

    def acknowledged(self, peer: str, index: int) -> None:
        """Note that `peer` has everything up to `index`."""
        if index > self._marks[peer]:
            self._marks[peer] = index

    def lowered(self, peer: str, index: int) -> None:
        """Note that `peer` has lost its entries behind `index` (S11)."""
        self._marks[peer] = min(self._marks[peer], index)

    def commit_point(self) -> int:
        """Returns the highest index that may be committed now; -1 if there is none."""
        self._marks[self._self_id] = self._ledger.durable_index
        marks = sorted(self._marks.values(), reverse=True)
        by_quorum = marks[self._from_last]
        if by_quorum >= self.first_index:
            return by_quorum
        return marks[-1]
