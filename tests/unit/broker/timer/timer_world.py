"""A store with a timer on a simulated disk, in virtual time."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from maxq.broker.processors.refusal import Refusal
from maxq.broker.timer.timer_hook import TimerHook
from maxq.broker.timer.timer_service import TimerService
from maxq.config.settings import BrokerSettings
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.body.timer_checkpoint import TimerCheckpoint
from maxq.protocol.dledger.ledger import HardState
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import MessageExt
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.context.store_context import StoreIdentity
from maxq.store.message_store import MessageStore
from maxq.store.queue.unit_scan_cy import DAMAGED_TAGS_CODE
from maxq.store.store_results import PutMessageResult, PutMessageStatus
from maxq.store.timer import roll_window, timer_message_store, timer_wheel
from maxq.store.timer.timer_record import TIMER_TOPIC
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import PowerLoss, SimDisk
from maxq.testing.simulation import SimWorld, run_simulation
from tests.unit.broker.bundles_of import environment, messages

TOPIC = "T"
SLOTS: Final = 20_000  # of a small wheel
Put = Callable[[MessageExtBrokerInner], Awaitable[PutMessageResult]]
#: Settings of a member of a DLedger group.
MEMBER: Final[Any] = {
    "enable_dleger_commit_log": True, "dleger_self_id": "n0", "mapped_file_size_dledger_index": 32_000,
}  # fmt: skip


@contextlib.contextmanager
def small_wheel() -> Iterator[None]:
    """Timers have a wheel of SLOTS: the simulated disk looks at every page of a file to find those that changed."""
    with (
        patch.multiple(timer_wheel, SLOTS=SLOTS, WHEEL_SIZE=SLOTS * timer_wheel.SLOT_SIZE),
        patch.object(timer_message_store, "SLOTS", SLOTS),
        patch.object(roll_window, "SLOTS_PER_LAP", SLOTS // 2),
    ):
        yield


class TimerWorld:
    """One broker's store and timer, opened and ended as often as a test wants.

    Attributes:
        failing: topics whose messages cannot be put, with the status they get.
        is_local: does this broker store what it delivers?
    """

    def __init__(self, world: SimWorld, disk: Any = None, **changes: Any) -> None:
        self.sim = world
        self.disk = disk or world.disk
        self.clock = world.clock
        self.settings = BrokerSettings()
        self.failing: dict[str, PutMessageStatus] = {}
        self.env = environment(self.settings, disk=self.disk, clock=self.clock, rng=world.rng, on_failure=self._failed)
        self._numbers = 0
        self._committing: asyncio.Task[None] | None = None
        self.configure(
            store_path_root_dir="/store",
            mapped_file_size_commit_log=1 << 20,
            mapped_file_size_consume_queue=2000,
            mapped_file_size_timer_log=5200,
            max_hash_slot_num=100,
            max_index_num=1000,
            max_message_size=16_384,
        )
        self.configure(**changes)

    @property
    def is_local(self) -> bool:
        return self.env.own.is_master

    @is_local.setter
    def is_local(self, is_local: bool) -> None:
        self.env.own.broker_id = 0 if is_local else 1

    def configure(self, **changes: Any) -> None:
        self.settings.store = replace(self.settings.store, **changes)

    async def open(self, *, dequeue: bool = True) -> "TimerWorld":
        """Load store and timer, and let them run."""
        self.store = MessageStore(
            self.settings.store, disk=self.disk, clock=self.clock, broker=StoreIdentity(), memory_bytes=1 << 30,
            populate_ahead=0,
        )  # fmt: skip
        self.store.load()
        self.store.start()
        self.service = TimerService(self.env, messages(store=self.store), self._put, lambda message, result: None)
        service = self.service
        self.hook = TimerHook(
            self.settings, clock=self.clock, rng=self.sim.rng, wheel=lambda: service.timer, on_timed=service.wake
        )
        await self.service.load()
        self.service.begin()
        if dequeue:
            self.service.start()
        return self

    def follows(self, queue_offset: int, read_time_ms: int | None = None, **told: Any) -> None:
        """Be a slave whose master has filled its wheel up to that queue offset, and says so."""
        self.be("SLAVE")
        version = DataVersion()
        version.next_version(self.clock.wall_ms())
        read_ms, log_end = read_time_ms or self.clock.wall_ms(), self.store.max_physical_offset
        checkpoint = TimerCheckpoint(read_ms, 0, queue_offset, queue_offset, version, (), log_end, log_end)
        self.service.exchange.take_checkpoint(replace(checkpoint, **told))
        self.service.wake()

    def promote(self) -> None:
        """Be the master, and deliver."""
        self.be("ASYNC_MASTER")
        self.service.start()

    def be(self, role: str) -> None:
        self.configure(broker_role=role)
        self.store.update_config(self.settings.store)

    def follow(self) -> None:
        """Be told by a leader that all entries are committed, now and later."""
        if self._committing is None:
            self._committing = asyncio.ensure_future(self._commit())

    def lead(self, term: int) -> None:
        """Be the leader of the group, all of which has what this member has, and deliver."""
        assert self.store.ledger is not None
        self.store.ledger.store_term(HardState(term, "n0"))
        self.store.ledger.begin_leading(term)
        self.store.ledger.commit(self.store.ledger.end_index)
        self.follow()
        self.configure(broker_role="SYNC_MASTER")
        self.store.update_config(self.settings.store)
        self.service.start()

    async def _commit(self) -> None:
        while True:
            assert self.store.ledger is not None
            self.store.ledger.commit(self.store.ledger.end_index)
            await asyncio.sleep(0.01)

    def _failed(self, name: str, error: BaseException) -> None:
        raise error

    async def _put(self, message: MessageExtBrokerInner) -> PutMessageResult:
        status = self.failing.get(message.topic)
        return self.store.put_message(message) if status is None else PutMessageResult(status, remark="as told")

    async def close(self) -> None:
        await self.service.shutdown()
        self._end_committing()
        await self.store.shutdown()

    async def kill(self) -> None:
        """The process is gone; what it had put into files is there."""
        self._end_committing()
        tasks = [*self.service._tasks, *self.store._parts.services.tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.store.commit_log.write_buffered()
        self.store._life.lock.release()

    def _end_committing(self) -> None:
        if self._committing is not None:
            self._committing.cancel()
            self._committing = None

    def send(self, body: str = "", topic: str = TOPIC, **properties: str) -> PutMessageResult | Refusal:
        """Through the hook, as a send goes."""
        self._numbers += 1
        properties = {const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX: f"ID{self._numbers}", **properties}
        message = MessageExtBrokerInner(
            topic, 0, body.encode() or b"x", properties,
            born_timestamp=self.clock.wall_ms(), born_host=b"\x7f\0\0\1\0\0\x12\x34",
        )  # fmt: skip
        refusal = self.hook(message)
        return refusal or self.store.put_message(message)

    def send_in(self, delay_ms: int, body: str = "", **properties: str) -> None:
        result = self.send(body, TIMER_DELAY_MS=str(delay_ms), **properties)
        assert isinstance(result, PutMessageResult) and result.ok, result

    def store_timed(self, out_ms: int, body: str, **properties: str) -> None:
        """Put a record into the timer's topic as another broker wrote it, or a client."""
        self._numbers += 1
        properties = {
            const.PROPERTY_TIMER_OUT_MS: str(out_ms),
            const.PROPERTY_REAL_TOPIC: TOPIC,
            const.PROPERTY_REAL_QUEUE_ID: "0",
            const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX: f"ID{self._numbers}",
            **properties,
        }
        message = MessageExtBrokerInner(
            TIMER_TOPIC, 0, body.encode(), properties,
            born_timestamp=self.clock.wall_ms(), born_host=b"\x7f\0\0\1\0\0\x12\x34",
        )  # fmt: skip
        assert self.store.put_message(message).ok
        self.service.wake()

    def delivered(self, topic: str = TOPIC) -> list[MessageExt]:
        """Everything in the topic's queue, in order."""
        queue = self.store.queue(topic, 0)
        if queue is None:
            return []
        units = [queue.unit(offset) for offset in range(queue.max_offset)]
        good = [unit[0] for unit in units if unit is not None and unit[2] != DAMAGED_TAGS_CODE]
        messages = [self.store.look_message_by_offset(offset) for offset in good]
        return [message for message in messages if message is not None]

    def bodies(self, topic: str = TOPIC) -> list[str]:
        return [message.body.decode() for message in self.delivered(topic)]

    async def sleep_ms(self, duration_ms: int) -> None:
        await asyncio.sleep(duration_ms / 1000)


