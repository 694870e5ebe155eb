"""The scanner takes exactly the fast-path sends, reads them as a JSON library does, and its answers are whole
frames."""

import json
import struct
from array import array
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxq.protocol.frame import send_rows as columns
from tests.short_form import times
from tests.unit.both_forms import both_together

FORMS = both_together(
    "maxq.protocol.frame.send_scanner_cy", "maxq.protocol.frame.request_scanners_cy", "maxq.protocol.frame.replies_cy"
)
HOST = bytes([127, 0, 0, 1]) + (10911).to_bytes(4, "big")
PROPERTIES = "TAGS\x01TagA\x02UNIQ_KEY\x017F0001\x02WAIT\x01true\x02color\x01ж😀\x02"


@pytest.fixture(params=FORMS, ids=["uncompiled", "installed"])
def form(request: pytest.FixtureRequest) -> ModuleType:
    return request.param


def json_frame(ext: dict, body: bytes = b"hello", *, ascii_only: bool = True, **head: object) -> bytes:
    header = {
        "code": 310,
        "extFields": ext,
        "flag": 0,
        "language": "JAVA",
        "opaque": 7,
        "serializeTypeCurrentRPC": "JSON",
        "version": 479,
    } | head
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=ascii_only).encode()
    return struct.pack(">II", 4 + len(text) + len(body), len(text)) + text + body


def binary_frame(ext: dict, body: bytes = b"hello", code: int = 310, opaque: int = 7, flag: int = 0) -> bytes:
    pairs = b"".join(
        struct.pack(">h", len(k)) + k.encode() + struct.pack(">i", len(v.encode())) + v.encode() for k, v in ext.items()
    )
    header = struct.pack(">hbhiiii", code, 0, 479, opaque, flag, 0, len(pairs)) + pairs
    return struct.pack(">II", 4 + len(header) + len(body), len(header) | 1 << 24) + header + body


def fields(**changes: str) -> dict:
    ext = {
        "a": "P",
        "b": "TopicTest",
        "c": "TBW102",
        "d": "4",
        "e": "3",
        "f": "0",
        "g": "1700000000000",
        "h": "-5",
        "i": PROPERTIES,
        "j": "0",
        "k": "false",
        "l": "16",
        "m": "false",
        "n": "broker-a",
    }
    return {key: value for key, value in (ext | changes).items() if value is not None}


LONG_NAMES = (
    "producerGroup topic defaultTopic defaultTopicQueueNums queueId sysFlag bornTimestamp flag properties "
    "reconsumeTimes unitMode maxReconsumeTimes batch bname"
)


def long_names(ext: dict) -> dict:
    names = dict(zip("abcdefghijklmn", LONG_NAMES.split(), strict=True))
    return {names[key]: value for key, value in ext.items()}


def scanner(form: ModuleType, **options: int):
    return form.SendScanner(1 << 24, **options)


def texts(scan, buffer: bytes, number: int = 0) -> dict:
    row = scan.rows[number * columns.ROW_WIDTH : (number + 1) * columns.ROW_WIDTH]
    source = scan.scratch if row[columns.R_FLAGS] & columns.F_SCRATCH else buffer
    cut = lambda data, at: bytes(data[row[at] : row[at] + row[at + 1]])  # noqa: E731
    return {
        "topic": cut(buffer, columns.R_TOPIC),
        "properties": cut(source, columns.R_PROPERTIES),
        "body": cut(buffer, columns.R_BODY),
        "unique": cut(source, columns.R_UNIQUE),
        "queue": row[columns.R_QUEUE_ID],
        "born": row[columns.R_BORN_TIMESTAMP],
        "flag": row[columns.R_FLAG],
        "opaque": row[columns.R_OPAQUE],
        "flags": row[columns.R_FLAGS],
        "frame": row[columns.R_FRAME],
    }


@pytest.mark.parametrize(
    "make",
    [
        lambda: json_frame(fields()),
        lambda: json_frame(fields(), ascii_only=False),
        lambda: json_frame(long_names(fields()), code=10),
        lambda: binary_frame(fields()),
        lambda: binary_frame(long_names(fields()), code=10),
        lambda: json_frame(fields(e=3, f=0, g=1700000000000, h=-5, k=False, m=False)),
    ],
)
def test_a_plain_send_is_read_as_it_stands(form: ModuleType, make) -> None:
    frame = bytearray(make())
    scan = scanner(form)
    assert scan.scan(frame, 0, len(frame)) == len(frame)
    found = texts(scan, frame)
    assert found | {"flags": 0, "frame": 0} == {
        "topic": b"TopicTest",
        "properties": PROPERTIES.encode(),
        "body": b"hello",
        "unique": b"7F0001",
        "queue": 3,
        "born": 1700000000000,
        "flag": -5,
        "opaque": 7,
        "flags": 0,
        "frame": 0,
    }


