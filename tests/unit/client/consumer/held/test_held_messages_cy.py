"""HeldMessages against a naive second implementation, in both forms."""

from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from maxq.protocol.message.message import MessageExt, encode_record
from tests.unit.both_forms import both

FORMS = both("maxq.client.consumer.held.held_messages_cy")
RECEIVED = both("maxq.protocol.message.received_cy")

offsets = st.lists(st.integers(0, 40), max_size=8, unique=True).map(sorted)
kinds = st.sampled_from(["put", "append", "remove", "clear"])
steps = st.lists(st.tuples(kinds, offsets), max_size=40)
steps_with_records = st.lists(st.tuples(kinds, offsets, st.booleans()), max_size=40)


def record(number: int) -> bytes:
    return encode_record(MessageExt("T", b"b" * number, queue_offset=number, born_host=bytes(8), store_host=bytes(8)))


SIZE = len(record(0))


def messages(*numbers: int) -> list[MessageExt]:
    return [MessageExt("T", queue_offset=number, store_size=SIZE + number) for number in numbers]


def as_records(received: ModuleType, numbers: list[int]) -> Any:
    return received.keep_records(b"".join(map(record, numbers)), received.Pull("b", 0, 99))


@example(  # as many offsets lie between the first and the last as are removed, but others
    [("put", [0, 4, 5, 6, 8, 36], False), ("put", [2, 3], False), ("remove", [2, 3, 4, 5, 6, 7, 36], True)]
)
@given(steps_with_records)
def test_what_is_here_is_what_was_put_and_not_removed(told: list[tuple[str, list[int], bool]]) -> None:
    """Whether they come, and go, as messages or as the records of a pull."""
    for form, received in zip(FORMS, RECEIVED, strict=True):
        held, naive, highest = form.HeldMessages(), set[int](), 0
        for step, numbers, is_records in told:
            if step == "append":
                numbers = [highest + 1 + number for number in numbers]
            if step in ("put", "append"):
                held.put_messages(as_records(received, numbers) if is_records else messages(*numbers), 200)
                naive.update(numbers)
                highest = max([highest, *numbers])
                if numbers:
                    assert held.backlog == max(0, 200 - numbers[-1] - 1)
            elif step == "remove":
                left = naive - set(numbers)
                gone = as_records(received, numbers) if is_records else messages(*numbers)
                assert held.remove(gone) == (min(left, default=highest + 1) if naive else -1)
                naive = left
            else:
                held.clear()
                naive, highest = set(), 0
            assert (held.message_count, held.message_size) == (len(naive), sum(naive) + SIZE * len(naive))
            assert held.has_messages() == bool(naive)
            assert held.max_span() == (max(naive) - min(naive) if naive else 0)
            low, high = (min(naive), max(naive)) if naive else (0, 0)
            assert held.waiting_range() == (low, high, len(naive))
            assert held.queue_offset_max == highest


@given(steps, st.integers(1, 5))
def test_an_orderly_listener_gets_everything_in_order_however_it_comes(
    told: list[tuple[str, list[int]]], size: int
) -> None:
    for form in FORMS:
        held, waiting, taken = form.HeldMessages(), list[int](), list[int]()
        for step, numbers in told:
            if step in ("put", "append"):
                numbers = [number for number in numbers if number not in taken]
                held.put_messages(messages(*numbers))
                waiting = sorted({*waiting, *numbers})
            elif step == "remove":
                assert held.commit() == (taken[-1] + 1 if taken else -1)
                taken = [message.queue_offset for message in held.take(size)]
                assert taken == waiting[:size]
                waiting = waiting[size:]
            else:
                held.rollback()
                waiting, taken = sorted({*taken, *waiting}), []
            assert held.message_count == len(waiting) + len(taken)
            assert held.taken_range()[2] == len(taken)


@pytest.mark.parametrize("form", FORMS)
def test_offsets_may_be_any_long_and_have_gaps(form: ModuleType) -> None:
    numbers = [-(2**63), -1, 0, 2**40, 2**63 - 2]
    held = form.HeldMessages()
    held.put_messages([MessageExt("T", queue_offset=number, store_size=1) for number in numbers])
    assert held.remove([MessageExt("T", queue_offset=number) for number in (2**63 - 1, -(2**63), 1, 2**40)]) == -1
    assert held.message_count == 3
    assert held.remove([MessageExt("T", queue_offset=number) for number in numbers]) == 2**63 - 1


@pytest.mark.parametrize("form", FORMS)
def test_memory_is_what_is_held(form: ModuleType) -> None:
    held = form.HeldMessages()
    for first in range(0, 100_000, 100):
        held.put_messages(messages(*range(first, first + 100)))
        held.remove(messages(*range(first - 50, first + 50)))
        assert len(held._messages) <= 400 if form is FORMS[0] else True
    assert held.message_count == 50
