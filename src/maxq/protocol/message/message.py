"""Messages, stored records and batch bodies; the layout of both is in record_layout.py.

Source:
    common/message/{Message,MessageExt,MessageDecoder}.java.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Final

from maxq.errors import LocalProtocolError, RemoteProtocolError
from maxq.lazy_dataclass import dataclass
from maxq.protocol.frame.batches_cy import count_records
from maxq.protocol.message import message_const as const
from maxq.protocol.message.compression import compression_type, decompress
from maxq.protocol.message.message_id import (
    UniqIdGenerator,
    decode_host,
    decode_message_id,
    encode_host,
    host_text,
    offset_message_id,
)
from maxq.protocol.message.message_properties import decode_properties, encode_properties
from maxq.protocol.message.message_sys_flag import MessageSysFlag
from maxq.protocol.message.record_layout import BATCH_RECORD_SIZE, FIXED_SIZE, HOSTS_V6, MAGIC_V1, MAGIC_V2, host_bits

__all__ = [
    "PROPERTIES_MAX_LENGTH", "Message", "MessageExt", "MessageSysFlag",
    "UniqIdGenerator", "crc31", "decode_batch", "decode_host", "decode_message_id", "decode_properties",
    "decode_record", "decode_records", "encode_batch", "encode_host", "encode_properties", "encode_record", "host_text",
    "inflated", "offset_message_id",
]  # fmt: skip

PROPERTIES_MAX_LENGTH: Final = 32767

# smaller values are no times in ms: this is in March 1973; in seconds it would be the year 5138
_NO_MOMENT_MS: Final = 100_000_000_000
_HEAD: Final = struct.Struct(">IIIiiqqiq")  # total size … born timestamp, 48 bytes
_MIDDLE: Final = struct.Struct(">iq")  # reconsume times, prepared transaction offset
_BATCH_HEAD: Final = struct.Struct(">iiiii")


def crc31(data: bytes | bytearray | memoryview) -> int:
    """Return the CRC-32 with bit 31 cleared; 0 for no bytes (UtilAll.crc32)."""
    return zlib.crc32(data) & 0x7FFFFFFF


@dataclass(slots=True)
class Message:
    """A message for sending.

    Attributes:
        topic: where it goes.
        body: its content, bytes; maxq.client.serializers makes them of other values.
        properties: of the application (`put_user_property`) and of the system (TAGS, KEYS, DELAY, …) together.
        flag: a number of the application's own.
    """

    topic: str
    body: bytes = b""
    properties: dict[str, str] = field(default_factory=dict)
    flag: int = 0

    @property
    def tags(self) -> str | None:
        """Return the TAGS property: the one tag by which consumers select the message; None without a tag."""
        return self.properties.get(const.PROPERTY_TAGS)

    @tags.setter
    def tags(self, value: str) -> None:
        if not isinstance(value, str):
            raise _wrong("tags", "a text (str); a message has one tag", value)
        self.properties[const.PROPERTY_TAGS] = value

    @property
    def keys(self) -> str | None:
        """Return the KEYS property: keys with blanks between them. Set it to a text, or to several keys."""
        return self.properties.get(const.PROPERTY_KEYS)

    @keys.setter
    def keys(self, value: str | Iterable[str]) -> None:
        if not isinstance(value, str):
            if not isinstance(value, Iterable):
                raise _wrong("keys", "a text (str), or a list of them", value)
            value = list(value)
            for key in value:
                if not isinstance(key, str):
                    raise _wrong("a key", "a text (str)", key)
                if const.KEY_SEPARATOR in key:
                    raise LocalProtocolError(
                        f"the key {key!r} has a blank, which separates keys: it would be found as "
                        f"{len(key.split())} keys; write it without, or give the keys one by one"
                    )
            value = const.KEY_SEPARATOR.join(value)
        self.properties[const.PROPERTY_KEYS] = value

    @property
    def uniq_key(self) -> str | None:
        """Return the message id that the client gave (UNIQ_KEY)."""
        return self.properties.get(const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX)

    @property
    def transaction_id(self) -> str | None:
        """Return the id of the message's transaction, which is the id that its producer gave the message."""
        return self.properties.get(const.PROPERTY_TRANSACTION_ID) or self.uniq_key

    @property
    def delay_level(self) -> int:
        """Return the DELAY property; 0 if absent or not a number."""
        return _int_property(self.properties, const.PROPERTY_DELAY_TIME_LEVEL)

    @delay_level.setter
    def delay_level(self, level: int) -> None:
        _check_whole("delay_level", level, "levels begin with 1; 0 delivers at once")
        self.properties[const.PROPERTY_DELAY_TIME_LEVEL] = str(level)

    @property
    def delay_time_ms(self) -> int:
        """Return the delay in ms after the broker got the message; 0: none. On the wire TIMER_DELAY_MS, or
        TIMER_DELAY_SEC."""
        seconds = _int_property(self.properties, const.PROPERTY_TIMER_DELAY_SEC)
        return seconds * 1000 or _int_property(self.properties, const.PROPERTY_TIMER_DELAY_MS)

    @delay_time_ms.setter
    def delay_time_ms(self, delay_ms: int) -> None:
        _check_whole("delay_time_ms", delay_ms, "the unit is the millisecond")
        self.properties.pop(const.PROPERTY_TIMER_DELAY_SEC, None)
        self.properties[const.PROPERTY_TIMER_DELAY_MS] = str(delay_ms)

    @property
    def deliver_time_ms(self) -> int:
        """Return the time of delivery, ms since 1970; 0: at once. A delay has priority.

        A moment before 1973 is refused, because it was given in seconds.
        """
        return _int_property(self.properties, const.PROPERTY_TIMER_DELIVER_MS)

    @deliver_time_ms.setter
    def deliver_time_ms(self, wall_ms: int) -> None:
        _check_whole("deliver_time_ms", wall_ms, "milliseconds since 1970: int(time.time() * 1000) is now")
        if 0 < wall_ms < _NO_MOMENT_MS:
            raise LocalProtocolError(
                f"deliver_time_ms = {wall_ms} is a moment before 1973: the unit is the millisecond; if these are "
                "seconds, multiply by 1000"
            )
        self.properties[const.PROPERTY_TIMER_DELIVER_MS] = str(wall_ms)

    @property
    def wait_store_msg_ok(self) -> bool:
        """Return whether the send waits for flush and replication; true unless the property says otherwise."""
        return self.properties.get(const.PROPERTY_WAIT_STORE_MSG_OK, "true").lower() == "true"

    @wait_store_msg_ok.setter
    def wait_store_msg_ok(self, wait: bool) -> None:
        if not isinstance(wait, bool):
            raise _wrong("wait_store_msg_ok", "True or False", wait)
        self.properties[const.PROPERTY_WAIT_STORE_MSG_OK] = "true" if wait else "false"

    def put_user_property(self, name: str, value: str) -> None:
        """Set one property of the application.

        Raises:
            LocalProtocolError: the name belongs to the system, or name or value is empty, no str, or has one of the
                characters that separate properties on the wire (U+0001 and U+0002).
        """
        if name in const.RESERVED_PROPERTIES:
            raise LocalProtocolError(f"the property {name!r} is used by the system, choose another name")
        if not name or not value:
            raise LocalProtocolError("the name or value of a property can not be empty")
        encode_properties({name: value})
        self.properties[name] = value


