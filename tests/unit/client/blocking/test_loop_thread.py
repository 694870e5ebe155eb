"""The thread under a blocking client: each call has an outcome, whenever its loop ends."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from maxq.client.blocking.loop_thread import LoopThread
from maxq.client.errors import NotRunningError


async def forever() -> None:
    await asyncio.Event().wait()


def test_no_call_hangs_that_meets_the_end_of_its_loop() -> None:
    """Calls of many threads while the loop ends, over and over: each has an outcome."""
    for _ in range(30):
        thread = LoopThread()
        thread.start()
        go = threading.Event()
        outcomes: list[type[BaseException]] = []

        def call(thread: LoopThread = thread, go: threading.Event = go, outcomes: list[Any] = outcomes) -> None:
            go.set()
            try:
                while True:
                    thread.run(asyncio.sleep(0))
            except BaseException as error:
                outcomes.append(type(error))

        callers = [threading.Thread(target=call, daemon=True) for _ in range(8)]
        for caller in callers:
            caller.start()
        go.wait()
        thread.stop()
        for caller in callers:
            caller.join(10)
            assert not caller.is_alive(), "the call hangs"
        assert set(outcomes) == {NotRunningError}


def test_a_call_that_comes_when_the_loop_has_taken_its_last_turn_has_an_outcome() -> None:
    thread = LoopThread()
    thread.start()
    loop = thread._loop
    assert loop is not None
    closing, close = threading.Event(), loop.close

    def slowly() -> None:
        closing.set()
        time.sleep(0.2)  # the loop runs no more, and is not closed
        close()

    loop.close = slowly  # type: ignore[method-assign]
    with ThreadPoolExecutor() as threads:
        calls = [threads.submit(thread.run, forever())]
        stopping = threads.submit(thread.stop)
        assert closing.wait(10)
        calls.append(threads.submit(thread.run, asyncio.sleep(0)))
        for call in calls:
            with pytest.raises(NotRunningError):
                call.result(10)
        stopping.result(10)
