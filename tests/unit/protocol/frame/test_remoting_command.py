"""Frames and both header codecs."""

import contextlib
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxq.codes import LanguageCode
from maxq.errors import LocalProtocolError, RemoteProtocolError
from maxq.protocol.frame.remoting_command import (
    RemotingCommand,
    SerializeType,
    decode_frame,
    language_code,
    language_name,
)

JAVA = int(LanguageCode.JAVA)


def hex_bytes(text: str) -> bytes:
    return bytes.fromhex("".join(text.split()))


E1 = hex_bytes(
    """00000087 00000083 7b22636f6465223a3130352c226578744669656c6473223a7b22746f706963223a22546f70696354657374227d
    2c22666c6167223a302c226c616e6775616765223a224a415641222c226f7061717565223a372c2273657269616c697a6554797065
    43757272656e74525043223a224a534f4e222c2276657273696f6e223a3437397d"""
)
E2 = hex_bytes(
    "0000002d 01000029 0069 00 01df 00000007 00000000 00000000 00000014 0005 746f706963 00000009 546f70696354657374"
)
E3 = hex_bytes(
    """00000078 00000074 7b22636f6465223a31372c22666c6167223a312c226c616e6775616765223a224a415641222c226f7061717565
    223a372c2272656d61726b223a224e6f20746f706963222c2273657269616c697a655479706543757272656e74525043223a224a534f
    4e222c2276657273696f6e223a3437397d"""
)
E4 = hex_bytes("0000001b 01000015 0000 00 01df 00000007 00000001 00000000 00000000 7b7d")
E5 = hex_bytes(
    """0000010d 00000107 7b22636f6465223a3331302c226578744669656c6473223a7b2261223a225049445f78222c2262223a22546f70
    696354657374222c2263223a22544257313032222c2264223a2234222c2265223a2230222c2266223a2230222c2267223a223137303030
    3030303030303030222c2268223a2230222c2269223a22544147535c7530303031546167415c7530303032222c226a223a2230222c226b
    223a2266616c7365222c226d223a2266616c7365227d2c22666c6167223a302c226c616e6775616765223a224a415641222c226f706171
    7565223a382c2273657269616c697a655479706543757272656e74525043223a224a534f4e222c2276657273696f6e223a3437397d 6869"""
)
SEND_EXT = {
    "a": "PID_x", "b": "TopicTest", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000", "h": "0",
    "i": "TAGS\x01TagA\x02", "j": "0", "k": "false", "m": "false",
}  # fmt: skip
VECTORS = {
    "E1": (E1, RemotingCommand(105, {"topic": "TopicTest"}, opaque=7, language=JAVA)),
    "E2": (
        E2,
        RemotingCommand(
            105, {"topic": "TopicTest"}, opaque=7, language=JAVA, serialize_type=SerializeType.ROCKETMQ
        ),
    ),
    "E3": (E3, RemotingCommand(17, remark="No topic", opaque=7, flag=1, language=JAVA)),
    "E4": (
        E4,
        RemotingCommand(0, body=b"{}", opaque=7, flag=1, language=JAVA, serialize_type=SerializeType.ROCKETMQ),
    ),
    "E5": (E5, RemotingCommand(310, SEND_EXT, b"hi", opaque=8, language=JAVA)),
}  # fmt: skip


@pytest.mark.parametrize("name", VECTORS)
def test_worked_examples_go_both_ways(name: str) -> None:
    frame, command = VECTORS[name]
    assert decode_frame(frame[4:]) == command
    assert command.encode() == frame
    assert command.encode_head(command.body_length) + command.body_bytes == frame


def json_frame(header: str | bytes, body: bytes = b"") -> bytes:
    data = header if isinstance(header, bytes) else header.encode()
    return len(data).to_bytes(4, "big") + data + body


def test_raw_numbers_booleans_and_nulls_of_extfields_become_javas_text() -> None:
    header = '{"extFields":{"a":4,"b":true,"c":null,"d":"x","e":false,"f":1.5,"g":-9223372036854775808},"code":10}\n'
    assert decode_frame(json_frame(header)).ext == {
        "a": "4", "b": "true", "d": "x", "e": "false", "f": "1.5", "g": "-9223372036854775808",
    }  # fmt: skip


