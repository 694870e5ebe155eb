"""The parsers, the errors each may raise, and well-formed inputs to damage.

A target takes bytes and raises one of its allowed errors, or AssertionError when two readings disagree. False means
that it found nothing in them, where that is no error.
"""

import contextlib
import importlib
import json
import pkgutil
import sys
import zlib
from array import array
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

import maxq.protocol.body
import maxq.protocol.header
from fuzz import access_targets as access
from fuzz.answer_targets import send_answer_seeds, send_answers
from fuzz.column_targets import record_columns
from fuzz.grpc_targets import (
    connection_seeds,
    connections,
    header_block_seeds,
    header_blocks,
    plain_grpc_send_seeds,
    plain_grpc_sends,
)
from maxq.broker.transaction.half_message import final_message, turn_away
from maxq.broker.transaction.transactional_message_service import stored_properties
from maxq.config.properties import parse_properties
from maxq.errors import ConfigError, MaxQError, MissingFieldError, RemoteProtocolError
from maxq.protocol.body.pop import ACK_TAG, AckMsg, BatchAck, PopCheckPoint, decode_batch_acks, encode_batch_acks
from maxq.protocol.body.register_broker import RegisterBrokerBody
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.dledger.dledger_messages import DLedgerEntry, EntryRun
from maxq.protocol.frame import send_rows as columns
from maxq.protocol.frame.header_fields import CommandHeader
from maxq.protocol.frame.remoting_command import RemotingCommand, SerializeType, decode_frame
from maxq.protocol.frame.request_scanners_cy import EndScanner
from maxq.protocol.frame.send_scanner_cy import SendScanner
from maxq.protocol.header.send import EndTransactionRequestHeader, SendMessageRequestHeader
from maxq.protocol.json import json_dialect
from maxq.protocol.json.json_body import JsonBody
from maxq.protocol.message.compression import CompressionType, compress, decompress
from maxq.protocol.message.message import (
    Message,
    MessageExt,
    decode_batch,
    decode_message_id,
    decode_properties,
    decode_record,
    decode_records,
    encode_batch,
    encode_host,
    encode_properties,
    encode_record,
    offset_message_id,
)
from maxq.protocol.message.message_queue import MessageQueue
from maxq.protocol.message.message_trace import decode_record as decode_record_text
from maxq.protocol.message.message_trace import decode_traces
from maxq.protocol.message.pop_extra_info import (
    ExtraInfo,
    parse_extra_info,
    parse_msg_offset_info,
    parse_order_count_info,
    parse_start_offset_info,
)
from maxq.protocol.message.received_cy import Pull, read_records
from maxq.remoting.proxy_protocol import parse_proxy_header
from maxq.store.append.log_final_cy import append_final
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.dledger.entries_cy import ANY_INDEX, find_entry, put_units, scan_entries
from maxq.store.dledger.ledger_checkpoint import decode_checkpoint
from maxq.store.dledger.term_file import term_state
from maxq.store.dledger.text_file import decode_text, encode_text
from maxq.store.log.log_cy import LogTail
from maxq.store.log.record_cy import SCAN_WIDTH, find_record, scan
from maxq.store.log.tails_cy import QueueTail, TopicWriteState

PROPERTIES = {"TAGS": "TagA", "KEYS": "k1 k2", "UNIQ_KEY": "0A00000100001F40AABBCCDD00000001", "цвет": "синий"}
TRANSACTION = {"TRAN_MSG": "true", "PGROUP": "G"}
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
        left += (kinds := left.pop().__subclasses__())
        # Of a class with slots the one that it was made from stays until garbage is collected.
        found += [kind for kind in kinds if vars(sys.modules[kind.__module__]).get(kind.__name__) is kind]
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
    commands = [RemotingCommand(310, ext, b"hello", serialize_type=kind, opaque=7) for kind in SerializeType] + [
        RemotingCommand(17, remark="нет", flag=1, serialize_type=kind) for kind in SerializeType
    ]
    written = [command.encode()[4:] for command in commands]
    old = b'{code:10,\'extFields\':{a:1,"b":true,c:null},language:1,opaque:"5",}\n'
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
    from_fields = importlib.import_module("maxq.protocol.frame.header_fields")._names
    return [wire for _, wire in from_fields(kind)]


