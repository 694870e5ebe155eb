"""FetchQueue: what was pulled and waits for `poll`, and what `poll` has given to whom.

Its methods run no Python code where it is compiled: no other thread and no signal handler comes between. So a polling
thread takes available messages itself (`hand_out`), and needs the event loop only when there are none. Messages that it
has finished wait in `finished` until the event loop takes them.
"""

from collections import deque
from typing import TYPE_CHECKING

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if TYPE_CHECKING:
    from maxq.client.consumer.held.assigned_queue import AssignedQueue
    from maxq.protocol.message.message import MessageExt
    from maxq.protocol.message.received_cy import PulledRecords

#: Whether threads may call `hand_out` and `take_back` while the loop works.
IS_SAFE_FOR_THREADS = bool(cython.compiled)  # type: bool


@cython.final
@cython.cclass
class Fetched:
    """The messages of one pull, or some of them, or its records as they are."""

    def __init__(
        self,
        assigned,  # type: AssignedQueue
        generation,  # type: int
        messages,  # type: list[MessageExt] | PulledRecords
    ):
        self.assigned = assigned
        self.generation = generation
        self.messages = messages

    @cython.cfunc
    @cython.exceptval(-1)
    def _is_current(self) -> cython.bint:
        return not self.assigned.process_queue.dropped and self.generation == self.assigned.generation

    @cython.cfunc
    @cython.exceptval(check=False)
    def _is_made(self) -> cython.bint:
        """Return whether these are messages, not records."""
        return type(self.messages) is list

    @cython.cfunc
    def _split(self, count: cython.Py_ssize_t):
        """Return the first `count` messages, which are not all, and the others."""
        if self._is_made():
            first, rest = self.messages[:count], self.messages[count:]
        else:
            first, rest = self.messages.split(count)
        return Fetched(self.assigned, self.generation, first), Fetched(self.assigned, self.generation, rest)

    @property
    def is_current(self):
        # type: (...) -> bool
        """Return whether the queue is still held, and no seek came since the pull."""
        return self._is_current()


