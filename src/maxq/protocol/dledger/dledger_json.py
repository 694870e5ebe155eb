"""Members of DLedger's JSON, read and written as fastjson 1.2 does it (dledger_codec.py has the bodies).

Readers raise RemoteProtocolError for a member of another kind.

Source:
    openmessaging/dledger RequestOrResponse.java, DLedgerEntry.java.
"""

import base64
import binascii
import contextlib
from typing import Any, Final

import orjson

from maxq.errors import RemoteProtocolError
from maxq.protocol.dledger.dledger_messages import (
    ENTRY_HEADER_SIZE,
    LAST_NUMBER,
    DLedgerEntry,
    DLedgerMessage,
    DLedgerResponseCode,
)
from maxq.protocol.frame.body_limits import MAX_DIALECT_BODY, VALUES
from maxq.protocol.json import json_dialect

Json = dict[str, Any]

_LONG_END: Final = 1 << 63
_MOST_OBJECTS: Final = 50_000  # most objects of one body: more entries than 4 MiB hold
_RESPONSE_CODES: Final = {int(code): code for code in DLedgerResponseCode}


def dump(members: Json) -> bytes:
    """Encode members as fastjson does: with sorted keys."""
    return orjson.dumps(members, option=orjson.OPT_SORT_KEYS)


def load(data: bytes | memoryview | None) -> Json:
    """Decode the members of a body. Raises RemoteProtocolError if there is no body, if it is not a JSON object, or if
    its form would take long to read: these requests need no signature, so an unknown sender must not be able to keep
    the loop busy."""
    if data is None or not len(data):
        raise RemoteProtocolError("a DLedger frame without body")
    text = bytes(data)
    value = json_dialect.loads(text) if len(text) <= MAX_DIALECT_BODY else _load_long(text)
    if not isinstance(value, dict):
        raise RemoteProtocolError(f"a DLedger body is a JSON object, not {type(value).__name__}")
    return value


def _load_long(text: bytes) -> Any:
    objects, values = text.count(b"{"), text.count(b",")
    if objects > _MOST_OBJECTS or values > VALUES * _MOST_OBJECTS:
        raise RemoteProtocolError(
            f"a DLedger body has {objects} objects and {values} values, the limits are {_MOST_OBJECTS} and "
            f"{VALUES * _MOST_OBJECTS}; push fewer entries at once"
        )
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise RemoteProtocolError(
            f"a DLedger body of {len(text)} bytes is no standard JSON ({error}); what fastjson alone reads is taken up "
            f"to {MAX_DIALECT_BODY} bytes"
        ) from None
    return json_dialect.loads(text) if b'"$ref"' in text else value


# --- members ---------------------------------------------------------------------------------------------------------


def read_text(members: Json, key: str) -> str | None:
    """Return a member of a JSON object as text; None if it is absent or null. Raises RemoteProtocolError for other
    types."""
    value = members.get(key)
    if value is None or isinstance(value, str):
        return value
    raise RemoteProtocolError(f"{key} of a DLedger body is a text, not {value!r:.80}")


def read_int(members: Json, key: str, default: int) -> int:
    """Read a 64-bit integer, also one that is written as a text."""
    value = members.get(key)
    if value is None:
        return default
    if isinstance(value, str) and len(value) <= 20:
        with contextlib.suppress(ValueError):
            value = int(value)
    if type(value) is int and -_LONG_END <= value < _LONG_END:
        return value
    raise RemoteProtocolError(f"{key} of a DLedger body is a 64-bit integer, not {value!r:.80}")


def read_bytes(members: Json, key: str) -> bytes | None:
    """Read bytes that are written as Base64, or None."""
    value = members.get(key)
    if value is None:
        return None
    if not isinstance(value, str):
        raise RemoteProtocolError(f"{key} of a DLedger body is Base64, not {value!r:.80}")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise RemoteProtocolError(f"{key} of a DLedger body is not Base64: {value!r:.80}") from None