def plain_sends(data: bytes) -> bool:
    """What the compiled scanner takes, the general codec reads in the same way."""
    buffer = bytearray(data)
    scanner = SendScanner(1 << 24, 64, 65536)
    scanner.takes_halves = True
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
    is_half = bool(row[columns.R_FLAGS] & columns.F_HALF)
    assert is_half == (decode_properties(text).get("TRAN_MSG") == "true"), text
    assert row[columns.R_SYS_FLAG] == header.sys_flag & ~(4 if is_half else 0) and not row[columns.R_SYS_FLAG] & 0xC
    return 1


def plain_send_seeds() -> list[bytes]:
    seeds = []
    batch = encode_batch([Message("TopicTest", b"a", PROPERTIES), Message("TopicTest", b"b", PROPERTIES)])
    for kind in SerializeType:
        seeds.append(RemotingCommand(310, SEND.encode_v2(), b"hello", serialize_type=kind).encode())
        seeds.append(RemotingCommand(10, SEND.encode(), b"hello", serialize_type=kind).encode())
        ext = SEND.encode_v2() | {"f": "4", "i": encode_properties(PROPERTIES | TRANSACTION)}
        seeds.append(RemotingCommand(310, ext, b"hello", serialize_type=kind).encode())
        ext = SEND.encode_v2() | {"m": "true", "i": ""}
        seeds.append(RemotingCommand(320, ext, batch, serialize_type=kind).encode())
    return [*seeds, b"".join(seeds)]


def plain_ends(data: bytes) -> bool:
    """The same of one-way ends of transactions."""
    buffer = bytearray(data)
    scanner = EndScanner()
    end = scanner.scan(buffer, 0, len(buffer))
    if end == 0:
        return False
    try:
        command = decode_frame(data[4:end])
        header = EndTransactionRequestHeader.decode(command.ext)
    except RemoteProtocolError:
        return True  # see _check_row
    assert command.code == 37 and command.is_oneway and not command.is_response, command
    assert (header.tran_state_table_offset, header.commit_log_offset, header.commit_or_rollback) == (
        scanner.tran_state_table_offset, scanner.commit_log_offset, scanner.commit_or_rollback,
    )  # fmt: skip
    assert header.producer_group == scanner.producer_group.decode("utf-8", "replace")
    assert header.from_transaction_check is False
    return True


def plain_end_seeds() -> list[bytes]:
    ext = EndTransactionRequestHeader("G", 5, 900, 8, "0A00000A", "TopicTest", False, "0A00000A").encode()
    return [RemotingCommand(37, ext, flag=2, serialize_type=kind).encode() for kind in SerializeType]


def final_messages(data: bytes) -> bool:
    """What becomes a final message without the general codec becomes the same with it."""
    tail = LogTail()
    memory = bytearray(2 * len(data) + 256)
    tail.attach(memoryview(memory), 4096, len(memory), 0)
    topics = {b"TopicTest": TopicWriteState("TopicTest")}
    topics[b"TopicTest"].max_queue_id = 3
    for queue_id in range(4):
        topics[b"TopicTest"].set_queue(queue_id, QueueTail("TopicTest", queue_id, None))
    size = append_final(tail, memoryview(data), b"G", topics, 77)
    if size == 0:
        return False
    half = decode_record(data)
    message = final_message(half, stored_properties(memoryview(data)))
    assert half.properties["PGROUP"] == "G", half.properties
    expected = MessageExt(
        message.topic, bytes(message.body), {}, message.flag, "", message.queue_id, 0, 4096, message.sys_flag,
        message.born_timestamp, message.born_host, 77, message.store_host or b"", message.reconsume_times,
        message.prepared_transaction_offset,
    )  # fmt: skip
    record = bytearray(encode_record(expected, message.encoded_properties()))
    record[8:12] = data[8:12]  # the body's checksum is taken over; nothing but the disk can have changed it
    assert bytes(memory[:size]) == record, (bytes(memory[:size]), record)
    return True


def final_message_seeds() -> list[bytes]:
    seeds = []
    for host in (HOST, bytes(16) + HOST[-4:]):
        message = MessageExtBrokerInner("TopicTest", 1, b"hello", PROPERTIES | TRANSACTION, sys_flag=4)
        assert turn_away(message)
        half = MessageExt(
            message.topic, b"hello", message.properties, 7, "", 0, 3, 900, 0, 1700000000000, host, 1700000000123, host
        )
        seeds.append(encode_record(half))
    return seeds


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