@pytest.mark.parametrize(
    "frame",
    [
        json_frame(fields(), code=11),
        json_frame(fields(), flag=1),
        json_frame(fields(b="%RETRY%g")),
        json_frame(fields(b="")),
        json_frame(fields(b=None)),
        json_frame(fields(b="T" * 128)),
        json_frame(fields(f="4")),
        json_frame(fields(f="128")),
        json_frame(fields(e="-1")),
        json_frame(fields(e="x")),
        json_frame(fields(i="TAGS\x01a\x02")),
        json_frame(fields(i=PROPERTIES + "DELAY\x013\x02")),
        json_frame(fields(i=PROPERTIES + "TRAN_MSG\x01true")),
        json_frame(fields(i=PROPERTIES + "CLUSTER\x01c")),
        json_frame(fields(i=PROPERTIES + "x\x01")),
        json_frame(fields(i=PROPERTIES + "\x01y")),
        json_frame(fields(i=PROPERTIES + "UNIQ_KEY\x01again")),
        json_frame(fields(i='UNIQ_KEY\x01a"b')),
        json_frame(fields(ns="space")),
        json_frame(fields(Signatur="s")),
        json_frame(fields(), body=b""),
        json_frame(fields(h="1e3")),
        json_frame(fields(i="UNIQ_KEY\x01" + "k" * 129)),
        binary_frame(fields(), code=11),
        binary_frame(fields(i=PROPERTIES + "INNER_NUM\x013")),
        struct.pack(">I", 20) + bytes(20),
    ],
    ids=range(26),
)
def test_anything_else_is_left_to_the_general_codec(form: ModuleType, frame: bytes) -> None:
    good = json_frame(fields())
    buffer = bytearray(good + frame + good)
    scan = scanner(form)
    assert scan.scan(buffer, 0, len(buffer)) == len(good)
    assert scan.count == 1


def test_incomplete_and_oversized_frames_stop_the_scan(form: ModuleType) -> None:
    frame = json_frame(fields())
    scan = scanner(form)
    for cut in range(len(frame)):
        assert scan.scan(bytearray(frame + frame[:cut]), 0, len(frame) + cut) == len(frame)
    assert form.SendScanner(len(frame) - 1).scan(bytearray(frame), 0, len(frame)) == 0


def test_a_full_row_buffer_or_scratch_ends_the_run_and_the_next_call_goes_on(form: ModuleType) -> None:
    frame = json_frame(fields())
    buffer = bytearray(frame * 5)
    scan = scanner(form, capacity=2)
    assert scan.scan(buffer, 0, len(buffer)) == 2 * len(frame)
    assert scan.scan(buffer, 2 * len(frame), len(buffer)) == 4 * len(frame)
    scan = scanner(form, scratch_size=2 * len(PROPERTIES.encode()) + 100)
    assert 0 < scan.scan(buffer, 0, len(buffer)) < len(buffer)


def arrivals_of(form: ModuleType, *arrivals: bytes) -> tuple[bytearray, "array[int]"]:
    buffer, table = bytearray(), array("q")
    for data in arrivals:
        table.extend((len(buffer), len(buffer) + len(data), 0, 0, 0))
        buffer += data
    return buffer, table


def test_each_arrival_is_scanned_within_its_own_bytes(form: ModuleType) -> None:
    """A frame that is announced and not there yet does not reach into what another connection sent."""
    one, two = json_frame(fields(e="1")), binary_frame(fields(e="2"))
    hurried = json_frame(fields(i="UNIQ_KEY\x01a\x02WAIT\x01false"))
    half = json_frame(fields(i="UNIQ_KEY\x01a\x02TRAN_MSG\x01true\x02PGROUP\x01P"))
    for last in (b"", one[:-1], one[:3], hurried, json_frame(fields(), flag=2), half, json_frame({}, code=11)):
        arrivals = [one + last, two, last, two + one + last, one]
        buffer, table = arrivals_of(form, *arrivals)
        scan = scanner(form)
        scan.takes_halves = True
        scan.scan_arrivals(buffer, table, len(arrivals))
        taken, first = [1, 1, 0, 2, 1], 0
        for number, rows in enumerate(taken):
            start, end, position, found_first, found = table[number * 5 : number * 5 + 5]
            assert (found_first, found) == (first, rows)
            frames = [one, two, b"", two + one, one][number]
            assert position == start + len(frames)
            assert end == start + len(arrivals[number])
            first += rows
        assert scan.count == first
        assert [texts(scan, buffer, number)["queue"] for number in range(3)] == [1, 2, 2]


