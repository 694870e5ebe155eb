"""Votes by the table of dledger.md §8.1, and standing for election beside members of Java's."""

from collections.abc import Mapping
from typing import Any

import pytest

from maxq.protocol.dledger.dledger_messages import DLedgerResponseCode, VoteReply, VoteRequest, VoteResult
from maxq.protocol.dledger.ledger import HardState
from maxq.replication.raft.outputs import Alarm, Role, StoreTerm
from tests.unit.replication.raft.support import OneMember


def vote_request(term: int, end_term: int = 3, end_index: int = 2, candidate: str = "n1", **more: Any) -> VoteRequest:
    facts: Mapping[str, Any] = {"group": "g", "remote_id": "n0", **more}
    return VoteRequest(leader_id=candidate, term=term, ledger_end_term=end_term, ledger_end_index=end_index, **facts)


def vote(member: OneMember, request: VoteRequest) -> tuple[VoteResult, int]:
    reply = member.ask(request)
    assert isinstance(reply, VoteReply)
    return reply.vote_result, reply.term


@pytest.mark.parametrize(
    ("request_", "result"),
    [
        (vote_request(5, candidate="n9"), VoteResult.REJECT_UNKNOWN_LEADER),
        (vote_request(5, candidate="n0"), VoteResult.REJECT_UNEXPECTED_LEADER),
        (vote_request(5, end_term=2, end_index=9), VoteResult.REJECT_EXPIRED_LEDGER_TERM),
        (vote_request(5, end_index=1), VoteResult.REJECT_SMALL_LEDGER_END_INDEX),
        (vote_request(3), VoteResult.REJECT_EXPIRED_VOTE_TERM),
        (vote_request(4), VoteResult.ACCEPT),
    ],
)
def test_table(request_: VoteRequest, result: VoteResult) -> None:
    assert vote(OneMember(3, 3, 3, state=HardState(4)), request_) == (result, 4)


def test_rows_of_wrong_addressees_come_first_and_echo_the_term() -> None:
    member = OneMember(3, state=HardState(4))
    for wrong, code in (({"group": "x"}, DLedgerResponseCode.UNKNOWN_GROUP),
                        ({"remote_id": "n2"}, DLedgerResponseCode.UNKNOWN_MEMBER)):  # fmt: skip
        reply = member.ask(vote_request(9, **wrong))
        assert isinstance(reply, VoteReply)
        assert (reply.code, reply.vote_result, reply.term) == (code, VoteResult.UNKNOWN, 9)


def test_one_vote_a_term_the_same_candidate_again_is_no_other() -> None:
    member = OneMember(3, 3, 3, state=HardState(4))
    assert vote(member, vote_request(4, candidate="n1")) == (VoteResult.ACCEPT, 4)
    assert vote(member, vote_request(4, candidate="n2")) == (VoteResult.REJECT_ALREADY_VOTED, 4)
    assert vote(member, vote_request(4, candidate="n1")) == (VoteResult.ACCEPT, 4)
    assert [store.state for store in member.all_of(StoreTerm)] == [HardState(4, "n1")]


def test_who_follows_says_so() -> None:
    member = OneMember(3, 3, 3, state=HardState(4))
    member.follow("n1", 4)
    assert vote(member, vote_request(4, candidate="n2")) == (VoteResult.REJECT_ALREADY_HAS_LEADER, 4)
    assert vote(member, vote_request(4, candidate="n2", is_pre_vote=True))[0] is VoteResult.REJECT_ALREADY_HAS_LEADER


def test_who_follows_elects_nobody_else_in_a_later_term_either() -> None:
    """The leader may speak for the group for as long as its followers' answers say; a probe may be older than those."""
    member = OneMember(3, 3, 3, state=HardState(4))
    member.follow("n1", 4)
    # Not "has a leader": a candidate of Java's gives up then, before the vote of the leader that hands over comes
    assert vote(member, vote_request(5, candidate="n2")) == (VoteResult.UNKNOWN, 4)
    assert member.all_of(StoreTerm) == []
    assert vote(member, vote_request(5, candidate="n1")) == (VoteResult.ACCEPT, 5)  # it has given up by itself
    member.follow("n1", 5)
    assert vote(member, vote_request(6, candidate="n2", is_transfer=True)) == (VoteResult.ACCEPT, 6)


