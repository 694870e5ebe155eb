"""OffsetTable: queue offsets of groups, as files and answers have them: {"topic@group": {queue id: offset}}."""

from collections.abc import Iterable, Mapping
from json.encoder import encode_basestring
from typing import Any

from maxq.broker.tables.persistent_manager import object_member
from maxq.errors import RemoteProtocolError
from maxq.protocol.json.json_dialect import dumps_pretty

OffsetTable = dict[str, dict[int, int]]


def split_key(key: str) -> tuple[str, str]:
    """`topic@group` → (topic, group)."""
    topic, _, group = key.rpartition("@")
    return topic, group


def group_topic_map(keys: Iterable[str]) -> dict[str, list[str]]:
    """Topics by group: a derived member that Java writes and ignores."""
    result: dict[str, list[str]] = {}
    for key in keys:
        topic, group = split_key(key)
        result.setdefault(group, []).append(topic)
    return result


def offset_row(key: str, offsets: Mapping[int, int]) -> bytes:
    """A row of the member `offsetTable` in compact JSON."""
    numbers = ",".join([f'"{queue_id}":{offset}' for queue_id, offset in offsets.items()])
    return f"{encode_basestring(key)}:{{{numbers}}}".encode(errors="replace")


def flat_row(key: str, offset: int) -> bytes:
    """A row of the member `lmqOffsetTable` in compact JSON."""
    return f"{encode_basestring(key)}:{offset}".encode(errors="replace")


def offset_file(value: Mapping[str, Any]) -> bytes:
    """The text of consumerOffset.json: the version, and tables whose rows are numbers by queue id, a number, or names.

    It is made every few seconds in a thread, beside a loop that wants the interpreter: row by row, so that no step
    keeps it for long.
    """
    members = [
        dumps_pretty({name: member})[2:-2].decode() if name == "dataVersion" else _pretty_table(name, member)
        for name, member in value.items()
    ]
    return "".join(("{\n", ",\n".join(members), "\n}")).encode(errors="replace")


def _pretty_table(name: str, table: Mapping[str, dict[int, int] | list[str] | int]) -> str:
    rows = ",\n\t\t".join(f"{encode_basestring(key)}:{_row(row)}" for key, row in table.items())
    return f'\t"{name}":{{\n\t\t{rows}\n\t}}' if rows else f'\t"{name}":{{}}'


def _row(row: dict[int, int] | list[str] | int) -> str:
    if isinstance(row, dict):
        return f"{{{','.join([f'{queue_id}:{offset}' for queue_id, offset in row.items()])}}}"
    return f"[{','.join(map(encode_basestring, row))}]" if isinstance(row, list) else str(row)


def read_offset_table(value: Mapping[str, Any]) -> OffsetTable:
    """The member `offsetTable` of a file or an answer; empty if there is none.

    Raises:
        RemoteProtocolError: these are not offsets.
    """
    return {key: _queue_offsets(key, table) for key, table in object_member(value, "offsetTable").items()}


def _queue_offsets(key: str, table: Any) -> dict[int, int]:
    if not isinstance(table, dict):
        raise RemoteProtocolError(f"offsets of {key} are an object, not {type(table).__name__}")
    try:
        return {int(queue_id): int(offset) for queue_id, offset in table.items()}
    except (TypeError, ValueError):
        raise RemoteProtocolError(f"offsets of {key} are numbers by queue id, not {table!r:.80}") from None
