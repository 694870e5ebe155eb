"""The settings that clients take by keyword, as type checkers and editors see them.

Written by `python -m tests.unit.client.setting_types` from client_config.py.
"""

from collections.abc import Callable, Sequence
from typing import TypedDict

from maxq.client.consumer.rebalance import AllocateMessageQueueStrategy
from maxq.client.failures import OnFailure
from maxq.client.hooks import (
    CheckForbiddenHook,
    ConsumeMessageHook,
    EndTransactionHook,
    FilterMessageHook,
    SendMessageHook,
)
from maxq.config.netty_client_config import NettyClientConfig
from maxq.protocol.enums import ConsumeFromWhere, MessageModel
from maxq.protocol.frame.remoting_command import SerializeType
from maxq.protocol.message.compression import CompressionType
from maxq.protocol.message.message_queue import MessageQueue
from maxq.remoting.rpc_hooks import RPCHook


class ClientSettings(TypedDict, total=False):
    """Settings that every client has.

    With their defaults:

    instance_name ("DEFAULT"): DEFAULT becomes <pid>#<number> unless the consumer is broadcasting.
    unit_name (""): last part of the client id (unitName of Java's clients).
    unit_mode (False): messages and subscriptions belong to a unit (Java's unitMode).
    namespace (""): put before the names of topics and groups on the wire, and taken off again.
    namespace_v2 (""): goes with every request (ns, nsd) instead of into names.
    vip_channel_enabled (False): use port − 2 for everything but pulls.
    use_tls (False): True: check servers by the system's authorities; a file of others; "insecure": none.
    serialize_type (SerializeType.JSON): how headers of requests are written.
    poll_name_server_interval (30_000): ms between two requests for routes.
    heartbeat_broker_interval (30_000): ms between two heartbeats.
    persist_consumer_offset_interval (5_000): ms between two commits of finished messages.
    rebalance_interval (20_000): ms between two divisions of the queues among the members.
    mq_client_api_timeout (3_000): ms that a request to a broker or name server waits for its answer.
    enable_trace (False): record sends, listener calls and ends of transactions in the trace topic.
    trace_topic (""): topic for these records; empty: RMQ_SYS_TRACE_TOPIC.
    trace_msg_batch_num (10): events sent together, at most 20.
    tls_config (None): all settings of TLS, in place of `use_tls`; None: what `use_tls` says.
    access_key (""): signs every request, together with secret_key; empty: the environment's, if there are any.
    secret_key: secret of access_key; it is never logged and never in an error.
    security_token: security token of temporary keys.
    rpc_hooks (()): called around every request; of clients with one instance name, the first one's.
    on_failure (None): called on the client's loop with programming errors that it goes on after.
    """

    instance_name: str
    unit_name: str
    unit_mode: bool
    namespace: str
    namespace_v2: str
    vip_channel_enabled: bool
    use_tls: bool | str
    serialize_type: SerializeType
    poll_name_server_interval: int
    heartbeat_broker_interval: int
    persist_consumer_offset_interval: int
    rebalance_interval: int
    mq_client_api_timeout: int
    enable_trace: bool
    trace_topic: str
    trace_msg_batch_num: int
    tls_config: NettyClientConfig | None
    access_key: str
    secret_key: str
    security_token: str
    rpc_hooks: Sequence[RPCHook]
    on_failure: OnFailure | None


class ProducerSettings(ClientSettings, total=False):
    """Settings of a producer (DefaultMQProducer).

    The settings of ClientSettings, and these, with their defaults:

    create_topic_key ("TBW102"): template for topics that do not exist yet.
    default_topic_queue_nums (4): queues asked for when a topic is created by sending.
    send_msg_timeout (3_000): ms for one send, its retries included.
    retry_times_when_send_failed (2): further tries of a send that a broker refused or a connection broke.
    retry_times_when_send_async_failed (2): the same for `send_async` on an event loop.
    retry_another_broker_when_not_store_ok (False): try another broker, too, if it is stored less safely.
    compress_msg_body_over_howmuch (4_096): bytes; larger bodies are compressed.
    compress_level (5): of ZLIB and ZSTD; higher is smaller and slower.
    compress_type (CompressionType.ZLIB): ZLIB, LZ4 or ZSTD.
    max_message_size (4 * 1024 * 1024): bytes; larger bodies are refused.
    send_latency_enable (False): avoid slow brokers.
    start_detector_enable (False): ask brokers that were slow whether they answer again.
    auto_batch (False): gather messages of one topic that are sent at about the same time into batches.
    batch_max_delay_ms (10): ms that a message waits for others.
    batch_max_bytes (32 * 1024): bytes of bodies and properties; a larger message is sent by itself.
    total_batch_max_bytes (32 * 1024 * 1024): waiting bytes above which messages are sent one by one.
    send_message_hooks (()): called before and after every try to send.
    check_forbidden_hooks (()): called before a send, which they refuse by raising.
    end_transaction_hooks (()): called before the broker is told how a transaction ended.
    """

    create_topic_key: str
    default_topic_queue_nums: int
    send_msg_timeout: int
    retry_times_when_send_failed: int
    retry_times_when_send_async_failed: int
    retry_another_broker_when_not_store_ok: bool
    compress_msg_body_over_howmuch: int
    compress_level: int
    compress_type: CompressionType
    max_message_size: int
    send_latency_enable: bool
    start_detector_enable: bool
    auto_batch: bool
    batch_max_delay_ms: int
    batch_max_bytes: int
    total_batch_max_bytes: int
    send_message_hooks: Sequence[SendMessageHook]
    check_forbidden_hooks: Sequence[CheckForbiddenHook]
    end_transaction_hooks: Sequence[EndTransactionHook]