@pytest.mark.parametrize("is_probe", [True, False])
def test_an_answer_from_before_it_followed_does_not_end_what_it_answered_its_leader(is_probe: bool) -> None:
    """n2 stood on this member's word while n1 was elected: its later term comes as the answer to an old question."""
    member = OneMember(3, 3, 3, state=HardState(4))
    member.at(50)
    member.sent("n2", VoteRequest)
    if not is_probe:
        old = member._last
        member.sent("n1", VoteRequest)
        member.reply_last(VoteReply(term=4, vote_result=VoteResult.ACCEPT))
        assert member.sent("n2", VoteRequest)
        assert member._last != old
    late = member._last
    term = member.node.term
    member.follow("n1", term)
    member.node.reply(late, VoteReply(term=term + 1, vote_result=VoteResult.REJECT_EXPIRED_VOTE_TERM), member.now)
    member.settle()
    assert (member.node.role, member.node.term, member.node.leader_id) == (Role.FOLLOWER, term, "n1")
    assert vote(member, vote_request(term + 1, candidate="n2")) == (VoteResult.UNKNOWN, term)


def test_who_was_started_elects_nobody_until_a_leader_that_it_answered_before_is_sure_no_more() -> None:
    member = OneMember(3, 3, 3, state=HardState(4), began=0)
    for is_probe in (True, False):
        assert vote(member, vote_request(5, is_pre_vote=is_probe)) == (VoteResult.UNKNOWN, 4)
    member.at(299)
    assert not member.sent("n1", VoteRequest)  # nor does it stand
    handed = OneMember(3, 3, 3, state=HardState(4), began=0)
    assert vote(handed, vote_request(5, is_transfer=True)) == (VoteResult.ACCEPT, 5)
    member.at(300)
    assert member.sent("n1", VoteRequest)
    assert vote(member, vote_request(5, is_pre_vote=True))[0] is VoteResult.ACCEPT
    assert vote(member, vote_request(5)) == (VoteResult.ACCEPT, 5)


def test_who_was_started_and_heard_a_leader_elects_as_others_do() -> None:
    member = OneMember(3, 3, 3, state=HardState(4), began=0)
    member.follow("n1", 4)
    member.node.peer_lost("n1", 10)
    assert vote(member, vote_request(5, candidate="n2")) == (VoteResult.ACCEPT, 5)


def test_members_of_a_new_group_have_answered_nobody() -> None:
    assert vote(OneMember(began=0), vote_request(1, 0, -1)) == (VoteResult.ACCEPT, 1)


def test_later_term_and_vote_are_stored_in_one_step_and_before_the_answer() -> None:
    member = OneMember(3, 3, 3, state=HardState(4))
    member.node.request(1, vote_request(7), 0)
    (store,) = [output for output in member.node.take() if isinstance(output, StoreTerm)]
    assert store.state == HardState(7, "n1")
    assert member.node.take() == []
    member.node.term_stored(store.state, 0)
    member.settle()
    assert member.answer(1) == VoteReply(
        group="g", remote_id="n0", leader_id="n1", term=7, vote_result=VoteResult.ACCEPT
    )


def test_term_that_had_its_leader_is_not_led_again() -> None:
    """S4: a Java candidate asks in its old term first; its log and ours end in that term."""
    member = OneMember(3, 3, 3, state=HardState(3, "n1"))
    assert vote(member, vote_request(3, candidate="n1", end_index=5)) == (VoteResult.REJECT_ALREADY_VOTED, 3)


def test_probe_changes_nothing() -> None:
    member = OneMember(3, 3, 3, state=HardState(4))
    assert vote(member, vote_request(6, is_pre_vote=True)) == (VoteResult.ACCEPT, 4)
    assert member.all_of(StoreTerm) == []
    assert vote(member, vote_request(4, candidate="n2")) == (VoteResult.ACCEPT, 4)