@dataclass(slots=True)
class MessageExt(Message):
    """A stored message. `body` is as stored unless it was decoded with `inflate`. `body_fault` says why the body is as
    stored in spite of that: its producer marked it as compressed, and it is not, or inflates to more than 64 MiB."""

    broker_name: str = ""  # not on disk: set by the client that pulled it
    queue_id: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: bytes = bytes(8)  # packed: address, int32 port
    store_timestamp: int = 0
    store_host: bytes = bytes(8)
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    body_crc: int = 0
    store_size: int = 0  # bytes of the whole record
    version: int = 1  # 1 or 2: which magic the record has
    body_fault: str = ""  # not on disk

    @property
    def offset_msg_id(self) -> str:
        """Return the offset message id, which contains the message's place."""
        return offset_message_id(self.store_host, self.physical_offset)

    @property
    def msg_id(self) -> str:
        """Return the id that Java's clients show: the unique key if there is one, else the offset id."""
        return self.uniq_key or self.offset_msg_id

    @property
    def born_host_text(self) -> str:
        """Return the sender's address and port as the broker saw them."""
        return host_text(self.born_host)

    @property
    def store_host_text(self) -> str:
        """Return the address and port of the broker that stored the message."""
        return host_text(self.store_host)


def _wrong(name: str, expected: str, value: object) -> LocalProtocolError:
    return LocalProtocolError(f"{name} is {expected}, not {value!r:.60}")


def _check_whole(name: str, value: int, remedy: str) -> None:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise LocalProtocolError(f"{name} is a whole number (int) of at least 0, not {value!r:.60}; {remedy}")


def _int_property(properties: dict[str, str], name: str) -> int:
    text = properties.get(name, "")
    digits = text[1:] if text[:1] in ("-", "+") else text
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) <= 18 else 0


# --- stored records --------------------------------------------------------------------------------------------------


