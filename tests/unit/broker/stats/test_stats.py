"""Statistics: histories, and counters that become items when they are sampled."""

from collections.abc import Iterator

from maxq.broker.stats import names
from maxq.broker.stats.broker_stats import BrokerStats
from maxq.broker.stats.broker_stats_manager import BrokerStatsManager
from maxq.broker.stats.stats_item import DAY_SAMPLE_MS, StatsItem
from maxq.testing.sim_clock import SimClock


def manager(clock: SimClock, *, detail: bool = True) -> BrokerStatsManager:
    return BrokerStatsManager(
        "C", clock=clock, is_system_topic=lambda topic: topic.startswith("rmq_sys_"), detail=lambda: detail
    )


def test_minute_view_is_what_happened_between_the_oldest_and_the_newest_of_seven_samples() -> None:
    item = StatsItem()
    for sample in range(10):
        item.add(30, times=3)
        item.sample_minute(1_000_000 + sample * 10_000)
    assert item.minute.sum == 6 * 30
    assert item.minute.tps == 3.0
    assert item.minute.avgpt == 10.0


def test_first_sample_counts_from_ten_seconds_before() -> None:
    item = StatsItem()
    item.add(13, times=11)
    item.sample_minute(50_000)
    assert (item.minute.sum, item.minute.tps) == (13, 1.3)
    assert abs(item.minute.avgpt - 13 / 11) < 1e-9


def test_a_counter_that_stands_still_shows_zero_after_a_minute_and_a_rate_when_it_moves_again() -> None:
    item = StatsItem()
    item.add(100)
    for sample in range(10):
        item.sample_minute(sample * 10_000)
    assert (item.minute.sum, item.minute.tps, item.minute.avgpt) == (0, 0.0, 0.0)
    item.add(20)
    item.sample_minute(100_000)
    assert (item.minute.sum, item.minute.tps) == (20, 2.0)


async def test_pulls_are_found_by_group_queue_and_cluster_names() -> None:
    stats = manager(SimClock())
    stats.get_counter("G", "T", 3).add(32, 4096, 5, False)
    stats.get_counter("G", "T", 4).add(8, 1024, 1, True)
    await stats.sample()
    expected = {
        (names.GROUP_GET_NUMS, "T@G"): 40,
        (names.GROUP_GET_SIZE, "T@G"): 5120,
        (names.QUEUE_GET_NUMS, "T@3@G"): 32,
        (names.QUEUE_GET_SIZE, "T@4@G"): 1024,
        (names.GROUP_GET_LATENCY, "3@T@G"): 5,
        (names.BROKER_GET_NUMS, "C"): 40,
        (names.BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC, "C"): 40,
        (names.GROUP_GET_FROM_DISK_NUMS, "T@G"): 8,
        (names.BROKER_GET_FROM_DISK_SIZE, "C"): 1024,
    }
    for (name, key), value in expected.items():
        item = stats.view(name, key)
        assert item is not None and item.minute.sum == value, (name, key)
    assert stats.tps_group_get_nums("G", "T") == 4.0


async def test_puts_of_system_topics_are_left_out_of_the_sum_without_them() -> None:
    stats = manager(SimClock())
    stats.add_topic_put("T", 5, 500, 5)
    stats.add_topic_put("rmq_sys_x", 7, 700, 7)
    await stats.sample()
    sums = {"C": names.BROKER_PUT_NUMS, "T": names.TOPIC_PUT_NUMS, "rmq_sys_x": names.TOPIC_PUT_NUMS}
    assert [stats.view(name, key).minute.sum for key, name in sums.items()] == [12, 5, 7]  # type: ignore[union-attr]
    without = stats.view(names.BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC, "C")
    assert without is not None and without.minute.sum == 5


async def test_put_latency_is_by_queue_and_details_can_be_left_out() -> None:
    stats = manager(SimClock(), detail=False)
    stats.put_counter("T", 1).add(1, 100, 7)
    await stats.sample()
    latency = stats.view(names.TOPIC_PUT_LATENCY, "1@T")
    assert latency is not None and latency.minute.sum == 7
    assert stats.view(names.QUEUE_PUT_NUMS, "T@1") is None


async def test_unknown_name_or_key_has_no_view() -> None:
    stats = manager(SimClock())
    await stats.sample()
    assert stats.view("NO_SUCH", "T") is None
    assert stats.view(names.TOPIC_PUT_NUMS, "T") is None


async def test_a_first_put_can_be_viewed_before_the_next_sample() -> None:
    stats = manager(SimClock())
    stats.add_topic_put("T", 1, 10, 1)
    stats.get_counter("G", "T", 0).add(1, 10, 0, False)
    assert stats.view(names.TOPIC_PUT_NUMS, "T") is not None
    assert stats.view(names.GROUP_GET_NUMS, "T@G") is not None


