"""One seed, one story of messages that wait, as in delay_power_story.py, on a disk of which every call can fail: of the
log, the queues, the index, the wheel, the timer's log, its checkpoint, the offsets of the delay levels.

In some stories timer messages are refused now and then when they are due: they go into other slots than their own.

A broker whose store or service ends by such an error is gone as after a kill, and the next process starts on the same
machine: it sees what a failed sync has dropped, and a loss of power comes later. A start that the disk refuses is tried
again. The rules are those of delay_story.py; a fault that lasts delays messages, so what comes late is judged only when
the disk works again.
"""

import asyncio
from typing import ClassVar

from maxq.errors import StoreRefusedError
from maxq.protocol.message import message_const as const
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.store_results import PutMessageResult, PutMessageStatus
from maxq.testing.sim_disk import PowerLoss
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld
from tests.simulation.disk_faults import FaultMix
from tests.simulation.waiting.delay_power_story import DelayPowerStory
from tests.simulation.waiting.delay_story import DelayNode


class FaultyNode(DelayNode):
    """A node that ends when a service does.

    Attributes:
        refusals: draws which deliveries of timer messages are refused; None: none is.
    """

    refusals: SimRng | None = None

    def __init__(self, world: SimWorld, disk: object) -> None:
        super().__init__(world, disk)
        self.ended = asyncio.Event()

    def _failed(self, name: str, error: BaseException) -> None:
        assert isinstance(error, OSError | StoreRefusedError), f"{name}: {error!r}"
        self.ended.set()

    async def _put(self, message: MessageExtBrokerInner) -> PutMessageResult:
        is_timed = const.PROPERTY_TIMER_OUT_MS in message.properties
        if is_timed and self.refusals is not None and self.refusals.chance(0.3):
            return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL, remark="as told")
        return await super()._put(message)


class TimerStory(DelayPowerStory):
    """See the module."""

    NODE: ClassVar[type[DelayNode]] = FaultyNode

    async def _main(self, world: SimWorld, rng: SimRng, ending: str) -> None:
        mix = FaultMix(rng.fork("faults"), rng.choice(((), (), ("commitlog", "checkpoint"), ("timer",))))
        if ending != "to the end" and rng.chance(0.8):
            world.disk.faults = mix
        try:
            await super()._main(world, rng, ending)
        except (OSError, StoreRefusedError) as error:
            self.history.append(f"  ended by {error!r}")
            self.marks.add("ended by an error of the disk")
            world.disk.kill_process()
            raise PowerLoss from error
        finally:
            self.marks |= {f"failed: {kind}" for kind in mix.seen}
            self.history.append(f"  faults: {dict(mix.seen)}")

    async def _work(self, node: DelayNode, rng: SimRng, steps: int) -> None:
        assert isinstance(node, FaultyNode)
        refusals = rng.fork("refusals")
        node.refusals = refusals if refusals.chance(0.3) else None
        work = asyncio.ensure_future(super()._work(node, rng, steps))
        ended = asyncio.ensure_future(node.ended.wait())
        await asyncio.wait({work, ended}, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if not work.done():
            work.cancel()
            raise OSError("a service has ended")
        await work

    def _judge(self, node: DelayNode) -> None:
        super()._judge(node)
        if node.service.timer.saved.moved:
            self.marks.add("moved")

    def _written_to(self, node: DelayNode) -> int:
        log = node.store.commit_log
        buffer = log._write_buffer
        return log.max_offset if buffer is None else log.tail.file_from_offset + buffer.written
