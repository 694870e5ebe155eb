"""One seed, one story of transactions: a broker's store with its half and op messages lives, dies in some way and
starts again, and each transaction ends once, as its producer wants it.

A producer decides when it sends. It commits or rolls back at once, later, or when it is asked; the answer to a check
may get lost. In some stories there are half messages without room for the number of their checks, so that they cannot
be written again; in some it asks once more, or late, also for transactions of processes that died before, whose half
messages may be gone, and others in their places. The rules:

* nothing is in its topic twice, whatever happened, and nothing that its producer rolls back;
* what was durable as a half message, and is to be committed, is in its topic at the end: if a loss of power takes a
  commit that was not flushed, the next check asks for it;
* every half message that is there ends: nothing is asked for in the end.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import ClassVar, Final

from maxq.broker.tables.offset.consumer_offset_manager import ConsumerOffsetManager
from maxq.broker.transaction.half_message import turn_away
from maxq.broker.transaction.transaction_metrics import TransactionMetrics
from maxq.broker.transaction.transactional_message_check_service import TransactionalMessageCheckService
from maxq.broker.transaction.transactional_message_service import TransactionalMessageService
from maxq.config.settings import BrokerSettings
from maxq.errors import MaxQError
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.send import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.message_properties import encode_properties
from maxq.protocol.message.message_sys_flag import MessageSysFlag
from maxq.runtime.blocking import run_blocking
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.context.store_context import StoreIdentity
from maxq.store.message_store import MessageStore
from maxq.store.queue.unit_scan_cy import DAMAGED_TAGS_CODE
from maxq.store.store_results import PutMessageResult
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import PowerLoss, SimDisk
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld, run_simulation
from tests.unit.broker.bundles_of import clients, environment, messages, tables

ENDINGS: Final = (
    "shutdown", "kill", "kill in operation", "kill in start", "moment", "moment", "operation", "operation", "start",
    "power lost in shutdown",
)  # fmt: skip
TOPIC: Final = "T"
GROUP: Final = "PG"
ROOT: Final = "/store"
PERSIST_MS: Final = 700
CHECKS: Final = 60  # until a half message whose properties were torn is given up: nobody can end it
GIVE_UP_MS: Final = 300_000
_ALL: Final = 1 << 62
_NEVER: Final = _ALL + 1
_KEY: Final = const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX
_PROPERTIES_MOST: Final = 32_767
_HOST: Final = b"\x7f\0\0\1\0\0\x12\x34"


@dataclass(slots=True)
class Opened:
    """One transaction.

    Attributes:
        end: of the half message in the log; _NEVER while it is not acknowledged: its process may die there.
        is_settled: the life in which it was opened has ended; `is_durable` says whether it must end as it should.
    """

    key: str
    commits: bool
    queue_offset: int = -1
    physical_offset: int = -1
    end: int = _NEVER
    is_settled: bool = False
    is_durable: bool = False


class TransactionNode:
    """A store with half and op messages, as a broker joins them; its only producer is the story's."""

    def __init__(self, world: SimWorld, settings: BrokerSettings, story: "TransactionStory") -> None:
        self.world = world
        self.settings = settings
        self.story = story
        self._tasks: list[asyncio.Task[None]] = []
        self._takes_answers = True

    async def open(self) -> None:
        disk, clock = self.world.disk, self.world.clock
        self.store = MessageStore(
            self.settings.store, disk=disk, clock=clock, broker=StoreIdentity(), memory_bytes=1 << 30, populate_ahead=0
        )
        self._watch()
        self.store.load()
        self.store.start()
        config = PurePath(ROOT) / "config"
        self.offsets = ConsumerOffsetManager(disk, config / "consumerOffset.json", settings=self.settings, clock=clock)
        self.offsets.load()
        metrics = TransactionMetrics(disk, config / "transactionMetrics", clock=clock)
        env = environment(self.settings, clock=clock, disk=disk, on_failure=self._failed)
        kept = messages(store=self.store)
        self.service = TransactionalMessageService(env, tables(offsets=self.offsets, topics=_Topics()), kept, metrics)
        self.checks = TransactionalMessageCheckService(
            env, clients(producers=_Producers(self)), kept, self.service, _nowhere
        )
        self.checks.start()
        await self.checks.ready()
        self._tasks.append(asyncio.get_running_loop().create_task(self._persist()))

    def _watch(self) -> None:
        """The store is about to begin."""

    def _failed(self, name: str, error: BaseException) -> None:
        raise error

    async def _persist(self) -> None:
        while True:
            await asyncio.sleep(PERSIST_MS / 1000)
            await run_blocking(self.offsets.persist)

    async def close(self) -> None:
        self._takes_answers = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.checks.shutdown()
        await run_blocking(self.offsets.persist)
        await self.store.shutdown()

    def send(self, key: str, body: bytes, *, is_full: bool = False) -> PutMessageResult:
        """A half message, as a send goes; `is_full`: its properties have no room for more."""
        properties = {const.PROPERTY_TRANSACTION_PREPARED: "true", const.PROPERTY_PRODUCER_GROUP: GROUP, _KEY: key}
        now = self.world.clock.wall_ms()
        message = MessageExtBrokerInner(TOPIC, 0, body, properties, born_timestamp=now, born_host=_HOST)
        message.sys_flag = MessageSysFlag.TRANSACTION_PREPARED
        assert turn_away(message), "it opens a transaction"
        if is_full:
            room = _PROPERTIES_MOST - len(encode_properties(message.properties)) - len("filler\1\2")
            message.properties["filler"] = "x" * room
        return self.store.put_message(message)

    def end(self, opened: Opened, *, plainly: bool, waits: bool) -> None:
        """As its producer does by itself; over the compiled path, if that takes it."""
        if plainly and opened.commits and self.service.commit_on_fast_path(
            opened.queue_offset, opened.physical_offset, GROUP.encode(), None, opened.key.encode()
        ):  # fmt: skip
            self.store.appended()
            return
        self._end(opened, opened.queue_offset, opened.physical_offset, is_answer=False, waits=waits)

    def answer(self, opened: Opened, queue_offset: int, physical_offset: int) -> None:
        """To a check."""
        if self._takes_answers:
            self._end(opened, queue_offset, physical_offset, is_answer=True, waits=False)

    def _end(self, opened: Opened, queue_offset: int, physical_offset: int, *, is_answer: bool, waits: bool) -> None:
        kind = MessageSysFlag.TRANSACTION_COMMIT if opened.commits else MessageSysFlag.TRANSACTION_ROLLBACK
        header = EndTransactionRequestHeader(
            GROUP, queue_offset, physical_offset, kind, opened.key, TOPIC, is_answer, opened.key
        )
        if opened.commits:
            self.service.commit(header)
        else:
            self.service.rollback(header, waits=waits)

    def delivered(self) -> list[MessageExt]:
        """Everything in the topic's queue."""
        queue = self.store.queue(TOPIC, 0)
        units = [] if queue is None else [queue.unit(at) for at in range(queue.max_offset)]
        good = [unit[0] for unit in units if unit is not None and unit[2] != DAMAGED_TAGS_CODE]
        messages = [self.store.look_message_by_offset(offset) for offset in good]
        return [message for message in messages if message is not None]


