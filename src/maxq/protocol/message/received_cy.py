"""ReceivedMessage: a message of a pull whose fields are decoded when they are first read.

`read_records` walks over the body of an answer and makes one for each record. A record has a dozen fields and some
properties, of which most readers look at one or two, and the body. So a message gets its body at once and keeps the
rest of its record as bytes (not the answer, which would stay in memory as a whole); what all messages of a pull have in
common is one `Pull`. The slot of a field stays empty until the field is read or set: a `LazyField` stands in its place.

The walk checks every size, so that no later decoding can fail. Unusual records (damaged ones, inner batches) are left
to `decode_records`, which handles or refuses them.
"""

from typing import TYPE_CHECKING

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
    from cython.cimports.libc.string import memcmp
    from cython.cimports.maxq.protocol.message import record_layout as rl
    from cython.cimports.maxq.runtime.buffers import copy_bytes, find_byte, i16, i32, i64, take_bytes, u32
else:
    from maxq.protocol.message import record_layout as rl
    from maxq.runtime.buffers import find_byte, i16, i32, i64, take_bytes, u32

from maxq.protocol.message.message import MessageExt, inflated
from maxq.protocol.message.message_const import (
    PROPERTY_CONSUME_START_TIMESTAMP,
    PROPERTY_MAX_OFFSET,
    PROPERTY_MIN_OFFSET,
    PROPERTY_RETRY_TOPIC,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence


_BATCH = cython.declare(cython.int, 0xC0)  # INNER_BATCH and NEED_UNWRAP
_COMPRESSED = cython.declare(cython.int, 0x1)
_FIELDS = (
    "topic", "body", "properties", "flag", "broker_name", "queue_id", "queue_offset", "physical_offset", "sys_flag",
    "born_timestamp", "born_host", "store_timestamp", "store_host", "reconsume_times", "prepared_transaction_offset",
    "body_crc", "store_size", "version", "body_fault",
)  # fmt: skip


@cython.final
@cython.no_gc
@cython.cclass
class Pull:
    """The common values of the messages of one pull."""

    def __init__(
        self,
        broker_name: str,
        min_offset: cython.longlong,
        max_offset: cython.longlong,
        queue_id: cython.longlong = -1,
        offset_delta: cython.longlong = 0,
        unwrap=None,  # type: Callable[[str], str] | None
    ):
        """
        Args:
            min_offset, max_offset: of the queue at the broker: the properties MIN_OFFSET and MAX_OFFSET.
            queue_id, offset_delta: of a global queue of a static topic, whose records have the numbers of a physical
                one; -1 and 0: records have the right ones.
            unwrap: makes the user's name of a topic; None: they are the same.
        """
        self.broker_name = broker_name
        self.min_offset = min_offset
        self.max_offset = max_offset
        self.queue_id = queue_id
        self.offset_delta = offset_delta
        self._unwrap = unwrap
        self._min_text = self._max_text = self.topic = None
        self._has_one_topic = False

    @cython.cfunc
    def _fill(self, properties: dict):
        if self._min_text is None:
            self._min_text = str(self.min_offset)
            self._max_text = str(self.max_offset)
        properties[PROPERTY_MIN_OFFSET] = self._min_text
        properties[PROPERTY_MAX_OFFSET] = self._max_text

    @cython.cfunc
    def _topic_of(self, rest: bytes, at: cython.Py_ssize_t):
        """Return the topic of the record whose bytes without the body these are; its length is at `at`."""
        if self.topic is not None:
            return self.topic
        buf: cython.p_uchar
        topic: str
        if cython.compiled:
            buf = cython.cast(cython.p_uchar, rest)
        else:
            buf = rest
        if u32(buf, 4) == rl.MAGIC_V1:
            topic = _text(buf, at + 1, at + 1 + buf[at])
        else:
            topic = _text(buf, at + 2, at + 2 + i16(buf, at))
        if self._unwrap is not None:
            topic = self._unwrap(topic)
        if self._has_one_topic:
            self.topic = topic
        return topic


@cython.final
@cython.no_gc
@cython.freelist(256)
@cython.cclass
class Stored:
    """The part of its record that a message keeps."""


@cython.final
@cython.no_gc
@cython.cclass
class LazyField:
    """A field of ReceivedMessage: a slot of MessageExt that is filled when it is first read."""

    def __init__(self, name: str, number: cython.int):
        self.name = name
        self._slot = getattr(MessageExt, name)
        self._number = number
        if cython.compiled:
            self._at = place_of_slot(self._slot)

    def __get__(self, message: object, kind: object):
        # type: (...) -> object
        if message is None:
            return self
        if cython.compiled:
            if not isinstance(message, _KIND):
                raise TypeError(f"{self.name} is a field of ReceivedMessage")
            if slot_is_set(message, self._at):
                return slot_value(message, self._at)
        else:
            try:
                return self._slot.__get__(message)
            except AttributeError:
                pass
        stored: Stored = stored_of(message)
        if stored is None:
            raise AttributeError(f"{type(message).__name__!r} object has no attribute {self.name!r}")
        value: object = _field(message, stored, self._number)
        if cython.compiled:
            if slot_is_set(message, self._at):  # another thread has set it meanwhile
                return slot_value(message, self._at)
            # the cycle collector must know of a dictionary, because its owner may put anything into it
            if self._number == 2 and not is_tracked(message):
                track(message)
            set_slot(message, self._at, value)
        else:
            self._slot.__set__(message, value)
        return value

    def __set__(self, message: object, value: object):
        # type: (...) -> None
        if cython.compiled:
            if not isinstance(message, _KIND):
                raise TypeError(f"{self.name} is a field of ReceivedMessage")
            if not is_tracked(message):
                track(message)
            set_slot(message, self._at, value)
        else:
            self._slot.__set__(message, value)

    def __delete__(self, message: object):
        # type: (...) -> None
        if cython.compiled:
            if not isinstance(message, _KIND):
                raise TypeError(f"{self.name} is a field of ReceivedMessage")
            clear_slot(message, self._at)
        else:
            self._slot.__delete__(message)


class ReceivedMessage(MessageExt):
    """A message as a consumer gets it. It is a MessageExt, and equal to one with the same fields; fields are decoded
    when they are first read. Pickled or copied it becomes a plain MessageExt."""

    __slots__ = ("_stored",)

    def __eq__(self, other: object):
        # type: (...) -> bool
        if type(other) is not ReceivedMessage and type(other) is not MessageExt:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _FIELDS)

    __hash__ = None  # type: ignore[assignment]  # its fields can be changed

    def __reduce__(self):
        # type: (...) -> tuple[object, ...]
        return MessageExt, tuple([getattr(self, name) for name in _FIELDS])


