"""What one record leaves in queues, as dispatch, repairs and Spark's rebuild agree on it."""

import pytest

from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.message_sys_flag import MessageSysFlag
from maxq.store.dispatch.record_units import Place, batch_unit, index_keys, light_places, tags_code, unit_code
from maxq.store.log.tails_cy import jhash


def record(topic: str = "T", sys_flag: int = 0, **properties: str) -> MessageExt:
    return MessageExt(
        topic=topic, queue_id=3, queue_offset=7, store_timestamp=1000, sys_flag=sys_flag, properties=properties
    )


def test_a_light_queue_has_its_place_in_queue_0_and_another_topic_in_the_same_queue() -> None:
    named = record(INNER_MULTI_DISPATCH="%LMQ%a,U", INNER_MULTI_QUEUE_OFFSET="4,5")
    assert light_places(named) == [Place("%LMQ%a", 0, 4), Place("U", 3, 5)]


def test_names_that_no_folder_can_have_and_places_that_are_no_numbers_give_none() -> None:
    named = record(INNER_MULTI_DISPATCH="a/b,%LMQ%b,..,%LMQ%c", INNER_MULTI_QUEUE_OFFSET="1,x,2,3")
    assert light_places(named) == [Place("%LMQ%c", 0, 3)]


def test_a_record_that_names_more_queues_than_places_has_none() -> None:
    assert light_places(record(INNER_MULTI_DISPATCH="a,b", INNER_MULTI_QUEUE_OFFSET="1")) is None
    assert light_places(record(INNER_MULTI_DISPATCH="a,b")) is None, "multi-dispatch was off when it was stored"
    assert light_places(record()) == []


@pytest.mark.parametrize("topic", ["%RETRY%g", "SCHEDULE_TOPIC_XXXX"])
def test_copies_that_wait_have_no_places(topic: str) -> None:
    assert light_places(record(topic, INNER_MULTI_DISPATCH="a", INNER_MULTI_QUEUE_OFFSET="1")) == []


def test_an_inner_batch_has_the_place_that_it_tells_and_a_single_message_its_own() -> None:
    batch = batch_unit(record(sys_flag=MessageSysFlag.INNER_BATCH, INNER_BASE="10", INNER_NUM="2"), 500, 90)
    assert batch is not None and (batch[:2], batch.base_offset, batch.batch_size) == ((500, 90), 10, 2)
    single = batch_unit(record(), 500, 90)
    assert single is not None and (single.base_offset, single.batch_size) == (7, 1)
    assert batch_unit(record(sys_flag=MessageSysFlag.INNER_BATCH, INNER_NUM="2"), 500, 90) is None
    assert batch_unit(record(sys_flag=MessageSysFlag.INNER_BATCH, INNER_BASE="1", INNER_NUM="40000"), 500, 90) is None


def test_the_code_of_a_unit_is_of_its_tag_or_when_a_delayed_message_is_due() -> None:
    assert (tags_code(record(TAGS="A")), tags_code(record())) == (jhash("A"), 0)
    delayed = record("SCHEDULE_TOPIC_XXXX", TAGS="A", DELAY="9")
    assert [unit_code(delayed, levels) for levels in ([1000, 5000], [])] == [6000, jhash("A")]
    assert unit_code(record(TAGS="A", DELAY="1"), [1000]) == jhash("A"), "of another topic DELAY says nothing"


def test_keys_come_in_the_order_of_their_index_entries() -> None:
    named = record(UNIQ_KEY="u", KEYS="a  b", TAGS="t")
    assert (index_keys(named, False), index_keys(named, True)) == (["u", "a", "b"], ["u", "a", "b", "T#t"])
