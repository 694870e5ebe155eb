"""The parts of pop consumption on a store in a folder, without a broker around them."""

import asyncio
from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import Any

from maxq.broker.bundles import Environment, Messages, Tables
from maxq.broker.identity.broker_identity import BrokerAddress
from maxq.broker.pop.check_point_buffer import CheckPointBuffer
from maxq.broker.pop.order_info import ConsumerOrderInfoManager
from maxq.broker.pop.order_service import OrderService
from maxq.broker.pop.pop_counts import PopCounts
from maxq.broker.pop.pop_journal import PopJournal
from maxq.broker.pop.retry_writer import RetryWriter
from maxq.broker.pop.revive_record_writer import ReviveRecordWriter
from maxq.broker.processors.acknowledgement import Acknowledgement
from maxq.broker.tables.offset.lmq_consumer_offset_manager import create_consumer_offset_manager
from maxq.broker.tables.subscription.subscription_group_manager import SubscriptionGroupManager
from maxq.broker.tables.topic.topic_config_manager import TopicConfigManager
from maxq.config.settings import BrokerSettings
from maxq.errors import MaxQError
from maxq.protocol.body.pop import PopCheckPoint
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.message.message import MessageExt
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.message_store import MessageStore
from maxq.store.queue.unit_scan_cy import DAMAGED_TAGS_CODE
from maxq.store.store_results import PutMessageResult, PutMessageStatus
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import SimDisk
from maxq.testing.sim_rng import SimRng
from tests.unit.broker.bundles_of import environment, messages, tables
from tests.unit.store.stores import TestClock, message, opened, small_config

GROUP = "G"
NAME = "broker-a"
CONFIG_DIR = PurePath("/store/config")


class PopParts:
    """One broker's tables, store, check points and journal.

    Attributes:
        refused: the store refuses puts with this status; if `refused_topic` is not empty, only those to this topic.
        failing: so many of the next puts that are refused raise OSError.
        hanging: puts that are refused end when they are cancelled.
        woken: topics and groups whose waiting pops were told to look again.
        elsewhere: messages that another broker has, by broker name, topic, queue id and offset.
    """

    def __init__(self, folder: Path, *, broker_id: int = 0, **settings: str) -> None:
        self.clock = TestClock()
        self.settings, _ = BrokerSettings.from_properties({"timerWheelEnable": "false", **settings}, source="test")
        self.own = BrokerAddress("C", NAME, broker_id, "10.0.0.1", 10911)
        self.store: MessageStore = opened(
            small_config(
                folder, mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=4_000,
                max_message_size=self.settings.store.max_message_size,
            ),
            self.clock,
        )  # fmt: skip
        disk = SimDisk(SimRng(1), SimClock())
        self.topics = TopicConfigManager(disk, CONFIG_DIR / "topics.json", settings=self.settings, clock=self.clock)
        self.groups = SubscriptionGroupManager(
            disk, CONFIG_DIR / "subscriptionGroup.json", settings=self.settings, clock=self.clock
        )
        self.offsets = create_consumer_offset_manager(disk, CONFIG_DIR, settings=self.settings, clock=self.clock)
        self.env: Environment = environment(self.settings, own=self.own, clock=self.clock, rng=SimRng(1), disk=disk)
        self.tables: Tables = tables(topics=self.topics, groups=self.groups, offsets=self.offsets)
        self.messages: Messages = messages(store=self.store, acknowledgement=Acknowledgement(self.store.flusher))
        self.journal = PopJournal(self.store, self.offsets, self.clock, may_write=lambda: broker_id == 0)
        self.buffer = CheckPointBuffer(self.offsets, self.journal, self.clock)
        self.buffer.is_open = True
        self.orders = OrderService(
            self.env,
            self.tables,
            ConsumerOrderInfoManager(disk, CONFIG_DIR / "order.json", clock=self.clock, is_there=lambda *_: 8),
            self.journal,
            lambda *_: None,
        )
        self.counts = PopCounts()
        self.refused: PutMessageStatus | None = None
        self.refused_topic = ""
        self.failing = 0
        self.hanging = False
        self.woken: list[tuple[str, str]] = []
        self.elsewhere: dict[tuple[str, str, int, int], MessageExt] = {}
        self.records = ReviveRecordWriter(self.env, self.messages, self._put, self.counts)
        self.reviver = RetryWriter(
            self.env, self.tables, self.messages, self._put, self._read_elsewhere, self.counts, self._wake
        )

    async def _put(self, message: MessageExtBrokerInner) -> PutMessageResult:
        if self.refused is not None and self.refused_topic in ("", message.topic):
            if self.failing:
                self.failing -= 1
                raise OSError("it is told to")
            if self.hanging:
                await asyncio.Event().wait()
            return PutMessageResult(self.refused, remark="it is told to")
        return self.store.put_message(message)

    async def _read_elsewhere(self, name: str, topic: str, queue_id: int, offset: int) -> MessageExt | None:
        if name == "silent":
            raise MaxQError("it does not answer")
        return self.elsewhere.get((name, topic, queue_id, offset))

    def _wake(self, topic: str, group: str) -> None:
        self.woken.append((topic, group))

    # --- for tests ---------------------------------------------------------------------------------------------------

    def create(self, topic: str = "T", queues: int = 1, **more: Any) -> TopicConfig:
        """Make a topic, and the group."""
        config = TopicConfig(topic, queues, queues, **more)
        self.topics.update_topic_config(config)
        self.groups.find_subscription_group_config(GROUP)
        return config

    def fill(self, bodies: Iterable[bytes], topic: str = "T", queue_id: int = 0, **properties: str) -> None:
        for body in bodies:
            assert self.store.put_message(message(topic, queue_id, body, **properties)).ok

    def point(self, start: int, count: int, *, topic: str = "T", queue_id: int = 0, **more: Any) -> PopCheckPoint:
        """A check point of `count` messages that were popped at this moment, for a minute."""
        given = {"invisible_time": 60_000, "broker_name": NAME, **more}
        return PopCheckPoint(
            topic, GROUP, queue_id, start, self.clock.now_ms, given.pop("invisible_time"), given.pop("broker_name"),
            list(range(count)), count, **given,
        )  # fmt: skip

    def damage(self, topic: str, queue_id: int, place: int) -> None:
        """Make a place of a queue that of a damaged message, as a start does: its unit names the next message, or the
        filler at its own place if it is the last one."""
        queue = self.store.queue(topic, queue_id)
        assert queue is not None
        unit = queue.unit(min(place + 1, queue.max_offset - 1))
        assert unit is not None
        queue.put_unit(place, (*unit[:2], DAMAGED_TAGS_CODE))

    def stored(self, topic: str, queue_id: int = 0) -> list[MessageExt]:
        """All messages of a queue."""
        units = self.store.queue_units(topic, queue_id, 0, max(0, self.store.max_offset(topic, queue_id)))
        found = (self.store.look_message_by_offset(physical) for physical, _, _ in units)
        return [record for record in found if record is not None]
