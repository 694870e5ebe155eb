"""Which timer messages were delivered already: their copies in the CommitLog.

A broker that died had delivered more than its last checkpoint says. Each copy carries what its message had
(TIMER_OUT_MS, UNIQ_KEY, how often it was put into the topic again), so a look at the end of the log tells which ones
not to deliver again.
"""

from collections.abc import Iterator
from typing import Final

from maxq.protocol.enums import BoundaryType
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import MessageExt
from maxq.store.log.log_search import records_with
from maxq.store.message_store import MessageStore
from maxq.store.timer.timer_record import TIMER_TOPIC, long_of, timer_record

#: (topic, unique key, TIMER_OUT_MS, times put again) of the message it is a copy of.
Identity = tuple[str, str, str, str]


class DeliveredCopies:
    """The delivered copies that existed when a broker began to dequeue, one entry for each message that the broker has
    yet to meet.

    A copy says how often its message had gone round. Those before it in that chain were delivered, too, though a power
    loss may have taken their own copies from the middle of the log.
    """

    def __init__(self) -> None:
        self._rolls: dict[Identity, list[int]] = {}

    def add(self, identity: Identity, rolls: int) -> None:
        """Note a delivered copy of a message that had been put into the wheel `rolls` times."""
        self._rolls.setdefault(identity, []).append(rolls)

    def take(self, identity: Identity, rolls: int) -> bool:
        """Return whether this message was delivered; its copy is then matched with no other message."""
        known = self._rolls.get(identity, ())
        found = min((number for number in known if number >= rolls), default=None)
        if found is None:
            return False
        self._rolls[identity].remove(found)
        return True

    def __len__(self) -> int:
        return sum(map(len, self._rolls.values()))


_NEEDLE: Final = const.PROPERTY_TIMER_OUT_MS.encode()


def first_position(store: MessageStore, read_time_ms: int) -> int:
    """Return the physical offset from which to search if only the time of the checkpoint is known: no message due at
    that time or later was delivered before it."""
    start = store.min_physical_offset
    for file in store.commit_log.files.files:
        time_ms = store.commit_log.store_timestamp(file.file_from_offset)
        if 0 <= time_ms < read_time_ms:
            start = max(start, file.file_from_offset)
    queue = store.queue(TIMER_TOPIC, 0)
    first = None if queue is None else queue.unit(store.min_offset(TIMER_TOPIC, 0))
    if first is not None:  # copies lie behind what they are copies of
        start = max(start, first[0])
    before = store.offset_by_time(TIMER_TOPIC, 0, read_time_ms, BoundaryType.LOWER) - 1
    unit = None if queue is None or before < 0 else queue.unit(before)
    if unit is not None and 0 <= store.store_time_at(TIMER_TOPIC, 0, before) < read_time_ms:
        start = max(start, unit[0])
    return start


def copies_behind(store: MessageStore, start: int) -> Iterator[list[tuple[Identity, int, int]]]:
    """Yield the copies at or behind physical offset `start`, at which a record begins: the original message, its number
    of rolls, and the store time; one part of the log at a time, up to the present end of the log."""
    store.flusher.write_buffered()
    for offsets in records_with(store.commit_log, _NEEDLE, start, store.max_physical_offset):
        messages = (store.look_message_by_offset(offset) for offset in offsets)
        copies = ((copy_of(message), message.store_timestamp) for message in messages if message is not None)
        yield [(*copy, stored_ms) for copy, stored_ms in copies if copy is not None]


def copy_of(message: MessageExt) -> tuple[Identity, int] | None:
    """Return the timer message of which this is a copy, and its number of rolls; None if this is not a copy. None also
    if a property contains zeros: a loss of power tears unflushed data, properties have no check sum, and a torn copy is
    delivered again.

    Also None if a property contains zeros: a loss of power damages unflushed bytes, properties have no checksum, and a
    message that was delivered with damage is delivered again.
    """
    if any("\0" in value for value in message.properties.values()):
        return None
    if message.topic == TIMER_TOPIC:
        record = timer_record(message, message.physical_offset)
        if record is None or record.rolls == 0:
            return None
        return record.identity, record.rolls - 1
    out_ms = long_of(message.properties.get(const.PROPERTY_TIMER_OUT_MS))
    if out_ms is None:
        return None
    rolls = long_of(message.properties.get(const.PROPERTY_TIMER_ROLL_TIMES)) or 0
    unique_key = message.uniq_key or f"{message.born_timestamp}-{message.body_crc}"
    return (message.topic, unique_key, str(out_ms), ""), rolls
