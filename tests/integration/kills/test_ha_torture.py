from pathlib import Path

from tests.integration.torture.ha_torture import HATorture
from tests.integration.torture.replication_torture import AT_LEAST, torture


async def test_nothing_acknowledged_is_missing_on_the_side_that_is_left(tmp_path: Path) -> None:
    run = await torture(HATorture(tmp_path, seed=5), [HATorture.kill_the_master, HATorture.cut_the_link])
    assert len(run.acknowledged) >= 2 * 2 * AT_LEAST
