"""RemotingCommand: one frame of the remoting protocol, and its two header codecs.

    0        4             8               8+H            4+L
    +--------+------+------+---------------+--------------+
    | L      | type | H    | header        | body         |     L = 4 + H + len(body), big endian
    | int32  | u8   | u24  | H bytes       | L-4-H bytes  |     type 0 = JSON, 1 = ROCKETMQ binary
    +--------+------+------+---------------+--------------+

A server answers in the type of the request. The binary header holds `code` in 16 bits, so larger codes (pop, lite)
always travel as JSON.

Source:
    remoting/protocol/RemotingCommand.java, RocketMQSerializable.java, RemotingSerializable.java.
"""

import struct
from collections.abc import Mapping
from dataclasses import field
from enum import IntEnum
from typing import Any, Final

import orjson

from maxq.codes import CURRENT_VERSION, LanguageCode
from maxq.errors import LocalProtocolError, RemoteProtocolError
from maxq.lazy_dataclass import dataclass
from maxq.protocol.json import json_dialect

#: Longest whole frame (length field included) a peer may send, in bytes.
FRAME_MAX_LENGTH: Final = 16 * 1024 * 1024

RESPONSE_FLAG: Final = 1
ONEWAY_FLAG: Final = 2

#: A body may be given in pieces, so that message bytes leave as views of the mapped log.
Body = bytes | memoryview | list[memoryview] | None
_BYTES: Final = (bytes, memoryview, bytearray)

_LANGUAGE_BY_NAME: Final[dict[str, int]] = {language.name: int(language) for language in LanguageCode}
_LANGUAGE_NAMES: Final[dict[int, str]] = {int(language): language.name for language in LanguageCode}
_OTHER: Final = int(LanguageCode.OTHER)
_BINARY_START: Final = struct.Struct(">hBhiii")  # code, language, version, opaque, flag, remark length
_PREFIX: Final = struct.Struct(">II")
_INT32: Final = struct.Struct(">i")
_INT16: Final = struct.Struct(">h")


class SerializeType(IntEnum):
    """The encoding of a header; the byte after the frame length."""

    JSON = 0
    ROCKETMQ = 1


@dataclass(slots=True)
class RemotingCommand:
    """One request or response. `ext` holds the custom header fields, all of them strings."""

    code: int  # a RequestCode, or a ResponseCode when is_response
    ext: dict[str, str] = field(default_factory=dict)
    body: Body = None
    remark: str | None = None
    opaque: int = 0  # int32; a response carries its request's
    flag: int = 0
    language: int = int(LanguageCode.PYTHON)
    version: int = int(CURRENT_VERSION)
    serialize_type: SerializeType = SerializeType.JSON

    @property
    def is_response(self) -> bool:
        return self.flag & RESPONSE_FLAG != 0

    @property
    def is_oneway(self) -> bool:
        """Return whether the request is oneway: it is never answered, not even with an error."""
        return self.flag & ONEWAY_FLAG != 0

    @property
    def body_length(self) -> int:
        """Return the bytes of the body, whether it is one buffer or a list of buffers."""
        body = self.body
        if body is None:
            return 0
        if isinstance(body, list):
            return sum(map(len, body))  # a third of what a generator takes; pulls have 32 parts and more
        return len(body)

    @property
    def body_bytes(self) -> bytes:
        """Return the body in one piece; empty if there is none."""
        body = self.body
        if body is None:
            return b""
        return b"".join(body) if isinstance(body, list) else bytes(body)

    def reply(
        self, code: int = 0, remark: str | None = None, ext: dict[str, str] | None = None, body: Body = None
    ) -> "RemotingCommand":
        """Make the response to this request, with the same opaque and the same serialize type."""
        return RemotingCommand(
            code, {} if ext is None else ext, body, remark, self.opaque, RESPONSE_FLAG,
            serialize_type=self.serialize_type,
        )  # fmt: skip

    def encode_head(self, body_length: int) -> bytes:
        """Encode length, type, header length and header of a frame whose body has `body_length` bytes.

        Raises:
            LocalProtocolError: a value the header cannot carry.
        """
        if self.serialize_type == SerializeType.ROCKETMQ and -32768 <= self.code <= 32767:
            header, kind = _encode_binary_header(self), 1
        else:
            header, kind = _encode_json_header(self), 0
        length = len(header)
        if length > 0xFFFFFF:
            raise LocalProtocolError(f"a header of {length} bytes is longer than the 16777215 a frame can carry")
        return _PREFIX.pack(4 + length + body_length, kind << 24 | length) + header

    def encode(self) -> bytes:
        """Encode the whole frame. Raises as `buffers` does."""
        return b"".join(self.buffers())

    def buffers(self) -> list[bytes | memoryview]:
        """Encode the frame in pieces that need no copy: head, then the parts of the body.

        Raises:
            LocalProtocolError: a header value or a body that no frame can carry. Nothing has been written then: a head
                whose body cannot follow would make the peer take the next frame for that body.
        """
        body = self.body
        if isinstance(body, list):
            return [self.encode_head(self.body_length), *body]
        if not body:
            return [self.encode_head(0)]
        if not isinstance(body, _BYTES):
            raise LocalProtocolError(f"the body of a frame is bytes, not {type(body).__name__}")
        return [self.encode_head(len(body)), body]