def test_member_that_lost_its_log_abstains_and_does_not_stand() -> None:
    member = OneMember(3, 3, 3)
    member.ledger.amnesiac_until = 9
    assert vote(member, vote_request(9, end_index=20)) == (VoteResult.UNKNOWN, 3)
    member.at(5000)
    assert member.sent("n1", VoteRequest) == []


def test_member_without_anything_elects_only_where_all_logs_are_empty() -> None:
    """Its disk may have been replaced: a member with a log, or one that is away, may have what it acknowledged."""
    member = OneMember()
    member.ledger.amnesiac_until = 0
    for is_pre_vote in (True, False):
        request = vote_request(9, end_index=20, is_pre_vote=is_pre_vote)
        assert vote(member, request) == (VoteResult.UNKNOWN, 0)
    request = vote_request(1, end_index=-1, end_term=-1)
    assert vote(member, request) == (VoteResult.UNKNOWN, 0), "the third member's log is not known"
    assert member.ledger.amnesiac_until == 0
    request = vote_request(1, end_index=-1, end_term=-1, is_founding=True)
    assert vote(member, request) == (VoteResult.ACCEPT, 1)
    assert member.ledger.amnesiac_until == -1, "they have founded the group together"


def test_members_without_anything_found_a_group_when_all_have_answered() -> None:
    member = OneMember()
    member.ledger.amnesiac_until = 0
    member.at(5000)
    (probe, *_) = member.sent("n1", VoteRequest)
    assert (probe.ledger_end_index, probe.is_pre_vote, probe.is_founding) == (-1, True, False)
    member.reply_last(VoteReply(term=0, vote_result=VoteResult.ACCEPT))
    assert member.sent("n1", VoteRequest) == [], "the other member has not answered yet"
    assert member.ledger.amnesiac_until == 0
    assert len(member.sent("n2", VoteRequest)) == 1
    member.reply_last(VoteReply(term=0, vote_result=VoteResult.ACCEPT))
    (real,) = member.sent("n1", VoteRequest)
    assert (real.term, real.is_pre_vote, real.is_founding) == (1, False, True)
    assert member.ledger.amnesiac_until == -1


@pytest.mark.parametrize("answer", [None, VoteResult.REJECT_SMALL_LEDGER_END_INDEX], ids=["is away", "has a log"])
def test_two_members_without_anything_found_no_group_beside_a_third(answer: VoteResult | None) -> None:
    """Both may have lost their disks while the third one, which has what they acknowledged, is down."""
    member = OneMember()
    member.ledger.amnesiac_until = 0
    for now in range(50, 30_000, 50):
        member.at(now)
        if member.sent("n1", VoteRequest):
            member.reply_last(VoteReply(term=0, vote_result=VoteResult.ACCEPT))
        if member.sent("n2", VoteRequest) and answer is not None:
            member.reply_last(VoteReply(term=0, vote_result=answer))
    assert (member.node.term, member.ledger.amnesiac_until) == (0, 0)
    alarms = [alarm.text for alarm in member.all_of(Alarm)]
    if answer is None:
        assert len(alarms) == 1
        assert "n2 did not answer" in alarms[0]
    else:
        assert alarms == []


def test_founders_that_lost_their_first_leader_elect_another() -> None:
    """No entry was appended before the leader ended; those that voted for it are no new members any more."""
    member = OneMember(state=HardState(1, "n2"))
    for now in range(50, 30_000, 50):
        member.at(now)
        if member.sent("n1", VoteRequest):
            member.reply_last(VoteReply(term=member.node.term, vote_result=VoteResult.ACCEPT))
        if member.node.role is Role.LEADER:
            break
    assert (member.node.role, member.node.term) == (Role.LEADER, 2)


@pytest.mark.parametrize(
    "answer",
    [VoteResult.ACCEPT, VoteResult.REJECT_TERM_NOT_READY, VoteResult.REJECT_ALREADY_VOTED],
    ids=lambda result: result.name,
)
def test_java_answers_to_a_probe_that_promise_a_vote(answer: VoteResult) -> None:
    member = OneMember(3, 3, 3, state=HardState(4))
    member.at(50)
    (probe,) = member.sent("n1", VoteRequest)
    assert (probe.term, probe.is_pre_vote) == (4, True)
    member.reply_last(VoteReply(term=4, vote_result=answer))
    (real,) = member.sent("n1", VoteRequest)
    assert (real.term, real.is_pre_vote) == (5, False)


