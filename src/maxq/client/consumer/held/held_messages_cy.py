"""HeldMessages: the messages of one queue between pull and commit, in the order of their queue offsets.

Places are numbers that ascend with the queue offsets: messages come in at the end and leave in any order, and what is
gone at the front is skipped. Nothing is hashed, and no number is made into an object. An orderly listener has the first
ones, up to `_waiting`, until they are committed or rolled back.
"""

from array import array
from operator import itemgetter
from typing import TYPE_CHECKING

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.maxq.protocol.message import record_layout as rl
    from cython.cimports.maxq.protocol.message.received_cy import PulledRecords, Stored, stored_of
    from cython.cimports.maxq.runtime.buffers import i64, u32
else:
    from maxq.protocol.message import record_layout as rl
    from maxq.protocol.message.received_cy import PulledRecords, Stored, stored_of
    from maxq.runtime.buffers import i64, u32

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from maxq.protocol.message.message import MessageExt


_ROOM = cython.declare(cython.Py_ssize_t, 64)
_RECORD = cython.declare(object, True)  # stands for a message that is still a record


@cython.cclass
class HeldMessages:
    """See the module's text. Queue offsets and counts are plain numbers, `message_size` is in bytes."""

    def __init__(self):
        self.message_count = self.message_size = self.queue_offset_max = self.backlog = 0
        self._reset()

    @cython.cfunc
    def _reset(self):
        self._messages = []
        self._offsets = self._offset_array = array("q", bytes(8 * _ROOM))
        self._sizes = self._size_array = array("q", bytes(8 * _ROOM))
        self._room = _ROOM
        self._first = self._waiting = self._end = 0

    def put_messages(
        self,
        messages,  # type: Sequence[MessageExt] | PulledRecords
        max_offset: cython.longlong = 0,
    ):
        # type: (...) -> None
        """Add the messages of a pull.

        Args:
            messages: in ascending queue offsets; those already here are ignored.
            max_offset: end of the queue at the broker, for the backlog.
        """
        offset: cython.longlong = 0
        stored: Stored
        count: cython.Py_ssize_t
        if type(messages) is PulledRecords:
            offset = self._put_records(messages)
            if messages and max_offset > 0:
                self.backlog = max(0, max_offset - offset - 1)
            return
        for count in range(len(messages)):
            message = messages[count]
            stored = stored_of(message)
            offset = message.queue_offset if stored is None else stored.queue_offset
            if self._end > self._first and offset <= self._offsets[self._end - 1]:
                self._put_between([(one.queue_offset, one, one.store_size) for one in messages[count:]])
                offset = messages[len(messages) - 1].queue_offset
                break
            self._append(message, offset, message.store_size if stored is None else stored.size)
        if messages and max_offset > 0:
            self.backlog = max(0, max_offset - offset - 1)

    @cython.cfunc
    def _append(self, message: object, offset: cython.longlong, size: cython.longlong):
        if self._end == self._room:
            self._make_room(1)
        self._offsets[self._end] = offset
        self._sizes[self._end] = size
        self._messages.append(message)
        self._end += 1
        self.message_count += 1
        self.message_size += size
        if offset > self.queue_offset_max:
            self.queue_offset_max = offset

    @cython.cfunc
    def _make_room(self, more: cython.Py_ssize_t):
        """Move everything to the front, into arrays that have room for so many more."""
        first: cython.Py_ssize_t = self._first
        count: cython.Py_ssize_t = self._end - first
        room: cython.Py_ssize_t = max(_ROOM, 2 * count, count + more)
        offsets: object = self._offset_array[first : self._end]
        sizes: object = self._size_array[first : self._end]
        offsets.frombytes(bytes(8 * (room - count)))
        sizes.frombytes(bytes(8 * (room - count)))
        self._offsets = self._offset_array = offsets
        self._sizes = self._size_array = sizes
        del self._messages[:first]
        self._waiting -= first
        self._first, self._end, self._room = 0, count, room

    @cython.cfunc
    @cython.exceptval(-1)
    def _put_records(self, records: PulledRecords) -> cython.longlong:
        """Add messages that are records yet, of which only the places are noted. Returns the last queue offset."""
        buf: cython.p_uchar
        p: cython.Py_ssize_t = 0
        end: cython.Py_ssize_t = self._end
        if records.size == 0:
            return 0
        if cython.compiled:
            buf = cython.cast(cython.p_uchar, cython.address(records.view[0]))
        else:
            buf = records.view
        if end > self._first and records.first_offset <= self._offsets[end - 1]:
            rows: list = []
            while p < records.size:
                rows.append((i64(buf, p + rl.QUEUE_OFFSET), _RECORD, u32(buf, p)))
                p += u32(buf, p)
            self._put_between(rows)
            return records.last_offset
        if end + records.count > self._room:
            self._make_room(records.count)
            end = self._end
        while p < records.size:
            self._offsets[end] = i64(buf, p + rl.QUEUE_OFFSET)
            self._sizes[end] = u32(buf, p)
            p += u32(buf, p)
            end += 1
        self._messages.extend([_RECORD] * records.count)
        self._end = end
        self.message_count += records.count
        self.message_size += records.size
        self.queue_offset_max = max(self.queue_offset_max, records.last_offset)
        return records.last_offset

    @cython.cfunc
    def _put_between(self, rows: list):
        """Add messages (queue offset, message, bytes) of which some may lie before others that are here, or be here
        already."""
        place: cython.Py_ssize_t
        held: list = [self._row(place) for place in range(self._waiting, self._end) if self._sizes[place] >= 0]
        at_listener: list = [self._row(place) for place in range(self._first, self._waiting) if self._sizes[place] >= 0]
        here: set = {row[0] for row in [*at_listener, *held]}
        for row in rows:
            if row[0] not in here:
                here.add(row[0])
                held.append(row)
        held.sort(key=itemgetter(0))
        self._reset()
        self.message_count = self.message_size = 0
        for offset, message, size in [*at_listener, *held]:
            self._append(message, offset, size)
        self._waiting = len(at_listener)

    @cython.cfunc
    def _row(self, place: cython.Py_ssize_t):
        return self._offsets[place], self._messages[place], self._sizes[place]

    @cython.cfunc
    @cython.exceptval(check=False)
    def _place_of(self, offset: cython.longlong) -> cython.Py_ssize_t:
        """Return the place of a queue offset; -1 if no message with it is here."""
        low: cython.Py_ssize_t = self._first
        high: cython.Py_ssize_t = self._end
        middle: cython.Py_ssize_t
        distance: cython.ulonglong
        if low == high or offset < self._offsets[low] or offset > self._offsets[high - 1]:
            return -1
        distance = cython.cast(cython.ulonglong, offset) - cython.cast(cython.ulonglong, self._offsets[low])
        if distance < cython.cast(cython.ulonglong, high - low):  # most queues have no gaps
            middle = low + cython.cast(cython.Py_ssize_t, distance)
            if self._offsets[middle] == offset:
                return middle if self._sizes[middle] >= 0 else -1
        while low < high:
            middle = (low + high) // 2
            if self._offsets[middle] < offset:
                low = middle + 1
            else:
                high = middle
        return low if low < self._end and self._offsets[low] == offset and self._sizes[low] >= 0 else -1

    @cython.cfunc
    def _skip_gone(self):
        """Forget the places of messages that are gone, at both ends."""
        while self._first < self._end and self._sizes[self._first] < 0:
            self._first += 1
        while self._first < self._end and self._sizes[self._end - 1] < 0:
            self._end -= 1
            self._messages.pop()
        if self._first == self._end:
            self._messages.clear()
            self._first = self._end = 0
        if self._waiting < self._first or self._end == 0:
            self._waiting = self._first

    def remove(
        self,
        messages,  # type: Iterable[MessageExt] | PulledRecords
    ):
        # type: (...) -> int
        """Remove finished messages that no orderly listener has.

        Returns:
            The queue offset to commit: the smallest that is left, or one past the largest ever seen. -1 if nothing was
            here.
        """
        stored: Stored
        if self._waiting == self._end:
            return -1
        if type(messages) is PulledRecords:
            self._remove_records(messages)
        else:
            for message in messages:
                stored = stored_of(message)
                self._remove(message.queue_offset if stored is None else stored.queue_offset)
        self._skip_gone()
        return self._offsets[self._waiting] if self._waiting < self._end else self.queue_offset_max + 1

    @cython.cfunc
    def _remove(self, offset: cython.longlong):
        place: cython.Py_ssize_t = self._place_of(offset)
        if place >= self._waiting:
            self.message_count -= 1
            self.message_size -= self._sizes[place]
            self._sizes[place] = -1
            self._messages[place] = None

    @cython.cfunc
    def _remove_records(self, records: PulledRecords):
        buf: cython.p_uchar
        p: cython.Py_ssize_t = 0
        first: cython.Py_ssize_t
        place: cython.Py_ssize_t
        apart: cython.Py_ssize_t = records.count - 1
        if records.size == 0:
            return
        first = self._place_of(records.first_offset)
        if (
            first >= self._waiting
            and records.last_offset - records.first_offset == apart  # no offset between them is left out
            and self._place_of(records.last_offset) == first + apart  # nor in this queue
        ):
            for place in range(first, first + records.count):
                if self._sizes[place] >= 0:
                    self.message_count -= 1
                    self.message_size -= self._sizes[place]
                    self._sizes[place] = -1
            self._messages[first : first + records.count] = [None] * records.count
            return
        if cython.compiled:
            buf = cython.cast(cython.p_uchar, cython.address(records.view[0]))
        else:
            buf = records.view
        while p < records.size:
            self._remove(i64(buf, p + rl.QUEUE_OFFSET))
            p += u32(buf, p)

    def take(self, count: cython.Py_ssize_t):
        # type: (...) -> list[MessageExt]
        """Return the first `count` messages, for an orderly listener."""
        taken: list = []
        while self._waiting < self._end and len(taken) < count:
            if self._sizes[self._waiting] >= 0:
                taken.append(self._messages[self._waiting])
            self._waiting += 1
        return taken

    def commit(self):
        # type: (...) -> int
        """Remove all messages that an orderly listener has, because it has finished them.

        Returns:
            The queue offset to commit, -1 if the listener had nothing.
        """
        committed: cython.longlong = -1
        while self._first < self._waiting:
            if self._sizes[self._first] >= 0:
                committed = self._offsets[self._first] + 1
                self.message_count -= 1
                self.message_size -= self._sizes[self._first]
                self._sizes[self._first] = -1
                self._messages[self._first] = None
            self._first += 1
        self._skip_gone()
        return committed

    def rollback(self):
        # type: (...) -> None
        """Put all messages that an orderly listener has back, so that they are delivered again in order."""
        is_mixed: cython.bint = (
            self._first < self._waiting < self._end and self._offsets[self._waiting - 1] > self._offsets[self._waiting]
        )
        self._waiting = self._first
        if is_mixed:  # a message with a smaller offset arrived meanwhile
            self._put_between([])

    def has_messages(self):
        # type: (...) -> bool
        """Return whether messages wait for the listener."""
        return self._waiting < self._end

    def max_span(self):
        # type: (...) -> int
        """Return the largest queue offset minus the smallest of the messages that wait."""
        return self._offsets[self._end - 1] - self._offsets[self._waiting] if self._waiting < self._end else 0

    def waiting_range(self):
        # type: (...) -> tuple[int, int, int]
        """Return the smallest and the largest queue offset of messages that wait, and how many these are."""
        if self._waiting == self._end:
            return 0, 0, 0
        return self._offsets[self._waiting], self._offsets[self._end - 1], self.message_count - self.taken_range()[2]

    def taken_range(self):
        # type: (...) -> tuple[int, int, int]
        """Return the smallest and the largest queue offset of messages that an orderly listener has, and how many
        these are."""
        if self._first == self._waiting:
            return 0, 0, 0
        return self._offsets[self._first], self._offsets[self._waiting - 1], self._waiting - self._first

    def clear(self):
        # type: (...) -> None
        """Remove all messages that were pulled from the queue and are not consumed."""
        self._reset()
        self.message_count = self.message_size = self.queue_offset_max = self.backlog = 0
