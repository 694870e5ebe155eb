"""One seed, one story of transactions, as in transaction_story.py, on a disk of which every call can fail: of the log,
the queues, the index, the checkpoint, the consumer offsets and the metrics.

A broker whose log failed to sync, or one of whose services ended by such an error, stops itself. The next process
starts on the same machine, and a loss of power may come later. A start that the disk refuses is tried again. In the
last life the disk works. The rules are those of transaction_story.py.
"""

import asyncio
from dataclasses import replace
from typing import Any, ClassVar

from maxq.errors import StoreFailedError, StoreRefusedError
from maxq.testing.sim_disk import DiskFaults, PowerLoss
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld
from tests.simulation.disk_faults import FaultMix, SelfStop
from tests.simulation.transactions.transaction_story import TransactionNode, TransactionStory

_ERRORS = (OSError, StoreFailedError, StoreRefusedError)


class FaultyTransactionNode(TransactionNode):
    """One that stops itself."""

    story: "FaultyTransactionStory"

    def _watch(self) -> None:
        self.story.stop.watch(self.store)

    def _failed(self, name: str, error: BaseException) -> None:
        failed = error.split(_ERRORS)[1] if isinstance(error, BaseExceptionGroup) else error
        if failed is not None and not isinstance(failed, _ERRORS):
            raise failed
        self.story.marks.add("a service has failed")
        self.story.stop.ordered.set()


class FaultyTransactionStory(TransactionStory):
    """See the module."""

    NODE: ClassVar[type[TransactionNode]] = FaultyTransactionNode

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
        self.stop = SelfStop()
        life = asyncio.ensure_future(super()._main(world, rng, ending))
        stop = asyncio.ensure_future(self.stop.come())
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

    def _written_to(self, node: TransactionNode) -> int:
        log = node.store.commit_log
        buffer = log._write_buffer
        return log.max_offset if buffer is None else log.tail.file_from_offset + buffer.written


class TransactionSettingsStory(FaultyTransactionStory):
    """The same of a broker whose settings change from one start to the next: of flushing, check sums of properties, and
    extension units. Without an index a crash may deliver twice (commit_recovery.py)."""

    def _live(self, life: int, ending: str) -> None:
        rng = self.rng.fork(f"other settings {life}")
        if rng.chance(0.7):
            drawn: dict[str, Any] = {
                "flush_disk_type": rng.choice(("SYNC_FLUSH", "ASYNC_FLUSH")),
                "enabled_append_prop_crc": rng.chance(0.4),
                "force_verify_prop_crc": rng.chance(0.4),
                "enable_consume_queue_ext": rng.chance(0.4),
                "mapped_file_size_consume_queue_ext": rng.choice((1024, 2048)),
            }
            self.settings.store = replace(self.settings.store, **drawn)
            self.marks.add("other settings")
            self.history.append(f"other settings: {drawn}")
        super()._live(life, ending)