def language_name(language: int) -> str:
    """Return the name that JSON headers and bodies use; OTHER for an unknown number."""
    return _LANGUAGE_NAMES.get(language, "OTHER")


def language_code(value: object) -> int:
    """Return the number of a language that is given by name or number; OTHER for anything unknown."""
    if isinstance(value, str):
        return _LANGUAGE_BY_NAME.get(value, _OTHER)
    if isinstance(value, int) and value in _LANGUAGE_NAMES:
        return int(value)
    return _OTHER


#: Limits of a header before the sender is known. RocketMQ's longest has 200 KiB and 30 fields: a message with 32 KiB of
#: properties, each byte escaped in JSON.
MAX_HEADER_SIZE: Final = 262_144
MAX_FIELDS: Final = 512
#: Most bytes of a header in fastjson's dialect, whose parser is Python.
MAX_DIALECT_SIZE: Final = 8_192
#: Largest length that its three bytes can express. Answers may have such headers: the answer to a batch names each
#: message's id.
LONGEST_HEADER: Final = 0xFFFFFF


def decode_frame(payload: bytes | bytearray | memoryview, header_limit: int = MAX_HEADER_SIZE) -> RemotingCommand:
    """Decode the bytes behind the 4-byte length of a frame. Nothing of `payload` is kept: the body is copied.

    Args:
        header_limit: bytes of the header. LONGEST_HEADER for what comes from a server that was asked.

    Raises:
        RemoteProtocolError: header length past the end, unknown serialize type, undecodable header. The connection must
            be closed, because the protocol has no error frame.
    """
    size = len(payload)
    if size < 4:
        raise RemoteProtocolError(f"a frame of {size} bytes has no room for its 4-byte header length")
    kind, header_end = payload[0], 4 + (payload[1] << 16 | payload[2] << 8 | payload[3])
    if header_end > size:
        raise RemoteProtocolError(f"header length {header_end - 4} is more than the {size - 4} bytes of the frame")
    if header_end - 4 > header_limit:
        raise RemoteProtocolError(
            f"a header of {header_end - 4} bytes, the limit is {header_limit}; put long texts into the body"
        )
    view = memoryview(payload)
    if kind == 0:
        command = _decode_json_header(view[4:header_end])
    elif kind == 1:
        command = _decode_binary_header(view[4:header_end])
    else:
        raise RemoteProtocolError(f"serialize type {kind} is neither JSON (0) nor ROCKETMQ (1)")
    if header_end < size:
        command.body = bytes(view[header_end:])
    return command


_JSON: Final = SerializeType.JSON
_ONLY_TEXT: Final = frozenset((str,))


# --- JSON ------------------------------------------------------------------------------------------------------------


def _encode_json_header(command: RemotingCommand) -> bytes:
    header: dict[str, Any] = {"code": int(command.code)}
    if command.ext:
        header["extFields"] = command.ext
    header["flag"] = command.flag
    header["language"] = _LANGUAGE_NAMES.get(command.language, "OTHER")
    header["opaque"] = command.opaque
    if command.remark is not None:
        header["remark"] = command.remark
    header["serializeTypeCurrentRPC"] = "JSON"
    header["version"] = int(command.version)
    try:
        return orjson.dumps(header)
    except TypeError as error:
        raise LocalProtocolError(f"header of code {command.code} cannot be written as JSON: {error}") from None


