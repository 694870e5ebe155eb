"""The short form of pop_torture. A power loss is told in tests/simulation/pop/test_pop_power_loss.py."""

from pathlib import Path

from tests.integration.torture.pop_torture import torture


async def test_nothing_is_lost_and_nothing_acknowledged_comes_back(tmp_path: Path) -> None:
    run = await torture(tmp_path, rounds=2, seed=5)
    assert len(run.acknowledged) > 100  # nearly all of the 1000, on a machine that is not busy
    assert run.received.total() > len(run.sent)  # some died with what they had


async def test_a_slave_that_becomes_master_knows_what_was_popped_and_acknowledged(tmp_path: Path) -> None:
    run = await torture(tmp_path, rounds=1, seed=6, on="pair")
    assert len(run.acknowledged) > 50  # of 500
