"""A leader whose disk takes nothing: who leads in its place, and when nobody does."""

from maxq.protocol.dledger.dledger_messages import (
    DLedgerResponseCode,
    HeartBeatReply,
    HeartBeatRequest,
    PushReply,
    PushRequest,
    PushType,
    TransferReply,
    TransferRequest,
    VoteRequest,
)
from maxq.replication.raft.outputs import Alarm
from tests.unit.replication.raft.support import OneMember


def leader() -> OneMember:
    member = OneMember(1, 1)
    member.elect()
    member.sync()
    member.node.room(False)
    return member


def live(member: OneMember, *peers: str, until: int, is_refused: bool = False) -> dict[str, list[TransferRequest]]:
    """Time passes, and `peers` answer heart-beats; the orders to lead, by who got them."""
    orders: dict[str, list[TransferRequest]] = {"n1": [], "n2": []}
    for now in range(member.now + 50, until, 50):
        member.at(now)
        for peer in ("n1", "n2"):
            sent = member.sent(peer, HeartBeatRequest)
            if sent and peer in peers:
                member.reply_last(HeartBeatReply(maxq="d1"))
            found = member.sent(peer, TransferRequest)
            orders[peer] += found
            if found and is_refused:
                member.reply_last(TransferReply(group="g", term=2, code=DLedgerResponseCode.ILLEGAL_MEMBER_STATE))
    return orders


def alarms(member: OneMember) -> list[str]:
    return [alarm.text for alarm in member.all_of(Alarm)]


def test_leadership_is_offered_to_one_of_two_members_that_follow_and_the_operator_hears_of_it() -> None:
    member = leader()
    orders = live(member, "n1", "n2", until=1300)
    assert [len(orders["n1"]), len(orders["n2"])] in ([1, 0], [0, 1])
    assert len(alarms(member)) == 1
    assert "disk takes nothing, 2 others have room: the leadership is offered to n" in alarms(member)[0]


def test_leader_stays_if_the_others_are_no_majority_without_it() -> None:
    member = leader()
    assert live(member, "n1", until=3000) == {"n1": [], "n2": []}


def test_follower_whose_disk_is_full_too_is_no_successor() -> None:
    member = leader()
    member.at(60)
    (compare,) = member.sent("n1", PushRequest)
    assert compare.type is PushType.COMPARE
    member.reply_last(PushReply(group="g", term=2, code=DLedgerResponseCode.SUCCESS, begin_index=0, end_index=1))
    (append,) = member.sent("n1", PushRequest)
    assert append.type is PushType.APPEND
    member.reply_last(PushReply(group="g", term=2, code=DLedgerResponseCode.DISK_FULL, begin_index=0, end_index=1))
    assert live(member, "n1", "n2", until=3000) == {"n1": [], "n2": []}


def test_who_refuses_is_asked_again_after_the_other_one() -> None:
    member = leader()
    asked = []
    for second in range(1, 5):
        orders = live(member, "n1", "n2", until=1000 * second + 700, is_refused=True)  # its barrier is not committed
        asked += [peer for peer, sent in orders.items() if sent]
    assert asked in (["n1", "n2", "n1", "n2"], ["n2", "n1", "n2", "n1"])
    assert len(alarms(member)) == 1


def test_member_without_room_refuses_to_lead_and_takes_it_when_it_has_room() -> None:
    member = OneMember(1, 1)
    member.follow("n1", 2)

    def order() -> TransferReply | None:
        reply = member.ask(
            TransferRequest(
                group="g", remote_id="n0", term=2, transfer_id="n1", transferee_id="n0", take_leadership_ledger_index=1
            )
        )
        assert reply is None or isinstance(reply, TransferReply)
        return reply

    member.node.room(False)
    refused = order()
    assert refused is not None and refused.code is DLedgerResponseCode.ILLEGAL_MEMBER_STATE
    member.node.room(True)
    assert order() is None
    assert member.sent("n1", VoteRequest)[0].term == 3


def test_member_without_room_lets_the_others_stand_first() -> None:
    def first_question(has_room: bool) -> int:
        member = OneMember(1, 1)
        member.follow("n1", 2)
        member.node.room(has_room)
        for now in range(0, 5000, 5):
            member.at(now)
            if member.sent("n2", VoteRequest):
                return now
        raise AssertionError("it never stands")

    assert first_question(False) - first_question(True) >= 100
