"""What a killed broker had put into the log behind its journal's last record."""

from dataclasses import replace

from maxq.broker.pop.unfinished_revives import UnfinishedRevives
from maxq.broker.tables.topic.topic_validator import JOURNAL_TOPIC, TIMER_TOPIC
from maxq.protocol.body.pop import CK_TAG
from maxq.protocol.message import message_const as const
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from tests.unit.broker.pop.pop_parts import PopParts
from tests.unit.store.stores import message

RETRY = "%RETRY%G_T"
REVIVE = "rmq_sys_REVIVE_LOG_C"
TEN_MINUTES = 600_000


def _copy(body: bytes, **changes: object) -> MessageExtBrokerInner:
    copy = message(RETRY, 0, body, KEYS="k")
    copy.reconsume_times, copy.born_timestamp = 1, 7
    for name, value in changes.items():
        setattr(copy, name, value)
    return copy


def _note(parts: PopParts) -> None:
    """Put a record into the journal that says nothing of copies."""
    assert parts.journal.write({"e": []})[0] >= 0


def _started(parts: PopParts) -> UnfinishedRevives:
    """What a start finds that reads the journal."""
    work = UnfinishedRevives(parts.store, parts.journal, parts.clock, parts.store.max_physical_offset)
    for batch in parts.journal.read():
        for offset, entries in batch:
            work.replay(offset, entries)
    work.begin()
    return work


def _has(work: UnfinishedRevives, copy: MessageExtBrokerInner, *, behind: int = -1, since_ms: int = 0) -> bool:
    return work.claim(copy, behind=behind, since_ms=since_ms)


def test_each_copy_behind_the_last_note_is_found_once(parts: PopParts) -> None:
    parts.fill([b"x"])
    _note(parts)
    for body in (b"1", b"1"):
        assert parts.store.put_message(_copy(body)).ok
    work = _started(parts)
    assert [_has(work, _copy(b"1")) for _ in range(3)] == [True, True, False]


def test_copies_before_the_last_note_and_those_of_this_start_are_not_meant(parts: PopParts) -> None:
    for body in (b"0", b"1"):
        assert parts.store.put_message(_copy(body)).ok
    _note(parts)
    assert parts.store.put_message(_copy(b"2")).ok
    work = _started(parts)
    assert parts.store.put_message(_copy(b"3")).ok
    assert [_has(work, _copy(body)) for body in (b"0", b"1", b"3", b"2")] == [False, False, False, True]


def test_copies_before_a_damaged_note_are_found(parts: PopParts) -> None:
    parts.fill([b"x"])
    _note(parts)
    assert parts.store.put_message(_copy(b"1")).ok
    _note(parts)
    parts.damage(JOURNAL_TOPIC, 0, 1)
    assert _has(_started(parts), _copy(b"1"))


def test_a_copy_behind_the_place_of_a_damaged_one_is_one_copy(parts: PopParts) -> None:
    _note(parts)
    for body in (b"1", b"2"):
        assert parts.store.put_message(_copy(body)).ok
    parts.damage(RETRY, 0, 0)
    work = _started(parts)
    assert [_has(work, _copy(body)) for body in (b"1", b"2", b"2")] == [False, True, False]


def test_a_second_kill_does_not_make_copies_of_the_first_one_unknown(parts: PopParts) -> None:
    _note(parts)
    for body in (b"0", b"1", b"2"):
        assert parts.store.put_message(_copy(body)).ok
    work = _started(parts)
    assert _has(work, _copy(b"0"))
    _note(parts)  # of the check point whose copy that is
    assert _has(work, _copy(b"1"))  # and killed before its check point is noted
    again = _started(parts)
    assert [_has(again, _copy(body)) for body in (b"0", b"1", b"2")] == [False, True, True]
    _note(parts)
    assert [_has(_started(parts), _copy(body)) for body in (b"1", b"2")] == [False, False]


def test_the_journal_keeps_the_places_of_copies_until_their_claims_are_safe_or_ten_minutes_have_passed(
    parts: PopParts,
) -> None:
    _note(parts)
    for body in (b"0", b"1"):
        assert parts.store.put_message(_copy(body)).ok
    work = _started(parts)
    assert work.oldest_needed() == 1, "the record that names both"
    assert _has(work, _copy(b"0"))
    _note(parts)
    parts.store.flusher.flush_inline()
    assert work.oldest_needed() == 1, "the other one"
    parts.clock.now_ms += TEN_MINUTES
    assert work.oldest_needed() == -1
    assert not _has(work, _copy(b"1"))


def test_a_copy_lies_behind_its_message_and_is_younger_than_its_pop(parts: PopParts) -> None:
    _note(parts)
    assert parts.store.put_message(_copy(b"0")).ok
    assert parts.store.put_message(_copy(b"1")).ok
    stored_ms = parts.stored(RETRY)[1].store_timestamp
    work = _started(parts)
    assert not _has(work, _copy(b"1"), behind=1), "the message itself, which came back without being counted as tried"
    assert not _has(work, _copy(b"1"), since_ms=stored_ms + 1)
    assert _has(work, _copy(b"1"), behind=0, since_ms=stored_ms)


def test_a_topic_that_did_not_exist_before_the_kill_is_not_looked_into(parts: PopParts) -> None:
    _note(parts)
    work = _started(parts)
    assert parts.store.put_message(_copy(b"0")).ok
    assert not _has(work, _copy(b"0"))


def test_what_differs_in_anything_that_a_copy_has_is_another_message(parts: PopParts) -> None:
    _note(parts)
    assert parts.store.put_message(_copy(b"0")).ok
    work = _started(parts)
    others = [
        _copy(b"1"), _copy(b"0", reconsume_times=2), _copy(b"0", flag=1), _copy(b"0", born_timestamp=8),
        _copy(b"0", properties={"KEYS": "other"}), _copy(b"0", topic="%RETRY%G_U"), _copy(b"0", queue_id=1),
    ]  # fmt: skip
    assert [_has(work, other) for other in others] == [False] * len(others)
    assert _has(work, _copy(b"0"))


def test_check_points_that_were_handed_over_are_found_in_the_timer_and_in_the_revive_topic(parts: PopParts) -> None:
    points = [parts.point(start, 1) for start in range(4)]

    def put(topic: str, body: bytes, tag: str = CK_TAG, **properties: str) -> None:
        assert parts.store.put_message(message(topic, 0, body, TAGS=tag, **properties)).ok

    put(REVIVE, points[0].encode())
    _note(parts)
    put(REVIVE, points[1].encode())
    put(TIMER_TOPIC, points[2].encode(), **{const.PROPERTY_REAL_TOPIC: REVIVE})
    put(TIMER_TOPIC, points[3].encode(), **{const.PROPERTY_REAL_TOPIC: "T"})
    put(REVIVE, points[3].encode(), "ack")
    put(REVIVE, b"no check point")
    work = _started(parts)
    put(REVIVE, replace(points[3], start_offset=9).encode())
    assert work.handed_over(REVIVE, 8) == {points[1].key, points[2].key}
