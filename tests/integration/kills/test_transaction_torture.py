from pathlib import Path

import pytest

from tests.integration.torture.transaction_torture import torture


@pytest.mark.parametrize("flush, oneway", [("ASYNC_FLUSH", False), ("SYNC_FLUSH", False), ("ASYNC_FLUSH", True)])
async def test_transactions_in_flight_when_the_broker_is_killed_end_once_and_as_decided(
    tmp_path: Path, flush: str, oneway: bool
) -> None:
    run = await torture(tmp_path, rounds=2, seed=7, settings={"flushDiskType": flush}, oneway=oneway)
    assert len(run.executed) > 40  # twenty before each kill
    assert run.asked
