"""The broker's statistics (BrokerStatsManager.java), and when their histories are sampled.

The hot paths touch one small object per request: a `PutCounter` per queue written, a `GetCounter` per reader (group,
topic, queue). Every ten seconds the sampler moves them into the items that tools ask for by name and key; an item is
never looked up while a message is being handled. Puts that the compiled batch path counted in the store's topic
tails arrive through a source (`add_source`), called just before each sample.
"""

import asyncio
import weakref
from collections.abc import Callable, Iterable, Iterator, Set
from itertools import chain, permutations
from operator import attrgetter
from typing import Final, Protocol

from maxq.broker.stats import names
from maxq.broker.stats.stats_item import DAY_SAMPLE_MS, HOUR_SAMPLE_MS, MINUTE_SAMPLE_MS, StatsItem
from maxq.runtime.interfaces import Clock

_ITEMS_PER_TURN = 500  # then other work of the loop gets its turn
_COUNTERS_PER_TURN = 50  # some microseconds each
_PARTS_OF_KEY: Final = 3  # at most: of topic, group and queue
_nums = attrgetter("nums")


class StatsSource(Protocol):
    """A source of counters that the manager collects on demand."""

    def sample(self, stats: "BrokerStatsManager") -> Iterator[None]:
        """Sample all topics; the loop may run other tasks at each yield."""

    def sample_topic(self, topic: str, stats: "BrokerStatsManager") -> None:
        """Add what this source has counted of one topic since the last sample to `stats`."""


class PutCounter:
    """Counts messages put into one queue since the last sample. Latency is in milliseconds, once per request."""

    __slots__ = ("latency_ms", "nums", "size", "times")

    def __init__(self) -> None:
        self.nums = 0
        self.size = 0
        self.times = 0
        self.latency_ms = 0

    def add(self, nums: int, size: int, latency_ms: int) -> None:
        self.nums += nums
        self.size += size
        self.times += 1
        self.latency_ms += latency_ms


class GetCounter:
    """Counts messages that one group read from one queue since the last sample."""

    __slots__ = (
        "__weakref__",
        "disk_nums",
        "disk_size",
        "fall_behind_bytes",
        "latency_ms",
        "nums",
        "popped_nums",
        "popped_size",
        "size",
        "times",
        "was_idle",
    )  # fmt: skip

    def __init__(self) -> None:
        self.nums = 0
        self.size = 0
        self.times = 0
        self.latency_ms = 0
        self.disk_nums = 0
        self.disk_size = 0
        self.popped_nums = 0  # messages among `nums` that were popped
        self.popped_size = 0
        self.was_idle = False  # nothing was counted between the last two searches for idle items
        self.fall_behind_bytes = 0  # current value: bytes of log between the reader and the end of the log

    def add(self, nums: int, size: int, latency_ms: int, from_disk: bool) -> None:
        self.nums += nums
        self.size += size
        self.times += 1
        self.latency_ms += latency_ms
        if from_disk:
            self.disk_nums += nums
            self.disk_size += size

    def add_popped(self, nums: int, size: int, from_disk: bool) -> None:
        """Count a pop, which metrics distinguish from a pull."""
        self.add(nums, size, 0, from_disk)
        self.popped_nums += nums
        self.popped_size += size


