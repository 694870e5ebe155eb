from pathlib import Path

from tests.integration.torture.broker_torture import LEAST, torture


async def test_nothing_acknowledged_is_lost_when_the_broker_is_killed(tmp_path: Path) -> None:
    run = await torture(tmp_path / "store", rounds=3, seed=4)
    assert len(run.acknowledged) >= LEAST  # the first round of this seed is one under load
