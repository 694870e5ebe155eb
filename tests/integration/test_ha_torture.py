from pathlib import Path

from tests.integration.ha_torture import HATorture, ha_torture


async def test_nothing_acknowledged_is_missing_on_the_side_that_is_left(tmp_path: Path) -> None:
    run = await ha_torture(tmp_path, [HATorture.kill_the_master, HATorture.cut_the_link], seed=5)
    assert len(run.acknowledged) > 100
