"""The short form of soak_torture, and how it judges memory."""

import random
from pathlib import Path

from tests.integration.soak_torture import KEPT_A_ROUND, kept_a_round, soak


async def test_a_server_that_many_used_holds_what_it_held_before(tmp_path: Path) -> None:
    await soak(tmp_path, seconds=6, seed=1)


def measured(leak: int, rounds: int, seed: int) -> list[int]:
    """KiB after each round, of a server that keeps `leak` bytes of each, in arenas of a quarter of a megabyte."""
    rng = random.Random(seed)
    return [40_000 + 256 * ((round_ * leak + rng.randrange(256 << 10)) // (256 << 10)) for round_ in range(rounds)]


def test_a_leak_of_little_more_than_the_limit_is_seen_and_a_server_that_keeps_nothing_passes() -> None:
    for seed in range(20):
        assert kept_a_round(measured(2 * KEPT_A_ROUND, 100, seed)) > KEPT_A_ROUND
        assert abs(kept_a_round(measured(0, 100, seed))) < KEPT_A_ROUND
