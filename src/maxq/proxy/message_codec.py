"""Messages of gRPC clients as brokers store them, and back.

Source:
    proxy/grpc/v2/producer/SendMessageActivity.java (buildMessageProperty), proxy/grpc/v2/common/GrpcConverter.java.
"""

import hashlib
import zlib
from collections.abc import Mapping
from typing import Final

from maxq.config.proxy_config import ProxyConfig
from maxq.protocol.grpc import messages as pb
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.message_sys_flag import MessageSysFlag
from maxq.protocol.namespace import DLQ_PREFIX, RETRY_PREFIX
from maxq.proxy.statuses import CallRefusedError
from maxq.proxy.validation import check_tag, has_control_character, milliseconds, timestamp

_GZIP: Final = b"\x1f\x8b"
_MOST_INFLATED: Final = 4  # times the longest body
_TYPE_NAMES: Final[Mapping[int, str]] = {kind: kind.name for kind in pb.MessageType}
_DELAYS: Final = (
    const.PROPERTY_DELAY_TIME_LEVEL,
    const.PROPERTY_TIMER_DELIVER_MS,
    const.PROPERTY_TIMER_DELAY_SEC,
    const.PROPERTY_TIMER_DELAY_MS,
)


def type_of(properties: Mapping[str, str]) -> int:
    """Return the message type that follows from properties."""
    if properties.get(const.PROPERTY_TRANSACTION_PREPARED) == "true":
        return pb.MessageType.TRANSACTION
    if any(name in properties for name in _DELAYS):
        return pb.MessageType.DELAY
    if const.PROPERTY_SHARDING_KEY in properties:
        return pb.MessageType.FIFO
    if const.PROPERTY_PRIORITY in properties:
        return pb.MessageType.PRIORITY
    if const.PROPERTY_LITE_TOPIC in properties:
        return pb.MessageType.LITE
    return pb.MessageType.NORMAL


def type_name(kind: int) -> str:
    """Return the name of a message type, as a topic's attribute says it."""
    return _TYPE_NAMES.get(kind, "MESSAGE_TYPE_UNSPECIFIED")


# --- to brokers ------------------------------------------------------------------------------------------------------


def body_and_flag(message: pb.Message, longest: int, config: ProxyConfig) -> tuple[bytes, int]:
    """Return the body to store and the system flag.

    A body in gzip's format is stored in zlib's, which clients of both protocols read.

    Raises:
        CallRefusedError: MESSAGE_BODY_EMPTY, MESSAGE_BODY_TOO_LARGE, MESSAGE_CORRUPTED.
    """
    body = message.body
    if not body and config.enable_message_body_empty_check:
        raise CallRefusedError(pb.Code.MESSAGE_BODY_EMPTY, "message body cannot be empty")
    if len(body) > longest:
        raise CallRefusedError(pb.Code.MESSAGE_BODY_TOO_LARGE, f"message body cannot exceed the max {longest}")
    system = message.system_properties
    flag = 0
    if system.message_type == pb.MessageType.TRANSACTION:
        flag |= MessageSysFlag.TRANSACTION_PREPARED
    if system.body_encoding == pb.Encoding.GZIP:
        body = _gzip_to_zlib(body, _MOST_INFLATED * longest)
        flag |= MessageSysFlag.COMPRESSED | MessageSysFlag.COMPRESSION_ZLIB
    return body, flag


def _gzip_to_zlib(body: bytes, longest: int) -> bytes:
    """Return a body in gzip's format in zlib's; one that is no gzip as it is, because some clients say so of zlib.

    Args:
        longest: bytes to which it may inflate.
    """
    if body[:2] != _GZIP:
        return body
    inflater, deflater = zlib.decompressobj(wbits=31), zlib.compressobj(1)
    parts, inflated = [], 0
    try:
        while body:
            piece = inflater.decompress(body, 1 << 20)
            inflated += len(piece)
            if inflated > longest:
                raise CallRefusedError(
                    pb.Code.MESSAGE_BODY_TOO_LARGE, f"message body inflates to more than the max {longest}"
                )
            parts.append(deflater.compress(piece))
            body = inflater.unconsumed_tail
        if not inflater.eof:
            raise EOFError("its end is missing")
    except (zlib.error, EOFError) as error:
        raise CallRefusedError(
            pb.Code.MESSAGE_CORRUPTED, f"the body, which is in gzip's format, is damaged: {error}"
        ) from None
    return b"".join(parts) + deflater.flush()


