"""Waiting for what was stored to be durable."""

import asyncio

from maxq.store.message_store import MessageStore


def durable(store: MessageStore, end_offset: int) -> "asyncio.Future[bool] | None":
    """`CommitLogFlusher.when_durable` as a future; None if there is nothing to wait for."""
    future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def done(outcome: bool) -> None:
        if not future.done():
            future.set_result(outcome)

    return future if store.flusher.when_durable(end_offset, done) else None
