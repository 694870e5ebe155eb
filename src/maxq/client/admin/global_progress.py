"""Offsets of the global queues of a static topic, from those of the physical queues behind them.

Source:
    tools/admin/MQAdminUtils.java (convertPhysicalTopicStats, convertPhysicalConsumeStats), which shows a group's
    physical offset beside the broker's global one; here both are global.
"""

from collections.abc import Iterable, Mapping, Sequence

from maxq.client.admin.context import AdminContext, answering_brokers
from maxq.client.instance.client_api import fields
from maxq.codes import RequestCode
from maxq.errors import NoRouteError
from maxq.protocol.body.offsets import OffsetWrapper, TopicOffset
from maxq.protocol.body.static_topic import (
    GLOBAL_SCOPE,
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
    decided,
    mock_broker_name,
)
from maxq.protocol.body.topic_config import TopicConfigAndQueueMapping
from maxq.protocol.message.message_queue import MessageQueue

Chains = Mapping[MessageQueue, Sequence[LogicQueueMappingItem]]
Progress = dict[MessageQueue, OffsetWrapper]


async def global_chains(context: AdminContext, topic: str) -> Chains:
    """Return the chains of a topic's global queues, as its brokers have them; empty if it is not static or has no
    route."""
    try:
        route = await context.route(topic)
    except NoRouteError:
        return {}
    if not route.topic_queue_mapping_by_broker:
        return {}
    mappings = []
    for _, address in answering_brokers(route):
        response = await context.api.call(address, RequestCode.GET_TOPIC_CONFIG, fields(topic=topic, lo=True))
        detail = TopicConfigAndQueueMapping.decode(response.body_bytes).mapping_detail
        if detail is not None:
            mappings.append(TopicQueueMappingDetail.from_json(detail))
    return chains_of(topic, mappings)


def chains_of(topic: str, mappings: Iterable[TopicQueueMappingDetail]) -> Chains:
    """Return the chain of each global queue according to its leader; if several brokers claim to lead, according to the
    newest."""
    found: dict[MessageQueue, tuple[int, Sequence[LogicQueueMappingItem]]] = {}
    for mapping in mappings:
        for global_id, items in mapping.hosted_queues.items():
            if not items or items[-1].bname != mapping.bname:
                continue
            queue = MessageQueue(topic, mock_broker_name(mapping.scope or GLOBAL_SCOPE), global_id)
            if queue not in found or found[queue][0] < mapping.epoch:
                found[queue] = mapping.epoch, decided(items)
    return {queue: items for queue, (_, items) in found.items() if items}


def global_offsets(chains: Chains, physical: Mapping[MessageQueue, TopicOffset]) -> dict[MessageQueue, TopicOffset]:
    """Return the first and last offset of each global queue whose first and last part are known."""
    found = {}
    for queue, items in chains.items():
        first, last = (physical.get(place(queue.topic, item)) for item in (items[0], items[-1]))
        if first is not None and last is not None:
            low, high = items[0].to_logic_within(first.min_offset), items[-1].to_logic(last.max_offset)
            found[queue] = TopicOffset(low, high, last.last_update_timestamp)
    return found


def global_progress(chains: Chains, physical: Progress) -> Progress:
    """Return a group's position in each global queue, in the newest part in which it has an offset."""
    found = {}
    for queue, items in chains.items():
        end = physical.get(place(queue.topic, items[-1]))
        if end is None:
            continue
        item, at = items[0], OffsetWrapper(consumer_offset=items[0].start_offset)  # nothing consumed
        for part in reversed(items):
            offsets = physical.get(place(queue.topic, part))
            if offsets is not None and offsets.consumer_offset >= 0:
                item, at = part, offsets
                break
        consumer = item.to_logic_within(at.consumer_offset)
        pulled = max(item.to_logic_within(at.pull_offset), consumer)
        found[queue] = OffsetWrapper(items[-1].to_logic(end.broker_offset), consumer, pulled, at.last_timestamp)
    return found


def place(topic: str, item: LogicQueueMappingItem) -> MessageQueue:
    """Return the physical queue that holds one part of a static topic's global queue."""
    return MessageQueue(topic, item.bname, item.queue_id)
