"""What names, times and texts of calls may be.

Source:
    proxy/grpc/v2/common/GrpcValidator.java, client/Validators.java.
"""

import re
from typing import Final

from maxq.config.proxy_config import ProxyConfig
from maxq.protocol.grpc import messages as pb
from maxq.protocol.namespace import is_system_group, is_system_topic, wrap
from maxq.proxy.statuses import CallRefusedError

REQUEST_BYTES_MAX: Final = 256 * 1024  # of all requests and commands but those that send messages

_PARTS_MAX: Final = 1024  # messages to send, or to acknowledge, of one call
_FIXED_BYTES: Final = {1: 8, 5: 4}  # of fields of protobuf, by wire type
_ADDRESSES_MAX: Final = 16
_HOST_BYTES_MAX: Final = 255
_TOPIC_LENGTH_MAX: Final = 127
_GROUP_LENGTH_MAX: Final = 120
_LEGAL: Final = re.compile(r"[%|a-zA-Z0-9_-]+").fullmatch
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]").search


def topic_name(topic: pb.Resource) -> str:
    """Return a topic's name for brokers, in which its namespace is.

    Raises:
        CallRefusedError: ILLEGAL_TOPIC.
    """
    name = topic.name
    if why := _illegal("topic", name, _TOPIC_LENGTH_MAX):
        raise CallRefusedError(pb.Code.ILLEGAL_TOPIC, why)
    if is_system_topic(name):
        raise CallRefusedError(pb.Code.ILLEGAL_TOPIC, "cannot access system topic")
    return _named(topic, pb.Code.ILLEGAL_TOPIC)


def is_legal_topic(name: str) -> bool:
    """Return whether a topic of this name, without a namespace, may be sent to."""
    return not _illegal("topic", name, _TOPIC_LENGTH_MAX) and not is_system_topic(name)


def group_name(group: pb.Resource) -> str:
    """Return a consumer group's name for brokers, in which its namespace is.

    Raises:
        CallRefusedError: ILLEGAL_CONSUMER_GROUP.
    """
    name = group.name
    if why := _illegal("group", name, _GROUP_LENGTH_MAX):
        raise CallRefusedError(pb.Code.ILLEGAL_CONSUMER_GROUP, why)
    if is_system_group(name):
        raise CallRefusedError(pb.Code.ILLEGAL_CONSUMER_GROUP, "cannot use system consumer group")
    return _named(group, pb.Code.ILLEGAL_CONSUMER_GROUP)


def _named(resource: pb.Resource, code: pb.Code) -> str:
    namespace = resource.resource_namespace
    if not namespace:
        return resource.name
    if not _LEGAL(namespace):
        raise CallRefusedError(code, f"the namespace {namespace!r:.80} contains illegal characters")
    return wrap(namespace, resource.name)


def _illegal(kind: str, name: str, longest: int) -> str:
    """Return why a name is illegal; empty if it is not."""
    if not name.strip():
        return f"the specified {kind} is blank"
    if len(name) > longest:
        return f"the specified {kind} is longer than {kind} max length {longest}."
    if not _LEGAL(name):
        return f"the specified {kind}[{name}] contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    return ""


def check_endpoints(endpoints: pb.Endpoints) -> None:
    """Raise CallRefusedError, ILLEGAL_ACCESS_POINT, unless a client may say that it has used these addresses. They are
    told back with each queue."""
    count = len(endpoints.addresses)
    if count > _ADDRESSES_MAX:
        why = f"{count} addresses in endpoints, at most {_ADDRESSES_MAX}"
        raise CallRefusedError(pb.Code.ILLEGAL_ACCESS_POINT, why)
    for address in endpoints.addresses:
        size = len(address.host.encode())
        if size > _HOST_BYTES_MAX:
            raise CallRefusedError(
                pb.Code.ILLEGAL_ACCESS_POINT, f"a host of {size} bytes in endpoints, at most {_HOST_BYTES_MAX}"
            )


def check_parts(count: int) -> None:
    """Raise CallRefusedError, BAD_REQUEST, unless one call may send or acknowledge so many messages."""
    if count > _PARTS_MAX:
        raise CallRefusedError(pb.Code.BAD_REQUEST, f"{count} messages in one call, at most {_PARTS_MAX}")


def check_fields(data: bytes) -> None:
    """Raise CallRefusedError, BAD_REQUEST, if an encoded request has more fields of its own than one call may have
    messages: millions of empty ones take a second to decode. What is not whole is left to who decodes it."""
    position, end, count = 0, len(data), 0
    while position < end:
        count += 1
        if count > _PARTS_MAX:
            raise CallRefusedError(pb.Code.BAD_REQUEST, f"more than {_PARTS_MAX} messages in one call")
        tag, position = _varint(data, position)
        wire_type = tag & 7
        if wire_type in (0, 2):
            value, position = _varint(data, position)
            position += value if wire_type == 2 else 0
        else:
            position += _FIXED_BYTES.get(wire_type, 0)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a number, and where it ends; one that is not whole ends with the data."""
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    return 0, len(data)


def has_control_character(text: str) -> bool:
    """Return whether a text has one of Java's ISO control characters."""
    return not text.isprintable() and _CONTROL(text) is not None


def check_tag(tag: str) -> None:
    """Raise CallRefusedError, ILLEGAL_MESSAGE_TAG, unless a tag may be sent; an empty one is none."""
    if not tag:
        return
    why = ""
    if tag.isspace():
        why = "tag cannot be the char sequence of whitespace"
    elif "|" in tag:
        why = "tag cannot contain '|'"
    elif has_control_character(tag):
        why = "tag cannot contain control character"
    if why:
        raise CallRefusedError(pb.Code.ILLEGAL_MESSAGE_TAG, why)


def check_invisible_ms(invisible_ms: int, least: int, config: ProxyConfig) -> None:
    """Raise CallRefusedError, ILLEGAL_INVISIBLE_TIME, unless a message may be invisible for so long."""
    if invisible_ms < least:
        raise CallRefusedError(pb.Code.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too small. min is {least}")
    most = config.max_invisible_time_mills
    if 0 < most < invisible_ms:
        raise CallRefusedError(pb.Code.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too large. max is {most}")


def milliseconds(moment: pb.Duration | pb.Timestamp) -> int:
    """Return a duration, or a moment since 1970, in ms."""
    return moment.seconds * 1000 + moment.nanos // 1_000_000


def timestamp(wall_ms: int) -> pb.Timestamp:
    """Make a moment of milliseconds since 1970."""
    return pb.Timestamp(seconds=wall_ms // 1000, nanos=wall_ms % 1000 * 1_000_000)


def duration(ms: int) -> pb.Duration:
    """Make a duration of milliseconds."""
    return pb.Duration(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)
