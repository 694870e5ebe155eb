"""The parsers, the errors each may raise, and well-formed inputs to damage.

A target takes bytes and raises one of its allowed errors, or AssertionError when two readings disagree. False means
that it found nothing in them, where that is no error.
"""

import contextlib
import importlib
import pkgutil
import zlib
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import maxq.protocol.body
import maxq.protocol.header
import maxq.store.log_cy as columns
from maxq.config.properties import parse_properties
from maxq.errors import ConfigError, MaxQError, MissingFieldError, RemoteProtocolError
from maxq.protocol import json_dialect
from maxq.protocol.body.register_broker import RegisterBrokerBody
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.compression import CompressionType, compress, decompress
from maxq.protocol.frames_cy import SendScanner
from maxq.protocol.header.send import SendMessageRequestHeader
from maxq.protocol.header_fields import CommandHeader
from maxq.protocol.json_body import JsonBody
from maxq.protocol.message import (
    Message,
    MessageExt,
    decode_batch,
    decode_message_id,
    decode_properties,
    decode_record,
    encode_batch,
    encode_host,
    encode_properties,
    encode_record,
    offset_message_id,
)
from maxq.protocol.message_queue import MessageQueue
from maxq.protocol.remoting_command import RemotingCommand, SerializeType, decode_frame
from maxq.remoting.proxy_protocol import parse_proxy_header
from maxq.store.record_cy import SCAN_WIDTH, find_record, scan

PROPERTIES = {"TAGS": "TagA", "KEYS": "k1 k2", "UNIQ_KEY": "0A00000100001F40AABBCCDD00000001", "цвет": "синий"}
HOST = encode_host("10.0.0.1", 10911)
SEND = SendMessageRequestHeader(
    "PG", "TopicTest", "TBW102", 4, 1, 0, 1700000000000, 0, encode_properties(PROPERTIES), 0, False, False, 16, "a"
)  # fmt: skip
RECORD = MessageExt("TopicTest", b"hello", PROPERTIES, 0, "", 1, 5, 0, 0, 1700000000000, HOST, 1700000000123, HOST)


@dataclass(frozen=True)
class Target:
    """One parser. `seeds` are inputs it accepts."""

    name: str
    run: Callable[[bytes], bool | None]
    allowed: tuple[type[Exception], ...]
    seeds: Callable[[], list[bytes]]


def subclasses(base: type, package: Any) -> list[Any]:
    """All dataclasses of a package, which is imported for it."""
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    found: list[Any] = []
    left = [base]
    while left:
        for kind in left.pop().__subclasses__():
            found.append(kind)
            left.append(kind)
    return sorted(set(found), key=lambda kind: str(kind.__name__))


HEADERS: list[type[CommandHeader]] = subclasses(CommandHeader, maxq.protocol.header)
BODIES: list[type[JsonBody]] = subclasses(JsonBody, maxq.protocol.body)


# --- frames and headers ----------------------------------------------------------------------------------------------


def frame(data: bytes) -> None:
    """A frame that decodes can be encoded, and decodes to the same again."""
    command = decode_frame(data)
    again = decode_frame(command.encode()[4:])
    if command.serialize_type == SerializeType.ROCKETMQ:
        command.ext = again.ext  # what is not UTF-8 was replaced
    assert again == command, (again, command)


def frame_seeds() -> list[bytes]:
    ext = SEND.encode_v2()
    commands = [
        RemotingCommand(310, ext, b"hello", serialize_type=kind, opaque=7) for kind in SerializeType
    ] + [RemotingCommand(17, remark="нет", flag=1, serialize_type=kind) for kind in SerializeType]
    written = [command.encode()[4:] for command in commands]
    old = b"{code:10,'extFields':{a:1,\"b\":true,c:null},language:1,opaque:\"5\",}\n"
    return [*written, len(old).to_bytes(4, "big") + old]


def header_classes(data: bytes) -> None:
    """The fields of a frame through every header class."""
    ext = decode_frame(data).ext
    for kind in HEADERS:
        try:
            kind.decode(ext).encode()
        except MissingFieldError:
            continue
    with contextlib.suppress(MissingFieldError):
        SendMessageRequestHeader.decode_v2(ext)


def header_seeds() -> list[bytes]:
    seeds = []
    for kind in HEADERS:
        ext = dict.fromkeys(_wires(kind), "17")
        seeds += [RemotingCommand(11, ext, serialize_type=form).encode()[4:] for form in SerializeType]
    return seeds


def _wires(kind: type[CommandHeader]) -> list[str]:
    from_fields = importlib.import_module("maxq.protocol.header_fields")._names
    return [wire for _, wire in from_fields(kind)]


