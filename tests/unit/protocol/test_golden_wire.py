"""Every exchange recorded from Java decodes and encodes to the same bytes, or differs where remoting.md says it may."""

import struct
from typing import Any

import pytest

from maxq.protocol.frame.remoting_command import RemotingCommand, SerializeType, decode_frame, language_code
from maxq.protocol.header.send import SendMessageRequestHeader
from maxq.protocol.json import json_dialect
from maxq.protocol.message.message import decode_batch, decode_records
from maxq.protocol.message.message_queue import MessageQueue
from tests.unit.protocol.golden_wire import PLAIN, SHAPES, Exchange, exchanges

FILES = sorted({exchange.file for exchange in exchanges()})

#: Fields any request may carry (remoting.md §6, and ReqT of Java's proxy-aware clients); no header class holds them.
COMMON_FIELDS = {"ns", "nsd", "bname", "oway", "lo", "ReqT"}
#: Fields that travel outside the header classes.
EXTRA_FIELDS = {12: {"_UNIQUE_KEY_QUERY"}, 34: {"IS_SUPPORT_HEART_BEAT_V2", "IS_SUB_CHANGE"}}
#: Members Java derives when it writes and ignores when it reads.
DERIVED_MEMBERS = {"consumeTimeStampStr", "minTimeStampStr", "maxTimeStampStr", "groupTopicMap"}
#: Members that are sets in Java: their order means nothing.
SETS = {"codeSet", "tagsSet"}


def of_file(file: str) -> list[Exchange]:
    return [exchange for exchange in exchanges() if exchange.file == file]


def raw(frame: dict[str, Any]) -> bytes:
    return bytes.fromhex(frame["hex"])


def normalised(frame: bytes) -> bytes:
    """The frame without what may be left out: an empty `extFields` (remoting.md §2), and in a binary header fields of
    length 0, which are the same as absent ones (§3)."""
    header_end = 8 + int.from_bytes(frame[5:8], "big")
    header = frame[8:header_end]
    if frame[4] == 0:
        header = header.replace(b'"extFields":{},', b"", 1)
    else:
        header = without_empty_fields(header)
    body = frame[header_end:]
    return struct.pack(">II", 4 + len(header) + len(body), frame[4] << 24 | len(header)) + header + body


def without_empty_fields(header: bytes) -> bytes:
    start = 17 + int.from_bytes(header[13:17], "big")
    pairs, kept, at = header[start + 4 :], b"", 0
    while at < len(pairs):
        key_end = at + 2 + int.from_bytes(pairs[at : at + 2], "big")
        end = key_end + 4 + int.from_bytes(pairs[key_end : key_end + 4], "big")
        if end > key_end + 4:
            kept += pairs[at:end]
        at = end
    return header[:start] + struct.pack(">i", len(kept)) + kept


def test_recordings_are_all_read() -> None:
    assert len(exchanges()) > 700
    assert {exchange.side for exchange in exchanges()} == {"broker", "namesrv"}
    assert {exchange.code for exchange in exchanges()} == set(SHAPES) & {e.code for e in exchanges()} | PLAIN


@pytest.mark.parametrize("file", FILES)
def test_frames_decode_as_java_says_and_encode_to_the_same_bytes(file: str) -> None:
    for exchange in of_file(file):
        for frame in exchange.frames():
            command = decode_frame(raw(frame)[4:])
            header = frame["header"]
            assert command.serialize_type == SerializeType[frame["type"].upper().replace("BINARY", "ROCKETMQ")]
            assert (command.code, command.flag, command.opaque) == (header["code"], header["flag"], header["opaque"])
            assert (command.version, command.remark) == (header["version"], header.get("remark"))
            assert command.language == language_code(header["language"])
            expected = header.get("extFields") or {}
            if command.serialize_type == SerializeType.ROCKETMQ:
                expected = {name: value for name, value in expected.items() if value}
            assert command.ext == expected
            assert command.body_length == frame["bodyLength"]
            assert command.encode() == normalised(raw(frame))
            assert b"".join(command.buffers()) == command.encode()