def stored_properties(
    message: pb.Message, producer_group: str, remote_address: str, now_ms: int, config: ProxyConfig
) -> dict[str, str]:
    """Return the properties with which a message is stored.

    Args:
        producer_group: who is asked about a transaction.
        remote_address: where the message comes from, if it does not say.

    Raises:
        CallRefusedError: the message says what it may not say.
    """
    system = message.system_properties
    properties = _user_properties(message, config)
    size = sum(len(name.encode()) + len(value.encode()) for name, value in properties.items())
    tag = system.tag
    if tag:
        check_tag(tag)
        properties[const.PROPERTY_TAGS] = tag
        size += len(tag.encode())
    if system.keys:
        for key in system.keys:
            _check_key(key)
            size += len(key.encode())
        properties[const.PROPERTY_KEYS] = const.KEY_SEPARATOR.join(system.keys)
    if size > config.max_user_property_size:
        raise CallRefusedError(
            pb.Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"the total size of user property is too large, max is {config.max_user_property_size}",
        )
    message_id = system.message_id
    if not message_id.strip():
        raise CallRefusedError(pb.Code.ILLEGAL_MESSAGE_ID, "message id cannot be empty")
    if has_control_character(message_id):
        raise CallRefusedError(pb.Code.ILLEGAL_MESSAGE_ID, "message id cannot contain control character")
    properties[const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX] = message_id
    if system.message_type == pb.MessageType.TRANSACTION:
        _prepare(system, properties, config)
    if system.HasField("delivery_timestamp"):
        deliver_ms = milliseconds(system.delivery_timestamp)
        longest = config.max_delay_time_mills
        if 0 < longest < deliver_ms - now_ms:
            raise CallRefusedError(
                pb.Code.ILLEGAL_DELIVERY_TIME, f"the max delay time of message is too large, max is {longest}"
            )
        properties[const.PROPERTY_TIMER_DELIVER_MS] = str(deliver_ms)
    if system.delivery_attempt:
        properties[const.PROPERTY_RECONSUME_TIME] = str(system.delivery_attempt)
    properties[const.PROPERTY_PRODUCER_GROUP] = producer_group
    if system.message_group:
        _check_message_group(system.message_group, config)
        properties[const.PROPERTY_SHARDING_KEY] = system.message_group
    if system.HasField("priority"):
        if system.priority < 0:
            raise CallRefusedError(pb.Code.BAD_REQUEST, "the priority of a message is not negative")
        properties[const.PROPERTY_PRIORITY] = str(system.priority)
    if system.lite_topic:
        if has_control_character(system.lite_topic):
            raise CallRefusedError(pb.Code.ILLEGAL_LITE_TOPIC, "lite topic cannot contain control character")
        properties[const.PROPERTY_LITE_TOPIC] = system.lite_topic
    if system.trace_context:
        _refuse_control(system.trace_context, "the trace context")
        properties[const.PROPERTY_TRACE_CONTEXT] = system.trace_context
    born_host = system.born_host.strip() or remote_address
    _refuse_control(born_host, "the born host")
    properties[const.PROPERTY_BORN_HOST] = born_host
    if system.HasField("born_timestamp"):
        properties[const.PROPERTY_BORN_TIMESTAMP] = str(milliseconds(system.born_timestamp))
    return properties


