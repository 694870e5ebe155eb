"""Stories of a master and two slaves: twelve, or a few of them, and every seed that ever failed."""

import pytest

from tests.short_form import seeds
from tests.simulation.campaign import regressions, tell
from tests.simulation.told import cases, check, marks, told

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = range(12)
SHORT = (0, 2, 5, 7, 8)
SHORT_BATCHES = (1, 6)
#: Of whole servers.
SHORT_CLUSTER = (3001,)


@pytest.mark.parametrize("seed", cases("ha", SHORT, SEEDS, newest=2))
def test_nothing_promised_is_lost_and_everything_converges(seed: int) -> None:
    check(seed, "ha")


@pytest.mark.parametrize("seed", cases("ha-batches", SHORT_BATCHES, SEEDS, newest=2))
def test_slaves_that_hear_late_of_the_types_of_queues_lose_nothing(seed: int) -> None:
    check(seed, "ha-batches")


@pytest.mark.parametrize("seed", seeds(SHORT_CLUSTER, regressions("cluster")))
def test_seeds_of_whole_servers_that_failed_once(seed: int) -> None:
    check(seed, "cluster")


def test_one_seed_is_one_story() -> None:
    assert tell(5, "ha").marks == told(5, "ha").marks


@pytest.mark.slow
def test_every_kind_of_fault_happened() -> None:
    wanted = {
        "answer: SUCCESS", "answer: FLUSH_SLAVE_TIMEOUT", "read on a slave",
        "fault: reset", "fault: partition", "fault: half-open", "fault: slow link", "fault: kill",
        "fault: kill within a disk operation", "fault: power loss", "fault: power loss within a disk operation",
        "fault: clean restart", "fault: pause", "fault: wall clock jump", "fault: disk full", "fault: slow disk",
    }  # fmt: skip
    assert wanted - set(marks(SEEDS, "ha")) == set()
