"""Signatures, and the rows of a scan judged by them, in both forms."""

import base64
import hmac
from array import array
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxq.auth.signature import Credentials, sign, signed_content
from maxq.auth.signing_cy import SigningKey
from maxq.protocol.frame import send_rows as columns
from maxq.protocol.frame.remoting_command import RemotingCommand, SerializeType
from maxq.protocol.frame.send_rows import ARRIVAL_WIDTH
from tests.short_form import times
from tests.unit.both_forms import both, both_together

FORMS = both("maxq.auth.signing_cy")
SCANNERS = both_together("maxq.protocol.frame.send_scanner_cy", "maxq.protocol.frame.request_scanners_cy")
CREDENTIALS = Credentials("ak", "secret", "token")
IDS = ["uncompiled", "installed"]


@pytest.fixture(params=FORMS, ids=IDS)
def form(request: pytest.FixtureRequest) -> ModuleType:
    return request.param


@pytest.fixture(params=SCANNERS, ids=IDS)
def frames(request: pytest.FixtureRequest) -> ModuleType:
    return request.param


def send(
    credentials: Credentials | None = CREDENTIALS,
    *,
    topic: str = "T",
    body: bytes = b"hello",
    serialize: SerializeType = SerializeType.JSON,
    properties: str = "TAGS\x01é\x02UNIQ_KEY\x01AB\x02",
    code: int = 310,
    tampered: dict[str, str] | None = None,
    **more: str,
) -> bytes:
    ext = {
        "a": "PG", "b": topic, "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1700000000000", "h": "0",
        "i": properties, "j": "0", "k": "false", "m": "false", "n": "broker-a", **more,
    }  # fmt: skip
    if code == 10:
        names = "producerGroup topic defaultTopic defaultTopicQueueNums queueId sysFlag bornTimestamp flag properties "
        names += "reconsumeTimes unitMode maxReconsumeTimes batch bname"
        wire = dict(zip("abcdefghijklmn", names.split(), strict=True))
        ext = {wire.get(key, key): value for key, value in ext.items()}
    if credentials is not None:
        sign(ext, body, credentials, credentials.signing_key())
    ext |= tampered or {}
    return RemotingCommand(code, ext, body, opaque=7, serialize_type=serialize).encode()


def test_the_signatures_of_the_specification(form: ModuleType) -> None:
    assert form.SigningKey(b"12345678").sign(b"RocketMQ") == b"IUc8rrO/0gDch8CjObLQsW2rsiA="
    assert form.SigningKey(b"").sign(b"ALIYUNTopicTest") == b"N/YT7X6tJe5UfutmW+uNwTTJ7Fc="
    assert form.SigningKey(b"sk").sign(b"akALIYUNTopicTest") == b"8R/CepB4TBzgUacU/1Gmwk2VXFw="
    e5 = "akPID_xTopicTestTBW10240017000000000000TAGS\x01TagA\x020falsefalse"
    assert form.SigningKey(b"sk").sign(e5.encode(), b"hi") == b"dhPDWUUQrMJbCihrp0qBnz28Byo="


@given(st.binary(max_size=200), st.binary(max_size=300), st.binary(max_size=300))
@settings(max_examples=times(60), deadline=None)
def test_a_signature_is_the_base64_of_the_hmac(secret: bytes, content: bytes, body: bytes) -> None:
    expected = base64.b64encode(hmac.digest(secret, content + body, "sha1"))
    for form in FORMS:
        key = form.SigningKey(secret)
        assert key.sign(content, body) == expected
        assert key.matches(content, body, expected)
        assert not key.matches(
            content, body, expected[:-2] + b"A=" if expected[-2:] != b"A=" else expected[:-2] + b"B="
        )


def test_a_key_prints_nothing_of_its_secret(form: ModuleType) -> None:
    assert repr(form.SigningKey(b"hush")) == "<SigningKey>"
    assert "hush" not in repr(Credentials("ak", "hush", "hush"))


def test_the_fields_are_signed_in_java_s_order_without_the_signature() -> None:
    ext = {"b": "2", "a": "1", "Signature": "x", "AccessKey": "ak", "_UNIQUE_KEY_QUERY": "true"}
    assert signed_content(ext) == b"aktrue12"
    assert signed_content(ext, version=399) == b"ak12"
    assert signed_content({"\U00010000": "1", "\uffee": "2"}) == b"12"  # by UTF-16 code units


# --- rows -------------------------------------------------------------------------------------------------------------


