"""Settings of the client library. Names and defaults are RocketMQ's, in snake case; times are in milliseconds unless
the name says otherwise.

Source: apache/rocketmq client/ClientConfig.java, DefaultMQProducer, DefaultMQPushConsumer, DefaultLitePullConsumer.
"""

from collections.abc import Callable, Sequence
from dataclasses import field
from pathlib import PurePath
from typing import Final

from maxq.auth.signature import Credentials
from maxq.client.argument_checks import INT_MAX, LONG_MAX, check_address, check_config
from maxq.client.consumer.rebalance import AllocateMessageQueueAveragely, AllocateMessageQueueStrategy
from maxq.client.failures import OnFailure
from maxq.client.hooks import (
    CheckForbiddenHook,
    ConsumeMessageHook,
    EndTransactionHook,
    FilterMessageHook,
    SendMessageHook,
)
from maxq.client.validators import check_namespace
from maxq.config.netty_client_config import NettyClientConfig
from maxq.errors import ClientError
from maxq.lazy_dataclass import dataclass
from maxq.protocol.enums import ConsumeFromWhere, MessageModel
from maxq.protocol.frame.remoting_command import SerializeType
from maxq.protocol.message.compression import CompressionType
from maxq.protocol.message.message_queue import MessageQueue
from maxq.remoting.rpc_hooks import RPCHook
from maxq.runtime.interfaces import Clock, Rng, SmallFiles

MAX_CONSUME_THREADS: Final = 1_000
_POSITIVE: Final = (1, INT_MAX)
_NATURAL: Final = (0, INT_MAX)
_OR_OFF: Final = (-1, INT_MAX)
#: The smallest and the largest number that a setting takes; those of RocketMQ where it has any.
_BOUNDS: Final = {
    "poll_name_server_interval": _POSITIVE,
    "heartbeat_broker_interval": _POSITIVE,
    "persist_consumer_offset_interval": _POSITIVE,
    "rebalance_interval": _POSITIVE,
    "mq_client_api_timeout": _POSITIVE,
    "trace_msg_batch_num": _POSITIVE,
    "default_topic_queue_nums": _POSITIVE,
    "send_msg_timeout": _POSITIVE,
    "retry_times_when_send_failed": _NATURAL,
    "retry_times_when_send_async_failed": _NATURAL,
    "compress_msg_body_over_howmuch": _NATURAL,
    "compress_level": (0, 22),
    "max_message_size": _POSITIVE,
    "batch_max_delay_ms": (1, 30_000),
    "batch_max_bytes": (1, 2 * 1024 * 1024),
    "total_batch_max_bytes": _POSITIVE,
    "consume_timestamp": (0, LONG_MAX),
    "connect_broker_by_user": (0, LONG_MAX),
    "pull_batch_size": (1, 1024),
    "pull_threshold_for_queue": _POSITIVE,
    "pull_threshold_size_for_queue": _POSITIVE,
    "consume_max_span": _POSITIVE,
    "max_msg_bytes": _POSITIVE,
    "broker_suspend_max_time": _NATURAL,
    "consumer_timeout_when_suspend": _POSITIVE,
    "pull_time_delay_when_exception": _NATURAL,
    "lock_interval": _POSITIVE,
    "consume_thread_nums": (1, MAX_CONSUME_THREADS),
    "consume_message_batch_max_size": (1, 1024),
    "max_reconsume_times": _OR_OFF,
    "consume_timeout_minutes": _POSITIVE,
    "await_termination_when_shutdown": _NATURAL,
    "suspend_current_queue_time": _NATURAL,
    "pull_interval": _NATURAL,
    "pull_threshold_for_topic": _OR_OFF,
    "pull_threshold_size_for_topic": _OR_OFF,
    "pop_invisible_time": _POSITIVE,
    "pop_batch_nums": (1, 32),
    "pop_threshold_for_queue": _POSITIVE,
    "auto_commit_interval": _NATURAL,
    "poll_timeout": _NATURAL,
    "pull_threshold_for_all": _POSITIVE,
    "invisible_duration": _POSITIVE,
    "await_duration": _NATURAL,
}


