"""Stories of exactly once: brokers and the driver die at any write of a commit, slaves become masters."""

from collections import Counter

import pytest

from tests.simulation.campaign import regressions, tell

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = 5

_seen: Counter[str] = Counter()


@pytest.mark.parametrize("seed", sorted({*range(SEEDS), *regressions("staged")}))
def test_every_batch_is_there_once_as_it_was_decided_first(seed: int) -> None:
    outcome = tell(seed, "staged")
    _seen.update(outcome.marks)
    assert not outcome.failure, outcome.failure


def test_every_kind_of_death_happened() -> None:
    """Runs after the stories above, in one process with them."""
    if not _seen:
        pytest.skip("the stories did not run in this process")
    wanted = {
        "power of the master", "power of the slave", "kill of the master", "kill of the slave", "change of master",
        "the driver died", "decided before", "within flush",
    }  # fmt: skip
    assert wanted <= set(_seen)
