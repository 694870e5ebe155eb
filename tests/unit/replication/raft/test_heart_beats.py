"""A leader's hold on its group: check-quorum, lease, reads, transfer, limits."""

import pytest

from maxq.protocol.dledger.dledger_messages import (
    DLedgerResponseCode,
    HeartBeatReply,
    HeartBeatRequest,
    PushReply,
    PushRequest,
    TransferReply,
    TransferRequest,
    VoteReply,
    VoteRequest,
    VoteResult,
)
from maxq.replication.raft.outputs import Alarm, ReadReady, Role
from tests.unit.replication.raft.support import OneMember


def leader(**settings: object) -> OneMember:
    """Whose barrier is committed with n1."""
    member = OneMember(1, 1, **settings)
    member.elect()
    member.sent("n1", PushRequest)
    member.reply_last(PushReply(term=2, index=1, count=1, begin_index=0, end_index=1))
    member.sent("n1", PushRequest)
    member.reply_last(PushReply(term=2, index=2, count=1, begin_index=0, end_index=2))
    member.sync()
    assert member.node.committed_index == 2
    return member


def test_leader_that_no_quorum_answers_takes_no_appends_and_then_steps_down() -> None:
    member = leader()
    assert member.node.append_refusal(50) is None
    assert member.node.append_refusal(50 + 225) is None
    assert member.node.append_refusal(50 + 226) is DLedgerResponseCode.NOT_LEADER
    member.at(50 + 300)
    assert member.node.role is Role.LEADER
    member.at(50 + 301)
    assert (member.node.role, member.node.term) == (Role.CANDIDATE, 2)


def test_silent_member_does_not_matter_while_another_answers() -> None:
    member = leader()
    for now in range(100, 2000, 50):
        member.at(now)
        if member.sent("n1", HeartBeatRequest):
            member.reply_last(HeartBeatReply(maxq="d1"))
    assert member.node.append_refusal(2000) is None


def test_pending_limit() -> None:
    member = leader(max_pending_requests_num=3)
    for _ in range(3):
        member.ledger.append_own(2, b"x")
    assert member.node.append_refusal(60) is DLedgerResponseCode.LEADER_PENDING_FULL


def test_member_with_other_settings_is_told_once() -> None:
    member = leader()
    for now in (200, 300, 400):
        member.at(now)
        member.sent("n1", HeartBeatRequest)
        member.reply_last(HeartBeatReply(maxq="d2"))
    assert [alarm.text for alarm in member.all_of(Alarm)] == ["n1 has other settings: d2, here d1"]


def test_read_waits_for_a_heart_beat_that_was_sent_after_it() -> None:
    member = leader()
    member.at(160)
    assert member.sent("n1", HeartBeatRequest)
    before = member._last
    member.node.read_index("a", 160)
    member.node.read_index("b", 160)
    member.settle()
    member.node.reply(before, HeartBeatReply(maxq="d1"), 161)
    member.settle()
    assert member.all_of(ReadReady) == []
    member.sent("n1", HeartBeatRequest)
    member.reply_last(HeartBeatReply(maxq="d1"))
    assert [ready.token for ready in member.all_of(ReadReady)] == ["a"]
    member.sent("n1", HeartBeatRequest)  # the round that what came meanwhile shares
    member.reply_last(HeartBeatReply(maxq="d1"))
    assert [(ready.token, ready.index) for ready in member.all_of(ReadReady)] == [("a", 2), ("b", 2)]


def test_reads_of_a_leader_that_was_deposed_are_refused() -> None:
    member = leader()
    member.node.read_index("a", 60)
    member.follow("n1", 7)
    assert member.all_of(ReadReady) == [ReadReady("a", DLedgerResponseCode.NOT_LEADER, -1)]


def test_transfer_is_refused_by_the_rules_of_java() -> None:
    member = leader()

    def ask(transferee: str, term: int = 2, to: str = "n0") -> str:
        reply = member.ask(
            TransferRequest(group="g", remote_id="n0", term=term, transfer_id=to, transferee_id=transferee)
        )
        assert isinstance(reply, TransferReply)
        return reply.code.name

    assert ask("n7") == "UNKNOWN_MEMBER"
    assert ask("n1", term=1) == "INCONSISTENT_TERM"
    assert ask("n0") == "ILLEGAL_MEMBER_STATE"
    for _ in range(1000):
        member.ledger.append_own(2, b"x")
    assert ask("n1") == "FALL_BEHIND_TOO_MUCH"


