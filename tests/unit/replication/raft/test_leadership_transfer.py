"""A leader that hands over to a member which does not take it: how long clients wait."""

import pytest

from maxq.protocol.dledger.dledger_messages import (
    DLedgerResponseCode,
    HeartBeatReply,
    HeartBeatRequest,
    PushReply,
    PushRequest,
    PushType,
    TransferReply,
    TransferRequest,
)
from maxq.replication.raft.outputs import Role
from tests.unit.replication.raft.support import OneMember


def leader(maxq: str | None = "d1") -> OneMember:
    """Its log is n1's and n2's, and all of it is committed."""
    member = OneMember(
        1, 1, heart_beat_time_interval_ms=2_000, java_heart_beat_time_interval_ms=2_000, rpc_timeout_ms=3_000
    )
    member.elect(maxq)
    member.sync()
    member.at(60)
    for peer in ("n1", "n2"):
        if peer == "n2":
            member.sent(peer, HeartBeatRequest)
            member.reply_last(HeartBeatReply(maxq=maxq))
        end = member.ledger.end_index
        while pushes := member.sent(peer, PushRequest):
            index = pushes[-1].first_index if pushes[-1].type is PushType.APPEND else None
            member.reply_last(
                PushReply(
                    group="g", term=2, code=DLedgerResponseCode.SUCCESS, index=index, count=pushes[-1].count,
                    begin_index=0, end_index=end,
                )
            )  # fmt: skip
    assert member.node.committed_index == member.ledger.end_index
    return member


def hand_over(member: OneMember, peer: str) -> TransferReply | None:
    order = TransferRequest(
        group="g", remote_id="n0", local_id="n0", leader_id="n0", term=2, transfer_id="n0", transferee_id=peer
    )
    reply = member.ask(order)
    assert reply is None or isinstance(reply, TransferReply)
    return reply


def test_a_member_that_was_not_heard_is_not_handed_to() -> None:
    member = leader()
    for now in range(2_100, 8_100, 2_000):  # n1 answers its heart-beats, n2 does not
        member.at(now)
        member.sent("n1", HeartBeatRequest)
        member.reply_last(HeartBeatReply(maxq="d1"))
    member.at(7_000)
    reply = hand_over(member, "n2")
    assert reply is not None and reply.code is DLedgerResponseCode.NETWORK_ERROR
    assert member.sent("n2", TransferRequest) == []
    assert member.node.role is Role.LEADER and member.node.append_refusal(member.now) is None


@pytest.mark.parametrize(("maxq", "given_up_ms"), [("d1", 1_000), (None, 3_000)])
def test_a_leader_waits_a_second_for_a_member_of_ours_that_is_silent(maxq: str | None, given_up_ms: int) -> None:
    """So clients that wait three seconds have another leader by then. Java's members take longer to stand."""
    member = leader(maxq)
    began = member.now
    assert hand_over(member, "n1") is None
    assert len(member.sent("n1", TransferRequest)) == 1
    member.at(began + given_up_ms - 1)
    assert member.node.role is Role.LEADER
    member.at(began + given_up_ms)
    assert member.node.role is Role.CANDIDATE