_KIND = cython.declare(object, ReceivedMessage)
for _number, _name in enumerate(_FIELDS):
    setattr(ReceivedMessage, _name, LazyField(_name, _number))
if cython.compiled:
    _STORED_AT = cython.declare(cython.Py_ssize_t, place_of_slot(ReceivedMessage.__dict__["_stored"]))
    _BODY_AT = cython.declare(cython.Py_ssize_t, place_of_slot(MessageExt.body))
    _FAULT_AT = cython.declare(cython.Py_ssize_t, place_of_slot(MessageExt.body_fault))


@cython.ccall
def stored_of(message: object) -> Stored:
    # type: (...) -> Stored | None
    """Return what a message keeps of its record; None if `read_records` has not made it."""
    if cython.compiled:
        if type(message) is not _KIND or not slot_is_set(message, _STORED_AT):
            return None
        return cython.cast(Stored, slot_value(message, _STORED_AT))
    return getattr(message, "_stored", None)


@cython.cfunc
@cython.inline
def _text(buf: cython.p_uchar, p: cython.Py_ssize_t, end: cython.Py_ssize_t) -> str:
    """Return buf[p : end] as UTF-8, whose invalid bytes are replaced."""
    if cython.compiled:
        return cython.cast(cython.p_char, buf)[p:end].decode("utf-8", "replace")
    return str(bytes(buf[p:end]), "utf-8", "replace")


@cython.cfunc
def _field(message: object, stored: Stored, number: cython.int):
    """Return the value of the field with this number."""
    rest: bytes = stored.rest
    pull: Pull = stored.pull
    buf: cython.p_uchar
    at: cython.Py_ssize_t
    if cython.compiled:
        buf = cython.cast(cython.p_uchar, rest)
    else:
        buf = rest
    if number == 0:
        return pull._topic_of(rest, stored.body_at)
    if number == 1 or number == 18:
        return _body(message, stored, number)
    if number == 2:
        return _all_properties(stored, buf, len(rest))
    if number == 3:
        return i32(buf, rl.FLAG)
    if number == 4:
        return pull.broker_name
    if number == 5:
        return i32(buf, rl.QUEUE_ID) if pull.queue_id < 0 else pull.queue_id
    if number == 6:
        return stored.queue_offset
    if number == 7:
        return i64(buf, rl.PHYSICAL_OFFSET)
    if number == 8:
        return stored.sys_flag
    if number == 9:
        return i64(buf, rl.BORN_TIMESTAMP)
    if number == 10:
        return rest[rl.BORN_HOST : rl.store_timestamp_at(stored.sys_flag)]
    if number == 11:
        return i64(buf, rl.store_timestamp_at(stored.sys_flag))
    if number == 12:
        return rest[rl.store_timestamp_at(stored.sys_flag) + 8 : rl.reconsume_times_at(stored.sys_flag)]
    if number == 13:
        return i32(buf, rl.reconsume_times_at(stored.sys_flag))
    if number == 14:
        return i64(buf, rl.reconsume_times_at(stored.sys_flag) + 4)
    if number == 15:
        return u32(buf, rl.BODY_CRC)
    if number == 16:
        return stored.size
    return 1 if u32(buf, rl.MAGIC) == rl.MAGIC_V1 else 2


