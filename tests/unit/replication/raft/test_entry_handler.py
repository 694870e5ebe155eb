"""A follower and the pushes of leaders, ours and Java's."""

from errno import EIO, ENOSPC

import pytest

from maxq.errors import LedgerMismatchError
from maxq.protocol.dledger.dledger_messages import (
    DLedgerResponseCode,
    HeartBeatReply,
    HeartBeatRequest,
    PushReply,
    PushType,
    Reply,
)
from maxq.protocol.dledger.ledger import HardState
from maxq.replication.raft.outputs import Alarm, Commit, Role, StoreTerm
from tests.unit.replication.raft.support import OneMember, log

APPEND, COMMIT, COMPARE, TRUNCATE = PushType.APPEND, PushType.COMMIT, PushType.COMPARE, PushType.TRUNCATE


def code_of(reply: Reply | None) -> str:
    assert isinstance(reply, PushReply)
    return reply.code.name


def matched(*terms: int, committed: int = -1) -> OneMember:
    """A follower of n1 in term 9 whose log was compared with n1's."""
    member = OneMember(*terms, committed=committed)
    member.follow("n1", 9)
    assert code_of(member.push(COMPARE, log(*terms)[-1], term=9)) == "SUCCESS"
    return member


def test_append_is_acknowledged_when_it_is_durable() -> None:
    member = matched(1, 1)
    entries = log(1, 1, 9, 9)
    assert member.push(APPEND, *entries[2:], term=9) is None
    member.sync()
    reply = member.answer(3)
    assert isinstance(reply, PushReply)
    assert (reply.code.value, reply.index, reply.count, reply.begin_index, reply.end_index) == (200, 2, 2, 0, 3)


@pytest.mark.parametrize("kind", PushType)
def test_push_of_an_older_term_is_refused_with_ours(kind: PushType) -> None:
    member = OneMember(1, 1, state=HardState(5))
    reply = member.push(kind, *(log(1, 1)[1:] if kind is not COMMIT else ()), term=4, commit=1)
    assert isinstance(reply, PushReply)
    assert (reply.code, reply.term) == (DLedgerResponseCode.EXPIRED_TERM, 5)
    assert member.all_of(Commit) == []


@pytest.mark.parametrize("kind", PushType)
def test_push_of_a_later_term_is_followed(kind: PushType) -> None:
    member = OneMember(1, 1, state=HardState(5))
    member.push(kind, *(log(1, 1)[1:] if kind is not COMMIT else ()), term=7)
    assert (member.node.role, member.node.term, member.node.leader_id) == (Role.FOLLOWER, 7, "n1")
    assert [store.state for store in member.all_of(StoreTerm)] == [HardState(7)]


@pytest.mark.parametrize("kind", [APPEND, COMPARE, TRUNCATE])
def test_entries_of_a_later_term_than_their_leader_s_are_refused(kind: PushType) -> None:
    """The log's last term is the member's own at its next start: it would be beyond all elections."""
    member = matched(1, 1)
    assert code_of(member.push(kind, *log(1, 1, 10)[2:], term=9)) == "UNEXPECTED_ARGUMENT"
    assert member.node.status()["ledgerEndTerm"] == "1"


def test_second_leader_of_a_term_is_refused() -> None:
    member = matched(1, 1)
    assert code_of(member.push(COMPARE, log(1, 1)[1], term=9, leader="n2")) == "INCONSISTENT_LEADER"
    reply = member.ask(HeartBeatRequest(group="g", remote_id="n0", leader_id="n2", term=9))
    assert isinstance(reply, HeartBeatReply)
    assert reply.code is DLedgerResponseCode.INCONSISTENT_LEADER


def test_append_behind_a_log_that_was_not_compared_is_refused() -> None:
    member = OneMember(1, 1)
    member.follow("n1", 9)
    assert code_of(member.push(APPEND, log(1, 1, 9)[2], term=9)) == "INCONSISTENT_STATE"


