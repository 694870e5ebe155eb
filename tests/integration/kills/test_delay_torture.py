from pathlib import Path

import pytest

from tests.integration.torture.delay_torture import LEAST, torture


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_delayed_messages_in_flight_when_the_broker_is_killed_come_once_and_not_early(
    tmp_path: Path, flush: str
) -> None:
    run = await torture(tmp_path, rounds=2, seed=5, settings={"flushDiskType": flush})
    assert len(run.acknowledged) >= 2 * LEAST and run.recalled
