"""Master and slave as real processes, and everything that may happen to them:
`python -m tests.integration.torture.ha_torture --rounds N [--seed S]`.

Producers send all the time to a SYNC_MASTER with inSyncReplicas=2, its one slave behind a fault proxy. Each round does
something to the two brokers or the link between them. Then, from outside, on the files:

* every message acknowledged with SEND_OK is in the log of whoever is left, byte for byte, where the answer said;
* the slave's log is a prefix of the master's, and no shorter than it was;
* once it is mended, sends are acknowledged again, and both logs become equal;
* in the end both stop cleanly, the offline check finds nothing wrong in either, and the slave's ConsumeQueues and index
  are those of the master.

What fails tells what is wrong, and where copies of both stores as they were then are kept.
"""

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from benches.load.request import RefusedError, Target

from tests.integration.processes.fault_proxy import Direction
from tests.integration.processes.ha_torture_cluster import BrokerProcess, Cluster
from tests.integration.torture.broker_torture import entries_of, units_of
from tests.integration.torture.replication_torture import ReplicationTorture, options_of, run_rounds

GET_BROKER_RUNTIME_INFO = 28
_SLOW_LINK = 100_000  # bytes a second


class HATorture(ReplicationTorture):
    """What can be done to it."""

    PATIENCE_S = 30.0

    def __init__(self, folder: Path, seed: int) -> None:
        self.cluster = Cluster(folder)
        super().__init__(self.cluster.name_server_address, random.Random(seed))
        self.faults = self.FAULTS
        self._slave_end = 0

    @property
    def members(self) -> Sequence[BrokerProcess]:
        return self.cluster.brokers

    # -- what may happen; each returns when it is mended --

    async def kill_the_master(self) -> None:
        """The slave alone has everything that was acknowledged."""
        await self.cluster.master.kill()
        self._check_survivor(self.cluster.slave)
        await self.cluster.master.start()

    async def kill_the_slave(self) -> None:
        await self.cluster.slave.kill()
        self._check_survivor(self.cluster.slave)  # its files, as they were left
        await self.pause()
        self._check_survivor(self.cluster.master)
        await self.cluster.slave.start()

    async def kill_both(self) -> None:
        brokers = list(self.cluster.brokers)
        self.rng.shuffle(brokers)
        for broker in brokers:
            await broker.kill()
        self._check_survivor(self.cluster.slave)
        self._check_survivor(self.cluster.master)
        self.rng.shuffle(brokers)
        for broker in brokers:
            await broker.start()

    async def kill_while_starting(self) -> None:
        broker = self.rng.choice(self.cluster.brokers)
        await self.killed_while_starting(broker)
        self._check_survivor(self.cluster.slave)
        await broker.start()

    async def change_the_flush(self) -> None:
        """Both end cleanly and start with the other flushDiskType."""
        kind = self.rng.choice(["SYNC_FLUSH", "ASYNC_FLUSH"])
        for broker in self.cluster.brokers:
            await broker.stop()
            broker.configure({"flushDiskType": kind})
            self._check_survivor(self.cluster.slave)
            await broker.start()

    async def pause_the_master(self) -> None:
        await self.paused(self.cluster.master, up_to=3.0)  # or longer than haHousekeepingInterval

    async def pause_the_slave(self) -> None:
        await self.paused(self.cluster.slave, up_to=3.0)

    async def cut_the_link(self) -> None:
        await self._with_link(self.cluster.link.cut)

    async def reset_the_link(self) -> None:
        for _ in range(3):
            self.cluster.link.reset()
            await asyncio.sleep(self.rng.uniform(0.0, 0.2))

    async def stall_the_link(self) -> None:
        await self._with_link(self.cluster.link.stall, up_to=3.0)

    async def stall_reports(self) -> None:
        """The slave gets everything, the master never hears of it."""
        await self._with_link(lambda: self.cluster.link.stall(Direction.FROM_CLIENT), up_to=3.0)

    async def slow_the_link(self) -> None:
        await self._with_link(lambda: self.cluster.link.slow(_SLOW_LINK))

    async def half_close_the_link(self) -> None:
        self.cluster.link.half_close(self.rng.choice(list(Direction)))

    async def _with_link(self, fault: Callable[[], None], *, up_to: float = 1.0) -> None:
        fault()
        await self.pause(up_to=up_to)
        self.cluster.link.mend()

    async def cut_and_kill(self) -> None:
        """The slave falls behind, and the master dies: what was acknowledged is on the slave all the same."""
        self.cluster.link.cut()
        await self.pause()
        await self.cluster.master.kill()
        self._check_survivor(self.cluster.slave)
        self.cluster.link.mend()
        await self.cluster.master.start()

    async def empty_the_slave(self) -> None:
        """A new disk: it fetches the whole log (haFullCopy)."""
        await self.cluster.slave.kill()
        self.cluster.slave.empty()
        self._slave_end = 0
        await self.cluster.slave.start()

    FAULTS = (
        kill_the_master, kill_the_slave, kill_both, kill_while_starting, change_the_flush, pause_the_master,
        pause_the_slave, cut_the_link, reset_the_link, stall_the_link, stall_reports, slow_the_link,
        half_close_the_link, cut_and_kill, empty_the_slave,
    )  # fmt: skip

    # -- rounds --

    async def begin(self) -> None:
        await self.cluster.start()

    async def end(self) -> None:
        await self.cluster.end()

    def look(self) -> None:
        self._check_survivor(self.cluster.slave)
        self._check_survivor(self.cluster.master)

    @property
    def must_live(self) -> Sequence[BrokerProcess]:
        return self.cluster.brokers

    async def finish(self) -> None:
        for broker in self.cluster.brokers:
            await broker.stop()
        for broker in self.cluster.brokers:
            self.look_in(broker.log(), f"the {broker.name}", self.acknowledged)
            faults = broker.faults()
            self.claim(not faults, "\n".join([f"the {broker.name}'s store:", *faults]))
        master, slave = (broker.files() for broker in self.cluster.brokers)
        self.claim(units_of(master) == units_of(slave), "the slave's ConsumeQueues are not the master's")
        self.claim(entries_of(master) == entries_of(slave), "the slave's index is not the master's")

    async def converge(self) -> None:
        """Both logs end at the same place."""

        async def same_end() -> bool:
            ends = [await asyncio.to_thread(_end_said_by, broker) for broker in self.cluster.brokers]
            return ends[0] == ends[1]

        await self.until(same_end, "the slave does not catch up")

    # -- looking --

    def _check_survivor(self, broker: BrokerProcess) -> None:
        """What was acknowledged until now is in this broker's log, and the slave's log is a prefix of the master's."""
        acknowledged = list(self.senders.new)  # first: more may come while we read
        slave = self.cluster.slave.log()
        master = self.cluster.master.log()  # second: it is ahead
        self.look_in(slave if broker is self.cluster.slave else master, f"the {broker.name}", acknowledged)
        self.claim(slave.end <= master.end, f"the slave's log ends at {slave.end}, the master's at {master.end}")
        place = slave.first_difference(master)
        self.claim(place is None, f"the slave's log differs from the master's at {place}")
        self.claim(slave.end >= self._slave_end, f"the slave's log went back from {self._slave_end} to {slave.end}")
        self._slave_end = slave.end


def _end_said_by(broker: BrokerProcess) -> int:
    """Where the broker says its log ends; -1 if it says nothing."""
    try:
        frame = Target("127.0.0.1", broker.port).call(GET_BROKER_RUNTIME_INFO, {})
    except (OSError, RefusedError):
        return -1
    header = int.from_bytes(frame[4:8], "big") & 0xFFFFFF
    return int(json.loads(frame[8 + header :])["table"]["commitLogMaxOffset"])


if __name__ == "__main__":
    options = options_of("master and slave").parse_args()
    run_rounds(HATorture, options.rounds, options.seed, "logs, queues and index of master and slave are equal")
