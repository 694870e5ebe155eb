"""Clusters of DLedger cores under seeds: 200 lives, those that failed once, and the planted bugs that must be noticed.

`make sim` runs thousands; see campaign.py.
"""

import pytest

from tests.simulation.raft.campaign import first_noticed, regressions, tell
from tests.simulation.raft.history import Operation, register_problem
from tests.simulation.raft.mutations import MUTATIONS

SEEDS = 200
MIXED_SEEDS = 40
STORED_SEEDS = 20
MUTATION_SEEDS = 150
PART = 20


@pytest.mark.parametrize("first", range(0, SEEDS, PART))
def test_no_rule_is_broken_under_seeds_from(first: int) -> None:
    failures = [outcome.failure for outcome in map(tell, range(first, first + PART)) if outcome.failure]
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("first", range(0, MIXED_SEEDS, PART))
def test_no_rule_is_broken_beside_members_of_java_under_seeds_from(first: int) -> None:
    outcomes = [tell(seed, "mixed") for seed in range(first, first + PART)]
    failures = [outcome.failure for outcome in outcomes if outcome.failure]
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("first", range(0, STORED_SEEDS, 5))
def test_no_rule_is_broken_over_the_file_store_under_seeds_from(first: int) -> None:
    outcomes = [tell(seed, "stored") for seed in range(first, first + 5)]
    failures = [outcome.failure for outcome in outcomes if outcome.failure]
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize(("seed", "kind"), regressions())
def test_seed_that_failed_once_holds(seed: int, kind: str) -> None:
    assert not tell(seed, kind).failure


@pytest.mark.parametrize("name", MUTATIONS)
def test_planted_bug_is_noticed(name: str) -> None:
    assert first_noticed(name, MUTATION_SEEDS) >= 0


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