def test_members_may_be_absent_unknown_or_in_any_order() -> None:
    command = decode_frame(json_frame('{"whatever":[1],"code":105}'))
    assert (command.flag, command.opaque, command.version, command.language) == (0, 0, 0, LanguageCode.OTHER)
    assert command.ext == {} and command.remark is None and command.body is None


@pytest.mark.parametrize(
    ("written", "language"),
    [('"GO"', LanguageCode.GO), ("1", LanguageCode.CPP), ('"KLINGON"', LanguageCode.OTHER), ("99", LanguageCode.OTHER)],
)
def test_language_is_a_name_or_a_number_and_never_an_error(written: str, language: LanguageCode) -> None:
    command = decode_frame(json_frame(f'{{"code":1,"language":{written}}}'))
    assert command.language == language
    assert language_code(language_name(command.language)) == language


def test_header_of_an_old_client_in_the_lenient_dialect_is_read() -> None:
    command = decode_frame(json_frame("{code:10,'opaque':3,extFields:{a:1,},}"))
    assert (command.code, command.opaque, command.ext) == (10, 3, {"a": "1"})


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        (b"", "no room"),
        (b"\0\0\0", "no room"),
        (b"\0\0\0\x05{}", "header length 5"),
        (b"\x02\0\0\0", "serialize type 2"),
        (json_frame("[]"), "an object"),
        (json_frame("{"), "not JSON"),
        (json_frame("{}"), "without code"),
        (json_frame('{"code":"x"}'), "32-bit integer"),
        (json_frame('{"code":2147483648}'), "32-bit integer"),
        (json_frame('{"code":1.5}'), "32-bit integer"),
        (json_frame('{"code":1,"extFields":[]}'), "extFields"),
        (b"\x01\0\0\x14" + bytes(20), "21 bytes"),
        (b"\x01\0\0\x15" + bytes(13) + b"\xff\xff\xff\xff" + bytes(4), "remark length -1"),
        (b"\x01\0\0\x15" + bytes(13) + b"\x7f\xff\xff\xff" + bytes(4), "remark length"),
        (b"\x01\0\0\x15" + bytes(17) + b"\x00\x00\x00\x01", "ext length 1"),
        (b"\x01\0\0\x16" + bytes(17) + b"\x00\x00\x00\x01\x00", "inside a field"),
        (b"\x01\0\0\x1b" + bytes(17) + b"\x00\x00\x00\x06" + b"\x00\x00\x7f\xff\xff\xff", "passes the end"),
        (b"\x01\0\0\x1b" + bytes(17) + b"\x00\x00\x00\x06" + b"\xff\xff\x00\x00\x00\x00", "inside a field"),
    ],
)
def test_what_is_no_frame_is_a_remote_protocol_error(payload: bytes, complaint: str) -> None:
    with pytest.raises(RemoteProtocolError, match=complaint):
        decode_frame(payload)


def test_codes_beyond_16_bits_always_travel_as_json() -> None:
    command = RemotingCommand(200050, {"topic": "T"}, serialize_type=SerializeType.ROCKETMQ)
    assert command.encode()[4] == 0
    assert decode_frame(command.encode()[4:]).code == 200050


def test_replies_copy_opaque_and_serialize_type_and_only_they_are_responses() -> None:
    request = RemotingCommand(11, opaque=42, serialize_type=SerializeType.ROCKETMQ)
    reply = request.reply(19, "not found", {"nextBeginOffset": "1"})
    assert (reply.opaque, reply.is_response, reply.is_oneway) == (42, True, False)
    assert not request.is_response
    assert decode_frame(reply.encode()[4:]) == reply


def test_bodies_in_pieces_leave_as_they_are() -> None:
    parts = [memoryview(b"ab"), memoryview(b"cde")]
    command = RemotingCommand(0, body=parts)
    assert command.body_length == 5
    assert command.buffers()[1:] == parts
    assert command.encode().endswith(b"abcde") and decode_frame(command.encode()[4:]).body == b"abcde"


