"""The short form of soak_torture."""

from pathlib import Path

from tests.integration.soak_torture import soak


async def test_a_server_that_many_used_holds_what_it_held_before(tmp_path: Path) -> None:
    await soak(tmp_path, seconds=6, seed=1)
