"""ProcessQueue against a naive second implementation."""

from hypothesis import given
from hypothesis import strategies as st

from maxq.client.consumer.held.process_queue import ProcessQueue
from maxq.protocol.message.message import MessageExt


def message(offset: int, size: int = 10) -> MessageExt:
    return MessageExt("T", b"x", queue_offset=offset, store_size=size)


def messages(*offsets: int) -> list[MessageExt]:
    return [message(offset) for offset in offsets]


def test_the_smallest_unfinished_offset_is_committed() -> None:
    queue = ProcessQueue(0)
    queue.put_messages(messages(5, 6, 7))
    assert queue.remove_messages(messages(6), 0) == 5
    assert queue.remove_messages(messages(5), 0) == 7
    assert queue.remove_messages(messages(7), 0) == 8
    assert queue.remove_messages(messages(7), 0) == -1, "nothing is left to say"


def test_counts_and_sizes_follow_the_messages() -> None:
    queue = ProcessQueue(0)
    queue.put_messages([message(1, 100), message(2, 50)], max_offset=10)
    assert (queue.message_count, queue.message_size, queue.backlog, queue.max_span()) == (2, 150, 7, 1)
    queue.remove_messages([message(1, 100)], 0)
    assert (queue.message_count, queue.message_size, queue.max_span()) == (1, 50, 0)
    queue.clear()
    assert (queue.message_count, queue.message_size) == (0, 0)


def test_messages_that_are_here_already_are_ignored() -> None:
    queue = ProcessQueue(0)
    queue.put_messages(messages(1, 2))
    queue.put_messages(messages(2, 3))
    assert queue.message_count == 3


def test_an_orderly_listener_gets_rolled_back_messages_again_first_and_in_order() -> None:
    queue = ProcessQueue(0)
    queue.put_messages(messages(1, 2, 3, 4))
    assert [m.queue_offset for m in queue.take_messages(2, 0)] == [1, 2]
    queue.put_messages(messages(5))
    queue.rollback()
    assert [m.queue_offset for m in queue.take_messages(3, 0)] == [1, 2, 3]
    assert queue.commit() == 4
    assert queue.message_count == 2
    assert queue.commit() == -1


def test_locks_and_pulls_grow_old() -> None:
    queue = ProcessQueue(1000)
    assert not queue.is_lock_expired(31_000)
    assert queue.is_lock_expired(31_001)
    assert not queue.is_pull_expired(121_000)
    assert queue.is_pull_expired(121_001)


@given(st.lists(st.one_of(st.integers(1, 8), st.lists(st.integers(0, 60), max_size=6)), max_size=60))
def test_the_committed_offset_is_that_of_a_sorted_set(steps: list[int | list[int]]) -> None:
    queue, inside, end = ProcessQueue(0), set[int](), 0
    for step in steps:
        if isinstance(step, int):  # a pull of that many
            queue.put_messages(messages(*range(end, end + step)))
            inside.update(range(end, end + step))
            end += step
        else:  # these are done, or were never here
            expected = -1 if not inside else min(inside - set(step), default=end)
            assert queue.remove_messages(messages(*step), 0) == expected
            inside -= set(step)
        assert queue.message_count == len(inside)
        assert queue.message_size == 10 * len(inside)


@given(st.lists(st.sampled_from(["put", "take", "commit", "rollback"]), max_size=60))
def test_an_orderly_queue_never_loses_or_reorders(steps: list[str]) -> None:
    queue, end, committed = ProcessQueue(0), 0, 0
    taken: list[int] = []
    for step in steps:
        if step == "put":
            queue.put_messages(messages(end, end + 1))
            end += 2
        elif step == "take" and not taken:
            taken = [m.queue_offset for m in queue.take_messages(3, 0)]
            assert taken == list(range(committed, min(committed + 3, end)))
        elif step == "commit" and taken:
            committed = queue.commit()
            assert committed == taken[-1] + 1
            taken = []
        elif step == "rollback":
            queue.rollback()
            taken = []
        assert queue.message_count == end - committed
