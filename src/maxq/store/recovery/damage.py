"""Damage in the middle of the log: bytes that are not records although good records follow.

A Java broker cuts the log at the first bad byte and loses every acknowledged message behind it. Here the good records
stay, and the damaged range is named, kept for inspection, and replaced by a filler, so that no later reader of the
log (ours, a Java broker, a slave) stumbles again.

The filler is one well-formed record of exactly the range's size: right sum of parts, right body CRC, its own physical
offset, a store time, and transaction type ROLLBACK, which every broker's dispatch leaves out of queues and index. If
the range reaches the end of its file it becomes a BLANK record. Writing it is safe because:

* the range begins where a good record (or the file) ends and ends where a good record (magic, size, parts, own
  physical offset, body CRC) begins, or at the end of the file; no good record is inside;
* the old bytes are first written to `damaged/<physical offset>` and synced: nothing is lost that was there;
* the filler is durable before any queue refers to it; a crash in between leaves a damaged range, which the next start
  treats the same way.

If the damaged record's header is intact (only its body is damaged), topic, queue id and queue offset are kept in the
filler, and a unit in the queue points to it. Otherwise the next good message of the queue shows the gap, and the gap's
units point to that message (see consume_queue.py).
"""

from maxq.lazy_dataclass import dataclass
from maxq.protocol.message.message import MessageExt, encode_record
from maxq.protocol.message.message_sys_flag import MessageSysFlag
from maxq.protocol.message.record_layout import MIN_RECORD_SIZE
from maxq.store.context.store_context import StoreContext
from maxq.store.files.mapped_file import MappedFile, offset_to_file_name
from maxq.store.log.commit_log import CommitLog
from maxq.store.recovery.damage_names import DAMAGED_FOLDER, DAMAGED_PROPERTY, DAMAGED_TOPIC

_BLANK = b"\xcb\xd4\x31\x94"


@dataclass(frozen=True, slots=True)
class DamagedPlace:
    """The queue and the queue offset of a damaged message, as far as its header can be read."""

    topic: str
    queue_id: int
    queue_offset: int


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """Bytes [position, position + size) of one CommitLog file that are not records, though good records follow.

    Attributes:
        file_from_offset: start offset of the file, which is its name.
        reason: why the first byte is not the start of a good record.
        store_timestamp: store time of the record before the range; the filler gets it, so that store times stay in
            order.
        place: place of the message in its queue, if it is known.
        record_before: physical offset of the last good record before the range; -1 if there is none or it is not known.
    """

    file_from_offset: int
    position: int
    size: int
    reason: str
    store_timestamp: int = 0
    place: DamagedPlace | None = None
    record_before: int = -1

    @property
    def physical_offset(self) -> int:
        return self.file_from_offset + self.position

    @property
    def end_offset(self) -> int:
        return self.physical_offset + self.size

    def __str__(self) -> str:
        where = ""
        if self.place is not None:
            where = f", message {self.place.queue_offset} of {self.place.topic}-{self.place.queue_id}"
        return (
            f"commitlog/{offset_to_file_name(self.file_from_offset)}: {self.size} bytes at position {self.position} "
            f"(physical offset {self.physical_offset}) are no record: {self.reason}{where}"
        )


def replace_with_filler(context: StoreContext, commit_log: CommitLog, damage: DamagedRange) -> bool:
    """Copy the damaged bytes to a file of their own and write the filler, both durably. Blocks.

    Returns:
        False if the range is too small for a filler; it then stays as it is.
    """
    file = commit_log.files.find(damage.physical_offset)
    assert file is not None, f"no file holds {damage}"
    stop = damage.position + damage.size
    filler = _filler(file, damage)
    if filler is None:
        return False
    kept = context.root / DAMAGED_FOLDER / offset_to_file_name(damage.physical_offset)
    context.disk.write(kept, bytes(file.view[damage.position : stop]))
    file.region.allocate(damage.position, stop)
    file.view[damage.position : damage.position + len(filler)] = filler
    file.region.flush(damage.position, stop)
    return True


def _filler(file: MappedFile, damage: DamagedRange) -> bytes | None:
    if damage.position + damage.size == file.file_size:
        return damage.size.to_bytes(4, "big") + _BLANK if damage.size >= 8 else None
    if damage.size < MIN_RECORD_SIZE:
        return None
    place = damage.place or DamagedPlace(DAMAGED_TOPIC, 0, 0)
    # The property REAL_TOPIC makes a Java broker drop the filler of a delayed message.
    properties = f"{DAMAGED_PROPERTY}\x01{damage.size}\x02REAL_TOPIC\x01{DAMAGED_TOPIC}\x02REAL_QID\x010\x02".encode()
    topic = place.topic
    topic_size = len(topic.encode())
    wide = 1 if topic_size > 127 else 0  # a version 2 record has one byte more
    body_size = damage.size - MIN_RECORD_SIZE - wide - topic_size - len(properties)
    if body_size < 0:
        topic, properties = "", b""
        body_size = damage.size - MIN_RECORD_SIZE
    return encode_record(
        MessageExt(
            topic=topic,
            body=bytes(body_size),
            queue_id=place.queue_id,
            queue_offset=place.queue_offset,
            physical_offset=damage.physical_offset,
            sys_flag=MessageSysFlag.TRANSACTION_ROLLBACK,
            born_timestamp=damage.store_timestamp,
            store_timestamp=damage.store_timestamp,
        ),
        properties,
    )