def test_bodies_are_copied_out_of_the_receive_buffer() -> None:
    buffer = bytearray(E5)
    command = decode_frame(memoryview(buffer)[4:])
    buffer[:] = bytes(len(buffer))
    assert command.body == b"hi"


@pytest.mark.parametrize(
    "command",
    [
        RemotingCommand(1, {"k" * 40_000: "v"}, serialize_type=SerializeType.ROCKETMQ),
        RemotingCommand(1, opaque=1 << 31, serialize_type=SerializeType.ROCKETMQ),
        RemotingCommand(1, {"k": "v" * (1 << 24)}),
        RemotingCommand(1, {"k": b"bytes"}),  # type: ignore[dict-item]
    ],
)
def test_what_a_header_cannot_carry_is_our_own_fault(command: RemotingCommand) -> None:
    with pytest.raises(LocalProtocolError):
        command.encode()


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
commands = st.builds(
    RemotingCommand,
    code=st.integers(-32768, 32767),
    ext=st.dictionaries(texts.filter(bool), texts.filter(bool), max_size=6),
    body=st.binary(min_size=1, max_size=50) | st.none(),
    remark=texts.filter(bool) | st.none(),
    opaque=int32,
    flag=int32,
    language=st.integers(0, 13),
    version=st.integers(0, 32767),
    serialize_type=st.sampled_from(SerializeType),
)


@given(commands)
def test_any_command_survives_the_wire(command: RemotingCommand) -> None:
    frame = command.encode()
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert decode_frame(frame[4:]) == command


@given(commands)
def test_every_emitted_ext_value_is_a_json_string(command: RemotingCommand) -> None:
    command.serialize_type = SerializeType.JSON
    frame = command.encode()
    header = json.loads(frame[8 : 8 + int.from_bytes(frame[5:8], "big")])
    assert all(isinstance(value, str) for value in header.get("extFields", {}).values())
    assert list(header) == sorted(header)


@given(st.binary(max_size=200))
def test_any_bytes_give_a_command_or_the_protocol_error(data: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        decode_frame(data)


@given(st.sampled_from([E1, E2, E3, E4, E5]), st.data())
def test_damaged_frames_give_a_command_or_the_protocol_error(frame: bytes, data: st.DataObject) -> None:
    damaged = bytearray(frame[4:])
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        command = decode_frame(damaged)
    except RemoteProtocolError:
        return
    command.encode()


def _framed(header: bytes, kind: int = 0) -> bytes:
    return (kind << 24 | len(header)).to_bytes(4, "big") + header


def _binary(count: int) -> bytes:
    ext = b"".join(b"\0\4%04d\0\0\0\1x" % number for number in range(count))
    return _framed(struct.pack(">hBhiii", 10, 0, 0, 0, 0, 0) + struct.pack(">i", len(ext)) + ext, 1)


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        (_framed(b'{"code":10,"remark":"' + bytes(300_000) + b'"}'), "a header of 300023 bytes, the limit is 262144"),
        (_framed(b'{"code":10,"extFields":{' + b",".join(b'"%d":""' % n for n in range(513)) + b"}}"), "512 fields"),
        (_binary(513), "than 512 fields"),
        (_framed(b"{code:10,extFields:{a:'" + b"x" * 8_192 + b"'}}"), r"not standard JSON .* 8192 bytes at most"),
    ],
    ids=["long", "json-fields", "binary-fields", "dialect"],
)
def test_what_a_stranger_may_ask_to_be_parsed_has_limits(payload: bytes, complaint: str) -> None:
    with pytest.raises(RemoteProtocolError, match=complaint):
        decode_frame(payload)


def test_the_longest_header_of_rocketmq_is_taken() -> None:
    command = RemotingCommand(310, {"i": "a\x01" * 16_383, "b": "T"})
    assert decode_frame(command.encode()[4:]).ext == command.ext
    assert len(decode_frame(_binary(512)).ext) == 512
