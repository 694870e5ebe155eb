"""The messages that a lite pull consumer has pulled and not yet delivered.

Source: apache/rocketmq
client/impl/consumer/{AssignedMessageQueue,DefaultLitePullConsumerImpl.consumeRequestCache}.java."""

import asyncio
from typing import Final

from maxq.client.consumer.held.fetch_queue_cy import Fetched, FetchQueue

_LOOKS: Final = 4


class FetchBuffer(FetchQueue):
    """Pulled batches that wait for `poll`, in the order in which they arrived."""

    def __init__(self) -> None:
        super().__init__()
        self._arrival = asyncio.Event()

    def put(self, fetched: Fetched) -> None:
        """Add the messages that a pull has brought."""
        self.append(fetched)
        self._arrival.set()

    def wake(self) -> None:
        """Wake all waiting tasks, because a queue was resumed, or messages were put back."""
        self._arrival.set()

    async def gather(self, count: int, timeout_s: float) -> None:
        """Wait until `count` messages are here, but not longer than `timeout_s` seconds. It is looked a few times only:
        each look takes processor time from who brings them."""
        for _ in range(_LOOKS):
            if self.message_count >= count:
                return
            await asyncio.sleep(timeout_s / _LOOKS)

    async def wait(self, timeout_s: float) -> bool:
        """Wait until new messages or a resumed queue may let `take` succeed. Returns False after `timeout_s`
        seconds."""
        self._arrival.clear()
        try:
            async with asyncio.timeout(timeout_s):  # not wait_for, which may lose a cancellation
                await self._arrival.wait()
        except TimeoutError:
            return False
        return True

    def drop_all(self) -> None:
        """Drop all pulls and wake the waiting tasks."""
        self.clear()
        self._arrival.set()
