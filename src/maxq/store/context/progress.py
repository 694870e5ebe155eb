"""How far long work on a store has come, for tools that show it."""

from collections.abc import Callable

#: (what is being read, bytes done, bytes in all)
Progress = Callable[[str, int, int], None]


def no_progress(_what: str, _done: int, _total: int) -> None:
    """Do nothing: the progress callback of callers that show no progress."""
