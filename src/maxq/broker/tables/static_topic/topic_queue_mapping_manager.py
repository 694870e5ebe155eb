"""TopicQueueMappingManager: this broker's parts of static topics (topicQueueMapping.json).

Source:
    broker/topic/TopicQueueMappingManager.java; remoting/protocol/statictopic/TopicQueueMappingUtils.java.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import PurePath
from typing import Any, Final, NamedTuple

from maxq.broker.tables.persistent_manager import PersistentManager, next_version, object_member
from maxq.codes import ResponseCode
from maxq.errors import RequestRefusedError
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.body.static_topic import LogicQueueMappingItem, TopicQueueMappingDetail
from maxq.protocol.body.topic_config import TopicQueueMappingInfo
from maxq.runtime.interfaces import Clock, Disk

log = logging.getLogger(__name__)

FILE_NAME: Final = "topicQueueMapping.json"


class QueueHome(NamedTuple):
    """Where the messages of a physical queue belong.

    Attributes:
        queue_id: the physical queue of this broker; None: another broker leads the global queue.
        global_id: number of the global queue; None: not known, or an ordinary topic.
    """

    queue_id: int | None
    global_id: int | None


class TopicQueueMappingManager(PersistentManager):
    """Mappings by topic. A mapping in the table is never changed, only replaced."""

    def __init__(self, disk: Disk, path: PurePath, *, broker_name: str, clock: Clock) -> None:
        super().__init__(disk, path)
        self._broker_name = broker_name
        self._clock = clock
        self._listeners: list[Callable[[], None]] = []
        self._homes: dict[str, tuple[TopicQueueMappingDetail, dict[int, QueueHome]]] = {}
        self.data_version = DataVersion(timestamp=clock.wall_ms())
        self.table: dict[str, TopicQueueMappingDetail] = {}

    def add_change_listener(self, listener: Callable[[], None]) -> None:
        """Add a listener that is called after the table has changed."""
        self._listeners.append(listener)

    def is_static(self, topic: str) -> bool:
        return topic in self.table

    def infos(self, topics: Iterable[str]) -> dict[str, TopicQueueMappingInfo]:
        """Return the mappings of these topics in the form of a registration."""
        return {topic: self.table[topic].info() for topic in topics if topic in self.table}

    def home_of(self, topic: str, queue_id: int) -> QueueHome:
        """Return where messages belong that were stored for a physical queue of this broker and are delivered only now:
        its global queue, and its readers, may have moved meanwhile. For an ordinary topic that is the queue
        itself."""
        detail = self.table.get(topic)
        if detail is None:
            return QueueHome(queue_id, None)
        known = self._homes.get(topic)
        if known is None or known[0] is not detail:
            known = self._homes[topic] = detail, _homes(detail)
        # nothing is known of a chain that was forgotten, so any queue that this broker leads will do
        led = detail.info().curr_id_map or {}
        return known[1].get(queue_id) or QueueHome(next((led[number] for number in sorted(led)), None), None)

    # --- change -------------------------------------------------------------------------------------------------------

    def update(self, new: TopicQueueMappingDetail, *, force: bool) -> None:
        """Apply an administrator's mapping.

        Args:
            force: take it whatever was there before; chains it does not name stay.

        Raises:
            RequestRefusedError: it is of another broker, contradicts itself, or what is known.
        """
        topic = new.topic or ""
        if new.bname != self._broker_name:
            raise _refusal(f"the mapping of {topic} is for broker {new.bname}, this is {self._broker_name}")
        for global_id, items in new.hosted_queues.items():
            check_chain(topic, global_id, items)
        old = self.table.get(topic)
        chains = dict(new.hosted_queues)
        if old is not None:
            if not force:
                _check_succession(old, new)
            chains = {**old.hosted_queues, **chains}
        self.table[topic] = TopicQueueMappingDetail(
            topic, new.scope, new.total_queues, new.bname, new.epoch, new.dirty, None, chains
        )
        log.info("static topic %s: %s, before: %s", topic, self.table[topic], old)
        self._changed()

    def replace_chains(self, old: TopicQueueMappingDetail, chains: Mapping[int, list[LogicQueueMappingItem]]) -> None:
        """Give a mapping of the table other chains; does nothing if it has changed since it was read."""
        topic = old.topic or ""
        if self.table.get(topic) is old:
            self.table[topic] = replace(old, hosted_queues=dict(chains))
            self._changed()

    def delete(self, topics: Iterable[str]) -> None:
        """Remove the mappings of these topics."""
        gone = [topic for topic in topics if self.table.pop(topic, None) is not None]
        if gone:
            log.info("mappings deleted: %s", gone)
            self._changed()

    def take_from_master(self, details: Mapping[str, Any], version: DataVersion) -> None:
        """Replace this table by the master's."""
        table = {topic: TopicQueueMappingDetail.from_json(detail) for topic, detail in details.items()}
        if table == self.table:
            return
        self.table = table
        self.data_version = version.copy()
        self.request_persist()
        self._tell()

    def _changed(self) -> None:
        self.data_version = next_version(self.data_version, self._clock.wall_ms())
        self.request_persist()
        self._tell()

    def _tell(self) -> None:
        for topic in self._homes.keys() - self.table.keys():
            del self._homes[topic]
        for listener in self._listeners:
            listener()

    # --- the file -----------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        return {
            "dataVersion": self.data_version.to_json(),
            "topicQueueMappingInfoMap": {topic: detail.to_json() for topic, detail in dict(self.table).items()},
        }

    def from_json(self, value: dict[str, Any]) -> None:
        for topic, detail in object_member(value, "topicQueueMappingInfoMap").items():
            self.table[topic] = TopicQueueMappingDetail.from_json(detail)
        if value.get("dataVersion") is not None:
            self.data_version = DataVersion.from_json(value["dataVersion"])


