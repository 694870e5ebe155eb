"""Which units of a wheel other brokers have delivered."""

from maxq.store.timer.timer_message_store import DeliveredSlots


def test_units_of_earlier_slots_that_lie_before_the_position_are_over() -> None:
    delivered = DeliveredSlots()
    assert delivered.position_of(1_000) == 0
    delivered.add(5_000, 520)
    assert (delivered.position_of(4_000), delivered.position_of(5_000)) == (520, 0)


def test_what_a_next_master_with_a_slow_clock_still_has_to_deliver_is_not_over() -> None:
    delivered = DeliveredSlots()
    delivered.add(9_000, 520)
    delivered.add(4_000, 1_040)
    assert [delivered.position_of(time) for time in (3_000, 4_000, 8_000, 9_000)] == [1_040, 520, 520, 0]
    delivered.add(9_000, 2_080)
    assert delivered.position_of(8_000) == 2_080
