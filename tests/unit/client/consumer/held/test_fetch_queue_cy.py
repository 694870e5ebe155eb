"""What waits for `poll` is given out once, in order, and what was interrupted is given out again; in both forms."""

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from maxq.client.consumer.held.assigned_queue import AssignedQueue
from maxq.client.consumer.held.process_queue import ProcessQueue
from maxq.protocol.message.message import MessageExt, encode_record
from maxq.protocol.message.message_queue import MessageQueue
from tests.unit.both_forms import both

FORMS = both("maxq.client.consumer.held.fetch_queue_cy")


def assigned() -> AssignedQueue:
    return AssignedQueue(MessageQueue("T", "b", 0), ProcessQueue(0), 0)


def fill(form: ModuleType, of: AssignedQueue, count: int) -> tuple[Any, list[Any]]:
    queue = form.FetchQueue()
    pulls = [form.Fetched(of, of.generation, [MessageExt("T", b"%d" % n)]) for n in range(count)]
    for fetched in pulls:
        queue.append(fetched)
    return queue, pulls


@pytest.mark.parametrize("form", FORMS)
def test_each_poller_gets_the_next_pull_and_has_finished_its_last_one(form: ModuleType) -> None:
    queue, pulls = fill(form, assigned(), 4)
    assert queue.hand_out("a", False) == pulls[0].messages
    assert queue.hand_out("b", False) is None, "the loop looks whether the others still live"
    queue.given_out["b"] = [queue.take(32)]
    assert queue.message_count == 2
    assert queue.hand_out("a", False) == pulls[2].messages
    assert queue.finished == [pulls[0]]
    assert queue.hand_out("b", False) == pulls[3].messages
    assert queue.given_out == {"a": [pulls[2]], "b": [pulls[3]]}
    assert queue.hand_out("a", False) is None, "nothing is there, and nothing is finished by that"
    assert queue.take_finished() == pulls[:2]
    assert queue.take_finished() == []


@pytest.mark.parametrize("form", FORMS)
def test_who_polls_alone_leaves_what_others_have_to_the_loop(form: ModuleType) -> None:
    queue, pulls = fill(form, assigned(), 3)
    assert queue.hand_out("a", True) == pulls[0].messages
    assert queue.hand_out("a", True) == pulls[1].messages
    queue.given_out["b"] = [pulls[2]]
    assert queue.hand_out("a", True) is None


@pytest.mark.parametrize("form", FORMS)
def test_what_was_taken_back_comes_again_first(form: ModuleType) -> None:
    queue, pulls = fill(form, assigned(), 2)
    before = queue.given_out.get("a")
    assert queue.hand_out("a", False) == pulls[0].messages
    assert queue.take_back("a", before)
    assert queue.message_count == 2
    assert queue.hand_out("a", False) == pulls[0].messages
    assert queue.finished == []
    assert not queue.take_back("a", queue.given_out["a"]), "that it had before"
    assert not queue.take_back("b", None)


@pytest.mark.parametrize("form", FORMS)
def test_paused_queues_are_passed_over_and_given_up_ones_are_dropped(form: ModuleType) -> None:
    paused, given_up, sought = assigned(), assigned(), assigned()
    queue, held = fill(form, paused, 2)
    for of in (given_up, sought, assigned()):
        queue.append(form.Fetched(of, of.generation, [MessageExt("T", b"x")]))
    paused.paused, given_up.process_queue.dropped, sought.generation = True, True, 1
    assert queue.hand_out("a", False) is None, "the loop looks for another"
    found = queue.take(32)
    assert found.is_current
    assert found.assigned not in (paused, given_up, sought)
    assert queue.take(32) is None
    assert queue.message_count == 2
    paused.paused = False
    assert [queue.take(32), queue.take(32)] == held
    assert queue.message_count == 0


@pytest.mark.parametrize("form", FORMS)
def test_a_poller_may_change_its_list(form: ModuleType) -> None:
    queue, (fetched,) = fill(form, assigned(), 1)
    found = queue.hand_out(SimpleNamespace, False)
    found.clear()
    assert len(fetched.messages) == 1
    queue.clear()
    assert queue.message_count == 0