def received_records(data: bytes) -> bool:
    """Messages that are decoded when they are read are those of the plain decoder, or are left to it."""
    received = read_records(data, Pull("", 0, 0))
    if received is None:
        return False
    plain = decode_records(data, inflate=True)
    for message in plain:
        message.properties |= {"MIN_OFFSET": "0", "MAX_OFFSET": "0"}
    assert received == plain
    return bool(received)


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


def pull_seeds() -> list[bytes]:
    """Records as a queue has them."""
    return [b"".join(encode_record(replace(RECORD, queue_offset=n)) for n in range(5)), *record_seeds()]


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


def trace_body(data: bytes) -> bool:
    """Trace records: what is one can be written, and is the same when it is read again."""
    found, faults = decode_traces(data)
    for trace in found:
        again = decode_record_text(trace.encode()[:-1])
        again.client_host = trace.client_host  # which is read, and not written
        assert again.encode() == trace.encode(), (again, trace)
    assert all(fault.reason for fault in faults)
    return bool(found)


def trace_seeds() -> list[bytes]:
    rows = json.loads((Path(__file__).parents[1] / "tests/data/trace/java-clients.json").read_text())
    return [row["body"].encode() for row in rows] + [b"Recall\x011\x01R\x01PG\x01T\x01A1\x01true\x02"]


# --- DLedger's files --------------------------------------------------------------------------------------------------


def ledger_text(data: bytes) -> bool:
    """currterm and checkpoint: values or None; what is decoded comes back when it is written."""
    found = decode_text(data)
    if found is None:
        return False
    values, _ = found
    decode_checkpoint(values)
    term_state(values)
    assert decode_text(encode_text(values)) == (values, True)
    return True


def ledger_text_seeds() -> list[bytes]:
    values = {"committedIndex": "7", "endIndex": "9", "beginIndex": "3", "beginPosition": "4096", "amnesiacUntil": "12"}
    return [encode_text(values), encode_text({"voteLeader": "n0", "currTerm": "3"}), b"voteLeader=\ncurrTerm=3\n"]


def ledger_entries(data: bytes) -> bool:
    """The compiled scan of a data file finds what the plain reader of a run finds; index units of it can be made."""
    end, index, _, _ = scan_entries(data, 0, len(data), 0, ANY_INDEX, 0, True)
    assert 0 <= end <= len(data)
    if end:
        run = EntryRun.of(data[:end])
        assert run.last_index == index
        units = memoryview(bytearray(32 * run.count))
        assert put_units(data, 0, end, units, 0)[:2] == (end, run.count)
    found, at = find_entry(memoryview(data), 0, len(data), 0, -1)
    assert (found == -1) == (at == -1)
    assert found == -1 or scan_entries(data, found, len(data), 0, ANY_INDEX, 0, True)[0] > found
    return end > 0


def ledger_entry_seeds() -> list[bytes]:
    tail, log = LogTail(), memoryview(bytearray(1024))
    tail.head, tail.next_index, tail.term = 48, 5, 3
    tail.attach(log, 0, 1024, 0)
    for body in (b"", b"one", encode_record(RECORD), b"x" * 60):
        tail.append_entry(body)
    size = tail.wrote_position
    tail.close_file()
    plain = b"".join(
        DLedgerEntry(size=50, index=number, term=1, pos=50 * number, body=b"hi").encode() for number in range(4)
    )
    return [bytes(log[:size]), bytes(log), plain, plain + bytes(60)]


# --- pop consumption -------------------------------------------------------------------------------------------------


def receipt_handle(data: bytes) -> None:
    """A handle that is read can be written, and is read as the same."""
    handle = parse_extra_info(data.decode("utf-8", "replace"))
    assert parse_extra_info(str(handle)) == handle