def verified(form: ModuleType, frames: ModuleType, buffer: bytes, admitted: dict) -> tuple[int, int]:
    """(rows of the scan, rows that may be appended)"""
    scan = frames.SendScanner(1 << 24)
    scan.expect_signatures()
    data = bytearray(buffer)
    scan.scan(data, 0, len(data))
    count = form.verify_rows(data, scan.content, scan.signed_rows, scan.rows, 0, scan.count, admitted)
    return scan.count, count


def admitted(form: ModuleType, *names: bytes, secret: bytes = b"secret") -> dict:
    return {name: form.SigningKey(secret) for name in names}


@pytest.mark.parametrize("serialize", list(SerializeType))
@pytest.mark.parametrize("code", [10, 310, 320])
def test_signed_sends_of_one_who_may_are_let_through(
    form: ModuleType, frames: ModuleType, serialize: SerializeType, code: int
) -> None:
    frame = send(serialize=serialize, code=code) + send(serialize=serialize, code=code, body=b"x" * 5000)
    assert verified(form, frames, frame * 3, admitted(form, b"ak\0T")) == (6, 6)


def test_without_an_entry_or_with_another_secret_nothing_passes(form: ModuleType, frames: ModuleType) -> None:
    assert verified(form, frames, send(), {}) == (1, 0)
    assert verified(form, frames, send(), admitted(form, b"ak\0U", b"al\0T", b"\0T")) == (1, 0)
    assert verified(form, frames, send(), admitted(form, b"ak\0T", secret=b"other")) == (1, 0)


def test_an_entry_without_key_needs_no_signature(form: ModuleType, frames: ModuleType) -> None:
    assert verified(form, frames, send(None), {b"\0T": None}) == (1, 1)
    assert verified(form, frames, send(None), admitted(form, b"\0T")) == (1, 0)


def test_the_first_row_that_fails_ends_the_run(form: ModuleType, frames: ModuleType) -> None:
    good, bad = send(), send(tampered={"e": "2"})
    assert verified(form, frames, good + good + bad + good, admitted(form, b"ak\0T")) == (4, 2)
    other = send(topic="U")
    assert verified(form, frames, good + other + good, admitted(form, b"ak\0T")) == (3, 1)
    assert verified(form, frames, good + other + good, admitted(form, b"ak\0T", b"ak\0U")) == (3, 3)


@pytest.mark.parametrize(
    "tampered",
    [
        {"b": "U"}, {"a": "PH"}, {"i": "UNIQ_KEY\x01AC\x02"}, {"AccessKey": "al"}, {"SecurityToken": "t"},
        {"Signature": ""}, {"Signature": "x" * 28}, {"Signature": "AAAAAAAAAAAAAAAAAAAAAAAAAAA="}, {"l": "16"},
    ],
    ids=str,
)  # fmt: skip
def test_what_was_changed_after_signing_is_not_let_through(
    form: ModuleType, frames: ModuleType, tampered: dict[str, str]
) -> None:
    rows, count = verified(form, frames, send(tampered=tampered), admitted(form, b"ak\0T", b"al\0T", b"ak\0U"))
    assert (rows, count) == (1, 0)


def test_a_body_that_was_changed_after_signing_is_not_let_through(form: ModuleType, frames: ModuleType) -> None:
    frame = bytearray(send())
    frame[-1] ^= 1
    assert verified(form, frames, bytes(frame), admitted(form, b"ak\0T")) == (1, 0)


def test_fields_of_signatures_do_not_matter_to_who_does_not_ask_for_them(frames: ModuleType) -> None:
    scan = frames.SendScanner(1 << 24)
    buffer = bytearray(send(OnsChannel="ALIYUN"))
    assert scan.scan(buffer, 0, len(buffer)) == len(buffer)
    assert scan.count == 1


def test_rows_behind_the_first_that_fails_leave_their_arrival(form: ModuleType, frames: ModuleType) -> None:
    good, bad = send(), send(tampered={"e": "2"})
    arrivals = [good + bad + good, good, bad]
    buffer = bytearray(b"".join(arrivals))
    table = array("q", bytes(8 * ARRIVAL_WIDTH * 3))
    at = 0
    for number, data in enumerate(arrivals):
        table[number * ARRIVAL_WIDTH] = at
        at += len(data)
        table[number * ARRIVAL_WIDTH + 1] = at
    scan = frames.SendScanner(1 << 24)
    scan.expect_signatures()
    scan.scan_arrivals(buffer, table, 3)
    entries = [admitted(form, b"ak\0T")] * 3
    left = form.verify_arrivals(buffer, scan.content, scan.signed_rows, scan.rows, table, entries)
    assert left == 2
    rows = [tuple(table[n * ARRIVAL_WIDTH + 2 : n * ARRIVAL_WIDTH + 5]) for n in range(3)]
    assert rows == [(len(good), 0, 1), (len(good) * 2 + len(bad) + len(good), 3, 1), (rows[2][0], 4, 0)]
    assert rows[2][0] == table[2 * ARRIVAL_WIDTH]  # nothing of it was taken


