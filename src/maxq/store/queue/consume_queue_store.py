"""All ConsumeQueues of a store: which there are, and where a dispatched record goes (ConsumeQueueStore.java).

The object is the `owner` that the compiled Dispatcher calls for what it does not do itself: open a queue, roll a file,
records with a meaning beyond topic and queue id.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import PurePath
from threading import Lock

from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.message_const import (
    PROPERTY_INNER_BASE,
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    PROPERTY_INNER_NUM,
)
from maxq.protocol.message.message_sys_flag import MessageSysFlag, is_queued, is_rolled_back
from maxq.store.context.store_context import StoreContext
from maxq.store.files.mapped_file import MappedFile
from maxq.store.log.commit_log import CommitLog
from maxq.store.log.deletions import DELETED_TOPIC, deleted_names
from maxq.store.log.tails_cy import QueueTail, TopicWriteState
from maxq.store.queue.batch_consume_queue import BatchConsumeQueue
from maxq.store.queue.consume_queue import CQ_STORE_UNIT_SIZE, ConsumeQueue
from maxq.store.queue.consume_queue_ext import ConsumeQueueExt
from maxq.store.queue.queue_kinds import copy_to_batches, copy_to_plain, has_inner_batches

log = logging.getLogger(__name__)

#: Most queues that are mapped at a time (a mapping takes two descriptors); those that were mapped longest ago are
#: unmapped.
MAX_MAPPED_QUEUES = 6000
_LOOK_AT = 4
#: Units of a topic that are copied into the other kind of queue while the broker runs, in one turn of the loop that
#: looks at each record. Where there are more, the next start copies them, or the dispatch of the topic's first inner
#: batch, which has no place in a plain queue, and cannot wait for a start.
_MOST_COPIED = 4_000

BATCH_UNIT_NAME = "batchconsumequeue"
EXT_NAME = "consumequeue_ext"
ASIDE_NAME = "deleted"
LMQ_PREFIX = "%LMQ%"
DELAY_TOPIC = "SCHEDULE_TOPIC_XXXX"
_NAME_NO_QUEUES = ("%RETRY%", "rmq_sys_")
#: Topics with messages that producers have not committed, and with those that were given up.
OF_TRANSACTIONS = ("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC")
FOLDER_NAME_MAX = 255  # bytes, of Linux's file systems


def is_folder_name(topic: str) -> bool:
    """Returns whether a queue's folder can have this name. Names come from clients (light queues) and from a log that
    may be damaged."""
    return (
        topic not in ("", ".", "..")
        and not any(letter in topic for letter in "/\0\ufffd")
        and len(topic.encode()) <= FOLDER_NAME_MAX
    )


def may_hold_places(topic: str) -> bool:
    """Return whether records of this topic can have places in the queues that INNER_MULTI_DISPATCH names. Copies in
    retry and delay topics have none: the named places belong to the original message (isNeedHandleMultiDispatch)."""
    return not topic.startswith(_NAME_NO_QUEUES) and topic != DELAY_TOPIC


def may_name_queues(topic: str) -> bool:
    """Return whether the messages of this topic get such places and are visible there. Messages of open transactions
    and dead letters are not: a committed message gets its own place, and a dead letter had one. Places that Java
    gave them count as places of lost messages."""
    return may_hold_places(topic) and topic not in OF_TRANSACTIONS and not topic.startswith("%DLQ%")


def number_in(text: str) -> int:
    """Return the number that a property's text says; -1 if the text is not a number below 10^18."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1


def _has_files(state: TopicWriteState) -> bool:
    """Return whether the topic has files of plain queues."""
    return any(tail.owner.files.files for tail in state.queues.values())


