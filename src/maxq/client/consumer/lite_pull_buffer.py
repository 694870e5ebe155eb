"""What a lite pull consumer has pulled ahead and not yet given out.

Source: apache/rocketmq
client/impl/consumer/{AssignedMessageQueue,DefaultLitePullConsumerImpl.consumeRequestCache}.java."""

import asyncio
from collections import deque
from dataclasses import dataclass, field

from maxq.client.consumer.process_queue import ProcessQueue
from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.message_queue import MessageQueue


@dataclass(slots=True, eq=False)
class AssignedQueue:
    """One queue that is read. Offsets are queue offsets; -1 means unknown."""

    queue: MessageQueue
    process_queue: ProcessQueue
    pull_offset: int  # where the next pull starts
    consume_offset: int = -1  # everything before it was given out and is done
    paused: bool = False
    task: asyncio.Task[None] | None = None
    generation: int = 0  # changes with every seek; pulls that began before it are thrown away


@dataclass(slots=True)
class Fetched:
    """Messages that one pull has brought and that the program has not taken yet."""

    assigned: AssignedQueue
    generation: int
    messages: list[MessageExt] = field(default_factory=list)

    @property
    def is_current(self) -> bool:
        """Return whether the queue is still held, and no seek came since the pull."""
        return not self.assigned.process_queue.dropped and self.generation == self.assigned.generation


class FetchBuffer:
    """Pulled batches that wait for `poll`, in the order in which they arrived."""

    def __init__(self) -> None:
        self._fetched: deque[Fetched] = deque()
        self._arrival = asyncio.Event()
        self.message_count = 0

    def put(self, fetched: Fetched) -> None:
        """Add the messages that a pull has brought."""
        self._fetched.append(fetched)
        self.message_count += len(fetched.messages)
        self._arrival.set()

    def put_back(self, fetched: Fetched) -> None:
        """Put the last batch of `poll` back, so that the next `poll` returns it again."""
        self._fetched.appendleft(fetched)
        self.message_count += len(fetched.messages)
        self._arrival.set()

    def wake(self) -> None:
        """Wake all waiting tasks, because a queue was resumed."""
        self._arrival.set()

    def take(self) -> Fetched | None:
        """Take out the oldest pull that is current and of a queue that is not paused; None if there is none."""
        held_back: list[Fetched] = []
        found = None
        while self._fetched and found is None:
            fetched = self._fetched.popleft()
            if fetched.is_current and fetched.assigned.paused:
                held_back.append(fetched)
                continue
            self.message_count -= len(fetched.messages)
            if fetched.is_current:
                found = fetched
        self._fetched.extendleft(reversed(held_back))
        return found

    async def wait(self, timeout_s: float) -> bool:
        """Wait until new messages or a resumed queue may let `take` succeed. Returns False after `timeout_s`
        seconds."""
        self._arrival.clear()
        try:
            async with asyncio.timeout(timeout_s):  # wait_for may lose a cancellation
                await self._arrival.wait()
        except TimeoutError:
            return False
        return True

    def clear(self) -> None:
        """Drop all pulls and wake the waiting tasks."""
        self._fetched.clear()
        self.message_count = 0
        self._arrival.set()
