"""The short form of upgrade_torture.py; the other version is this one, too: all brokers end and start again, twice."""

from pathlib import Path

import pytest

from tests.integration.torture.upgrade_torture import THIS, torture


@pytest.mark.slow  # a minute each, most of it waiting for messages that are due later
@pytest.mark.parametrize("on", ["sync", "pair", "acting", "dledger"])
async def test_what_waits_comes_once_when_all_brokers_are_replaced_twice(tmp_path: Path, on: str) -> None:
    run = await torture(tmp_path, on, 1, 1, THIS, happens=0)
    assert run.broken == []
    assert {"plain", "level", "timed", "tx-commit", "tx-asked-commit"} <= set(run.kinds)
