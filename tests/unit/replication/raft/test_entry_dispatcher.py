"""What a leader sends to members of ours and of Java's, and how much of it."""

from maxq.protocol.dledger.dledger_messages import (
    DLedgerResponseCode,
    EntryRun,
    HeartBeatReply,
    HeartBeatRequest,
    PushReply,
    PushRequest,
    PushType,
)
from maxq.replication.raft.outputs import Role
from tests.unit.replication.raft.support import OneMember


def append(member: OneMember, count: int) -> None:
    first = member.ledger.end_index + 1
    for _ in range(count):
        member.ledger.append_own(member.node.term, b"x")
    member.node.appended(first, member.ledger.end_index, member.now)
    member.settle()


def join(member: OneMember, maxq: str | None) -> None:
    """n1 agrees with the leader's last entry of before."""
    member.elect(maxq)
    (compare,) = member.sent("n1", PushRequest)
    assert compare.type is PushType.COMPARE
    end = compare.entries[0].index
    member.reply_last(PushReply(term=compare.term, index=end, count=1, begin_index=0, end_index=end))


def acknowledge(member: OneMember, push: PushRequest) -> None:
    last = push.last_index
    member.reply_last(
        PushReply(term=push.term, index=push.first_index, count=push.count, begin_index=0, end_index=last)
    )


def test_nothing_is_pushed_before_the_follower_is_in_the_term() -> None:
    """S5: a Java member compares without a look at the term; its answer would count too much."""
    member = OneMember(1, 1)
    member.elect()
    assert member.sent("n2", PushRequest) == []
    member.sent("n2", HeartBeatRequest)
    member.reply_last(HeartBeatReply(code=DLedgerResponseCode.TERM_NOT_READY))
    assert member.sent("n2", PushRequest) == []
    member.at(member.now + 20)
    member.sent("n2", HeartBeatRequest)
    member.reply_last(HeartBeatReply())
    assert [push.type for push in member.sent("n2", PushRequest)] == [PushType.COMPARE]


def test_who_waits_for_an_answer_is_not_woken_to_send_nothing() -> None:
    """Its driver would turn in circles."""
    member = OneMember(1, 1)
    member.elect()
    (compare,) = member.sent("n1", PushRequest)
    for now in range(100, 3000, 50):
        member.at(now)
        if member.sent("n1", HeartBeatRequest):
            member.reply_last(HeartBeatReply(maxq="d1"))
    assert compare.type is PushType.COMPARE
    assert member.sent("n1", PushRequest) == []
    assert member.node.next_tick() > member.now


def test_ours_get_all_there_is_as_one_run() -> None:
    member = OneMember(1, 1)
    join(member, "d1")
    (barrier,) = member.sent("n1", PushRequest)
    assert barrier.run is not None
    acknowledge(member, barrier)
    append(member, 50)
    (push,) = member.sent("n1", PushRequest)
    assert (push.first_index, push.count, push.entries) == (3, 50, ())


def test_java_gets_entries_one_alone_or_a_batch() -> None:
    member = OneMember(1, 1, java_push_entries=20)
    join(member, None)
    (barrier,) = member.sent("n1", PushRequest)
    assert (barrier.is_batch, barrier.count, barrier.run) == (False, 1, None)
    append(member, 50)
    pushes = member.sent("n1", PushRequest)
    assert [(push.is_batch, push.first_index, push.count) for push in pushes] == [
        (True, 3, 20), (True, 23, 20), (True, 43, 10),
    ]  # fmt: skip


def test_no_more_pushes_on_their_way_than_the_window() -> None:
    member = OneMember(1, 1, push_window=3, max_push_bytes=64)
    join(member, "d1")
    append(member, 10)
    assert len(member.sent("n1", PushRequest)) == 3
    member.reply_last(None)
    assert member.sent("n1", PushRequest) == []


def test_acknowledgement_of_a_later_push_counts_for_those_before() -> None:
    member = OneMember(1, 1, max_push_bytes=64)
    join(member, "d1")
    append(member, 1)
    first, second = member.sent("n1", PushRequest)
    acknowledge(member, second)
    assert member.node.mark("n1") == second.last_index > first.last_index


def test_refused_push_leads_to_a_comparison() -> None:
    member = OneMember(1, 1)
    join(member, "d1")
    (push,) = member.sent("n1", PushRequest)
    member.reply_last(
        PushReply(term=push.term, code=DLedgerResponseCode.INCONSISTENT_STATE, index=2, begin_index=0, end_index=1)
    )
    (compare,) = member.sent("n1", PushRequest)
    assert (compare.type, compare.entries[0].index) == (PushType.COMPARE, 1)


def test_failed_push_leads_to_a_comparison_after_a_pause() -> None:
    member = OneMember(1, 1, retry_ms=70)
    join(member, "d1")
    member.sent("n1", PushRequest)
    member.reply_last(None)
    member.at(member.now + 69)
    assert member.sent("n1", PushRequest) == []
    member.at(member.now + 1)
    assert [push.type for push in member.sent("n1", PushRequest)] == [PushType.COMPARE]


