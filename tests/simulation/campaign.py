"""Many crash stories: `python -m tests.simulation.campaign --seeds N --first S`; or, to go on where the sessions before
this one ended, `python -m tests.simulation.campaign --seconds T --jobs J`, which counts what passed in `campaigns.txt`.

Many kinds: of one store (crash_story.py), of one with ConsumeQueueExt (ext_story.py), of one whose settings change
from one start to the next (settings_story.py), of the stores of a master and
two slaves (ha_story.py), of messages that wait while the clock jumps (delay_story.py), or while kills and losses of
power follow one another (delay_power_story.py), of transactions (transaction_story.py), of the files of a DLedger
member (ledger_story.py), of batches that are committed exactly once (staged_story.py), of pop consumption
(pop_story.py) and of messages that two consumers hold (twin_story.py), of a timer and of a compacted topic
(timer_story.py, compaction_story.py), and, for every tenth seed, of
whole servers and clients (ha_cluster_story.py, dledger_cluster_story.py), and of promises of every kind that a DLedger
group, a pair or one broker is asked for (promise_story.py), of groups in which slaves stand in for their master, with
settings by the seed (acting_story.py), of what consumers and producers promise (client_story.py, send_story.py), of
what a change of leader costs (failover_story.py), and of a real file system that is full (full_tmpfs_story.py). Those
of timers and compaction, and the kinds that end with `-faults`, have disks of which every call can fail; in those that
end with `-late` dispatch is far behind (late_dispatch.py) when roles change and processes end. In those that begin with
`ha-batches` topics may have queues of batches, of which slaves hear late. In those that end with
`-settings` a start may have other settings than the one before (settings_story.py), also on disks that fail.
Seeds that failed once come first.
A failing seed prints itself, what was broken and the story that led there; exit 1. At the end: how often each kind of
thing happened, for a rule that is never put to the test proves nothing. Put a seed that failed into the file of its
kind in `regressions/`.
"""

import argparse
import logging
import multiprocessing
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.counted_runs import Count
from tests.simulation.dledger.dledger_cluster_story import DLedgerClusterStory, FaultyDLedgerClusterStory
from tests.simulation.dledger.failover_story import FailoverStory
from tests.simulation.dledger.ledger_story import FaultyLedgerStory, LedgerSettingsStory, LedgerStory
from tests.simulation.ha.ha_cluster_story import FaultyHaClusterStory, HaClusterStory
from tests.simulation.ha.ha_story import BatchHaStory, FaultyHaStory, HaSettingsStory, HaStory
from tests.simulation.late_dispatch import late
from tests.simulation.pop.pop_story import FaultyPopStory, PopStory
from tests.simulation.pop.twin_story import TwinStory
from tests.simulation.servers.acting_story import ActingStory
from tests.simulation.servers.client_story import ClientStory
from tests.simulation.servers.promise_story import PairPromiseStory, PromiseStory
from tests.simulation.servers.send_story import SendStory
from tests.simulation.servers.staged_story import FaultyStagedStory, StagedStory
from tests.simulation.store.compaction_story import CompactionSettingsStory, CompactionStory
from tests.simulation.store.crash_story import CrashStory
from tests.simulation.store.ext_story import ExtStory
from tests.simulation.store.faulty_store_story import FaultyCrashStory, FaultyExtStory
from tests.simulation.store.full_tmpfs_story import FullTmpfsStory
from tests.simulation.store.settings_story import ExtSettingsStory, FaultySettingsStory, SettingsStory
from tests.simulation.transactions.faulty_transaction_story import FaultyTransactionStory, TransactionSettingsStory
from tests.simulation.transactions.transaction_story import TransactionStory
from tests.simulation.waiting.delay_power_story import DelayPowerStory
from tests.simulation.waiting.delay_settings_story import DelaySettingsStory
from tests.simulation.waiting.delay_story import DelayStory
from tests.simulation.waiting.timer_story import TimerStory
from tests.unit.broker.timer.timer_world import small_wheel

