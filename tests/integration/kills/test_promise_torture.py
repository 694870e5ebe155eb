"""The short form of promise_torture.py, which `make torture` runs at length."""

from pathlib import Path

import pytest

from tests.integration.torture.promise_torture import torture
from tests.promise_history import Kind

ASKED = {"lock", "commit", "offset", "make", "send", "given", "ack"}


async def test_a_deposed_leader_and_a_hand_over_keep_every_promise(tmp_path: Path) -> None:
    run = await torture(tmp_path, "dledger", 1, [["wake_yesterdays", "hand_over"]])
    assert run.broken == []
    assert set(run.told) >= ASKED <= {kind.value for kind in Kind}


@pytest.mark.slow  # five seconds of CPU each; make torture does more of it
@pytest.mark.parametrize(
    ("on", "fault"),
    [("acting", "master_is_away"), ("sync", "kill_the_master"), ("pair", "make_the_slave_the_master")],
)
async def test_whoever_answers_keeps_every_promise(tmp_path: Path, on: str, fault: str) -> None:
    run = await torture(tmp_path, on, 1, [[fault]])
    assert run.broken == []
    assert set(run.told) >= ASKED
