"""The results of dispatching one decoded record: places in queues, and index keys. Nothing is opened or written.

The compiled Dispatcher (dispatch_cy.py) does this for ordinary records. Here it is for those that it hands on (inner
batches, light queues), and for whoever has no Dispatcher: the running broker (dispatcher.py), records that were damaged
and are back (recovery/restore_places.py) and Spark's rebuild (pipeline/jobs/rebuild/log_dispatch.py) go by it. The
checker (tools/expectation.py) is a second implementation on purpose: each is checked by the other.
"""

from typing import Final, NamedTuple

from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.message_const import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_INNER_BASE,
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    PROPERTY_INNER_NUM,
    PROPERTY_TAGS,
)
from maxq.protocol.message.message_sys_flag import MessageSysFlag
from maxq.store.log.tails_cy import jhash
from maxq.store.queue.batch_consume_queue import BatchUnit
from maxq.store.queue.consume_queue_store import (
    DELAY_TOPIC,
    LMQ_PREFIX,
    is_folder_name,
    may_hold_places,
    may_name_queues,
    number_in,
)

_BATCH_MOST: Final = 32767


class Place(NamedTuple):
    """One queue offset in one ConsumeQueue, where a record gets a unit."""

    topic: str
    queue_id: int
    queue_offset: int


def light_places(message: MessageExt) -> list[Place] | None:
    """Return the places of a record in the queues that its INNER_MULTI_DISPATCH names; None if the numbers of places
    and queues differ, so that it has none."""
    names = message.properties.get(PROPERTY_INNER_MULTI_DISPATCH)
    places = message.properties.get(PROPERTY_INNER_MULTI_QUEUE_OFFSET, "")
    if names is None or not may_hold_places(message.topic) or not (places or may_name_queues(message.topic)):
        return []
    queues, offsets = names.split(","), places.split(",")
    if len(queues) != len(offsets):
        return None
    return [
        Place(name, 0 if name.startswith(LMQ_PREFIX) else message.queue_id, number_in(text))
        for name, text in zip(queues, offsets, strict=True)
        if number_in(text) >= 0 and is_folder_name(name)
    ]


def batch_unit(message: MessageExt, physical_offset: int, size: int) -> BatchUnit | None:
    """Return the BatchConsumeQueue unit of a record: an inner batch, or a single message in such a queue. None for an
    inner batch without a base offset."""
    base, count = message.queue_offset, 1
    if message.sys_flag & MessageSysFlag.INNER_BATCH:
        base = number_in(message.properties.get(PROPERTY_INNER_BASE, ""))
        count = number_in(message.properties.get(PROPERTY_INNER_NUM, ""))
    if base < 0 or not 0 < count <= _BATCH_MOST:
        return None
    return BatchUnit(physical_offset, size, tags_code(message), message.store_timestamp, base, count)


def tags_code(message: MessageExt) -> int:
    """Return the hash of the record's tag; 0 without one."""
    tags = message.properties.get(PROPERTY_TAGS)
    return jhash(tags) if tags else 0


def unit_code(message: MessageExt, delays_ms: list[int]) -> int:
    """Return the tags code of the record's own unit. For a delayed message it is the due time, ms since 1970;
    `delays_ms` are the delays of level 1, 2, …."""
    if message.topic == DELAY_TOPIC:
        level = number_in(message.properties.get(PROPERTY_DELAY_TIME_LEVEL, ""))
        if level > 0 and delays_ms:
            return message.store_timestamp + delays_ms[min(level, len(delays_ms)) - 1]
    return tags_code(message)


def index_keys(message: MessageExt, tags_too: bool) -> list[str]:
    """Return the keys by which a message is indexed, in the order of its index entries."""
    keys = [message.uniq_key] if message.uniq_key else []
    keys += [key for key in (message.keys or "").split(" ") if key]
    if tags_too and message.tags:
        keys.append(f"T#{message.tags}")
    return keys
