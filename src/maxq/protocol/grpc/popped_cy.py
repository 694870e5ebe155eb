"""Popped messages for gRPC clients, from record to bytes: what `grpc_message` (maxq.proxy) makes by protobuf's objects.

The fields are written in the order of their numbers, as protobuf does. What is unusual (a damaged record, a compressed
body, an inner batch, a dead letter, text that is no UTF-8, the receipt of an older broker) is left to that function,
and with it the whole answer.

Source:
    proxy/grpc/v2/common/GrpcConverter.java; the numbers of the fields are those of definition.proto.
"""

import hashlib
from typing import TYPE_CHECKING

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.maxq.protocol.message import record_layout as rl
    from cython.cimports.maxq.runtime.buffers import find_byte, i16, i32, i64, take_bytes, u32
else:
    from maxq.protocol.message import record_layout as rl
    from maxq.runtime.buffers import find_byte, i16, i32, i64, take_bytes, u32

from maxq.protocol.grpc.popped import Popped
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message_id import host_text, offset_message_id

if TYPE_CHECKING:
    from collections.abc import Mapping

_UNUSUAL_FLAGS = cython.declare(cython.int, 0x1 | 0x80 | 0x40)  # compressed, a batch
_NAME_END = cython.declare(cython.int, 1)
_VALUE_END = cython.declare(cython.int, 2)

# What properties mean, by name: a number of these, 0 for those that are not shown, and none for those of users.
_HIDDEN = cython.declare(cython.int, 0)
_TAG = cython.declare(cython.int, 1)
_KEYS = cython.declare(cython.int, 2)
_ID = cython.declare(cython.int, 3)
_BORN_HOST = cython.declare(cython.int, 4)
_GROUP = cython.declare(cython.int, 5)
_TRACE = cython.declare(cython.int, 6)
_PREPARED = cython.declare(cython.int, 7)
_DELAY = cython.declare(cython.int, 8)
_UNUSUAL = cython.declare(cython.int, 9)
_MEANINGS: dict = {name.encode(): 0 for name in const.RESERVED_PROPERTIES} | {
    const.PROPERTY_TAGS.encode(): 1,
    const.PROPERTY_KEYS.encode(): 2,
    const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX.encode(): 3,
    const.PROPERTY_BORN_HOST.encode(): 4,
    const.PROPERTY_SHARDING_KEY.encode(): 5,
    const.PROPERTY_TRACE_CONTEXT.encode(): 6,
    const.PROPERTY_TRANSACTION_PREPARED.encode(): 7,
    const.PROPERTY_DELAY_TIME_LEVEL.encode(): 8,
    const.PROPERTY_TIMER_DELAY_SEC.encode(): 8,
    const.PROPERTY_TIMER_DELAY_MS.encode(): 8,
    const.PROPERTY_TIMER_DELIVER_MS.encode(): 9,
    const.PROPERTY_POP_CK.encode(): 9,
    const.PROPERTY_DLQ_ORIGIN_TOPIC.encode(): 9,
    const.PROPERTY_INNER_MULTI_DISPATCH.encode(): 9,
    const.PROPERTY_LITE_TOPIC.encode(): 9,
    const.PROPERTY_PRIORITY.encode(): 9,
}
_TRANSACTION = cython.declare(cython.int, 4)
_DELAYED = cython.declare(cython.int, 3)
_FIFO = cython.declare(cython.int, 2)
_NORMAL = cython.declare(cython.int, 1)
_RETRY = cython.declare(bytes, b"%RETRY%")
_ONE: list = [bytes([number]) for number in range(256)]


@cython.cfunc
def _varint(value: cython.ulonglong) -> bytes:
    out: bytes = b""
    while value >= 0x80:
        out += _ONE[value & 0x7F | 0x80]
        value >>= 7
    return out + _ONE[value] if out else _ONE[value]


@cython.cfunc
def _put(out: bytearray, field: cython.int, data: bytes):
    """Write a field of bytes, text or another message."""
    out += _varint(field << 3 | 2)
    out += _varint(len(data))
    out += data