Story = (
    CrashStory | ExtStory | HaStory | HaClusterStory | DelayStory | TransactionStory | LedgerStory | StagedStory
    | DLedgerClusterStory | TimerStory | CompactionStory | PromiseStory | PairPromiseStory | ClientStory | PopStory
    | FailoverStory | FullTmpfsStory | TwinStory | ActingStory | SendStory
)  # fmt: skip
KINDS: Final[dict[str, Callable[[int], Story]]] = {
    "store": CrashStory, "ha": HaStory, "cluster": HaClusterStory, "delay": DelayStory,
    "delay-power": DelayPowerStory, "transaction": TransactionStory, "ext": ExtStory, "ledger": LedgerStory,
    "staged": StagedStory, "dledger-cluster": DLedgerClusterStory, "timer": TimerStory,
    "compaction": CompactionStory, "promise-cluster": PromiseStory, "promise-pair": PairPromiseStory,
    "acting": ActingStory, "client": ClientStory, "failover": FailoverStory, "full-tmpfs": FullTmpfsStory,
    "store-faults": FaultyCrashStory, "ext-faults": FaultyExtStory,
    "transaction-faults": FaultyTransactionStory, "staged-faults": FaultyStagedStory,
    "pop": PopStory, "pop-faults": FaultyPopStory, "pop-twins": TwinStory, "ledger-faults": FaultyLedgerStory,
    "dledger-cluster-faults": FaultyDLedgerClusterStory, "ha-faults": FaultyHaStory,
    "cluster-faults": FaultyHaClusterStory,
    "settings": SettingsStory, "settings-faults": FaultySettingsStory, "settings-ext": ExtSettingsStory,
    "compaction-settings": CompactionSettingsStory, "transaction-settings": TransactionSettingsStory,
    "ha-settings": HaSettingsStory, "ledger-settings": LedgerSettingsStory, "delay-settings": DelaySettingsStory,
    "store-late": late(CrashStory), "ha-late": late(HaStory), "promise-pair-late": late(PairPromiseStory),
    "dledger-cluster-late": late(DLedgerClusterStory), "send": SendStory, "ha-batches": BatchHaStory,
    "ha-batches-late": late(BatchHaStory),
}  # fmt: skip
WHOLE_SERVERS: Final = (
    "cluster", "cluster-faults", "dledger-cluster", "dledger-cluster-faults", "promise-cluster",
    "promise-pair", "acting", "client", "send", "failover", "full-tmpfs", "promise-pair-late", "dledger-cluster-late",
)  # fmt: skip


@dataclass(slots=True)
class Outcome:
    """Of one seed. `failure` is empty if all rules held."""

    seed: int
    kind: str
    marks: set[str] | Counter[str]
    failure: str = ""
    seconds: float = 0.0  # processor time


def tell(seed: int, kind: str = "store") -> Outcome:
    """Run one story. Brokers have small timer wheels: the disk looks at each page of the whole one, which is 38 MB."""
    story = KINDS[kind](seed)
    try:
        with small_wheel():
            story.run()
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        lines = [f"{kind} seed {seed}: {type(error).__name__} at {where}", str(error)]
        return Outcome(seed, kind, story.marks, "\n".join([*lines, *("    " + line for line in story.history)]))
    return Outcome(seed, kind, story.marks)


def tell_job(job: tuple[int, str]) -> Outcome:
    """`tell` for a pool."""
    before = time.process_time()
    outcome = tell(*job)
    outcome.seconds = time.process_time() - before
    return outcome


def be_quiet() -> None:
    """Stores that lose their power have much to say."""
    logging.disable(logging.CRITICAL)


def regressions(kind: str = "store") -> list[int]:
    """Seeds that failed once; they always run."""
    lines = (Path(__file__).parent / "regressions" / f"{kind}.txt").read_text().splitlines()
    return [int(line.split("#")[0]) for line in lines if line.split("#")[0].strip()]


GOAL: Final = 20_000
COUNTED: Final = Path(__file__).with_name("campaigns.txt")
_SAVED_EVERY_S: Final = 30