def lateness(world: TimerWorld) -> list[int]:
    """By how many ms each delivered message was stored after its time; its body says when that was."""
    return [message.store_timestamp - int(message.body) for message in world.delivered()]


Story = Callable[[TimerWorld], Awaitable[None]]


def through_power_losses(stories: list[Story], seed: int, **changes: Any) -> None:
    """Run the stories one after the other, on a small wheel; the power goes at the end of each but the last."""
    disk: SimDisk | None = None
    clock = SimClock()

    async def main(world: SimWorld) -> None:
        await stories[-1](TimerWorld(world, **changes))

    with small_wheel():
        for number, story in enumerate(stories[:-1]):
            disk = _until_power_loss(story, seed + number, disk, clock, changes)
        run_simulation(main, seed=seed, disk=disk, clock=clock)


def _until_power_loss(story: Story, seed: int, disk: SimDisk | None, clock: SimClock, changes: Any) -> SimDisk:
    worlds: list[SimWorld] = []

    async def main(world: SimWorld) -> None:
        worlds.append(world)
        await story(TimerWorld(world, **changes))
        world.disk.cut_power()
        raise PowerLoss

    with contextlib.suppress(PowerLoss):
        run_simulation(main, seed=seed, disk=disk, clock=clock)
    return worlds[0].disk.boot()


def in_virtual_time(story: Story, seed: int = 1, **changes: Any) -> None:
    """Run a story on a world that it opens itself."""

    async def main(world: SimWorld) -> None:
        await story(TimerWorld(world, **changes))

    run_simulation(main, seed=seed, time_limit_s=40 * 86_400.0, step_limit=50_000_000)