@cython.cfunc
def _body(message: object, stored: Stored, number: cython.int):
    """Return the body (field 1) or its fault (18). A compressed body is inflated once, for both; the one that somebody
    has set stays."""
    if stored.packed is None:
        return b"" if number == 1 else ""  # the attribute `body` was deleted
    body, fault = inflated(stored.packed, stored.sys_flag)
    if number == 1:
        if not _has_fault(message):
            message.body_fault = fault
        return body
    if not _has_body(message):
        message.body = body
    return fault


@cython.cfunc
def _has_body(message: object) -> cython.bint:
    if cython.compiled:
        return slot_is_set(message, _BODY_AT)
    return _is_set(MessageExt.body, message)


@cython.cfunc
def _has_fault(message: object) -> cython.bint:
    if cython.compiled:
        return slot_is_set(message, _FAULT_AT)
    return _is_set(MessageExt.body_fault, message)


def _is_set(slot, message: object):
    # type: (object, object) -> bool
    """Return whether a slot of a message holds something."""
    try:
        slot.__get__(message)
    except AttributeError:
        return False
    return True


@cython.cfunc
def _all_properties(stored: Stored, buf: cython.p_uchar, end: cython.Py_ssize_t) -> dict:
    at: cython.Py_ssize_t = stored.body_at
    if u32(buf, rl.MAGIC) == rl.MAGIC_V1:
        at += 1 + buf[at]
    else:
        at += 2 + i16(buf, at)
    properties: dict = _properties(buf, at + 2, end)
    stored.pull._fill(properties)
    if stored.started is not None:
        properties[PROPERTY_CONSUME_START_TIMESTAMP] = stored.started
    stored.has_properties = True
    return properties


@cython.cfunc
def _properties(buf: cython.p_uchar, p: cython.Py_ssize_t, end: cython.Py_ssize_t) -> dict:
    """Decode the pairs of a property text as `decode_properties` does."""
    properties: dict = {}
    behind: cython.Py_ssize_t
    mark: cython.Py_ssize_t
    while p < end:
        behind = find_byte(buf, p, end, 2)
        mark = find_byte(buf, p, behind, 1)
        if p < mark < behind - 1:
            properties[_text(buf, p, mark)] = _text(buf, mark + 1, behind)
        p = behind + 1
    return properties


@cython.cfunc
def _has_tag(buf: cython.p_uchar, p: cython.Py_ssize_t, end: cython.Py_ssize_t, tags: object) -> cython.bint:
    """Return whether the last TAGS of a property text is one of `tags`."""
    found: cython.Py_ssize_t = -1
    found_end: cython.Py_ssize_t = 0
    behind: cython.Py_ssize_t
    while p < end:
        behind = find_byte(buf, p, end, 2)
        if behind - p > 5 and buf[p] == 0x54 and buf[p + 1] == 0x41 and buf[p + 2] == 0x47 and buf[p + 3] == 0x53:
            if buf[p + 4] == 1:
                found, found_end = p + 5, behind
        p = behind + 1
    return found >= 0 and _text(buf, found, found_end) in tags


def decode_property_text(data: bytes):
    # type: (...) -> dict[str, str]
    """Decode the pairs of a property text as `decode_properties` does."""
    buf: cython.p_uchar
    if cython.compiled:
        buf = cython.cast(cython.p_uchar, data)
    else:
        buf = data
    return _properties(buf, 0, len(data))


