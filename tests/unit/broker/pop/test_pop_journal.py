"""The journal while the store takes nothing."""

from typing import Any

import orjson

from maxq.broker.pop.pop_journal import NOT_NOTED, PopJournal
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.store_results import PutMessageResult, PutMessageStatus


class Store:
    """Takes messages, or not."""

    def __init__(self) -> None:
        self.is_busy = False
        self.taken: list[Any] = []

    @property
    def admission(self) -> "Store":
        return self

    def refusal(self) -> PutMessageStatus | None:
        return PutMessageStatus.OS_PAGE_CACHE_BUSY if self.is_busy else None

    def put_message(self, message: MessageExtBrokerInner) -> PutMessageResult:
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