def test_laggard_gets_its_share_of_a_second() -> None:
    member = OneMember(*([1] * 1500), peer_push_throttle_point=1000, peer_push_quota=200, push_window=100)
    ledger = member.ledger
    ledger.entries = lambda first, max_bytes: EntryRun.of(ledger.entry(first).encode())  # type: ignore[method-assign]
    member.elect()
    (compare,) = member.sent("n1", PushRequest)
    inconsistent = DLedgerResponseCode.INCONSISTENT_STATE
    member.reply_last(PushReply(term=2, code=inconsistent, index=1499, count=1, begin_index=0, end_index=10))
    member.sent("n1", PushRequest)
    member.reply_last(PushReply(term=2, index=10, count=1, begin_index=0, end_index=10))
    assert compare.type is PushType.COMPARE
    size = ledger.entry(11).size
    pushed: dict[int, list[int]] = {}
    for now in range(member.now, 2100, 10):
        member.at(now)
        if member.sent("n1", HeartBeatRequest):
            member.reply_last(HeartBeatReply(maxq="d1"))
        appends = [push for push in member.sent("n1", PushRequest) if push.type is PushType.APPEND]
        pushed |= {now: [push.first_index for push in appends]} if appends else {}
    share = -(-200 // size)
    assert pushed == {
        max(50, 1000 * second): [11 + share * second + number for number in range(share)] for second in range(3)
    }


def test_who_is_not_far_behind_gets_all_at_once() -> None:
    for lag, throttle in ((999, 0), (1500, 1 << 30)):
        member = OneMember(*([1] * 1500), peer_push_throttle_point=throttle, peer_push_quota=0, push_window=10_000)
        member.elect()
        member.sent("n1", PushRequest)
        end = 1500 - lag
        inconsistent = DLedgerResponseCode.INCONSISTENT_STATE
        member.reply_last(PushReply(term=2, code=inconsistent, index=1499, count=1, begin_index=0, end_index=end))
        member.sent("n1", PushRequest)
        member.reply_last(PushReply(term=2, index=end, count=1, begin_index=0, end_index=end))
        assert sum(push.count for push in member.sent("n1", PushRequest)) == 1500 - end


def test_peer_that_lost_what_it_acknowledged_no_longer_counts() -> None:
    """S11."""
    member = OneMember(1, 1)
    join(member, "d1")
    (barrier,) = member.sent("n1", PushRequest)
    acknowledge(member, barrier)
    assert member.node.mark("n1") == 2
    append(member, 1)
    member.sent("n1", PushRequest)
    refused = DLedgerResponseCode.INCONSISTENT_STATE
    member.reply_last(PushReply(term=2, code=refused, index=3, begin_index=0, end_index=0))
    member.sent("n1", PushRequest)
    member.reply_last(PushReply(term=2, code=refused, index=2, begin_index=0, end_index=0))
    assert member.node.mark("n1") == 0


def test_larger_term_in_a_refusal_ends_the_reign() -> None:
    member = OneMember(1, 1)
    join(member, "d1")
    member.sent("n1", PushRequest)
    member.reply_last(PushReply(term=9, code=DLedgerResponseCode.EXPIRED_TERM))
    assert (member.node.role, member.node.term) == (Role.CANDIDATE, 9)


def test_retention_spares_what_a_live_follower_lacks() -> None:
    member = OneMember(1, 1)
    join(member, "d1")
    (barrier,) = member.sent("n1", PushRequest)
    acknowledge(member, barrier)
    member.sync()
    assert (member.node.committed_index, member.node.retain_index) == (2, 2)
    append(member, 3)
    assert member.node.retain_index == 2


def compared(member: OneMember, begin: int, end: int) -> list[tuple[str, int]]:
    """What n1, whose log is begin..end and differs everywhere, is asked until it is told to cut."""
    asked: list[tuple[str, int]] = []
    for _ in range(20):
        pushes = member.sent("n1", PushRequest)
        asked += [(push.type.name, push.entries[0].index) for push in pushes]
        if not asked or asked[-1][0] != "COMPARE":
            break
        member.reply_last(
            PushReply(
                term=member.node.term,
                code=DLedgerResponseCode.INCONSISTENT_STATE,
                index=asked[-1][1],
                count=1,
                begin_index=begin,
                end_index=end,
            )
        )
    return asked


def test_logs_are_compared_where_both_have_entries() -> None:
    member = OneMember(*([1] * 10))
    member.elect()
    assert compared(member, begin=5, end=9) == [
        ("COMPARE", 9), ("COMPARE", 8), ("COMPARE", 6), ("COMPARE", 5), ("TRUNCATE", 0),
    ]  # fmt: skip


def test_a_follower_that_begins_with_the_leaders_last_entry_is_asked_for_that() -> None:
    member = OneMember(1, 1)
    member.elect()
    assert compared(member, begin=2, end=2) == [("COMPARE", 1), ("COMPARE", 2), ("TRUNCATE", 0)]


def test_a_follower_that_begins_behind_the_leaders_end_begins_anew() -> None:
    member = OneMember(1, 1)
    member.elect()
    assert compared(member, begin=3, end=9) == [("COMPARE", 1), ("TRUNCATE", 0)]


def test_what_was_acknowledged_is_not_cut_by_answers_that_crossed() -> None:
    member = OneMember(1, 1, retry_ms=70)
    join(member, "d1")
    (barrier,) = member.sent("n1", PushRequest)
    acknowledge(member, barrier)
    append(member, 1)
    member.sent("n1", PushRequest)
    refused = DLedgerResponseCode.INCONSISTENT_STATE
    member.reply_last(PushReply(term=2, code=refused, index=3, begin_index=0, end_index=2))
    assert compared(member, begin=50, end=60) == [("COMPARE", 2)]
    member.at(member.now + 69)
    assert member.sent("n1", PushRequest) == []
    member.at(member.now + 1)
    assert [push.type for push in member.sent("n1", PushRequest)] == [PushType.COMPARE]
