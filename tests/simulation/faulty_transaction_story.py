"""One seed, one story of transactions, as in transaction_story.py, on a disk of which every call can fail: of the log,
the queues, the index, the checkpoint, the consumer offsets and the metrics.

A broker whose log failed to sync, or one of whose services ended by such an error, stops itself. The next process
starts on the same machine, and a loss of power may come later. A start that the disk refuses is tried again. In the
last life the disk works. The rules are those of transaction_story.py.
"""

import asyncio

from maxq.errors import StoreFailedError, StoreRefusedError
from maxq.testing.sim_disk import DiskFaults, PowerLoss
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld
from tests.simulation.disk_faults import FaultMix
from tests.simulation.transaction_story import TransactionNode, TransactionStory

_ERRORS = (OSError, StoreFailedError, StoreRefusedError)


class FaultyTransactionStory(TransactionStory):
    """See the module."""

    def _live(self, life: int, ending: str) -> None:
        rng = self.rng.fork(f"faults {life}")
        mix = FaultMix(rng, rng.choice(((), (), ("commitlog", "checkpoint"), ("consumequeue", "index"))))
        self._faults: DiskFaults | None = mix if ending != "to the end" and rng.chance(0.85) else None
        super()._live(life, ending)
        self.marks |= {f"failed: {kind}" for kind in mix.seen}
        self.history.append(f"  faults: {dict(mix.seen)}")

    async def _main(self, world: SimWorld, rng: SimRng, ending: str) -> None:
        if self._faults is not None:
            world.disk.faults = self._faults
        life = asyncio.ensure_future(super()._main(world, rng, ending))
        stop = asyncio.ensure_future(self._stopped_by_itself())
        try:
            await asyncio.wait({life, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not life.done():
                self.marks.add("stopped itself")
                raise OSError("the log has failed")
            await life
        except _ERRORS as error:
            assert self._faults is not None, f"a disk that works is refused: {error!r}"
            self.history.append(f"  ended by {error!r}")
            self.marks.add("ended by an error of the disk")
            world.disk.kill_process()
            raise PowerLoss from error
        finally:
            life.cancel()
            stop.cancel()

    async def _stopped_by_itself(self) -> None:
        while self._node is None or self._node.store.flusher.failure is None:  # noqa: ASYNC110 virtual time
            await asyncio.sleep(0.002)

    def _written_to(self, node: TransactionNode) -> int:
        log = node.store.commit_log
        staging = log._staging
        return log.max_offset if staging is None else log.tail.file_from_offset + staging.settled
