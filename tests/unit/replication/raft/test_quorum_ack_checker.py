"""The commit point against a count by hand."""

from hypothesis import given
from hypothesis import strategies as st

from maxq.replication.raft.quorum_ack_checker import QuorumAckChecker
from tests.simulation.raft.sim_ledger import SimLedger
from tests.unit.replication.raft.support import config


@given(st.lists(st.integers(-1, 20), min_size=1, max_size=7), st.integers(0, 20))
def test_commit_point_is_what_a_quorum_has_of_the_own_term_or_all_have(marks: list[int], first_index: int) -> None:
    peers = tuple(f"n{number}" for number in range(len(marks)))
    ledger = SimLedger("n0", lambda ledger, entry, term: None)
    ledger.durable_index = marks[0]
    acks = QuorumAckChecker(config(peers=peers), ledger, first_index)
    for peer, mark in zip(peers[1:], marks[1:], strict=True):
        acks.acknowledged(peer, mark)
    quorum = len(marks) // 2 + 1
    holders = [sum(mark >= index for mark in marks) for index in range(21)]
    allowed = [
        index
        for index in range(21)
        if holders[index] == len(marks) or (holders[index] >= quorum and index >= first_index)
    ]
    assert max(acks.commit_point(), -1) == max(allowed, default=-1)


def test_marks_do_not_fall_by_old_acknowledgements_and_do_by_loss() -> None:
    acks = QuorumAckChecker(config(), SimLedger("n0", lambda ledger, entry, term: None), 0)
    acks.acknowledged("n1", 5)
    acks.acknowledged("n1", 3)
    assert acks.mark("n1") == 5
    acks.lowered("n1", 2)
    assert acks.mark("n1") == 2
