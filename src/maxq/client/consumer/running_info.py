"""What a consumer tells operators about itself (GET_CONSUMER_RUNNING_INFO).

Source: apache/rocketmq remoting/protocol/body/ConsumerRunningInfo.java, client/impl/consumer/*Impl.consumerRunningInfo.
"""

from collections.abc import Iterable, Mapping

from maxq.client.client_config import ConsumerConfig
from maxq.client.consumer.offset_store import OffsetStore
from maxq.client.consumer.process_queue import ProcessQueue
from maxq.client.instance.mq_client import MQClientInstance
from maxq.codes import CURRENT_VERSION
from maxq.protocol.body.consumer_info import ConsumerRunningInfo
from maxq.protocol.body.subscription import SubscriptionData
from maxq.protocol.enums import ConsumeType
from maxq.protocol.message.message_queue import MessageQueue


def consumer_running_info(
    instance: MQClientInstance,
    config: ConsumerConfig,
    group: str,
    consume_type: ConsumeType,
    subscriptions: Iterable[SubscriptionData],
    process_queues: Mapping[MessageQueue, ProcessQueue],
    offsets: OffsetStore,
) -> ConsumerRunningInfo:
    """State that push and lite pull consumers have in common; `group` is the name on the wire."""
    clock = instance.seams.clock
    to_wall_ms = clock.wall_ms() - clock.monotonic_ms()
    return ConsumerRunningInfo(
        properties={
            ConsumerRunningInfo.PROP_NAMESERVER_ADDR: config.namesrv_addr,
            ConsumerRunningInfo.PROP_CONSUME_TYPE: consume_type.name,
            ConsumerRunningInfo.PROP_CLIENT_VERSION: CURRENT_VERSION.name,
            ConsumerRunningInfo.PROP_CONSUMER_START_TIMESTAMP: str(instance.started_at_ms),
            "consumerGroup": group,
            "messageModel": config.message_model.name,
            "consumeFromWhere": config.consume_from_where.name,
            "allocateMessageQueueStrategy": config.allocate_strategy.name,
            "pullBatchSize": str(config.pull_batch_size),
        },
        subscription_set=list(subscriptions),
        mq_table={
            queue: process_queue.info(offsets.in_memory(queue), to_wall_ms)
            for queue, process_queue in process_queues.items()
        },
    )
