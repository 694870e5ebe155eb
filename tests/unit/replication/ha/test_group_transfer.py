"""Senders and the acknowledgements they wait for."""

from hypothesis import given
from hypothesis import strategies as st

from maxq.replication.ha.group_transfer import GroupTransfer, kth_offset


class Outcomes:
    """What senders were told."""

    def __init__(self) -> None:
        self.transfer = GroupTransfer()
        self.told: dict[str, bool] = {}

    def wait(self, name: str, end: int, needed: int = 2, deadline: int = 3000) -> None:
        def done(outcome: bool) -> None:
            assert name not in self.told
            self.told[name] = outcome

        self.transfer.wait(end, needed, deadline, done)


def test_one_acknowledgement_lets_all_go_that_it_reaches() -> None:
    senders = Outcomes()
    for name, end in (("a", 100), ("b", 200), ("c", 300)):
        senders.wait(name, end)
    senders.transfer.on_acknowledged([250])
    assert senders.told == {"a": True, "b": True}
    assert len(senders.transfer) == 1


def test_three_copies_are_there_when_the_second_slave_has_it() -> None:
    senders = Outcomes()
    senders.wait("a", 100, needed=3)
    senders.transfer.on_acknowledged([500])
    senders.transfer.on_acknowledged([500, 99])
    assert senders.told == {}
    senders.transfer.on_acknowledged([500, 100, 7])
    assert senders.told == {"a": True}


def test_a_sender_is_let_go_at_its_deadline_and_not_before() -> None:
    senders = Outcomes()
    senders.wait("a", 100, deadline=3000)
    senders.wait("b", 200, deadline=3005)
    senders.transfer.on_time(2999)
    assert senders.told == {}
    assert senders.transfer.next_deadline_ms() == 3000
    senders.transfer.on_time(3000)
    assert senders.told == {"a": False}
    assert senders.transfer.next_deadline_ms() == 3005


def test_a_sender_that_waits_for_more_does_not_hold_up_others() -> None:
    senders = Outcomes()
    senders.wait("two slaves", 100, needed=3)
    senders.wait("one slave", 200, needed=2)
    senders.transfer.on_acknowledged([200])
    assert senders.told == {"one slave": True}


def test_a_shorter_timeout_given_later_keeps_the_order() -> None:
    senders = Outcomes()
    senders.wait("a", 100, deadline=9000)
    senders.wait("b", 200, deadline=1000)
    senders.transfer.on_time(8999)
    assert senders.told == {}
    senders.transfer.on_time(9000)
    assert senders.told == {"a": False, "b": False}


def test_a_sender_that_comes_with_less_waits_with_who_came_before() -> None:
    senders = Outcomes()
    senders.wait("a", 200)
    senders.wait("b", 100)
    senders.transfer.on_acknowledged([150])
    assert senders.told == {}
    senders.transfer.on_acknowledged([200])
    assert senders.told == {"a": True, "b": True}


def test_what_is_waited_for_first_is_known_over_all_numbers_of_copies() -> None:
    senders = Outcomes()
    assert (senders.transfer.first_end_offset(), senders.transfer.next_deadline_ms(), len(senders.transfer)) == (
        None, None, 0,
    )  # fmt: skip
    senders.wait("a", 300, needed=2, deadline=5000)
    senders.wait("b", 100, needed=3, deadline=7000)
    senders.wait("c", 400, needed=3, deadline=8000)
    assert (senders.transfer.first_end_offset(), senders.transfer.next_deadline_ms(), len(senders.transfer)) == (
        100, 5000, 3,
    )  # fmt: skip
    senders.transfer.on_acknowledged([300, 0])
    assert senders.told == {"a": True}
    assert (senders.transfer.first_end_offset(), senders.transfer.next_deadline_ms()) == (100, 7000)
    senders.transfer.on_time(8000)
    assert (senders.transfer.first_end_offset(), senders.transfer.next_deadline_ms(), len(senders.transfer)) == (
        None, None, 0,
    )  # fmt: skip


def test_a_sender_that_is_told_may_wait_again() -> None:
    transfer = GroupTransfer()
    told: list[bool] = []
    transfer.wait(100, 2, 3000, lambda outcome: transfer.wait(200, 3, 3000, told.append))
    transfer.on_acknowledged([100, 100])
    assert (len(transfer), told) == (1, [])
    transfer.on_acknowledged([200, 200])
    assert told == [True]


def test_release_lets_everybody_go() -> None:
    senders = Outcomes()
    senders.wait("a", 100)
    senders.wait("b", 100, needed=3)
    senders.transfer.release()
    assert senders.told == {"a": False, "b": False}
    assert senders.transfer.next_deadline_ms() is None


@given(st.lists(st.integers(-1, 100), max_size=5), st.integers(2, 6))
def test_kth_offset_is_what_so_many_copies_have(acknowledged: list[int], needed: int) -> None:
    reached = kth_offset(sorted(acknowledged, reverse=True), needed)
    for offset in range(101):
        copies = 1 + sum(one >= offset for one in acknowledged)
        assert (reached >= offset) == (copies >= needed)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(2, 4), st.integers(1, 60)), max_size=20), st.data())
def test_everybody_is_told_exactly_once_and_rightly(waits: list[tuple[int, int, int]], data: st.DataObject) -> None:
    """Against a list that is looked through."""
    senders, naive = Outcomes(), {}
    ends, deadlines = sorted(one[0] for one in waits), sorted(one[2] for one in waits)
    for number, (end, (_, needed, _), deadline) in enumerate(zip(ends, waits, deadlines, strict=True)):
        senders.wait(str(number), end, needed, deadline)
        naive[str(number)] = (end, needed, deadline)
    told: dict[str, bool] = {}
    for now in range(0, 61, 10):
        acknowledged = sorted(data.draw(st.lists(st.integers(0, 60), max_size=3)), reverse=True)
        senders.transfer.on_acknowledged(acknowledged)
        for name, (end, needed, _) in list(naive.items()):
            if 1 + sum(one >= end for one in acknowledged) >= needed:
                told[name] = True
                del naive[name]
        senders.transfer.on_time(now)
        for name, (_, _, deadline) in list(naive.items()):
            if deadline <= now:
                told[name] = False
                del naive[name]
        assert senders.told == told
    assert len(senders.transfer) == len(naive)