def test_commit_point_counts_up_to_what_was_matched() -> None:
    member = OneMember(1, 1, 1)
    member.follow("n1", 9)
    member.push(COMMIT, term=9, commit=2)
    assert member.all_of(Commit) == []
    member.push(COMPARE, log(1, 1, 1)[1], term=9, commit=2)
    assert member.all_of(Commit) == [Commit(1)]


def test_commit_point_counts_up_to_what_is_durable_here() -> None:
    member = matched(1, 1)
    member.push(APPEND, log(1, 1, 9)[2], term=9, commit=2)
    assert member.all_of(Commit) == [Commit(1)]
    member.sync()
    assert member.all_of(Commit) == [Commit(1), Commit(2)]


def test_partial_overlap_is_taken_for_what_is_new() -> None:
    member = matched(1, 1)
    assert member.push(APPEND, *log(1, 1, 9, 9)[1:], term=9) is None
    assert member.ledger.end_index == 3


def test_repeated_push_is_acknowledged_again() -> None:
    member = matched(1, 1)
    member.push(APPEND, log(1, 1, 9)[2], term=9)
    member.sync()
    assert code_of(member.push(APPEND, log(1, 1, 9)[2], term=9)) == "SUCCESS"


def test_same_push_twice_in_the_buffer_answers_the_first() -> None:
    member = matched(1, 1)
    assert member.push(APPEND, log(1, 1, 9, 9)[3], term=9) is None
    assert member.push(APPEND, log(1, 1, 9, 9)[3], term=9) is None
    assert code_of(member.answer(3)) == "REPEATED_PUSH"


def test_buffer_is_answered_when_another_leader_comes() -> None:
    member = matched(1, 1)
    member.push(APPEND, log(1, 1, 9, 9)[3], term=9)
    member.follow("n2", 10)
    reply = member.answer(3)
    assert isinstance(reply, PushReply)
    assert (reply.code, reply.term) == (DLedgerResponseCode.EXPIRED_TERM, 10)


def test_what_waits_for_the_disk_is_not_acknowledged_in_the_next_term() -> None:
    member = matched(1, 1)
    member.push(APPEND, log(1, 1, 9)[2], term=9)
    member.follow("n2", 10)
    member.sync()
    assert code_of(member.answer(3)) == "EXPIRED_TERM"


def test_push_that_waited_too_long_for_those_before_it_is_refused() -> None:
    member = OneMember(1, 1, buffered_push_overdue_ms=100)
    member.follow("n1", 9)
    member.push(COMPARE, log(1, 1)[1], term=9)
    assert member.push(APPEND, log(1, 1, 9, 9)[3], term=9) is None
    assert member.node.next_tick() == 100
    member.at(99)
    assert member.answer(3) is None
    member.at(100)
    assert code_of(member.answer(3)) == "INCONSISTENT_STATE"


@pytest.mark.parametrize(("maxq", "code"), [("d1", "SUCCESS"), (None, "INCONSISTENT_STATE")])
def test_log_that_was_compared_is_not_compared_again_when_the_same_leader_of_ours_is_heard_again(
    maxq: str | None, code: str
) -> None:
    """Java's may lead a term again after it has lost a part of its log."""
    member = OneMember(1, 1)
    member.follow("n1", 9, maxq)
    member.push(COMPARE, log(1, 1)[1], term=9)
    member.at(member.now + 10_000)
    assert (member.node.role, member.node.leader_id, member.node.term) == (Role.CANDIDATE, None, 9)
    member.follow("n1", 9, maxq)
    member.push(APPEND, log(1, 1, 9)[2], term=9)
    member.sync()
    assert code_of(member.answer(4)) == code


