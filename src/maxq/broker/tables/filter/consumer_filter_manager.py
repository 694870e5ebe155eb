"""ConsumerFilterManager: the expressions that groups registered by their heartbeats, kept as consumerFilter.json.

A group that goes offline, or a topic it leaves, makes the entry dead; it is forgotten filterDataCleanTimeSpan later, so
that a consumer that comes back finds its bits where dispatch has put them. Entries are replaced when they change, never
mutated.

Source:
    broker/filter/ConsumerFilterManager.java.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import PurePath
from typing import Any, Final

from maxq.broker.tables.persistent_manager import PersistentManager
from maxq.config.settings import BrokerSettings
from maxq.errors import FilterExpressionError
from maxq.filter.bloom_filter import BloomFilter, BloomFilterData, set_bits
from maxq.filter.languages import compile_expression
from maxq.lazy_dataclass import dataclass
from maxq.protocol.body.consumer_filter import (
    BloomFilterBits,
    ConsumerFilterData,
    ConsumerFilterWrapper,
    FilterDataMapByTopic,
)
from maxq.protocol.body.subscription import SubscriptionData
from maxq.runtime.interfaces import Clock, Disk
from maxq.store.queue.property_filter import BitMaps, PropertyFilter

log = logging.getLogger(__name__)

FILE_NAME: Final = "consumerFilter.json"
#: Longest time in ns for testing expressions for bit maps, in each share of time; the share is longer if one test took
#: long, because the event loop stands still meanwhile.
_MOST_TESTED_NS: Final = 5_000_000
_SHARE_NS: Final = 25_000_000
_DEAD_SINCE_MS: Final = 30_000  # how long consumers count as dead when a broker starts


@dataclass(frozen=True, slots=True, eq=False)
class FilterEntry:
    """The filter of a group for a topic, as registered and compiled."""

    data: ConsumerFilterData
    wanted: PropertyFilter
    bits: BloomFilterData

    @property
    def is_dead(self) -> bool:
        return self.data.dead_time >= self.data.born_time


class ConsumerFilterManager(PersistentManager):
    """Entries by topic and group.

    Attributes:
        bloom_filter: sizes of the bit maps.
    """

    MAY_BE_LOST = True  # consumers register with each heartbeat

    def __init__(
        self,
        disk: Disk,
        path: PurePath,
        *,
        settings: BrokerSettings,
        clock: Clock,
        max_physical_offset: Callable[[], int],
    ) -> None:
        """`max_physical_offset()` returns the offset of the next message: bit maps of earlier messages are not used."""
        super().__init__(disk, path)
        self._settings = settings
        self._clock = clock
        self._max_physical_offset = max_physical_offset
        broker = settings.broker
        self.bloom_filter = BloomFilter(broker.max_error_rate_of_bloom_filter, broker.expect_consumer_num_use_filter)
        self._entries: dict[str, dict[str, FilterEntry]] = {}
        self._is_changed = False
        self._share_began_ns = self._tested_ns = 0

    # --- what is known ---

    def get(self, topic: str, group: str) -> FilterEntry | None:
        """Returns the filter that a group registered for a topic."""
        return self._entries.get(topic, {}).get(group)

    def of_topic(self, topic: str) -> Iterable[FilterEntry]:
        """Returns all groups' entries for a topic, including dead ones."""
        return self._entries.get(topic, {}).values()

    def of_group(self, group: str) -> Iterator[FilterEntry]:
        """Yield the filter entries of a consumer group, one for each topic with an expression."""
        for entries in self._entries.values():
            if group in entries:
                yield entries[group]

    def bit_map(self, topic: str, record: memoryview) -> bytes:
        """Return the bits of all groups whose expression is true for a record, or was not tested because tests have
        taken a fifth of the time; empty if none is registered for its topic, or if bit maps are off."""
        entries = self._entries.get(topic)
        if not entries or not self._settings.broker.enable_calc_filter_bit_map:
            return b""
        bits = bytearray(self.bloom_filter.m // 8)
        now_ns = self._clock.monotonic_ns()
        if now_ns - self._share_began_ns > max(_SHARE_NS, 5 * self._tested_ns):
            self._share_began_ns, self._tested_ns = now_ns, 0
        for entry in entries.values():
            if self._tested_ns > _MOST_TESTED_NS:  # no time is left: set the bits, so that the reader tests the message
                set_bits(bits, entry.bits)
                continue
            if entry.wanted.predicate.matches_record(record, 0, len(record)):
                set_bits(bits, entry.bits)
            before_ns, now_ns = now_ns, self._clock.monotonic_ns()
            self._tested_ns += now_ns - before_ns
        return bytes(bits)

    # --- heartbeats ---

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """Register all filters of a group's present subscriptions."""
        topics = set()
        for subscription in subscriptions:
            topics.add(subscription.topic)
            if not subscription.is_tag_type and subscription.sub_string:
                self._register_one(group, subscription)
        for entry in list(self.of_group(group)):
            if entry.data.topic not in topics:
                self._bury(entry)

    def forget(self, topics: Collection[str] = (), groups: Collection[str] = ()) -> None:
        """Remove the entries of topics or groups that were deleted."""
        gone = [_key(entry) for entries in self._entries.values() for entry in entries.values()]
        for group, topic in gone:
            if topic in topics or group in groups:
                self._forget(topic, group)

    def unregister(self, group: str) -> None:
        """Mark the group's entries dead, because its last member has left."""
        for entry in list(self.of_group(group)):
            self._bury(entry)

    def _register_one(self, group: str, subscription: SubscriptionData) -> None:
        topic, version = subscription.topic, subscription.sub_version
        old = self.get(topic, group)
        if old is not None:
            is_same = (old.data.expression_type, old.data.expression) == (
                subscription.expression_type,
                subscription.sub_string,
            )
            if version <= old.data.client_version:
                if not is_same:
                    log.info(
                        "group %s, topic %s: %.200s is of version %d and does not replace %.200s of version %d",
                        group, topic, subscription.sub_string, version, old.data.expression, old.data.client_version,
                    )  # fmt: skip
                if version == old.data.client_version and old.is_dead:
                    self._put(replace(old, data=_changed(old.data, dead_time=0)))
                return
            if is_same:
                self._put(replace(old, data=_changed(old.data, dead_time=0, client_version=version)))
                return
        self._register_new(group, subscription)

    def _register_new(self, group: str, subscription: SubscriptionData) -> None:
        topic = subscription.topic
        bits = self.bloom_filter.generate(f"{group}#{topic}")
        data = ConsumerFilterData(
            group,
            topic,
            subscription.sub_string,
            subscription.expression_type,
            born_time=self._clock.wall_ms(),
            bloom_filter_data=BloomFilterBits(bits.bit_num, list(bits.bit_pos)),
            client_version=subscription.sub_version,
        )
        try:
            self._put(self._entry(data, bits))
        except FilterExpressionError as error:
            log.warning("group %s can not read topic %s: %s", group, topic, error)
            self._forget(topic, group)  # pulls without filter data are answered FILTER_DATA_NOT_EXIST
        else:
            log.info("group %s reads the messages of topic %s that match %.200s", group, topic, subscription.sub_string)

    def _entry(self, data: ConsumerFilterData, bits: BloomFilterData) -> FilterEntry:
        """Make a compiled entry. Raises FilterExpressionError."""
        predicate = compile_expression(data.expression_type, data.expression)
        return FilterEntry(data, PropertyFilter(predicate, BitMaps(self._max_physical_offset(), bits)), bits)

    def _bury(self, entry: FilterEntry) -> None:
        if not entry.is_dead:
            # a clock that was set back must not leave an old entry alive
            now = max(self._clock.wall_ms(), entry.data.born_time)
            self._put(replace(entry, data=_changed(entry.data, dead_time=now)))

    def _put(self, entry: FilterEntry) -> None:
        topic = entry.data.topic
        self._entries[topic] = {**self._entries.get(topic, {}), entry.data.consumer_group: entry}
        self._is_changed = True

    def _forget(self, topic: str, group: str) -> None:
        if group not in self._entries.get(topic, {}):
            return
        rest = {name: entry for name, entry in self._entries[topic].items() if name != group}
        if rest:
            self._entries[topic] = rest
        else:
            del self._entries[topic]
        self._is_changed = True

    # --- the file ---

    def clean_and_persist(self) -> None:
        """Remove entries that have long been dead, and write changes. Called periodically."""
        oldest = self._clock.wall_ms() - self._settings.broker.filter_data_clean_time_span
        for entries in list(self._entries.values()):
            for entry in entries.values():
                if entry.is_dead and entry.data.dead_time <= oldest:
                    log.info("the filter of group %s for topic %s is deleted (filterDataCleanTimeSpan)", *_key(entry))
                    self._forget(entry.data.topic, entry.data.consumer_group)
        if self._is_changed:
            self._is_changed = False
            self.request_persist()

    def to_json(self) -> dict[str, Any]:
        by_topic = {
            topic: FilterDataMapByTopic({group: entry.data for group, entry in entries.items()}, topic)
            for topic, entries in dict(self._entries).items()
        }
        return ConsumerFilterWrapper(by_topic).to_json()

    def from_json(self, value: dict[str, Any]) -> None:
        """Load the entries from JSON. The consumers of all entries count as gone since some time. A file made for other
        sizes of bit maps is ignored as a whole."""
        loaded: dict[str, dict[str, FilterEntry]] = {}
        now = self._clock.wall_ms()
        for topic, of_topic in ConsumerFilterWrapper.from_json(value).filter_data_by_topic.items():
            for group, data in of_topic.group_filter_data.items():
                found = data.bloom_filter_data or BloomFilterBits()
                bits = BloomFilterData(tuple(found.bit_pos), found.bit_num)
                if not self.bloom_filter.is_valid(bits):
                    log.info("%s was made for other bloom filters; consumers register again", self._file)
                    return
                if data.dead_time == 0:
                    data = _changed(data, dead_time=max(data.born_time, now - _DEAD_SINCE_MS))
                try:
                    loaded.setdefault(topic, {})[group] = self._entry(data, bits)
                except FilterExpressionError as error:
                    log.warning("%s: group %s, topic %s: %s", self._file, group, topic, error)
        self._entries = {topic: entries for topic, entries in loaded.items() if entries}


def _changed(data: ConsumerFilterData, **members: Any) -> ConsumerFilterData:
    newer = replace(data, **members)
    newer.dead = newer.dead_time >= newer.born_time
    return newer


def _key(entry: FilterEntry) -> tuple[str, str]:
    return entry.data.consumer_group, entry.data.topic
