"""The journal while the store takes nothing, and what is read of it when a part of the log is damaged."""

from typing import Any

import orjson

from maxq.broker.pop.pop_journal import NOT_NOTED, PopJournal
from maxq.broker.tables.topic.topic_validator import JOURNAL_TOPIC
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.store_results import PutMessageResult, PutMessageStatus
from tests.unit.broker.pop.pop_parts import PopParts


class Store:
    """Takes messages, or not."""

    def __init__(self) -> None:
        self.is_busy = False
        self.most_bytes = 1 << 20
        self.taken: list[Any] = []

    @property
    def admission(self) -> "Store":
        return self

    def refusal(self) -> PutMessageStatus | None:
        return PutMessageStatus.OS_PAGE_CACHE_BUSY if self.is_busy else None

    def put_message(self, message: MessageExtBrokerInner) -> PutMessageResult:
        if len(message.body) > self.most_bytes:
            return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL)
        self.taken.append(orjson.loads(bytes(message.body)))
        at = len(self.taken) - 1
        return PutMessageResult(PutMessageStatus.PUT_OK, end_offset=at + 1, queue_offset=at)

    def wall_ms(self) -> int:
        return 1


def test_what_the_store_did_not_take_comes_first_when_it_does() -> None:
    store = Store()
    journal = PopJournal(store, store, store, may_write=lambda: True)  # type: ignore[arg-type]
    assert journal.write({"a": [[1, 1]]}) == (0, 1)
    store.is_busy = True
    assert journal.write({"a": [[2, 1]]}) == (-1, NOT_NOTED)
    assert journal.write({"a": [[3, 1]]}) == (-1, NOT_NOTED)
    assert journal.noted_end() == NOT_NOTED
    journal.catch_up()
    assert len(store.taken) == 1
    store.is_busy = False
    assert journal.write({"a": [[4, 1]]}) == (3, 4)
    assert [entry["a"][0][0] for entry in store.taken] == [1, 2, 3, 4]
    store.is_busy = True
    journal.write({"a": [[5, 1]]})
    store.is_busy = False
    journal.catch_up()
    assert store.taken[-1] == {"a": [[5, 1]]}


def test_a_broker_that_may_not_write_keeps_nothing() -> None:
    store = Store()
    journal = PopJournal(store, store, store, may_write=lambda: False)  # type: ignore[arg-type]
    assert journal.write({"e": [1]}) == (-1, 0)
    journal.catch_up()
    assert store.taken == []


def test_what_is_longer_than_a_message_may_be_becomes_several_records_check_points_first() -> None:
    """The check points of a slave that acted as master for long, and a maxMessageSize that was made smaller."""
    store = Store()
    journal = PopJournal(store, store, store, may_write=lambda: True)  # type: ignore[arg-type]
    journal.write({"e": [0]})
    points = [[number, "T" * 100] for number in range(100)]
    acks = [[number, 1] for number in range(100)]
    store.most_bytes = 1_000
    store.is_busy = True
    journal.write({"e": list(range(1_000, 1_300))})
    store.is_busy = False
    offset, end = journal.write({"a": acks, "p": points})
    assert end == len(store.taken) == journal.noted_end()
    kept = [(name, row) for record in store.taken[offset:] for name, rows in record.items() for row in rows]
    assert kept == [("p", row) for row in points] + [("a", row) for row in acks]
    assert [number for record in store.taken[1:offset] for number in record["e"]] == list(range(1_000, 1_300))


def test_a_row_that_is_longer_than_a_message_may_be_waits_for_a_larger_limit() -> None:
    store = Store()
    journal = PopJournal(store, store, store, may_write=lambda: True)  # type: ignore[arg-type]
    store.most_bytes = 5
    assert journal.write({"a": [[1, 1]]}) == (-1, NOT_NOTED)
    assert journal.takes_nothing()
    store.most_bytes = 100
    assert not journal.takes_nothing()
    assert store.taken == [{"a": [[1, 1]]}]


def test_the_place_of_a_damaged_record_tells_nothing(parts: PopParts) -> None:
    """Its unit names the next record, which was applied once more: a check point was there twice, and came twice."""
    for number in range(3):
        parts.journal.write({"e": [number]})
    parts.damage(JOURNAL_TOPIC, 0, 1)
    assert [entry for batch in parts.journal.read() for entry in batch] == [(0, {"e": [0]}), (2, {"e": [2]})]
