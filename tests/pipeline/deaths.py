"""Kill -9 at named steps of what Spark runs, wherever its processes are."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from pyspark.errors import PySparkException

from maxq.testing.server_process import StandaloneProcess

_SLOW_SECONDS = 240


class Deaths:
    """Who is to die at which step, as files, for every process on this machine to see.

    A file `<who>-<step>` is an order, carried out once by the process that comes by; `<who>.pid` has the ids of
    processes that can not be found out there. Nobody dies where `who` is `slow`: whoever comes by stands still for
    minutes.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)

    @property
    def folder(self) -> Path:
        return self._folder

    def order(self, steps: Iterable[str]) -> None:
        for step in steps:
            (self._folder / step).touch()

    def withdraw(self, steps: Iterable[str]) -> list[str]:
        """No more; those that were not carried out."""
        left = [step for step in steps if (self._folder / step).exists()]
        for step in left:
            (self._folder / step).unlink(missing_ok=True)
        return left

    @property
    def awoke(self) -> bool:
        """Has one that stood still gone on?"""
        return (self._folder / "awoke").exists()

    def introduce(self, who: str, *pids: int) -> None:
        hidden = self._folder / f".{who}"
        hidden.write_text(" ".join(map(str, pids)))
        hidden.rename(self._folder / f"{who}.pid")

    def come_by(self, step: str) -> None:
        """Somebody is at this step: kill whoever is to die there, perhaps the caller."""
        for order in sorted(self._folder.glob(f"*-{step}")):
            try:
                order.unlink()
            except FileNotFoundError:
                continue  # another process carries it out
            self._kill(order.name.partition("-")[0])

    def _kill(self, who: str) -> None:
        if who == "slow":
            time.sleep(_SLOW_SECONDS)
            (self._folder / "awoke").touch()
        elif who == "broker":
            os.kill(self._living_broker(), signal.SIGKILL)
        elif who == "executor":
            for pid in executors_of(self._pids("workers")):
                os.kill(pid, signal.SIGKILL)
        else:
            if who == "driver":  # Spark's Python processes are no members of the application's group
                os.killpg(*self._pids("driver"), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    def _living_broker(self) -> int:
        """It may have been killed a moment ago, and be about to be back."""
        while True:
            (pid,) = self._pids("broker")
            with contextlib.suppress(FileNotFoundError):
                if "State:\tZ" not in Path(f"/proc/{pid}/status").read_text():
                    return pid
            time.sleep(0.01)

    def _pids(self, who: str) -> list[int]:
        return [int(word) for word in (self._folder / f"{who}.pid").read_text().split()]


def executors_of(workers: list[int]) -> list[int]:
    """The child processes of a cluster's workers."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) in workers:
                found.append(int(path.parent.name))
    return found


def who_died(server: StandaloneProcess, deaths: Deaths, steps: Sequence[str], run: Callable[[], None]) -> list[str]:
    """`run`, which may fail of it, with a death ordered at each of the steps; those that died."""
    deaths.introduce("broker", server.pid)
    deaths.order(steps)
    with starting_again(server, deaths):
        with contextlib.suppress(PySparkException):
            run()
        left = deaths.withdraw(steps)
    return [step for step in steps if step not in left]


@contextlib.contextmanager
def starting_again(server: StandaloneProcess, deaths: Deaths) -> Iterator[None]:
    """A server that dies comes back."""
    over = threading.Event()

    def watch() -> None:
        ends = False
        while not ends:
            ends = over.wait(0.01)
            if not server.is_running:
                server.start_again()
                deaths.introduce("broker", server.pid)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