def test_preferred_leader_gets_leadership_when_it_is_near() -> None:
    member = leader(preferred_leader_ids=("n1",))
    for now in range(100, 1200, 50):
        member.at(now)
        if member.sent("n1", HeartBeatRequest):
            member.reply_last(HeartBeatReply(maxq="d1"))
    (order,) = member.sent("n1", TransferRequest)
    assert order.take_leadership_ledger_index == 2
    assert member.node.append_refusal(member.now) is DLedgerResponseCode.LEADER_TRANSFERRING
    member.reply_last(None)  # it may have the order, and act on it at any time: this term is over
    assert member.node.role is Role.CANDIDATE
    assert member.node.append_refusal(member.now) is DLedgerResponseCode.NOT_LEADER


@pytest.mark.parametrize("code", [DLedgerResponseCode.ILLEGAL_MEMBER_STATE, DLedgerResponseCode.INCONSISTENT_TERM])
def test_a_leader_whose_transferee_refuses_the_order_leads_on(code: DLedgerResponseCode) -> None:
    member = leader()
    member.ask(TransferRequest(group="g", remote_id="n0", term=2, transfer_id="n0", transferee_id="n1"))
    assert member.sent("n1", TransferRequest)
    member.reply_last(TransferReply(group="g", term=2, code=code))
    assert member.node.append_refusal(member.now) is None


@pytest.mark.parametrize("code", [DLedgerResponseCode.SUCCESS, DLedgerResponseCode.TAKE_LEADERSHIP_FAILED])
def test_a_leader_whose_transferee_stood_for_election_promises_nothing_more(code: DLedgerResponseCode) -> None:
    """It was elected by the others; or their votes, which they give beside a living leader, may still be on the way."""
    member = leader()
    member.ask(TransferRequest(group="g", remote_id="n0", term=2, transfer_id="n0", transferee_id="n1"))
    assert member.sent("n1", TransferRequest)
    member.reply_last(TransferReply(group="g", term=2, code=code))
    assert member.node.role is Role.CANDIDATE
    assert member.node.promise_refusal(member.now) is DLedgerResponseCode.NOT_LEADER


def test_copies_of_an_order_to_lead_are_answered_as_the_order_itself() -> None:
    """A copy that was answered with a refusal would let the leader go on while the order is acted on."""
    member = OneMember(1, 2)
    member.follow("n1", 2)
    order = TransferRequest(
        group="g", remote_id="n0", term=2, transfer_id="n1", transferee_id="n0", take_leadership_ledger_index=2
    )
    assert member.ask(order) is None, "it waits for entry 2"
    assert member.ask(order) is None
    member.at(member.now + 2 * member.config.leadership_transfer_wait_timeout_ms)
    late = member.ask(order)
    codes = [reply.code for reply in (member.answer(2), member.answer(3), late) if isinstance(reply, TransferReply)]
    assert codes == [DLedgerResponseCode.TAKE_LEADERSHIP_FAILED] * 3


def test_who_is_ordered_to_lead_asks_for_votes_at_once_and_founds_nothing() -> None:
    member = OneMember(1, 2)
    member.follow("n1", 2)
    member.ask(
        TransferRequest(
            group="g", remote_id="n0", term=2, transfer_id="n1", transferee_id="n0", take_leadership_ledger_index=1
        )
    )
    for peer in ("n1", "n2"):
        (asked,) = member.sent(peer, VoteRequest)
        assert (asked.term, asked.ledger_end_index, asked.ledger_end_term) == (3, 1, 2)
        assert (asked.is_transfer, asked.is_pre_vote, asked.is_founding) == (True, False, False)
    member.reply_last(VoteReply(term=3, vote_result=VoteResult.ACCEPT))
    assert (member.node.role, member.node.term) == (Role.LEADER, 3)