def _user_properties(message: pb.Message, config: ProxyConfig) -> dict[str, str]:
    properties = dict(message.user_properties)
    if len(properties) > config.user_property_max_num:
        raise CallRefusedError(
            pb.Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"too many user properties, max is {config.user_property_max_num}",
        )
    for name, value in properties.items():
        if name in const.RESERVED_PROPERTIES:
            raise CallRefusedError(pb.Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property is used by system: {name}")
        for text, what in ((name, "key"), (value, "value")):
            if has_control_character(text):
                raise CallRefusedError(
                    pb.Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"the {what} of property cannot contain control character"
                )
    return properties


def _prepare(system: pb.SystemProperties, properties: dict[str, str], config: ProxyConfig) -> None:
    properties[const.PROPERTY_TRANSACTION_PREPARED] = "true"
    if system.HasField("orphaned_transaction_recovery_duration"):
        seconds = system.orphaned_transaction_recovery_duration.seconds
        longest = config.max_transaction_recovery_second
        if 0 < longest < seconds:
            raise CallRefusedError(
                pb.Code.BAD_REQUEST, f"the max transaction recovery time of message is too large, max is {longest}"
            )
        properties[const.PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS] = str(seconds)


def _check_key(key: str) -> None:
    if key and key.isspace():
        raise CallRefusedError(pb.Code.ILLEGAL_MESSAGE_KEY, "key cannot be the char sequence of whitespace")
    if has_control_character(key):
        raise CallRefusedError(pb.Code.ILLEGAL_MESSAGE_KEY, "key cannot contain control character")


def _check_message_group(group: str, config: ProxyConfig) -> None:
    longest = config.max_message_group_size
    why = ""
    if group.isspace():
        why = "message group cannot be the char sequence of whitespace"
    elif 0 < longest <= len(group.encode()):
        why = f"message group exceed the max size {longest}"
    elif has_control_character(group):
        why = "message group cannot contain control character"
    if why:
        raise CallRefusedError(pb.Code.ILLEGAL_MESSAGE_GROUP, why)


def _refuse_control(text: str, what: str) -> None:
    if has_control_character(text):
        raise CallRefusedError(pb.Code.BAD_REQUEST, f"{what} of a message cannot contain control character")


# --- from brokers ----------------------------------------------------------------------------------------------------


def resource(name: str) -> pb.Resource:
    """Return a topic or group by its name for brokers, with the namespace apart."""
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            namespace, separator, rest = name[len(prefix) :].partition("%")
            return (
                pb.Resource(resource_namespace=namespace, name=prefix + rest) if separator else pb.Resource(name=name)
            )
    namespace, separator, rest = name.partition("%")
    return pb.Resource(resource_namespace=namespace, name=rest) if separator else pb.Resource(name=name)


def grpc_message(message: MessageExt, receipt_handle: str = "") -> pb.Message:
    """Return a stored message for a gRPC client. Its body is already inflated, as far as it could be.

    Args:
        receipt_handle: with which it is acknowledged; empty: none.
    """
    properties = message.properties
    body = message.body
    get = properties.get
    system = pb.SystemProperties(
        message_id=message.msg_id,
        body_digest=pb.Digest(
            type=pb.DigestType.MD5, checksum=hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
        ),
        body_encoding=pb.Encoding.GZIP if message.body_fault and body[:2] == _GZIP else pb.Encoding.IDENTITY,
        message_type=type_of(properties),
        born_timestamp=timestamp(message.born_timestamp),
        born_host=get(const.PROPERTY_BORN_HOST) or message.born_host_text,
        store_timestamp=timestamp(message.store_timestamp),
        store_host=message.store_host_text,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        delivery_attempt=message.reconsume_times + 1,
    )
    if (tag := get(const.PROPERTY_TAGS)) is not None:
        system.tag = tag
    if keys := get(const.PROPERTY_KEYS):
        system.keys.extend(keys.split(const.KEY_SEPARATOR))
    if (group := get(const.PROPERTY_SHARDING_KEY)) is not None:
        system.message_group = group
    if (trace := get(const.PROPERTY_TRACE_CONTEXT)) is not None:
        system.trace_context = trace
    if (lite_topic := get(const.PROPERTY_LITE_TOPIC)) is not None:
        system.lite_topic = lite_topic
    if (priority := get(const.PROPERTY_PRIORITY, "")).isdecimal() and len(priority) < 10:
        system.priority = int(priority)
    if (deliver_ms := get(const.PROPERTY_TIMER_DELIVER_MS, "")).isdecimal() and len(deliver_ms) < 16:
        system.delivery_timestamp.CopyFrom(timestamp(int(deliver_ms)))
    origin, origin_id = get(const.PROPERTY_DLQ_ORIGIN_TOPIC), get(const.PROPERTY_DLQ_ORIGIN_MESSAGE_ID)
    if origin is not None and origin_id is not None:
        system.dead_letter_queue.CopyFrom(pb.DeadLetterQueue(topic=origin, message_id=origin_id))
    if receipt_handle:
        system.receipt_handle = receipt_handle
    return pb.Message(
        topic=resource(message.topic),
        user_properties={name: value for name, value in properties.items() if name not in const.RESERVED_PROPERTIES},
        system_properties=system,
        body=body,
    )