def test_a_full_row_buffer_leaves_the_later_arrivals(form: ModuleType) -> None:
    frame = json_frame(fields())
    buffer, table = arrivals_of(form, frame * 2, frame * 2, frame)
    scan = scanner(form, capacity=3)
    scan.scan_arrivals(buffer, table, 3)
    assert [table[number * 5 + 4] for number in range(3)] == [2, 1, 0]
    assert [table[number * 5 + 2] for number in range(3)] == [2 * len(frame), 3 * len(frame), 4 * len(frame)]


def test_arrivals_outside_the_buffer_or_over_each_other_are_refused(form: ModuleType) -> None:
    buffer = bytearray(json_frame(fields()))
    for table in ([0, len(buffer) + 1, 0, 0, 0], [-1, 5, 0, 0, 0], [0, 10, 0, 0, 0, 9, 20, 0, 0, 0]):
        with pytest.raises(ValueError, match="arrival"):
            scanner(form).scan_arrivals(buffer, array("q", table), len(table) // 5)


def test_one_way_batch_and_no_wait_are_flags(form: ModuleType) -> None:
    scan = scanner(form)
    for frame, flag in (
        (json_frame(fields(), flag=2), columns.F_ONEWAY),
        (json_frame(fields(i="UNIQ_KEY\x01a\x02WAIT\x01false")), columns.F_NO_WAIT),
        (json_frame(fields(m="true"), code=320), columns.F_BATCH),
        (json_frame(fields(m="1")), columns.F_BATCH),
        (binary_frame(fields()), columns.F_BINARY),
    ):
        buffer = bytearray(frame)
        assert scan.scan(buffer, 0, len(buffer)) == len(buffer)
        assert texts(scan, buffer)["flags"] & ~columns.F_SCRATCH == flag


@pytest.mark.parametrize("given_properties", ["WAIT\x01true", "", None])
def test_a_batch_needs_no_unique_key_of_its_own_and_is_answered_without(
    form: ModuleType, given_properties: str | None
) -> None:
    frame = json_frame(fields(i=given_properties, m="true"))
    buffer = bytearray(frame)
    scan = scanner(form)
    assert scan.scan(buffer, 0, len(buffer)) == len(buffer)
    assert texts(scan, buffer)["properties"] == (given_properties or "").encode()
    assert "transactionId" not in json.loads(answered(form, frame, 1000, 1)[8:])["extFields"]


def answered(form: ModuleType, frame: bytes, offset: int, count: int, log: bytes = bytes(64), code: int = 0) -> bytes:
    buffer = bytearray(frame)
    scan = scanner(form)
    assert scan.scan(buffer, 0, len(buffer)) == len(buffer)
    scan.rows[columns.R_PHYSICAL_OFFSET], scan.rows[columns.R_QUEUE_OFFSET], scan.rows[columns.R_COUNT] = (
        offset,
        41,
        count,
    )
    out = bytearray(b"kept")
    size = form.encode_replies(
        scan.rows, 0, 1, buffer, scan.scratch, HOST, b"DefaultRegion", b"true", 3, 479, memoryview(log), 1000, code, out
    )
    assert out[:4] == b"kept" and len(out) == 4 + size
    return bytes(out[4:])


def test_answers_are_what_the_java_client_reads(form: ModuleType) -> None:
    answer = answered(form, json_frame(fields(), opaque=-3), 1263, 1, code=10)
    length, header_length = struct.unpack(">II", answer[:8])
    assert (length, header_length) == (len(answer) - 4, len(answer) - 8)
    assert json.loads(answer[8:]) == {
        "code": 10,
        "flag": 1,
        "language": "PYTHON",
        "opaque": -3,
        "serializeTypeCurrentRPC": "JSON",
        "version": 479,
        "extFields": {
            "queueId": "3",
            "transactionId": "7F0001",
            "msgId": "7F00000100002A9F00000000000004EF",
            "TRACE_ON": "true",
            "MSG_REGION": "DefaultRegion",
            "queueOffset": "41",
        },
    }


def test_binary_requests_get_binary_answers(form: ModuleType) -> None:
    answer = answered(form, binary_frame(fields()), 1263, 1)
    code, language, version, opaque, flag, remark, size = struct.unpack_from(">hbhiiii", answer, 8)
    assert (code, language, version, opaque, flag, remark, size) == (0, 3, 479, 7, 1, 0, len(answer) - 8 - 21)
    assert struct.unpack(">I", answer[4:8])[0] == len(answer) - 8 | 1 << 24
    found, p = {}, 8 + 21
    while p < len(answer):
        (n,) = struct.unpack_from(">h", answer, p)
        (m,) = struct.unpack_from(">i", answer, p + 2 + n)
        found[answer[p + 2 : p + 2 + n]] = answer[p + 6 + n : p + 6 + n + m]
        p += 6 + n + m
    assert found == {
        b"queueId": b"3",
        b"transactionId": b"7F0001",
        b"msgId": b"7F00000100002A9F00000000000004EF",
        b"TRACE_ON": b"true",
        b"MSG_REGION": b"DefaultRegion",
        b"queueOffset": b"41",
    }


def test_a_row_that_was_not_stored_has_no_answer(form: ModuleType) -> None:
    frame = json_frame(fields())
    buffer = bytearray(frame * 3)
    scan = scanner(form)
    scan.scan(buffer, 0, len(buffer))
    for number, count in enumerate((1, 0, 1)):
        scan.rows[number * columns.ROW_WIDTH + columns.R_OPAQUE] = number
        scan.rows[number * columns.ROW_WIDTH + columns.R_COUNT] = count
    out = bytearray()
    form.encode_replies(
        scan.rows, 0, 3, buffer, scan.scratch, HOST, b"R", b"true", 3, 479, memoryview(bytes(10)), 0, 0, out
    )
    first = 4 + int.from_bytes(out[:4], "big")
    assert b'"opaque":0,' in out[:first] and b'"opaque":2,' in out[first:]
    assert len(out) == first + 4 + int.from_bytes(out[first : first + 4], "big")


def test_a_batch_answer_lists_every_id_and_one_way_has_none(form: ModuleType) -> None:
    log = struct.pack(">i", 20) + bytes(16) + struct.pack(">i", 24) + bytes(40)
    answer = answered(form, json_frame(fields(m="true")), 1000, 3, log)
    assert json.loads(answer[8:])["extFields"]["msgId"] == ",".join(
        f"7F00000100002A9F{offset:016X}" for offset in (1000, 1020, 1044)
    )
    assert answered(form, json_frame(fields(), flag=2), 1000, 1) == b""


def pull_fields(**changes: str) -> dict:
    ext = {
        "consumerGroup": "G",
        "topic": "T",
        "queueId": "3",
        "queueOffset": "17",
        "maxMsgNums": "32",
        "sysFlag": "6",
        "commitOffset": "-1",
        "suspendTimeoutMillis": "15000",
        "subscription": "TagA || TagB",
        "subVersion": "1700000000000",
        "expressionType": "TAG",
    }
    return {key: value for key, value in (ext | changes).items() if value is not None}


@pytest.mark.parametrize(
    "make", [lambda ext: json_frame(ext, b"", code=11), lambda ext: binary_frame(ext, b"", code=361)]
)
def test_a_pull_is_its_key_and_what_changes_from_pull_to_pull(form: ModuleType, make) -> None:
    scan = form.PullScanner()
    buffer = bytearray(make(pull_fields()))
    assert scan.scan(buffer, 0, len(buffer)) == len(buffer)
    assert (scan.queue_offset, scan.commit_offset, scan.opaque) == (17, -1, 7)
    assert scan.key == "\0".join([pull_fields().get(name, "") for name in form.PULL_KEY_FIELDS] + [""]).encode()
    key = scan.key
    buffer = bytearray(make(pull_fields(queueOffset="99", commitOffset="5")))
    assert scan.scan(buffer, 0, len(buffer)) == len(buffer)
    assert (scan.key, scan.queue_offset, scan.commit_offset) == (key, 99, 5)
    assert scan.scan(buffer, 0, len(buffer) - 1) == 0


@pytest.mark.parametrize(
    "frame",
    [
        json_frame(pull_fields(), b"", code=310),
        json_frame(pull_fields(queueOffset="-1"), b"", code=11),
        json_frame(pull_fields(queueOffset=None), b"", code=11),
        json_frame(pull_fields(liteTopic="x"), b"", code=11),
        json_frame(pull_fields(topic='"'), b"", code=11),
        json_frame(pull_fields(), b"", code=11, flag=2),
        json_frame(pull_fields(subscription="x" * 5000), b"", code=11),
        b"\0\0\0\4\0\0\0\0",
    ],
    ids=range(8),
)
def test_other_pulls_are_left_to_the_general_codec(form: ModuleType, frame: bytes) -> None:
    assert form.PullScanner().scan(bytearray(frame), 0, len(frame)) == 0


@settings(max_examples=times(300), deadline=None)
@given(st.data())
def test_any_bytes_give_the_same_rows_in_both_forms(data: st.DataObject) -> None:
    base = data.draw(st.sampled_from([json_frame(fields()), binary_frame(fields()), json_frame(fields(m="true"))]))
    mutated = bytearray(base)
    for _ in range(data.draw(st.integers(0, 6))):
        mutated[data.draw(st.integers(0, len(mutated) - 1))] = data.draw(st.integers(0, 255))
    mutated += data.draw(st.binary(max_size=40))
    scans = [scanner(form) for form in FORMS]
    ends = [scan.scan(mutated, 0, len(mutated)) for scan in scans]
    assert ends[0] == ends[1] and scans[0].count == scans[1].count
    used = scans[0].count * columns.ROW_WIDTH
    assert scans[0].rows[:used] == scans[1].rows[:used]
    assert scans[0].scratch == scans[1].scratch or scans[0].count == 0


END = {
    "producerGroup": "G", "tranStateTableOffset": "5", "commitLogOffset": "900", "commitOrRollback": "8",
    "msgId": "M", "transactionId": "U", "fromTransactionCheck": "false", "topic": "T", "bname": "broker-a",
}  # fmt: skip


@pytest.mark.parametrize("binary", [False, True])
def test_end_scanner_reads_one_way_ends(form: ModuleType, binary: bool) -> None:
    frame = binary_frame(END, b"", 37, 7, 2) if binary else json_frame(END, b"", code=37, flag=2)
    scanner = form.EndScanner()
    assert scanner.scan(bytearray(frame + frame), len(frame), 2 * len(frame)) == 2 * len(frame)
    found = (scanner.tran_state_table_offset, scanner.commit_log_offset, scanner.commit_or_rollback)
    assert (*found, scanner.producer_group, scanner.msg_id) == (5, 900, 8, b"G", b"M")
    for cut in range(len(frame)):
        assert scanner.scan(bytearray(frame[:cut]), 0, cut) == 0


@settings(max_examples=times(300), deadline=None)
@given(st.data())
def test_any_bytes_give_the_same_end_in_both_forms(data: st.DataObject) -> None:
    base = data.draw(st.sampled_from([json_frame(END, b"", code=37, flag=2), binary_frame(END, b"", 37, 7, 2)]))
    mutated = bytearray(base)
    for _ in range(data.draw(st.integers(0, 4))):
        mutated[data.draw(st.integers(0, len(mutated) - 1))] = data.draw(st.integers(0, 255))
    scans = [form.EndScanner() for form in FORMS]
    ends = [scan.scan(mutated, 0, len(mutated)) for scan in scans]
    assert ends[0] == ends[1]
    if ends[0]:
        names = ["commit_or_rollback", "commit_log_offset", "tran_state_table_offset", "producer_group", "msg_id"]
        assert [getattr(scans[0], name) for name in names] == [getattr(scans[1], name) for name in names]


def test_end_scanner_leaves_all_others(form: ModuleType) -> None:
    others = [
        json_frame(END, b"", code=37),  # wants an answer
        json_frame(END, b"", code=310, flag=2),
        json_frame(END | {"fromTransactionCheck": "true"}, b"", code=37, flag=2),
        json_frame(END | {"commitLogOffset": "-1"}, b"", code=37, flag=2),
        json_frame(END | {"producerGroup": None}, b"", code=37, flag=2),
        json_frame(END | {"newField": "x"}, b"", code=37, flag=2),
        json_frame({k: v for k, v in END.items() if k != "msgId"}, b"", code=37, flag=2),
        json_frame({k: v for k, v in END.items() if k != "producerGroup"}, b"", code=37, flag=2),
    ]
    for frame in others:
        assert form.EndScanner().scan(bytearray(frame), 0, len(frame)) == 0, frame