@dataclass(frozen=True, slots=True)
class ClientEnvironment:
    """The parts of its machine that a client process uses. `maxq.api.system_environment()` makes the real one.

    Attributes:
        host_ip: this machine's address, part of client and message ids.
        pid: process id, part of client and message ids.
        home: folder under which broadcasting consumers keep their offsets (`.rocketmq_offsets`).
        credentials: what requests are signed with where a client's config has none.
    """

    clock: Clock
    rng: Rng
    disk: SmallFiles
    host_ip: str
    pid: int
    home: PurePath
    credentials: Credentials | None = None
    use_tls: str = ""  # of clients whose config does not say; see `tls_settings`


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Settings that every client has."""

    namesrv_addr: str = ""  # host:port, several separated by ';'
    instance_name: str = "DEFAULT"  # DEFAULT becomes <pid>#<number> unless the consumer is broadcasting
    unit_name: str = ""  # last part of the client id (unitName of Java's clients)
    unit_mode: bool = False  # messages and subscriptions belong to a unit (Java's unitMode)
    namespace: str = ""  # put before the names of topics and groups on the wire, and taken off again
    namespace_v2: str = ""  # goes with every request (ns, nsd) instead of into names
    vip_channel_enabled: bool = False  # use port − 2 for everything but pulls
    use_tls: bool | str = False  # True: check servers by the system's authorities; a file of others; "insecure": none
    serialize_type: SerializeType = SerializeType.JSON  # how headers of requests are written
    poll_name_server_interval: int = 30_000  # ms between two requests for routes
    heartbeat_broker_interval: int = 30_000  # ms between two heartbeats
    persist_consumer_offset_interval: int = 5_000  # ms between two commits of finished messages
    rebalance_interval: int = 20_000  # ms between two divisions of the queues among the members
    mq_client_api_timeout: int = 3_000  # ms that a request to a broker or name server waits for its answer
    enable_trace: bool = False  # record sends, listener calls and ends of transactions in the trace topic
    trace_topic: str = ""  # topic for these records; empty: RMQ_SYS_TRACE_TOPIC
    trace_msg_batch_num: int = 10  # events sent together, at most 20
    tls_config: NettyClientConfig | None = None  # all settings of TLS, in place of `use_tls`; None: what `use_tls` says
    access_key: str = ""  # signs every request, together with secret_key; empty: the environment's, if there are any
    secret_key: str = field(default="", repr=False)  # secret of access_key; it is never logged and never in an error
    security_token: str = field(default="", repr=False)  # security token of temporary keys
    rpc_hooks: Sequence[RPCHook] = ()  # called around every request; of clients with one instance name, the first one's
    on_failure: OnFailure | None = None  # called on the client's loop with programming errors that it goes on after

    def __post_init__(self) -> None:
        """Raises:
        WrongArgumentError: a setting of the wrong type or out of its bounds.
        NameIllegalError: a namespace that cannot be part of names.
        """
        check_config(self, _BOUNDS)
        check_namespace(self.namespace)
        for address in self._addresses():
            check_address(address)

    def name_servers(self) -> list[str]:
        """Return the addresses of `namesrv_addr`.

        Raises:
            ClientError: none given.
        """
        addresses = self._addresses()
        if not addresses:
            raise ClientError("no name server is known: set namesrv_addr to host:port (several separated by ';')")
        return addresses

    def _addresses(self) -> list[str]:
        return [part.strip().removeprefix("http://") for part in self.namesrv_addr.split(";") if part.strip()]

    def credentials(self) -> Credentials | None:
        """Return the credentials that sign requests; None if requests are unsigned.

        Raises:
            ClientError: an access key without its secret, or the reverse.
        """
        if bool(self.access_key) != bool(self.secret_key):
            missing = "secret_key" if self.access_key else "access_key"
            raise ClientError(f"access_key and secret_key are given together or not at all: {missing} is missing")
        return Credentials(self.access_key, self.secret_key, self.security_token) if self.access_key else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """Settings of a producer (DefaultMQProducer)."""

    producer_group: str = "DEFAULT_PRODUCER"  # name of the group
    create_topic_key: str = "TBW102"  # template for topics that do not exist yet
    default_topic_queue_nums: int = 4  # queues asked for when a topic is created by sending
    send_msg_timeout: int = 3_000  # ms for one send, its retries included
    retry_times_when_send_failed: int = 2  # further tries of a send that a broker refused or a connection broke
    retry_times_when_send_async_failed: int = 2  # the same for `send_async` on an event loop
    retry_another_broker_when_not_store_ok: bool = False  # try another broker, too, if it is stored less safely
    compress_msg_body_over_howmuch: int = 4_096  # bytes; larger bodies are compressed
    compress_level: int = 5  # of ZLIB and ZSTD; higher is smaller and slower
    compress_type: CompressionType = CompressionType.ZLIB  # ZLIB, LZ4 or ZSTD
    max_message_size: int = 4 * 1024 * 1024  # bytes; larger bodies are refused
    send_latency_enable: bool = False  # avoid slow brokers
    start_detector_enable: bool = False  # ask brokers that were slow whether they answer again
    auto_batch: bool = False  # gather messages of one topic that are sent at about the same time into batches
    batch_max_delay_ms: int = 10  # ms that a message waits for others
    batch_max_bytes: int = 32 * 1024  # bytes of bodies and properties; a larger message is sent by itself
    total_batch_max_bytes: int = 32 * 1024 * 1024  # waiting bytes above which messages are sent one by one
    send_message_hooks: Sequence[SendMessageHook] = ()  # called before and after every try to send
    check_forbidden_hooks: Sequence[CheckForbiddenHook] = ()  # called before a send, which they refuse by raising
    end_transaction_hooks: Sequence[EndTransactionHook] = ()  # called before the broker is told how a transaction ended


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """Settings that all consumers have."""

    consumer_group: str = ""  # name of the group
    message_model: MessageModel = MessageModel.CLUSTERING  # whether one member gets a message, or each
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET  # where a new group begins
    consume_timestamp: int = 0  # wall ms for CONSUME_FROM_TIMESTAMP; 0: half an hour ago
    #: how the members of a group divide the queues of a topic; AllocateMessageQueueAveragely
    allocate_strategy: AllocateMessageQueueStrategy = field(default_factory=AllocateMessageQueueAveragely)
    connect_broker_by_user: int | None = None  # id of the broker that every pull asks; None: the one answers suggest
    pull_batch_size: int = 32  # messages that a pull asks for; of a queue with many more up to 8 times as many
    pull_threshold_for_queue: int = 1_000  # unfinished messages above which a queue is not pulled
    pull_threshold_size_for_queue: int = 100  # the same in MiB
    consume_max_span: int = 2_000  # most queue offsets from the first unfinished message to the last
    max_msg_bytes: int = 256 * 1024  # bytes that a pull asks for
    broker_suspend_max_time: int = 15_000  # ms that a pull waits at the broker for messages
    consumer_timeout_when_suspend: int = 30_000  # ms until a pull that waits at the broker is given up
    pull_time_delay_when_exception: int = 1_000  # ms until the next pull after one that failed
    local_offset_store_dir: str = ""  # folder of broadcasting consumers' offsets; empty: <home>/.rocketmq_offsets
    lock_interval: int = 20_000  # ms between two renewals of the locks of orderly queues
    filter_message_hooks: Sequence[FilterMessageHook] = ()  # called with a pull's messages before the program sees them
    #: called as `(topic, all queues, own queues)` when the own ones have changed
    message_queue_listener: Callable[[str, list[MessageQueue], list[MessageQueue]], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PushConsumerConfig(ConsumerConfig):
    """Settings of a push consumer (DefaultMQPushConsumer)."""

    consume_thread_nums: int = 20  # listener calls at the same time
    consume_message_batch_max_size: int = 1  # messages given to one listener call
    max_reconsume_times: int = -1  # −1: 16 when concurrent, without limit when orderly
    consume_timeout_minutes: int = 15  # a listener call that lasts longer is not waited for
    await_termination_when_shutdown: int = 10_000  # ms that a shutdown waits for listener calls under way
    suspend_current_queue_time: int = 1_000  # ms that an orderly queue pauses after a failed try
    pull_interval: int = 0  # ms between two pulls of a queue
    pull_threshold_for_topic: int = -1  # unfinished messages, divided among the queues of this member; −1: no limit
    pull_threshold_size_for_topic: int = -1  # the same in MiB
    post_subscription_when_pull: bool = False  # send the subscription with every pull
    client_rebalance: bool = True  # False: the broker says which queues this member has, and whether it pulls or pops
    pop_invisible_time: int = 60_000  # ms that a popped message is hidden from other members
    pop_batch_nums: int = 32  # messages that a pop asks for
    pop_threshold_for_queue: int = 96  # popped messages in hand above which a queue is not popped
    consume_message_hooks: Sequence[ConsumeMessageHook] = ()  # called around every listener call


@dataclass(frozen=True, slots=True, kw_only=True)
class LitePullConsumerConfig(ConsumerConfig):
    """Settings of a lite pull consumer (DefaultLitePullConsumer)."""

    auto_commit: bool = True  # commit finished messages at intervals and at shutdown
    auto_commit_interval: int = 5_000  # ms between two such commits
    poll_timeout: int = 5_000  # ms that `poll` waits for messages
    pull_threshold_for_all: int = 10_000  # messages in hand above which nothing is pulled
    broker_suspend_max_time: int = 20_000  # ms that a pull waits at the broker for messages


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleConsumerConfig(ConsumerConfig):
    """Settings of a simple consumer."""

    invisible_duration: int = 60_000  # ms that a received message is hidden from other members
    await_duration: int = 15_000  # ms that `receive` waits for messages