def _homes(detail: TopicQueueMappingDetail) -> dict[int, QueueHome]:
    """Return the homes of those physical queues of this broker that are, or were, part of a global queue."""
    homes: dict[int, QueueHome] = {}
    for global_id, items in detail.hosted_queues.items():
        leader = items[-1] if items else None
        for item in items:
            if leader is not None and item.bname == detail.bname:
                homes[item.queue_id] = QueueHome(leader.queue_id if leader.bname == detail.bname else None, global_id)
    return homes


def check_chain(topic: str, global_id: int, items: Sequence[LogicQueueMappingItem]) -> None:
    """Check that a chain is in order and without overlaps.

    Raises:
        RequestRefusedError: it is not; says where.
    """
    where = f"queue {global_id} of {topic}"
    for item in items:
        if item.start_offset < 0 or item.gen < 0 or item.queue_id < 0:
            raise _refusal(f"{where}: generation, queue id and start offset are not negative")
        if item.end_offset != -1 and item.end_offset < item.start_offset:
            raise _refusal(f"{where}: generation {item.gen} ends at {item.end_offset}, before its start")
    for item, following in pairwise(items):
        if not item.is_decided:
            raise _refusal(f"{where}: only the last item may have no logic offset, generation {item.gen} has none")
        if following.gen <= item.gen:
            raise _refusal(f"{where}: generation {following.gen} comes after {item.gen}")
        if following.is_decided and following.logic_offset <= max(item.logic_offset, item.max_logic_offset):
            raise _refusal(f"{where}: generation {following.gen} begins before {item.gen} has ended")


def _check_succession(old: TopicQueueMappingDetail, new: TopicQueueMappingDetail) -> None:
    if new.epoch < old.epoch:
        raise _refusal(f"Can't accept data with small epoch {new.epoch} < {old.epoch}")
    if new.scope != old.scope:
        raise _refusal(f"Can't accept data with unmatched scope {new.scope} != {old.scope}")
    if old.made_at != new.made_at and -1 not in (old.made_at, new.made_at):
        raise _refusal(
            f"broker {old.bname} has another topic {old.topic}, made at {old.made_at} and not at {new.made_at}: delete "
            "it there first"
        )
    same_epoch = new.epoch == old.epoch
    for global_id, before in old.hosted_queues.items():
        after = new.hosted_queues.get(global_id)
        if after is None:
            if same_epoch:
                raise _refusal("Cannot accept equal epoch with null data")
            continue
        _check_same_items(global_id, before, after)
        if same_epoch and before and after and _identity(before[-1]) != _identity(after[-1]):
            raise _refusal("The new leader is different but epoch equal")


def _check_same_items(
    global_id: int, before: Sequence[LogicQueueMappingItem], after: Sequence[LogicQueueMappingItem]
) -> None:
    if before and not after:
        raise _refusal("The new item list is null or empty")
    known = {item.gen: item for item in before}
    for item in after:
        old = known.get(item.gen)
        if old is None:
            continue
        if _identity(old) != _identity(item) or (old.is_decided and old.logic_offset != item.logic_offset):
            raise _refusal(f"queue {global_id}: generation {item.gen} was {old}, it cannot become {item}")


def _identity(item: LogicQueueMappingItem) -> tuple[int, str, int, int]:
    return item.gen, item.bname, item.queue_id, item.start_offset


def _refusal(remark: str) -> RequestRefusedError:
    return RequestRefusedError(ResponseCode.SYSTEM_ERROR, remark)