def encode_record(message: MessageExt, properties: bytes | None = None) -> bytes:
    """Encode one stored record. The IPv6 bits follow the hosts' lengths; V2 is chosen for a topic over 127 bytes.

    Args:
        message: body as it is to be stored.
        properties: property text to store as it is; None encodes `message.properties`.

    Raises:
        LocalProtocolError: topic or properties over 32767 bytes.
    """
    topic = message.topic.encode()
    text = encode_properties(message.properties).encode() if properties is None else properties
    if len(text) > PROPERTIES_MAX_LENGTH:
        raise LocalProtocolError(f"properties of {len(text)} bytes; a record holds {PROPERTIES_MAX_LENGTH}")
    if len(topic) > 32767:
        raise LocalProtocolError(f"a topic of {len(topic)} bytes; a record holds 32767")
    wide = len(topic) > 127 or message.version == 2
    sys_flag = message.sys_flag & ~HOSTS_V6 | host_bits(len(message.born_host), len(message.store_host))
    topic_head = struct.pack(">H", len(topic)) if wide else bytes((len(topic),))
    total = FIXED_SIZE + len(message.born_host) + len(message.store_host) + len(message.body)
    total += len(topic_head) - 1 + len(topic) + len(text)
    head = _HEAD.pack(
        total, MAGIC_V2 if wide else MAGIC_V1, crc31(message.body), message.queue_id, message.flag,
        message.queue_offset, message.physical_offset, sys_flag, message.born_timestamp,
    )  # fmt: skip
    return b"".join((
        head, message.born_host, struct.pack(">q", message.store_timestamp), message.store_host,
        _MIDDLE.pack(message.reconsume_times, message.prepared_transaction_offset),
        struct.pack(">i", len(message.body)), message.body, topic_head, topic, struct.pack(">h", len(text)), text,
    ))  # fmt: skip


def decode_record(
    data: bytes | bytearray | memoryview, position: int = 0, *, inflate: bool = False, check_crc: bool = False
) -> MessageExt:
    """Decode the record that starts at `position`; `store_size` says where the next one starts.

    Args:
        inflate: decompress the body if the flag says it is compressed. A body that does not decompress stays as it is,
            and `body_fault` says why: any producer may set the flag, and one message must not keep readers from others.
        check_crc: compare the body with its CRC.

    Raises:
        RemoteProtocolError: not a whole record; names what does not fit.
    """
    view = memoryview(data)[position:]
    try:
        return _decode_record(view, inflate, check_crc)
    except (struct.error, IndexError):
        raise RemoteProtocolError(f"a record at byte {position} is cut short: {len(view)} bytes are there") from None


def _decode_record(view: memoryview, inflate: bool, check_crc: bool) -> MessageExt:
    total, magic, body_crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born = _HEAD.unpack_from(view)
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise RemoteProtocolError(f"magic code {magic:#010x} is not that of a message")
    if total > len(view):
        raise RemoteProtocolError(f"a record says {total} bytes, {len(view)} are there")
    view = view[:total]
    at = 48
    born_host, at = _take(view, at, 20 if sys_flag & MessageSysFlag.BORN_HOST_V6 else 8)
    (store_timestamp,) = struct.unpack_from(">q", view, at)
    store_host, at = _take(view, at + 8, 20 if sys_flag & MessageSysFlag.STORE_HOST_V6 else 8)
    reconsume_times, prepared = _MIDDLE.unpack_from(view, at)
    (size,) = struct.unpack_from(">i", view, at + 12)
    body, at = _take(view, at + 16, size)
    if magic == MAGIC_V1:
        topic, at = _take(view, at + 1, struct.unpack_from(">b", view, at)[0])
    else:
        (size,) = struct.unpack_from(">h", view, at)
        topic, at = _take(view, at + 2, size)
    (size,) = struct.unpack_from(">h", view, at)
    properties, at = _take(view, at + 2, size)
    if at != total:
        raise RemoteProtocolError(f"a record says {total} bytes, its parts are {at}")
    if check_crc and body_crc != crc31(body):
        raise RemoteProtocolError(f"body CRC {crc31(body):#010x}, the record says {body_crc:#010x}")
    fault = ""
    if inflate and sys_flag & MessageSysFlag.COMPRESSED:
        body, fault = inflated(body, sys_flag)
    return MessageExt(
        str(topic, "utf-8", "replace"), body, decode_properties(properties), flag, "", queue_id, queue_offset,
        physical_offset, sys_flag, born, born_host, store_timestamp, store_host, reconsume_times, prepared, body_crc,
        total, 1 if magic == MAGIC_V1 else 2, fault,
    )  # fmt: skip


def inflated(body: bytes, sys_flag: int) -> tuple[bytes, str]:
    """Decompress a body whose flag says that it is compressed; returns it and no fault, or the body unchanged and the
    fault."""
    try:
        return decompress(body, compression_type(sys_flag)), ""
    except RemoteProtocolError as error:
        return body, str(error)