@pytest.mark.parametrize("file", FILES)
def test_header_classes_hold_every_field(file: str) -> None:
    for exchange in of_file(file):
        if exchange.code in PLAIN or exchange.label == "error.missing-field":
            continue
        shape = SHAPES[exchange.code]
        request = decode_frame(raw(exchange.request)[4:])
        check_header(exchange.code, shape.request, request)
        if exchange.response:
            response = decode_frame(raw(exchange.response)[4:])
            if response.code == 0:
                check_header(exchange.code, shape.response, response)


def check_header(code: int, kind: Any, command: RemotingCommand) -> None:
    encoded: dict[str, str] = {}
    if kind is SendMessageRequestHeader:
        header = SendMessageRequestHeader.decode_for(code, command.ext)
        encoded = header.encode() if code in (10, 324) else header.encode_v2()
        assert SendMessageRequestHeader.decode_for(code, encoded) == header
    elif kind is not None:
        header = kind.decode(command.ext)
        encoded = header.encode()
        assert kind.decode(encoded) == header
    left = {name: value for name, value in command.ext.items() if encoded.get(name) != value}
    assert set(left) <= COMMON_FIELDS | EXTRA_FIELDS.get(code, set()), left


@pytest.mark.parametrize("file", FILES)
def test_json_bodies_keep_every_member(file: str) -> None:
    for exchange in of_file(file):
        if exchange.code in PLAIN:
            continue
        shape = SHAPES[exchange.code]
        request = decode_frame(raw(exchange.request)[4:])
        check_body(shape.body, request)
        if exchange.response:
            response = decode_frame(raw(exchange.response)[4:])
            if response.code == 0:
                check_body(shape.answer, response)


def check_body(kind: Any, command: RemotingCommand) -> None:
    if kind is None or not command.body or command.ext.get("compressed") == "true":
        return
    decoded = kind.decode(command.body_bytes)
    again = json_dialect.loads(decoded.encode())
    assert plain(again) == plain(json_dialect.loads(command.body_bytes))
    assert kind.decode(decoded.encode()) == decoded


def plain(value: Any, name: str = "") -> Any:
    """Comparable: without derived members, sets sorted."""
    if isinstance(value, dict):
        return {key: plain(member, str(key)) for key, member in value.items() if key not in DERIVED_MEMBERS}
    if isinstance(value, list):
        items = [plain(item) for item in value]
        return sorted(items) if name in SETS else items
    return value


def test_compressed_registrations_say_the_same_as_plain_ones() -> None:
    kind = SHAPES[103].body
    assert kind is not None
    for exchange in exchanges():
        if exchange.code != 103:
            continue
        command = decode_frame(raw(exchange.request)[4:])
        body = kind.decode_body(  # type: ignore[attr-defined]
            command.body_bytes, compressed=command.ext["compressed"] == "true", broker_version=command.version
        )
        table = body.topic_config_serialize_wrapper.topic_config_table
        packed = body.encode_body(compressed=True, broker_version=command.version)
        unpacked = kind.decode_body(packed, compressed=True, broker_version=command.version)  # type: ignore[attr-defined]
        assert list(unpacked.topic_config_serialize_wrapper.topic_config_table) == list(table)


def test_message_bodies_of_pulls_pops_and_views_decode() -> None:
    seen = 0
    for exchange in exchanges():
        if exchange.response is None or exchange.code not in (11, 12, 33, 200050):
            continue
        response = decode_frame(raw(exchange.response)[4:])
        if response.code == 0:
            messages = decode_records(response.body_bytes, inflate=True, check_crc=True)
            assert all(isinstance(message.topic, str) and message.topic for message in messages)
            seen += len(messages)
    assert seen > 50


def test_batch_bodies_of_sends_decode() -> None:
    batches = [decode_frame(raw(e.request)[4:]) for e in exchanges() if e.code == 320]
    assert batches
    for command in batches:
        messages = decode_batch(command.body_bytes, command.ext["b"])
        assert len(messages) > 1 and all(message.uniq_key for message in messages)


def test_object_keys_come_back_as_message_queues() -> None:
    answers = [e.response for e in exchanges() if e.code == 202 and e.response]
    tables = [json_dialect.loads(decode_frame(raw(frame)[4:]).body_bytes)["offsetTable"] for frame in answers]
    assert tables
    assert all(isinstance(key, MessageQueue) for table in tables for key in table)
