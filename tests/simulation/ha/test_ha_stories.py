"""Twenty stories of a master and two slaves, and every seed that ever failed."""

from collections import Counter

import pytest

from tests.simulation.campaign import regressions, tell

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = 20
CHUNK = 5

_seen: Counter[str] = Counter()


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_nothing_promised_is_lost_and_everything_converges(first: int) -> None:
    for seed in range(first, first + CHUNK):
        outcome = tell(seed, "ha")
        _seen.update(outcome.marks)
        assert not outcome.failure, outcome.failure


@pytest.mark.parametrize("seed", [seed for seed in regressions("ha") if seed >= SEEDS] or [None])
def test_seeds_that_failed_once(seed: int | None) -> None:
    if seed is not None:
        outcome = tell(seed, "ha")
        assert not outcome.failure, outcome.failure


@pytest.mark.parametrize("seed", regressions("cluster"))
def test_seeds_of_whole_servers_that_failed_once(seed: int) -> None:
    outcome = tell(seed, "cluster")
    assert not outcome.failure, outcome.failure


def test_one_seed_is_one_story() -> None:
    assert tell(6, "ha").marks == tell(6, "ha").marks


def test_every_kind_of_fault_happened() -> None:
    """Runs after the stories above, in one process with them."""
    wanted = {
        "answer: SUCCESS", "answer: FLUSH_SLAVE_TIMEOUT", "read on a slave",
        "fault: reset", "fault: partition", "fault: half-open", "fault: slow link", "fault: kill",
        "fault: kill within a disk operation", "fault: power loss", "fault: power loss within a disk operation",
        "fault: clean restart", "fault: pause", "fault: wall clock jump", "fault: disk full", "fault: slow disk",
    }  # fmt: skip
    if not _seen["answer: SUCCESS"]:
        pytest.skip("the stories did not run in this process")
    assert wanted - set(_seen) == set()
