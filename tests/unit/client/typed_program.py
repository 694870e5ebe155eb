"""A user's program that makes every public call of maxq.api and maxq.aio, with every setting by keyword.

It is not run: type checkers read it (test_typed_program.py), as users' programs are checked against the package.
"""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from maxq import aio, api
from maxq.auth.info import AclInfo, UserInfo
from maxq.client.admin.admin import Admin as AsyncAdmin
from maxq.client.admin.dead_letters import DeadLetterCount, DeadLetterSelection, Send
from maxq.client.admin.messages import MessageTrack
from maxq.client.admin.static_topic_plan import BrokerPart, Plan
from maxq.client.admin.traces import TraceView
from maxq.client.admin.transactions import TransactionHistory
from maxq.client.consumer.rebalance import AllocateMessageQueueAveragely
from maxq.client.hooks import ConsumeMessageContext, EndTransactionContext, FilterMessageContext, SendMessageContext
from maxq.client.results.pull_result import PullResult
from maxq.client.serializers import from_json, json_body
from maxq.client.settings import ProducerSettings
from maxq.config.netty_client_config import NettyClientConfig
from maxq.protocol.body.broker_stats import BrokerStatsData, QueryConsumeQueueResponseBody
from maxq.protocol.body.consumer_info import (
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    SetMessageRequestModeRequestBody,
)
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.body.ha_runtime_info import HARuntimeInfo
from maxq.protocol.body.heartbeat import ConsumerConnection, ProducerConnection, ProducerTableInfo
from maxq.protocol.body.offsets import ConsumerOffsetSerializeWrapper, ConsumeStats, ConsumeStatsList, TopicStatsTable
from maxq.protocol.body.route import BrokerData, ClusterInfo, TopicRouteData
from maxq.protocol.body.subscription import (
    GroupForbidden,
    SubscriptionData,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from maxq.protocol.body.topic_config import (
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicConfigAndQueueMapping,
)
from maxq.protocol.frame.remoting_command import RemotingCommand, SerializeType
from maxq.protocol.message.compression import CompressionType


class Hooks:
    """A user's hooks, of every kind."""

    def send_message_before(self, context: SendMessageContext) -> None:
        print(context.messages[0].topic, context.broker_address)

    def send_message_after(self, context: SendMessageContext) -> None:
        print(context.send_result, context.exception)

    def check_forbidden(self, context: SendMessageContext) -> None:
        print(context.message_queue)

    def end_transaction(self, context: EndTransactionContext) -> None:
        print(context.transaction_state.name)

    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        print(len(context.messages))

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        print(context.success, context.return_type)

    def filter_message(self, context: FilterMessageContext) -> None:
        context.messages = [message for message in context.messages if message.body]

    def do_before_request(self, address: str, request: RemotingCommand) -> None:
        print(address, request.code)

    def do_after_response(self, address: str, request: RemotingCommand, response: RemotingCommand | None) -> None:
        print(address, request.code, response)


class Transactions:
    """A listener of transactions with plain functions."""

    def execute_local_transaction(self, message: api.Message, arg: Any) -> api.LocalTransactionState:
        return api.LocalTransactionState.COMMIT_MESSAGE if arg else api.LocalTransactionState.UNKNOW

    def check_local_transaction(self, message: api.MessageExt) -> api.LocalTransactionState | None:
        return None if message.transaction_id else api.LocalTransactionState.ROLLBACK_MESSAGE


class AsyncTransactions:
    """A listener of transactions with coroutine functions."""

    async def execute_local_transaction(self, message: aio.Message, arg: Any) -> aio.LocalTransactionState:
        return aio.LocalTransactionState.COMMIT_MESSAGE

    async def check_local_transaction(self, message: aio.MessageExt) -> aio.LocalTransactionState | None:
        return None


def listen(messages: list[api.MessageExt], context: api.ConsumeContext) -> api.ConsumeResult:
    context.ack_index = len(messages) - 1
    return api.ConsumeResult.SUCCESS if context.message_queue.topic else api.ConsumeResult.RECONSUME_LATER


def listen_without_answer(messages: list[api.MessageExt], context: api.ConsumeContext) -> None:
    for message in messages:
        key: str | None = message.keys
        print(message.msg_id, message.body.decode(), key, message.reconsume_times, message.properties.get("color"))


async def listen_async(messages: list[aio.MessageExt], context: aio.ConsumeContext) -> aio.ConsumeResult | None:
    context.delay_level_when_next_consume = 3
    return aio.ConsumeResult.RECONSUME_LATER


def queue_of(queues: Sequence[api.MessageQueue], message: api.Message, customer: int) -> api.MessageQueue:
    return queues[customer % len(queues)]


def told(result: api.SendResult | None, error: BaseException | None) -> None:
    print(result, error)


class Table:
    """What `send_arrow` takes: any object that hands itself over as an Arrow stream."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise NotImplementedError


def message() -> api.Message:
    made = api.Message("Orders", b"first order", {"TAGS": "created"})
    made.keys = ["order-1", "customer-7"]
    made.tags = "created"
    made.delay_level = 3
    made.delay_time_ms = 10_000
    made.deliver_time_ms = 1_900_000_000_000
    made.wait_store_msg_ok = True
    made.put_user_property("color", "red")
    tags: str | None = made.tags
    late: int = made.delay_time_ms + made.deliver_time_ms + made.delay_level
    print(tags, late, made.uniq_key)
    return made


@dataclass
class Order:
    """A value that goes into a body and comes out of one."""

    id: int


def bodies(received: api.MessageExt) -> tuple[Order, list[Order], Any]:
    api.Message("Orders", json_body(Order(7)))
    order: Order = from_json(received, Order)
    orders: list[Order] = from_json(received.body, list[Order])
    return order, orders, from_json(received)


SETTINGS: ProducerSettings = {"send_msg_timeout": 5_000, "compress_type": CompressionType.ZSTD}


def producers() -> None:
    with api.Producer(
        "orders",
        "127.0.0.1:9876",
        instance_name="x",
        unit_name="x",
        unit_mode=True,
        namespace="x",
        namespace_v2="x",
        vip_channel_enabled=True,
        use_tls="insecure",
        serialize_type=SerializeType.ROCKETMQ,
        poll_name_server_interval=1,
        heartbeat_broker_interval=1,
        persist_consumer_offset_interval=1,
        rebalance_interval=1,
        mq_client_api_timeout=1,
        enable_trace=True,
        trace_topic="x",
        trace_msg_batch_num=1,
        tls_config=NettyClientConfig(),
        access_key="x",
        secret_key="x",
        security_token="x",
        rpc_hooks=[Hooks()],
        on_failure=print,
        create_topic_key="x",
        default_topic_queue_nums=1,
        send_msg_timeout=1,
        retry_times_when_send_failed=1,
        retry_times_when_send_async_failed=1,
        retry_another_broker_when_not_store_ok=True,
        compress_msg_body_over_howmuch=1,
        compress_level=1,
        compress_type=CompressionType.LZ4,
        max_message_size=1,
        send_latency_enable=True,
        start_detector_enable=True,
        auto_batch=True,
        batch_max_delay_ms=1,
        batch_max_bytes=1,
        total_batch_max_bytes=1,
        send_message_hooks=[Hooks()],
        check_forbidden_hooks=[Hooks()],
        end_transaction_hooks=[Hooks()],
    ) as producer:
        sent: api.SendResult = producer.send(message())
        queue: api.MessageQueue = sent.message_queue
        if sent.send_status is not api.SendStatus.SEND_OK:
            print(sent.msg_id, sent.queue_offset, sent.offset_msg_id)
        producer.send(message(), queue=queue, timeout_ms=1_000)
        producer.send_oneway(message(), queue=queue)
        batch: api.SendResult = producer.send_batch([message(), message()], queue=queue, timeout_ms=1_000)
        many: list[api.SendResult] = producer.send_many((message() for _ in range(3)), in_flight=8)
        print(producer.send_arrow(Table(), topic="T"))
        ordered: api.SendResult = producer.send_orderly(message(), queue_of, 42, timeout_ms=1_000)
        later: Future[api.SendResult] = producer.send_async(message(), told)
        reply: api.MessageExt = producer.request(message(), timeout_ms=1_000)
        answer: api.Message = api.create_reply_message(reply, b"thanks")
        recalled: str = producer.recall_message("Orders", sent.recall_handle or "")
        queues: list[api.MessageQueue] = producer.fetch_publish_message_queues("Orders")
        print(batch, many, ordered, later.result(1.0), answer, recalled, queues)
    again = api.Producer("orders", "127.0.0.1:9876", **SETTINGS)
    again.start()
    again.shutdown()
    with api.TransactionProducer(
        "payments",
        "127.0.0.1:9876",
        Transactions(),
        instance_name="x",
        unit_name="x",
        unit_mode=True,
        namespace="x",
        namespace_v2="x",
        vip_channel_enabled=True,
        use_tls="insecure",
        serialize_type=SerializeType.ROCKETMQ,
        poll_name_server_interval=1,
        heartbeat_broker_interval=1,
        persist_consumer_offset_interval=1,
        rebalance_interval=1,
        mq_client_api_timeout=1,
        enable_trace=True,
        trace_topic="x",
        trace_msg_batch_num=1,
        tls_config=NettyClientConfig(),
        access_key="x",
        secret_key="x",
        security_token="x",
        rpc_hooks=[Hooks()],
        on_failure=print,
        create_topic_key="x",
        default_topic_queue_nums=1,
        send_msg_timeout=1,
        retry_times_when_send_failed=1,
        retry_times_when_send_async_failed=1,
        retry_another_broker_when_not_store_ok=True,
        compress_msg_body_over_howmuch=1,
        compress_level=1,
        compress_type=CompressionType.LZ4,
        max_message_size=1,
        send_latency_enable=True,
        start_detector_enable=True,
        auto_batch=True,
        batch_max_delay_ms=1,
        batch_max_bytes=1,
        total_batch_max_bytes=1,
        send_message_hooks=[Hooks()],
        check_forbidden_hooks=[Hooks()],
        end_transaction_hooks=[Hooks()],
    ) as transactional:
        ended: api.TransactionSendResult = transactional.send_message_in_transaction(message(), 42, timeout_ms=1_000)
        print(ended.local_transaction_state.name, ended.end_error, ended.send_result, ended.transaction_id)
        print(ended.send_status, ended.msg_id, ended.message_queue, ended.queue_offset)


def push_consumers() -> None:
    consumer = api.PushConsumer(
        "billing",
        "127.0.0.1:9876",
        listen,
        orderly=True,
        instance_name="x",
        unit_name="x",
        unit_mode=True,
        namespace="x",
        namespace_v2="x",
        vip_channel_enabled=True,
        use_tls="insecure",
        serialize_type=SerializeType.ROCKETMQ,
        poll_name_server_interval=1,
        heartbeat_broker_interval=1,
        persist_consumer_offset_interval=1,
        rebalance_interval=1,
        mq_client_api_timeout=1,
        enable_trace=True,
        trace_topic="x",
        trace_msg_batch_num=1,
        tls_config=NettyClientConfig(),
        access_key="x",
        secret_key="x",
        security_token="x",
        rpc_hooks=[Hooks()],
        on_failure=print,
        message_model=api.MessageModel.CLUSTERING,
        consume_from_where=api.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        consume_timestamp=1,
        allocate_strategy=AllocateMessageQueueAveragely(),
        connect_broker_by_user=1,
        pull_batch_size=1,
        pull_threshold_for_queue=1,
        pull_threshold_size_for_queue=1,
        consume_max_span=1,
        max_msg_bytes=1,
        broker_suspend_max_time=1,
        consumer_timeout_when_suspend=1,
        pull_time_delay_when_exception=1,
        local_offset_store_dir="x",
        lock_interval=1,
        filter_message_hooks=[Hooks()],
        message_queue_listener=lambda topic, everything, mine: print(topic, len(everything), len(mine)),
        consume_thread_nums=1,
        consume_message_batch_max_size=1,
        max_reconsume_times=1,
        consume_timeout_minutes=1,
        await_termination_when_shutdown=1,
        suspend_current_queue_time=1,
        pull_interval=1,
        pull_threshold_for_topic=1,
        pull_threshold_size_for_topic=1,
        post_subscription_when_pull=True,
        client_rebalance=True,
        pop_invisible_time=1,
        pop_batch_nums=1,
        pop_threshold_for_queue=1,
        consume_message_hooks=(Hooks(),),
    )
    consumer.subscribe("Orders", "created || cancelled")
    consumer.subscribe("Paid", api.MessageSelector.by_sql("price > 100"))
    consumer.subscribe("Sent", "price > 100", "SQL92")
    consumer.unsubscribe("Paid")
    with consumer:
        held: Collection[api.MessageQueue] = consumer.wait_for_assignment(lambda queues: len(queues) > 1, timeout_ms=10)
        queues: list[api.MessageQueue] = consumer.assigned_queues()
        print(held, queues, consumer.client_id)
        consumer.suspend()
        consumer.resume()
        consumer.set_consume_thread_nums(4)
    consumer.start()
    consumer.shutdown(await_termination_ms=1_000)
    api.PushConsumer("billing", "127.0.0.1:9876", listen_without_answer)
    api.PushConsumer("billing", "127.0.0.1:9876", listen_async)


def lite_pull_consumers() -> None:
    consumer = api.LitePullConsumer(
        "audit",
        "127.0.0.1:9876",
        instance_name="x",
        unit_name="x",
        unit_mode=True,
        namespace="x",
        namespace_v2="x",
        vip_channel_enabled=True,
        use_tls="insecure",
        serialize_type=SerializeType.ROCKETMQ,
        poll_name_server_interval=1,
        heartbeat_broker_interval=1,
        persist_consumer_offset_interval=1,
        rebalance_interval=1,
        mq_client_api_timeout=1,
        enable_trace=True,
        trace_topic="x",
        trace_msg_batch_num=1,
        tls_config=NettyClientConfig(),
        access_key="x",
        secret_key="x",
        security_token="x",
        rpc_hooks=[Hooks()],
        on_failure=print,
        message_model=api.MessageModel.CLUSTERING,
        consume_from_where=api.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        consume_timestamp=1,
        allocate_strategy=AllocateMessageQueueAveragely(),
        connect_broker_by_user=1,
        pull_batch_size=1,
        pull_threshold_for_queue=1,
        pull_threshold_size_for_queue=1,
        consume_max_span=1,
        max_msg_bytes=1,
        broker_suspend_max_time=1,
        consumer_timeout_when_suspend=1,
        pull_time_delay_when_exception=1,
        local_offset_store_dir="x",
        lock_interval=1,
        filter_message_hooks=[Hooks()],
        message_queue_listener=lambda topic, everything, mine: print(topic, len(everything), len(mine)),
        auto_commit=True,
        auto_commit_interval=1,
        poll_timeout=1,
        pull_threshold_for_all=1,
    )
    consumer.subscribe("Orders", api.MessageSelector.by_tag("created"))
    consumer.unsubscribe("Orders")
    with consumer:
        queues: list[api.MessageQueue] = consumer.fetch_message_queues("Orders")
        consumer.assign(queues)
        consumer.wait_for_assignment(timeout_ms=1_000)
        mine: set[api.MessageQueue] = consumer.assignment()
        for queue in mine:
            consumer.seek_to_begin(queue)
            consumer.seek_to_end(queue)
            consumer.seek(queue, consumer.offset_for_timestamp(queue, 1_700_000_000_000))
            consumer.commit({queue: consumer.committed(queue) + 1})
        messages: list[api.MessageExt] = consumer.poll(timeout_ms=100)
        print(consumer.poll_arrow(100, columns=["body", "tags"], linger_ms=0))
        consumer.pause(mine)
        consumer.resume(mine)
        consumer.commit()
        print(messages)
    consumer.start()
    consumer.shutdown(is_finished=False)


def simple_consumers() -> None:
    consumer = api.SimpleConsumer(
        "readers",
        "127.0.0.1:9876",
        instance_name="x",
        unit_name="x",
        unit_mode=True,
        namespace="x",
        namespace_v2="x",
        vip_channel_enabled=True,
        use_tls="insecure",
        serialize_type=SerializeType.ROCKETMQ,
        poll_name_server_interval=1,
        heartbeat_broker_interval=1,
        persist_consumer_offset_interval=1,
        rebalance_interval=1,
        mq_client_api_timeout=1,
        enable_trace=True,
        trace_topic="x",
        trace_msg_batch_num=1,
        tls_config=NettyClientConfig(),
        access_key="x",
        secret_key="x",
        security_token="x",
        rpc_hooks=[Hooks()],
        on_failure=print,
        message_model=api.MessageModel.CLUSTERING,
        consume_from_where=api.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        consume_timestamp=1,
        allocate_strategy=AllocateMessageQueueAveragely(),
        connect_broker_by_user=1,
        pull_batch_size=1,
        pull_threshold_for_queue=1,
        pull_threshold_size_for_queue=1,
        consume_max_span=1,
        max_msg_bytes=1,
        broker_suspend_max_time=1,
        consumer_timeout_when_suspend=1,
        pull_time_delay_when_exception=1,
        local_offset_store_dir="x",
        lock_interval=1,
        filter_message_hooks=[Hooks()],
        message_queue_listener=lambda topic, everything, mine: print(topic, len(everything), len(mine)),
        invisible_duration=1,
        await_duration=1,
    )
    consumer.subscribe("Letters")
    consumer.unsubscribe("Letters")
    with consumer:
        messages: list[api.MessageExt] = consumer.receive(max_messages=16, invisible_ms=30_000, wait_ms=1_000)
        for received in messages:
            consumer.change_invisible_duration(received, 60_000, suspend=True)
            consumer.ack(received)
        consumer.ack_all(messages)
    consumer.start()
    consumer.shutdown()


async def clusters(admin: AsyncAdmin) -> list[str]:
    return sorted((await admin.brokers.cluster_info()).cluster_addr_table)


def admins() -> None:
    with api.Admin(
        "127.0.0.1:9876",
        instance_name="x",
        unit_name="x",
        unit_mode=True,
        namespace="x",
        namespace_v2="x",
        vip_channel_enabled=True,
        use_tls="insecure",
        serialize_type=SerializeType.ROCKETMQ,
        poll_name_server_interval=1,
        heartbeat_broker_interval=1,
        persist_consumer_offset_interval=1,
        rebalance_interval=1,
        mq_client_api_timeout=1,
        enable_trace=True,
        trace_topic="x",
        trace_msg_batch_num=1,
        tls_config=NettyClientConfig(),
        access_key="x",
        secret_key="x",
        security_token="x",
        rpc_hooks=[Hooks()],
        on_failure=print,
    ) as admin:
        names: list[str] = admin.run(clusters)
        print(names)
    api.Admin("127.0.0.1:9876").close()


async def async_producers() -> None:
    async with aio.Producer(
        "orders",
        "127.0.0.1:9876",
        instance_name="x",
        unit_name="x",
        unit_mode=True,
        namespace="x",
        namespace_v2="x",
        vip_channel_enabled=True,
        use_tls="insecure",
        serialize_type=SerializeType.ROCKETMQ,
        poll_name_server_interval=1,
        heartbeat_broker_interval=1,
        persist_consumer_offset_interval=1,
        rebalance_interval=1,
        mq_client_api_timeout=1,
        enable_trace=True,
        trace_topic="x",
        trace_msg_batch_num=1,
        tls_config=NettyClientConfig(),
        access_key="x",
        secret_key="x",
        security_token="x",
        rpc_hooks=[Hooks()],
        on_failure=print,
        create_topic_key="x",
        default_topic_queue_nums=1,
        send_msg_timeout=1,
        retry_times_when_send_failed=1,
        retry_times_when_send_async_failed=1,
        retry_another_broker_when_not_store_ok=True,
        compress_msg_body_over_howmuch=1,
        compress_level=1,
        compress_type=CompressionType.LZ4,
        max_message_size=1,
        send_latency_enable=True,
        start_detector_enable=True,
        auto_batch=True,
        batch_max_delay_ms=1,
        batch_max_bytes=1,
        total_batch_max_bytes=1,
        send_message_hooks=[Hooks()],
        check_forbidden_hooks=[Hooks()],
        end_transaction_hooks=[Hooks()],
    ) as producer:
        sent: aio.SendResult = await producer.send(message())
        queue: aio.MessageQueue = sent.message_queue
        await producer.send(message(), queue=queue, timeout_ms=1_000)
        await producer.send_oneway(message(), queue=queue)
        batch: aio.SendResult = await producer.send_batch([message(), message()], queue=queue, timeout_ms=1_000)
        many: list[aio.SendResult] = await producer.send_many((message() for _ in range(3)), in_flight=8)
        print(await producer.send_arrow(Table(), topic="T"))
        await producer.send_many([message()], on_result=lambda result: print(result.msg_id))
        ordered: aio.SendResult = await producer.send_orderly(message(), queue_of, 42, timeout_ms=1_000)
        later: asyncio.Future[aio.SendResult] = producer.send_async(message(), told, timeout_ms=1_000)
        reply: aio.MessageExt = await producer.request(message(), timeout_ms=1_000)
        answer: aio.Message = aio.create_reply_message(reply, b"thanks")
        recalled: str = await producer.recall_message("Orders", sent.recall_handle or "")
        queues: list[aio.MessageQueue] = await producer.fetch_publish_message_queues("Orders")
        print(batch, many, ordered, await later, answer, recalled, queues)
    again = aio.Producer("orders", "127.0.0.1:9876", **SETTINGS)
    await again.start()
    await again.shutdown()
    async with aio.TransactionProducer(
        "payments",
        "127.0.0.1:9876",
        AsyncTransactions(),
        instance_name="x",
        unit_name="x",
        unit_mode=True,
        namespace="x",
        namespace_v2="x",
        vip_channel_enabled=True,
        use_tls="insecure",
        serialize_type=SerializeType.ROCKETMQ,
        poll_name_server_interval=1,
        heartbeat_broker_interval=1,
        persist_consumer_offset_interval=1,
        rebalance_interval=1,
        mq_client_api_timeout=1,
        enable_trace=True,
        trace_topic="x",
        trace_msg_batch_num=1,
        tls_config=NettyClientConfig(),
        access_key="x",
        secret_key="x",
        security_token="x",
        rpc_hooks=[Hooks()],
        on_failure=print,
        create_topic_key="x",
        default_topic_queue_nums=1,
        send_msg_timeout=1,
        retry_times_when_send_failed=1,
        retry_times_when_send_async_failed=1,
        retry_another_broker_when_not_store_ok=True,
        compress_msg_body_over_howmuch=1,
        compress_level=1,
        compress_type=CompressionType.LZ4,
        max_message_size=1,
        send_latency_enable=True,
        start_detector_enable=True,
        auto_batch=True,
        batch_max_delay_ms=1,
        batch_max_bytes=1,
        total_batch_max_bytes=1,
        send_message_hooks=[Hooks()],
        check_forbidden_hooks=[Hooks()],
        end_transaction_hooks=[Hooks()],
    ) as transactional:
        ended: aio.TransactionSendResult = await transactional.send_message_in_transaction(message(), 42)
        print(ended.local_transaction_state.name, ended.end_error)
    aio.TransactionProducer("payments", "127.0.0.1:9876", Transactions())


async def async_push_consumers() -> None:
    consumer = aio.PushConsumer(
        "billing",
        "127.0.0.1:9876",
        listen_async,
        orderly=False,
        instance_name="x",
        unit_name="x",
        unit_mode=True,
        namespace="x",
        namespace_v2="x",
        vip_channel_enabled=True,
        use_tls="insecure",
        serialize_type=SerializeType.ROCKETMQ,
        poll_name_server_interval=1,
        heartbeat_broker_interval=1,
        persist_consumer_offset_interval=1,
        rebalance_interval=1,
        mq_client_api_timeout=1,
        enable_trace=True,
        trace_topic="x",
        trace_msg_batch_num=1,
        tls_config=NettyClientConfig(),
        access_key="x",
        secret_key="x",
        security_token="x",
        rpc_hooks=[Hooks()],
        on_failure=print,
        message_model=api.MessageModel.CLUSTERING,
        consume_from_where=api.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        consume_timestamp=1,
        allocate_strategy=AllocateMessageQueueAveragely(),
        connect_broker_by_user=1,
        pull_batch_size=1,
        pull_threshold_for_queue=1,
        pull_threshold_size_for_queue=1,
        consume_max_span=1,
        max_msg_bytes=1,
        broker_suspend_max_time=1,
        consumer_timeout_when_suspend=1,
        pull_time_delay_when_exception=1,
        local_offset_store_dir="x",
        lock_interval=1,
        filter_message_hooks=[Hooks()],
        message_queue_listener=lambda topic, everything, mine: print(topic, len(everything), len(mine)),
        consume_thread_nums=1,
        consume_message_batch_max_size=1,
        max_reconsume_times=1,
        consume_timeout_minutes=1,
        await_termination_when_shutdown=1,
        suspend_current_queue_time=1,
        pull_interval=1,
        pull_threshold_for_topic=1,
        pull_threshold_size_for_topic=1,
        post_subscription_when_pull=True,
        client_rebalance=True,
        pop_invisible_time=1,
        pop_batch_nums=1,
        pop_threshold_for_queue=1,
        consume_message_hooks=(Hooks(),),
    )
    consumer.subscribe("Orders", "created || cancelled")
    consumer.subscribe("Paid", aio.MessageSelector.by_sql("price > 100"))
    consumer.unsubscribe("Paid")
    async with consumer:
        held: Collection[aio.MessageQueue] = await consumer.wait_for_assignment(timeout_ms=10)
        queues: list[aio.MessageQueue] = consumer.assigned_queues()
        print(held, queues, consumer.client_id)
        consumer.suspend()
        consumer.resume()
        consumer.set_consume_thread_nums(4)
    await consumer.start()
    await consumer.shutdown(await_termination_ms=1_000)
    aio.PushConsumer("billing", "127.0.0.1:9876", listen)


async def async_lite_pull_consumers() -> None:
    consumer = aio.LitePullConsumer(
        "audit",
        "127.0.0.1:9876",
        instance_name="x",
        unit_name="x",
        unit_mode=True,
        namespace="x",
        namespace_v2="x",
        vip_channel_enabled=True,
        use_tls="insecure",
        serialize_type=SerializeType.ROCKETMQ,
        poll_name_server_interval=1,
        heartbeat_broker_interval=1,
        persist_consumer_offset_interval=1,
        rebalance_interval=1,
        mq_client_api_timeout=1,
        enable_trace=True,
        trace_topic="x",
        trace_msg_batch_num=1,
        tls_config=NettyClientConfig(),
        access_key="x",
        secret_key="x",
        security_token="x",
        rpc_hooks=[Hooks()],
        on_failure=print,
        message_model=api.MessageModel.CLUSTERING,
        consume_from_where=api.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        consume_timestamp=1,
        allocate_strategy=AllocateMessageQueueAveragely(),
        connect_broker_by_user=1,
        pull_batch_size=1,
        pull_threshold_for_queue=1,
        pull_threshold_size_for_queue=1,
        consume_max_span=1,
        max_msg_bytes=1,
        broker_suspend_max_time=1,
        consumer_timeout_when_suspend=1,
        pull_time_delay_when_exception=1,
        local_offset_store_dir="x",
        lock_interval=1,
        filter_message_hooks=[Hooks()],
        message_queue_listener=lambda topic, everything, mine: print(topic, len(everything), len(mine)),
        auto_commit=True,
        auto_commit_interval=1,
        poll_timeout=1,
        pull_threshold_for_all=1,
    )
    await consumer.subscribe("Orders")
    await consumer.unsubscribe("Orders")
    async with consumer:
        queues: list[aio.MessageQueue] = await consumer.fetch_message_queues("Orders")
        await consumer.assign(queues)
        await consumer.wait_for_assignment(timeout_ms=1_000)
        mine: set[aio.MessageQueue] = consumer.assignment()
        for queue in mine:
            await consumer.seek_to_begin(queue)
            await consumer.seek_to_end(queue)
            await consumer.seek(queue, await consumer.offset_for_timestamp(queue, 1_700_000_000_000))
            await consumer.commit({queue: await consumer.committed(queue) + 1})
        messages: list[aio.MessageExt] = await consumer.poll(timeout_ms=100)
        print(await consumer.poll_arrow(100, columns=["body", "tags"], linger_ms=0))
        consumer.pause(mine)
        consumer.resume(mine)
        await consumer.commit()
        print(messages)
    await consumer.start()
    await consumer.shutdown(is_finished=False)


async def async_simple_consumers() -> None:
    consumer = aio.SimpleConsumer(
        "readers",
        "127.0.0.1:9876",
        instance_name="x",
        unit_name="x",
        unit_mode=True,
        namespace="x",
        namespace_v2="x",
        vip_channel_enabled=True,
        use_tls="insecure",
        serialize_type=SerializeType.ROCKETMQ,
        poll_name_server_interval=1,
        heartbeat_broker_interval=1,
        persist_consumer_offset_interval=1,
        rebalance_interval=1,
        mq_client_api_timeout=1,
        enable_trace=True,
        trace_topic="x",
        trace_msg_batch_num=1,
        tls_config=NettyClientConfig(),
        access_key="x",
        secret_key="x",
        security_token="x",
        rpc_hooks=[Hooks()],
        on_failure=print,
        message_model=api.MessageModel.CLUSTERING,
        consume_from_where=api.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        consume_timestamp=1,
        allocate_strategy=AllocateMessageQueueAveragely(),
        connect_broker_by_user=1,
        pull_batch_size=1,
        pull_threshold_for_queue=1,
        pull_threshold_size_for_queue=1,
        consume_max_span=1,
        max_msg_bytes=1,
        broker_suspend_max_time=1,
        consumer_timeout_when_suspend=1,
        pull_time_delay_when_exception=1,
        local_offset_store_dir="x",
        lock_interval=1,
        filter_message_hooks=[Hooks()],
        message_queue_listener=lambda topic, everything, mine: print(topic, len(everything), len(mine)),
        invisible_duration=1,
        await_duration=1,
    )
    await consumer.subscribe("Letters")
    await consumer.unsubscribe("Letters")
    async with consumer:
        messages: list[aio.MessageExt] = await consumer.receive(max_messages=16, invisible_ms=30_000, wait_ms=1_000)
        for received in messages:
            await consumer.change_invisible_duration(received, 60_000, suspend=True)
            await consumer.ack(received)
        await consumer.ack_all(messages)
    await consumer.start()
    await consumer.shutdown()


async def async_admins() -> None:
    async with aio.Admin(
        "127.0.0.1:9876",
        instance_name="x",
        unit_name="x",
        unit_mode=True,
        namespace="x",
        namespace_v2="x",
        vip_channel_enabled=True,
        use_tls="insecure",
        serialize_type=SerializeType.ROCKETMQ,
        poll_name_server_interval=1,
        heartbeat_broker_interval=1,
        persist_consumer_offset_interval=1,
        rebalance_interval=1,
        mq_client_api_timeout=1,
        enable_trace=True,
        trace_topic="x",
        trace_msg_batch_num=1,
        tls_config=NettyClientConfig(),
        access_key="x",
        secret_key="x",
        security_token="x",
        rpc_hooks=[Hooks()],
        on_failure=print,
    ) as admin:
        print(await clusters(admin))
    await aio.Admin("127.0.0.1:9876").close()


def older_names() -> None:
    """Functions of maxq.api that make asynchronous clients."""
    producer: aio.Producer = api.async_producer("orders", "127.0.0.1:9876", send_msg_timeout=1_000)
    transactional: aio.TransactionProducer = api.async_transaction_producer("o", "127.0.0.1:9876", AsyncTransactions())
    push: aio.PushConsumer = api.async_push_consumer("billing", "127.0.0.1:9876", listen_async, orderly=True)
    lite: aio.LitePullConsumer = api.async_lite_pull_consumer("audit", "127.0.0.1:9876", auto_commit=False)
    simple: aio.SimpleConsumer = api.async_simple_consumer("readers", "127.0.0.1:9876", await_duration=1_000)
    admin: aio.Admin = api.async_admin("127.0.0.1:9876")
    print(producer, transactional, push, lite, simple, admin, api.system_environment("127.0.0.1:9876").host_ip)


def access(
    admin: api.Admin,
    address: str,
    user: UserInfo,
    username: str,
    text: str | None,
    source: str,
    target: str,
    usernames: Sequence[str],
    acl: AclInfo,
    subject: str,
    resource: str | None,
    subject_or_none: str | None,
    subjects: Sequence[str],
) -> None:
    admin.access.create_user(address, user)
    admin.access.update_user(address, user)
    admin.access.delete_user(address, username)
    got_get_user: UserInfo | None = admin.access.get_user(address, username)
    print(got_get_user)
    got_list_users: list[UserInfo] = admin.access.list_users(address, text=text)
    print(got_list_users)
    got_copy_users: list[str] = admin.access.copy_users(source, target, usernames=usernames)
    print(got_copy_users)
    admin.access.create_acl(address, acl)
    admin.access.update_acl(address, acl)
    admin.access.delete_acl(address, subject, resource=resource)
    got_get_acl: AclInfo | None = admin.access.get_acl(address, subject)
    print(got_get_acl)
    got_list_acls: list[AclInfo] = admin.access.list_acls(address, subject=subject_or_none, resource=resource)
    print(got_list_acls)
    got_copy_acls: list[str] = admin.access.copy_acls(source, target, subjects=subjects)
    print(got_copy_acls)


def brokers(
    admin: api.Admin,
    cluster: str,
    address: str,
    properties: dict[str, str],
    stats_name: str,
    stats_key: str,
    is_order: bool,
    timeout_ms: int,
    offset: int,
    group: str,
    threshold: int,
    mode: int,
    engine: str,
    topic: str,
    check_store_time: int,
    types: Sequence[str],
    config_path: str,
    broker_name: str,
    broker_id: int,
) -> None:
    got_cluster_info: ClusterInfo = admin.brokers.cluster_info()
    print(got_cluster_info)
    got_of_cluster: list[BrokerData] = admin.brokers.of_cluster(cluster)
    print(got_of_cluster)
    got_masters_of_cluster: list[str] = admin.brokers.masters_of_cluster(cluster)
    print(got_masters_of_cluster)
    got_addresses_of_cluster: list[str] = admin.brokers.addresses_of_cluster(cluster)
    print(got_addresses_of_cluster)
    got_runtime_info: dict[str, str] = admin.brokers.runtime_info(address)
    print(got_runtime_info)
    got_config: dict[str, str] = admin.brokers.config(address)
    print(got_config)
    got_config_version: DataVersion = admin.brokers.config_version(address)
    print(got_config_version)
    got_update_config: str = admin.brokers.update_config(address, properties)
    print(got_update_config)
    got_stats: BrokerStatsData = admin.brokers.stats(address, stats_name, stats_key)
    print(got_stats)
    got_consume_stats: ConsumeStatsList = admin.brokers.consume_stats(address, is_order=is_order, timeout_ms=timeout_ms)
    print(got_consume_stats)
    got_ha_status: HARuntimeInfo = admin.brokers.ha_status(address)
    print(got_ha_status)
    admin.brokers.clean_expired_consume_queue(address)
    admin.brokers.clean_unused_topic(address)
    admin.brokers.delete_expired_commit_log(address)
    admin.brokers.reset_master_flush_offset(address, offset)
    got_epoch_cache: dict[str, Any] = admin.brokers.epoch_cache(address)
    print(got_epoch_cache)
    got_cold_data_flow_control: dict[str, Any] | None = admin.brokers.cold_data_flow_control(address)
    print(got_cold_data_flow_control)
    admin.brokers.update_cold_data_flow_control(address, group, threshold)
    admin.brokers.remove_cold_data_flow_control(address, group)
    got_set_commit_log_read_ahead_mode: str = admin.brokers.set_commit_log_read_ahead_mode(address, mode)
    print(got_set_commit_log_read_ahead_mode)
    admin.brokers.switch_timer_engine(address, engine)
    admin.brokers.export_pop_records(address, timeout_ms=timeout_ms)
    got_check_rocksdb_cq_write_progress: dict[str, Any] = admin.brokers.check_rocksdb_cq_write_progress(
        address, topic, check_store_time
    )
    print(got_check_rocksdb_cq_write_progress)
    admin.brokers.export_rocksdb_config(address, types)
    admin.brokers.add_to_container(address, config_path)
    admin.brokers.remove_from_container(address, cluster, broker_name, broker_id)


def controllers(
    admin: api.Admin,
    address: str,
    broker_names: Sequence[str],
    properties: dict[str, str],
    cluster: str,
    broker_name: str,
    broker_id: int,
    cluster_or_none: str | None,
    broker_ids: str | None,
    clean_living: bool,
) -> None:
    got_metadata: dict[str, str] = admin.controllers.metadata(address)
    print(got_metadata)
    got_leader: str = admin.controllers.leader(address)
    print(got_leader)
    got_sync_state: dict[str, Any] = admin.controllers.sync_state(address, broker_names)
    print(got_sync_state)
    got_config: dict[str, str] = admin.controllers.config(address)
    print(got_config)
    admin.controllers.update_config(address, properties)
    got_elect_master: tuple[dict[str, str], dict[str, Any]] = admin.controllers.elect_master(
        address, cluster, broker_name, broker_id
    )
    print(got_elect_master)
    admin.controllers.clean_broker_data(address, cluster_or_none, broker_name, broker_ids, clean_living=clean_living)


def dead_letters(
    admin: api.Admin,
    group: str,
    selection: DeadLetterSelection,
    send: Send,
    topic: str | None,
    again: bool,
) -> None:
    got_groups: list[DeadLetterCount] = admin.dead_letters.groups()
    print(got_groups)
    got_count: DeadLetterCount = admin.dead_letters.count(group)
    print(got_count)
    for item_scan in admin.dead_letters.scan(group, selection):
        seen_scan: api.MessageExt = item_scan
        print(seen_scan)
    got_redrive: int = admin.dead_letters.redrive(group, selection, send, topic=topic, again=again)
    print(got_redrive)


def groups(
    admin: api.Admin,
    address: str,
    config: SubscriptionGroupConfig,
    cluster: str,
    configs: list[SubscriptionGroupConfig],
    group: str,
    clean_offset: bool,
    topic: str,
    readable: bool | None,
    body: SetMessageRequestModeRequestBody,
    address_or_none: str | None,
    client_id: str,
    jstack: bool,
    topic_or_none: str | None,
    via: str | None,
) -> None:
    admin.groups.create(address, config)
    got_create_in_cluster: list[str] = admin.groups.create_in_cluster(cluster, config)
    print(got_create_in_cluster)
    admin.groups.create_list(address, configs)
    admin.groups.delete(address, group, clean_offset=clean_offset)
    admin.groups.delete_topics(group, cluster)
    got_config: SubscriptionGroupConfig = admin.groups.config(address, group)
    print(got_config)
    got_all_configs: SubscriptionGroupWrapper = admin.groups.all_configs(address)
    print(got_all_configs)
    got_forbid: GroupForbidden = admin.groups.forbid(address, group, topic, readable=readable)
    print(got_forbid)
    admin.groups.set_message_request_mode(address, body)
    got_connections: ConsumerConnection = admin.groups.connections(group, address=address_or_none)
    print(got_connections)
    got_consumer_ids: list[str] = admin.groups.consumer_ids(address, group)
    print(got_consumer_ids)
    got_producer_connections: ProducerConnection = admin.groups.producer_connections(group, topic)
    print(got_producer_connections)
    got_all_producers: ProducerTableInfo = admin.groups.all_producers(address)
    print(got_all_producers)
    got_running_info: ConsumerRunningInfo = admin.groups.running_info(group, client_id, jstack=jstack)
    print(got_running_info)
    got_subscription: SubscriptionData | None = admin.groups.subscription(group, topic)
    print(got_subscription)
    got_consume_stats: ConsumeStats = admin.groups.consume_stats(group, topic=topic_or_none, via=via)
    print(got_consume_stats)
    got_names: list[str] = admin.groups.names()
    print(got_names)
    got_is_online: bool = admin.groups.is_online(group)
    print(got_is_online)
    got_delete_in_cluster: list[str] = admin.groups.delete_in_cluster(group, cluster, clean_offset=clean_offset)
    print(got_delete_in_cluster)


def lite_topics(
    admin: api.Admin,
    address: str,
    topic: str,
    parent: str,
    lite: str,
    group: str,
    client_id: str,
    max_count: int,
    lite_or_none: str | None,
    top_k: int,
    client_id_or_none: str | None,
) -> None:
    got_broker_info: dict[str, Any] = admin.lite_topics.broker_info(address)
    print(got_broker_info)
    got_parent_topic: dict[str, Any] = admin.lite_topics.parent_topic(address, topic)
    print(got_parent_topic)
    got_lite_topic: dict[str, Any] = admin.lite_topics.lite_topic(address, parent, lite)
    print(got_lite_topic)
    got_client: dict[str, Any] = admin.lite_topics.client(address, parent, group, client_id, max_count=max_count)
    print(got_client)
    got_group: dict[str, Any] = admin.lite_topics.group(address, group, lite=lite_or_none, top_k=top_k)
    print(got_group)
    admin.lite_topics.trigger_dispatch(address, group, client_id=client_id_or_none)


def messages(
    admin: api.Admin,
    topic: str,
    msg_id: str,
    via: str | None,
    offset_msg_id: str,
    topic_or_none: str | None,
    key: str,
    max_num: int,
    begin_ms: int,
    end_ms: int,
    tag: str,
    unique_key: str,
    queue: api.MessageQueue,
    offset: int,
    max_nums: int,
    expression: str,
    address: str | None,
    group: str,
    queues: list[api.MessageQueue] | None,
    begin_ms_or_none: int | None,
    end_ms_or_none: int | None,
    address_query_consume_queue: str,
    index: int,
    count: int,
    group_or_none: str | None,
    client_id: str,
    address_resume_check_half_message: str,
    message: api.MessageExt,
) -> None:
    got_view: api.MessageExt = admin.messages.view(topic, msg_id, via=via)
    print(got_view)
    got_find: api.MessageExt | None = admin.messages.find(topic, msg_id, via=via)
    print(got_find)
    got_view_by_offset_id: api.MessageExt = admin.messages.view_by_offset_id(offset_msg_id, topic=topic_or_none)
    print(got_view_by_offset_id)
    got_query_by_key: list[api.MessageExt] = admin.messages.query_by_key(
        topic, key, max_num=max_num, begin_ms=begin_ms, end_ms=end_ms, via=via
    )
    print(got_query_by_key)
    got_query_by_tag: list[api.MessageExt] = admin.messages.query_by_tag(
        topic, tag, max_num=max_num, begin_ms=begin_ms, end_ms=end_ms, via=via
    )
    print(got_query_by_tag)
    got_query_by_unique_key: list[api.MessageExt] = admin.messages.query_by_unique_key(
        topic, unique_key, max_num=max_num, begin_ms=begin_ms, end_ms=end_ms, via=via
    )
    print(got_query_by_unique_key)
    got_pull: PullResult = admin.messages.pull(
        queue, offset, max_nums=max_nums, expression=expression, address=address, group=group
    )
    print(got_pull)
    got_view_by_queue_offset: api.MessageExt = admin.messages.view_by_queue_offset(queue, offset, via=via)
    print(got_view_by_queue_offset)
    for item_scan in admin.messages.scan(
        topic,
        queues=queues,
        begin_ms=begin_ms_or_none,
        end_ms=end_ms_or_none,
        expression=expression,
        via=via,
        group=group,
    ):
        seen_scan: api.MessageExt = item_scan
        print(seen_scan)
    got_query_consume_queue: QueryConsumeQueueResponseBody = admin.messages.query_consume_queue(
        address_query_consume_queue, queue, index, count=count, group=group_or_none
    )
    print(got_query_consume_queue)
    got_consume_directly: ConsumeMessageDirectlyResult = admin.messages.consume_directly(
        group, client_id, topic, msg_id
    )
    print(got_consume_directly)
    admin.messages.resume_check_half_message(address_resume_check_half_message, topic, msg_id)
    got_track: list[MessageTrack] = admin.messages.track(message)
    print(got_track)


def name_servers(
    admin: api.Admin,
    namespace: str,
    key: str,
    value: str,
    servers: Sequence[str] | None,
    properties: dict[str, str],
    broker_name: str,
) -> None:
    admin.name_servers.put_kv(namespace, key, value, servers=servers)
    got_get_kv: str | None = admin.name_servers.get_kv(namespace, key)
    print(got_get_kv)
    admin.name_servers.delete_kv(namespace, key, servers=servers)
    got_list_kv: dict[str, str] = admin.name_servers.list_kv(namespace)
    print(got_list_kv)
    got_config: dict[str, dict[str, str]] = admin.name_servers.config(servers=servers)
    print(got_config)
    admin.name_servers.update_config(properties, servers=servers)
    got_wipe_write_perm: dict[str, int] = admin.name_servers.wipe_write_perm(broker_name, servers=servers)
    print(got_wipe_write_perm)
    got_add_write_perm: dict[str, int] = admin.name_servers.add_write_perm(broker_name, servers=servers)
    print(got_add_write_perm)


def offsets(
    admin: api.Admin,
    topic: str,
    queue: api.MessageQueue,
    timestamp_ms: int,
    boundary: str,
    group: str,
    offset: int,
    address: str,
    force: bool,
    cluster: str | None,
    broker: str,
    queue_id: int,
    source_group: str,
    target_group: str,
    client_address: str | None,
) -> None:
    got_queues: list[api.MessageQueue] = admin.offsets.queues(topic)
    print(got_queues)
    got_max: int = admin.offsets.max(queue)
    print(got_max)
    got_min: int = admin.offsets.min(queue)
    print(got_min)
    got_search: int = admin.offsets.search(queue, timestamp_ms, boundary=boundary)
    print(got_search)
    got_earliest_store_time: int = admin.offsets.earliest_store_time(queue)
    print(got_earliest_store_time)
    got_committed: int | None = admin.offsets.committed(group, queue)
    print(got_committed)
    admin.offsets.commit(group, queue, offset)
    got_all_committed: ConsumerOffsetSerializeWrapper = admin.offsets.all_committed(address)
    print(got_all_committed)
    got_reset_by_time: dict[api.MessageQueue, int] = admin.offsets.reset_by_time(
        group, topic, timestamp_ms, force=force, cluster=cluster
    )
    print(got_reset_by_time)
    got_queue_at: api.MessageQueue = admin.offsets.queue_at(topic, broker, queue_id)
    print(got_queue_at)
    got_reset_queue: int = admin.offsets.reset_queue(group, queue, offset)
    print(got_reset_queue)
    got_clone: dict[api.MessageQueue, int] = admin.offsets.clone(source_group, target_group, topic)
    print(got_clone)
    got_of_members: dict[str, dict[api.MessageQueue, int]] = admin.offsets.of_members(
        group, topic, client_address=client_address
    )
    print(got_of_members)


def operations(
    admin: api.Admin,
    address: str,
    topic: str,
    queue_id: int | None,
    before_ms: int | None,
    before_offset: int | None,
    dry_run: bool,
) -> None:
    got_why_slow: dict[str, Any] = admin.operations.why_slow(address)
    print(got_why_slow)
    got_purge_topic: dict[str, Any] = admin.operations.purge_topic(
        address, topic, queue_id=queue_id, before_ms=before_ms, before_offset=before_offset, dry_run=dry_run
    )
    print(got_purge_topic)


def static_topics(
    admin: api.Admin,
    topic: str,
    queues: int,
    broker_names: Iterable[str],
    force: bool,
    masters: dict[str, str],
) -> None:
    got_create: Plan = admin.static_topics.create(topic, queues, broker_names, force=force)
    print(got_create)
    got_remap: Plan = admin.static_topics.remap(topic, broker_names, force=force)
    print(got_remap)
    got_parts: dict[str, BrokerPart] = admin.static_topics.parts(topic, masters)
    print(got_parts)


def timers(
    admin: api.Admin,
    address: str,
    begin_ms: int | None,
    end_ms: int | None,
    topic: str,
    key: str,
) -> None:
    for item_pages in admin.timers.pages(address, begin_ms=begin_ms, end_ms=end_ms, topic=topic):
        seen_pages: dict[str, Any] = item_pages
        print(seen_pages)
    got_inspect: dict[str, Any] = admin.timers.inspect(address, key, topic=topic)
    print(got_inspect)
    admin.timers.cancel(address, key, topic=topic)


def topics(
    admin: api.Admin,
    address: str,
    config: TopicConfig,
    cluster: str,
    configs: list[TopicConfig],
    topic: str,
    follows_master: bool,
    cluster_or_none: str | None,
    via: str | None,
    group: str,
    servers: Sequence[str] | None,
) -> None:
    admin.topics.create(address, config)
    got_create_in_cluster: list[str] = admin.topics.create_in_cluster(cluster, config)
    print(got_create_in_cluster)
    admin.topics.create_list(address, configs)
    got_delete: str = admin.topics.delete(topic, cluster)
    print(got_delete)
    got_parts_away: str = admin.topics.parts_away(topic)
    print(got_parts_away)
    got_delete_alone: list[str] = admin.topics.delete_alone(address, topic)
    print(got_delete_alone)
    admin.topics.forget_order(topic)
    admin.topics.delete_in_broker(address, topic, follows_master=follows_master)
    admin.topics.delete_in_name_servers(topic, cluster=cluster_or_none, servers=servers)
    got_config: TopicConfigAndQueueMapping = admin.topics.config(address, topic)
    print(got_config)
    got_all_configs: TopicConfigAndMappingSerializeWrapper = admin.topics.all_configs(address)
    print(got_all_configs)
    got_names: list[str] = admin.topics.names()
    print(got_names)
    got_names_of_cluster: list[str] = admin.topics.names_of_cluster(cluster)
    print(got_names_of_cluster)
    got_system_names: list[str] = admin.topics.system_names(address)
    print(got_system_names)
    got_route: TopicRouteData = admin.topics.route(topic)
    print(got_route)
    got_clusters: list[str] = admin.topics.clusters(topic)
    print(got_clusters)
    got_stats: TopicStatsTable = admin.topics.stats(topic, via=via)
    print(got_stats)
    got_consumed_by: list[str] = admin.topics.consumed_by(topic)
    print(got_consumed_by)
    got_consumed_by_group: list[str] = admin.topics.consumed_by_group(group)
    print(got_consumed_by_group)


def traces(
    admin: api.Admin,
    msg_id: str,
    trace_topic: str,
    max_num: int,
    begin_ms: int,
    end_ms: int,
) -> None:
    got_of_message: list[TraceView] = admin.traces.of_message(
        msg_id, trace_topic=trace_topic, max_num=max_num, begin_ms=begin_ms, end_ms=end_ms
    )
    print(got_of_message)


def transactions(
    admin: api.Admin,
    address: str,
    limit: int,
    transaction: str,
) -> None:
    got_open: list[api.MessageExt] = admin.transactions.open(address, limit=limit)
    print(got_open)
    got_history: TransactionHistory = admin.transactions.history(transaction)
    print(got_history)
    got_resume: str = admin.transactions.resume(transaction)
    print(got_resume)


async def async_access(
    admin: aio.Admin,
    address: str,
    user: UserInfo,
    username: str,
    text: str | None,
    source: str,
    target: str,
    usernames: Sequence[str],
    acl: AclInfo,
    subject: str,
    resource: str | None,
    subject_or_none: str | None,
    subjects: Sequence[str],
) -> None:
    await admin.access.create_user(address, user)
    await admin.access.update_user(address, user)
    await admin.access.delete_user(address, username)
    got_get_user: UserInfo | None = await admin.access.get_user(address, username)
    print(got_get_user)
    got_list_users: list[UserInfo] = await admin.access.list_users(address, text=text)
    print(got_list_users)
    got_copy_users: list[str] = await admin.access.copy_users(source, target, usernames=usernames)
    print(got_copy_users)
    await admin.access.create_acl(address, acl)
    await admin.access.update_acl(address, acl)
    await admin.access.delete_acl(address, subject, resource=resource)
    got_get_acl: AclInfo | None = await admin.access.get_acl(address, subject)
    print(got_get_acl)
    got_list_acls: list[AclInfo] = await admin.access.list_acls(address, subject=subject_or_none, resource=resource)
    print(got_list_acls)
    got_copy_acls: list[str] = await admin.access.copy_acls(source, target, subjects=subjects)
    print(got_copy_acls)


async def async_brokers(
    admin: aio.Admin,
    cluster: str,
    address: str,
    properties: dict[str, str],
    stats_name: str,
    stats_key: str,
    is_order: bool,
    timeout_ms: int,
    offset: int,
    group: str,
    threshold: int,
    mode: int,
    engine: str,
    topic: str,
    check_store_time: int,
    types: Sequence[str],
    config_path: str,
    broker_name: str,
    broker_id: int,
) -> None:
    got_cluster_info: ClusterInfo = await admin.brokers.cluster_info()
    print(got_cluster_info)
    got_of_cluster: list[BrokerData] = await admin.brokers.of_cluster(cluster)
    print(got_of_cluster)
    got_masters_of_cluster: list[str] = await admin.brokers.masters_of_cluster(cluster)
    print(got_masters_of_cluster)
    got_addresses_of_cluster: list[str] = await admin.brokers.addresses_of_cluster(cluster)
    print(got_addresses_of_cluster)
    got_runtime_info: dict[str, str] = await admin.brokers.runtime_info(address)
    print(got_runtime_info)
    got_config: dict[str, str] = await admin.brokers.config(address)
    print(got_config)
    got_config_version: DataVersion = await admin.brokers.config_version(address)
    print(got_config_version)
    got_update_config: str = await admin.brokers.update_config(address, properties)
    print(got_update_config)
    got_stats: BrokerStatsData = await admin.brokers.stats(address, stats_name, stats_key)
    print(got_stats)
    got_consume_stats: ConsumeStatsList = await admin.brokers.consume_stats(
        address, is_order=is_order, timeout_ms=timeout_ms
    )
    print(got_consume_stats)
    got_ha_status: HARuntimeInfo = await admin.brokers.ha_status(address)
    print(got_ha_status)
    await admin.brokers.clean_expired_consume_queue(address)
    await admin.brokers.clean_unused_topic(address)
    await admin.brokers.delete_expired_commit_log(address)
    await admin.brokers.reset_master_flush_offset(address, offset)
    got_epoch_cache: dict[str, Any] = await admin.brokers.epoch_cache(address)
    print(got_epoch_cache)
    got_cold_data_flow_control: dict[str, Any] | None = await admin.brokers.cold_data_flow_control(address)
    print(got_cold_data_flow_control)
    await admin.brokers.update_cold_data_flow_control(address, group, threshold)
    await admin.brokers.remove_cold_data_flow_control(address, group)
    got_set_commit_log_read_ahead_mode: str = await admin.brokers.set_commit_log_read_ahead_mode(address, mode)
    print(got_set_commit_log_read_ahead_mode)
    await admin.brokers.switch_timer_engine(address, engine)
    await admin.brokers.export_pop_records(address, timeout_ms=timeout_ms)
    got_check_rocksdb_cq_write_progress: dict[str, Any] = await admin.brokers.check_rocksdb_cq_write_progress(
        address, topic, check_store_time
    )
    print(got_check_rocksdb_cq_write_progress)
    await admin.brokers.export_rocksdb_config(address, types)
    await admin.brokers.add_to_container(address, config_path)
    await admin.brokers.remove_from_container(address, cluster, broker_name, broker_id)


async def async_controllers(
    admin: aio.Admin,
    address: str,
    broker_names: Sequence[str],
    properties: dict[str, str],
    cluster: str,
    broker_name: str,
    broker_id: int,
    cluster_or_none: str | None,
    broker_ids: str | None,
    clean_living: bool,
) -> None:
    got_metadata: dict[str, str] = await admin.controllers.metadata(address)
    print(got_metadata)
    got_leader: str = await admin.controllers.leader(address)
    print(got_leader)
    got_sync_state: dict[str, Any] = await admin.controllers.sync_state(address, broker_names)
    print(got_sync_state)
    got_config: dict[str, str] = await admin.controllers.config(address)
    print(got_config)
    await admin.controllers.update_config(address, properties)
    got_elect_master: tuple[dict[str, str], dict[str, Any]] = await admin.controllers.elect_master(
        address, cluster, broker_name, broker_id
    )
    print(got_elect_master)
    await admin.controllers.clean_broker_data(
        address, cluster_or_none, broker_name, broker_ids, clean_living=clean_living
    )


async def async_dead_letters(
    admin: aio.Admin,
    group: str,
    selection: DeadLetterSelection,
    send: Send,
    topic: str | None,
    again: bool,
) -> None:
    got_groups: list[DeadLetterCount] = await admin.dead_letters.groups()
    print(got_groups)
    got_count: DeadLetterCount = await admin.dead_letters.count(group)
    print(got_count)
    async for item_scan in admin.dead_letters.scan(group, selection):
        seen_scan: api.MessageExt = item_scan
        print(seen_scan)
    got_redrive: int = await admin.dead_letters.redrive(group, selection, send, topic=topic, again=again)
    print(got_redrive)


async def async_groups(
    admin: aio.Admin,
    address: str,
    config: SubscriptionGroupConfig,
    cluster: str,
    configs: list[SubscriptionGroupConfig],
    group: str,
    clean_offset: bool,
    topic: str,
    readable: bool | None,
    body: SetMessageRequestModeRequestBody,
    address_or_none: str | None,
    client_id: str,
    jstack: bool,
    topic_or_none: str | None,
    via: str | None,
) -> None:
    await admin.groups.create(address, config)
    got_create_in_cluster: list[str] = await admin.groups.create_in_cluster(cluster, config)
    print(got_create_in_cluster)
    await admin.groups.create_list(address, configs)
    await admin.groups.delete(address, group, clean_offset=clean_offset)
    await admin.groups.delete_topics(group, cluster)
    got_config: SubscriptionGroupConfig = await admin.groups.config(address, group)
    print(got_config)
    got_all_configs: SubscriptionGroupWrapper = await admin.groups.all_configs(address)
    print(got_all_configs)
    got_forbid: GroupForbidden = await admin.groups.forbid(address, group, topic, readable=readable)
    print(got_forbid)
    await admin.groups.set_message_request_mode(address, body)
    got_connections: ConsumerConnection = await admin.groups.connections(group, address=address_or_none)
    print(got_connections)
    got_consumer_ids: list[str] = await admin.groups.consumer_ids(address, group)
    print(got_consumer_ids)
    got_producer_connections: ProducerConnection = await admin.groups.producer_connections(group, topic)
    print(got_producer_connections)
    got_all_producers: ProducerTableInfo = await admin.groups.all_producers(address)
    print(got_all_producers)
    got_running_info: ConsumerRunningInfo = await admin.groups.running_info(group, client_id, jstack=jstack)
    print(got_running_info)
    got_subscription: SubscriptionData | None = await admin.groups.subscription(group, topic)
    print(got_subscription)
    got_consume_stats: ConsumeStats = await admin.groups.consume_stats(group, topic=topic_or_none, via=via)
    print(got_consume_stats)
    got_names: list[str] = await admin.groups.names()
    print(got_names)
    got_is_online: bool = await admin.groups.is_online(group)
    print(got_is_online)
    got_delete_in_cluster: list[str] = await admin.groups.delete_in_cluster(group, cluster, clean_offset=clean_offset)
    print(got_delete_in_cluster)


async def async_lite_topics(
    admin: aio.Admin,
    address: str,
    topic: str,
    parent: str,
    lite: str,
    group: str,
    client_id: str,
    max_count: int,
    lite_or_none: str | None,
    top_k: int,
    client_id_or_none: str | None,
) -> None:
    got_broker_info: dict[str, Any] = await admin.lite_topics.broker_info(address)
    print(got_broker_info)
    got_parent_topic: dict[str, Any] = await admin.lite_topics.parent_topic(address, topic)
    print(got_parent_topic)
    got_lite_topic: dict[str, Any] = await admin.lite_topics.lite_topic(address, parent, lite)
    print(got_lite_topic)
    got_client: dict[str, Any] = await admin.lite_topics.client(address, parent, group, client_id, max_count=max_count)
    print(got_client)
    got_group: dict[str, Any] = await admin.lite_topics.group(address, group, lite=lite_or_none, top_k=top_k)
    print(got_group)
    await admin.lite_topics.trigger_dispatch(address, group, client_id=client_id_or_none)


async def async_messages(
    admin: aio.Admin,
    topic: str,
    msg_id: str,
    via: str | None,
    offset_msg_id: str,
    topic_or_none: str | None,
    key: str,
    max_num: int,
    begin_ms: int,
    end_ms: int,
    tag: str,
    unique_key: str,
    queue: api.MessageQueue,
    offset: int,
    max_nums: int,
    expression: str,
    address: str | None,
    group: str,
    queues: list[api.MessageQueue] | None,
    begin_ms_or_none: int | None,
    end_ms_or_none: int | None,
    address_query_consume_queue: str,
    index: int,
    count: int,
    group_or_none: str | None,
    client_id: str,
    address_resume_check_half_message: str,
    message: api.MessageExt,
) -> None:
    got_view: api.MessageExt = await admin.messages.view(topic, msg_id, via=via)
    print(got_view)
    got_find: api.MessageExt | None = await admin.messages.find(topic, msg_id, via=via)
    print(got_find)
    got_view_by_offset_id: api.MessageExt = await admin.messages.view_by_offset_id(offset_msg_id, topic=topic_or_none)
    print(got_view_by_offset_id)
    got_query_by_key: list[api.MessageExt] = await admin.messages.query_by_key(
        topic, key, max_num=max_num, begin_ms=begin_ms, end_ms=end_ms, via=via
    )
    print(got_query_by_key)
    got_query_by_tag: list[api.MessageExt] = await admin.messages.query_by_tag(
        topic, tag, max_num=max_num, begin_ms=begin_ms, end_ms=end_ms, via=via
    )
    print(got_query_by_tag)
    got_query_by_unique_key: list[api.MessageExt] = await admin.messages.query_by_unique_key(
        topic, unique_key, max_num=max_num, begin_ms=begin_ms, end_ms=end_ms, via=via
    )
    print(got_query_by_unique_key)
    got_pull: PullResult = await admin.messages.pull(
        queue, offset, max_nums=max_nums, expression=expression, address=address, group=group
    )
    print(got_pull)
    got_view_by_queue_offset: api.MessageExt = await admin.messages.view_by_queue_offset(queue, offset, via=via)
    print(got_view_by_queue_offset)
    async for item_scan in admin.messages.scan(
        topic,
        queues=queues,
        begin_ms=begin_ms_or_none,
        end_ms=end_ms_or_none,
        expression=expression,
        via=via,
        group=group,
    ):
        seen_scan: api.MessageExt = item_scan
        print(seen_scan)
    got_query_consume_queue: QueryConsumeQueueResponseBody = await admin.messages.query_consume_queue(
        address_query_consume_queue, queue, index, count=count, group=group_or_none
    )
    print(got_query_consume_queue)
    got_consume_directly: ConsumeMessageDirectlyResult = await admin.messages.consume_directly(
        group, client_id, topic, msg_id
    )
    print(got_consume_directly)
    await admin.messages.resume_check_half_message(address_resume_check_half_message, topic, msg_id)
    got_track: list[MessageTrack] = await admin.messages.track(message)
    print(got_track)


async def async_name_servers(
    admin: aio.Admin,
    namespace: str,
    key: str,
    value: str,
    servers: Sequence[str] | None,
    properties: dict[str, str],
    broker_name: str,
) -> None:
    await admin.name_servers.put_kv(namespace, key, value, servers=servers)
    got_get_kv: str | None = await admin.name_servers.get_kv(namespace, key)
    print(got_get_kv)
    await admin.name_servers.delete_kv(namespace, key, servers=servers)
    got_list_kv: dict[str, str] = await admin.name_servers.list_kv(namespace)
    print(got_list_kv)
    got_config: dict[str, dict[str, str]] = await admin.name_servers.config(servers=servers)
    print(got_config)
    await admin.name_servers.update_config(properties, servers=servers)
    got_wipe_write_perm: dict[str, int] = await admin.name_servers.wipe_write_perm(broker_name, servers=servers)
    print(got_wipe_write_perm)
    got_add_write_perm: dict[str, int] = await admin.name_servers.add_write_perm(broker_name, servers=servers)
    print(got_add_write_perm)


async def async_offsets(
    admin: aio.Admin,
    topic: str,
    queue: api.MessageQueue,
    timestamp_ms: int,
    boundary: str,
    group: str,
    offset: int,
    address: str,
    force: bool,
    cluster: str | None,
    broker: str,
    queue_id: int,
    source_group: str,
    target_group: str,
    client_address: str | None,
) -> None:
    got_queues: list[api.MessageQueue] = await admin.offsets.queues(topic)
    print(got_queues)
    got_max: int = await admin.offsets.max(queue)
    print(got_max)
    got_min: int = await admin.offsets.min(queue)
    print(got_min)
    got_search: int = await admin.offsets.search(queue, timestamp_ms, boundary=boundary)
    print(got_search)
    got_earliest_store_time: int = await admin.offsets.earliest_store_time(queue)
    print(got_earliest_store_time)
    got_committed: int | None = await admin.offsets.committed(group, queue)
    print(got_committed)
    await admin.offsets.commit(group, queue, offset)
    got_all_committed: ConsumerOffsetSerializeWrapper = await admin.offsets.all_committed(address)
    print(got_all_committed)
    got_reset_by_time: dict[api.MessageQueue, int] = await admin.offsets.reset_by_time(
        group, topic, timestamp_ms, force=force, cluster=cluster
    )
    print(got_reset_by_time)
    got_queue_at: api.MessageQueue = await admin.offsets.queue_at(topic, broker, queue_id)
    print(got_queue_at)
    got_reset_queue: int = await admin.offsets.reset_queue(group, queue, offset)
    print(got_reset_queue)
    got_clone: dict[api.MessageQueue, int] = await admin.offsets.clone(source_group, target_group, topic)
    print(got_clone)
    got_of_members: dict[str, dict[api.MessageQueue, int]] = await admin.offsets.of_members(
        group, topic, client_address=client_address
    )
    print(got_of_members)


async def async_operations(
    admin: aio.Admin,
    address: str,
    topic: str,
    queue_id: int | None,
    before_ms: int | None,
    before_offset: int | None,
    dry_run: bool,
) -> None:
    got_why_slow: dict[str, Any] = await admin.operations.why_slow(address)
    print(got_why_slow)
    got_purge_topic: dict[str, Any] = await admin.operations.purge_topic(
        address, topic, queue_id=queue_id, before_ms=before_ms, before_offset=before_offset, dry_run=dry_run
    )
    print(got_purge_topic)


async def async_static_topics(
    admin: aio.Admin,
    topic: str,
    queues: int,
    broker_names: Iterable[str],
    force: bool,
    masters: dict[str, str],
) -> None:
    got_create: Plan = await admin.static_topics.create(topic, queues, broker_names, force=force)
    print(got_create)
    got_remap: Plan = await admin.static_topics.remap(topic, broker_names, force=force)
    print(got_remap)
    got_parts: dict[str, BrokerPart] = await admin.static_topics.parts(topic, masters)
    print(got_parts)


async def async_timers(
    admin: aio.Admin,
    address: str,
    begin_ms: int | None,
    end_ms: int | None,
    topic: str,
    key: str,
) -> None:
    async for item_pages in admin.timers.pages(address, begin_ms=begin_ms, end_ms=end_ms, topic=topic):
        seen_pages: dict[str, Any] = item_pages
        print(seen_pages)
    got_inspect: dict[str, Any] = await admin.timers.inspect(address, key, topic=topic)
    print(got_inspect)
    await admin.timers.cancel(address, key, topic=topic)


async def async_topics(
    admin: aio.Admin,
    address: str,
    config: TopicConfig,
    cluster: str,
    configs: list[TopicConfig],
    topic: str,
    follows_master: bool,
    cluster_or_none: str | None,
    via: str | None,
    group: str,
    servers: Sequence[str] | None,
) -> None:
    await admin.topics.create(address, config)
    got_create_in_cluster: list[str] = await admin.topics.create_in_cluster(cluster, config)
    print(got_create_in_cluster)
    await admin.topics.create_list(address, configs)
    got_delete: str = await admin.topics.delete(topic, cluster)
    print(got_delete)
    got_parts_away: str = await admin.topics.parts_away(topic)
    print(got_parts_away)
    got_delete_alone: list[str] = await admin.topics.delete_alone(address, topic)
    print(got_delete_alone)
    await admin.topics.forget_order(topic)
    await admin.topics.delete_in_broker(address, topic, follows_master=follows_master)
    await admin.topics.delete_in_name_servers(topic, cluster=cluster_or_none, servers=servers)
    got_config: TopicConfigAndQueueMapping = await admin.topics.config(address, topic)
    print(got_config)
    got_all_configs: TopicConfigAndMappingSerializeWrapper = await admin.topics.all_configs(address)
    print(got_all_configs)
    got_names: list[str] = await admin.topics.names()
    print(got_names)
    got_names_of_cluster: list[str] = await admin.topics.names_of_cluster(cluster)
    print(got_names_of_cluster)
    got_system_names: list[str] = await admin.topics.system_names(address)
    print(got_system_names)
    got_route: TopicRouteData = await admin.topics.route(topic)
    print(got_route)
    got_clusters: list[str] = await admin.topics.clusters(topic)
    print(got_clusters)
    got_stats: TopicStatsTable = await admin.topics.stats(topic, via=via)
    print(got_stats)
    got_consumed_by: list[str] = await admin.topics.consumed_by(topic)
    print(got_consumed_by)
    got_consumed_by_group: list[str] = await admin.topics.consumed_by_group(group)
    print(got_consumed_by_group)


async def async_traces(
    admin: aio.Admin,
    msg_id: str,
    trace_topic: str,
    max_num: int,
    begin_ms: int,
    end_ms: int,
) -> None:
    got_of_message: list[TraceView] = await admin.traces.of_message(
        msg_id, trace_topic=trace_topic, max_num=max_num, begin_ms=begin_ms, end_ms=end_ms
    )
    print(got_of_message)


async def async_transactions(
    admin: aio.Admin,
    address: str,
    limit: int,
    transaction: str,
) -> None:
    got_open: list[api.MessageExt] = await admin.transactions.open(address, limit=limit)
    print(got_open)
    got_history: TransactionHistory = await admin.transactions.history(transaction)
    print(got_history)
    got_resume: str = await admin.transactions.resume(transaction)
    print(got_resume)
