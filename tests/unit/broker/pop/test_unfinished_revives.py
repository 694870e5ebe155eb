"""What a killed broker had put into the log behind its journal's last record."""

from dataclasses import replace

from maxq.broker.pop.unfinished_revives import UnfinishedRevives
from maxq.broker.tables.topic.topic_validator import TIMER_TOPIC
from maxq.protocol.body.pop import CK_TAG
from maxq.protocol.message import message_const as const
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from tests.unit.broker.pop.pop_parts import PopParts
from tests.unit.store.stores import message

RETRY = "%RETRY%G_T"
REVIVE = "rmq_sys_REVIVE_LOG_C"


def _copy(body: bytes, **changes: object) -> MessageExtBrokerInner:
    copy = message(RETRY, 0, body, KEYS="k")
    copy.reconsume_times, copy.born_timestamp = 1, 7
    for name, value in changes.items():
        setattr(copy, name, value)
    return copy


def test_each_copy_behind_the_last_note_is_found_once(parts: PopParts) -> None:
    for body in (b"0", b"1", b"1"):
        assert parts.store.put_message(_copy(body)).ok
    work = UnfinishedRevives(parts.store, 0)
    first = parts.store.queue_units(RETRY, 0, 0, 1)[0][0]
    assert first == 0 and not work.has(_copy(b"0")), "that record is the journal's own"
    assert [work.has(_copy(b"1")) for _ in range(3)] == [True, True, False]


def test_copies_before_the_last_note_and_those_of_this_start_are_not_meant(parts: PopParts) -> None:
    for body in (b"0", b"1"):
        assert parts.store.put_message(_copy(body)).ok
    noted_until = parts.store.put_message(message("journal")).physical_offset
    assert parts.store.put_message(_copy(b"2")).ok
    work = UnfinishedRevives(parts.store, noted_until)
    assert parts.store.put_message(_copy(b"3")).ok
    assert [work.has(_copy(body)) for body in (b"0", b"1", b"3", b"2")] == [False, False, False, True]


def test_a_topic_that_did_not_exist_before_the_kill_is_not_looked_into(parts: PopParts) -> None:
    parts.fill([b"x"])
    work = UnfinishedRevives(parts.store, 0)
    assert parts.store.put_message(_copy(b"0")).ok
    assert not work.has(_copy(b"0"))


def test_what_differs_in_anything_that_a_copy_has_is_another_message(parts: PopParts) -> None:
    parts.fill([b"before"])
    assert parts.store.put_message(_copy(b"0")).ok
    work = UnfinishedRevives(parts.store, 0)
    others = [
        _copy(b"1"), _copy(b"0", reconsume_times=2), _copy(b"0", flag=1), _copy(b"0", born_timestamp=8),
        _copy(b"0", properties={"KEYS": "other"}), _copy(b"0", topic="%RETRY%G_U"), _copy(b"0", queue_id=1),
    ]  # fmt: skip
    assert [work.has(other) for other in others] == [False] * len(others)
    assert work.has(_copy(b"0"))


def test_check_points_that_were_handed_over_are_found_in_the_timer_and_in_the_revive_topic(parts: PopParts) -> None:
    points = [parts.point(start, 1) for start in range(4)]

    def put(topic: str, body: bytes, tag: str = CK_TAG, **properties: str) -> None:
        assert parts.store.put_message(message(topic, 0, body, TAGS=tag, **properties)).ok

    put(REVIVE, points[0].encode())
    noted_until = parts.store.put_message(message("journal")).physical_offset
    put(REVIVE, points[1].encode())
    put(TIMER_TOPIC, points[2].encode(), **{const.PROPERTY_REAL_TOPIC: REVIVE})
    put(TIMER_TOPIC, points[3].encode(), **{const.PROPERTY_REAL_TOPIC: "T"})
    put(REVIVE, points[3].encode(), "ack")
    put(REVIVE, b"no check point")
    work = UnfinishedRevives(parts.store, noted_until)
    put(REVIVE, replace(points[3], start_offset=9).encode())
    assert work.handed_over(REVIVE, 8) == {points[1].key, points[2].key}
