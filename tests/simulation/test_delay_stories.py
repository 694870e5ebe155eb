"""Stories of messages that wait while clocks jump and brokers die, and every seed that ever failed."""

from collections import Counter

import pytest

from tests.simulation.campaign import regressions, tell

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = 12

_seen: Counter[str] = Counter()


@pytest.mark.parametrize("seed", sorted({*range(SEEDS), *regressions("delay")}))
def test_what_waits_comes_once_and_not_early(seed: int) -> None:
    outcome = tell(seed, "delay")
    _seen.update(outcome.marks)
    assert not outcome.failure, outcome.failure


def test_the_clock_did_everything() -> None:
    """Runs after the stories above, in one process with them."""
    if not _seen:
        pytest.skip("the stories did not run in this process")
    wanted = {
        "clock jumps ahead in operation", "clock jumps back in operation", "clock stands still in operation",
        "clock jumps back while nobody was there", "ending: kill", "ending: shutdown", "ending: operation",
        "in time", "level", "recalled", "rolled",
    }  # fmt: skip
    assert wanted <= set(_seen)