class BrokerStatsManager:
    """The statistics of a broker: each counter has the name of a statistic and a key, such as a topic."""

    def __init__(
        self, cluster: str, *, clock: Clock, is_system_topic: Callable[[str], bool], detail: Callable[[], bool]
    ) -> None:
        """`detail` returns enableDetailStat: whether to count per queue as well."""
        self._cluster = cluster
        self._clock = clock
        self._is_system_topic = is_system_topic
        self._detail = detail
        self._items: dict[str, dict[str, StatsItem]] = {
            value: {} for name, value in vars(names).items() if name.isupper()
        }
        self._puts: dict[str, dict[int, PutCounter]] = {}  # by topic and queue
        self._gets: dict[tuple[str, str], dict[int, GetCounter]] = {}  # by group and topic, and queue
        self._popped: dict[str, tuple[int, int]] = {}  # by key of GROUP_GET_NUMS: messages and bytes
        self._sources: list[StatsSource] = []
        self.longest_get_ms = 0
        self._next_hour_ms = 0
        self._next_day_ms = 0
        for name in (
            names.BROKER_PUT_NUMS, names.BROKER_GET_NUMS,
            names.BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC, names.BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC,
        ):  # fmt: skip
            self._items[name][cluster] = StatsItem()

    # ---- counting ---------------------------------------------------------------------------------------------

    def put_counter(self, topic: str, queue_id: int) -> PutCounter:
        """Return the counter of one queue's writes; it may be kept."""
        queues = self._puts.setdefault(topic, {})
        counter = queues.get(queue_id)
        if counter is None:
            counter = queues[queue_id] = PutCounter()
        return counter

    def get_counter(self, group: str, topic: str, queue_id: int) -> GetCounter:
        """Return the counter of the messages that a group got from one queue."""
        queues = self._gets.setdefault((group, topic), {})
        counter = queues.get(queue_id)
        if counter is None:
            counter = queues[queue_id] = GetCounter()
        return counter

    def add(self, name: str, key: str, value: int = 1, times: int = 1) -> None:
        """Count under any name of RocketMQ's statistics (names.py): send back, DLQ, POP …."""
        self._item(name, key).add(value, times)

    def add_topic_put(self, topic: str, nums: int, size: int, times: int) -> None:
        """Count `nums` messages of `size` stored bytes, put by `times` requests."""
        if nums == 0:
            return
        self._item(names.TOPIC_PUT_NUMS, topic).add(nums, times)
        self._item(names.TOPIC_PUT_SIZE, topic).add(size, times)
        self._item(names.BROKER_PUT_NUMS, self._cluster).add(nums, times)
        if not self._is_system_topic(topic):
            self._item(names.BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC, self._cluster).add(nums, times)

    def on_channel_event(self, event: str) -> None:
        """Count a channel event: CONNECT, IDLE, EXCEPTION or CLOSE."""
        self._item(names.CHANNEL_ACTIVITY, event).add(1)

    def add_source(self, source: StatsSource) -> None:
        """Add a source that is sampled before each snapshot, and when tools ask."""
        self._sources.append(source)

    # ---- looking ----------------------------------------------------------------------------------------------

    def view(self, name: str, key: str) -> StatsItem | None:
        """Return the counter of that name and key with its minute, hour and day; None if there is none."""
        self._collect_of(key)
        items = self._items.get(name)
        return items.get(key) if items is not None else None

    # Rates come from samples, and sampling collects the counters. These methods collect nothing, because tools ask for
    # the rates of all groups.

    def tps_group_get_nums(self, group: str, topic: str) -> float:
        """Return the messages per second that the group took from the topic in the last minute."""
        item = self._items[names.GROUP_GET_NUMS].get(f"{topic}@{group}")
        return item.minute.tps if item is not None else 0.0

    def broker_get_nums(self) -> StatsItem:
        return self._items[names.BROKER_GET_NUMS][self._cluster]

    def messages_got(self) -> int:
        """Return the messages delivered to consumers since the start. The call is cheap enough for once a second:
        nothing is collected for it."""
        not_collected: Iterator[int] = map(_nums, chain.from_iterable(map(dict.values, self._gets.values())))
        return self.broker_get_nums().value + sum(not_collected)

    def totals(self, name: str) -> Iterator[tuple[str, int]]:
        """Yield key and value since the start of all counters of that name, as of the last collection; the loop may run
        other tasks in between."""
        items = self._items[name]
        for key in list(items):
            item = items.get(key)
            if item is not None:
                yield key, item.value

    def popped(self, key: str) -> tuple[int, int]:
        """Return the popped part of GROUP_GET_NUMS and GROUP_GET_SIZE of that key; the rest was pulled."""
        return self._popped.get(key, (0, 0))

    def groups_behind(self, threshold_bytes: int) -> dict[str, int]:
        """Return the groups whose slowest reader is more than `threshold_bytes` of log behind, and by how much."""
        behind: dict[str, int] = {}
        for (group, _topic), queues in self._gets.items():
            furthest = max(counter.fall_behind_bytes for counter in queues.values())
            if furthest > threshold_bytes:
                behind[group] = max(behind.get(group, 0), furthest)
        return behind

    # ---- forgetting -------------------------------------------------------------------------------------------

    def on_topics_deleted(self, topics: Set[str]) -> None:
        """Remove every counter of these topics."""
        self._forget_keys(lambda parts: not topics.isdisjoint(parts))
        for topic in topics:
            self._puts.pop(topic, None)
        self._gets = {key: queues for key, queues in self._gets.items() if key[1] not in topics}

    def on_groups_deleted(self, groups: Set[str]) -> None:
        """Remove every counter of these groups."""
        self._forget_keys(lambda parts: parts[-1] in groups and len(parts) > 1)
        self._gets = {key: queues for key, queues in self._gets.items() if key[0] not in groups}

    async def _forget_idle(self) -> None:
        """Remove counters of readers that counted nothing for an hour and are not referenced, and those unchanged for a
        day, because clients can invent group names. Counters of a topic end with the topic."""
        for position, (reader, queues) in enumerate(list(self._gets.items())):
            for queue_id in list(queues):
                self._forget_if_idle(queues, queue_id)
            if not queues and self._gets.get(reader) is queues:
                del self._gets[reader]
            if position % _COUNTERS_PER_TURN == _COUNTERS_PER_TURN - 1:
                await asyncio.sleep(0)
        for items in self._items.values():
            for key in [key for key, item in items.items() if item.is_idle_for_a_day and "@" in key]:
                del items[key]
        kept = self._items[names.GROUP_GET_NUMS]
        self._popped = {key: popped for key, popped in self._popped.items() if key in kept}

    def _forget_if_idle(self, queues: dict[int, GetCounter], queue_id: int) -> None:
        counter = queues[queue_id]
        if counter.times or not counter.was_idle:
            counter.was_idle = not counter.times
            return
        del queues[queue_id]
        kept = weakref.ref(counter)
        del counter
        if (used := kept()) is not None:  # a reader holds the counter and still counts with it
            queues[queue_id] = used

    def _forget_keys(self, gone: Callable[[list[str]], bool]) -> None:
        for items in self._items.values():
            for key in [key for key in items if gone(key.split("@"))]:
                if key != self._cluster:
                    del items[key]
        self._popped = {key: popped for key, popped in self._popped.items() if not gone(key.split("@"))}

    # ---- sampling ---------------------------------------------------------------------------------------------

    async def sample(self) -> None:
        """Take the snapshots that are due; called every ten seconds."""
        now_ms = self._clock.wall_ms()
        for _ in self._collect_in_turns():
            await asyncio.sleep(0)
        await self._sample_all(StatsItem.sample_minute, now_ms)
        if now_ms >= self._next_hour_ms:
            self._next_hour_ms = now_ms + HOUR_SAMPLE_MS
            await self._sample_all(StatsItem.sample_hour, now_ms)
        if now_ms >= self._next_day_ms:
            self._next_day_ms = now_ms + DAY_SAMPLE_MS
            await self._sample_all(StatsItem.sample_day, now_ms)
            await self._forget_idle()

    def _collect_of(self, key: str) -> None:
        """Move the counts since the last call into the items of this key. A key names the cluster, or topics, groups
        and queues, in several orders."""
        if key == self._cluster:
            for _ in self._collect_in_turns():
                pass
            return
        parts = key.split("@", _PARTS_OF_KEY)
        for topic in parts:
            for source in self._sources:
                source.sample_topic(topic, self)
            self._collect_puts(topic, self._puts.get(topic, {}))
        for reader in permutations(parts, 2):
            self._collect_gets(*reader, self._gets.get(reader, {}))

    def _collect_in_turns(self) -> Iterator[None]:
        """Move all counts since the last time into the items; the loop may run other tasks at each yield, because 20
        000 groups take a while."""
        for source in self._sources:
            yield from source.sample(self)
        for position, (topic, puts) in enumerate(list(self._puts.items())):
            self._collect_puts(topic, puts)
            if position % _COUNTERS_PER_TURN == _COUNTERS_PER_TURN - 1:
                yield
        yield from self.collect_gets_in_turns()

    def collect_gets_in_turns(self) -> Iterator[None]:
        """Collect the counts of delivered messages, in several turns of the loop."""
        for position, ((group, topic), gets) in enumerate(list(self._gets.items())):
            self._collect_gets(group, topic, gets)
            if position % _COUNTERS_PER_TURN == _COUNTERS_PER_TURN - 1:
                yield

    async def _sample_all(self, take: Callable[[StatsItem, int], None], now_ms: int) -> None:
        for items in list(self._items.values()):
            for position, item in enumerate(list(items.values())):
                take(item, now_ms)
                if position % _ITEMS_PER_TURN == _ITEMS_PER_TURN - 1:
                    await asyncio.sleep(0)

    def _item(self, name: str, key: str) -> StatsItem:
        items = self._items[name]
        item = items.get(key)
        if item is None:
            item = items[key] = StatsItem()
        return item

    def _add_each(self, key: str, values: Iterable[tuple[str, int]], times: int) -> None:
        for name, value in values:
            self._item(name, key).add(value, times)

    def _collect_puts(self, topic: str, queues: dict[int, PutCounter]) -> None:
        for queue_id, counter in queues.items():
            if counter.times:
                self._collect_put(topic, queue_id, counter)

    def _collect_put(self, topic: str, queue_id: int, counter: PutCounter) -> None:
        self._item(names.TOPIC_PUT_LATENCY, f"{queue_id}@{topic}").add(counter.latency_ms, counter.times)
        if self._detail():
            self._add_each(
                f"{topic}@{queue_id}",
                [(names.QUEUE_PUT_NUMS, counter.nums), (names.QUEUE_PUT_SIZE, counter.size)],
                counter.times,
            )
        counter.nums = counter.size = counter.times = counter.latency_ms = 0

    def _collect_gets(self, group: str, topic: str, queues: dict[int, GetCounter]) -> None:
        for queue_id, counter in queues.items():
            if counter.times:
                self._collect_get(group, topic, queue_id, counter)

    def _collect_get(self, group: str, topic: str, queue_id: int, counter: GetCounter) -> None:
        reader = f"{topic}@{group}"
        times = counter.times
        latency_key = f"{queue_id}@{reader}" if self._detail() else reader
        self._item(names.GROUP_GET_LATENCY, latency_key).add(counter.latency_ms, times)
        self._add_each(reader, [(names.GROUP_GET_NUMS, counter.nums), (names.GROUP_GET_SIZE, counter.size)], times)
        self._item(names.BROKER_GET_NUMS, self._cluster).add(counter.nums, times)
        if not self._is_system_topic(topic):
            self._item(names.BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC, self._cluster).add(counter.nums, times)
        if counter.popped_nums:
            nums, size = self.popped(reader)
            self._popped[reader] = (nums + counter.popped_nums, size + counter.popped_size)
            counter.popped_nums = counter.popped_size = 0
        if self._detail():
            self._add_each(
                f"{topic}@{queue_id}@{group}",
                [(names.QUEUE_GET_NUMS, counter.nums), (names.QUEUE_GET_SIZE, counter.size)],
                times,
            )
        if counter.disk_nums:
            disk = [(names.GROUP_GET_FROM_DISK_NUMS, counter.disk_nums),
                    (names.GROUP_GET_FROM_DISK_SIZE, counter.disk_size)]  # fmt: skip
            self._add_each(reader, disk, 1)
            self._item(names.BROKER_GET_FROM_DISK_NUMS, self._cluster).add(counter.disk_nums)
            self._item(names.BROKER_GET_FROM_DISK_SIZE, self._cluster).add(counter.disk_size)
        counter.was_idle = False
        counter.nums = counter.size = counter.times = counter.latency_ms = 0
        counter.disk_nums = counter.disk_size = 0


MINUTE_SAMPLE_SECONDS = MINUTE_SAMPLE_MS / 1000