@cython.cfunc
def _put_number(out: bytearray, field: cython.int, value: cython.longlong):
    """Write a field of a number, which is not negative."""
    out += _varint(field << 3)
    out += _varint(value)


@cython.cfunc
def _put_moment(out: bytearray, field: cython.int, wall_ms: cython.longlong):
    """Write a field of a Timestamp; a number of 0 in it is left out."""
    moment: bytearray = bytearray()
    if wall_ms >= 1000:
        _put_number(moment, 1, wall_ms // 1000)
    if wall_ms % 1000:
        _put_number(moment, 2, wall_ms % 1000 * 1000000)
    _put(out, field, bytes(moment))


def encode_popped(
    data: cython.const[cython.uchar][::1],  # type: bytes | memoryview
    topic: bytes,
    resource: bytes,
    starts,  # type: Mapping[str, int]
    head: str,
    tail: str,
):
    # type: (...) -> list[Popped] | None
    """Return the messages of a pop of `topic`; None if one of them is unusual.

    Args:
        resource: the topic for gRPC clients, as the bytes of a Resource.
        starts: where the check point of each queue begins, by `retry@queueId`.
        head, tail: of handles: pop time, invisible time and revive queue id, with a blank behind each; and the broker's
            name, with a blank before and behind it.
    """
    buf: cython.p_uchar
    p: cython.longlong = 0
    end: cython.longlong = len(data)
    total: cython.longlong
    magic: cython.uint
    sys_flag: cython.int
    body_at: cython.longlong
    body_size: cython.longlong
    at: cython.longlong
    topic_size: cython.longlong
    size: cython.longlong
    offset: cython.longlong
    physical: cython.longlong
    queue_id: cython.longlong
    found: list = []
    host: bytes
    last_host: bytes = b""
    store_host: bytes = b""
    topic_bytes: bytes
    popped: object
    if end == 0:
        return found
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
        if total > end - p or total < body_at + 3 or sys_flag & (_UNUSUAL_FLAGS | rl.HOSTS_V6):
            return None
        body_size = i32(buf, p + body_at - 4)
        at = body_at + body_size
        if body_size < 0 or at + 3 > total:
            return None
        if magic == rl.MAGIC_V1:
            topic_size = buf[p + at]
            at += 1
            if topic_size > 127:
                return None
        elif magic == rl.MAGIC_V2:
            topic_size = i16(buf, p + at)
            at += 2
        else:
            return None
        if topic_size < 0 or at + topic_size + 2 > total:
            return None
        topic_bytes = take_bytes(buf, p + at, topic_size)
        at += topic_size
        size = i16(buf, p + at)
        at += 2
        if size < 0 or at + size != total:
            return None
        mark: str = "0"
        if topic_bytes != topic:
            if not topic_bytes.startswith(_RETRY):
                return None
            mark = "2" if b"+" in topic_bytes else "1"
        queue_id = i32(buf, p + rl.QUEUE_ID)
        offset = i64(buf, p + rl.QUEUE_OFFSET)
        physical = i64(buf, p + rl.PHYSICAL_OFFSET)
        start: object = starts.get(f"{mark}@{queue_id}")
        if start is None or queue_id < 0 or offset < 0:
            return None
        host = take_bytes(buf, p + rl.BORN_HOST + 16, 8)
        if host != last_host:
            last_host, store_host = host, host_text(host).encode()
        popped = _encode(
            buf, p, body_at, body_size, at, size, queue_id, offset, physical, resource, store_host, host,
            f"{start} {head}{mark}{tail}{queue_id} {offset} {physical}",
        )  # fmt: skip
        if popped is None:
            return None
        found.append(popped)
        p += total
    return found


@cython.cfunc
def _encode(
    buf: cython.p_uchar,
    p: cython.longlong,
    body_at: cython.longlong,
    body_size: cython.longlong,
    properties_at: cython.longlong,
    properties_size: cython.longlong,
    queue_id: cython.longlong,
    offset: cython.longlong,
    physical: cython.longlong,
    resource: bytes,
    store_host: bytes,
    packed_store_host: bytes,
    handle: str,
):
    """Return one message; None: it is unusual."""
    message: bytearray = bytearray()
    system: bytearray = bytearray()
    answer: bytearray = bytearray()
    entry: bytearray
    body: bytes = take_bytes(buf, p + body_at, body_size)
    text: bytes = take_bytes(buf, p + properties_at, properties_size)
    at: cython.longlong = p + properties_at
    end: cython.longlong = at + properties_size
    name_end: cython.longlong
    value_end: cython.longlong
    kind: cython.int = _NORMAL
    meaning: object
    number: cython.int
    name: bytes
    value: bytes
    tag: bytes = None
    keys: bytes = None
    message_id: bytes = None
    born_host: bytes = None
    group: bytes = None
    trace: bytes = None
    reconsume_times: cython.longlong = i32(buf, p + rl.BORN_HOST + 24)
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError:
            return None
    if reconsume_times < 0:
        return None
    _put(message, 1, resource)
    while at < end:
        value_end = find_byte(buf, at, end, _VALUE_END)
        if value_end < 0:
            value_end = end
        name_end = find_byte(buf, at, value_end, _NAME_END)
        if name_end > at and value_end > name_end + 1:
            name = take_bytes(buf, at, name_end - at)
            value = take_bytes(buf, name_end + 1, value_end - name_end - 1)
            meaning = _MEANINGS.get(name)
            if meaning is None:
                entry = bytearray()
                _put(entry, 1, name)
                _put(entry, 2, value)
                _put(message, 2, bytes(entry))
            else:
                number = meaning
                if number == _TAG:
                    tag = value
                elif number == _KEYS:
                    keys = value
                elif number == _ID:
                    message_id = value
                elif number == _BORN_HOST:
                    born_host = value
                elif number == _GROUP:
                    group = value
                elif number == _TRACE:
                    trace = value
                elif number == _PREPARED:
                    if value == b"true":
                        kind = _TRANSACTION
                elif number == _DELAY:
                    if kind != _TRANSACTION:
                        kind = _DELAYED
                elif number == _UNUSUAL:
                    return None
        at = value_end + 1
    if kind == _NORMAL and group is not None:
        kind = _FIFO
    if message_id is None:
        message_id = offset_message_id(packed_store_host, physical).encode()
    if born_host is None:
        born_host = host_text(take_bytes(buf, p + rl.BORN_HOST, 8)).encode()
    if tag is not None:
        _put(system, 1, tag)
    if keys is not None:
        for key in keys.split(b" "):
            _put(system, 2, key)
    _put(system, 3, message_id)
    entry = bytearray(b"\x08\x02")  # MD5
    _put(entry, 2, hashlib.md5(body, usedforsecurity=False).hexdigest().upper().encode())
    _put(system, 4, bytes(entry))
    _put_number(system, 5, 1)  # IDENTITY
    _put_number(system, 6, kind)
    _put_moment(system, 7, i64(buf, p + rl.BORN_TIMESTAMP))
    _put(system, 8, born_host)
    _put_moment(system, 9, i64(buf, p + rl.BORN_HOST + 8))
    _put(system, 10, store_host)
    _put(system, 12, handle.encode())
    if queue_id:
        _put_number(system, 13, queue_id)
    _put_number(system, 14, offset)
    _put_number(system, 16, reconsume_times + 1)
    if group is not None:
        _put(system, 17, group)
    if trace is not None:
        _put(system, 18, trace)
    _put(message, 3, bytes(system))
    if body_size:
        _put(message, 4, body)
    _put(answer, 2, bytes(message))
    return Popped(bytes(answer), handle, message_id.decode(), None if tag is None else tag.decode(), reconsume_times)


def is_compiled() -> bool:
    """Returns whether this module runs compiled by Cython."""
    return cython.compiled
