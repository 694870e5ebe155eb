"""What `maxq store messages` prints of a record: a line, or a JSON object with the names that the golden
`expected.json` uses."""

import functools
import hashlib
from typing import Any

from maxq.errors import RemoteProtocolError
from maxq.protocol.message.compression import compression_type, decompress
from maxq.protocol.message.message_const import (
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
)
from maxq.protocol.message.message_id import host_text, offset_message_id
from maxq.protocol.message.message_properties import decode_properties
from maxq.protocol.message.message_sys_flag import MessageSysFlag, is_rolled_back
from maxq.store.log import record_cy as rc
from maxq.store.log.deletions import DELETED_TOPIC
from maxq.store.recovery import damage_names
from maxq.store.tools.log_walk import Batch
from maxq.store.tools.text_lines_cy import text_lines

_host_text = functools.lru_cache(maxsize=4096)(host_text)


def lines_of(batch: Batch) -> memoryview:
    """Return one line per record of the batch, tab-separated: physical offset, size, topic, queue id, queue offset,
    store time (ms), offset id, tags, keys. Fillers over damage are not messages and are left out."""

    def unusual(number: int) -> bytes:
        row = batch.rows[number * rc.SCAN_WIDTH : (number + 1) * rc.SCAN_WIDTH]
        return b"" if is_filler(batch.view, row) else _line(batch.view, row)

    return text_lines(batch.view, batch.rows, batch.count, unusual)


def messages_of(batch: Batch) -> list[dict[str, Any]]:
    """Return one object per record of the batch: topic, queueId, queueOffset, physicalOffset, size, msgId (the offset
    id), uniqKey, sysFlag, flag, bornTimestamp, storeTimestamp, bornHost, storeHost, reconsumeTimes,
    preparedTransactionOffset, properties, storedBodyMd5, storedBodyLen, bodyCrc, bodyMd5 (after decompression). Fillers
    over damage are not messages and are left out."""
    rows = (batch.rows[i * rc.SCAN_WIDTH : (i + 1) * rc.SCAN_WIDTH] for i in range(batch.count))
    return [_message(batch.view, row) for row in rows if not is_filler(batch.view, row)]


def is_filler(view: memoryview, row: Any) -> bool:
    """Returns whether this record is a filler over damage (store/recovery/damage.py) and not a message."""
    if not is_rolled_back(row[rc.C_SYS_FLAG]):
        return False
    return row[rc.C_TOPIC_SIZE] == 0 or damage_names.is_filler(row[rc.C_SYS_FLAG], properties_of(view, row))


def is_deletion(view: memoryview, row: Any) -> bool:
    """Returns whether this record deletes topics (store/log/deletions.py)."""
    return is_rolled_back(row[rc.C_SYS_FLAG]) and topic_of(view, row) == DELETED_TOPIC


def _line(view: memoryview, row: Any) -> bytes:
    properties = properties_of(view, row)
    store_host = _host(view, row[rc.C_STORE_HOST_POSITION], row[rc.C_SYS_FLAG] & MessageSysFlag.STORE_HOST_V6)
    physical_offset = row[rc.C_PHYSICAL_OFFSET]
    columns = (
        physical_offset, row[rc.C_SIZE], topic_of(view, row), row[rc.C_QUEUE_ID], row[rc.C_QUEUE_OFFSET],
        row[rc.C_STORE_TIMESTAMP], offset_message_id(store_host, physical_offset),
        properties.get(PROPERTY_TAGS, ""), properties.get(PROPERTY_KEYS, ""),
    )  # fmt: skip
    return "\t".join(str(column) for column in columns).encode() + b"\n"


def _message(view: memoryview, row: Any) -> dict[str, Any]:
    sys_flag = row[rc.C_SYS_FLAG]
    body = view[row[rc.C_BODY_POSITION] : row[rc.C_BODY_POSITION] + row[rc.C_BODY_SIZE]]
    properties = properties_of(view, row)
    born_host = _host(view, row[rc.C_BORN_HOST_POSITION], sys_flag & MessageSysFlag.BORN_HOST_V6)
    store_host = _host(view, row[rc.C_STORE_HOST_POSITION], sys_flag & MessageSysFlag.STORE_HOST_V6)
    stored_md5 = hashlib.md5(body, usedforsecurity=False).hexdigest()
    return {
        "topic": topic_of(view, row),
        "queueId": row[rc.C_QUEUE_ID],
        "queueOffset": row[rc.C_QUEUE_OFFSET],
        "physicalOffset": row[rc.C_PHYSICAL_OFFSET],
        "size": row[rc.C_SIZE],
        "msgId": offset_message_id(store_host, row[rc.C_PHYSICAL_OFFSET]),
        "uniqKey": properties.get(PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX),
        "bodyMd5": _inflated_md5(body, sys_flag, stored_md5),
        "storedBodyMd5": stored_md5,
        "storedBodyLen": row[rc.C_BODY_SIZE],
        "bodyCrc": row[rc.C_BODY_CRC],
        "sysFlag": sys_flag,
        "flag": row[rc.C_FLAG],
        "bornTimestamp": row[rc.C_BORN_TIMESTAMP],
        "storeTimestamp": row[rc.C_STORE_TIMESTAMP],
        "bornHost": _host_text(born_host),
        "storeHost": _host_text(store_host),
        "reconsumeTimes": row[rc.C_RECONSUME_TIMES],
        "preparedTransactionOffset": row[rc.C_PREPARED_OFFSET],
        "properties": dict(sorted(properties.items())),
    }


def topic_of(view: memoryview, row: Any) -> str:
    """Return the topic of a scanned record; bytes that are not UTF-8 are replaced."""
    start = row[rc.C_TOPIC_POSITION]
    return str(view[start : start + row[rc.C_TOPIC_SIZE]], "utf-8", "replace")


def properties_of(view: memoryview, row: Any) -> dict[str, str]:
    """Return the properties of a scanned record."""
    start = row[rc.C_PROPERTIES_POSITION]
    return decode_properties(view[start : start + row[rc.C_PROPERTIES_SIZE]])


def _host(view: memoryview, position: int, is_v6: int) -> bytes:
    return bytes(view[position : position + (20 if is_v6 else 8)])


def _inflated_md5(body: memoryview, sys_flag: int, stored_md5: str) -> str | None:
    """Returns the MD5 of the decompressed body; None if the body is marked as compressed and cannot be decompressed."""
    if not sys_flag & MessageSysFlag.COMPRESSED:
        return stored_md5
    try:
        return hashlib.md5(decompress(body, compression_type(sys_flag)), usedforsecurity=False).hexdigest()
    except RemoteProtocolError:
        return None
