"""A stopped member that has forgotten something: what is left, and how it counts as complete again."""

from pathlib import PurePath

import pytest

from maxq.errors import StoreRefusedError
from maxq.protocol.dledger.ledger import HardState
from maxq.store.dledger.blessing import Remains, StoppedMember
from maxq.testing.sim_disk import SimDisk
from tests.unit.store.dledger.worlds import BASE, leading, new_disk, opened

FOLDER = BASE / "dledger-n0"


def stored(count: int = 30) -> SimDisk:
    disk = new_disk()
    store = leading(disk, 3)
    for number in range(count):
        store.append(b"%d" % number)
    store.commit(count - 1)
    store.close_inline()
    return disk


def damage(disk: SimDisk, path: PurePath, at: int) -> None:
    data = bytearray(disk.read(path))
    data[at] ^= 0xFF
    disk.write(path, bytes(data))


def test_member_that_lost_entries_goes_on_with_those_before_them() -> None:
    disk = stored()
    damage(disk, FOLDER / "data" / f"{0:020d}", 20 * 49 + 60)
    store = opened(disk)
    assert store.amnesiac_until >= 29
    end = store.end_index
    store.close_inline()
    stopped = StoppedMember(disk, BASE, "n0")
    assert stopped.remains() == Remains(end, 3, 3, 29)
    with stopped.locked():
        stopped.bless(7)
    again = opened(disk)
    assert (again.end_index, again.report.amnesia, again.amnesiac_until) == (end, [], -1)
    assert again.term_state == HardState(7)
    again.close_inline()


def test_member_that_lost_its_vote_may_vote_again_in_a_later_term() -> None:
    disk = stored()
    for name in ("currterm", "currterm.bak"):
        disk.delete(FOLDER / name)
    opened(disk).close_inline()
    stopped = StoppedMember(disk, BASE, "n0")
    remains = stopped.remains()
    assert (remains.term, remains.end_term, remains.is_amnesiac) == (-1, 3, True)
    stopped.bless(5)
    again = opened(disk)
    assert (again.report.amnesia, again.term_state) == ([], HardState(5))
    again.close_inline()


def test_member_that_is_well_says_so() -> None:
    disk = stored()
    assert not StoppedMember(disk, BASE, "n0").remains().is_amnesiac


def test_folder_without_a_member_is_refused() -> None:
    with pytest.raises(StoreRefusedError, match=r"there is no checkpoint\. Start the member once"):
        StoppedMember(new_disk(), BASE, "n0").remains()


def test_member_that_runs_is_refused() -> None:
    disk = stored()
    store = opened(disk)
    stopped = StoppedMember(disk, BASE, "n0")
    with pytest.raises(StoreRefusedError, match=r"the member runs\. Stop it first"), stopped.locked():
        raise AssertionError("it was let in")
    store.close_inline()