@given(
    st.dictionaries(st.sampled_from("acdjkln"), st.text(max_size=20), max_size=6),
    st.binary(min_size=1, max_size=50),
    st.sampled_from(list(SerializeType)),
    st.text(alphabet=st.characters(exclude_characters="\x01\x02", exclude_categories=("Cs",)), min_size=1, max_size=20),
)
@settings(max_examples=times(80), deadline=None)
def test_a_scan_signs_what_the_general_codec_signs(
    fields: dict[str, str], body: bytes, serialize: SerializeType, tag: str
) -> None:
    """Whatever is taken as plain has the same signature by both ways."""
    frame = send(body=body, serialize=serialize, properties=f"TAGS\x01{tag}\x02UNIQ_KEY\x01AB\x02", **fields)
    for form in FORMS:
        for frames in SCANNERS:
            rows, count = verified(form, frames, frame, admitted(form, b"ak\0T"))
            assert count == rows
    assert SigningKey(b"secret")


def test_a_pull_tells_what_it_was_signed_with(frames: ModuleType) -> None:
    ext = {
        "consumerGroup": "G", "topic": "T", "queueId": "0", "queueOffset": "5", "maxMsgNums": "32", "sysFlag": "2",
        "commitOffset": "5", "suspendTimeoutMillis": "15000", "subVersion": "1",
    }  # fmt: skip
    sign(ext, b"", CREDENTIALS, CREDENTIALS.signing_key())
    buffer = bytearray(RemotingCommand(11, ext).encode())
    scan = frames.PullScanner()
    scan.expect_signatures()
    assert scan.scan(buffer, 0, len(buffer)) == len(buffer)
    assert (scan.access_key, scan.signature.decode()) == (b"ak", ext["Signature"])
    assert scan.signed_content == signed_content(ext)
    assert scan.key.startswith(b"G\0T\x000\0")


END = {
    "producerGroup": "PG", "topic": "T", "tranStateTableOffset": "3", "commitLogOffset": "400",
    "commitOrRollback": "8", "fromTransactionCheck": "false", "msgId": "M", "transactionId": "M",
}  # fmt: skip
BACK = {"group": "G", "offset": "400", "delayLevel": "0", "originMsgId": "M", "originTopic": "T", "unitMode": "false"}


@pytest.mark.parametrize("serialize", list(SerializeType))
@pytest.mark.parametrize(
    ("kind", "code", "flag", "fields"), [("EndScanner", 37, 2, END), ("SendBackScanner", 36, 0, BACK)]
)
def test_commits_and_messages_given_back_tell_what_they_were_signed_with(
    frames: ModuleType, kind: str, code: int, flag: int, fields: dict[str, str], serialize: SerializeType
) -> None:
    ext = dict(fields)
    sign(ext, b"", CREDENTIALS, CREDENTIALS.signing_key())
    command = RemotingCommand(code, ext, flag=flag, serialize_type=serialize)
    buffer = bytearray(command.encode())
    scan = getattr(frames, kind)()
    assert scan.scan(buffer, 0, len(buffer)) == len(buffer)  # nobody asks for signatures: they do no harm
    assert scan.signed_content == b""
    scan.expect_signatures()
    assert scan.scan(buffer, 0, len(buffer)) == len(buffer)
    assert (scan.access_key, scan.signature.decode()) == (b"ak", ext["Signature"])
    assert scan.signed_content == signed_content(ext)
    unsigned = bytearray(RemotingCommand(code, dict(fields), flag=flag, serialize_type=serialize).encode())
    assert scan.scan(unsigned, 0, len(unsigned)) == len(unsigned)
    assert (scan.access_key, scan.signature, scan.signed_content) == (b"", b"", signed_content(fields))
    too_much = bytearray(
        RemotingCommand(code, {**fields, "SecurityToken": "x" * 5000}, flag=flag, serialize_type=serialize).encode()
    )
    assert scan.scan(too_much, 0, len(too_much)) == 0  # the general codec's


def test_a_commit_names_its_topic_and_not_that_of_the_one_before(frames: ModuleType) -> None:
    scan = frames.EndScanner()
    for ext, topic in ((END, b"T"), ({name: END[name] for name in END if name != "topic"}, b"")):
        buffer = bytearray(RemotingCommand(37, dict(ext), flag=2).encode())
        assert scan.scan(buffer, 0, len(buffer)) == len(buffer)
        assert scan.topic == topic


def test_which_form_is_tested() -> None:
    assert columns.ROW_WIDTH == 20
    assert not FORMS[0].is_compiled()
