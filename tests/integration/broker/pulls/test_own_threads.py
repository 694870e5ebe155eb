"""What a sender or a group waits for has threads of its own: readers from a slow disk, however many, hold up nobody."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path, PurePath

import pytest

from maxq.protocol.dledger.ledger import HardState
from maxq.replication.dledger.term_writer import TermWriter
from maxq.runtime.blocking import TOOLS, run_blocking
from maxq.runtime.files.kernel_sync import Done
from maxq.runtime.files.system import SystemDisk, SystemMappedRegion
from maxq.store.dledger.mmap_file_store import DLedgerMmapFileStore
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import until
from tests.unit.store.stores import TestClock

READERS = 60


class SlowDisk(SystemDisk):
    """Nothing is in memory once `is_slow`, and what is read then comes only when the test lets it; syncs need a thread,
    as those of large groups do.

    Attributes:
        reads: that have begun.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_slow = False
        self.let_go = threading.Event()
        self.reads = 0

    def map(self, path: PurePath, size: int, *, read_only: bool = False) -> SystemMappedRegion:
        region = SlowRegion(Path(path), size, read_only=read_only, files=self._files)
        region.disk = self
        return region


class SlowRegion(SystemMappedRegion):
    disk: SlowDisk

    def is_resident(self, start: int, end: int) -> bool:
        return not self.disk.is_slow

    def load(self, start: int, end: int) -> None:
        self.disk.reads += 1
        self.disk.let_go.wait(30)

    def flush_at_once(self) -> bool:
        return False

    def flush_soon(self, done: Done) -> bool:
        return False


@pytest.fixture
def disk() -> Iterator[SlowDisk]:
    made = SlowDisk()
    yield made
    made.let_go.set()


@pytest.fixture
async def let_go() -> AsyncIterator[threading.Event]:
    """Work for threads waits for it; it is set at the end."""
    event = threading.Event()
    yield event
    event.set()


async def test_sends_and_topics_become_durable_while_many_wait_for_messages_from_a_slow_disk(
    start_broker: Start, disk: SlowDisk
) -> None:
    broker = await start_broker(disk=disk, flushDiskType="SYNC_FLUSH", syncFlushTimeout=8000, slaveReadEnable="true",
                                accessMessageInMemoryMaxRatio="0")  # fmt: skip
    broker.create_topic("T")
    for number in range(3):
        await broker.send("T", b"%d" % number * 5000)
    disk.is_slow = True
    readers = [asyncio.create_task(broker.pull("T")) for _ in range(READERS)]
    try:
        await until(lambda: disk.reads > 1)
        async with asyncio.timeout(5):
            reply = await broker.send("T", b"x" * 100_000)
            assert reply.code == 0
            broker.create_topic("New")
            await broker.controller.topics.persisted()
        assert not any(reader.done() for reader in readers), "they still wait"
        assert disk.reads < READERS, "so many and no more"
    finally:
        disk.let_go.set()
        answers = await asyncio.gather(*readers)
    assert {answer.code for answer in answers} == {0}


async def test_a_vote_is_durable_while_tools_and_the_loops_own_threads_are_busy(
    tmp_path: Path, let_go: threading.Event
) -> None:
    store = DLedgerMmapFileStore(PurePath(tmp_path), "n0", disk=SystemDisk(), clock=TestClock())
    store.load()
    busy = [asyncio.ensure_future(run_blocking(let_go.wait, 30)) for _ in range(READERS)]
    busy += [TOOLS.start(let_go.wait, 30) for _ in range(READERS)]
    stored: list[HardState] = []
    failed: list[BaseException] = []
    writer = TermWriter(store, stored.append, failed.append)
    state = HardState(7, "n0")
    writer.put(state)
    await until(lambda: bool(stored or failed))
    assert (stored, failed) == ([state], [])
    assert not any(work.done() for work in busy)
    let_go.set()
    await asyncio.gather(*busy)
    await writer.close()
    await store.shutdown()
