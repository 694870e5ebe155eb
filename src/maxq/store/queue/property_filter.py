"""A pull's filter on properties, applied to queue units: which of the next ones point to records that match.

The properties are tested where they lie in the log. Records that lie far back may not be in memory; testing them would
have the loop wait for the disk. So such units are examined in short steps, and a step whose records are not all in
memory ends the examination: the messages found so far are the answer. If it is the first step, the caller has the pages
loaded and asks again.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from maxq.filter.bloom_filter import BloomFilterData
from maxq.filter.predicates_cy import BitMapTest, Predicate
from maxq.lazy_dataclass import dataclass
from maxq.runtime.interfaces import Clock
from maxq.store.log.commit_log import CommitLog
from maxq.store.queue.consume_queue import BLANK_UNIT_SIZE, CQ_STORE_UNIT_SIZE, UNIT
from maxq.store.queue.consume_queue_ext import ConsumeQueueExt, is_ext_address
from maxq.store.store_results import ColdPart

#: Time that one pull spends on examining records; the client's next pull continues.
EXAMINE_NS: Final = 5_000_000
#: Records that are examined between two looks at the clock, by an expression that names one property. A property may
#: have 32 KiB, and one use of it can take 100 µs: 10 ms between two looks.
_RECORDS_AT_ONCE: Final = 100
_COLD_STEP: Final = 64 * CQ_STORE_UNIT_SIZE


class BitMaps(NamedTuple):
    """The use of ConsumeQueueExt for a consumer: its bits, and the physical offset from which they are valid. Java
    compares times (bornTime, msgStoreTime) instead, which hides messages for good after the clock was set back.

    Java goes by time (bornTime, msgStoreTime); with a clock that went back that hides messages for good.
    """

    live_from: int
    bits: BloomFilterData


@dataclass(frozen=True, slots=True, eq=False)
class PropertyFilter:
    """A compiled expression and the consumer's bits in the bit maps that dispatch writes; None: it has no bits."""

    predicate: Predicate
    bit_maps: BitMaps | None = None


class UnitView(NamedTuple):
    """The units of a queue in view[start:end], 20 bytes each."""

    view: memoryview
    start: int
    end: int


@dataclass(slots=True)
class SelectedUnits:
    """Result of a selection: the units that match.

    Attributes:
        places: positions of the matching units in the view.
        end: position behind the last unit examined.
        cold: what must be brought in before anything can be examined.
    """

    places: list[int]
    end: int
    cold: list[ColdPart]

    def units(self, view: memoryview) -> bytes:
        """Returns the matching units, one after the other."""
        return b"".join(view[place : place + CQ_STORE_UNIT_SIZE] for place in self.places)


class UnitSelector:
    """Applies PropertyFilters to the units of one store's queues."""

    def __init__(
        self, commit_log: CommitLog, not_in_memory: Callable[[list[tuple[int, int]]], list[ColdPart]], clock: Clock
    ) -> None:
        """`not_in_memory(ranges)` returns the parts of ranges of the log (physical offset, size) that are only on the
        disk."""
        self._clock = clock
        self._commit_log = commit_log
        self._not_in_memory = not_in_memory

    def select(
        self,
        units: UnitView,
        wanted: PropertyFilter,
        most_hits: int,
        *,
        in_memory_from: int,
        may_wait: bool,
        ext: ConsumeQueueExt | None = None,
    ) -> SelectedUnits:
        """Examine units until `most_hits` match, or until 5 ms have passed and at least one was examined, because the
        loop is blocked meanwhile.

        Args:
            in_memory_from: physical offset from which on records count as being in memory.
            ext: the queue's extension units, whose bit maps spare tests.
            may_wait: the caller can have pages brought in and ask again; else the first step is taken as it is.
        """
        found = SelectedUnits([], units.start, [])
        bit_maps = _bit_map_test(units, wanted.bit_maps, ext)
        step = max(1, _RECORDS_AT_ONCE // max(1, wanted.predicate.uses)) * CQ_STORE_UNIT_SIZE
        began_ns = self._clock.monotonic_ns()
        while found.end < units.end and len(found.places) < most_hits:
            if found.end > units.start and self._clock.monotonic_ns() - began_ns > EXAMINE_NS:
                break
            stop = min(units.end, found.end + step)
            if self._physical_offset(units.view, found.end) < in_memory_from:
                stop = min(stop, found.end + _COLD_STEP)
                cold = self._not_in_memory(self._ranges(units.view, found.end, stop))
                if cold and (may_wait or found.end > units.start):
                    found.cold = cold if found.end == units.start else []
                    break
            self._examine(units.view, found, stop, wanted.predicate, most_hits, bit_maps)
        return found

    def _examine(
        self,
        view: memoryview,
        found: SelectedUnits,
        stop: int,
        predicate: Predicate,
        most_hits: int,
        bit_maps: BitMapTest | None,
    ) -> None:
        """Find out which of the units up to `stop` match, and add them to `found`."""
        log, max_physical = self._commit_log, self._commit_log.max_offset
        while found.end < stop and len(found.places) < most_hits:
            at = found.end
            file = log.file_at(self._physical_offset(view, at))
            if file is not None:
                end = min(file.end_offset, max_physical)
                found.end = predicate.select(
                    view,
                    at,
                    stop,
                    file.view,
                    file.file_from_offset,
                    end,
                    log.min_offset,
                    most_hits,
                    found.places,
                    bit_maps,
                )
            if found.end == at:  # its record is not in the log, which the reader of the unit handles
                found.places.append(at)
                found.end += CQ_STORE_UNIT_SIZE

    def _physical_offset(self, view: memoryview, position: int) -> int:
        return int(UNIT.unpack_from(view, position)[0])

    def _ranges(self, view: memoryview, start: int, stop: int) -> list[tuple[int, int]]:
        """Returns the ranges of the units' records; adjoining ones are joined."""
        ranges: list[tuple[int, int]] = []
        for physical_offset, size, _ in UNIT.iter_unpack(view[start:stop]):
            if size <= 0 or size == BLANK_UNIT_SIZE:
                continue
            if ranges and sum(ranges[-1]) == physical_offset:
                ranges[-1] = (ranges[-1][0], ranges[-1][1] + size)
            else:
                ranges.append((physical_offset, size))
        return ranges


def _bit_map_test(units: UnitView, marks: BitMaps | None, ext: ConsumeQueueExt | None) -> BitMapTest | None:
    """Returns the test for the extension file that the first unit points to; None if there is nothing to test."""
    if marks is None or ext is None or units.start >= units.end:
        return None
    file = ext.file_of(UNIT.unpack_from(units.view, units.start)[2])
    if file is None:
        return None
    return BitMapTest(file.view, file.file_from_offset, marks.live_from, marks.bits.bit_num, marks.bits.bit_pos)


def with_tags(units: UnitView, ext: ConsumeQueueExt, most: int) -> UnitView:
    """Return a copy of the first `most` units in which tags codes replace the addresses of extension units."""
    stop = min(units.end, units.start + most * CQ_STORE_UNIT_SIZE)
    copy = bytearray(units.view[units.start : stop])
    for at, (physical_offset, size, tags_code) in enumerate(UNIT.iter_unpack(units.view[units.start : stop])):
        if is_ext_address(tags_code) and (unit := ext.get(tags_code)) is not None:
            UNIT.pack_into(copy, at * CQ_STORE_UNIT_SIZE, physical_offset, size, unit.tags_code)
    return UnitView(memoryview(copy), 0, len(copy))
