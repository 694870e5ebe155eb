"""Stories of a group that is asked for promises of every kind, and every seed that ever failed; and the history that
judges them, which finds each lie that it is told."""

import pytest

from tests.promise_history import LOCK_S, Change, History, Kind
from tests.simulation.campaign import tell
from tests.simulation.told import cases

#: Short ones, with kills, pauses, partitions and hand-overs among them; `make sim` tells many.
SEEDS = (4, 11)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("seed", cases("promise-cluster", SEEDS[:1], SEEDS, newest=0))
def test_every_promise_is_kept(seed: int) -> None:
    outcome = tell(seed, "promise-cluster")
    assert not outcome.failure, outcome.failure
    assert {kind.value for kind in Kind if kind is not Kind.RECALL} <= set(outcome.marks)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("seed", cases("promise-pair", (1,), newest=1))
def test_every_promise_of_brokers_without_dledger_is_kept(seed: int) -> None:
    outcome = tell(seed, "promise-pair")
    assert not outcome.failure, outcome.failure


class Past:
    """Writes a history, a second for each request."""

    def __init__(self, *, knows_roles: bool = False) -> None:
        self.time = 0.0
        self.history = History(lambda: self.time, knows_roles)

    def leads(self, broker: str, *, leads: bool = True) -> None:
        self.time += 1
        self.history.changed(broker, leads=leads)

    def tell(
        self, kind: Kind, broker: str, key: str = "q", client: str = "c", value: int = 0, *, ok: bool = True
    ) -> None:
        self.time += 1
        one = self.history.ask(kind, key, client, broker, value)
        self.time += 0.01
        self.history.answered(one, ok)


def test_a_message_that_was_taken_back_and_comes_is_found() -> None:
    past = Past()
    past.tell(Kind.RECALL, "a", "r1")
    past.tell(Kind.RECALL, "a", "r2", ok=False)
    past.tell(Kind.GIVEN, "a", "r2")
    assert past.history.broken() == []
    past.tell(Kind.GIVEN, "a", "r1")
    assert "was taken back: recall r1" in past.history.broken()[0]


def test_a_broker_that_answers_between_two_answers_of_the_leader_is_found() -> None:
    past = Past(knows_roles=True)
    past.leads("a")
    past.tell(Kind.COMMIT, "a", value=1)
    past.leads("b")  # "a" does not know
    past.tell(Kind.LOCK, "b")
    past.tell(Kind.OFFSET, "a", value=1)
    past.tell(Kind.LOCK, "b")
    assert "was answered between" in past.history.broken()[0]
    past.history.changes["a"].append(Change(past.time - 1.5))  # it did know, and answered as a slave
    assert past.history.broken() == []


def test_a_queue_that_is_locked_twice_is_found() -> None:
    past = Past()
    past.tell(Kind.LOCK, "a", client="one")
    past.tell(Kind.LOCK, "a", client="two")
    assert "it is locked" in past.history.broken()[0]
    for excuse in ("unlock", "time", "restart"):
        past = Past()
        past.tell(Kind.LOCK, "a", client="one")
        if excuse == "unlock":
            past.tell(Kind.UNLOCK, "a", client="one")
        elif excuse == "time":
            past.time += LOCK_S
        else:
            past.leads("a")
        past.tell(Kind.LOCK, "a", client="two")
        assert past.history.broken() == []


def test_an_offset_that_goes_back_or_that_nobody_committed_is_found() -> None:
    past = Past(knows_roles=True)
    past.leads("a")
    past.tell(Kind.COMMIT, "a", value=1)
    past.tell(Kind.COMMIT, "a", value=2)
    past.tell(Kind.OFFSET, "a", value=1)
    assert "after commit" in past.history.broken()[0]
    past.tell(Kind.OFFSET, "a", value=7)
    assert any("nobody" in one for one in past.history.broken())


def test_what_was_committed_outlives_a_clean_restart_and_the_end_of_who_took_it() -> None:
    past = Past(knows_roles=True)
    past.leads("a")
    past.tell(Kind.COMMIT, "a", value=2)
    past.history.changed("a", keeps_offsets=True)
    past.leads("a")
    past.history.changes["a"][-1] = Change(past.time, leads=True, keeps_offsets=True)
    past.tell(Kind.OFFSET, "a", value=0)
    assert "after commit" in past.history.broken()[0]
    past.tell(Kind.COMMIT, "b", value=5)
    assert len(past.history.broken(offset=4)) == 2
    past.history.changed("b")
    assert len(past.history.broken(offset=4)) == 1
    assert len(past.history.broken(offset=1)) == 2


def test_a_message_that_is_given_to_two_is_found() -> None:
    past = Past()
    past.tell(Kind.GIVEN, "a", "m1", value=2_000)
    past.tell(Kind.GIVEN, "a", "m1", client="d", value=2_000)
    assert "it is another's" in past.history.broken()[0]
    past.history.told[0].value = 1_000
    assert past.history.broken() == []


def test_tables_acks_and_messages_that_are_not_as_they_were_said_to_be_are_found() -> None:
    past = Past()
    past.tell(Kind.MAKE, "a", "there")
    past.tell(Kind.MAKE, "a", "gone")
    past.tell(Kind.DELETE, "a", "gone")
    past.tell(Kind.DELETE, "a", "unknown", ok=False)
    past.tell(Kind.SEND, "a", "m1")
    past.tell(Kind.GIVEN, "a", "m1")
    past.tell(Kind.ACK, "a", "m1")
    assert past.history.broken(tables=["there"], messages=["m1"]) == []
    assert len(past.history.broken(tables=["gone"], messages=[])) == 3
    past.tell(Kind.GIVEN, "a", "m1")
    assert "it was acknowledged" in past.history.broken()[0]
