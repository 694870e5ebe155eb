"""OffsetTable: queue offsets of groups, as files and answers have them: {"topic@group": {queue id: offset}}."""

from collections.abc import Mapping
from typing import Any

from maxq.broker.persistent_manager import object_member
from maxq.errors import RemoteProtocolError

OffsetTable = dict[str, dict[int, int]]


def split_key(key: str) -> tuple[str, str]:
    """`topic@group` → (topic, group)."""
    topic, _, group = key.rpartition("@")
    return topic, group


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
