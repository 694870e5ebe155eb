"""What a start finds in the log of deliveries that delayOffset.json does not know."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

from maxq.broker.schedule_message.delay_offset_table import DelayOffsetTable
from maxq.broker.schedule_message.delivery_recovery import DeliveryRecovery
from maxq.broker.schedule_message.store_schedule_queue import StoreScheduleQueue
from maxq.broker.tables.topic.topic_validator import SCHEDULE_TOPIC
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import MessageExt
from maxq.store.message_store import MessageStore
from maxq.testing.sim_clock import SimClock

SIZE = 100
DELAYED = 3  # messages of level 1, at 0, 100 and 200


class Log:
    """The delayed messages, and behind them deliveries of those with these numbers, in this order. Topic T was deleted
    just before the record number `deleted`; 0: never."""

    def __init__(self, *delivered: int, delayed: int, deleted: int) -> None:
        self._deleted_at = max(deleted * SIZE - 1, 0)
        delayed_messages = [_message(number) for number in range(delayed)]
        copies = [replace(delayed_messages[number], topic="T", queue_id=0) for number in delivered]
        self.messages = {
            at * SIZE: replace(message, physical_offset=at * SIZE)
            for at, message in enumerate([*delayed_messages, *copies])
        }

    def incarnation(self, topic: str) -> int:
        return self._deleted_at if topic == "T" else 0

    def look_message_by_offset(self, physical_offset: int) -> MessageExt | None:
        return self.messages.get(physical_offset)

    def records_with(self, needle: bytes, start: int) -> Iterator[list[int]]:
        yield [at for at in self.messages if at >= start]


class Level:
    """The queue of level 1; the others have no messages."""

    def __init__(self, level: int, delayed: int) -> None:
        self.max_offset = delayed if level == 1 else 0

    def unit(self, offset: int) -> tuple[int, int, int] | None:
        return (offset * SIZE, SIZE, 0) if offset < self.max_offset else None


def _message(number: int) -> MessageExt:
    properties = {
        const.PROPERTY_REAL_TOPIC: "T",
        const.PROPERTY_REAL_QUEUE_ID: "0",
        const.PROPERTY_DELAY_TIME_LEVEL: "1",
        const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX: f"K{number}",
    }
    return MessageExt(topic=SCHEDULE_TOPIC, body=b"x", properties=properties)


def found(*delivered: int, delayed: int = DELAYED, deleted: int = 0) -> tuple[int, int, list[int]]:
    """How many, the level's offset then, and the queue offsets of those that must be delivered again."""
    table = DelayOffsetTable(SimClock(), lambda: 1)
    log = cast(MessageStore, Log(*delivered, delayed=delayed, deleted=deleted))
    before = DeliveryRecovery(log, [1, 2], lambda level: cast(StoreScheduleQueue, Level(level, delayed)), table)
    count = asyncio.run(before.find())
    return count, table.offset(1), [unit.queue_offset for _, unit in before.missed]


def test_deliveries_in_their_order_are_found() -> None:
    assert found(0, 1) == (2, 2, [])


def test_a_delivery_that_is_missing_between_others_is_made_again() -> None:
    assert found(0, 2) == (2, 3, [1])
    assert found(2) == (1, 3, [0, 1])


def test_a_delivery_that_was_made_again_is_known_to_the_next_start() -> None:
    assert found(0, 2, 1) == (3, 3, [])
    assert found(2, 0) == (2, 3, [1])


def test_any_number_of_messages_of_a_deleted_topic_may_lie_before_a_delivery() -> None:
    """They were dropped when they were due; what was delivered behind them was delivered once more."""
    assert found(200, 201, delayed=203, deleted=200) == (2, 202, [])
    assert found(0, 1, 201, delayed=203, deleted=200) == (3, 202, [200])
    assert found(0, 1, 203, delayed=204, deleted=204 + 2) == (3, 204, [])  # two were delivered before the deletion


def test_what_went_with_its_topic_is_looked_at_once_though_something_before_it_waits() -> None:
    """A restart of a broker with many of them would stand still for each record that is no delivery of its level."""
    log = Log(*range(1, 41), delayed=400, deleted=400)
    waits = log.messages[0]
    log.messages[0] = replace(waits, properties={**waits.properties, const.PROPERTY_REAL_TOPIC: "U"})
    for at in range(400, 440):  # deliveries of a broker that had other messages
        other = log.messages[at * SIZE]
        unknown = {**other.properties, const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX: "other"}
        log.messages[at * SIZE] = replace(other, properties=unknown)
    asked: list[int] = []
    real = log.look_message_by_offset
    log.look_message_by_offset = lambda at: asked.append(at) or real(at)  # type: ignore[func-returns-value, method-assign]
    table = DelayOffsetTable(SimClock(), lambda: 1)
    store = cast(MessageStore, log)
    recovery = DeliveryRecovery(store, [1], lambda level: cast(StoreScheduleQueue, Level(level, 400)), table)
    assert asyncio.run(recovery.find()) == 0
    assert len(asked) < 1_000
