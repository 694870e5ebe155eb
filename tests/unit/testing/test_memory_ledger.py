"""The memory store answers as the file store does."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxq.errors import LedgerMismatchError
from maxq.protocol.dledger.dledger_messages import EntryRun
from maxq.protocol.dledger.ledger import HardState, Ledger
from maxq.testing.memory_ledger import MemoryLedger
from tests.short_form import times
from tests.unit.store.dledger.worlds import new_disk, opened

FILE_SIZE = 512


def answer(question: Callable[[], object]) -> object:
    """What comes of it; of errors their kind."""
    try:
        found = question()
    except (LedgerMismatchError, IndexError) as error:
        return type(error).__name__
    return bytes(found.data) if isinstance(found, EntryRun) else found


def facts(store: Ledger) -> list[object]:
    """All that can be asked."""
    whole = range(-1, store.end_index + 2)
    return [
        store.begin_index, store.end_index, store.end_term, store.durable_index, store.committed_index,
        store.committed_position, store.amnesiac_until, store.term_state,
        [answer(lambda index=index: tuple(store.unit(index))) for index in whole],  # type: ignore[misc]
        [answer(lambda index=index: store.term_of(index)) for index in whole],  # type: ignore[misc]
        [answer(lambda index=index: store.entry(index)) for index in whole],  # type: ignore[misc]
    ]  # fmt: skip


@settings(max_examples=times(40), deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["append", "truncate", "commit", "reset", "term"]), st.integers(0, 400)), max_size=20
    )
)
def test_both_stores_answer_the_same(operations: list[tuple[str, int]]) -> None:
    stores: list[Ledger] = [opened(new_disk(), file_size=FILE_SIZE, index_size=160), MemoryLedger(FILE_SIZE)]
    told: list[list[tuple[int, ...]]] = [[], []]
    for store, heard in zip(stores, told, strict=True):
        store.set_listeners(
            lambda first, last, heard=heard: heard.append((first, last)),  # type: ignore[misc]
            lambda index, heard=heard: heard.append((index,)),  # type: ignore[misc]
        )
    for number, (name, value) in enumerate(operations):
        found = []
        for store in stores:
            end = store.end_index
            if name == "append":
                store.begin_leading(number)
                found.append(answer(lambda s=store, v=value: s.append(b"x" * v)))  # type: ignore[misc]
                store.end_leading()
            elif name == "truncate":
                at = end - value % 4
                found.append(answer(lambda s=store, at=at: s.truncate(at)) if at >= 0 else None)  # type: ignore[misc]
            elif name == "commit":
                store.commit(end - value % 3)
            elif name == "reset" and value % 8 == 0:
                at = end + value % 5
                found.append(answer(lambda s=store, at=at: s.reset(at, 10 * FILE_SIZE)) if at > 0 else None)  # type: ignore[misc]
            else:
                store.store_term(HardState(number, "n1"))
        assert found[:1] == found[1:]
        assert facts(stores[0]) == facts(stores[1])
    assert told[0] == told[1]


def test_a_run_fits_where_it_was_taken_from() -> None:
    leader, follower = MemoryLedger(FILE_SIZE), MemoryLedger(FILE_SIZE)
    leader.begin_leading(1)
    for number in range(20):
        leader.append(b"x" * number * 7)
    index = 0
    while index <= leader.end_index:
        index = follower.append_entries(leader.entries(index, 300)) + 1
    assert [follower.entry(index) for index in range(20)] == [leader.entry(index) for index in range(20)]
    follower.append_entries(leader.entries(3, 300))
    with pytest.raises(LedgerMismatchError):
        MemoryLedger(FILE_SIZE).append_entries(leader.entries(3, 300))