def test_full_buffer_refuses() -> None:
    member = OneMember(1, 1, max_buffered_pushes=1)
    member.follow("n1", 9)
    member.push(COMPARE, log(1, 1)[1], term=9)
    entries = log(1, 1, 9, 9, 9)
    assert member.push(APPEND, entries[3], term=9) is None
    assert code_of(member.push(APPEND, entries[4], term=9)) == "INCONSISTENT_STATE"


def test_truncate_makes_an_equal_entry_the_last() -> None:
    member = OneMember(1, 1, 1, 1)
    member.follow("n1", 9)
    reply = member.push(TRUNCATE, log(1, 1, 1, 1)[1], term=9)
    assert isinstance(reply, PushReply)
    assert (reply.code.value, reply.end_index, member.ledger.end_index) == (200, 1, 1)


def test_old_order_to_truncate_spares_what_was_matched_since() -> None:
    member = matched(1, 1)
    member.push(APPEND, *log(1, 1, 9, 9)[2:], term=9)
    member.sync()
    member.push(TRUNCATE, log(1, 1)[0], term=9)
    assert member.ledger.end_index == 3


def test_truncate_replaces_the_first_entry_that_differs() -> None:
    member = matched(1, 1)
    member.ledger.append_own(1, b"other")
    assert member.push(TRUNCATE, log(1, 1, 9)[2], term=9) is None
    member.sync()
    assert (member.ledger.end_index, member.ledger.term_of(2)) == (2, 9)


def test_committed_entry_is_not_replaced_and_the_member_elects_no_more() -> None:
    """S8."""
    member = OneMember(1, 1, 2, committed=2)
    member.follow("n1", 9)
    assert code_of(member.push(TRUNCATE, log(1, 1, 3)[2], term=9)) == "INCONSISTENT_STATE"
    assert member.ledger.term_of(2) == 2
    assert len(member.all_of(Alarm)) == 1
    assert member.node.status()["frozen"] == "true"
    member.at(100_000)
    assert (member.node.role, member.node.term) == (Role.CANDIDATE, 9)


def test_log_begins_anew_where_the_leaders_does() -> None:
    member = OneMember(1, 1)
    member.follow("n1", 9)
    assert member.push(TRUNCATE, log(1, 1, 1, 1, 1)[4], term=9, commit=4) is None
    member.sync()
    assert (member.ledger.begin_index, member.ledger.end_index) == (4, 4)
    assert member.all_of(Commit) == [Commit(4)]


def test_a_member_without_entries_begins_where_the_leaders_log_does() -> None:
    member = OneMember()
    member.follow("n1", 9)
    assert member.push(TRUNCATE, log(1, 1, 1, 1, 1)[4], term=9, commit=4) is None
    member.sync()
    assert (member.ledger.begin_index, member.ledger.end_index) == (4, 4)


def test_a_log_whose_first_entry_is_another_one_begins_anew() -> None:
    member = OneMember(1, 1)
    member.follow("n1", 9)
    assert member.push(TRUNCATE, log(2)[0], term=9) is None
    member.sync()
    assert (member.ledger.begin_index, member.ledger.end_index, member.ledger.term_of(0)) == (0, 0, 2)


def test_entries_at_other_positions_are_refused_with_an_alarm() -> None:
    """Members with other file sizes (S18)."""
    member = matched(1, 1)
    entry = log(1, 1, 9)[2]
    moved = type(entry)(size=entry.size, index=2, term=9, pos=entry.pos + 8, body=entry.body)
    assert code_of(member.push(APPEND, moved, term=9)) == "INCONSISTENT_STATE"
    assert len(member.all_of(Alarm)) == 1


def test_java_batch_across_two_files_is_taken() -> None:
    """Positions jump where the filler is; the ledger judges them."""
    member = matched(1, 1)
    third, fourth = log(1, 1, 9, 9)[2:]
    assert member.push(APPEND, third, fourth, term=9) is None
    gap = type(fourth)(size=fourth.size, index=4, term=9, pos=fourth.pos + fourth.size + 100, body=fourth.body)
    assert code_of(member.push(APPEND, gap, term=9)) == "INCONSISTENT_STATE"