def read_list(members: Json, key: str) -> list[Any]:
    """Return a member of a JSON object as a list, which is empty if the member is absent or null. Raises
    RemoteProtocolError for other types."""
    value = members.get(key)
    if value is None:
        return []
    if isinstance(value, list):
        return value
    raise RemoteProtocolError(f"{key} of a DLedger body is a list, not {value!r:.80}")


def read_texts(members: Json, key: str) -> dict[str, str] | None:
    """Return a member of a JSON object that has only texts as members; None if it is absent or null. Raises
    RemoteProtocolError for other types."""
    value = members.get(key)
    if value is None:
        return None
    if isinstance(value, dict) and all(isinstance(one, str) for pair in value.items() for one in pair):
        return value
    raise RemoteProtocolError(f"{key} of a DLedger body has texts as members, not {value!r:.80}")


def read_base(members: Json) -> Json:
    """Read the fields of every bean, as keyword arguments.

    Raises:
        RemoteProtocolError: a field is of another kind, or the term is one that no group gets to.
    """
    code = read_int(members, "code", DLedgerResponseCode.SUCCESS)
    term = read_int(members, "term", -1)
    if term > LAST_NUMBER:
        raise RemoteProtocolError(f"term of a DLedger body is at most {LAST_NUMBER}, not {term}")
    return {
        "group": read_text(members, "group"),
        "remote_id": read_text(members, "remoteId"),
        "local_id": read_text(members, "localId"),
        "leader_id": read_text(members, "leaderId"),
        "term": term,
        "code": _RESPONSE_CODES.get(code, DLedgerResponseCode.UNKNOWN),
    }


def base_json(message: DLedgerMessage) -> Json:
    """Return the members that the JSON of every DLedger message has: code, term, group, members."""
    members: Json = {"code": int(message.code), "term": message.term}
    if message.group is not None:
        members["group"] = message.group
    if message.remote_id is not None:
        members["remoteId"] = message.remote_id
    if message.local_id is not None:
        members["localId"] = message.local_id
    if message.leader_id is not None:
        members["leaderId"] = message.leader_id
    return members


# --- entries ---------------------------------------------------------------------------------------------------------


def entry_json(entry: DLedgerEntry) -> Json:
    """Return an entry with its body as Base64."""
    return {
        "body": base64.b64encode(entry.body).decode(),
        "bodyCrc": entry.body_crc,
        "chainCrc": entry.chain_crc,
        "channel": entry.channel,
        "index": entry.index,
        "magic": entry.magic,
        "pos": entry.pos,
        "size": entry.size,
        "term": entry.term,
    }


def read_entry(members: Any) -> DLedgerEntry:
    """Read an entry. Raises RemoteProtocolError if it contradicts itself."""
    if not isinstance(members, dict):
        raise RemoteProtocolError(f"an entry is a JSON object, not {members!r:.80}")
    body = read_bytes(members, "body") or b""
    entry = DLedgerEntry(
        magic=read_int32(members, "magic", 0),
        size=read_int32(members, "size", 0),
        index=read_int(members, "index", -1),
        term=read_int(members, "term", -1),
        pos=read_int(members, "pos", -1),
        channel=read_int32(members, "channel", 0),
        chain_crc=read_int32(members, "chainCrc", 0),
        body_crc=read_int32(members, "bodyCrc", 0),
        body=body,
    )
    if entry.size != ENTRY_HEADER_SIZE + len(body) or entry.index < 0 or entry.pos < 0:
        raise RemoteProtocolError(
            f"entry {entry.index} of size {entry.size} at {entry.pos} cannot have a body of {len(body)} bytes"
        )
    if max(entry.index, entry.term, entry.pos) > LAST_NUMBER:
        raise RemoteProtocolError(
            f"entry {entry.index} of term {entry.term} at {entry.pos}: these numbers are at most {LAST_NUMBER}"
        )
    return entry


def read_int32(members: Json, key: str, default: int) -> int:
    """Return a member of a JSON object as a 32-bit integer. Raises RemoteProtocolError if it is larger or no number."""
    value = read_int(members, key, default)
    if -0x80000000 <= value <= 0x7FFFFFFF:
        return value
    raise RemoteProtocolError(f"{key} of an entry is a 32-bit integer, not {value}")