@cython.final
@cython.cclass
class PulledRecords:
    """The messages of one pull as their records, of which none has become an object yet.

    They are whole records of single messages, back to back, whose queue offsets ascend; `keep_records` has checked
    them.

    Attributes:
        pull: what they have in common.
        size: bytes of the records together.
        count: records.
        first_offset, last_offset: queue offsets of the first and the last record.
    """

    def __init__(self):
        raise TypeError("keep_records makes these")

    def __len__(self):
        # type: (...) -> int
        return self.count

    def messages(self):
        # type: (...) -> list[MessageExt]
        """Decode the records to messages, in the order of the queue."""
        return _walk(self.view, self.pull, None, True, False)

    def split(self, count: cython.Py_ssize_t):
        # type: (...) -> tuple[PulledRecords, PulledRecords]
        """Return the first `count` records, which are not all, and the others."""
        buf: cython.p_uchar
        p: cython.Py_ssize_t = 0
        last: cython.longlong = self.first_offset
        if cython.compiled:
            buf = cython.cast(cython.p_uchar, cython.address(self.view[0]))
        else:
            buf = self.view
        for _ in range(count):
            last = i64(buf, p + rl.QUEUE_OFFSET)
            p += u32(buf, p)
        next_offset: cython.longlong = i64(buf, p + rl.QUEUE_OFFSET)
        return (
            _kept(self.view[:p], self.pull, count, self.first_offset, last),
            _kept(self.view[p:], self.pull, self.count - count, next_offset, self.last_offset),
        )

    def data(self):
        # type: (...) -> bytes
        """Return a copy of the encoded records, back to back."""
        return bytes(self.view)


def read_records(
    data: cython.const[cython.uchar][::1],  # type: bytes | bytearray | memoryview
    pull: Pull,
    tags=None,  # type: Container[str] | None
):
    # type: (...) -> list[MessageExt] | None
    """Decode the messages of a pull.

    Args:
        data: records, back to back.
        pull: what they have in common; the messages keep it.
        tags: only messages with one of these tags; None: all.

    Returns:
        The messages. None: there is something else than whole, single messages; `decode_records` knows.
    """
    return _walk(data, pull, tags, True, False)


def keep_records(
    data: cython.const[cython.uchar][::1],  # type: bytes | bytearray | memoryview
    pull: Pull,
    tags=None,  # type: Container[str] | None
    is_given: cython.bint = False,
):
    # type: (...) -> PulledRecords | None
    """Check the records of a pull as `read_records` does, and keep them. Arguments and None are its own; None also if
    queue offsets do not ascend.

    Args:
        is_given: nobody will write to `data` any more: it is kept, not copied.
    """
    return _walk(data, pull, tags, False, is_given)


@cython.cfunc
def _walk(
    data: cython.const[cython.uchar][::1],
    pull: Pull,
    tags: object,
    makes_messages: cython.bint,
    is_given: cython.bint,
):
    """Walk over the records; returns the list of their messages, or PulledRecords."""
    buf: cython.p_uchar
    p: cython.longlong = 0
    end: cython.longlong = len(data)
    total: cython.longlong
    body_size: cython.longlong
    at: cython.longlong  # from here on: position in the record
    body_at: cython.Py_ssize_t
    topic_at: cython.longlong
    first_topic: cython.longlong = -1
    first_size: cython.longlong = 0
    topic_size: cython.longlong
    size: cython.int
    sys_flag: cython.int
    magic: cython.uint
    has_one_topic: cython.bint = True
    messages: list = []
    parts: list = []  # pieces of the bytes that are kept, with the tags
    kept_from: cython.longlong = 0
    count: cython.Py_ssize_t = 0
    offset: cython.longlong
    first_offset: cython.longlong = 0
    last_offset: cython.longlong = 0
    if end == 0:
        return messages if makes_messages else _kept(b"", pull, 0, 0, 0)
    if cython.compiled:
        buf = cython.cast(cython.p_uchar, cython.address(data[0]))
    else:
        buf = memoryview(data)
    while p < end:
        if end - p < rl.MIN_RECORD_SIZE:
            return None
        total = u32(buf, p)
        magic = u32(buf, p + rl.MAGIC)
        sys_flag = i32(buf, p + rl.SYS_FLAG)
        body_at = rl.body_size_at(sys_flag) + 4
        if total > end - p or total < body_at + 3 or sys_flag & _BATCH == _BATCH:
            return None
        body_size = i32(buf, p + body_at - 4)
        at = body_at + body_size
        if body_size < 0 or at + 3 > total:
            return None
        if magic == rl.MAGIC_V1:
            topic_at = at + 1
            topic_size = buf[p + at]
            if topic_size > 127:
                return None
        elif magic == rl.MAGIC_V2:
            topic_at = at + 2
            topic_size = i16(buf, p + at)
        else:
            return None
        at = topic_at + topic_size
        if topic_size < 0 or at + 2 > total:
            return None
        size = i16(buf, p + at)
        at += 2
        if size < 0 or at + size != total:
            return None
        if first_topic < 0:
            first_topic, first_size = p + topic_at, topic_size
        elif has_one_topic:
            has_one_topic = first_size == topic_size and _are_same(buf, first_topic, p + topic_at, topic_size)
        if tags is None or _has_tag(buf, p + at, p + total, tags):
            if makes_messages:
                messages.append(_message(buf, p, total, body_at, body_size, sys_flag, pull))
            offset = i64(buf, p + rl.QUEUE_OFFSET)
            if count == 0:
                first_offset = offset
            elif offset <= last_offset and not makes_messages:
                return None
            last_offset = offset
            count += 1
        elif not makes_messages:
            parts.append(take_bytes(buf, kept_from, p - kept_from))
            kept_from = p + total
        p += total
    pull._has_one_topic = has_one_topic
    if makes_messages:
        return messages
    if parts or not is_given:
        rest: bytes = take_bytes(buf, kept_from, end - kept_from)
        return _kept(b"".join([*parts, rest]) if parts else rest, pull, count, first_offset, last_offset)
    return _kept(data, pull, count, first_offset, last_offset)


