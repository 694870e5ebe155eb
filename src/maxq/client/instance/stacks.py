"""Where the threads of this process and the tasks of an event loop are, as text for operators.

Source: apache/rocketmq common/UtilAll.java (jstack).
"""

import asyncio
import sys
import threading
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any


def stacks() -> str:
    """Return the stack of each thread, and of each task of the running event loop, with a blank line between two."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = [
        _part(f"Thread {names.get(ident, ident)}", traceback.walk_stack(frame), reverse=True)
        for ident, frame in sys._current_frames().items()
    ]
    parts += [_part(f"Task {task.get_name()}", _awaited(task.get_coro())) for task in asyncio.all_tasks()]
    return "\n\n".join(parts)


def _part(title: str, frames: Iterator[tuple[FrameType, int]], *, reverse: bool = False) -> str:
    summary = traceback.StackSummary.extract(frames)
    if reverse:
        summary.reverse()
    return "\n".join([title, *("".join(summary.format()).splitlines())])


def _awaited(coroutine: Any) -> Iterator[tuple[FrameType, int]]:
    """Yield the frames of a suspended coroutine and of what it awaits; compiled ones have none."""
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is not None:
            yield frame, frame.f_lineno
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
