"""What the tests of this folder share."""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable

from maxq.api import ConsumeContext, ConsumeFromWhere, ConsumeResult, MessageExt

FROM_FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


async def eventually(condition: Callable[[], object], what: str, seconds: float = 20) -> None:
    """Wait until `condition()` is true; fail with `what` after `seconds`."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"after {seconds} s still not: {what}"
        await asyncio.sleep(0.01)


class Collector:
    """A listener that keeps what it gets."""

    def __init__(self) -> None:
        self.messages: list[MessageExt] = []

    def __call__(self, messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        self.messages += messages
        return ConsumeResult.SUCCESS

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    def counts(self) -> Counter[bytes]:
        return Counter(self.bodies)

    def by_queue(self) -> dict[int, list[int]]:
        """Queue id → queue offsets in the order of delivery."""
        queues: dict[int, list[int]] = defaultdict(list)
        for message in self.messages:
            queues[message.queue_id].append(message.queue_offset)
        return dict(queues)

    async def wait_for(self, count: int, seconds: float = 20) -> None:
        await eventually(lambda: len(self.messages) >= count, f"{count} messages, got {len(self.messages)}", seconds)
