"""CommitLog → ConsumeQueue, index, hooks (ReputMessageService, CommitLogDispatcherBuild*).

`DispatchService.run` is the only way into an index: the normal run gives it what was just appended, SYNC_FLUSH what a
group commit made durable, a slave what arrived, recovery what the queues lack. The compiled Dispatcher does the plain
records; what has a meaning beyond topic and queue id comes back here as `dispatch_uncommon`.
"""

import asyncio
import logging
import struct
from collections.abc import Callable

from maxq.lazy_dataclass import dataclass
from maxq.protocol.message import record_layout as layout
from maxq.protocol.message.message import MessageExt, decode_record
from maxq.protocol.message.message_const import (
    PROPERTY_CRC32,
    PROPERTY_INNER_MULTI_DISPATCH,
)
from maxq.protocol.message.message_sys_flag import TRANSACTION_MASK, MessageSysFlag, is_rolled_back
from maxq.runtime.refusals import Cause
from maxq.store.context.running_flags import INDEX_ERROR, LOGICS_ERROR
from maxq.store.context.store_context import StoreContext
from maxq.store.dispatch.dispatch_cy import Dispatcher
from maxq.store.dispatch.queue_offset_resolver import MOST_PLACES, QueueOffsetResolver
from maxq.store.dispatch.record_units import batch_unit, index_keys, light_places, tags_code
from maxq.store.files.disk_room import lacks_room
from maxq.store.index.index_service import IndexService
from maxq.store.log.commit_log import CommitLog
from maxq.store.log.deletions import DELETED_TOPIC, TABLES_TOPIC, Deletions, deleted_names
from maxq.store.log.tails_cy import QueueTail
from maxq.store.queue.batch_consume_queue import BatchConsumeQueue, BatchUnit
from maxq.store.queue.consume_queue import ConsumeQueue
from maxq.store.queue.consume_queue_ext import CqExtUnit, is_ext_address
from maxq.store.queue.consume_queue_store import (
    ConsumeQueueStore,
    is_folder_name,
    may_name_queues,
)
from maxq.store.queue.unit_scan_cy import DAMAGED_TAGS_CODE
from maxq.store.recovery.damage_names import DAMAGED_TOPIC, is_filler

log = logging.getLogger(__name__)

_TURN_NS = 5_000_000
_PIECE = 128 << 10  # bytes of log that are dispatched between two looks at the clock: 64,000 keys, 15 ms
_FILES_A_TURN = 8  # of new queues, which are made in one turn of the loop: each takes 0.2 ms, on a busy disk much more
_MOST_BEHIND = 4 << 20  # bytes of log that may wait for new files, and the readers with them
_ANY_NUMBER = 1 << 62

# of a record
_INT, _SHORT = struct.Struct(">i"), struct.Struct(">H")
_MULTI_DISPATCH = PROPERTY_INNER_MULTI_DISPATCH.encode()


@dataclass(frozen=True, slots=True)
class DispatchRequest:
    """One record of a topic with a dispatch hook, as the hook gets it."""

    message: MessageExt
    physical_offset: int
    size: int


class _TurnIsOverError(Exception):
    """The loop has made enough files in this turn. The record that needs the next one has no entries yet."""