def _take(view: memoryview, at: int, size: int) -> tuple[bytes, int]:
    if size < 0 or at + size > len(view):
        raise RemoteProtocolError(f"a part of {size} bytes at byte {at} passes the {len(view)} bytes of the record")
    return bytes(view[at : at + size]), at + size


def decode_records(
    data: bytes | bytearray | memoryview, *, inflate: bool = False, check_crc: bool = False, broker_name: str = ""
) -> list[MessageExt]:
    """Decode all records of the body of a pull, pop or query, which lie back to back.

    Raises:
        RemoteProtocolError: an invalid record, or bytes left over.
    """
    messages: list[MessageExt] = []
    position, end = 0, len(data)
    while position < end:
        message = decode_record(data, position, inflate=inflate, check_crc=check_crc)
        message.broker_name = broker_name
        messages.append(message)
        position += message.store_size
    return messages


# --- batch bodies ----------------------------------------------------------------------------------------------------


def encode_batch(messages: Iterable[Message]) -> bytes:
    """Encode the body of a batch send: of each message flag, body and properties.

    Raises:
        LocalProtocolError: properties of a message over 32767 bytes.
    """
    parts: list[bytes] = []
    for message in messages:
        text = encode_properties(message.properties).encode()
        if len(text) > PROPERTIES_MAX_LENGTH:
            raise LocalProtocolError(f"properties of {len(text)} bytes; a batch record holds {PROPERTIES_MAX_LENGTH}")
        size = BATCH_RECORD_SIZE + len(message.body) + len(text)
        parts += (
            _BATCH_HEAD.pack(size, 0, 0, message.flag, len(message.body)),
            message.body,
            struct.pack(">h", len(text)),
            text,
        )
    return b"".join(parts)


#: Messages in one batch: INNER_NUM of batch queues is a 16-bit number, and a server's loop stands while it stores them.
BATCH_MOST: Final = 32_767


#: … if each message is examined by itself, some 10 µs each, because the store or a check needs more than its bytes.
BATCH_MOST_BY_ITSELF: Final = 3_000
#: … and most properties of such messages together, some 0.5 µs each.
BATCH_PROPERTIES_BY_ITSELF: Final = 50_000


def batch_count(data: bytes | bytearray | memoryview) -> int:
    """Return how many records a batch body has; BATCH_MOST + 1 stands for more than BATCH_MOST.

    Raises:
        RemoteProtocolError: an invalid record, or bytes left over.
    """
    count, position = count_records(data, BATCH_MOST + 1)
    if count <= BATCH_MOST and position < len(data):
        _decode_batch_record(memoryview(data), position, "")  # raises with the reason
    return count


def decode_batch(data: bytes | bytearray | memoryview, topic: str) -> list[Message]:
    """Decode the messages of a batch body, all with `topic`. The size field decides where the next record starts.

    Raises:
        RemoteProtocolError: an invalid record, or bytes left over.
    """
    return list(each_of_batch(data, topic))


def decode_inner_batch(message: MessageExt) -> list[Message]:
    """Decode the messages of an inner batch, whose body is not compressed any more. Empty: it is wrongly marked as one,
    or its body is unreadable, and its `body_fault` says why."""
    if message.body_fault:
        return []
    try:
        found = decode_batch(message.body, message.topic)
    except RemoteProtocolError as error:
        message.body_fault = str(error)
        return []
    if not found:
        message.body_fault = "the body is marked as a batch, and has no message"
    return found


def each_of_batch(data: bytes | bytearray | memoryview, topic: str) -> Iterator[Message]:
    """Yield the messages of `decode_batch` one after the other. Raises the same error when it reaches it."""
    view = memoryview(data)
    position = 0
    while position < len(view):
        message, size = _decode_batch_record(view, position, topic)
        yield message
        position += size


def _decode_batch_record(view: memoryview, position: int, topic: str) -> tuple[Message, int]:
    """Return the message at `position` of a batch body, and the bytes of its record."""
    if len(view) - position < BATCH_RECORD_SIZE:
        raise RemoteProtocolError(f"a batch record at byte {position} is cut short")
    size, _, _, flag, body_size = _BATCH_HEAD.unpack_from(view, position)
    if size < BATCH_RECORD_SIZE or size > len(view) - position:
        raise RemoteProtocolError(f"a batch record at byte {position} says {size} bytes")
    record = view[position : position + size]
    body, at = _take(record, 20, body_size)
    if at + 2 > size:
        raise RemoteProtocolError(f"a batch record at byte {position} has no room for its properties")
    (properties_size,) = struct.unpack_from(">h", record, at)
    properties, at = _take(record, at + 2, properties_size)
    if at != size:
        raise RemoteProtocolError(f"a batch record at byte {position} says {size} bytes, its parts are {at}")
    return Message(topic, body, decode_properties(properties), flag), size
