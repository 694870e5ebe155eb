"""Every waiter hears exactly once."""

from hypothesis import given
from hypothesis import strategies as st

from maxq.protocol.dledger.dledger_messages import DLedgerResponseCode
from maxq.replication.dledger.commit_waiters import CommitWaiters

OK = DLedgerResponseCode.SUCCESS
LATE = DLedgerResponseCode.WAIT_QUORUM_ACK_TIMEOUT
GONE = DLedgerResponseCode.TERM_CHANGED


def test_a_commit_wakes_all_up_to_it_in_order_even_if_they_came_out_of_order() -> None:
    heard: list[tuple[int, DLedgerResponseCode]] = []
    waiters = CommitWaiters()
    for key in (3, 5, 4, 4, 9):
        waiters.wait(key, 100, lambda code, key=key: heard.append((key, code)))  # type: ignore[misc]
    waiters.committed(4)
    assert heard == [(3, OK), (4, OK), (4, OK)]
    waiters.committed(8)
    assert heard[3:] == [(5, OK)] and len(waiters) == 1


def test_time_is_up_for_everyone_whose_deadline_passed_not_only_the_first() -> None:
    """Java looks at consecutive indexes from the commit on and stops at the first gap (dledger.md §12.1)."""
    heard: list[int] = []
    waiters = CommitWaiters()
    for key, deadline in ((1, 300), (5, 100), (9, 200)):
        waiters.wait(key, deadline, lambda code, key=key: heard.append(key))  # type: ignore[misc]
    assert waiters.next_deadline_ms() == 100
    waiters.expire(200)
    assert heard == [5, 9] and waiters.next_deadline_ms() == 300


def test_nobody_is_left_when_the_leadership_ends() -> None:
    heard: list[DLedgerResponseCode] = []
    waiters = CommitWaiters()
    for key in range(3):
        waiters.wait(key, 100, heard.append)
    waiters.fail(GONE)
    assert heard == [GONE] * 3 and len(waiters) == 0 and waiters.next_deadline_ms() is None


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.integers(0, 20), st.integers(0, 50)),
        st.tuples(st.just("commit"), st.integers(0, 20), st.just(0)),
        st.tuples(st.just("expire"), st.integers(0, 50), st.just(0)),
        st.tuples(st.just("fail"), st.just(0), st.just(0)),
    )
)


@given(STEPS)
def test_each_hears_once_what_a_naive_table_says(steps: list[tuple[str, int, int]]) -> None:
    waiters = CommitWaiters()
    heard: dict[int, DLedgerResponseCode] = {}
    table: dict[int, tuple[int, int]] = {}
    expected: dict[int, DLedgerResponseCode] = {}

    def settle(which: list[int], code: DLedgerResponseCode) -> None:
        for number in which:
            del table[number]
            expected[number] = code

    for number, (step, first, second) in enumerate(steps):
        if step == "wait":
            table[number] = first, second

            def done(code: DLedgerResponseCode, number: int = number) -> None:
                assert number not in heard, "told twice"
                heard[number] = code

            waiters.wait(first, second, done)
        elif step == "commit":
            waiters.committed(first)
            settle([one for one, (key, _) in table.items() if key <= first], OK)
        elif step == "expire":
            waiters.expire(first)
            settle([one for one, (_, deadline) in table.items() if deadline <= first], LATE)
        else:
            waiters.fail(GONE)
            settle(list(table), GONE)
        assert heard == expected and len(waiters) == len(table)
