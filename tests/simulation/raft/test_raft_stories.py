"""Clusters of DLedger cores under seeds: 20 lives, or 200, those that failed once, and the planted bugs that must be
noticed.

`make sim` runs thousands; see campaign.py.
"""

import pytest

from maxq.replication.raft.outputs import Role
from tests.short_form import seeds
from tests.simulation.raft.campaign import first_noticed, regressions, tell
from tests.simulation.raft.history import Operation, register_problem
from tests.simulation.raft.mutations import MUTATIONS, NOTED
from tests.simulation.raft.story import MixedStory

SEEDS = 200
MIXED_SEEDS = 40
STORED_SEEDS = 20
MUTATION_SEEDS = 200
PART = 20


@pytest.mark.parametrize("first", seeds([0], range(0, SEEDS, PART)))
def test_no_rule_is_broken_under_seeds_from(first: int) -> None:
    failures = [outcome.failure for outcome in map(tell, range(first, first + PART)) if outcome.failure]
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("first", seeds([0], range(0, MIXED_SEEDS, PART)))
def test_no_rule_is_broken_beside_members_of_java_under_seeds_from(first: int) -> None:
    outcomes = [tell(seed, "mixed") for seed in range(first, first + PART)]
    failures = [outcome.failure for outcome in outcomes if outcome.failure]
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("first", seeds([0], range(0, STORED_SEEDS, 5)))
def test_no_rule_is_broken_over_the_file_store_under_seeds_from(first: int) -> None:
    outcomes = [tell(seed, "stored") for seed in range(first, first + 5)]
    failures = [outcome.failure for outcome in outcomes if outcome.failure]
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize(("seed", "kind"), regressions())
def test_seed_that_failed_once_holds(seed: int, kind: str) -> None:
    assert not tell(seed, kind).failure


@pytest.mark.parametrize("name", MUTATIONS)
def test_planted_bug_is_noticed(name: str) -> None:
    assert first_noticed(name, [NOTED.get(name, 0), *range(MUTATION_SEEDS)]) >= 0


@pytest.mark.parametrize("seed", seeds([0, 1], range(10)))
def test_a_leader_of_ours_hands_over_to_a_member_of_javas(seed: int) -> None:
    """Java's candidate gives up at the first answer that says there is a leader; the other follower answers first, for
    the leader stores the term before it gives its vote. Java waits before it asks for votes, so the old leader, which
    hears of the later term by its heart-beats, is elected again now and then: the order is repeated then."""
    world = MixedStory(seed).world
    world.flush_ms = 10
    java, *ours = world.everyone
    for member in ours:
        member.is_java = False
        world.start(member)
    assert world.run_until(20_000, lambda: any(member.role is Role.LEADER for member in ours))
    java.is_java = True
    world.start(java)
    world.run_until(world.now + 2_000)
    for _ in range(3):
        (leader,) = [member for member in ours if member.role is Role.LEADER]
        term = leader.term
        world.transfer(leader, java)
        if world.run_until(world.now + 2_000, lambda: java.role is Role.LEADER):
            break
    assert java.role is Role.LEADER, "\n".join(world.trace[-20:])
    assert java.term == term + 1


def test_same_seed_tells_the_same_story() -> None:
    assert tell(5) == tell(5)


def write(value: int, start: float, end: float) -> Operation:
    return Operation("append", value, start, -1, end, value)


def read(value: int, start: float, end: float) -> Operation:
    return Operation("read", value, start, -1, end, value)


@pytest.mark.parametrize(
    "operations",
    [
        [write(1, 0, 2), read(-1, 1, 3)],  # at once: either order
        [write(1, 0, 5), write(2, 0, 5), read(1, 6, 7)],
        [write(1, 0, float("inf")), read(1, 6, 7), read(1, 8, 9)],  # nobody answered, and it happened
        [write(1, 0, float("inf")), read(-1, 6, 7)],  # nobody answered, and it did not
    ],
)
def test_register_could_have_answered_so(operations: list[Operation]) -> None:
    assert register_problem(operations) == ""


@pytest.mark.parametrize(
    "operations",
    [
        [write(1, 0, 2), read(-1, 3, 4)],  # the write was over
        [write(1, 0, 1), write(2, 2, 3), read(1, 4, 5)],  # a later write was over
        [write(1, 0, 9), write(2, 0, 9), read(1, 10, 11), read(2, 12, 13), read(1, 14, 15)],  # back again
        [write(1, 0, 1), write(2, 3, 4), read(1, 2, 9), read(1, 10, 11)],  # overwritten between two reads
        [read(7, 0, 1)],  # nobody wrote it
        [write(1, 5, 6), read(1, 1, 2)],  # read before it was written
    ],
)
def test_no_register_answers_so(operations: list[Operation]) -> None:
    assert register_problem(operations)