def offset_lists(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    parse_msg_offset_info(text)
    for parse in (parse_start_offset_info, parse_order_count_info):
        with contextlib.suppress(RemoteProtocolError):
            parse(text)


def pop_records(data: bytes) -> None:
    """A check point that is read can be written, and is read as the same."""
    for is_batch in (False, True):
        with contextlib.suppress(RemoteProtocolError):
            AckMsg.decode(data, is_batch=is_batch)
    point = PopCheckPoint.decode(data)
    assert PopCheckPoint.decode(point.encode()) == point
    point.open_offsets()


def batch_acks(data: bytes) -> None:
    decode_batch_acks(data)


POINT = PopCheckPoint("T", "G", 1, 12, 1700000000000, 60000, "broker-a", [0, 1, 31], 3, 5)


def pop_record_seeds() -> list[bytes]:
    java = (
        b'{"bm":-2147483648,"bn":"broker-a","c":"G","d":[0,1,3],"it":60000,"n":3,"pt":1700000000000,"q":0,'
        b'"reviveTime":1700000060000,"ro":0,"rp":"2","so":12,"sp":false,"t":"T"}'
    )
    assert AckMsg("T", "G", 0, 12, 1, "broker-a", [13]).tag == ACK_TAG
    return [POINT.encode(), java]


def batch_ack_seeds() -> list[bytes]:
    return [encode_batch_acks("broker-a", [BatchAck("T", "G", "1", 12, 0, 3, 1700000000000, 60000, [0, 5, 31])])]


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
    Target("plain-ends", plain_ends, (), plain_end_seeds),
    Target("send-answers", send_answers, (), send_answer_seeds),
    Target("final-messages", final_messages, (), final_message_seeds),
    Target("json", json_text, (RemoteProtocolError,), json_seeds),
    Target("body-classes", body_classes, (RemoteProtocolError,), body_seeds),
    Target("registration", registration, (RemoteProtocolError,), registration_seeds),
    Target("compressed-body", compressed_body, (RemoteProtocolError,), compressed_seeds),
    Target("record", record, (RemoteProtocolError,), record_seeds),
    Target("record-stream", records, (), stream_seeds),
    Target("received-records", received_records, (), lambda: [stream_seeds()[0], *record_seeds()]),
    Target("record-columns", record_columns, (), pull_seeds),
    Target("batch", batch, (RemoteProtocolError,), batch_seeds),
    Target("properties-text", properties_text, (), lambda: [encode_properties(PROPERTIES).encode()]),
    Target("trace-records", trace_body, (), trace_seeds),
    Target("message-id", message_id, (RemoteProtocolError,), lambda: [offset_message_id(HOST, 1024).encode()]),
    Target(
        "receipt-handle", receipt_handle, (RemoteProtocolError,),
        lambda: [str(ExtraInfo(12, 1700000000000, 60000, 3, "1", "broker-a", 0, 13)).encode(),
                 b"12 1700000000000 60000 999 0 broker-a"],
    ),
    Target("offset-lists", offset_lists, (RemoteProtocolError,), lambda: [b"0 1 12,13,15;1 0 7", b"0 1 12;0 2 13"]),
    Target("pop-records", pop_records, (RemoteProtocolError,), pop_record_seeds),
    Target("batch-acks", batch_acks, (RemoteProtocolError,), batch_ack_seeds),
    Target("ledger-text", ledger_text, (), ledger_text_seeds),
    Target("ledger-entries", ledger_entries, (), ledger_entry_seeds),
    Target("plain-acl", access.plain_acl, (ConfigError,), access.plain_acl_seeds),
    Target("auth-file", access.table_file, (RemoteProtocolError,), access.table_file_seeds),
    Target("acl-body", access.acl_body, (RemoteProtocolError,), access.acl_body_seeds),
    Target("signed-sends", access.signed_sends, (RemoteProtocolError,), access.signed_send_seeds),
    Target("config-file", config_file, (ConfigError,), lambda: [b"# c\nbrokerName = a\\\n  b\nx:\\u0041\n!y\nz\n"]),
    Target(
        "proxy-header", proxy_header, (MaxQError,),
        lambda: [b"PROXY TCP4 192.0.2.1 10.0.0.1 56324 10911\r\n",
                 b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x11" + bytes(12) + b"\x02\0\x02ab"],
    ),
    Target("header-blocks", header_blocks, (RemoteProtocolError,), header_block_seeds),
    Target("grpc-connections", connections, (), connection_seeds),
    Target("plain-grpc-sends", plain_grpc_sends, (DecodeError,), plain_grpc_send_seeds),
]  # fmt: skip