def _decode_json_header(data: memoryview) -> RemotingCommand:
    try:
        header = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if len(data) > MAX_DIALECT_SIZE:
            raise RemoteProtocolError(
                f"the header of {len(data)} bytes is not standard JSON ({error}), and a header that only fastjson "
                f"reads may have {MAX_DIALECT_SIZE} bytes at most"
            ) from None
        header = json_dialect.loads(bytes(data))
    if type(header) is not dict:
        raise RemoteProtocolError("a JSON header is an object")
    if "code" not in header:
        raise RemoteProtocolError("a JSON header without code")
    get = header.get
    ext = get("extFields")
    if ext is None:
        ext = {}
    elif type(ext) is not dict:
        raise RemoteProtocolError("extFields is an object")
    elif len(ext) > MAX_FIELDS:
        raise _too_many_fields()
    elif not _ONLY_TEXT.issuperset(map(type, ext.values())):
        ext = _string_values(ext)
    remark = get("remark")
    return RemotingCommand(
        _int32(header, "code"),
        ext,
        None,
        remark if remark is None or type(remark) is str else json_dialect.java_text(remark),
        _int32(header, "opaque"),
        _int32(header, "flag"),
        language_code(get("language")),
        _int32(header, "version"),
        _JSON,
    )


def _too_many_fields() -> RemoteProtocolError:
    return RemoteProtocolError(f"a header of more than {MAX_FIELDS} fields")


def _int32(header: Mapping[str, Any], name: str) -> int:
    value = header.get(name)
    if type(value) is int and -0x80000000 <= value <= 0x7FFFFFFF:
        return value
    if value is None:
        return 0
    if type(value) is str and len(value) <= 11:
        try:
            value = int(value)
        except ValueError:
            value = None
    if type(value) is int and -0x80000000 <= value <= 0x7FFFFFFF:
        return value
    raise RemoteProtocolError(f"{name} of a header is a 32-bit integer, not {header[name]!r:.80}")


def _string_values(ext: Mapping[Any, Any]) -> dict[str, str]:
    """Convert values to strings: C++ and Node write raw numbers and booleans; null means absent."""
    return {str(key): json_dialect.java_text(value) for key, value in ext.items() if value is not None}


# --- ROCKETMQ binary -------------------------------------------------------------------------------------------------


def _encode_binary_header(command: RemotingCommand) -> bytes:
    remark = command.remark.encode("utf-8", "replace") if command.remark else b""
    pairs: list[bytes] = []
    for key, value in command.ext.items():
        key_bytes, value_bytes = key.encode("utf-8", "replace"), value.encode("utf-8", "replace")
        if len(key_bytes) > 32767:
            raise LocalProtocolError(f"header field name of {len(key_bytes)} bytes; the binary header allows 32767")
        pairs += (_INT16.pack(len(key_bytes)), key_bytes, _INT32.pack(len(value_bytes)), value_bytes)
    ext = b"".join(pairs)
    try:
        start = _BINARY_START.pack(
            command.code, command.language, command.version, command.opaque, command.flag, len(remark)
        )
    except struct.error as error:
        raise LocalProtocolError(f"header of code {command.code} does not fit the binary form: {error}") from None
    return b"".join((start, remark, _INT32.pack(len(ext)), ext))


def _decode_binary_header(view: memoryview) -> RemotingCommand:
    data = bytes(view)
    size = len(data)
    if size < 21:
        raise RemoteProtocolError(f"a binary header has at least 21 bytes, this has {size}")
    code, language, version, opaque, flag, remark_length = _BINARY_START.unpack_from(data)
    position = 17 + remark_length
    if remark_length < 0 or position + 4 > size:
        raise RemoteProtocolError(f"remark length {remark_length} does not fit a binary header of {size} bytes")
    remark = data[17:position].decode("utf-8", "replace") if remark_length else None
    (ext_length,) = _INT32.unpack_from(data, position)
    position += 4
    if ext_length < 0 or position + ext_length > size:
        raise RemoteProtocolError(f"ext length {ext_length} does not fit a binary header of {size} bytes")
    ext = _decode_pairs(data, position, position + ext_length)
    if language not in _LANGUAGE_NAMES:
        language = _OTHER
    return RemotingCommand(code, ext, None, remark, opaque, flag, language, version, SerializeType.ROCKETMQ)


def _decode_pairs(data: bytes, position: int, end: int) -> dict[str, str]:
    """Decode repeated int16 key length, key, int32 value length, value. A value of length 0 counts as absent."""
    ext: dict[str, str] = {}
    left = MAX_FIELDS
    while position < end:
        left -= 1
        if left < 0:
            raise _too_many_fields()
        key = position + 2
        behind_key = key + (data[position] << 8 | data[position + 1]) if key <= end else end
        value = behind_key + 4
        if value > end or behind_key - key > 32767:
            raise RemoteProtocolError(f"header fields end inside a field, {end - position} bytes before the end")
        position = value + int.from_bytes(data[behind_key:value], "big")
        if position > end:
            raise RemoteProtocolError(f"a header field of {position - value} bytes passes the end")
        if position > value and behind_key > key:
            ext[data[key:behind_key].decode("utf-8", "replace")] = data[value:position].decode("utf-8", "replace")
    return ext
