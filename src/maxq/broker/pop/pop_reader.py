"""PopReader: gives a group messages of a topic, and notes what it gave.

Queues are read one after the other, beginning anywhere, until there is enough: those of the topic, and before or
behind them those of the group's retry topic. All of a request is done in one turn of the loop, so two requests never
read the same queue at the same time.

Source:
    broker/processor/PopMessageProcessor.java (popMsgFromTopic, popMsgFromQueue, getPopOffset).
"""

import logging
from dataclasses import field
from typing import Final, NamedTuple

from maxq.broker.bundles import Environment, Messages, Tables
from maxq.broker.pop.check_point_buffer import Begun, CheckPointBuffer
from maxq.broker.pop.order_service import OrderService
from maxq.broker.pop.pop_journal import NOT_NOTED
from maxq.broker.tables.attributes import BATCH_CQ, MESSAGE_TYPE, QUEUE_TYPE
from maxq.broker.tables.topic.topic_validator import RETRY_PREFIX, is_lmq, is_retry_topic
from maxq.lazy_dataclass import dataclass
from maxq.protocol.body.pop import PopCheckPoint
from maxq.protocol.body.subscription import SubscriptionData, SubscriptionGroupConfig
from maxq.protocol.body.topic_config import PERM_READ, PERM_WRITE, TopicConfig
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import decode_record, encode_record
from maxq.protocol.message.pop_extra_info import (
    POP_ORDER_REVIVE_QUEUE,
    ExtraInfo,
    offsets_text,
    retry_mark,
    retry_topic_v1,
    retry_topic_v2,
)
from maxq.protocol.message.record_layout import MIN_RECORD_SIZE, physical_offset_of, queue_offset_of, size_of
from maxq.store.queue.property_filter import EXAMINE_NS, PropertyFilter
from maxq.store.store_results import GetMessageResult, GetMessageStatus

log = logging.getLogger(__name__)

INIT_MIN: Final = 0
INIT_MAX: Final = 1
PRIORITY_TYPE: Final = "PRIORITY"
PRIORITY_FACTOR: Final = "priority.factor"

_MOVED: Final = (
    GetMessageStatus.OFFSET_TOO_SMALL,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY,
    GetMessageStatus.OFFSET_FOUND_NULL,
)
_NOTHING_FOR_IT: Final = (
    GetMessageStatus.NO_MATCHED_MESSAGE,
    GetMessageStatus.OFFSET_FOUND_NULL,
    GetMessageStatus.MESSAGE_WAS_REMOVING,
    GetMessageStatus.NO_MATCHED_LOGIC_QUEUE,
)


class PopAsk(NamedTuple):
    """A request that passed the checks. Times are in ms; queue_id -1: any queue."""

    remote: str
    group: SubscriptionGroupConfig
    topic: TopicConfig
    queue_id: int
    max_msg_nums: int
    invisible_time: int
    init_mode: int
    order: bool
    attempt_id: str | None
    subscription: SubscriptionData | None
    wanted: PropertyFilter | None


@dataclass(slots=True)
class PopFound:
    """What one pop request gets.

    Attributes:
        count: messages; a batch of a BatchCQ topic is one.
        rest_num: messages that are left for the group in the queues that were looked at.
        passed: messages that the filter rejected: the next pop goes on behind them.
        cold: results whose bytes are not in memory: bring them in before they are sent.
        unread: nothing was read of a queue, because its messages are not in memory.
        was_read: the disk was read for this pop.
        begun: where the group has begun, or went on because it was told to, in queues of which that is not noted yet.
        end_offset: physical offset behind what was noted of it; NOT_NOTED: it was not, so nobody may be given this.
    """

    pop_time: int
    revive_qid: int
    buffers: list[memoryview] = field(default_factory=list)
    count: int = 0
    rest_num: int = 0
    passed: int = 0
    start_offset_info: list[str] = field(default_factory=list)
    msg_offset_info: list[str] = field(default_factory=list)
    order_count_info: list[str] = field(default_factory=list)
    points: list[tuple[PopCheckPoint, int, int]] = field(default_factory=list)
    cold: list[GetMessageResult] = field(default_factory=list)
    unread: GetMessageResult | None = None
    was_read: bool = False
    begun: list[Begun] = field(default_factory=list)
    end_offset: int = 0

    def noted(self, end_offset: int) -> None:
        """Note that the journal has the record of these messages, up to `end_offset`, or NOT_NOTED."""
        self.end_offset = NOT_NOTED if NOT_NOTED in (end_offset, self.end_offset) else max(end_offset, self.end_offset)


