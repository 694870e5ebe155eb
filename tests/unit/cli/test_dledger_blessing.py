"""When a member that has forgotten something may count as complete again, and what is said about it."""

import pytest

from maxq.cli.commands.dledger_blessing import Blessing, Other
from maxq.store.dledger.blessing import Remains

FORGOT = Remains(end_index=41, end_term=3, term=3, lost_until=57)


def blessing(*others: Other, own: Remains = FORGOT) -> Blessing:
    return Blessing("n0", 1 + len(others), own, others)


def other(member: str, amnesiac_until: int = -1, end_index: int = 40, end_term: int = 3) -> Other:
    return Other(member, False, amnesiac_until, end_index, end_term, 4)


def test_group_of_one_may_go_on_with_what_is_left_and_hears_what_is_given_up() -> None:
    found = blessing()
    assert found.refusal() == ""
    text = "\n".join(found.lines())
    assert "n0 has entries up to 41 of term 3; it had some up to 57" in text
    assert "acknowledged after entry 41 and are on no other member are given up for good" in text
    assert found.term == 4


def test_refused_while_a_majority_could_give_it_back() -> None:
    refusal = blessing(other("n1"), other("n2")).refusal()
    assert "2 of 3 members have all entries that they acknowledged (n1, n2), a majority is 2: start n0" in refusal
    assert blessing(other("n1"), other("n2", amnesiac_until=57)).refusal() == ""
    assert blessing(other("n1"), Other("n2", is_lost=True)).refusal() == ""


def test_who_has_most_left_goes_first() -> None:
    assert "bless n2 first" in blessing(other("n1", 57), other("n2", 57, end_index=42)).refusal()
    assert "bless n1 first" in blessing(other("n1", 57, end_index=2, end_term=4), other("n2", 57)).refusal()
    assert blessing(other("n1", end_index=99), other("n2", 57)).refusal() == "", "n1 has state, and its log wins"


def test_who_has_forgotten_nothing_is_not_touched() -> None:
    assert "n0 has lost nothing" in blessing(own=Remains(41, 3, 3, -1)).refusal()


@pytest.mark.parametrize("own", [Remains(41, 3, -1, -1), Remains(41, 3, 2, -1)])
def test_lost_vote_is_said_and_the_new_term_is_one_in_which_it_cannot_have_voted(own: Remains) -> None:
    found = blessing(other("n1", 57), own=own)
    assert found.refusal() == ""
    assert "its vote is lost" in found.lines()[0]
    assert found.term == 5