class Turns:
    """Kinds take turns, so that each gets as much of the processor, until the time is over or all have what they need.

    Jobs are handed out one at a time for each process of the pool, which would else ask for all of them at once.
    """

    def __init__(self, count: Count, kinds: tuple[str, ...], seconds: float, jobs: int) -> None:
        self._ends_at = time.monotonic() + seconds
        self._free = threading.Semaphore(jobs)
        self._spent = dict.fromkeys(kinds, 0.0)
        self._next = {kind: count.next_seed(kind) for kind in kinds}
        self._needed = {kind: GOAL - count.passed(kind) for kind in kinds}

    def __iter__(self) -> Iterator[tuple[int, str]]:
        while True:
            self._free.acquire()
            kinds = [kind for kind, needed in self._needed.items() if needed > 0]
            if time.monotonic() >= self._ends_at or not kinds:
                return
            kind = min(kinds, key=self._spent.__getitem__)
            seed = self._next[kind]
            self._next[kind] += 1
            self._needed[kind] -= 1
            yield seed, kind

    def ended(self, outcome: Outcome) -> None:
        """A process is free."""
        self._spent[outcome.kind] += outcome.seconds
        self._free.release()


def go_on(kinds: tuple[str, ...], seconds: float, jobs: int) -> int:
    """Continue the count of `campaigns.txt`, and say where it stands; 1 if a story failed."""
    count = Count(COUNTED)
    turns = Turns(count, kinds, seconds, jobs)
    failed, saved_at = [], time.monotonic()
    with multiprocessing.get_context("fork").Pool(jobs, be_quiet) as pool:
        for outcome in pool.imap_unordered(tell_job, turns):
            turns.ended(outcome)
            count.add(outcome.kind, outcome.seed, failed=bool(outcome.failure))
            if outcome.failure:
                failed.append(f"{outcome.kind} {outcome.seed}")
                print(outcome.failure, flush=True)
            if time.monotonic() - saved_at > _SAVED_EVERY_S:
                count.save()
                saved_at = time.monotonic()
    count.save()
    for kind in kinds:
        print(f"{count.passed(kind):7} of {GOAL} {kind}")
    print(f"failed: {sorted(failed) if failed else 'none'}")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Simulated faults of a store, and of a master with its slaves.")
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count(), help="processes")
    parser.add_argument("--kind", default="all", help=f"one or several with commas between: {', '.join(KINDS)}")
    parser.add_argument("--seconds", type=float, help="go on with the count of campaigns.txt for so long; not --seeds")
    options = parser.parse_args()
    kinds = tuple(KINDS) if options.kind == "all" else tuple(options.kind.split(","))
    if set(kinds) - set(KINDS):
        parser.error(f"--kind: {', '.join(sorted(set(kinds) - set(KINDS)))} is none of {', '.join(KINDS)}")
    if options.seconds is not None:
        return go_on(kinds, options.seconds, options.jobs)
    seeds = range(options.first, options.first + options.seeds)
    jobs = [(seed, kind) for kind in kinds for seed in regressions(kind)]
    jobs += [
        (seed, kind) for seed in seeds for kind in kinds
        if len(kinds) == 1 or kind not in WHOLE_SERVERS or seed % 10 == 0
    ]  # fmt: skip
    marks: dict[str, Counter[str]] = {kind: Counter() for kind in kinds}
    failed = []
    with multiprocessing.get_context("fork").Pool(options.jobs, be_quiet) as pool:
        for done, outcome in enumerate(pool.imap_unordered(tell_job, jobs, chunksize=2), start=1):
            marks[outcome.kind].update(outcome.marks)
            if outcome.failure:
                failed.append(f"{outcome.kind} {outcome.seed}")
                print(outcome.failure, flush=True)
            if done % 100 == 0:
                print(f"{done} of {len(jobs)} stories, {len(failed)} failed", file=sys.stderr, flush=True)
    for kind, counts in marks.items():
        for mark, count in sorted(counts.items()):
            print(f"{count:7} {kind}: {mark}")
    print(f"{options.seeds} seeds from {options.first}: {len(failed)} failed {sorted(failed) if failed else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
