"""The units and index entries that one record of the log must have.

A second, naive implementation of dispatch, so that each can be checked by the other (the first:
store/dispatch/dispatch_cy.py).

Source:
    CommitLog.checkMessageAndReturnSize, ConsumeQueue.putMessagePositionInfo, MultiDispatchUtils,
    IndexService.buildIndex (5.5, which writes tag entries).
"""

from functools import lru_cache
from typing import Any, Final, NamedTuple

from maxq.protocol.message import message_const as const
from maxq.protocol.message.java_hash import java_hash
from maxq.protocol.message.message_sys_flag import MessageSysFlag, is_queued, is_rolled_back
from maxq.store.log import record_cy as rc
from maxq.store.log.tails_cy import jhash
from maxq.store.queue.consume_queue_store import is_folder_name, may_hold_places
from maxq.store.tools.message_lines import properties_of, topic_of

SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
LMQ_PREFIX: Final = "%LMQ%"
_MIN_INT: Final = -(1 << 31)


class ExpectedUnit(NamedTuple):
    """The entry that a record of the log requires in one ConsumeQueue."""

    topic: str
    queue_id: int
    queue_offset: int
    tags_code: int


class Expectation(NamedTuple):
    """The entries that dispatch makes for one record.

    Attributes:
        units: ConsumeQueue entries, the record's own queue first.
        batch_size: number of messages of an inner batch (its one unit is in the batch queue), else 0.
        key_hashes: of the index entries it must have.
        tag_hashes: of those it may have (RocketMQ 5.5 writes them).
    """

    physical_offset: int
    size: int
    store_timestamp: int
    units: tuple[ExpectedUnit, ...]
    batch_size: int
    key_hashes: tuple[int, ...]
    tag_hashes: tuple[int, ...]


def expectation_of(view: memoryview, row: Any, delay_levels_ms: tuple[int, ...]) -> Expectation:
    """Return the entries that dispatch must have written for a scanned record (`row` is record_cy.SCAN_WIDTH
    integers)."""
    topic = topic_of(view, row)
    properties = properties_of(view, row)
    sys_flag = row[rc.C_SYS_FLAG]
    units: tuple[ExpectedUnit, ...] = ()
    batch_size = 0
    if is_queued(sys_flag):
        tags_code = _tags_code(topic, properties, row[rc.C_STORE_TIMESTAMP], delay_levels_ms)
        if sys_flag & MessageSysFlag.INNER_BATCH:
            batch_size = _int(properties.get(const.PROPERTY_INNER_NUM, ""))
        units = (ExpectedUnit(topic, row[rc.C_QUEUE_ID], row[rc.C_QUEUE_OFFSET], tags_code),)
        units += _multi_dispatch(topic, row[rc.C_QUEUE_ID], properties, tags_code)
    return Expectation(
        row[rc.C_PHYSICAL_OFFSET],
        row[rc.C_SIZE],
        row[rc.C_STORE_TIMESTAMP],
        units,
        batch_size,
        () if is_rolled_back(sys_flag) else _key_hashes(topic, properties),
        () if is_rolled_back(sys_flag) else _tag_hashes(topic, properties),
    )


def index_hash(key: str) -> int:
    """Return the index's hash of a key, which is never negative (IndexFile.indexKeyHashMethod)."""
    value = jhash(key)
    return 0 if value == _MIN_INT else abs(value)


@lru_cache(maxsize=4096)
def _tag_hash(tags: str) -> int:
    return java_hash(tags)


def _tags_code(topic: str, properties: dict[str, str], store_timestamp: int, delay_levels_ms: tuple[int, ...]) -> int:
    if topic == SCHEDULE_TOPIC:
        level = min(_int(properties.get(const.PROPERTY_DELAY_TIME_LEVEL, "")), len(delay_levels_ms))
        if level > 0:
            return store_timestamp + delay_levels_ms[level - 1]
    tags = properties.get(const.PROPERTY_TAGS)
    return _tag_hash(tags) if tags else 0


def _multi_dispatch(topic: str, queue_id: int, properties: dict[str, str], tags_code: int) -> tuple[ExpectedUnit, ...]:
    if const.PROPERTY_INNER_MULTI_DISPATCH not in properties:
        return ()
    names = properties[const.PROPERTY_INNER_MULTI_DISPATCH].split(",")
    offsets = properties.get(const.PROPERTY_INNER_MULTI_QUEUE_OFFSET, "").split(",")
    if len(names) != len(offsets) or not may_hold_places(topic):
        return ()
    return tuple(
        ExpectedUnit(name, 0 if name.startswith(LMQ_PREFIX) else queue_id, int(offset), tags_code)
        for name, offset in zip(names, offsets, strict=True)
        if offset.isdecimal() and is_folder_name(name)
    )


def _key_hashes(topic: str, properties: dict[str, str]) -> tuple[int, ...]:
    keys = [key for key in properties.get(const.PROPERTY_KEYS, "").split(const.KEY_SEPARATOR) if key]
    uniq_key = properties.get(const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX)
    if uniq_key:
        keys.insert(0, uniq_key)
    return tuple(index_hash(f"{topic}#{key}") for key in keys)


def _tag_hashes(topic: str, properties: dict[str, str]) -> tuple[int, ...]:
    tags = properties.get(const.PROPERTY_TAGS)
    return (index_hash(f"{topic}#T#{tags}"),) if tags else ()


def _int(text: str) -> int:
    return int(text) if text.removeprefix("-").isdecimal() else 0
