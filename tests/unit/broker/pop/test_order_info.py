"""What is given out in order: an ack of a delivery that nobody knows, as after a change of master."""

from pathlib import PurePath

from maxq.broker.pop.order_info import FILE_NAME, NO_COMMIT, ConsumerOrderInfoManager
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import SimDisk
from maxq.testing.sim_rng import SimRng


def test_an_ack_of_an_unknown_delivery_passes_over_no_message() -> None:
    clock = SimClock()
    disk = SimDisk(SimRng(1), clock)
    table = ConsumerOrderInfoManager(disk, PurePath(FILE_NAME), clock=clock, is_there=lambda topic, group: 1)
    assert table.commit_and_next("T", "G", 0, offset=7, pop_time=1, committed=3) == NO_COMMIT
    assert table.commit_and_next("T", "G", 0, offset=3, pop_time=1, committed=3) == 4
    assert table.commit_and_next("T", "G", 0, offset=0, pop_time=1, committed=-1) == 1
