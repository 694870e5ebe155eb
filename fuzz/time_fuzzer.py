"""Look for time: inputs of growing size, up to the limit, in the shapes that cost parsers most.

    python -m fuzz.time_fuzzer                      # all parsers, a table with the milliseconds at the limit
    python -m fuzz.time_fuzzer --parser sql92       # one

A parser must take time in proportion to its input: eight times the bytes take about eight times as long, and 64 times
means that it is quadratic. At the limit it must keep its budget, for nobody else is answered meanwhile: 20 ms for
what comes before anybody has signed anything, 50 ms for the rest. Processor time is measured, the best of some
runs, each set against known work done at once afterwards (tests/watched_loop.py), so a busy machine is no finding. The
exit code is 1 if there is one.
"""

import argparse
import contextlib
import itertools
import ssl
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tests.watched_loop import fair_ns

from fuzz import access_targets as access
from fuzz import targets
from fuzz.grpc_targets import arrival, arrival_shapes
from fuzz.run import Finding
from maxq.access.table_file import decode_tables
from maxq.auth.tables import AccessTables
from maxq.broker.tables.filter.filter_expressions import known_expression
from maxq.broker.tables.offset.offset_table import read_offset_table
from maxq.codes import RequestCode
from maxq.config.properties import parse_properties
from maxq.errors import MaxQError
from maxq.filter import sql92
from maxq.protocol.body.heartbeat import HeartbeatData
from maxq.protocol.body.offsets import LockBatchRequestBody
from maxq.protocol.body.pop import decode_batch_acks
from maxq.protocol.body.register_broker import RegisterBrokerBody
from maxq.protocol.body.subscription import build_subscription_data
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.dledger.dledger_codec import decode_request
from maxq.protocol.dledger.dledger_messages import DLedgerRequestCode
from maxq.protocol.frame import body_limits
from maxq.protocol.frame.header_fields import HeaderFields
from maxq.protocol.frame.remoting_command import MAX_DIALECT_SIZE, MAX_HEADER_SIZE, decode_frame
from maxq.protocol.json import json_dialect
from maxq.protocol.message.message import (
    MessageExt,
    decode_batch,
    decode_message_id,
    decode_properties,
    encode_record,
)
from maxq.protocol.message.message_trace import decode_traces
from maxq.protocol.message.pop_extra_info import parse_extra_info, parse_msg_offset_info, parse_start_offset_info
from maxq.protocol.message.received_cy import Pull, read_records
from maxq.remoting.connection import RECEIVE_BUFFER_SIZE
from maxq.remoting.http_server import read_head
from maxq.remoting.proxy_protocol import looks_like_proxy_header, parse_proxy_header
from maxq.remoting.tls.tls_channel import TlsChannel
from maxq.replication.ha.frames import FILLED_OFFSET, NAME_OFFSET, ReportParser, TransferParser
from maxq.store.dledger.text_file import decode_text

STRANGER_MS = 20.0
CLIENT_MS = 50.0
#: How many times as long the longer input of a comparison is.
STEP = 8
#: Of time to time then: 8 is linear, 64 quadratic.
GROWTH = 24.0
#: Below so many seconds a difference says nothing.
LEAST_SECONDS = 0.002
SHORT_SIZE = 65_536
_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
_RUNS = 3
_ATTEMPTS = 3

Shape = Callable[[int], bytes]


@dataclass(frozen=True)
class Parser:
    """A parser of outside bytes. `limit`: bytes that reach it at most; `budget_ms` at that size, None if it is not on
    the path of requests; `shapes`: by name, makers of an input of about so many bytes."""

    name: str
    run: Callable[[bytes], object]
    limit: int
    budget_ms: float | None
    shapes: dict[str, Shape]


def seconds(parser: Parser, data: bytes) -> float:
    """The best of some runs. Errors of ours are outcomes like others."""
    best = float("inf")
    for _ in range(_RUNS):
        began = time.thread_time_ns()
        with contextlib.suppress(MaxQError):
            parser.run(data)
        best = min(best, fair_ns(time.thread_time_ns() - began) / 1e9)
    return best


def sizes(limit: int) -> list[int]:
    """The limit and smaller ones: a parser may refuse by something else than size what is long, and take less of it."""
    return [limit >> shift for shift in range(8) if limit >> shift >= 1024]


