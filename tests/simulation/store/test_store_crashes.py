"""A hundred crash stories, and every seed that ever failed."""

from collections import Counter

import pytest

from tests.simulation.campaign import regressions, tell

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = 100
CHUNK = 10

_seen: Counter[str] = Counter()


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_nothing_durable_is_lost_whatever_happens(first: int) -> None:
    for seed in range(first, first + CHUNK):
        outcome = tell(seed)
        _seen.update(outcome.marks)
        assert not outcome.failure, outcome.failure


@pytest.mark.parametrize("seed", [seed for seed in regressions() if seed >= SEEDS] or [None])
def test_seeds_that_failed_once(seed: int | None) -> None:
    if seed is not None:
        outcome = tell(seed)
        assert not outcome.failure, outcome.failure


def test_one_seed_is_one_story() -> None:
    assert tell(3).marks == tell(3).marks


def test_every_kind_of_crash_point_was_hit() -> None:
    """Runs after the stories above, in one process with them."""
    wanted = {
        "SYNC_FLUSH", "ASYNC_FLUSH", "batch", "deleted a topic", "compared with a rebuild", "damage named at start",
        "ending: kill", "ending: moment", "ending: operation", "ending: recovery", "ending: shutdown",
        "flipped: checkpoint", "flipped: consumequeue", "flipped: index", "flipped: inventory.json",
        "flipped: log, guarded", "flipped: log, not covered",
        "power lost in: create commitlog", "power lost in: flush commitlog", "power lost in: flush consumequeue",
        "power lost in: flush checkpoint", "power lost in: replace config", "power lost in: delete commitlog",
    }  # fmt: skip
    if sum(_seen[name] for name in ("SYNC_FLUSH", "ASYNC_FLUSH")) < SEEDS:
        pytest.skip("the hundred stories did not run in this process")
    assert wanted - set(_seen) == set()