@pytest.mark.parametrize(
    "answer",
    [VoteResult.REJECT_ALREADY_HAS_LEADER, VoteResult.REJECT_SMALL_LEDGER_END_INDEX, VoteResult.UNKNOWN],
    ids=lambda result: result.name,
)
def test_answers_after_which_the_term_is_not_raised(answer: VoteResult) -> None:
    member = OneMember(3, 3, 3, state=HardState(4))
    for now in range(50, 5000, 50):
        member.at(now)
        for peer in ("n1", "n2"):
            if member.sent(peer, VoteRequest):
                member.reply_last(VoteReply(term=4, vote_result=answer))
    assert member.node.term == 4


def test_java_member_that_is_not_in_the_term_yet_is_asked_again() -> None:
    member = OneMember(3, 3, 3, state=HardState(4))
    member.at(50)
    member.sent("n1", VoteRequest)
    member.reply_last(VoteReply(term=4, vote_result=VoteResult.ACCEPT))
    member.sent("n1", VoteRequest)
    member.reply_last(VoteReply(term=4, vote_result=VoteResult.REJECT_TERM_NOT_READY))
    member.at(member.node.next_tick())
    (again,) = member.sent("n1", VoteRequest)
    assert again.term == 5
    member.reply_last(VoteReply(term=5, vote_result=VoteResult.ACCEPT))
    assert member.node.role is Role.LEADER


def test_larger_term_in_an_answer_is_taken_at_once() -> None:
    member = OneMember(3, 3, 3, state=HardState(4))
    member.at(50)
    member.sent("n1", VoteRequest)
    member.reply_last(VoteReply(term=8, vote_result=VoteResult.REJECT_EXPIRED_VOTE_TERM))
    assert (member.node.term, member.node.role) == (8, Role.CANDIDATE)


def test_single_member_leads_when_its_vote_is_stored() -> None:
    member = OneMember(peers=("n0",))
    member.at(50)
    assert member.node.role is Role.LEADER
    assert member.node.committed_index == -1
    member.sync()
    assert member.node.committed_index == 0


def test_java_leader_is_given_up_after_java_s_time() -> None:
    for maxq, patience in (("d1", 300), (None, 600)):
        member = OneMember(3, 3, 3, state=HardState(4))
        member.follow("n1", 4, maxq)
        member.at(patience)
        assert member.node.role is Role.FOLLOWER
        member.at(patience + 1)
        assert member.node.role is Role.CANDIDATE


def wait_after(*answers: VoteResult, has_room: bool = True) -> int:
    """How long n0 waits when n1 and n2 have answered its probe so; what is drawn is the same each time."""
    member = OneMember(1, 1)
    member.at(50)
    member.node.room(has_room)
    for peer, answer in zip(("n1", "n2"), answers, strict=True):
        member.sent(peer, VoteRequest)
        member.reply_last(VoteReply(term=member.node.term, vote_result=answer))
    assert (member.node.role, member.node.term) == (Role.CANDIDATE, 1)
    return member.node.next_tick() - member.now


def test_who_has_lost_lets_those_with_longer_logs_and_a_leader_go_first() -> None:
    lost = VoteResult.REJECT_EXPIRED_VOTE_TERM
    usual = wait_after(lost, lost)
    assert wait_after(lost, lost, has_room=False) == usual + 100, "its disk is full"
    for behind in (VoteResult.REJECT_SMALL_LEDGER_END_INDEX, VoteResult.REJECT_EXPIRED_LEDGER_TERM):
        assert wait_after(lost, behind) == wait_after(behind, behind) == usual + 100
    led = VoteResult.REJECT_ALREADY_HAS_LEADER
    assert wait_after(lost, led) == wait_after(led, led) == usual + 100
    assert wait_after(VoteResult.REJECT_SMALL_LEDGER_END_INDEX, led) == usual + 200