def growth(parser: Parser, shape: Shape, size: int) -> float:
    """How many times as long `size` bytes take as an eighth of them; 0 if both are too short to say."""
    long = seconds(parser, shape(size))
    if long < LEAST_SECONDS:
        return 0.0
    return long / max(seconds(parser, shape(size // STEP)), LEAST_SECONDS / STEP)


def check(parser: Parser, name: str, size: int) -> float:
    """The growth of a shape; raises Finding if each of some attempts shows that it is more than linear."""
    found = GROWTH
    for _ in range(_ATTEMPTS):
        found = min(found, growth(parser, parser.shapes[name], size))
        if found < GROWTH:
            return found
    raise Finding(f"{parser.name}, {name}: {size} bytes take {GROWTH} times as long as {size // STEP} and more")


# --- shapes ----------------------------------------------------------------------------------------------------------


def repeated(piece: bytes, start: bytes = b"", end: bytes = b"") -> Shape:
    """`start`, then `piece` over and over, then `end`."""
    return lambda size: start + piece * max(1, (size - len(start) - len(end)) // len(piece)) + end


def nested(opening: bytes, closing: bytes, start: bytes = b"", end: bytes = b"") -> Shape:
    """`opening` as often as `closing`, within `start` and `end`."""

    def make(size: int) -> bytes:
        depth = max(1, (size - len(start) - len(end)) // (len(opening) + len(closing)))
        return start + opening * depth + closing * depth + end

    return make


def numbered(form: str, start: bytes = b"", end: bytes = b"", between: bytes = b",") -> Shape:
    """`form` with 0, 1, 2 …, so that no two are the same."""

    def pieces(room: int) -> Iterator[bytes]:
        for number in itertools.count():
            piece = (form % number).encode()
            room -= len(piece) + len(between)
            if room < 0:
                return
            yield piece

    return lambda size: start + between.join(pieces(size - len(start) - len(end))) + end


def _json(start: bytes = b"{", end: bytes = b"}") -> dict[str, Shape]:
    """Shapes of any JSON text, as the members of an object that begins with `start`."""
    inside = start + b'"x":'
    return {
        "arrays in arrays": nested(b"[", b"]", inside, end),
        "arrays without ends": repeated(b"[", inside),
        "objects in objects": nested(b'{"a":', b"}", inside, end),
        "empty objects": repeated(b"{},", inside + b"[", b"{}]" + end),
        "numbers": repeated(b"1,", inside + b"[", b"1]" + end),
        "one long number": repeated(b"9", inside, end),
        "one long text": repeated(b"x", inside + b'"', b'"' + end),
        "a text without end": repeated(b"x", inside + b'"'),
        "escapes": repeated(b"\\n", inside + b'"', b'"' + end),
        "unicode escapes": repeated(b"\\u0416", inside + b'"', b'"' + end),
        "surrogates": repeated(b"\\ud83d\\ude00", inside + b'"', b'"' + end),
        "members": numbered('"m%d":"v"', start, end),
        "one member many times": repeated(b'"m":1,', start, b'"m":1' + end),
        "blanks": repeated(b" \n", start, end),
    }


def _dialect() -> dict[str, Shape]:
    """What only fastjson reads."""
    return {
        **_json(b"{a:1,"),
        "words": repeated(b"true,", b"{a:[", b"true]}"),
        "comments": repeated(b"/**/", b"{", b"}"),
        "a comment without end": repeated(b"/*a", b"{"),
        "stars": repeated(b"*", b"{/*"),
        "slashes": repeated(b"//\n", b"{", b"}"),
        "commas": repeated(b",", b"{a:[", b"]}"),
        "bare members": numbered("m%d:1", b"{", b"}"),
        "objects as keys": numbered('{"queueId":%d}:1', b"{", b"}"),
        "keys in keys": nested(b"{", b":1}"),
        "references": repeated(b'{"$ref":"$.a"},', b"{a:[1],b:[", b"{}]}"),
        "references to references": numbered('m%d:{"$ref":"$"}', b"{", b"}"),
        "a long reference": repeated(b".a", b'{b:{"$ref":"$', b'"}}'),
        "fractions": repeated(b"1.", b"{a:[", b"]}"),
        "exponents": repeated(b"1e9,", b"{a:[", b"1]}"),
    }


def _frame(kind: int, header: Shape) -> Shape:
    def make(size: int) -> bytes:
        found = header(size)
        return (kind << 24 | len(found)).to_bytes(4, "big") + found

    return make


def _binary(field: bytes) -> Shape:
    """A binary header of equal fields."""

    def make(size: int) -> bytes:
        ext = field * max(1, (size - 21) // len(field))
        return bytes(17) + len(ext).to_bytes(4, "big") + ext

    return make


def _frames() -> dict[str, Shape]:
    header = {name: _frame(0, shape) for name, shape in _json(b'{"code":1,"extFields":{"k":1},').items()}
    fields = {
        "fields": numbered('"f%d":"v"', b'{"code":1,"extFields":{', b"}}"),
        "fields that are numbers": numbered('"f%d":1', b'{"code":1,"extFields":{', b"}}"),
        "fields that are objects": numbered('"f%d":{"a":[{}]}', b'{"code":1,"extFields":{', b"}}"),
        "a long value": repeated(b"x", b'{"code":1,"extFields":{"f":"', b'"}}'),
        "no JSON": repeated(b"{a:"),
    }
    binary = {
        "binary fields": _binary(b"\0\1k\0\0\0\1v"),
        "binary fields that are empty": _binary(bytes(6)),
        "one long binary field": lambda size: _binary(b"\0\1k" + (size - 64).to_bytes(4, "big") + b"v" * (size - 64))(
            1
        ),
        "bytes that are no text": lambda size: _binary(
            b"\0\1k" + (size - 64).to_bytes(4, "big") + b"\xff" * (size - 64)
        )(1),
    }
    return {
        **header,
        **{name: _frame(0, shape) for name, shape in fields.items()},
        **{name: _frame(1, shape) for name, shape in binary.items()},
    }


def _heartbeats() -> dict[str, Shape]:
    group = b'{"clientID":"c","consumerDataSet":['
    subscriptions = group + b'{"groupName":"G","subscriptionDataSet":['
    full = (
        '{"groupName":"G%d","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","consumeFromWhere":'
        '"CONSUME_FROM_LAST_OFFSET","unitMode":false,"subscriptionDataSet":[{"classFilterMode":false,"codeSet":[65],'
        '"expressionType":"TAG","subString":"A","subVersion":1700000000000,"tagsSet":["A"],"topic":"T"}]}'
    )
    return {
        **_json(),
        **{f"dialect: {name}": shape for name, shape in _dialect().items()},
        "groups": numbered(full, group, b"]}"),
        "empty groups": repeated(b"{},", group, b"{}]}"),
        "empty subscriptions": repeated(b"{},", subscriptions, b"{}]}]}"),
        "tags": numbered('"%d"', subscriptions + b'{"tagsSet":[', b"]}]}]}"),
        "codes": numbered("%d", subscriptions + b'{"codeSet":[', b"]}]}]}"),
        "a long expression": repeated(b"A||", subscriptions + b'{"subString":"', b'"}]}]}'),
        "producers": numbered('{"groupName":"P%d"}', b'{"producerDataSet":[', b"]}"),
    }


def _locks() -> dict[str, Shape]:
    start = b'{"clientId":"c","consumerGroup":"G","mqSet":['
    return {
        **_json(),
        "queues": numbered('{"brokerName":"broker-a","queueId":%d,"topic":"T"}', start, b"]}"),
        "empty queues": repeated(b"{},", start, b"{}]}"),
        "long numbers": numbered('{"queueId":"99999999999999999999999999999999%d"}', start, b"]}"),
    }


def _acks() -> dict[str, Shape]:
    start = b'{"brokerName":"b","acks":['
    ack = '{"c":"G","t":"T","r":"0","so":%d,"q":0,"rq":1,"pt":1,"it":1,"b":"AQ=="}'
    return {
        **_json(),
        "acks": numbered(ack, start, b"]}"),
        "a long set of bits": repeated(b"////", start + b'{"c":"G","t":"T","r":"0","b":"', b'"}]}'),
    }


def _registrations() -> dict[str, Shape]:
    def counted(block: bytes) -> Shape:
        piece = len(block).to_bytes(4, "big") + block
        version = (2).to_bytes(4, "big") + b"{}"

        def make(size: int) -> bytes:
            count = max(1, (size - 32) // len(piece))
            rest = (2).to_bytes(4, "big") + b"[]" + bytes(4)
            return b"\x10" + version + count.to_bytes(4, "big") + piece * count + rest

        return make

    text = TopicConfig("TopicTest", attributes={"+a": "b"}).encode_text().encode()
    return {"topics": counted(text), "attributes": counted(b"T 8 8 6 SINGLE_TAG " + b'{"+a":"b"}' * 20)}


def _expressions() -> dict[str, Shape]:
    def texts(*pieces: bytes) -> dict[str, Shape]:
        return {piece.decode(): repeated(piece) for piece in pieces}

    return {
        **texts(
            b"-", b"+", b"(", b"'", b"''", b"'a", b"NOT ", b"a ", b"a=", b"a<", b"1.", b"1e", b".", b"/*", b"/**/",
            b"/*a*", b"--", b"--\n", b"-- a\n", b"$", b"9", b"\n", b"\\", b"\xd0\x96",
        ),
        "a OR": repeated(b"a OR ", end=b"a"),
        "a AND": repeated(b"a AND ", end=b"a"),
        "TRUE OR": repeated(b"TRUE OR ", end=b"TRUE"),
        "a=1 OR": repeated(b"a=1 OR ", end=b"a=1"),
        "a>.1 OR": repeated(b"a>.1 OR ", end=b"a>.1"),
        "(a=1) OR": repeated(b"(a=1) OR ", end=b"a"),
        "names": numbered("a%d=1", between=b" OR "),
        "texts": numbered("'%d'", b"a IN (", b")"),
        "parentheses": nested(b"(", b")", b"", b" b"),
        "parentheses around": lambda size: b"(" * 150 + repeated(b"a=1 OR ", end=b"a")(size - 300) + b")" * 150,
        "minus": repeated(b"-", end=b"1"),
        "contains": repeated(b"a CONTAINS 'x' OR ", end=b"a"),
        "between": repeated(b"a BETWEEN 1 AND 2 OR ", end=b"a"),
        "comments at a time": repeated(b"/* */", end=b"a"),
    }  # fmt: skip


def _lines() -> dict[str, Shape]:
    return {
        "lines": numbered("k%d=v", between=b"\n"),
        "backslashes": repeated(b"\\"),
        "continued lines": repeated(b"a\\\n"),
        "blanks": repeated(b" "),
        "equals": repeated(b"="),
        "comments": repeated(b"#\n"),
        "escapes": repeated(b"\\u0041", b"k="),
        "ends of lines": repeated(b"\r\n"),
        "one long line": repeated(b"x"),
    }


def _rows() -> dict[str, Shape]:
    """Texts with separators."""
    pieces = (b" ", b"0 ", b"; ", b";", b",", b"0 0 1;", b"0 0 1,2,", b"\x01", b"\x02", b"a\x01", b"a\x01b\x02",
              b"||", b"A||", b"9", b"x", b"\xd0\x96", b"A1B2", b"0A", b"Pub\x01\x02")  # fmt: skip
    found = {repr(piece): repeated(piece) for piece in pieces}
    return {
        **found,
        "numbers": numbered("%d", between=b" "),
        "properties": numbered("k%d\x01v", between=b"\x02"),
        "offsets": numbered("0 %d 12", between=b";"),
    }


def _yaml() -> dict[str, Shape]:
    return {
        **_lines(),
        "accounts": numbered("- accessKey: key%d\n  secretKey: secret1\n", b"accounts:\n", between=b""),
        "lists in lists": repeated(b"- "),
        "white addresses": numbered("- 10.0.%d.{1,2}\n", b"globalWhiteRemoteAddresses:\n", between=b""),
        "permissions": numbered("  - t%d=PUB\n", b"accounts:\n- accessKey: abcdefg\n  topicPerms:\n", between=b""),
        "anchors": numbered("a%d: &x [*x,*x]\n", between=b""),
    }


def _batches() -> dict[str, Shape]:
    def message(body: bytes, properties: bytes) -> bytes:
        rest = bytes(12) + len(body).to_bytes(4, "big") + body + len(properties).to_bytes(2, "big") + properties
        return (len(rest) + 4).to_bytes(4, "big") + rest

    return {
        "bodies of a byte": repeated(message(b"x", b"")),
        "bodies of none": repeated(message(b"", b"")),
        "many properties": repeated(message(b"x", b"a\x01b\x02" * 5_000)),
        "zeros": repeated(b"\0"),
        "ends": repeated(b"\xff"),
    }


def _pulls() -> dict[str, Shape]:
    def record(body: bytes, properties: bytes) -> bytes:
        return encode_record(MessageExt("T", body), properties)

    return {
        "small records": repeated(record(b"", b"")),
        "many properties": repeated(record(b"x", b"a\x01b\x02" * 8_000)),
        "many tags": repeated(record(b"x", b"TAGS\x01b\x02" * 4_000)),
        "no separators": repeated(record(b"x", b"T" * 32_000)),
        "separators": repeated(record(b"x", b"\x02" * 32_000)),
        "zeros": repeated(b"\0"),
    }


def _pulled(data: bytes) -> None:
    """As a consumer that selects by tag takes the answer to a pull, and reads all."""
    for message in read_records(data, Pull("", 0, 0), {"b"}) or ():
        _ = message.body, message.properties


def _proxy() -> dict[str, Shape]:
    return {
        "no end": repeated(b" ", b"PROXY TCP4"),
        "long addresses": repeated(b"1.", b"PROXY TCP4 ", b" 1.1.1.1 1 1\r\n"),
        "version 2": lambda size: b"\r\n\r\n\0\r\nQUIT\n\x21\x11" + (size & 0xFFFF).to_bytes(2, "big") + bytes(size),
        "empty records": lambda size: (
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11" + (12 + min(size, 65_520) // 3 * 3).to_bytes(2, "big") + bytes(12)
            + b"\x02\0\0" * (min(size, 65_520) // 3)
        ),
    }  # fmt: skip


# --- parsers ---------------------------------------------------------------------------------------------------------


def _limited(code: int, decode: Callable[[bytes], object]) -> Callable[[bytes], object]:
    """As a server takes the body of a request: looked at first, parsed for the judge, and parsed for its processor."""

    def run(data: bytes) -> None:
        if body_limits.refusal_of_body(code, data) is None:
            decode(data)
            decode(data)

    return run


def _expression(data: bytes) -> None:
    sql92.forget_outcomes()
    known_expression("SQL92", data.decode())


def _text(*parse: Callable[[str], object]) -> Callable[[bytes], None]:
    def run(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        for one in parse:
            try:
                one(text)
            except MaxQError:
                continue

    return run


def _http() -> dict[str, Shape]:
    line = b"GET /metrics HTTP/1.1\r\n"
    return {
        "headers": numbered("h%d: v\r\n", line, b"\r\n", b""),
        "empty headers": repeated(b":\r\n", line, b"\r\n"),
        "ends of lines": repeated(b"\r\n", line),
        "blanks": repeated(b" ", line + b"a:", b"\r\n\r\n"),
        "words": repeated(b"a ", end=b"\r\n\r\n"),
        "a long path": repeated(b"/a?", b"GET ", b" HTTP/1.1\r\n\r\n"),
        "encodings": repeated(b"gzip;q=0,", line + b"Accept-Encoding: ", b"\r\n\r\n"),
        "weights": repeated(b"q=1;", line + b"Accept-Encoding: gzip;", b"\r\n\r\n"),
        "bytes": repeated(b"\xff\x00"),
    }


def _tls() -> dict[str, Shape]:
    """What comes first where TLS may begin: records, most of them of a handshake."""

    def hello(extensions: bytes) -> bytes:
        body = b"\x03\x03" + bytes(32) + b"\0\0\x02\x13\x01\x01\0" + len(extensions).to_bytes(2, "big") + extensions
        message = b"\x01" + len(body).to_bytes(3, "big") + body
        return b"\x16\x03\x01" + len(message).to_bytes(2, "big") + message

    return {
        "empty records": repeated(b"\x16\x03\x01\0\0"),
        "records of a byte": repeated(b"\x16\x03\x01\0\x01\x01"),
        "alerts": repeated(b"\x15\x03\x01\0\x02\x01\0"),
        "hellos": repeated(hello(b"")),
        "a hello with many extensions": lambda size: hello(b"\xfa\xfa\0\0" * (min(size, 16_000) // 4)),
        "a long hello": lambda size: b"\x16\x03\x01\x40\0\x01" + (size & 0xFFFFFF).to_bytes(3, "big") + bytes(16_380),
        "zeros": repeated(b"\0"),
    }


def _reports() -> dict[str, Shape]:
    """Of a slave to its master."""
    return {
        "reports": repeated((1 << 20).to_bytes(8, "big")),
        "zeros": repeated(bytes(8)),
        "negative ones": repeated(b"\xff" * 8),
        "odd bytes": repeated(bytes(7)),
    }


def _transfers() -> dict[str, Shape]:
    """Of a master to its slave: offset, size, bytes."""

    def frame(offset: int, body: bytes) -> bytes:
        return offset.to_bytes(8, "big", signed=True) + len(body).to_bytes(4, "big") + body

    def following(size: int) -> bytes:
        return b"".join(frame(number * 4, b"abcd") for number in range(size // 16))

    name, seals = frame(NAME_OFFSET, b"x" * 200), frame(FILLED_OFFSET, bytes(240))
    return {
        "heartbeats": repeated(frame(0, b"")),
        "bodies of a byte": repeated(frame(7, b"x")),
        "bodies that follow each other": following,
        "one long body": lambda size: frame(0, bytes(max(size - 12, 0))),
        "names": repeated(name),
        "seals": repeated(seals),
        "name and seals": repeated(frame(0, b"x"), name + seals),
    }


def _offset_rows() -> dict[str, Shape]:
    return {
        **_json(),
        "rows": numbered('"topic%d@group":{"0":1,"1":2}', b'{"offsetTable":{', b"}}"),
        "queues": numbered('"%d":1', b'{"offsetTable":{"T@G":{', b"}}}"),
        "keys of signs": numbered('"@@@@%d":{}', b'{"offsetTable":{', b"}}"),
    }


def _dledger_bodies() -> dict[str, Shape]:
    entry = '{"index":%d,"term":1,"body":"AAAA"}'
    return {
        **_json(),
        "entries": numbered(entry, b'{"batchAppend":true,"entries":[', b"]}"),
        "bodies": numbered('"%d="', b'{"batchMsgs":[', b"]}"),
        "a long entry": repeated(b"AAAA", b'{"entry":{"body":"', b'"}}'),
        "numbers of bytes": repeated(b"1,", b'{"entry":{"body":[', b"1]}}"),
    }


def _proxy_header(data: bytes) -> None:
    if looks_like_proxy_header(data[:16]):
        parse_proxy_header(data)


def _dledger(data: bytes) -> None:
    for code in DLedgerRequestCode:
        with contextlib.suppress(MaxQError):
            decode_request(code, data)


def _tls_start(data: bytes) -> None:
    channel = TlsChannel(_TLS, server_side=True)
    with contextlib.suppress(ssl.SSLError):
        channel.feed(data)
        channel.outgoing()


def _transfer(data: bytes) -> None:
    parser = TransferParser()
    parser.receive_runs(memoryview(bytearray(data)))
    parser.take_name()
    parser.take_filled_ranges()


def _small_pieces(data: bytes) -> None:
    """As it comes over a slow network: TCP gives what there is."""
    transfers = TransferParser()
    pieces: Callable[[bytes], object]
    for pieces in (ReportParser().receive_data, lambda piece: transfers.receive_data(memoryview(piece))):
        with contextlib.suppress(MaxQError):
            for position in range(0, len(data), 16):
                pieces(data[position : position + 16])


def _settings(data: bytes) -> None:
    parse_properties(data, source="request")


def _size(code: int) -> int:
    return body_limits.body_limits()[code].size


PARSERS = [
    Parser("frame", decode_frame, MAX_HEADER_SIZE, STRANGER_MS, _frames()),
    Parser("header in fastjson's dialect", decode_frame, MAX_DIALECT_SIZE, STRANGER_MS,
           {name: _frame(0, shape) for name, shape in _dialect().items()}),
    Parser("JSON dialect", json_dialect.loads, body_limits.MAX_DIALECT_BODY, CLIENT_MS, _dialect()),
    Parser("JSON", json_dialect.loads, 1 << 20, None, _json()),
    Parser("heart-beat", _limited(RequestCode.HEART_BEAT, HeartbeatData.decode), _size(RequestCode.HEART_BEAT),
           CLIENT_MS, _heartbeats()),
    Parser("lock", _limited(RequestCode.LOCK_BATCH_MQ, LockBatchRequestBody.decode), _size(RequestCode.LOCK_BATCH_MQ),
           CLIENT_MS, _locks()),
    Parser("batch of acks", _limited(RequestCode.BATCH_ACK_MESSAGE, decode_batch_acks),
           _size(RequestCode.BATCH_ACK_MESSAGE), CLIENT_MS, _acks()),
    Parser("policy", _limited(RequestCode.AUTH_CREATE_ACL, access.acl_body), _size(RequestCode.AUTH_CREATE_ACL),
           CLIENT_MS, _json()),
    Parser("settings", _limited(RequestCode.UPDATE_BROKER_CONFIG, _settings),
           _size(RequestCode.UPDATE_BROKER_CONFIG), CLIENT_MS, _lines()),
    Parser("SQL92", _expression, sql92.MAX_EXPRESSION_SIZE, CLIENT_MS, _expressions()),
    Parser("tags", _text(lambda text: build_subscription_data("T", text, "TAG")), MAX_HEADER_SIZE, CLIENT_MS, _rows()),
    Parser("properties", decode_properties, MAX_HEADER_SIZE, CLIENT_MS, _rows()),
    Parser("handles", _text(parse_extra_info), MAX_HEADER_SIZE, CLIENT_MS, _rows()),
    Parser("offsets of pops, at clients", _text(parse_msg_offset_info, parse_start_offset_info), MAX_HEADER_SIZE, None,
           _rows()),
    Parser("message id", _text(decode_message_id), MAX_HEADER_SIZE, CLIENT_MS, _rows()),
    Parser("numbers in headers", _text(lambda text: HeaderFields({"n": text}).opt_int("n")), MAX_HEADER_SIZE, CLIENT_MS,
           _rows()),
    Parser("PROXY line", _proxy_header, 65_551, STRANGER_MS, _proxy()),
    Parser("batch of messages", lambda data: decode_batch(data, "T"), 4 << 20, None, _batches()),
    Parser("pulled records", _pulled, 4 << 20, None, _pulls()),
    Parser("registration", targets.registration, 1 << 20, None, _registrations()),
    Parser("registration without compression", RegisterBrokerBody.decode, 1 << 20, None, _json()),
    Parser("DLedger request", _dledger, 1 << 20, None, _dledger_bodies()),
    Parser("HTTP request", read_head, 8_192, STRANGER_MS, _http()),
    Parser("start of TLS", _tls_start, RECEIVE_BUFFER_SIZE, STRANGER_MS, _tls()),
    Parser("arrival of HTTP/2", arrival, RECEIVE_BUFFER_SIZE, STRANGER_MS, arrival_shapes()),
    Parser("reports of a slave", lambda data: ReportParser().receive_data(data), RECEIVE_BUFFER_SIZE, STRANGER_MS,
           _reports()),
    Parser("transfers of a master", _transfer, RECEIVE_BUFFER_SIZE, CLIENT_MS, _transfers()),
    Parser("both in small pieces", _small_pieces, 65_536, None, {**_reports(), **_transfers()}),
    Parser("offset table", lambda data: read_offset_table(json_dialect.loads(data)), 1 << 20, None, _offset_rows()),
    Parser("text file of DLedger", decode_text, 1 << 20, None, _rows()),
    Parser("trace records", decode_traces, 1 << 20, None, _rows()),
    Parser("file of ACL 1.0", access.plain_acl, 8_192, None, _yaml()),
    Parser("file of users", lambda data: decode_tables(data, AccessTables()), 1 << 20, None, _json()),
]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.time_fuzzer", description=__doc__.partition("\n")[0])
    parser.add_argument("--parser", choices=[one.name for one in PARSERS], help="one parser only")
    parser.add_argument("--all", action="store_true", help="a line for each shape, and not for the slowest alone")
    options = parser.parse_args(arguments)
    failed = False
    print(f"{'parser':34} {'shape':34} {'bytes':>9} {'ms':>8} {'budget':>7} {'growth':>7}")
    for one in PARSERS:
        if options.parser not in (None, one.name):
            continue
        rows = []
        for name, shape in one.shapes.items():
            took, size = max((seconds(one, shape(size)), size) for size in sizes(one.limit))
            try:
                times = f"{max(check(one, name, size) for size in sizes(one.limit)):7.1f}"
            except Finding:
                times, failed = "TOO FAST", True
            is_over = one.budget_ms is not None and 1000 * took > one.budget_ms
            failed = failed or is_over
            rows.append((1000 * took, name, size, times, is_over))
        slowest = max(rows)
        for row in rows:
            took_ms, name, size, times, is_over = row
            if options.all or row == slowest or is_over or "TOO" in times:
                budget = "" if one.budget_ms is None else f"{one.budget_ms:.0f}{' OVER' if is_over else ''}"
                print(f"{one.name:34} {name:34} {size:>9} {took_ms:8.1f} {budget:>7} {times}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