@pytest.mark.parametrize("form", FORMS)
def test_messages_can_be_taken_one_by_one(form: ModuleType) -> None:
    of = assigned()
    queue = form.FetchQueue()
    messages = [MessageExt("T", b"%d" % n) for n in range(5)]
    queue.append(form.Fetched(of, 0, messages[:3]))
    queue.append(form.Fetched(of, 0, messages[3:]))
    assert queue.hand_out("a", False, True) == messages[:1]
    assert queue.hand_out("a", False, True) == messages[1:2]
    assert [done.messages for done in queue.finished] == [messages[:1]]
    assert queue.message_count == 3
    assert queue.take_back("a", None)
    assert queue.hand_out("a", False, True) == messages[1:2], "it comes again, and in order"
    assert queue.take(32, True).messages == messages[2:3]
    assert queue.hand_out("a", False) == messages[3:], "the rest of what was pulled together"
    assert queue.message_count == 0


# --- pulls that are kept as records -----------------------------------------------------------------------------------

RECORDS = list(zip(FORMS, both("maxq.protocol.message.received_cy"), strict=True))


def kept(received: ModuleType, *offsets: int) -> Any:
    data = b"".join(
        encode_record(MessageExt("T", b"%d" % n, queue_offset=n, born_host=bytes(8), store_host=bytes(8)))
        for n in offsets
    )
    return received.keep_records(data, received.Pull("b", 0, 99))


@pytest.mark.parametrize(("form", "received"), RECORDS)
def test_records_are_taken_together_until_it_is_enough_or_messages_come(form: ModuleType, received: ModuleType) -> None:
    of, paused, given_up = assigned(), assigned(), assigned()
    paused.paused, given_up.process_queue.dropped = True, True
    queue = form.FetchQueue()
    pulls = [
        form.Fetched(one, 0, messages)
        for one, messages in [
            (paused, kept(received, 0, 1)), (of, kept(received, 0, 1)), (given_up, kept(received, 5)),
            (of, kept(received, 2, 3)), (of, kept(received, 4)), (of, [MessageExt("T", b"x")]), (of, kept(received, 6)),
        ]
    ]  # fmt: skip
    for fetched in pulls:
        queue.append(fetched)
    assert queue.message_count == 10
    assert queue.take_records(3, 1 << 20) == [pulls[1]], "the next one would make it more"
    assert queue.take_records(2, 1 << 20) == [pulls[3]]
    assert queue.message_count == 5, "those of a queue that was given up are gone"
    assert queue.take_records(100, 1 << 20) == [pulls[4]]
    assert queue.take_records(100, 1 << 20) == [pulls[5]], "messages come alone"
    paused.paused = False
    assert queue.take_records(100, 1) == [pulls[0]], "alone it may be larger"
    assert queue.take_records(100, 1 << 20) == [pulls[6]]
    assert queue.take_records(100, 1 << 20) == []
    assert queue.message_count == 0


@pytest.mark.parametrize(("form", "received"), RECORDS)
def test_records_become_messages_for_who_asks_for_them(form: ModuleType, received: ModuleType) -> None:
    queue = form.FetchQueue()
    queue.append(form.Fetched(assigned(), 0, kept(received, 0, 1, 2)))
    queue.append(form.Fetched(assigned(), 0, kept(received, 3)))
    assert queue.hand_out("a", False) is None, "the loop makes them"
    assert [message.body for message in queue.take(32, True).messages] == [b"0"]
    assert queue.message_count == 3
    assert [message.body for message in queue.take(32).messages] == [b"1", b"2"]
    assert [message.body for message in queue.take(32).messages] == [b"3"]
    assert queue.message_count == 0


@pytest.mark.parametrize(("form", "received"), RECORDS)
def test_no_more_records_become_messages_at_once_than_who_asks_wants(form: ModuleType, received: ModuleType) -> None:
    of = assigned()
    queue = form.FetchQueue()
    queue.append(form.Fetched(of, 0, kept(received, *range(7))))
    found = [[message.body for message in queue.take(3, is_one).messages] for is_one in (False, True, False)]
    assert found == [[b"0", b"1", b"2"], [b"3"], [b"4", b"5"]]
    assert queue.message_count == 1
    of.generation = 1
    assert queue.take(3) is None
    assert queue.message_count == 0


@pytest.mark.parametrize(("form", "received"), RECORDS)
def test_several_pulls_are_finished_and_taken_back_together(form: ModuleType, received: ModuleType) -> None:
    queue = form.FetchQueue()
    for n in range(4):
        queue.append(form.Fetched(assigned(), 0, kept(received, n) if n < 3 else [MessageExt("T", b"x")]))
    queue.given_out["a"] = found = queue.take_records(100, 1 << 20)
    assert len(found) == 3
    assert queue.take_back("a", None)
    assert queue.message_count == 4
    assert queue.take_records(100, 1 << 20) == found
    queue.given_out["a"] = found
    assert queue.hand_out("a", False) is not None
    assert queue.take_finished() == found