def plain_sends(data: bytes) -> bool:
    """What the compiled scanner takes, the general codec reads in the same way."""
    buffer = bytearray(data)
    scanner = SendScanner(1 << 24, 64, 65536)
    end = scanner.scan(buffer, 0, len(buffer))
    assert 0 <= end <= len(buffer)
    rows, at, width = scanner.rows, 0, columns.ROW_WIDTH
    while at < scanner.count:
        row = rows[at * width : (at + 1) * width]
        at += _check_row(row, buffer, scanner.scratch)
    return scanner.count > 0


def _check_row(row: Any, buffer: bytearray, scratch: bytearray) -> int:
    """Compare one frame's rows with decode_frame; returns how many rows it has."""
    start = row[columns.R_FRAME]
    length = int.from_bytes(buffer[start : start + 4], "big")
    try:
        command = decode_frame(bytes(buffer[start + 4 : start + 4 + length]))
        header = SendMessageRequestHeader.decode_v2(command.ext)
    except RemoteProtocolError:
        # The scanner skips what a plain send does not use (template topic, escapes in other fields, "010" for 10)
        # where the general codec refuses. It may be the more lenient one; it must never read another meaning.
        return max(1, row[columns.R_COUNT])
    topic = bytes(buffer[row[columns.R_TOPIC] : row[columns.R_TOPIC] + row[columns.R_TOPIC_SIZE]])
    assert (topic.decode("utf-8", "replace"), row[columns.R_QUEUE_ID]) == (header.topic, header.queue_id), (row, header)
    assert row[columns.R_OPAQUE] == command.opaque and row[columns.R_BORN_TIMESTAMP] == header.born_timestamp
    assert bool(row[columns.R_FLAGS] & columns.F_ONEWAY) == command.is_oneway and not command.is_response
    if row[columns.R_FLAGS] & columns.F_BATCH:
        assert header.batch
        return max(1, row[columns.R_COUNT])
    body = bytes(buffer[row[columns.R_BODY] : row[columns.R_BODY] + row[columns.R_BODY_SIZE]])
    assert body == command.body_bytes and row[columns.R_FLAG] == header.flag and not header.batch
    source = scratch if row[columns.R_FLAGS] & columns.F_SCRATCH else buffer
    text = bytes(source[row[columns.R_PROPERTIES] : row[columns.R_PROPERTIES] + row[columns.R_PROPERTIES_SIZE]])
    assert decode_properties(text) == decode_properties(header.properties), (text, header.properties)
    return 1


def plain_send_seeds() -> list[bytes]:
    seeds = []
    batch = encode_batch([Message("TopicTest", b"a", PROPERTIES), Message("TopicTest", b"b", PROPERTIES)])
    for kind in SerializeType:
        seeds.append(RemotingCommand(310, SEND.encode_v2(), b"hello", serialize_type=kind).encode())
        seeds.append(RemotingCommand(10, SEND.encode(), b"hello", serialize_type=kind).encode())
        ext = SEND.encode_v2() | {"m": "true", "i": ""}
        seeds.append(RemotingCommand(320, ext, batch, serialize_type=kind).encode())
    return [*seeds, b"".join(seeds)]


# --- bodies ----------------------------------------------------------------------------------------------------------


def json_text(data: bytes) -> None:
    """A value that is read can be written in both forms, and reads back."""
    value = json_dialect.loads(data)
    for written in (json_dialect.dumps(value), json_dialect.dumps_pretty(value)):
        json_dialect.loads(written)


def json_seeds() -> list[bytes]:
    queue = MessageQueue("T", "broker-a", 0)
    return [
        b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"x"},"brokerName":"a"}],"x":{"$ref":"$.brokerDatas[0]"}}',
        json_dialect.dumps({"offsetTable": {queue: {"x": 1.5, "y": None}, 7: [True, "\x01\u2028"]}}),
        json_dialect.dumps_pretty({"T@G": {0: 12, 1: -9}, "список": ["a", {}]}),
        b"{// c\n'a':'b\\u0041',c-d:[1,2,],/* x */e:-1.5e3,}",
    ]


def body_classes(data: bytes) -> None:
    """JSON through every body class."""
    value = json_dialect.loads(data)
    for kind in BODIES:
        try:
            kind.from_json(value).encode()
        except RemoteProtocolError:
            continue


def body_seeds() -> list[bytes]:
    return [kind().encode() for kind in BODIES] + [
        b'{"clientID":"c","consumerDataSet":[{"consumeType":1,"groupName":"G","subscriptionDataSet":[{"codeSet":[1],'
        b'"subString":"*","subVersion":"17","tagsSet":["A"],"topic":"T"}]}],"producerDataSet":[{"groupName":"P"}]}',
        b'{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"T"}:{"brokerOffset":1,"maxOffset":9}}}',
        b'{"offsetTable":[{"brokerName":"a","offset":12,"queueId":0,"topic":"T"}]}',
    ]


def registration(data: bytes) -> None:
    """The first byte says how the rest is written."""
    version = 479 if data[:1] > b"\x07" else 400
    body = zlib.compress(data[1:], 1) if data[:1] > b"\x0f" else data[1:]
    RegisterBrokerBody.decode_body(body, compressed=True, broker_version=version)


