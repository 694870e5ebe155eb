"""Crash stories with ConsumeQueueExt, and every seed that ever failed."""

from collections import Counter

import pytest

from tests.simulation.campaign import regressions, tell

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = 20
CHUNK = 5

_seen: Counter[str] = Counter()


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_message_gets_another_ones_extension(first: int) -> None:
    for seed in range(first, first + CHUNK):
        outcome = tell(seed, "ext")
        _seen.update(outcome.marks)
        assert not outcome.failure, outcome.failure


@pytest.mark.parametrize("seed", regressions("ext") or [None])
def test_seeds_that_failed_once(seed: int | None) -> None:
    if seed is not None:
        outcome = tell(seed, "ext")
        assert not outcome.failure, outcome.failure


def test_extensions_were_read_after_crashes() -> None:
    """Runs after the stories above, in one process with them."""
    if sum(_seen[name] for name in ("SYNC_FLUSH", "ASYNC_FLUSH")) < SEEDS:
        pytest.skip("the stories did not run in this process")
    assert {"extension read", "ending: kill", "ending: moment", "compared with a rebuild"} <= set(_seen)
