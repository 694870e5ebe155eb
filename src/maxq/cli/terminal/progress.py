"""A bar on standard error while many things are done; rich is imported only where there is a terminal."""

import sys
from collections.abc import Collection, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def tracked(items: Collection[Item], what: str) -> Iterator[Item]:
    """Yield the items one after the other, behind a progress bar that goes when they are done."""
    if len(items) < 2 or not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=len(items))
        for item in items:
            yield item
            bar.advance(task)
