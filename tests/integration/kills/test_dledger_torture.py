from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.processes.dledger_cluster import namespaces
from tests.integration.processes.namespaces import Namespaces
from tests.integration.torture.dledger_torture import DLedgerTorture
from tests.integration.torture.replication_torture import AT_LEAST, torture
from tests.mounted_disk import NotAllowedError


async def test_nothing_acknowledged_is_missing_on_any_member(tmp_path: Path) -> None:
    run = await torture(
        DLedgerTorture(tmp_path, seed=5),
        [
            DLedgerTorture.kill_the_leader,
            DLedgerTorture.nobody_reaches_the_leader,
            DLedgerTorture.wake_a_leader_of_yesterday,
        ],
    )
    assert len(run.acknowledged) >= 3 * 2 * AT_LEAST


@pytest.mark.slow  # fourteen seconds of CPU; make torture does more of it
async def test_a_full_disk_costs_a_leader_its_leadership_and_nothing_else(tmp_path: Path) -> None:
    story = DLedgerTorture(tmp_path, seed=6)
    if story.cluster.why_no_disks:
        pytest.skip(story.cluster.why_no_disks)
    run = await torture(story, [DLedgerTorture.fill_the_leaders_disk, DLedgerTorture.fill_all_disks])
    assert len(run.acknowledged) >= 2 * 2 * AT_LEAST


@pytest.fixture
def network() -> Iterator[Namespaces]:
    try:
        with namespaces() as made:
            yield made
    except NotAllowedError as error:
        pytest.skip(str(error))


@pytest.mark.slow
async def test_packets_that_vanish_one_way_or_both_take_nothing_that_was_acknowledged(
    tmp_path: Path, network: Namespaces
) -> None:
    run = await torture(
        DLedgerTorture(tmp_path, 7, network), [DLedgerTorture.nobody_hears_the_leader, DLedgerTorture.a_chain]
    )
    assert len(run.acknowledged) >= 2 * 2 * AT_LEAST