class ConsumerSettings(ClientSettings, total=False):
    """Settings that all consumers have.

    The settings of ClientSettings, and these, with their defaults:

    message_model (MessageModel.CLUSTERING): whether one member gets a message, or each.
    consume_from_where (ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET): where a new group begins.
    consume_timestamp (0): wall ms for CONSUME_FROM_TIMESTAMP; 0: half an hour ago.
    allocate_strategy: how the members of a group divide the queues of a topic; AllocateMessageQueueAveragely.
    connect_broker_by_user (None): id of the broker that every pull asks; None: the one answers suggest.
    pull_batch_size (32): messages that a pull asks for; of a queue with many more up to 8 times as many.
    pull_threshold_for_queue (1_000): unfinished messages above which a queue is not pulled.
    pull_threshold_size_for_queue (100): the same in MiB.
    consume_max_span (2_000): most queue offsets from the first unfinished message to the last.
    max_msg_bytes (256 * 1024): bytes that a pull asks for.
    broker_suspend_max_time (15_000): ms that a pull waits at the broker for messages.
    consumer_timeout_when_suspend (30_000): ms until a pull that waits at the broker is given up.
    pull_time_delay_when_exception (1_000): ms until the next pull after one that failed.
    local_offset_store_dir (""): folder of broadcasting consumers' offsets; empty: <home>/.rocketmq_offsets.
    lock_interval (20_000): ms between two renewals of the locks of orderly queues.
    filter_message_hooks (()): called with a pull's messages before the program sees them.
    message_queue_listener (None): called as `(topic, all queues, own queues)` when the own ones have changed.
    """

    message_model: MessageModel
    consume_from_where: ConsumeFromWhere
    consume_timestamp: int
    allocate_strategy: AllocateMessageQueueStrategy
    connect_broker_by_user: int | None
    pull_batch_size: int
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue: int
    consume_max_span: int
    max_msg_bytes: int
    broker_suspend_max_time: int
    consumer_timeout_when_suspend: int
    pull_time_delay_when_exception: int
    local_offset_store_dir: str
    lock_interval: int
    filter_message_hooks: Sequence[FilterMessageHook]
    message_queue_listener: Callable[[str, list[MessageQueue], list[MessageQueue]], None] | None


class PushConsumerSettings(ConsumerSettings, total=False):
    """Settings of a push consumer (DefaultMQPushConsumer).

    The settings of ConsumerSettings, and these, with their defaults:

    consume_thread_nums (20): listener calls at the same time.
    consume_message_batch_max_size (1): messages given to one listener call.
    max_reconsume_times (-1): −1: 16 when concurrent, without limit when orderly.
    consume_timeout_minutes (15): a listener call that lasts longer is not waited for.
    await_termination_when_shutdown (10_000): ms that a shutdown waits for listener calls under way.
    suspend_current_queue_time (1_000): ms that an orderly queue pauses after a failed try.
    pull_interval (0): ms between two pulls of a queue.
    pull_threshold_for_topic (-1): unfinished messages, divided among the queues of this member; −1: no limit.
    pull_threshold_size_for_topic (-1): the same in MiB.
    post_subscription_when_pull (False): send the subscription with every pull.
    client_rebalance (True): False: the broker says which queues this member has, and whether it pulls or pops.
    pop_invisible_time (60_000): ms that a popped message is hidden from other members.
    pop_batch_nums (32): messages that a pop asks for.
    pop_threshold_for_queue (96): popped messages in hand above which a queue is not popped.
    consume_message_hooks (()): called around every listener call.
    """

    consume_thread_nums: int
    consume_message_batch_max_size: int
    max_reconsume_times: int
    consume_timeout_minutes: int
    await_termination_when_shutdown: int
    suspend_current_queue_time: int
    pull_interval: int
    pull_threshold_for_topic: int
    pull_threshold_size_for_topic: int
    post_subscription_when_pull: bool
    client_rebalance: bool
    pop_invisible_time: int
    pop_batch_nums: int
    pop_threshold_for_queue: int
    consume_message_hooks: Sequence[ConsumeMessageHook]


class LitePullConsumerSettings(ConsumerSettings, total=False):
    """Settings of a lite pull consumer (DefaultLitePullConsumer).

    The settings of ConsumerSettings, and these, with their defaults:

    auto_commit (True): commit finished messages at intervals and at shutdown.
    auto_commit_interval (5_000): ms between two such commits.
    poll_timeout (5_000): ms that `poll` waits for messages.
    pull_threshold_for_all (10_000): messages in hand above which nothing is pulled.
    broker_suspend_max_time (20_000): ms that a pull waits at the broker for messages.
    """

    auto_commit: bool
    auto_commit_interval: int
    poll_timeout: int
    pull_threshold_for_all: int


class SimpleConsumerSettings(ConsumerSettings, total=False):
    """Settings of a simple consumer.

    The settings of ConsumerSettings, and these, with their defaults:

    invisible_duration (60_000): ms that a received message is hidden from other members.
    await_duration (15_000): ms that `receive` waits for messages.
    """

    invisible_duration: int
    await_duration: int
