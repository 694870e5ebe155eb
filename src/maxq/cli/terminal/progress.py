"""A bar on standard error while much is done; rich is imported only where there is a terminal."""

import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")

#: Called with how much is done, in the unit of the total, and the same in words.
Tell = Callable[[int, str], None]


def tracked(items: Collection[Item], what: str) -> Iterator[Item]:
    """Yield the items one after the other, behind a progress bar that goes when they are done."""
    if len(items) < 2:
        yield from items
        return
    with progress_bar(what, len(items)) as tell:
        for number, item in enumerate(items):
            tell(number, f"{number} of {len(items)}")
            yield item


@contextmanager
def progress_bar(what: str, total: int | None) -> Iterator[Tell]:
    """Show a bar during the block, if standard error is a terminal; without a total one that only moves."""
    if not sys.stderr.isatty():
        yield lambda done, words: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[words]}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as bar:
        task = bar.add_task(what, total=total, words="")

        def tell(done: int, words: str) -> None:
            bar.update(task, completed=done, words=words)

        yield tell


@contextmanager
def progress_in_bytes() -> Iterator[Callable[[str, int, int], None]]:
    """Show bars during the block, if standard error is a terminal: one for each work that is told, with the bytes done
    and in all."""
    if not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as bar:

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=total)

        yield tell