class DispatchService:
    """Feeds the Dispatcher and handles the records that the Dispatcher leaves to it.

    Attributes:
        dispatcher: the compiled core; `dispatcher.dispatched_offset` is how far dispatch has come.
        resolver: decides the queue offset of records that do not continue their queue.
        faults: descriptions of faulty records, one line each.
        queues, index, deletions: the tables that dispatch fills.
        hooks: topic → function that gets every record of that topic (transactions, delay, filters); set with `hook`.
        arrival_listeners: each is called, in this order, with the tails of watched queues that got units.
        on_deleted: called with topics whose queues were emptied just now, and the physical offset of the record that
            deletes them.
        on_tables: called with each record of `TABLES_TOPIC`.
        is_late: there is more to dispatch than in the last turn of the loop.
        on_late: called then, to have `run` called again.
    """

    def __init__(
        self,
        context: StoreContext,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        index: IndexService,
        deletions: Deletions,
    ) -> None:
        self._context = context
        self._commit_log = commit_log
        self.queues = queues
        self.index = index
        self.deletions = deletions
        indexed = context.config.message_index_enable
        self.dispatcher = Dispatcher(queues.topics, index.tail if indexed else None, self)
        self.dispatcher.index_tags = context.config.index_tag_enable
        self.dispatcher.delay_table = parse_delay_levels(context.config.message_delay_level)
        self.unindexed = Dispatcher(queues.topics, None, self)
        self.unindexed.delay_table = self.dispatcher.delay_table
        self.resolver = QueueOffsetResolver(commit_log)
        self.is_copy = False  # True on a running slave: its master has resolved the queue offsets
        self.faults: list[str] = []
        self.hooks: dict[str, Callable[[DispatchRequest], None]] = {}
        self.arrival_listeners: list[Callable[[list[QueueTail]], None]] = []
        self.on_deleted: Callable[[list[str], int], None] | None = None
        self.on_tables: Callable[[MessageExt], None] | None = None
        self.is_late = False
        self.on_late: Callable[[], None] = lambda: None
        # (topic, record) → bit map for the extension unit
        self.bit_map_of: Callable[[str, memoryview], bytes] | None = None
        self._at = 0  # physical offset of the record for which the compiled Dispatcher called last
        self._half_done = False  # the disk had room for only a part of that record's entries
        self._files_left = _ANY_NUMBER  # files of new queues that may still be made in this turn

    def hook(self, topic: str, function: Callable[[DispatchRequest], None]) -> None:
        """Call `function` with every record of `topic` that is dispatched from now on."""
        self.queues.topic_write_state(topic).has_dispatch_hook = True
        self.hooks[topic] = function

    def entries_from(self, physical_offset: int) -> None:
        """Physical offset of the first file that holds DLedger entries."""
        self.dispatcher.entries_from = self.unindexed.entries_from = physical_offset

    def begin_at(self, physical_offset: int) -> None:
        """Note that this copy of the log begins at this physical offset: nothing before it can be dispatched."""
        self.dispatcher.dispatched_offset = physical_offset
        self.deletions.begins_at(physical_offset)

    def forget_topic(self) -> None:
        """Forget the cached TopicWriteState, because one was replaced or removed."""
        self.dispatcher.forget_topic()
        self.unindexed.forget_topic()

    def run_durable(self) -> None:
        """Dispatch what is durable. The rest of what takes more than a turn of the loop follows in later ones."""
        self.run(self._commit_log.flushed_offset, in_turns=True)

    def run(self, end: int, *, in_turns: bool = False) -> None:
        """Dispatch everything below `end`. If a file cannot be made, dispatch stops, the store is not writable and says
        why, and the next call tries again.

        Args:
            in_turns: what takes more than a turn of the loop, or more than some files of new queues, goes on in the
                next one (`on_late`).
        """
        self.is_late = False
        flags = self._context.flags
        if flags.bits and not flags.cq_writable and not flags.has(LOGICS_ERROR | INDEX_ERROR):
            return
        self._files_left = _ANY_NUMBER
        try:
            if self._half_done:
                self._finish_record()
            behind = end - self.dispatcher.dispatched_offset
            if in_turns and behind < _MOST_BEHIND:
                self._files_left = _FILES_A_TURN
            if in_turns and behind > _PIECE:
                self.is_late = self._advance_a_turn(end)
            else:
                self.advance(self.dispatcher, end)
        except _TurnIsOverError:
            self._has_come_to(self._at)
            self.is_late = True
        except OSError as error:
            self._stop(error)
        else:
            if flags.bits and flags.has(LOGICS_ERROR):
                flags.clear(LOGICS_ERROR)
                log.warning("dispatch continues")
        arrived = self.dispatcher.arrived
        if arrived:
            self.dispatcher.arrived = []
            for tell in self.arrival_listeners:
                tell(arrived)
        if self.is_late:
            self.on_late()

    async def finish_turns(self) -> None:
        """Wait until everything is dispatched that was left for later turns of the loop."""
        while self.is_late:  # noqa: ASYNC110 - each turn of the loop dispatches some
            await asyncio.sleep(0)

    def _advance_a_turn(self, end: int) -> bool:
        """Dispatch in pieces until `end`, or until the loop's turn has taken too long: then returns True. One message
        may have 16,000 keys and one batch two million, which takes half a second."""
        clock, dispatcher = self._context.clock, self.dispatcher
        began_ns, piece = clock.monotonic_ns(), _PIECE
        while True:
            offset = dispatcher.dispatched_offset
            stop = min(offset + piece, end)
            if self.advance(dispatcher, stop) == end or (dispatcher.dispatched_offset == offset and stop == end):
                return False
            if dispatcher.dispatched_offset == offset:  # the next record is longer than the piece
                piece *= 2
                continue
            piece = _PIECE
            if clock.monotonic_ns() - began_ns > _TURN_NS:
                return True

    def _stop(self, error: OSError) -> None:
        """Stop at the record that raised the error; all records before it are dispatched."""
        dispatcher = self.dispatcher
        self._has_come_to(self._at)
        self._half_done = True
        reason = f"dispatch at physical offset {dispatcher.dispatched_offset} failed: {error}; "
        cause = Cause.DISK_NO_ROOM if lacks_room(error) else Cause.DISK_FAILED
        if cause is Cause.DISK_NO_ROOM:
            reason = f"the disk is full: {reason}free space, shorten fileReservedTime, or give the store a larger disk"
        else:
            reason += "free or repair the disk"
        if not self._context.flags.has(LOGICS_ERROR):
            log.error("%s; it is tried again", reason)
        self._context.flags.set(LOGICS_ERROR, reason, cause)

    def _has_come_to(self, physical_offset: int) -> None:
        """Note that all records before the one at `physical_offset` are dispatched."""
        dispatcher = self.dispatcher
        dispatcher.dispatched_offset = max(dispatcher.dispatched_offset, self._commit_log.entry_offset(physical_offset))

    def _finish_record(self) -> None:
        """Complete a record that was dispatched in part: its queue units exist, the missing index entries are
        written."""
        dispatcher, offset = self.dispatcher, self.dispatcher.dispatched_offset
        physical_offset = self._commit_log.record_offset(offset)
        present = self.index.trailing_entries(physical_offset)
        if present:
            after = self.finish_index(physical_offset, present)
            self.unindexed.dispatched_offset = offset
            self.advance(self.unindexed, after)
            dispatcher.arrived += self.unindexed.arrived
            self.unindexed.arrived = []
            dispatcher.dispatched_offset = after
        self._half_done = False

    def advance(self, dispatcher: Dispatcher, end: int) -> int:
        """Run `dispatcher` from its position up to `end`; returns where it stopped, which is below `end` only at bytes
        that are not records."""
        offset = dispatcher.dispatched_offset
        self._commit_log.write_buffered(end)
        newest = self._commit_log.newest_from(offset)
        if newest is not None and offset < end:  # the usual case
            start = self._commit_log.tail.file_from_offset
            dispatcher.run(newest, offset - start, end - start, start)
            offset = dispatcher.dispatched_offset
            if offset == end:
                return offset
        while offset < end:
            file = self._commit_log.file_at(offset)
            if file is None:
                break
            start = offset - file.file_from_offset
            stop = min(end - file.file_from_offset, file.file_size)
            dispatcher.run(file.view, start, stop, file.file_from_offset)
            if dispatcher.dispatched_offset == offset:
                break
            offset = dispatcher.dispatched_offset
        return offset

    def finish_index(self, physical_offset: int, present: int) -> int:
        """Add the missing index entries of a record whose first `present` keys are indexed already.

        Returns:
            Physical offset behind the record; `physical_offset` itself if there is no record.
        """
        record = self._commit_log.record(physical_offset)
        if record is None:
            return physical_offset
        message = decode_record(record)
        keys = index_keys(message, self.dispatcher.index_tags)
        self.index.put_keys(message.topic, keys[present:], physical_offset, message.store_timestamp)
        return physical_offset + message.store_size

    # --- called by the compiled Dispatcher ---

    def open_queue(self, topic: bytes, queue_id: int) -> QueueTail | None:
        return self.queues.open_queue(topic, queue_id)

    def roll_queue(self, tail: QueueTail, queue_offset: int, physical_offset: int, size: int) -> bool:
        self._at = physical_offset
        queue: ConsumeQueue = tail.owner
        if not queue.files.files:
            if not self._files_left:
                raise _TurnIsOverError
            self._files_left -= 1
        end = queue.max_offset
        # the last file is full, or there is none
        if queue_offset == end and (queue.files.files or not self.resolver.doubts_first):
            queue.roll(end, physical_offset, size)
            return True
        if queue_offset < end and self._begins_anew(queue, queue_offset, physical_offset, size):
            self._note(queue, queue_offset, physical_offset, "the topic was deleted before it, and made again")
            self.queues.restart(queue, physical_offset)
            queue.roll(0, physical_offset, size)
            if queue_offset:
                queue.roll(queue_offset, physical_offset, size)  # the places before it belong to lost messages
            return True
        resolved: int | None = queue_offset
        if self._context.is_dledger:  # the CRC of the entry covers this field
            is_near = end <= queue_offset <= end + MOST_PLACES
            # a queue without files had older messages, which were deleted
            resolved = queue_offset if is_near or not queue.files.files else end
        elif not (self.is_copy and end < queue_offset <= end + MOST_PLACES):
            resolved = self.resolver.resolve(queue, queue_offset, physical_offset, size)
        if resolved is None:
            self._note(queue, queue_offset, physical_offset, "it is not of this queue and gets no place in it")
            return False
        if resolved != queue_offset:
            if self._may_be_whole(queue, queue_offset, physical_offset, size):
                self._note(queue, queue_offset, physical_offset, f"its place is {resolved}, the record stays as it is")
            else:
                self._note(queue, queue_offset, physical_offset, f"the field is damaged and was set to {resolved}")
                self._commit_log.mend_queue_offset(physical_offset, resolved)
        elif resolved > end and (queue.files.files or self._lacks_its_first(resolved, end)):
            if not queue.files.files:
                queue.roll(0, physical_offset, size)
            self._note(queue, queue_offset, physical_offset, f"the {resolved - end} places between are kept as damaged")
        queue.roll(resolved, physical_offset, size)
        return True

    def _may_be_whole(self, queue: ConsumeQueue, queue_offset: int, physical_offset: int, size: int) -> bool:
        """Return whether a record whose queue offset does not continue its queue may be intact; such a record is kept
        as it is. It may be intact if it is a copy, or if its offset is 0: then it may be the first of a topic that a
        Java broker deleted and made again; or if the record that deleted the topic may be among lost bytes. No broker
        writes another number out of order."""
        if self._context.config.broker_role == "SLAVE" or self._context.is_dledger:
            return True
        if queue_offset == 0 and queue.max_offset > 0:
            return True
        return self.resolver.may_be_whole(queue, queue_offset, physical_offset, size)

    def _begins_anew(
        self,
        queue: ConsumeQueue | BatchConsumeQueue,
        queue_offset: int,
        physical_offset: int,
        size: int,
        count: int = 1,
    ) -> bool:
        """Return whether this is a message of a topic that was deleted and made again although no record says so: its
        first, or, where bytes of the log are lost, another one. A Java broker leaves no such record, a member of a
        DLedger group that was given a later log has not seen it, and damage may have taken it."""
        is_told = self._context.is_dledger or self.is_copy
        if queue.tail.max_physical_offset <= self._commit_log.min_offset and (is_told or not queue_offset):
            return is_told  # no file of the queue is left
        if is_told and (not queue_offset or self._context.is_dledger):
            return not queue_offset
        return self.resolver.begins_anew(queue, queue_offset, physical_offset, size, count)

    def _lacks_its_first(self, queue_offset: int, end: int) -> bool:
        """Return whether the first messages of a queue without units may lie in lost bytes. That is possible only if no
        topic was ever deleted."""
        most = self.resolver.lost_bytes // layout.MIN_RECORD_SIZE
        return not end and self._commit_log.min_offset == 0 and queue_offset <= most

    def _note(
        self, queue: ConsumeQueue | BatchConsumeQueue, queue_offset: int, physical_offset: int, verdict: str
    ) -> None:
        file = self._commit_log.files.find(physical_offset)
        assert file is not None, "a record that is dispatched is in a file"
        text = (
            f"{file.path}: the record at position {physical_offset - file.file_from_offset} (physical offset "
            f"{physical_offset}) says it is message {queue_offset} of {queue.topic}-{queue.queue_id}, which ends at "
            f"{queue.max_offset}: {verdict}"
        )
        log.error("%s", text)
        self.faults.append(text)

    def roll_index(self, physical_offset: int, store_timestamp: int) -> None:
        self._at = physical_offset
        self.index.roll()

    def dispatch_uncommon(self, position: int, size: int, physical_offset: int, view: memoryview) -> None:
        self._at = physical_offset
        if self._extend_only(view[position : position + size], physical_offset):
            return
        message = decode_record(view[position : position + size])
        properties = message.properties
        if is_rolled_back(message.sys_flag):
            if message.topic == DELETED_TOPIC:
                self.delete_topics(deleted_names(message), physical_offset)
            elif message.topic == TABLES_TOPIC:
                # otherwise a client has sent it
                if self.on_tables is not None and not properties.keys() - {PROPERTY_CRC32}:
                    self.on_tables(message)
            elif message.topic != DAMAGED_TOPIC and is_filler(message.sys_flag, properties):
                self.put_unit(
                    message.topic, message.queue_id, message.queue_offset, physical_offset, size, DAMAGED_TAGS_CODE
                )
            return
        topic = self.queues.topic_write_state(message.topic)
        if message.sys_flag & MessageSysFlag.INNER_BATCH or topic.has_batch_queues:
            self._put_batch_unit(message, physical_offset, size)
        if PROPERTY_INNER_MULTI_DISPATCH in properties and self.queues.has_light_places:
            self._multi_dispatch(message, physical_offset, size)
        if self._context.config.enable_consume_queue_ext:
            queue = self.queues.find(message.topic, message.queue_id)
            if queue is not None:
                self._extend(queue, view[position : position + size], physical_offset, message.store_timestamp)
        hook = self.hooks.get(message.topic)
        if hook is not None:
            hook(DispatchRequest(message, physical_offset, size))

    def delete_topics(self, topics: list[str], physical_offset: int) -> None:
        """Delete these topics, as the record at `physical_offset` says. Repeating it changes nothing."""
        for topic in topics:
            if is_folder_name(topic):
                self.queues.begin_anew(topic, physical_offset)
                self.deletions.put(topic, physical_offset)
        self.queues.begun_anew(topics, physical_offset)
        if self.on_deleted is not None:
            self.on_deleted(topics, physical_offset)

    def _extend_only(self, record: memoryview, physical_offset: int) -> bool:
        """Write the extension unit of a record that needs nothing else, without decoding the record; with
        enableConsumeQueueExt that holds for nearly all records. Returns False, without a change, if the record needs
        more."""
        config = self._context.config
        sys_flag = layout.sys_flag_of(record)
        if not config.enable_consume_queue_ext or sys_flag & (MessageSysFlag.INNER_BATCH | TRANSACTION_MASK):
            return False
        at = layout.body_size_at(sys_flag)
        at += 4 + _INT.unpack_from(record, at)[0]
        is_long = int.from_bytes(record[layout.MAGIC : layout.MAGIC + 4], "big") == layout.MAGIC_V2
        size = _SHORT.unpack_from(record, at)[0] if is_long else record[at]
        at += 2 if is_long else 1
        topic = bytes(record[at : at + size])
        state = self.queues.topics.get(topic)
        tail = None if state is None else state.queues.get(_INT.unpack_from(record, layout.QUEUE_ID)[0])
        if state is None or tail is None or state.has_batch_queues or (self.hooks and topic.decode() in self.hooks):
            return False
        if self.queues.has_light_places and _MULTI_DISPATCH in bytes(record[at + size :]):
            return False
        self._extend(tail.owner, record, physical_offset, layout.store_timestamp_of(record))
        return True

    def _extend(self, queue: ConsumeQueue, record: memoryview, physical_offset: int, store_timestamp: int) -> None:
        """Put an extension unit behind the queue unit of a record, if that was written just now."""
        if queue.ext is None or queue.max_offset == 0:
            return
        place = queue.max_offset - 1
        unit = queue.unit(place)
        if unit is None or unit[:2] != (physical_offset, len(record)) or is_ext_address(unit[2]):
            return
        bit_map = b"" if self.bit_map_of is None else self.bit_map_of(queue.topic, record)
        try:
            if not queue.ext.is_placed:
                queue.place_ext(queue.ext)
            address = queue.ext.put(CqExtUnit(unit[2], store_timestamp, bit_map))
        except OSError as error:  # the unit gets the tags code instead, which filters as well
            log.error("%s: an extension unit could not be written: %s", queue.ext.folder, error)
            return
        if address is not None:
            queue.put_address(place, address)

    def _put_batch_unit(self, message: MessageExt, physical_offset: int, size: int) -> None:
        unit = batch_unit(message, physical_offset, size)
        if unit is None:
            log.warning("the inner batch at physical offset %d has no INNER_BASE and INNER_NUM", physical_offset)
            return
        queue = self.queues.open_batch(message.topic, message.queue_id)
        if queue.count and unit.base_offset < queue.max_offset and physical_offset > queue.max_physical_offset:
            unit = self._resolved(queue, unit)
        if queue.append(unit) and queue.tail.watched:
            queue.tail.watched = False
            self.dispatcher.arrived.append(queue.tail)

    def _resolved(self, queue: BatchConsumeQueue, unit: BatchUnit) -> BatchUnit:
        """Return the unit of a record that is behind all others of its queue and says a smaller queue offset: the first
        one of a topic that was deleted and made again, or one whose field is damaged. That one gets the next place."""
        base, start = unit.base_offset, unit.physical_offset
        if self._begins_anew(queue, base, start, unit.size, unit.batch_size):
            self._note(queue, base, start, "the topic was deleted before it, and made again")
            self.queues.restart(queue, start)
            return unit
        self._note(queue, base, start, f"its place is {queue.max_offset}, the record stays as it is")
        return unit._replace(base_offset=queue.max_offset)

    def _multi_dispatch(self, message: MessageExt, physical_offset: int, size: int) -> None:
        places = light_places(message)
        if places is None:
            log.warning(
                "the record at physical offset %d has a different number of queues than of offsets", physical_offset
            )
            return
        code = tags_code(message) if may_name_queues(message.topic) else DAMAGED_TAGS_CODE
        for topic, queue_id, queue_offset in places:
            self.put_unit(topic, queue_id, queue_offset, physical_offset, size, code)

    def put_unit(
        self, topic: str, queue_id: int, queue_offset: int, physical_offset: int, size: int, tags_code: int
    ) -> None:
        """Write one unit, with the same tests for duplicates as the compiled form. A queue offset below the queue's end
        is not written again: only a deletion record, or whole messages, can show that a queue was made anew. A queue of
        batches has no places of damaged messages, and may have gaps: only its numbering goes on. A topic of batches has
        no plain queues, whatever a record of another topic says."""
        most = MOST_PLACES if self.is_copy else self.resolver.lost_bytes // layout.MIN_RECORD_SIZE
        if self.queues.topic_write_state(topic).has_batch_queues:
            batch = self.queues.open_batch(topic, queue_id)
            if queue_offset - batch.taken_offset > most:
                self._note(batch, queue_offset, physical_offset, "so far behind it can not be")
            elif tags_code == DAMAGED_TAGS_CODE:
                batch.number_on(queue_offset + 1)
            elif not batch.count or queue_offset >= batch.max_offset:
                stored_ms = max(0, self._commit_log.store_timestamp(physical_offset, size))
                batch.append(BatchUnit(physical_offset, size, tags_code, stored_ms, queue_offset, 1))
            return
        queue = self.queues.open(topic, queue_id)
        tail = queue.tail
        if physical_offset + size <= tail.max_physical_offset:
            return
        if queue_offset < queue.max_offset:
            return
        if queue.files.files and queue_offset - queue.max_offset > most:
            self._note(queue, queue_offset, physical_offset, "so far behind it can not be")
            return
        if queue_offset != queue.max_offset or not queue.files.files:
            queue.roll(queue_offset, physical_offset, size)
        queue.append(physical_offset, size, tags_code)
        if tail.watched:
            tail.watched = False
            self.dispatcher.arrived.append(tail)


_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delay_levels(text: str) -> list[int]:
    """Parse delay levels such as `1s 5s` into the milliseconds of level 1, 2, …
    (ScheduleMessageService.parseDelayLevel). A word that is not a time counts as one second."""
    levels: list[int] = []
    for word in text.split():
        number, unit = word[:-1], word[-1:]
        levels.append(int(number) * _UNIT_MS[unit] if number.isdigit() and unit in _UNIT_MS else 1000)
    return levels
