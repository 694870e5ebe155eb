"""One seed, one story of a store on a real tmpfs that is full: a broker that was killed there starts again, with all
that was stored, as often as it is killed.

No simulated disk can tell it: to read a hole of a file through its mapping, the kernel gives it a page, and where there
is no room for one it ends the process. So the lives of the broker are processes, and the file system is mounted for
them; where that is not allowed nothing is told.
"""

import contextlib
import os
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from maxq.config.message_store_config import MessageStoreConfig
from maxq.protocol.dledger.ledger import HardState
from maxq.runtime.files.system import SystemClock, SystemDisk
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.context.store_context import StoreIdentity
from maxq.store.message_store import MessageStore
from maxq.testing.sim_rng import SimRng
from tests.mounted_disk import MountedDisk, NotAllowedError

_KILLED: Final = 9


class FullTmpfsStory:
    """Attributes:
    marks: how often each kind of thing happened.
    history: what happened, for whoever reads a failure.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.marks: Counter[str] = Counter()
        self.history: list[str] = []
        self._rng = SimRng(seed).fork("full tmpfs")

    def run(self) -> None:
        """Tell it. AssertionError: a life ended in another way than it was to."""
        rng = self._rng
        with tempfile.TemporaryDirectory() as folder:
            disk = MountedDisk(Path(folder) / "mounted", "tmpfs", rng.choice((12, 20)) << 20)
            try:
                disk.mount()
            except NotAllowedError as error:
                self.marks["not allowed here"] += 1
                self.history.append(str(error))
                return
            try:
                self._live(disk)
            finally:
                disk.unmount()

    def _live(self, disk: MountedDisk) -> None:
        rng = self._rng
        is_member, size = rng.chance(0.7), rng.choice((1, 4)) << 20
        config = MessageStoreConfig(
            store_path_root_dir=str(disk.folder / "store"), enable_dleger_commit_log=is_member, dleger_group="g",
            dleger_self_id="n0", dleger_peers="n0-127.0.0.1:1", mapped_file_size_commit_log=size,
            mapped_file_size_consume_queue=rng.choice((20_000, 200_000)), max_hash_slot_num=1000, max_index_num=20_000,
        )  # fmt: skip
        self.history.append(f"a member of a group: {is_member}, files of {size >> 20} MiB")
        body = rng.choice((300, 3_000))
        end = _in_a_process(lambda: _fill(config, body))
        disk.fill()
        for _ in range(rng.between(1, 3)):
            found = _in_a_process(lambda: _start(config))
            assert found == end, f"{end} bytes or entries were stored, a start finds {found}"
            self.marks["started on a full disk"] += 1


def _in_a_process(life: Callable[[], int]) -> int:
    """What `life` returns, in a process that is killed then."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            try:
                said = str(life())
            except BaseException:
                said = traceback.format_exc()
            os.write(writing, said.encode()[-4096:])
        os._exit(_KILLED)
    os.close(writing)
    with open(reading) as answer:
        said = answer.read()
    _, status = os.waitpid(child, 0)
    assert not os.WIFSIGNALED(status), f"the process died of signal {os.WTERMSIG(status)}"
    assert said.isdecimal(), said
    return int(said)


def _load(config: MessageStoreConfig) -> MessageStore:
    store = MessageStore(config, disk=SystemDisk(), clock=SystemClock(), broker=StoreIdentity(), memory_bytes=1 << 30)
    store.load()
    return store


def _fill(config: MessageStoreConfig, body: int) -> int:
    """Where the log ends when the disk takes nothing more."""
    store = _load(config)
    if store.ledger is not None:
        store.ledger.store_term(HardState(1, "n0"))
        store.ledger.begin_leading(1)
    number = 0
    while _put(store, number, body):
        number += 1
        if store.ledger is not None and number % 20 == 0:
            store.ledger.commit(store.ledger.end_index)
    assert number > 100, f"after {number} messages the disk takes no more"
    return _end_of(store)


def _start(config: MessageStoreConfig) -> int:
    """Where the log ends after a start on the full disk."""
    store = _load(config)
    assert not _put(store, 0, 3_000), "a disk without room takes a message"
    return _end_of(store)


def _put(store: MessageStore, number: int, body: int) -> bool:
    properties = {"KEYS": f"k{number}"}
    return store.put_message(MessageExtBrokerInner(f"T{number % 3}", number % 4, os.urandom(body), properties)).ok


def _end_of(store: MessageStore) -> int:
    return store.max_physical_offset if store.ledger is None else store.ledger.end_index