@cython.cfunc
def _kept(
    data: cython.const[cython.uchar][::1],
    pull: Pull,
    count: cython.Py_ssize_t,
    first_offset: cython.longlong,
    last_offset: cython.longlong,
) -> PulledRecords:
    records: PulledRecords = PulledRecords.__new__(PulledRecords)
    records.view, records.pull, records.size, records.count = data, pull, len(data), count
    records.first_offset, records.last_offset = first_offset, last_offset
    return records


@cython.cfunc
@cython.inline
def _are_same(buf: cython.p_uchar, a: cython.longlong, b: cython.longlong, size: cython.longlong) -> cython.bint:
    if cython.compiled:
        return memcmp(buf + a, buf + b, size) == 0
    return buf[a : a + size] == buf[b : b + size]


@cython.cfunc
def _message(
    buf: cython.p_uchar,
    p: cython.longlong,
    total: cython.longlong,
    body_at: cython.Py_ssize_t,
    body_size: cython.longlong,
    sys_flag: cython.int,
    pull: Pull,
):
    stored: Stored
    rest: bytes
    message: object
    behind: cython.longlong = body_at + body_size
    body: bytes = take_bytes(buf, p + body_at, body_size)
    if cython.compiled:
        rest = PyBytes_FromStringAndSize(cython.NULL, total - body_size)
        copy_bytes(cython.cast(cython.p_uchar, rest), 0, buf, p, body_at)
        copy_bytes(cython.cast(cython.p_uchar, rest), body_at, buf, p + behind, total - behind)
        stored = Stored.__new__(Stored)
        message = new(_KIND)
        untrack(message)  # the object holds no references that the cycle collector would have to follow
    else:
        rest = bytes(buf[p : p + body_at]) + bytes(buf[p + behind : p + total])
        stored = Stored()
        stored.packed = stored.started = None
        stored.has_properties = False
        message = object.__new__(ReceivedMessage)
    stored.rest = rest
    stored.pull = pull
    stored.queue_offset = i64(buf, p + rl.QUEUE_OFFSET) + pull.offset_delta
    stored.size = total
    stored.sys_flag = sys_flag
    stored.body_at = body_at
    if cython.compiled:
        set_slot(message, _STORED_AT, stored)
    else:
        message._stored = stored
    if sys_flag & _COMPRESSED:
        stored.packed = body
    elif cython.compiled:
        set_slot(message, _BODY_AT, body)
        set_slot(message, _FAULT_AT, "")
    else:
        message.body, message.body_fault = body, ""
    return message


# --- what consumers do with each message -----------------------------------------------------------------------------


def mark_started(
    messages,  # type: Sequence[MessageExt]
    started: str,
):
    # type: (...) -> None
    """Set the property CONSUME_START_TIME of each message; those whose properties nobody has read get it with them."""
    stored: Stored
    for message in messages:
        stored = stored_of(message)
        if stored is None or stored.has_properties:
            message.properties[PROPERTY_CONSUME_START_TIMESTAMP] = started
        else:
            stored.started = started


def show_own_topics(
    messages,  # type: Sequence[MessageExt]
    retry_topic: str,
):
    # type: (...) -> None
    """Give messages of the retry topic the topic that they were sent to."""
    stored: Stored
    known: Pull = None  # of all its messages, which have one other topic
    for message in messages:
        stored = stored_of(message)
        if stored is not None and known is not None and stored.pull is known:
            continue
        if message.topic == retry_topic:
            message.topic = message.properties.get(PROPERTY_RETRY_TOPIC, retry_topic)
        elif stored is not None and stored.pull._has_one_topic:
            known = stored.pull
