"""The short form of soak_torture, and how it judges memory."""

import random
from pathlib import Path

from tests.integration.soak.soak_torture import KEPT_A_ROUND, kept_a_round, soak


async def test_a_server_that_many_used_holds_what_it_held_before(tmp_path: Path) -> None:
    await soak(tmp_path, seconds=6, seed=1)


def measured(leak: int, rounds: int, seed: int) -> list[int]:
    """KiB after each round, of a server that keeps `leak` bytes of each, in arenas of a quarter of a megabyte."""
    rng = random.Random(seed)
    return [40_000 + 256 * ((round_ * leak + rng.randrange(256 << 10)) // (256 << 10)) for round_ in range(rounds)]


def test_a_leak_of_ten_kib_a_round_beside_what_is_kept_is_seen_and_without_it_the_server_passes() -> None:
    usual = 8 << 10
    for seed in range(20):
        assert kept_a_round(measured(usual + (10 << 10), 400, seed)) > KEPT_A_ROUND
        assert kept_a_round(measured(usual, 400, seed)) < KEPT_A_ROUND
