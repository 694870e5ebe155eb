"""Stories of exactly once: brokers and the driver die at any write of a commit, slaves become masters."""

import pytest

from tests.simulation.told import cases, check, marks

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = range(5)
SHORT = (1, 3)


@pytest.mark.parametrize("seed", cases("staged", SHORT, SEEDS))
def test_every_batch_is_there_once_as_it_was_decided_first(seed: int) -> None:
    check(seed, "staged")


@pytest.mark.slow
def test_every_kind_of_death_happened() -> None:
    wanted = {
        "power of the master", "power of the slave", "kill of the master", "kill of the slave", "change of master",
        "the driver died", "decided before", "within flush",
    }  # fmt: skip
    assert wanted - set(marks(SEEDS, "staged")) == set()
