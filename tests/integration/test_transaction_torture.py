from pathlib import Path

import pytest

from tests.integration.transaction_torture import torture


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_transactions_in_flight_when_the_broker_is_killed_end_once_and_as_decided(
    tmp_path: Path, flush: str
) -> None:
    run = await torture(tmp_path, rounds=2, seed=7, settings={"flushDiskType": flush})
    assert len(run.executed) > 60
    assert run.asked
