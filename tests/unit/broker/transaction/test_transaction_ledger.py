"""Which half messages are finished: against a naive table."""

from hypothesis import given
from hypothesis import strategies as st

from maxq.broker.transaction.transaction_ledger import TransactionLedger, TransactionOutcome
from maxq.protocol.message.transaction_view import half_offsets

BIG = 1 << 16


@given(st.integers(0, 50), st.lists(st.integers(0, 120), max_size=150))
def test_low_is_the_first_open_half_message(low: int, finished: list[int]) -> None:
    ledger, naive = TransactionLedger(low), set(range(low))
    for offset in finished:
        ledger.finish(offset, TransactionOutcome.COMMITTED)
        naive.add(offset)
        expected = next(n for n in range(200) if n not in naive)
        assert ledger.low == expected
        assert ledger.next_open(0) == expected
    for offset in range(130):
        assert ledger.is_open(offset) == (offset not in naive)
        assert (ledger.ending(offset) is TransactionOutcome.OPEN) == (offset not in naive)
        assert ledger.next_open(offset) == next(n for n in range(offset, 300) if n not in naive)


def test_what_is_finished_in_order_is_forgotten_and_stays_finished() -> None:
    ledger = TransactionLedger(0)
    for offset in range(3 * BIG):
        ledger.finish(offset, TransactionOutcome.ROLLED_BACK)
    assert ledger.low == 3 * BIG
    assert len(ledger._marks) <= BIG
    assert not ledger.is_open(0)
    assert ledger.ending(0) is TransactionOutcome.REMEMBERED
    ledger.finish(0, TransactionOutcome.COMMITTED)  # late: nothing to do
    assert ledger.is_open(3 * BIG)


def test_one_open_half_message_holds_low_back() -> None:
    ledger = TransactionLedger(0)
    for offset in range(1, 1000):
        ledger.finish(offset, TransactionOutcome.COMMITTED)
    assert (ledger.low, ledger.next_open(1)) == (0, 1000)
    ledger.finish(0, TransactionOutcome.COMMITTED)
    assert ledger.low == 1000


def test_a_copy_stands_for_its_origin_until_it_ends() -> None:
    ledger = TransactionLedger(0)
    ledger.copied(5, 5, 9)
    assert (ledger.ending(5), ledger.standing_for(5, 5)) == (TransactionOutcome.COPIED, 9)
    ledger.copied(9, 5, 12)
    assert [ledger.standing_for(offset, 5) for offset in (5, 9, 12)] == [12, 12, 12]
    ledger.end(12, 5, TransactionOutcome.COMMITTED)
    assert ledger.standing_for(5, 5) == 5
    assert not any(ledger.is_open(offset) for offset in (5, 9, 12))


def test_what_the_store_no_longer_has_is_skipped() -> None:
    ledger = TransactionLedger(10)
    ledger.finish(12, TransactionOutcome.COMMITTED)
    assert (ledger.skip_to(12), ledger.low) == (2, 13)
    assert (ledger.skip_to(11), ledger.low) == (0, 13)
    ledger.finish(15, TransactionOutcome.ROLLED_BACK)
    assert ledger.skip_to(500) == 486
    assert (ledger.low, ledger.is_open(499), ledger.is_open(500)) == (500, False, True)


def test_bodies_of_op_messages_old_and_new() -> None:
    assert half_offsets(b"5,6,7,") == [5, 6, 7]
    assert half_offsets(b"12") == [12]
    assert half_offsets(b"") == []
    assert half_offsets(b"x,-1,3,\xff") == [3]