@cython.cclass
class FetchQueue:
    """Pulled messages that wait for `poll`, in the order in which their pulls were answered."""

    def __init__(self):
        self._fetched = deque()
        self.message_count = 0
        self.given_out = {}
        self.finished = []
        self.keeps_records = False

    def append(
        self,
        fetched: Fetched,
    ):
        # type: (...) -> None
        """Add the messages of a pull."""
        self._fetched.append(fetched)
        self.message_count += len(fetched.messages)

    def take(self, most: cython.Py_ssize_t, is_one: cython.bint = False):
        # type: (...) -> Fetched | None
        """Take out the oldest pull that is current and of a queue that is not paused; None if there is none.

        Args:
            most: of a pull that is kept as records, take no more than this number, which become messages.
            is_one: take only the first message.
        """
        fetched: Fetched = None
        found: Fetched = None
        held_back: list = []
        while self._fetched:
            fetched = self._fetched.popleft()
            if fetched._is_current() and fetched.assigned.paused:
                held_back.append(fetched)
                continue
            if not fetched._is_made():
                if len(fetched.messages) > most:
                    fetched, rest = fetched._split(most)
                    self._fetched.appendleft(rest)
                fetched = Fetched(fetched.assigned, fetched.generation, fetched.messages.messages())
            if is_one and fetched._is_current() and len(fetched.messages) > 1:
                found = _first_of(fetched)
                self._fetched.appendleft(fetched)
                self.message_count -= 1
                break
            self.message_count -= len(fetched.messages)
            if fetched._is_current():
                found = fetched
                break
        if held_back:
            held_back.reverse()
            self._fetched.extendleft(held_back)
        return found

    def take_records(
        self,
        rows: cython.longlong,
        size: cython.longlong,
    ):
        # type: (...) -> list[Fetched]
        """Take out the oldest pulls that are current and of queues that are not paused, for one batch of columns.

        Args:
            rows, size: at most so many messages, and bytes of records, unless the first pull alone has more.

        Returns:
            Pulls that are kept as records, or one of messages; empty if there is none.
        """
        fetched: Fetched = None
        found: list = []
        held_back: list = []
        while self._fetched and rows > 0 and size > 0:
            fetched = self._fetched.popleft()
            if not fetched._is_current():
                self.message_count -= len(fetched.messages)
                continue
            if fetched.assigned.paused:
                held_back.append(fetched)
                continue
            if found and (fetched._is_made() or fetched.messages.count > rows or fetched.messages.size > size):
                held_back.append(fetched)
                break
            self.message_count -= len(fetched.messages)
            found.append(fetched)
            if fetched._is_made():
                break
            rows -= len(fetched.messages)
            size -= fetched.messages.size
        if held_back:
            held_back.reverse()
            self._fetched.extendleft(held_back)
        return found

    def hand_out(
        self,
        owner,  # type: object
        is_alone: cython.bint,
        is_one: cython.bint = False,
    ):
        # type: (...) -> list[MessageExt] | None
        """Give `owner` the oldest pull, in a list of its own; what it got last is finished then.

        Args:
            is_alone: nobody else may have something that is not finished.
            is_one: only its first message; the others stay.

        Returns:
            None: there is nothing, or something is unusual, and nothing has changed.
        """
        fetched: Fetched
        before: list = self.given_out.get(owner)
        if not self._fetched:
            return None
        if before is None and self.given_out:  # messages are out at other owners, which may have ended
            return None
        if is_alone and len(self.given_out) > 1:
            return None
        fetched = self._fetched[0]
        if not fetched._is_current() or fetched.assigned.paused or not fetched._is_made():
            return None
        if is_one and len(fetched.messages) > 1:
            fetched = _first_of(fetched)
        else:
            self._fetched.popleft()
        self.message_count -= len(fetched.messages)
        if before is not None:
            self.finished.extend(before)
        self.given_out[owner] = [fetched]
        return list(fetched.messages)

    def take_back(
        self,
        owner,  # type: object
        unless,  # type: list[Fetched] | None
    ):
        # type: (...) -> bool
        """Make the next poll return again what the last one returned to `owner`, unless that is `unless`. Returns
        whether that happened."""
        fetched: Fetched
        given_out: list = self.given_out.get(owner)
        if given_out is None or given_out is unless:
            return False
        del self.given_out[owner]
        for fetched in reversed(given_out):
            self._fetched.appendleft(fetched)
            self.message_count += len(fetched.messages)
        return True

    def keep_first(
        self,
        owner,  # type: object
        count: cython.longlong,
    ):
        # type: (...) -> bool
        """Put back what the last poll returned to `owner` behind the first `count` messages. Returns whether there was
        anything."""
        fetched: Fetched
        kept: list = []
        rest: list = []
        for fetched in self.given_out.get(owner, ()):
            size: cython.longlong = len(fetched.messages)
            if count >= size:
                kept.append(fetched)
            elif count > 0:
                first, others = fetched._split(count)
                kept.append(first)
                rest.append(others)
            else:
                rest.append(fetched)
            count = max(count - size, 0)
        if not rest:
            return False
        self.given_out[owner] = kept
        for fetched in reversed(rest):
            self._fetched.appendleft(fetched)
            self.message_count += len(fetched.messages)
        return True

    def take_finished(self):
        # type: (...) -> list[Fetched]
        """Return what is finished, and forget it."""
        finished: list = self.finished
        self.finished = []
        return finished

    def clear(self):
        # type: (...) -> None
        """Drop all pulls that wait."""
        self._fetched.clear()
        self.message_count = 0


@cython.cfunc
def _first_of(fetched: Fetched) -> Fetched:
    """Take the first of several messages out of a pull; returns it as a pull of its own."""
    return Fetched(fetched.assigned, fetched.generation, [fetched.messages.pop(0)])