class _Topics:
    """The topic of what is given up is there already."""

    def create_topic_in_send_message_back_method(self, topic: str, queues: int, perm: int, sys_flag: int) -> None:
        """Nothing."""


class _Producers:
    """Stands for ProducerManager and the connection that it finds: checks reach the story."""

    def __init__(self, node: TransactionNode) -> None:
        self._node = node

    def get_available_channel(self, group: str, may: Callable[..., bool]) -> "_Producers":
        return self

    def send_oneway(self, request: RemotingCommand) -> None:
        header = CheckTransactionStateRequestHeader.decode(request.ext)
        self._node.story.asked(self._node, str(header.msg_id), header.tran_state_table_offset, header.commit_log_offset)


async def _nowhere(message: MessageExtBrokerInner) -> PutMessageResult:
    raise AssertionError("a master gives nothing to other groups")


class TransactionStory:
    """Attributes:
    marks: what happened, for the campaign's statistics.
    history: the same in order, for whoever reads a failure.
    """

    NODE: ClassVar[type[TransactionNode]] = TransactionNode

    def __init__(self, seed: int) -> None:
        self.rng = SimRng(seed)
        self.clock = SimClock()
        rng = self.rng.fork("disk")
        self.disk = SimDisk(rng, self.clock, write_back=rng.choice((0.0, 0.2, 0.6)), kill_keeps_cache=True)
        self.settings = self._settings(self.rng.fork("settings"))
        store = self.settings.store
        self.marks: set[str] = {store.flush_disk_type}
        self.history = [f"{store.flush_disk_type}, flush every {store.flush_interval_commit_log} ms"]
        self.opened: dict[str, Opened] = {}
        self._number = 0
        self._node: TransactionNode | None = None
        self._kept_from: int | None = None  # see DelayStory
        self._kept_to = _ALL
        self._is_last = False
        self._answers = self.rng.fork("answers")
        sizes = self.rng.fork("sizes")
        self._sizes = sizes if sizes.chance(0.3) else None
        late = self.rng.fork("late")
        self._late = late if late.chance(0.4) else None

    @staticmethod
    def _settings(rng: SimRng) -> BrokerSettings:
        settings = BrokerSettings()
        settings.store = replace(
            settings.store,
            store_path_root_dir=ROOT,
            flush_disk_type=rng.choice(("SYNC_FLUSH", "ASYNC_FLUSH", "ASYNC_FLUSH", "ASYNC_FLUSH")),
            flush_interval_commit_log=rng.choice((20, 500, 4_000)),
            flush_commit_log_thorough_interval=rng.choice((50, 10_000)),
            mapped_file_size_commit_log=rng.choice((32_768, 65_536)),
            mapped_file_size_consume_queue=rng.choice((400, 2_000)),
            max_message_size=8_192,
            max_hash_slot_num=100,
            max_index_num=1_000,
        )
        settings.broker = replace(
            settings.broker,
            transaction_time_out=rng.choice((500, 3_000)),
            transaction_check_interval=rng.choice((500, 2_000)),
            transaction_check_max=CHECKS,
            transaction_op_batch_interval=rng.choice((50, 3_000)),
            transaction_op_msg_max_size=rng.choice((20, 4_096)),
        )
        return settings

    def run(self) -> None:
        """Live, die, start again; in the last life everything ends."""
        for life in range(self.rng.between(1, 4)):
            self._live(life, self.rng.choice(ENDINGS))
        self._is_last = True
        self._live(99, "to the end")

    # -- one life --

    def _live(self, life: int, ending: str) -> None:
        rng, disk = self.rng.fork(f"life {life}"), self.disk
        if "start" in ending:
            disk.cut_power_after(rng.below(60), process_only="kill" in ending)
        try:
            run_simulation(lambda world: self._main(world, rng, ending), seed=rng.seed, disk=disk, clock=self.clock)
        except PowerLoss:
            self._note_loss(disk)
        self._node = None
        self.marks.add(f"ending: {ending}")
        self.history.append(f"life {life} ended: {ending} {disk.lost_at}")
        self.disk = disk.boot()

    async def _main(self, world: SimWorld, rng: SimRng, ending: str) -> None:
        node = self.NODE(world, self.settings, self)
        await node.open()
        self._node = node
        if self._kept_from is not None:
            self._kept_from = None
            self._durable_up_to(self._kept_to)
        self._judge(node)
        if ending == "to the end":
            await self._finish(node, rng)
            return
        if "operation" in ending:
            world.disk.cut_power_after(rng.below(400), process_only="kill" in ending)
        await self._work(node, rng, rng.between(5, 60))
        if ending == "shutdown":
            await node.close()
            self._durable_up_to(_ALL)
        elif "shutdown" in ending:
            world.disk.cut_power_after(rng.below(40))
            await node.close()
            world.disk.cut_power()
            raise PowerLoss
        elif "kill" in ending:
            world.disk.kill_process()
            raise PowerLoss
        else:
            world.disk.cut_power()
            raise PowerLoss

    def _note_kill(self, node: TransactionNode) -> None:
        """With SYNC_FLUSH only what was flushed was acknowledged."""
        if node.store.flusher.is_sync:
            self._durable_up_to(node.store.flushed_offset)
        else:
            self._kept_from = node.store.flushed_offset
            self._kept_to = self._written_to(node)

    def _written_to(self, node: TransactionNode) -> int:
        """End of what the process has given to the system."""
        return _ALL

    def _note_loss(self, disk: SimDisk) -> None:
        if disk.lost_process_only:
            if self._node is not None:
                self._note_kill(self._node)
            self.marks.add("killed in: " + (disk.lost_at.split() or ["a moment"])[0])
            return
        if self._node is not None:
            self._durable_up_to(self._node.store.flushed_offset)
        elif self._kept_from is not None:
            self._durable_up_to(self._kept_from)
            self.marks.add("power lost after a kill")
        self._kept_from = None
        if disk.lost_at:
            self.marks.add("power lost in: " + disk.lost_at.split()[0] + " " + disk.lost_at.split("/")[2])

    def _durable_up_to(self, end: int) -> None:
        """A life has ended, and the log is there up to `end`."""
        for opened in self.opened.values():
            if not opened.is_settled:
                opened.is_settled, opened.is_durable = True, opened.end <= end

    # -- what happens --

    async def _work(self, node: TransactionNode, rng: SimRng, steps: int) -> None:
        waiting: list[Opened] = []
        for _ in range(steps):
            for _ in range(rng.choice((0, 1, 1, 3, 12))):
                opened = self._open(node, rng)
                if opened is not None and rng.chance(0.8):
                    waiting.append(opened)
            while waiting and rng.chance(0.85):
                node.end(waiting.pop(rng.below(len(waiting))), plainly=rng.chance(0.5), waits=rng.chance(0.5))
            if self._late is not None and self._late.chance(0.4) and self.opened:
                self._end_again(node, self._late)
            await asyncio.sleep(rng.choice((0, 7, 100, 400, 1_000, 4_000)) / 1000)

    def _end_again(self, node: TransactionNode, rng: SimRng) -> None:
        """Any transaction, whether it has ended or its half message is gone."""
        opened = rng.choice([*self.opened.values()])
        if opened.queue_offset >= 0:
            with contextlib.suppress(MaxQError):
                node.end(opened, plainly=rng.chance(0.5), waits=rng.chance(0.5))
            self.marks.add("ended late, or once more")

    def _open(self, node: TransactionNode, rng: SimRng) -> Opened | None:
        self._number += 1
        key = f"K{self._number}"
        opened = self.opened[key] = Opened(key, commits=rng.chance(0.6))
        is_full = self._sizes is not None and self._sizes.chance(0.05)
        result = node.send(key, b"x" * rng.choice((1, 200, 1_000, rng.below(4_000) + 1)), is_full=is_full)
        if not result.ok:
            del self.opened[key]
            return None
        opened.queue_offset, opened.physical_offset = result.queue_offset, result.physical_offset
        opened.end = result.end_offset
        return opened

    def asked(self, node: TransactionNode, key: str, queue_offset: int, physical_offset: int) -> None:
        """A check has come: answer it a little later, if at all."""
        opened = self.opened.get(key)
        if opened is None:  # the power tore its properties, which no check sum covers
            opened = Opened(key, commits=False)
            self.marks.add("half message with torn properties")
        if self._answers.chance(0.6):
            delay = self._answers.choice((0.001, 0.2, 3.0))
            asyncio.get_running_loop().call_later(delay, node.answer, opened, queue_offset, physical_offset)
            self.marks.add("answered a check")

    # -- rules --

    async def _finish(self, node: TransactionNode, rng: SimRng) -> None:
        await self._work(node, rng, 5)
        self._durable_up_to(_ALL)
        gave_up_ms = self.clock.monotonic_ms() + GIVE_UP_MS
        while lacking := self._lacking(node):
            assert self.clock.monotonic_ms() < gave_up_ms, f"lost, or asked for again and again: {lacking[:3]}"
            await asyncio.sleep(5)
        await asyncio.sleep(10)  # nothing may come twice
        self._judge(node)
        await node.close()

    def _lacking(self, node: TransactionNode) -> list[object]:
        there = {message.uniq_key for message in node.delivered()}
        lost = [one for one in self.opened.values() if one.is_durable and one.commits and one.key not in there]
        ledger, end = node.service.ledger, node.store.max_offset("RMQ_SYS_TRANS_HALF_TOPIC", 0)
        return [*lost, *([f"half message {ledger.next_open(0)}"] if ledger.next_open(0) < end else [])]

    def _judge(self, node: TransactionNode) -> None:
        keys = [str(message.uniq_key) for message in node.delivered()]
        delivered = Counter(key for key in keys if key in self.opened)  # properties of others were torn
        twice = [self.opened[key] for key, count in delivered.items() if count > 1]
        assert not twice, f"delivered more than once: {twice[:3]}"
        unwanted = [self.opened[key] for key in delivered if not self.opened[key].commits]
        assert not unwanted, f"rolled back, and came: {unwanted[:3]}"
        for key in delivered:
            self.opened[key].is_durable = True  # it survived a start: its message does from now on
            self.marks.add("committed")