def registration_seeds() -> list[bytes]:
    body = RegisterBrokerBody(filter_server_list=["a"])
    for name in ("T1", "T2", "Ф"):
        body.topic_config_serialize_wrapper.topic_config_table[name] = TopicConfig(name, attributes={"+a": "b"})
    packed = body.encode_body(compressed=True)
    return [b"\x08" + packed, b"\x10" + zlib.decompress(packed)]


def compressed_body(data: bytes) -> None:
    if data:
        decompress(data[1:], CompressionType(1 + data[0] % 3), limit=1_000_000)


def compressed_seeds() -> list[bytes]:
    return [bytes((kind - 1,)) + compress(b"some text " * 50, kind) for kind in CompressionType]


# --- messages --------------------------------------------------------------------------------------------------------


def record(data: bytes) -> None:
    """One record; a body that inflates, and a record that encodes to the same fields."""
    message = decode_record(data, inflate=True)
    plain = decode_record(data)
    again = decode_record(encode_record(plain))
    assert (again.topic, again.body, again.properties) == (plain.topic, plain.body, plain.properties)
    assert message.queue_offset == again.queue_offset


def records(data: bytes) -> bool:
    """The compiled scanner and the plain decoder find the same records."""
    rows = array("q", bytes(8 * SCAN_WIDTH * 16))
    view = memoryview(bytearray(data))
    count, end, _ = scan(view, 0, len(data), 0, rows, check_crc=True, check_offset=False)
    assert 0 <= end <= len(data)
    position = 0
    for _ in range(count):
        position += decode_record(data, position, check_crc=True).store_size
    assert count == 0 or position == end
    found = find_record(view, 0, len(data), 0)
    assert found == -1 or decode_record(data, found, check_crc=True).physical_offset == found
    return count > 0


def record_seeds() -> list[bytes]:
    written = [encode_record(RECORD)]
    for kind in CompressionType:
        squeezed = MessageExt("T" * 200, compress(b"text " * 40, kind), PROPERTIES, sys_flag=kind << 8 | 1, version=2)
        squeezed.born_host = encode_host("::1", 5)
        written.append(encode_record(squeezed))
    return written


def stream_seeds() -> list[bytes]:
    stream = b""
    for _ in range(5):
        RECORD.physical_offset = len(stream)
        stream += encode_record(RECORD)
    return [stream, stream + b"\0\0\0\x20\xcb\xd4\x31\x94" + bytes(24), stream + bytes(64), *record_seeds()]


def batch(data: bytes) -> None:
    messages = decode_batch(data, "T")
    assert [message.body for message in decode_batch(encode_batch(messages), "T")] == [m.body for m in messages]


def batch_seeds() -> list[bytes]:
    return [encode_batch([Message("T", b"a" * n, PROPERTIES, n) for n in range(4)]), encode_batch([Message("T")])]


def properties_text(data: bytes) -> None:
    found = decode_properties(data)
    assert decode_properties(encode_properties(found)) == found


def message_id(data: bytes) -> None:
    text = data.decode("latin-1")
    host, offset = decode_message_id(text)
    assert offset_message_id(host, offset) == text.upper()


# --- what else comes from outside ------------------------------------------------------------------------------------


def config_file(data: bytes) -> None:
    parse_properties(data, source="fuzz")


def proxy_header(data: bytes) -> None:
    header = parse_proxy_header(data)
    assert header is None or 0 < header.size <= len(data)


TARGETS = [
    Target("frame", frame, (RemoteProtocolError,), frame_seeds),
    Target("header-classes", header_classes, (RemoteProtocolError,), header_seeds),
    Target("plain-sends", plain_sends, (), plain_send_seeds),
    Target("json", json_text, (RemoteProtocolError,), json_seeds),
    Target("body-classes", body_classes, (RemoteProtocolError,), body_seeds),
    Target("registration", registration, (RemoteProtocolError,), registration_seeds),
    Target("compressed-body", compressed_body, (RemoteProtocolError,), compressed_seeds),
    Target("record", record, (RemoteProtocolError,), record_seeds),
    Target("record-stream", records, (), stream_seeds),
    Target("batch", batch, (RemoteProtocolError,), batch_seeds),
    Target("properties-text", properties_text, (), lambda: [encode_properties(PROPERTIES).encode()]),
    Target("message-id", message_id, (RemoteProtocolError,), lambda: [offset_message_id(HOST, 1024).encode()]),
    Target("config-file", config_file, (ConfigError,), lambda: [b"# c\nbrokerName = a\\\n  b\nx:\\u0041\n!y\nz\n"]),
    Target(
        "proxy-header", proxy_header, (MaxQError,),
        lambda: [b"PROXY TCP4 192.0.2.1 10.0.0.1 56324 10911\r\n",
                 b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x11" + bytes(12) + b"\x02\0\x02ab"],
    ),
]  # fmt: skip
