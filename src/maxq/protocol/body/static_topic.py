"""Static topics: queues with global ids, each a chain of physical queues on one broker after another.

An item says that messages from `logic_offset` on (of the global queue) are those from `start_offset` on of a physical
queue. All items but the last have an end; the last one's broker leads the queue. `logic_offset` -1: the item is new and
its place in the chain is not decided yet.

Source:
    remoting/protocol/statictopic/{LogicQueueMappingItem,TopicQueueMappingDetail,TopicQueueMappingUtils}.java.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final

from maxq.protocol.body.topic_config import MAX_QUEUES, TopicQueueMappingInfo
from maxq.protocol.json.json_body import JsonBody, json_body
from maxq.protocol.message.message_queue import MessageQueue

GLOBAL_SCOPE: Final = "__global__"
MOCK_BROKER_PREFIX: Final = "__syslo__"
#: Broker name of a global queue that has no leader at present.
NO_BROKER: Final = "__syslo__none__"


@json_body
class LogicQueueMappingItem(JsonBody):
    """One physical queue of a global queue. Offsets are queue offsets; `end_offset` is excluded, -1: none yet.

    `time_of_start` is when the topic was made, in ms, the same in all items of a topic: it tells them from those of a
    topic of this name that was deleted. -1: not known. RocketMQ reserves it, writes -1, and keeps what is there.
    """

    gen: int = 0  # ascending along the chain
    queue_id: int = 0
    bname: str = ""
    logic_offset: int = 0
    start_offset: int = 0
    end_offset: int = -1
    time_of_start: int = -1
    time_of_end: int = -1

    @property
    def is_decided(self) -> bool:
        """Whether the logical offset at which this physical queue begins is known."""
        return self.logic_offset >= 0

    @property
    def has_end(self) -> bool:
        return self.end_offset >= self.start_offset

    @property
    def is_empty(self) -> bool:
        """Whether the queue moved on before this item took any message."""
        return self.end_offset == self.start_offset

    @property
    def max_logic_offset(self) -> int:
        """Global offset behind the last message that the item is known to hold."""
        return self.logic_offset + max(self.end_offset - self.start_offset, 0)

    def to_logic(self, physical: int) -> int:
        """Returns the global offset of a physical one."""
        return self.logic_offset + max(physical - self.start_offset, 0)

    def to_logic_within(self, physical: int) -> int:
        """Returns the global offset of a physical one, at most the item's end; -1 while its place is not decided."""
        if not self.is_decided:
            return -1
        return min(self.to_logic(physical), self.max_logic_offset) if self.end_offset >= 0 else self.to_logic(physical)

    def to_physical(self, logic: int) -> int:
        """Returns the physical offset of a global one."""
        return logic - self.logic_offset + self.start_offset


@json_body
class TopicQueueMappingDetail(TopicQueueMappingInfo):
    """One broker's part of a static topic: the chains of all global queues that it leads or once led."""

    hosted_queues: dict[int, list[LogicQueueMappingItem]] = field(default_factory=dict)

    @property
    def made_at(self) -> int:
        """Return when the topic was made, in ms; -1 if no item knows."""
        return max((item.time_of_start for items in self.hosted_queues.values() for item in items), default=-1)

    def info(self) -> TopicQueueMappingInfo:
        """Return the part that name servers and clients get: the queues that this broker leads."""
        leads = {
            global_id: items[-1].queue_id
            for global_id, items in self.hosted_queues.items()
            if items and items[-1].bname == self.bname
        }
        return TopicQueueMappingInfo(
            self.topic, self.scope or GLOBAL_SCOPE, self.total_queues, self.bname, self.epoch, self.dirty, leads
        )


def decided(items: Iterable[LogicQueueMappingItem]) -> list[LogicQueueMappingItem]:
    """Return the items whose position in the chain is known."""
    return [item for item in items if item.is_decided]


def item_at(items: Sequence[LogicQueueMappingItem], logic_offset: int) -> LogicQueueMappingItem | None:
    """Return the item that holds a global offset; the first one for an offset before all; None if no position is
    known."""
    known = decided(items)
    for item in reversed(known):
        if logic_offset >= item.logic_offset:
            return item
    return known[0] if known else None


def item_after(items: Sequence[LogicQueueMappingItem], current: LogicQueueMappingItem) -> LogicQueueMappingItem | None:
    """Return the next item of the chain, if its position is known."""
    for item in items:
        if item.gen > current.gen:
            return item if item.is_decided else None
    return None


def mock_broker_name(scope: str) -> str:
    """Return the broker name that clients give to global queues."""
    return MOCK_BROKER_PREFIX + (scope[2:] if scope == GLOBAL_SCOPE else scope)


def is_mock_broker(name: str) -> bool:
    """Returns whether this is the broker name that stands for global queues."""
    return name.startswith(MOCK_BROKER_PREFIX)


def global_queues(topic: str, mappings: Mapping[str, TopicQueueMappingInfo]) -> dict[MessageQueue, str]:
    """Return the global queues of a topic from a route, and the brokers that lead them; NO_BROKER where none does. A
    mapping with an impossible number of queues is passed over."""
    found: dict[MessageQueue, tuple[int, str]] = {}
    totals: dict[str, tuple[int, int]] = {}  # scope → (epoch, number of queues)
    for info in mappings.values():
        if info.total_queues > MAX_QUEUES:
            continue
        scope = info.scope or GLOBAL_SCOPE
        totals[scope] = max(totals.get(scope, (-1, 0)), (info.epoch, info.total_queues))
        for global_id in info.curr_id_map or {}:
            queue = MessageQueue(topic, mock_broker_name(scope), global_id)
            found[queue] = max(found.get(queue, (-1, "")), (info.epoch, info.bname or ""))
    return {
        queue: found[queue][1] if queue in found else NO_BROKER
        for scope, (_, total) in totals.items()
        for queue in (MessageQueue(topic, mock_broker_name(scope), number) for number in range(total))
    }