def test_push_without_entries_is_refused() -> None:
    assert code_of(matched(1, 1).push(APPEND, term=9)) == "UNEXPECTED_ARGUMENT"


def test_who_forgot_entries_acknowledges_what_is_committed_without_it() -> None:
    """S10: pushes are taken, and said to be there only when they need no vote of this member any more."""
    member = OneMember(1, 1)
    member.ledger.amnesiac_until = 3
    member.follow("n1", 9)
    reply = member.push(COMPARE, log(1, 1)[1], term=9, commit=0)
    assert isinstance(reply, PushReply)
    assert (reply.code.name, reply.end_index) == ("INCONSISTENT_STATE", 0)
    assert code_of(member.push(COMPARE, log(1, 1)[0], term=9, commit=0)) == "SUCCESS"
    assert member.push(APPEND, *log(1, 1, 9, 9)[1:], term=9, commit=0) is None
    member.sync()
    assert member.answer(4) is None
    member.push(COMMIT, term=9, commit=3)
    assert code_of(member.answer(4)) == "SUCCESS"
    assert member.ledger.amnesiac_until == -1


def test_full_disk_is_told_to_the_leader_and_stops_nobody() -> None:
    member = matched(1, 1)

    def refuse(run: object) -> int:
        raise OSError(ENOSPC, "no room")

    member.ledger.append_entries = refuse  # type: ignore[method-assign]
    assert code_of(member.push(APPEND, log(1, 1, 9)[2], term=9)) == "DISK_FULL"
    del member.ledger.append_entries  # type: ignore[method-assign]
    assert member.push(APPEND, log(1, 1, 9)[2], term=9) is None
    member.sync()
    assert code_of(member.answer(4)) == "SUCCESS"


def test_cut_for_which_a_full_disk_has_no_room_is_refused_and_taken_later() -> None:
    member = OneMember(1, 1, 1, 1)
    member.follow("n1", 9)

    def refuse(index: int) -> None:
        raise OSError(ENOSPC, "no room")

    member.ledger.truncate = refuse  # type: ignore[method-assign]
    reply = member.push(TRUNCATE, log(1, 1, 1, 1)[1], term=9)
    assert code_of(reply) == "DISK_FULL"
    assert isinstance(reply, PushReply)
    assert (reply.term, reply.index, reply.count, reply.begin_index, reply.end_index) == (9, 1, 1, 0, 3)
    del member.ledger.truncate  # type: ignore[method-assign]
    assert code_of(member.push(TRUNCATE, log(1, 1, 1, 1)[1], term=9)) == "SUCCESS"
    assert member.ledger.end_index == 1


@pytest.mark.parametrize(
    ("error", "code", "alarms"),
    [
        (OSError(ENOSPC, "no room"), "DISK_FULL", 0),
        (LedgerMismatchError("not there", index=4), "INCONSISTENT_STATE", 1),
    ],
)
def test_log_that_cannot_begin_where_the_leaders_does_says_why(error: Exception, code: str, alarms: int) -> None:
    member = OneMember(1, 1)
    member.follow("n1", 9)

    def refuse(index: int, position: int) -> None:
        raise error

    member.ledger.reset = refuse  # type: ignore[method-assign]
    assert code_of(member.push(TRUNCATE, log(1, 1, 1, 1, 1)[4], term=9)) == code
    assert len(member.all_of(Alarm)) == alarms
    assert member.ledger.end_index == 1


def test_disk_that_fails_otherwise_stops_the_member() -> None:
    member = matched(1, 1)

    def refuse(run: object) -> int:
        raise OSError(EIO, "bad sector")

    member.ledger.append_entries = refuse  # type: ignore[method-assign]
    with pytest.raises(OSError, match="bad sector"):
        member.push(APPEND, log(1, 1, 9)[2], term=9)