def test_a_leader_promises_once_a_majority_has_answered_it_and_while_that_is_connected() -> None:
    """Votes are no answers, and who was started again since may vote for another one at once."""
    member = OneMember(1, 1)
    member.at(50)
    for _ in range(2):
        member.sent("n1", VoteRequest)
        member.reply_last(VoteReply(term=member.node.term, vote_result=VoteResult.ACCEPT))
    assert member.node.role is Role.LEADER
    assert member.node.promise_refusal(member.now) is DLedgerResponseCode.NOT_LEADER
    assert member.sent("n1", HeartBeatRequest)
    member.reply_last(HeartBeatReply(maxq="d1"))
    assert member.node.promise_refusal(member.now) is None
    member.node.peer_lost("n2", member.now)
    assert member.node.promise_refusal(member.now) is None
    member.node.peer_lost("n1", member.now)
    assert member.node.promise_refusal(member.now) is DLedgerResponseCode.NOT_LEADER
    member.at(member.now)
    assert member.sent("n1", HeartBeatRequest)  # it is asked at once
    member.reply_last(HeartBeatReply(maxq="d1"))
    assert member.node.promise_refusal(member.now) is None


def test_operators_see_where_a_member_stands() -> None:
    member = leader()
    assert member.node.status() == {
        "role": "LEADER", "term": "2", "leaderId": "n0", "votedFor": "n0", "ledgerBeginIndex": "0",
        "ledgerEndIndex": "2", "ledgerEndTerm": "2", "durableIndex": "2", "committedIndex": "2",
        "mark.n1": "2", "live.n1": "true", "mark.n2": "-1", "live.n2": "false",
    }  # fmt: skip
    member.node.room(False)
    assert member.node.status()["lacksRoom"] == "true"
    member.node.room(True)
    assert "lacksRoom" not in member.node.status()
    member.follow("n1", 7)
    member.ledger.amnesiac_until = 9
    status = member.node.status()
    assert (status["role"], status["leaderId"], status["votedFor"], status["amnesiacUntil"]) == (
        "FOLLOWER", "n1", "", "9",
    )  # fmt: skip
    assert not any(name.startswith(("mark.", "live.", "frozen", "lacksRoom")) for name in status)


@pytest.mark.parametrize(
    ("request_", "code", "term"),
    [
        (HeartBeatRequest(group="g", remote_id="n0", leader_id="n1", term=1), "EXPIRED_TERM", 2),
        (HeartBeatRequest(group="h", remote_id="n0", leader_id="n1", term=9), "UNKNOWN_GROUP", -1),
        (HeartBeatRequest(group="g", remote_id="n2", leader_id="n1", term=9), "UNKNOWN_MEMBER", -1),
        (HeartBeatRequest(group="g", remote_id="n0", leader_id="n7", term=9), "UNKNOWN_MEMBER", -1),
        (HeartBeatRequest(group="g", remote_id="n0", leader_id="n0", term=9), "UNEXPECTED_MEMBER", -1),
        (HeartBeatRequest(group="g", remote_id="n0", leader_id="n1", term=2), "INCONSISTENT_LEADER", -1),
    ],
)
def test_a_heart_beat_that_is_refused_is_told_why_and_a_term_only_if_its_own_is_over(
    request_: HeartBeatRequest, code: str, term: int
) -> None:
    member = leader()
    reply = member.ask(request_)
    assert isinstance(reply, HeartBeatReply)
    assert (reply.code.name, reply.term, reply.maxq, reply.group) == (code, term, "d1", "g")
    assert (member.node.role, member.node.term) == (Role.LEADER, 2)


def test_a_leader_is_known_as_javas_by_its_heart_beats_and_until_the_term_ends() -> None:
    """A member asks such a leader for its tables, and no other one."""
    member = OneMember(1, 1)
    assert not member.node.leader_is_java
    member.ask(PushRequest(group="g", remote_id="n0", leader_id="n1", term=2, commit_index=-1))
    assert member.node.leader_id == "n1" and not member.node.leader_is_java
    member.ask(HeartBeatRequest(group="g", remote_id="n0", leader_id="n1", term=2))
    assert member.node.leader_is_java
    member.ask(PushRequest(group="g", remote_id="n0", leader_id="n2", term=3, commit_index=-1))
    assert member.node.leader_id == "n2" and not member.node.leader_is_java
    member.ask(HeartBeatRequest(group="g", remote_id="n0", leader_id="n2", term=3, maxq="d1"))
    assert not member.node.leader_is_java
