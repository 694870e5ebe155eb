"""Twelve stories of a master and two slaves, and every seed that ever failed."""

import pytest

from tests.simulation.campaign import regressions, tell
from tests.simulation.told import check, marks, seeds, told

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = 12


@pytest.mark.parametrize("seed", seeds(SEEDS, "ha"))
def test_nothing_promised_is_lost_and_everything_converges(seed: int) -> None:
    check(seed, "ha")


@pytest.mark.parametrize("seed", regressions("cluster"))
def test_seeds_of_whole_servers_that_failed_once(seed: int) -> None:
    check(seed, "cluster")


def test_one_seed_is_one_story() -> None:
    assert tell(6, "ha").marks == told(6, "ha").marks


def test_every_kind_of_fault_happened() -> None:
    wanted = {
        "answer: SUCCESS", "answer: FLUSH_SLAVE_TIMEOUT", "read on a slave",
        "fault: reset", "fault: partition", "fault: half-open", "fault: slow link", "fault: kill",
        "fault: kill within a disk operation", "fault: power loss", "fault: power loss within a disk operation",
        "fault: clean restart", "fault: pause", "fault: wall clock jump", "fault: disk full", "fault: slow disk",
    }  # fmt: skip
    assert wanted - set(marks(range(SEEDS), "ha")) == set()