class PopReader:
    """Reads messages for pops of one broker.

    Attributes:
        orders: what groups that consume in order have, and must not be given yet.
    """

    def __init__(
        self, env: Environment, tables: Tables, messages: Messages, buffer: CheckPointBuffer, orders: OrderService
    ) -> None:
        self._settings = env.settings
        self._store = messages.store
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._buffer = buffer
        self.orders = orders
        self._stats = env.stats
        self._clock = env.clock
        self._rng = env.rng
        self._own = env.own
        self._turn = 0
        self._began_ns = 0  # when the current read began, in monotonic ns

    def read(self, ask: PopAsk, *, may_wait: bool, was_read: bool = False) -> PopFound:
        """Read the available messages for the group. With `may_wait` the call does not wait for messages that are not
        in memory.

        Args:
            was_read: the disk was read for this pop: what it takes counts as taken from there.

        Raises:
            OSError: the device cannot read what the call waited for.
        """
        revive_qid = POP_ORDER_REVIVE_QUEUE
        if not ask.order:
            revive_qid = self._turn % self._settings.broker.revive_queue_num
            self._turn += 1
        found = PopFound(self._clock.wall_ms(), revive_qid, was_read=was_read)
        self._began_ns = self._clock.monotonic_ns()
        try:
            self._read_all(ask, found, may_wait=may_wait)
        finally:
            self._note_begun(found)
        if found.points:
            found.noted(self._buffer.add(found.points))
        return found

    def _read_all(self, ask: PopAsk, found: PopFound, *, may_wait: bool) -> None:
        chance = self._rng.below(100)
        by_priority = self._by_priority(ask)
        retry_first = not ask.order and chance < self._retry_chance(by_priority)
        retry = None if ask.order else self._retry_topic(ask, chance)
        if retry is not None and retry_first:
            self._read_topic(ask, retry, found, chance, may_wait=may_wait)
        if ask.queue_id < 0:
            self._read_topic(ask, ask.topic, found, 0 if by_priority else chance, may_wait=may_wait)
        else:
            self._read_queue(ask, ask.topic, ask.queue_id, found, may_wait)
        if retry is not None and not retry_first and found.count < ask.max_msg_nums:
            self._read_topic(ask, retry, found, chance, may_wait=may_wait)

    def _note_begun(self, found: PopFound) -> None:
        """Note where the group has begun: before the journal tells what it was given there."""
        begun, found.begun = found.begun, []
        self._buffer.begin_in(begun)

    def _by_priority(self, ask: PopAsk) -> bool:
        """Return whether queues with higher numbers are read first this time."""
        if ask.order or ask.topic.attributes.get(MESSAGE_TYPE) != PRIORITY_TYPE:
            return False
        factor = ask.group.attributes.get(PRIORITY_FACTOR, "100")
        return self._rng.below(100) < (int(factor) if factor.isdigit() else 100)

    def _retry_chance(self, by_priority: bool) -> int:
        broker = self._settings.broker
        return broker.pop_from_retry_probability_for_priority if by_priority else broker.pop_from_retry_probability

    def _retry_topic(self, ask: PopAsk, chance: int) -> TopicConfig | None:
        """Return the retry topic that this request reads. With enableRetryTopicV2 every second request reads the one of
        the older spelling, unless that is another group's."""
        broker = self._settings.broker
        topic, group = ask.topic.topic_name, ask.group.group_name
        name, newer = retry_topic_v1(topic, group), retry_topic_v2(topic, group)
        may_be_newer = broker.enable_retry_topic_v2
        if self._groups.has_retry_topic(name):
            name, may_be_newer = newer, False
        elif may_be_newer and not (broker.retrieve_message_from_pop_retry_topic_v1 and chance % 2 == 0):
            name = newer
        config = self._known_or_left(name, ask.topic)
        if config is None and may_be_newer:
            config = self._known_or_left(newer, ask.topic)
        if config is None:
            return None
        if broker.use_separate_retry_queue and self._own.is_master:
            # a message of the log is copied with its queue id, so the queues must exist
            self._topics.widen(config, ask.topic.read_queue_nums)
        return self._topics.select_topic_config(config.topic_name)

    def _known_or_left(self, name: str, topic: TopicConfig) -> TopicConfig | None:
        """Return this retry topic of `topic`. One that is in the log but not in the table was made by a master that
        died before its slaves fetched its topics."""
        config = self._topics.select_topic_config(name)
        state = None if config is not None else self._store.topics.get(name.encode())
        if state is None:
            return config
        last = max((queue for queue in list(state.queues) if self._store.max_offset(name, queue) > 0), default=-1)
        if last < 0:
            return None
        queues = topic.read_queue_nums if self._settings.broker.use_separate_retry_queue else 1
        self._topics.create_topic_in_send_message_back_method(name, max(queues, last + 1), PERM_READ | PERM_WRITE, 0)
        return self._topics.select_topic_config(name)

    def _read_topic(self, ask: PopAsk, topic: TopicConfig, found: PopFound, start: int, *, may_wait: bool) -> None:
        count = topic.read_queue_nums
        downwards = self._settings.broker.priority_order_asc
        for step in range(count):
            if found.count >= ask.max_msg_nums and found.rest_num:
                return  # enough messages, and it is known that there are more
            self._read_queue(ask, topic, (start + (count - 1 - step if downwards else step)) % count, found, may_wait)

    # --- one queue ---------------------------------------------------------------------------------------------------

    def _read_queue(self, ask: PopAsk, config: TopicConfig, queue_id: int, found: PopFound, may_wait: bool) -> None:
        topic, group = config.topic_name, ask.group.group_name
        broker = self._settings.broker
        max_offset = self._store.max_offset(topic, queue_id)
        if broker.enable_pop_message_threshold:
            in_flight = self._buffer.in_flight.get((topic, group, queue_id), 0)
            if in_flight > broker.pop_inflight_message_threshold:
                log.warning("%s@%s queue %d: %d messages are not acknowledged", topic, group, queue_id, in_flight)
                offset = self.offset(topic, group, queue_id, ask.init_mode)
                found.rest_num += max(0, max_offset - offset)
                return
        offset = self._begin(ask, topic, queue_id, found)
        if ask.order and self.orders.is_blocked(topic, group, queue_id, ask.attempt_id, ask.invisible_time):
            return
        if found.count >= ask.max_msg_nums or found.unread is not None or self._is_late(ask, found):
            found.rest_num += max(0, max_offset - offset)
            return
        if offset == max_offset and max_offset > 0:
            return
        result = self._get(ask, topic, queue_id, offset, found, may_wait)
        if result.status is GetMessageStatus.OFFSET_OVERFLOW_BADLY and not self._own.is_master:
            return  # another slave has delivered messages that this slave does not have
        if result.status in _MOVED:
            log.warning("%s@%s queue %d: offset %d is wrong, going on at %d", topic, group, queue_id, offset,
                        result.next_begin_offset)  # fmt: skip
            offset = result.next_begin_offset
            self._offsets.commit_offset(ask.remote, group, topic, queue_id, offset)
            result = self._get(ask, topic, queue_id, offset, found, may_wait)
        if result.must_read_first:
            found.unread = result
            return
        if result.buffers:
            self._take(ask, config, queue_id, offset, result, found)
        elif result.status in _NOTHING_FOR_IT and result.next_begin_offset > offset:
            if ask.order:
                self._offsets.commit_offset(ask.remote, group, topic, queue_id, result.next_begin_offset)
            else:
                self._buffer.move_cursor((topic, group, queue_id), result.next_begin_offset)
            found.passed += result.next_begin_offset - offset
        found.rest_num += max(0, result.max_offset - result.next_begin_offset)

    def _is_late(self, ask: PopAsk, found: PopFound) -> bool:
        """Return whether the filter has examined messages for so long that other queues must wait for the next pop."""
        if ask.wanted is None or not (found.passed or found.count):
            return False
        return self._clock.monotonic_ns() - self._began_ns > EXAMINE_NS

    def _get(
        self, ask: PopAsk, topic: str, queue_id: int, offset: int, found: PopFound, may_wait: bool
    ) -> GetMessageResult:
        most = ask.max_msg_nums - found.count
        wanted, subscription = ask.wanted, ask.subscription
        if topic.startswith(RETRY_PREFIX) and not self._settings.broker.filter_support_retry:
            wanted = None  # the filter was applied before the message came to the retry topic
        return self._store.get_message(
            ask.group.group_name, topic, queue_id, offset, most, subscription, wanted=wanted, may_wait=may_wait
        )

    def _take(
        self, ask: PopAsk, config: TopicConfig, queue_id: int, offset: int, result: GetMessageResult, found: PopFound
    ) -> None:
        topic, group = config.topic_name, ask.group.group_name
        offsets = self._offsets_of(config, queue_id, offset, result)
        # an inner batch is delivered as a whole, so its first messages may be below the group's offset
        start = min(offset, offsets[0])
        if ask.order:
            self._note_begun(found)
            counts, end_offset = self.orders.delivered(
                topic, group, queue_id,
                attempt_id=ask.attempt_id, pop_time=found.pop_time, invisible_time=ask.invisible_time, offsets=offsets,
                committed=offset, remote=ask.remote,
            )  # fmt: skip
            found.order_count_info += counts
            found.noted(end_offset)
        else:
            point = PopCheckPoint(
                topic, group, queue_id, start, found.pop_time, ask.invisible_time, self._own.broker_name,
                [at - start for at in offsets], len(offsets),
            )  # fmt: skip
            if self._buffer.is_known(point):
                return
            found.points.append((point, found.revive_qid, result.next_begin_offset))
        mark = retry_mark(topic)
        found.start_offset_info.append(f"{mark} {queue_id} {start}")
        found.msg_offset_info.append(f"{mark} {queue_id} {offsets_text(offsets)}")
        found.count += len(offsets)
        if result.cold:
            found.cold.append(result)
        counter = self._stats.get_counter(group, topic, queue_id)
        counter.add_popped(result.message_count, result.total_bytes, found.was_read or bool(result.cold))
        counter.fall_behind_bytes = max(0, self._store.max_physical_offset - result.last_physical_offset)
        if is_retry_topic(topic) and not self._settings.broker.pop_response_return_actual_retry_topic:
            found.buffers += self._under_own_topic(ask, topic, start, result, found)
        else:
            found.buffers += result.buffers

    def _offsets_of(self, config: TopicConfig, queue_id: int, offset: int, result: GetMessageResult) -> list[int]:
        """Return the queue offset of each message that was read."""
        is_batch = config.attributes.get(QUEUE_TYPE) == BATCH_CQ
        if result.message_count == result.next_begin_offset - offset and not is_batch:
            return list(range(offset, result.next_begin_offset))
        records = [record for view in result.buffers for record in _records(view)]
        if not is_lmq(config.topic_name):
            return [queue_offset_of(record) for record in records]
        units = self._store.queue_units(config.topic_name, queue_id, offset, result.next_begin_offset - offset)
        places = {physical: offset + at for at, (physical, _, _) in enumerate(units)}
        return [places[physical_offset_of(record)] for record in records]

    def _under_own_topic(
        self, ask: PopAsk, topic: str, offset: int, result: GetMessageResult, found: PopFound
    ) -> list[memoryview]:
        """Return records of a retry topic under their original topic, each with its receipt handle, which names its
        real place."""
        encoded = []
        for view in result.buffers:
            for record in _records(view):
                message = decode_record(record)
                handle = ExtraInfo(
                    offset, found.pop_time, ask.invisible_time, found.revive_qid, retry_mark(topic),
                    self._own.broker_name, message.queue_id, message.queue_offset,
                )  # fmt: skip
                message.properties.setdefault(const.PROPERTY_POP_CK, str(handle))
                message.topic, message.version = ask.topic.topic_name, 1
                encoded.append(memoryview(encode_record(message)))
        return encoded

    # --- where a queue goes on ---------------------------------------------------------------------------------------

    def _begin(self, ask: PopAsk, topic: str, queue_id: int, found: PopFound) -> int:
        group = ask.group.group_name
        reset = self._offsets.query_then_erase_reset_offset(topic, group, queue_id)
        if reset is not None:
            self.orders.clear_block(topic, group, queue_id)
            self._buffer.set_cursor((topic, group, queue_id), reset)
            found.begun.append(Begun((topic, group, queue_id), reset, is_set=True))
            return reset
        if self._offsets.query_offset(group, topic, queue_id) < 0:
            first = self._first_offset(topic, queue_id, ask.init_mode)
            self._offsets.commit_offset("getPopOffset", group, topic, queue_id, first)
            at_end = ask.init_mode != INIT_MIN and not is_retry_topic(topic)
            found.begun.append(Begun((topic, group, queue_id), first, at_end=at_end))
        return self.offset(topic, group, queue_id, ask.init_mode)

    def offset(self, topic: str, group: str, queue_id: int, init_mode: int = INIT_MIN) -> int:
        """Returns the queue offset at which the next pop begins."""
        committed = self._offsets.query_offset(group, topic, queue_id)
        if committed < 0:
            committed = self._first_offset(topic, queue_id, init_mode)
        return max(committed, self._buffer.latest_offset(topic, group, queue_id))

    def _first_offset(self, topic: str, queue_id: int, init_mode: int) -> int:
        """Returns the queue offset at which a new group begins."""
        low = max(0, self._store.min_offset(topic, queue_id))
        if init_mode == INIT_MIN or topic.startswith(RETRY_PREFIX):
            return low
        in_memory = self._settings.broker.init_pop_offset_by_check_msg_in_mem
        if in_memory and low <= 0 and self._store.reader.is_in_memory(topic, queue_id, 0):
            return 0
        return max(0, self._store.max_offset(topic, queue_id) - 1)


def _records(view: memoryview) -> list[memoryview]:
    """Split a buffer into its records."""
    records, position = [], 0
    while position < len(view):
        size = size_of(view, position)
        assert size >= MIN_RECORD_SIZE, f"the store gives whole records, and not one of {size} bytes"
        records.append(view[position : position + size])
        position += size
    return records