async def test_a_view_collects_what_its_key_names_and_nothing_else() -> None:
    stats = manager(SimClock())
    for topic, group in (("T", "G"), ("T", "H"), ("U", "G")):
        stats.get_counter(group, topic, 3).add(7, 10, 0, False)
        stats.put_counter(topic, 3).add(1, 10, 5)
    for name, key, value in (
        (names.GROUP_GET_NUMS, "T@G", 7),
        (names.GROUP_GET_LATENCY, "3@T@G", 0),
        (names.QUEUE_GET_SIZE, "T@3@G", 10),
        (names.TOPIC_PUT_LATENCY, "3@T", 10),
        (names.QUEUE_PUT_NUMS, "T@3", 2),
    ):
        item = stats.view(name, key)
        assert item is not None and item.value == value, (name, key)
    assert dict(stats.totals(names.GROUP_GET_NUMS)) == {"T@G": 7}
    assert dict(stats.totals(names.QUEUE_PUT_NUMS)) == {"T@3": 2}
    assert stats.messages_got() == 21
    whole = stats.view(names.BROKER_GET_NUMS, "C")
    assert whole is not None and whole.value == stats.messages_got() == 21


async def test_deleted_topics_and_groups_are_forgotten() -> None:
    stats = manager(SimClock())
    stats.add_topic_put("T", 1, 10, 1)
    stats.add_topic_put("T2", 1, 10, 1)
    for group in ("G", "H"):
        stats.get_counter(group, "T2", 0).add(1, 10, 0, False)
    await stats.sample()
    stats.on_topics_deleted({"T"})
    stats.on_groups_deleted({"G"})
    await stats.sample()
    assert stats.view(names.TOPIC_PUT_NUMS, "T") is None
    assert stats.view(names.TOPIC_PUT_NUMS, "T2") is not None
    assert stats.view(names.GROUP_GET_NUMS, "T2@G") is None
    assert stats.view(names.GROUP_GET_NUMS, "T2@H") is not None
    assert stats.view(names.BROKER_PUT_NUMS, "C") is not None


async def test_hours_and_days_are_sampled_when_they_are_due() -> None:
    clock = SimClock()
    stats = manager(clock)
    for _ in range(2 * 360 + 1):
        stats.add("SNDBCK_PUT_NUMS", "T@G")
        await stats.sample()
        clock.advance_ms(10_000)
    item = stats.view(names.SNDBCK_PUT_NUMS, "T@G")
    assert item is not None
    assert item.minute.sum == 6
    assert item.hour.sum == 360
    assert item.day.sum == 721


async def test_sources_give_what_they_counted_since_they_were_last_asked() -> None:
    stats = manager(SimClock())
    new = [2, 3]

    class Source:
        def sample(self, stats: BrokerStatsManager) -> Iterator[None]:
            self.sample_topic("T", stats)
            yield

        def sample_topic(self, topic: str, stats: BrokerStatsManager) -> None:
            stats.add_topic_put(topic, new.pop() if new else 0, 20, 1)

    stats.add_source(Source())
    await stats.sample()
    await stats.sample()
    item = stats.view(names.TOPIC_PUT_NUMS, "T")
    assert item is not None and (item.value, item.times) == (5, 2)


def test_groups_that_are_far_behind_are_named_with_their_slowest_queue() -> None:
    stats = manager(SimClock())
    stats.get_counter("slow", "T", 0).fall_behind_bytes = 300
    stats.get_counter("slow", "T", 1).fall_behind_bytes = 500
    stats.get_counter("fast", "T", 0).fall_behind_bytes = 10
    assert stats.groups_behind(100) == {"slow": 500}


def test_at_midnight_today_becomes_yesterday() -> None:
    put = 0

    def put_total() -> int:
        return put

    stats = BrokerStats(put_total, lambda: 2 * put)
    put = 10
    stats.record()
    put = 25
    stats.record()
    put = 26
    assert (stats.yesterday_morning.put, stats.today_morning.put, stats.now().put) == (10, 25, 26)
    assert stats.today_morning.got == 50


async def test_groups_that_readers_make_up_are_forgotten_and_a_counter_that_is_kept_is_not() -> None:
    clock = SimClock()
    stats = manager(clock)
    kept = stats.get_counter("reader", "T", 0)
    for number in range(1000):
        stats.get_counter(f"made-up-{number}", "T", 0).add(1, 10, 0, False)
    for _ in range(30):
        clock.advance_ms(DAY_SAMPLE_MS)
        await stats.sample()
    assert list(stats._gets) == [("reader", "T")]
    assert not list(stats.totals(names.GROUP_GET_NUMS))
    kept.add(5, 50, 0, False)
    await stats.sample()
    assert dict(stats.totals(names.GROUP_GET_NUMS)) == {"T@reader": 5}
    assert stats.messages_got() == 1005


async def test_a_reader_that_comes_once_a_day_keeps_its_totals() -> None:
    clock = SimClock()
    stats = manager(clock)
    for _ in range(4):
        stats.get_counter("daily", "T", 0).add(1, 10, 0, False)
        for _ in range(24):
            clock.advance_ms(DAY_SAMPLE_MS)
            await stats.sample()
    assert dict(stats.totals(names.GROUP_GET_NUMS)) == {"T@daily": 4}
