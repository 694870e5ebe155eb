"""TimerWheel: which messages are due in which second (TimerWheel.java, Slot.java).

One file `timerwheel` of 2 × 7 × 86 400 slots of 32 bytes, 38 707 200 bytes, big-endian:

    0  i64  due time / precision; tells laps apart: a slot with another value is empty
    8  i64  position in the timer log of the first unit
    16 i64  … of the last one; each unit names the one before it
    24 i32  messages waiting (a marker that recalls counts −1)
    28 i32  magic, unused

Slot number: (due time / precision) mod 1 209 600. Times here are ms, and multiples of the precision.

The file is only written by `write`, at a checkpoint. What changed since lies in pages in memory, so that the file never
says that something was delivered whose copy is not on the disk yet, and a broker needs memory for what changed within
the last second only.

    _changed   pages changed since the last `freeze`
    _frozen    pages on their way into the file; `write` runs in another thread and only reads them

Most of the file are holes, which are not read: on a full tmpfs the reader would die (runtime/files/file_holes.py).
"""

import struct
from array import array
from collections.abc import Iterator
from pathlib import PurePath
from sys import byteorder
from typing import Final, NamedTuple

from maxq.errors import StoreRefusedError
from maxq.lazy_dataclass import dataclass
from maxq.runtime.interfaces import Disk
from maxq.store.files.mapped_file import OS_PAGE_SIZE

#: Slots of one lap; the wheel has two, so that a week of downtime and a week ahead fit.
SLOTS_PER_LAP: Final = 7 * 24 * 3600
SLOTS: Final = 2 * SLOTS_PER_LAP
SLOT_SIZE: Final = 32
WHEEL_SIZE: Final = SLOTS * SLOT_SIZE

_SLOT: Final = struct.Struct(">qqqii")
_PIECE: Final = 1 << 20  # bytes that `taken` examines together
_SLOTS_PER_PAGE: Final = OS_PAGE_SIZE // SLOT_SIZE  # the file consists of whole pages
_NO_SLOTS: Final = bytes(OS_PAGE_SIZE)
#: Pages that are examined together where no slot is expected to be used: in most of a lap.
_TOGETHER: Final = 16
_NOTHING: Final = bytes(_TOGETHER * OS_PAGE_SIZE)
_PAGE_TAKES: Final = 8  # number of slots whose examination costs as much as that of an empty page
_NEVER: Final = 1 << 62


class Slot(NamedTuple):
    """The slot of messages that are due at `time_ms`. Positions are positions in the timer log; −1: none."""

    time_ms: int
    first_position: int
    last_position: int
    num: int


EMPTY: Final = Slot(-1, -1, -1, 0)
_BLANK: Final = Slot(0, 0, 0, 0)  # the slot that is read from a hole of the file


@dataclass(slots=True)
class _Search:
    """A search for the first slot that is not empty. `least` and `found` are times in slots.

    Attributes:
        page: the next one to look at.
    """

    from_ms: int
    least: int
    page: int = 0
    found: int = _NEVER


