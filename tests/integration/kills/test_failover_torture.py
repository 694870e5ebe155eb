"""What clients feel of fail-overs: the short form of failover_torture.py, which `make torture` runs at length."""

from pathlib import Path

import pytest

from tests.integration.torture.failover_torture import run


async def test_no_send_fails_when_a_leader_hands_over_ends_or_a_name_server_hangs(tmp_path: Path) -> None:
    story = await run(tmp_path, {"hand_over": 1, "kill": 1, "name_server_hangs": 1, "name_servers_restart": 1})
    assert [felt.failures for felt in story.felt.values()] == [[], [], [], []], story.table()


@pytest.mark.slow  # ten seconds; make torture does more of it
async def test_no_send_fails_when_a_leader_stands_still_or_all_restart_one_by_one(tmp_path: Path) -> None:
    story = await run(tmp_path, {"pause": 1, "rolling_restart": 1})
    assert [felt.failures for felt in story.felt.values()] == [[], []], story.table()


async def test_the_table_tells_for_how_long_the_clients_waited_for_a_processor(tmp_path: Path) -> None:
    """A failed send of clients that got no processor tells about the machine."""
    if not Path("/proc/self/schedstat").exists():
        pytest.skip("the kernel does not tell for how long a process waits for a processor")
    felt = (await run(tmp_path, {"hand_over": 1})).felt["hand over"]
    assert felt.starved is not None
    assert 0 <= felt.starved <= 1
    assert felt.row("hand over").endswith(f" {felt.starved:.0%}")