class ConsumeQueueStore:
    """The table of the store's queues.

    Attributes:
        topics: what append and dispatch look up: topic bytes → TopicWriteState, whose `queues` are the tails.
        is_batch_topic: tells which topics have the attribute queue.type=BatchCQ; None: the topic is not known (yet),
            and is one if it has a batch queue on disk. A topic with an inner batch in the log is one anyway. Call
            `take_kind` when it has changed.
        max_mapped: most queues that are mapped at a time.
        before_release: called with every mapped queue that is about to be unmapped.
        set_aside: folders with the files of deleted topics; they go when the next inventory is written.
    """

    def __init__(self, context: StoreContext, commit_log: CommitLog) -> None:
        self._context = context
        self._commit_log = commit_log
        self.topics: dict[bytes, TopicWriteState] = {}
        self.batch_queues: dict[tuple[str, int], BatchConsumeQueue] = {}
        self.is_batch_topic: Callable[[str], bool | None] = lambda topic: None
        self.max_mapped = MAX_MAPPED_QUEUES
        self.before_release: Callable[[ConsumeQueue], None] | None = None
        self._mapped: dict[ConsumeQueue, None] = {}  # mapped queues, in the order in which they were mapped
        self._resting: dict[ConsumeQueue, None] = {}  # unmapped queues that have something to flush
        self._has_light_queues = False
        # topics that are numbered anew because of a deletion that has not been dispatched yet
        self._numbered: dict[str, int] = {}
        self.set_aside: list[PurePath] = []
        self._moving = Lock()  # held while files are moved aside, and while a queue is deleted
        size = context.config.mapped_file_size_consume_queue
        self.file_size = -(-size // CQ_STORE_UNIT_SIZE) * CQ_STORE_UNIT_SIZE
        batch_size = context.config.mapper_file_size_batch_consume_queue
        self.batch_file_size = -(-batch_size // 46) * 46

    # --- table ---

    def topic_write_state(self, topic: str) -> TopicWriteState:
        """Returns the TopicWriteState of `topic`, made if missing."""
        name = topic.encode()
        state = self.topics.get(name)
        if state is None:
            state = self.topics[name] = TopicWriteState(topic)
            state.is_delay_topic = topic == DELAY_TOPIC
            state.has_batch_queues = bool(self.is_batch_topic(topic))
            # with extension units, every record needs the hook
            state.has_dispatch_hook = self._context.config.enable_consume_queue_ext
        return state

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Returns the queue; None if it is unknown."""
        state = self.topics.get(topic.encode())
        queue = None if state is None else state.queues.get(queue_id)
        return None if queue is None else queue.owner

    @property
    def has_light_places(self) -> bool:
        """Return whether records may have places in light queues: with enableMultiDispatch, and if it was true once,
        for a start that dispatches a part of the log again writes their units again. With neither, a place that a
        record names is its client's invention."""
        return self._context.config.enable_multi_dispatch or self._has_light_queues

    def note_topics(self, topics: Iterable[str]) -> None:
        """Note that there are or were queues of these names."""
        self._has_light_queues = self._has_light_queues or any(name.startswith(LMQ_PREFIX) for name in topics)

    def open(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Returns the queue, made if missing. Its first file is made with its first unit."""
        found = self.find(topic, queue_id)
        if found is not None:
            return found
        self.note_topics([topic])
        folder = self._context.consume_queue_folder
        queue = ConsumeQueue(self._context.disk, folder, topic, queue_id, self.file_size, self._note_mapped)
        config = self._context.config
        if config.enable_consume_queue_ext and not topic.startswith(LMQ_PREFIX):
            queue.ext = ConsumeQueueExt(
                self._context.disk,
                self._context.root / EXT_NAME,
                topic,
                queue_id,
                config.mapped_file_size_consume_queue_ext,
            )
        self.topic_write_state(topic).set_queue(queue_id, queue.tail)
        return queue

    def open_batch(self, topic: str, queue_id: int) -> BatchConsumeQueue:
        """Return the queue of a BatchCQ topic, made if missing. The topic is one from now on.

        Raises:
            OSError: the topic had plain queues, and the disk has no room for their units in the other kind.
        """
        state = self.topic_write_state(topic)
        if not state.has_batch_queues:
            self._make_batches(state)
        return self._batch(topic, queue_id)

    def _batch(self, topic: str, queue_id: int) -> BatchConsumeQueue:
        found = self.batch_queues.get((topic, queue_id))
        if found is None:
            folder = self._context.root / BATCH_UNIT_NAME
            found = BatchConsumeQueue(self._context.disk, folder, topic, queue_id, self.batch_file_size)
            self.batch_queues[topic, queue_id] = found
        return found

    def __iter__(self) -> Iterator[ConsumeQueue]:
        for topic in self.topics.values():
            for tail in topic.queues.values():
                yield tail.owner

    def of_topic(self, topic: str) -> list[ConsumeQueue]:
        state = self.topics.get(topic.encode())
        return [] if state is None else [queue.owner for _, queue in sorted(state.queues.items())]

    # --- kinds of queues ---

    def load_batch(self, topic: str, queue_id: int) -> BatchConsumeQueue:
        """Return a queue of batches that has a folder; `take_kinds_of_files` tells later whether the topic is one of
        batches."""
        self.topic_write_state(topic)
        return self._batch(topic, queue_id)

    def take_kinds_of_files(self) -> None:
        """Give each topic that has files of queues the kind of queues that the files are of, so that recovery goes on
        in these. Topics with files of both kinds are `mixed_topics`."""
        batches = self._topics_with_batch_files()
        for state in self.topics.values():
            is_batch = state.topic in batches
            if is_batch or _has_files(state):
                state.has_batch_queues = is_batch

    def mixed_topics(self) -> list[str]:
        """Return the topics that have files of both kinds of queues: the copying of units was cut short, or a version
        wrote them that looked at the attribute once."""
        batches = self._topics_with_batch_files()
        return sorted(state.topic for state in self.topics.values() if state.topic in batches and _has_files(state))

    def _topics_with_batch_files(self) -> set[str]:
        return {topic for (topic, _), batch in self.batch_queues.items() if batch.files.files}

    def begin_with_kinds(self) -> None:
        """Give every topic the kind of queues that its attribute says, before all units are dispatched anew. Blocks."""
        for state in self.topics.values():
            is_batch = self.is_batch_topic(state.topic)
            state.has_batch_queues = state.has_batch_queues if is_batch is None else is_batch
        for batch in self.batch_queues.values():
            if not self.topic_write_state(batch.topic).has_batch_queues:
                end = max(batch.max_offset, batch.numbered_to)
                batch.destroy()
                batch.number_on(end)

    def take_kinds(self) -> None:
        """Do for every topic what `take_kind` does, however many units it has. Blocks."""
        with_batches = {topic for topic, _ in self.batch_queues}
        for state in list(self.topics.values()):
            self._take_kind(state, state.has_batch_queues or state.topic in with_batches, 1 << 62)

    def take_kind(self, topic: str) -> None:
        """Bring the queues of a topic in step with its attribute, which became known or is another one now: units are
        copied into the right kind of queues. If there are too many, or no room, or inner batches that need the other
        kind, all stays as it is, and can be read."""
        state = self.topics.get(topic.encode())
        if state is not None:
            self._take_kind(state, state.has_batch_queues, _MOST_COPIED)

    def _take_kind(self, state: TopicWriteState, may_have_batches: bool, most: int) -> None:
        topic, is_batch = state.topic, self.is_batch_topic(state.topic)
        if is_batch is None:
            is_batch = state.has_batch_queues
        if (state.has_batch_queues and not state.queues) if is_batch else not may_have_batches:
            return
        if topic in self._numbered:  # `begin_anew` empties the queues, and drops those of the other kind
            state.has_batch_queues = is_batch
            return
        batches = self._batches_of(topic)
        units = sum(batch.count - batch.first_index for batch in batches)
        if is_batch:
            units = sum(queue.max_offset - queue.files.min_offset // CQ_STORE_UNIT_SIZE
                        for queue in self.of_topic(topic) if queue.files.files)  # fmt: skip
        if units > most:
            log.warning("topic %s has another queue.type than before, and %d units: the next start copies them into "
                        "the other kind of queues", topic, units)  # fmt: skip
            return
        try:
            if is_batch:
                self._make_batches(state)
            else:
                self._make_plain(state, batches)
        except OSError as error:
            log.error("topic %s has another queue.type than before, and its units cannot be copied: %s", topic, error)

    def _make_batches(self, state: TopicWriteState) -> None:
        """Have a topic keep its messages in queues of batches: its plain queues give them their units. Raises OSError
        if the disk refuses; nothing has changed."""
        topic, context = state.topic, self._context
        taken = [(queue, self._batch(topic, queue.queue_id)) for queue in self.of_topic(topic)]
        filled = [(queue, batch) for queue, batch in taken if queue.files.files]
        if any(batch.count for _, batch in filled):
            log.error("topic %s has units in both kinds of queues: the next start builds them anew", topic)
            return
        try:
            for queue, batch in taken:
                if not batch.count:
                    copy_to_batches(queue, batch, self._commit_log)
            for folder in (context.root / EXT_NAME, context.consume_queue_folder) if filled else ():
                self._move_aside(folder / topic)
        except OSError:
            for _, batch in taken:
                batch.destroy()
            self._drop_batches(batch for _, batch in taken)
            raise
        state.has_batch_queues = True
        self._drop_plain(state)
        if filled:
            log.warning("topic %s has queue.type=BatchCQ: its units are in queues of batches from now on", topic)

    def _make_plain(self, state: TopicWriteState, batches: list[BatchConsumeQueue]) -> None:
        """Have a topic keep its messages in plain queues, unless it has inner batches. Raises OSError if the disk
        refuses; nothing has changed."""
        topic = state.topic
        if any(has_inner_batches(batch, self._commit_log) for batch in batches):
            state.has_batch_queues = True
            return
        taken = [(batch, self.open(topic, batch.queue_id)) for batch in batches]
        filled = [(batch, queue) for batch, queue in taken if batch.count]
        if any(queue.files.files for _, queue in filled):
            log.error("topic %s has units in both kinds of queues: the next start builds them anew", topic)
            return
        try:
            for batch, queue in taken:
                if not queue.files.files:
                    copy_to_plain(batch, queue, self._commit_log)
            if filled:
                self._move_aside(self._context.root / BATCH_UNIT_NAME / topic)
        except OSError:
            for _, queue in filled:
                queue.destroy()
            raise
        state.has_batch_queues = False
        self._drop_batches(batches)
        if filled:
            log.warning("topic %s has no queue.type=BatchCQ: its units are in plain queues from now on", topic)

    def _move_aside(self, folder: PurePath) -> None:
        with self._moving:
            self._set_aside(folder, 0)

    def _drop_plain(self, state: TopicWriteState) -> None:
        """Remove the plain queues of a topic from the table. Whoever still has one finds it empty."""
        for queue in self.of_topic(state.topic):
            with self._moving:
                queue.begin_anew()
            state.set_queue(queue.queue_id, None)
            self._mapped.pop(queue, None)
            self._resting.pop(queue, None)

    def _drop_batches(self, batches: Iterable[BatchConsumeQueue]) -> None:
        for batch in batches:
            with self._moving:
                batch.forget()
            del self.batch_queues[batch.topic, batch.queue_id]

    # --- numbering ---

    def count(self, message: MessageExt) -> None:
        """Advance the numbering of the queues past `message`, which is in the log but not dispatched yet."""
        if not is_queued(message.sys_flag):
            if message.topic == DELETED_TOPIC and is_rolled_back(message.sys_flag):
                for topic in deleted_names(message):
                    self.number_anew(topic, message.physical_offset)
            return
        if message.sys_flag & MessageSysFlag.INNER_BATCH or self.topic_write_state(message.topic).has_batch_queues:
            batch = self.open_batch(message.topic, message.queue_id)
            base, count = message.queue_offset, 1
            if message.sys_flag & MessageSysFlag.INNER_BATCH:
                base = number_in(message.properties.get(PROPERTY_INNER_BASE, ""))
                count = number_in(message.properties.get(PROPERTY_INNER_NUM, ""))
            batch.next_queue_offset = max(batch.next_queue_offset, base + count)
            return
        self._number_on(message.topic, message.queue_id, message.queue_offset)
        names = message.properties.get(PROPERTY_INNER_MULTI_DISPATCH, "")
        if names and self.has_light_places and may_hold_places(message.topic):
            offsets = message.properties.get(PROPERTY_INNER_MULTI_QUEUE_OFFSET, "").split(",")
            for name, offset in zip(names.split(","), offsets, strict=False):
                self._number_on(name, 0 if name.startswith(LMQ_PREFIX) else message.queue_id, number_in(offset))

    def _number_on(self, topic: str, queue_id: int, queue_offset: int) -> None:
        tail = self.open(topic, queue_id).tail
        tail.next_queue_offset = max(tail.next_queue_offset, queue_offset + 1)

    def number_on(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Begin a plain queue that has no units at this queue offset."""
        queue = self.open(topic, queue_id)
        queue.tail.write_offset = queue_offset * CQ_STORE_UNIT_SIZE
        queue.tail.next_queue_offset = queue.end_at_start = queue_offset

    # --- deleted topics ---

    def number_anew(self, topic: str, physical_offset: int) -> None:
        """Number what is appended to the topic's queues from now on from 0: the record at `physical_offset`, which was
        just appended, deletes the topic. Units of earlier records may still be written (`begin_anew`)."""
        self._numbered[topic] = physical_offset
        for queue in self.of_topic(topic):
            queue.tail.next_queue_offset = 0
        for batch in self._batches_of(topic):
            batch.next_queue_offset = 0

    def forget_numbering(self) -> None:
        """Forget the numbering of records that are not dispatched: a new leader may not have them."""
        self._numbered.clear()

    def begin_anew(self, topic: str, physical_offset: int) -> None:
        """Empty the topic's queues, because the record that deletes the topic is dispatched. Their files are set aside
        in one step, so that the new topic's files can be made at once. The call may be repeated until `begun_anew`.

        Raises:
            OSError: the files could not be moved; nothing has changed.
        """
        with self._moving:
            for folder in (self._context.consume_queue_folder, self._context.root / BATCH_UNIT_NAME):
                self._set_aside(folder / topic, physical_offset)
            self._set_aside(self._context.root / EXT_NAME / topic, physical_offset)
            is_numbered = physical_offset <= self._numbered.get(topic, -1)
            for queue in self.of_topic(topic):
                next_offset = queue.tail.next_queue_offset if is_numbered else 0
                queue.begin_anew()
                queue.tail.next_queue_offset = next_offset
                self._mapped.pop(queue, None)
                self._resting.pop(queue, None)
            for batch in self._batches_of(topic):
                next_offset = batch.next_queue_offset if is_numbered else 0
                batch.forget()
                batch.next_queue_offset, batch.end_at_start = next_offset, 0
        self._begin_with_kind(topic)

    def _begin_with_kind(self, topic: str) -> None:
        """Give a topic that has no units the kind of queues that its attribute says, which may be that of the new topic
        already."""
        state, is_batch = self.topics.get(topic.encode()), self.is_batch_topic(topic)
        if state is None:
            return
        if is_batch is not None:
            state.has_batch_queues = is_batch
        batches = self._batches_of(topic)
        if state.has_batch_queues:
            for queue in self.of_topic(topic):
                batch = self._batch(topic, queue.queue_id)
                batch.next_queue_offset = max(batch.next_queue_offset, queue.tail.next_queue_offset)
                batch.tail.watched = batch.tail.watched or queue.tail.watched
            self._drop_plain(state)
        else:
            for batch in batches:
                tail = self.open(topic, batch.queue_id).tail
                tail.next_queue_offset = max(tail.next_queue_offset, batch.next_queue_offset)
                tail.watched = tail.watched or batch.tail.watched
            self._drop_batches(batches)

    def begun_anew(self, topics: Iterable[str], physical_offset: int) -> None:
        """Note that the topics which the record at `physical_offset` deletes are numbered from 0 again."""
        for topic in topics:
            if self._numbered.get(topic) == physical_offset:
                del self._numbered[topic]

    def restart(self, queue: ConsumeQueue | BatchConsumeQueue, physical_offset: int) -> None:
        """Empty one queue that was deleted and made again, whose first record is the one at `physical_offset`. A broker
        that accepts messages has numbered behind that record already, and continues there.

        Raises:
            OSError: the files of the deleted queue could not be moved; nothing has changed.
        """
        if isinstance(queue, BatchConsumeQueue):
            next_offset = queue.next_queue_offset
            with self._moving:
                if queue.files.files:
                    self._set_aside(queue.files.folder, physical_offset)
                queue.forget()
            if self._numbers:
                queue.next_queue_offset = next_offset
            return
        next_offset = queue.tail.next_queue_offset
        with self._moving:
            if queue.files.files:
                self._set_aside(queue.files.folder, physical_offset)
            queue.begin_anew()
        if self._numbers:
            queue.tail.next_queue_offset = next_offset
        self._mapped.pop(queue, None)
        self._resting.pop(queue, None)

    @property
    def _numbers(self) -> bool:
        """Return whether this broker takes messages and gives them their queue offsets."""
        return self._context.is_leading or self._context.config.broker_role != "SLAVE"

    def empty(self, queue: ConsumeQueue) -> None:
        """Move a queue's files aside. Its numbering continues."""
        with self._moving:
            if queue.files.files:
                self._set_aside(queue.files.folder, 0)
            self._forget_units(queue)

    def empty_all(self, physical_offset: int) -> None:
        """Move the files of all queues aside in one step, because the log begins anew at `physical_offset`. Queues
        continue at their next offset or a higher one. Queues of batches keep their files, because these may have
        gaps.

        Raises:
            OSError: the files could not be moved; nothing has changed.
        """
        with self._moving:
            for folder in (self._context.consume_queue_folder, self._context.root / EXT_NAME):
                self._set_aside(folder, physical_offset)
            for queue in self:
                self._forget_units(queue)

    def _forget_units(self, queue: ConsumeQueue) -> None:
        end, next_offset = queue.tail.write_offset, queue.tail.next_queue_offset
        queue.begin_anew()
        queue.tail.write_offset, queue.tail.next_queue_offset = end, next_offset
        self._mapped.pop(queue, None)
        self._resting.pop(queue, None)

    def _set_aside(self, folder: PurePath, physical_offset: int) -> None:
        disk = self._context.disk
        if not disk.exists(folder):
            return
        root = self._context.root / ASIDE_NAME
        target = root / f"{physical_offset}-{len(self.set_aside)}"
        number = len(self.set_aside)
        while disk.exists(target):
            number += 1
            target = root / f"{physical_offset}-{number}"
        disk.make_dirs(root)
        disk.rename(folder, target)
        self.set_aside.append(target)

    def destroy_files(self, queue: ConsumeQueue | BatchConsumeQueue, lives: int, files: Iterable[MappedFile]) -> None:
        """Delete files that a queue has given up when it had begun anew `lives` times. If it has begun anew once more,
        these files were set aside, and new ones may have the same names. Blocks; any thread.

        Raises:
            OSError: the disk keeps some of them.
        """
        for file in files:
            with self._moving:
                if queue.lives == lives:
                    file.destroy()

    def _batches_of(self, topic: str) -> list[BatchConsumeQueue]:
        return [batch for (name, _), batch in self.batch_queues.items() if name == topic]

    def forget_topic(self, topic: str) -> None:
        """Remove a deleted topic from the table unless a queue or message of it was created since."""
        state = self.topics.get(topic.encode())
        batches = self._batches_of(topic)
        if any(batch.next_queue_offset or batch.count for batch in batches):
            return
        if (
            state is None
            or state.has_dispatch_hook
            or state.max_queue_id >= 0
            or any(
                queue.write_offset or queue.next_queue_offset or queue.owner.files.files
                for queue in state.queues.values()
            )
        ):
            return
        for batch in batches:
            del self.batch_queues[topic, batch.queue_id]
            batch.tail.owner = None
        del self.topics[topic.encode()]
        for queue in state.queues.values():
            queue.owner = None

    def remove(self, queue: ConsumeQueue) -> None:
        """Remove a queue from the table and delete its files and folder. Blocks."""
        self.detach(queue)
        self.delete_files(queue)

    def detach(self, queue: ConsumeQueue) -> None:
        """Remove a queue from the table, and its topic with its last queue. A new message makes a new queue that
        begins at 0."""
        name = queue.topic.encode()
        state = self.topics.get(name)
        if state is not None:
            state.set_queue(queue.queue_id, None)
            if not state.queues:
                del self.topics[name]
        queue.tail.owner = None
        self._mapped.pop(queue, None)
        self._resting.pop(queue, None)

    def forget_all(self) -> dict[ConsumeQueue, list[MappedFile]]:
        """Start the numbering of all queues again at 0. The queues stay known and their files on disk. Returns the
        files that each had."""
        self._mapped.clear()
        self._resting.clear()
        return {queue: queue.forget() for queue in self}

    def delete_folders(self, queues: Iterable[ConsumeQueue]) -> None:
        """Delete the folders of queues without files of their own; they stay known. Blocks.

        A topic's folder goes in one step: deleting is durable, and a sync a file takes a minute with 20 000 queues.
        """
        disk = self._context.disk
        by_topic: dict[str, list[ConsumeQueue]] = {}
        for queue in queues:
            by_topic.setdefault(queue.topic, []).append(queue)
        for topic, gone in by_topic.items():
            folder = self._context.consume_queue_folder / topic
            if {entry.name for entry in disk.list(folder)} <= {str(queue.queue_id) for queue in gone}:
                disk.delete_tree(folder)
            else:  # the folder also holds other queues, or files that are not MaxQ's
                for queue in gone:
                    disk.delete_tree(queue.files.folder)

    def delete_files(self, queue: ConsumeQueue) -> None:
        """Delete the files and folder of a detached queue. Blocks."""
        folder = queue.files.folder
        queue.destroy()
        self._context.disk.delete_tree(folder)
        if not self._context.disk.list(folder.parent):
            self._context.disk.delete_tree(folder.parent)

    # --- called by the compiled Dispatcher ---

    def open_queue(self, topic: bytes, queue_id: int) -> QueueTail | None:
        """Return the tail of a queue for a record whose topic or queue dispatch does not know. For an unknown topic
        only its TopicWriteState is needed."""
        name = topic.decode("utf-8", "replace")
        if topic not in self.topics:
            self.topics[topic] = self.topic_write_state(name)
            return None
        return self.open(name, queue_id).tail

    # --- mappings and flushing ---

    def _note_mapped(self, queue: ConsumeQueue) -> None:
        self._mapped[queue] = None
        self._resting.pop(queue, None)
        if len(self._mapped) > self.max_mapped:
            self._give_up_one(queue)

    def _give_up_one(self, wanted: ConsumeQueue) -> None:
        """Unmap the queue that was mapped longest ago, preferably one with nothing to flush. Unflushed data stays in
        the page cache, and the queue is noted for the next flush."""
        oldest = [queue for queue in islice(self._mapped, _LOOK_AT) if queue is not wanted and not queue.in_flush]
        if oldest:
            given_up = next((queue for queue in oldest if not queue.unflushed(0)), oldest[0])
            if given_up.unflushed(0):
                self._resting[given_up] = None
            self.release(given_up)

    def mapped(self) -> list[ConsumeQueue]:
        """Returns the queues that may be mapped now, in the order in which they were mapped."""
        return list(self._mapped)

    def unflushed(self) -> list[ConsumeQueue]:
        """Return the queues that may have unflushed units."""
        return [*self._mapped, *self._resting]

    def release(self, queue: ConsumeQueue) -> None:
        """Unmap the files of one consume queue from memory; they stay on the disk."""
        if self.before_release is not None and queue in self._mapped:
            self.before_release(queue)
        queue.release()
        self._mapped.pop(queue, None)

    def flushed(self, queue: ConsumeQueue) -> None:
        """Note that a queue was flushed; if it was not used lately, it is unmapped."""
        if queue not in self._mapped:
            queue.files.release()
            if queue.ext is not None:
                queue.ext.release()
            if not queue.unflushed(0):
                self._resting.pop(queue, None)

    def release_all(self) -> None:
        """Unmap all queues at shutdown."""
        for queue in list(self._mapped):
            self.release(queue)
        for batch in self.batch_queues.values():
            batch.release()

    def folder(self) -> PurePath:
        return self._context.consume_queue_folder