class TimerWheel:
    """The timer wheel of one store: a slot for each moment of two laps, with the newest unit of that moment."""

    def __init__(self, disk: Disk, path: PurePath, precision_ms: int, *, read_only: bool = False) -> None:
        """Open the wheel's file. Blocks.

        Raises:
            StoreRefusedError: the file has another length.
            FileNotFoundError: the file does not exist although `read_only` was given.
            OSError: the disk refuses.
        """
        self.precision_ms = precision_ms
        self.is_new = not disk.exists(path)
        # a Java broker was killed while it made the file
        if not self.is_new and not read_only and disk.stat(path).size == 0:
            disk.delete(path)
            self.is_new = True
        try:
            self._region = disk.map(path, WHEEL_SIZE, read_only=read_only)
        except ValueError as error:
            raise StoreRefusedError(
                f"{error}: a timer wheel has {WHEEL_SIZE} bytes. Restore the file from a copy, or delete it: the wheel "
                "is then rebuilt from the timer log."
            ) from None
        if not read_only:
            self._make_durable()
        self._view = self._region.view
        self._has_data = bytearray(self._pages)  # 1: the page is not a hole
        for start, end in self._region.data_ranges(0, len(self._view)):
            first, stop = start // OS_PAGE_SIZE, -(-end // OS_PAGE_SIZE)
            self._has_data[first:stop] = b"\1" * (stop - first)
        self._changed: dict[int, bytearray] = {}
        self._frozen: dict[int, bytearray] = {}
        self._is_suspect = False  # a sync has failed, and none has succeeded since
        self._search: _Search | None = None

    def _make_durable(self) -> None:
        """Write pages again, because a process that was killed in `write` has left pages that no sync has covered, or
        that a failed sync has marked clean."""
        self._region.write_again(0, WHEEL_SIZE)
        self._region.flush(0, WHEEL_SIZE)

    def slot_index(self, time_ms: int) -> int:
        return time_ms // self.precision_ms % SLOTS

    def at_index(self, index: int) -> Slot:
        """Return the slot of this number, of whichever lap."""
        position = index * SLOT_SIZE
        page, at = divmod(position, OS_PAGE_SIZE)
        data: bytearray | memoryview | None = self._changed.get(page) or self._frozen.get(page)
        if data is None:
            if not self._has_data[page]:
                return _BLANK
            data, at = self._view, position
        number, first, last, count, _ = _SLOT.unpack_from(data, at)
        return Slot(number * self.precision_ms, first, last, count)

    def get(self, time_ms: int) -> Slot:
        """Return the slot of `time_ms`, EMPTY if it holds nothing of that time."""
        slot = self.at_index(self.slot_index(time_ms))
        return slot if slot.time_ms == time_ms and slot.last_position >= 0 else EMPTY

    def next_time(self, time_ms: int) -> tuple[int, int]:
        """Return the time of the slot to examine behind that of `time_ms`, and the cost of finding it, in slots (an
        empty page costs about as much as 8). It is the next slot or, if the slot of `time_ms` begins pages of empty
        slots, the first one behind at most 16 of those pages."""
        page, at = divmod(self.slot_index(time_ms), _SLOTS_PER_PAGE)
        empty = 0 if at else self._empty_from(page)
        if not empty:
            return time_ms + self.precision_ms, 1
        return time_ms + empty * _SLOTS_PER_PAGE * self.precision_ms, empty * _PAGE_TAKES

    def earliest(self, from_ms: int, most: int) -> int | None:
        """Return when the first slot that is not empty, at or behind `from_ms`, is due; the largest number if all are
        empty.

        The whole wheel has to be looked at. A call looks at about `most` slots, in the measure of `next_time`, and the
        next one for the same time goes on there; what is put between them counts.

        Returns:
            None: more calls are needed.
        """
        search = self._search
        if search is None or search.from_ms != from_ms:
            search = self._search = _Search(from_ms, from_ms // self.precision_ms)
        spent = 0
        while search.page < self._pages:
            if spent >= most:
                return None
            if empty := self._empty_from(search.page):
                search.page += empty
                spent += empty * _PAGE_TAKES
            else:
                search.found = min(search.found, self._first_of(search.page, search.least))
                search.page += 1
                spent += _SLOTS_PER_PAGE
        self._search = None
        return search.found * self.precision_ms

    def is_searched(self, from_ms: int) -> bool:
        """Return whether `earliest` needs more calls for this time."""
        return self._search is not None and self._search.from_ms == from_ms

    def _first_of(self, page: int, least: int) -> int:
        """Return the smallest time, in slots, at or behind `least`, of a page's slots that are not empty."""
        numbers = array("q", bytes(self._changed.get(page) or self._frozen.get(page) or self._in_file(page)))
        if byteorder == "little":
            numbers.byteswap()
        slots = zip(numbers[0::4], numbers[2::4], strict=True)
        return min((number for number, last in slots if number >= least and last >= 0), default=_NEVER)

    def _in_file(self, page: int) -> bytes:
        """Return the bytes of a page of the file."""
        start = page * OS_PAGE_SIZE
        if not self._has_data[page]:
            return _NO_SLOTS[: len(self._view) - start]
        return bytes(self._view[start : start + OS_PAGE_SIZE])

    @property
    def _pages(self) -> int:
        """Return the number of pages of the file. The last page of a small wheel, as in tests, may be incomplete; it
        never counts as empty."""
        return -(-len(self._view) // OS_PAGE_SIZE)

    def _empty_from(self, page: int) -> int:
        """Return how many pages from this one on are empty: 0, 1, or the number examined together, up to the end."""
        together = range(page, min(page + _TOGETHER, self._pages))
        if page % _TOGETHER == 0 and not any(one in self._changed or one in self._frozen for one in together):
            if all(self._has_data[page : together.stop]):
                view = self._view[page * OS_PAGE_SIZE : together.stop * OS_PAGE_SIZE]
                is_empty = view.tobytes() == _NOTHING[: len(together) * OS_PAGE_SIZE]
            else:
                is_empty = all(self._in_file(one) == _NO_SLOTS for one in together)
            if is_empty:
                return len(together)
        if page in self._changed or page in self._frozen:
            return 0
        return int(self._in_file(page) == _NO_SLOTS)

    def put(self, slot: Slot) -> None:
        """Write one slot, replacing its content."""
        page, at = divmod(self.slot_index(slot.time_ms) * SLOT_SIZE, OS_PAGE_SIZE)
        number = slot.time_ms // self.precision_ms
        search = self._search
        if search is not None and number >= search.least:  # its page may have been examined already
            search.found = min(search.found, number)
        _SLOT.pack_into(self._page(page), at, number, slot.first_position, slot.last_position, slot.num, 0)

    def clear(self, time_ms: int) -> None:
        """Clear the slot after its messages were delivered. A slot of another lap stays."""
        index = self.slot_index(time_ms)
        if self.at_index(index).time_ms == time_ms:
            self.clear_index(index)

    def clear_index(self, index: int) -> None:
        page, at = divmod(index * SLOT_SIZE, OS_PAGE_SIZE)
        self._page(page)[at : at + SLOT_SIZE] = bytes(SLOT_SIZE)

    def _page(self, page: int) -> bytearray:
        """Return the changed copy of a page, which is made if there is none."""
        data = self._changed.get(page)
        if data is None:
            data = bytearray(self._frozen.get(page) or self._in_file(page))
            self._changed[page] = data
        return data

    def taken(self, from_ms: int) -> Iterator[tuple[int, Slot]]:
        """Yield number and content of every slot in the file whose time is `from_ms` or later, in the order of the
        file, for a load. Only slots that were not written since the last `write` are covered."""
        assert not self._changed and not self._frozen, "looked at before anything changes"
        least = max(from_ms // self.precision_ms, 1)
        for start, end in self._region.data_ranges(0, WHEEL_SIZE):
            for piece in range(start - start % SLOT_SIZE, end, _PIECE):
                stop = min(piece + _PIECE, -(-end // SLOT_SIZE) * SLOT_SIZE)
                numbers = array("q", bytes(self._view[piece:stop]))
                if byteorder == "little":
                    numbers.byteswap()
                times = numbers[0::4]
                if max(times) < least:
                    continue
                first = piece // SLOT_SIZE
                for at, number in enumerate(times):
                    if number >= least:
                        yield first + at, self.at_index(first + at)

    # --- the file ---

    def freeze(self) -> dict[int, bytearray]:
        """Return the pages that changed since the last call, for `write`; call `thaw` when that has ended."""
        assert not self._frozen, "one checkpoint at a time"
        self._frozen, self._changed = self._changed, {}
        return self._frozen

    def write(self, pages: dict[int, bytearray]) -> None:
        """Write the pages to the file, durably. Blocks; may run in another thread. Raises OSError if the disk
        refuses."""
        for page in sorted(pages):
            self._region.write(page * OS_PAGE_SIZE, memoryview(pages[page]))
            self._has_data[page] = 1
        if pages:
            start, end = min(pages) * OS_PAGE_SIZE, (max(pages) + 1) * OS_PAGE_SIZE
            if self._is_suspect:  # pages that a failed sync covered are among these
                self._region.write_again(start, end)
            self._is_suspect = True
            self._region.flush(start, end)
            self._is_suspect = False

    def thaw(self, *, written: bool) -> None:
        """End a checkpoint after `write` has ended. What `write` could not write is tried again with the next one."""
        if not written:
            self._changed = {**self._frozen, **self._changed}
        self._frozen = {}

    def release(self) -> None:
        self._view = memoryview(b"")
        self._region.close()
