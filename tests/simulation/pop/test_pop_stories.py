"""Stories of pop consumption: brokers die, hand over and stand on failing disks while messages are popped."""

from collections import Counter

import pytest

from tests.simulation.campaign import regressions, tell

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = 5

_seen: Counter[str] = Counter()


@pytest.mark.parametrize("seed", sorted({*range(SEEDS), *regressions("pop")}))
def test_nothing_acknowledged_comes_again_and_nothing_else_is_lost(seed: int) -> None:
    outcome = tell(seed, "pop")
    _seen.update(outcome.marks)
    assert not outcome.failure, outcome.failure


def test_every_kind_of_request_and_death_happened() -> None:
    """Runs after the stories above, in one process with them."""
    if not _seen:
        pytest.skip("the stories did not run in this process")
    wanted = {"acknowledged in time", "changes of invisible time", "given again", "change of master", "within flush"}
    assert wanted <= set(_seen)
