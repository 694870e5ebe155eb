"""A broker's managers and processors on a simulated disk, with a store and connections that tests look into."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, cast

from maxq.broker.bundles import Clients, Tables
from maxq.broker.identity.broker_identity import BrokerAddress
from maxq.broker.processors.acknowledgement import Acknowledgement
from maxq.broker.processors.admin.admin_config import AdminConfigProcessor
from maxq.broker.processors.admin.table_changes import TableChangesProcessor
from maxq.broker.processors.assembly import admin_processors
from maxq.broker.processors.clients.message_request_mode_manager import MessageRequestModeManager
from maxq.broker.processors.pull.pull_subscription import PullSubscriptions
from maxq.broker.processors.support import RequestProcessor
from maxq.broker.slave.replicated_config_files import ReplicatedConfigFiles
from maxq.broker.stats.broker_stats_manager import BrokerStatsManager
from maxq.broker.tables.client.consumer_ids_notifier import ConsumerIdsNotifier
from maxq.broker.tables.client.consumer_manager import ConsumerManager
from maxq.broker.tables.client.producer_manager import ProducerManager
from maxq.broker.tables.client.rebalance_lock_manager import RebalanceLockManager
from maxq.broker.tables.filter.consumer_filter_manager import FILE_NAME as FILTER_FILE
from maxq.broker.tables.filter.consumer_filter_manager import ConsumerFilterManager
from maxq.broker.tables.offset.lmq_consumer_offset_manager import create_consumer_offset_manager
from maxq.broker.tables.static_topic.topic_queue_mapping_manager import TopicQueueMappingManager
from maxq.broker.tables.subscription.subscription_group_manager import SubscriptionGroupManager
from maxq.broker.tables.topic.topic_config_manager import TopicConfigManager
from maxq.codes import LanguageCode
from maxq.config.settings import BrokerSettings
from maxq.errors import MaxQError, RemotingSendError
from maxq.protocol.body.ha_runtime_info import HARuntimeInfo
from maxq.protocol.body.route import QueueData, TopicRouteData
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.enums import BoundaryType
from maxq.protocol.frame.remoting_command import FRAME_MAX_LENGTH, RemotingCommand, decode_frame
from maxq.protocol.json import json_dialect
from maxq.remoting.connection import Connection
from maxq.store.compaction.compaction_store import CompactionStore, LackingQueue
from maxq.store.durability.flush import CommitLogFlusher
from maxq.store.log.deletions import Deletions
from maxq.store.store_results import PutMessageResult, PutMessageStatus
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import SimDisk
from maxq.testing.sim_rng import SimRng
from tests.golden import STORES
from tests.unit.broker.bundles_of import environment, messages

CONFIG_DIR = PurePath("/store/config")


class FakeConnection:
    """What a client would see: `sent` has the frames, `answers` what it answers to requests."""

    def __init__(self, remote_address: str = "10.0.0.9:40000") -> None:
        self.remote_address = remote_address
        self.is_closed = False
        self.answer_limit = FRAME_MAX_LENGTH
        self.sent: list[RemotingCommand] = []
        self.answers: list[RemotingCommand | Exception] = []

    def write(self, buffers: list[bytes]) -> None:
        frame = b"".join(buffers)
        self.sent.append(decode_frame(frame[4:]))

    def send(self, command: RemotingCommand) -> None:
        self.sent.append(decode_frame(command.encode()[4:]))

    def send_oneway(self, command: RemotingCommand) -> None:
        command.flag |= 2
        self.sent.append(decode_frame(command.encode()[4:]))

    async def invoke(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        self.sent.append(decode_frame(command.encode()[4:]))
        if not self.answers:
            raise RemotingSendError("send request failed", address=self.remote_address)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self, reason: str = "") -> None:
        self.is_closed = True

    def codes(self) -> list[int]:
        return [command.code for command in self.sent]


def connection(fake: FakeConnection) -> Connection:
    return cast(Connection, fake)


class NoCompaction:
    """Stands for the compacted queues of a store that has none."""

    topics: frozenset[str] = frozenset()

    @staticmethod
    def lacking() -> list[LackingQueue]:
        return []

    @staticmethod
    def position(topic: str, queue_id: int) -> None:
        return None


@dataclass
class FakeStore:
    """Queues as lists of store times, oldest first, and the offset of the first of them."""

    times: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    first: dict[tuple[str, int], int] = field(default_factory=dict)
    messages: dict[int, bytes] = field(default_factory=dict)
    on_disk: bool = False  # are the messages too old to be in memory?
    calls: list[tuple[str, Any]] = field(default_factory=list)
    max_physical_offset: int = 16910
    unused: set[str] = field(default_factory=set)
    incarnations: dict[str, int] = field(default_factory=dict)
    topics: dict[bytes, None] = field(default_factory=dict)
    least_taken: int = 0  # in tests that need no messages
    compaction: CompactionStore = field(default_factory=lambda: cast(CompactionStore, NoCompaction()))
    may_lack_messages: bool = False
    deletions: Deletions = field(default_factory=lambda: Deletions(SimDisk(SimRng(0), SimClock()), PurePath("/")))

    def fill(self, topic: str, queue_id: int, times: list[int], *, first: int = 0) -> None:
        self.times[topic, queue_id] = times
        self.first[topic, queue_id] = first

    def min_offset(self, topic: str, queue_id: int) -> int:
        return self.first.get((topic, queue_id), 0)

    def max_offset(self, topic: str, queue_id: int) -> int:
        return self.min_offset(topic, queue_id) + len(self.times.get((topic, queue_id), ()))

    def taken_offset(self, topic: str, queue_id: int) -> int:
        return max(self.least_taken, self.max_offset(topic, queue_id))

    def store_time_at(self, topic: str, queue_id: int, offset: int) -> int:
        times = self.times.get((topic, queue_id), [])
        index = offset - self.min_offset(topic, queue_id)
        return times[index] if 0 <= index < len(times) else -1

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        return self.store_time_at(topic, queue_id, self.min_offset(topic, queue_id))

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int, boundary: BoundaryType) -> int:
        times = self.times.get((topic, queue_id), [])
        first = self.min_offset(topic, queue_id)
        if boundary == BoundaryType.LOWER:
            return first + sum(1 for time in times if time < timestamp)
        return max(first + sum(1 for time in times if time <= timestamp) - 1, 0)

    def is_in_memory(self, topic: str, queue_id: int, offset: int) -> bool:
        return offset < self.max_offset(topic, queue_id) and not self.on_disk

    def select_one_message(self, physical_offset: int) -> memoryview | None:
        message = self.messages.get(physical_offset)
        return None if message is None else memoryview(message)

    def queue_units(self, topic: str, queue_id: int, index: int, count: int) -> list[tuple[int, int, int]]:
        end = min(index + count, self.max_offset(topic, queue_id))
        return [(offset * 100, 100, offset % 2 + 1) for offset in range(index, end)]

    def record_in_queue(self, topic: str, queue_id: int, queue_offset: int) -> memoryview | None:
        units = self.queue_units(topic, queue_id, queue_offset, 1) if queue_offset >= 0 else []
        return self.select_one_message(units[0][0]) if units else None

    def put_deletion(self, topics: list[str]) -> PutMessageResult:
        self.calls.append(("put_deletion", set(topics)))
        return PutMessageResult(PutMessageStatus.PUT_OK, end_offset=100)

    def when_durable(self, end_offset: int, done: Callable[[bool], None]) -> bool:
        self.calls.append(("when_durable", end_offset))
        return False

    async def finish_deletion(self, topics: list[str]) -> None:
        self.calls.append(("finish_deletion", set(topics)))

    async def unused_topics(self, keep: list[str]) -> set[str]:
        return set(self.unused) - set(keep)

    def incarnation(self, topic: str) -> int:
        return self.incarnations.get(topic, 0)

    async def clean_expired_consume_queues(self) -> None:
        self.calls.append(("clean_expired_consume_queues", None))

    def request(self) -> None:
        self.calls.append(("request", None))

    @property
    def cleaner(self) -> "FakeStore":
        return self

    @property
    def reader(self) -> "FakeStore":
        return self


class BrokerWorld:
    """All parts of one broker but sending, pulling and querying messages."""

    def __init__(self, mapping: dict[str, str] | None = None, *, disk: SimDisk | None = None) -> None:
        self.clock = SimClock()
        self.disk = disk or SimDisk(SimRng(1), self.clock)
        given = {"brokerName": "broker-w", "brokerClusterName": "WireCluster", **(mapping or {})}
        self.settings, _ = BrokerSettings.from_properties(given, source="test")
        settings, clock = self.settings, self.clock
        self.topics = TopicConfigManager(self.disk, CONFIG_DIR / "topics.json", settings=settings, clock=clock)
        self.mappings = TopicQueueMappingManager(
            self.disk,
            CONFIG_DIR / "topicQueueMapping.json",
            broker_name=self.settings.broker.broker_name,
            clock=self.clock,
        )
        self.groups = SubscriptionGroupManager(
            self.disk, CONFIG_DIR / "subscriptionGroup.json", settings=settings, clock=clock
        )
        self.offsets = create_consumer_offset_manager(self.disk, CONFIG_DIR, settings=settings, clock=clock)
        self.table_changes = TableChangesProcessor(topics=self.topics, groups=self.groups, clock=clock)
        for table in (self.topics, self.groups):
            table.when_changed.append(self.table_changes.table_changed)
        self.offsets.when_set.append(self.table_changes.offsets_set)
        self.consumers = ConsumerManager(settings=settings, clock=clock)
        self.producers = ProducerManager(settings=settings, clock=clock)
        self.notifier = ConsumerIdsNotifier(self.consumers, settings=settings)
        self.consumers.add_change_listener(self.notifier.group_changed)
        self.locks = RebalanceLockManager(clock=clock)
        self.modes = MessageRequestModeManager(self.disk, CONFIG_DIR / "messageRequestMode.json")
        self.stats = BrokerStatsManager(
            "WireCluster", clock=clock, is_system_topic=self.topics.is_system_topic, detail=lambda: True
        )
        self.store = FakeStore()
        self.filters = ConsumerFilterManager(
            self.disk, CONFIG_DIR / FILTER_FILE, settings=settings, clock=clock, max_physical_offset=lambda: 0
        )
        self.runtime: dict[str, str] = {}
        self.routes: dict[str, TopicRouteData] = {}
        self.route_error: Exception | None = None
        self.routes_asked = 0
        self.ha_status = HARuntimeInfo()
        self.registrations = 0
        self.topics.create_system_topics()
        self.groups.create_system_groups()
        self.acknowledgement = Acknowledgement(cast(CommitLogFlusher, self.store))
        self.handlers: dict[int, Any] = {}
        for processor in (*self._processors(), self.table_changes):
            for code, handler in processor.routes().items():
                assert code not in self.handlers, f"two processors for {code}"
                self.handlers[int(code)] = handler

    def _processors(self) -> list[RequestProcessor]:
        env = environment(
            self.settings,
            disk=self.disk,
            clock=self.clock,
            own=BrokerAddress("WireCluster", self.settings.broker.broker_name, 0, "127.0.0.2", 20911),
            stats=self.stats,
        )
        tables = Tables(
            topics=self.topics,
            mappings=self.mappings,
            groups=self.groups,
            offsets=self.offsets,
            request_modes=self.modes,
            files=ReplicatedConfigFiles(self.disk, CONFIG_DIR),
        )
        clients = Clients(
            consumers=self.consumers,
            producers=self.producers,
            filters=self.filters,
            subscriptions=PullSubscriptions(self.settings, self.groups, self.consumers, self.filters),
            locks=self.locks,
        )
        config = AdminConfigProcessor(env, tables, lambda: self.runtime, self._register)
        self.settings.on_change(config.settings_changed)
        return [
            *admin_processors(
                env,
                tables,
                clients,
                messages(store=self.store, acknowledgement=self.acknowledgement),
                ha_runtime_info=lambda: self.ha_status,
                topic_route=self._topic_route,
            ),
            config,
        ]

    async def _topic_route(self, topic: str) -> TopicRouteData | None:
        self.routes_asked += 1
        if self.route_error is not None:
            raise self.route_error
        return self.routes.get(topic)

    def _register(self) -> None:
        self.registrations += 1

    async def send(self, request: RemotingCommand, fake: FakeConnection | None = None) -> RemotingCommand:
        """What the server would answer: errors become answers as in remoting/endpoint.py."""
        try:
            answer = self.handlers[request.code](connection(fake or FakeConnection()), request)
            if inspect.isawaitable(answer):
                answer = await answer
        except MaxQError as error:
            return request.reply(error.response_code, str(error))
        return cast(RemotingCommand, answer)

    async def call(
        self,
        code: int,
        ext: dict[str, str] | None = None,
        body: bytes | dict[str, Any] | None = None,
        *,
        fake: FakeConnection | None = None,
        language: int = LanguageCode.JAVA,
        version: int = 513,
    ) -> RemotingCommand:
        data = json_dialect.dumps(body) if isinstance(body, dict) else body
        return await self.send(RemotingCommand(code, ext or {}, data, language=language, version=version), fake)

    def take_golden_config(self, store: str, name: str) -> None:
        """Put a file that a Java broker wrote into the config folder."""
        source = STORES / store / "config" / name
        self.disk.make_dirs(CONFIG_DIR)
        self.disk.write(CONFIG_DIR / name, source.read_bytes())

    def add_topic(self, name: str, queues: int = 2, **changes: Any) -> TopicConfig:
        config = TopicConfig(name, queues, queues, **changes)
        self.topics.update_topic_config(config)
        return config

    def add_route(self, topic: str, queues: int, *brokers: str) -> None:
        rows = [QueueData(broker, queues, queues, 6, 0) for broker in brokers]
        self.routes[topic] = TopicRouteData(queue_datas=rows)

    async def heartbeat(
        self,
        fake: FakeConnection,
        client_id: str,
        group: str = "G",
        topics: dict[str, int] | None = None,
        *,
        model: str = "CLUSTERING",
        producers: tuple[str, ...] = (),
        language: int = LanguageCode.JAVA,
        **members: Any,
    ) -> RemotingCommand:
        """One heartbeat of one consumer group; `topics` maps a topic to its subVersion."""
        subscriptions = [
            {"topic": topic, "subString": "*", "subVersion": version, "tagsSet": [], "codeSet": []}
            for topic, version in ({"T": 1} if topics is None else topics).items()
        ]
        consumer = {
            "groupName": group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": model,
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": subscriptions,
            "unitMode": False,
        }
        body = {
            "clientID": client_id,
            "consumerDataSet": [consumer] if group else [],
            "producerDataSet": [{"groupName": name} for name in producers],
            "heartbeatFingerprint": 0,
            "withoutSub": False,
            **members,
        }
        return await self.call(34, None, body, fake=fake, language=language)


def parsed(answer: RemotingCommand) -> Any:
    """The JSON body of a successful answer."""
    assert answer.code == 0, answer.remark
    return json_dialect.loads(answer.body_bytes)
