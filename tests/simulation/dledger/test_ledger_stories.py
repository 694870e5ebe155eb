"""Forty stories of a DLedger member's files, and every seed that ever failed."""

from collections import Counter

import pytest

from tests.simulation.campaign import regressions, tell

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = 40
CHUNK = 10

_seen: Counter[str] = Counter()


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_what_a_member_said_is_durable_is_there_or_it_knows_what_it_lost(first: int) -> None:
    for seed in range(first, first + CHUNK):
        outcome = tell(seed, "ledger")
        _seen.update(outcome.marks)
        assert not outcome.failure, outcome.failure


@pytest.mark.parametrize("seed", [seed for seed in regressions("ledger") if seed >= SEEDS] or [None])
def test_seeds_that_failed_once(seed: int | None) -> None:
    if seed is not None:
        outcome = tell(seed, "ledger")
        assert not outcome.failure, outcome.failure


def test_every_kind_of_crash_was_told() -> None:
    """Runs after the stories above, in one process with them."""
    wanted = {
        "truncate", "emptied", "ending: kill", "ending: power", "ending: shutdown", "remembered",
        "flipped: data", "flipped: index", "flipped: checkpoint", "flipped: currterm", "lost, and it knows",
        "power lost in: flush data", "power lost in: replace checkpoint", "power lost in: replace currterm",
        "truncation below committed refused",
    }  # fmt: skip
    if _seen["own"] == 0:
        pytest.skip("the stories did not run in this process")
    assert wanted - set(_seen) == set()
