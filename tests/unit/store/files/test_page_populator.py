"""Pages ahead of a writer: in time, in pieces, never behind it, never beyond the file."""

import asyncio
from collections.abc import Callable

from maxq.runtime.interfaces import MappedRegion
from maxq.store.files.page_populator import PagePopulator

MIB = 1 << 20


class Region(MappedRegion):
    """Remembers what it was asked for."""

    view = memoryview(bytearray())

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def populate(self, start: int, end: int) -> None:
        self.asked.append((start, end))

    def allocate(self, start: int, end: int) -> None: ...

    def flush(self, start: int, end: int) -> None: ...

    def write(self, position: int, data: memoryview) -> None: ...

    def write_again(self, start: int, end: int) -> None: ...

    def close(self) -> None: ...


class Executor:
    """Runs what it is given when told to."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], None], asyncio.Future[None]]] = []

    def __call__(self, work: Callable[[], None]) -> "asyncio.Future[None]":
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append((work, future))
        return future

    async def run(self) -> None:
        work, future = self.waiting.pop(0)
        work()
        future.set_result(None)
        await asyncio.sleep(0)


async def test_pieces_stay_ahead_of_the_writer_and_end_with_the_file() -> None:
    region, executor = Region(), Executor()
    populator = PagePopulator(executor, 8 * MIB)
    populator.attach(region, 0, 20 * MIB)
    position = 0
    while position <= 20 * MIB:
        populator.move_to(position)
        while executor.waiting:
            await executor.run()
            populator.move_to(position)
        if position < 20 * MIB:
            assert max(end for _, end in region.asked) >= min(20 * MIB, position + 4 * MIB)
        position += MIB // 2
    covered = 0
    for start, end in region.asked:
        assert start == covered
        assert end - start <= 4 * MIB
        covered = end
    assert covered == 20 * MIB


async def test_a_writer_that_catches_up_populates_a_small_piece_itself() -> None:
    region, executor = Region(), Executor()
    populator = PagePopulator(executor, 8 * MIB)
    populator.attach(region, 0, 64 * MIB)
    populator.move_to(0)
    assert region.asked == [(0, MIB)]
    assert len(executor.waiting) == 1  # one piece at a time, however far the writer goes
    populator.move_to(6 * MIB)
    assert region.asked == [(0, MIB), (6 * MIB, 7 * MIB)]
    assert len(executor.waiting) == 1


def test_without_a_loop_the_writer_does_it_inline_and_off_means_off() -> None:
    region = Region()
    populator = PagePopulator(lambda work: None, 8 * MIB)
    populator.attach(region, 100, 3 * MIB)
    for position in range(100, 3 * MIB, 1000):
        populator.move_to(position)
    assert region.asked[-1][1] == 3 * MIB
    off = Region()
    idle = PagePopulator(lambda work: None, 0)
    idle.attach(off, 0, 3 * MIB)
    idle.move_to(2 * MIB)
    assert off.asked == []
