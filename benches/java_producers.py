#!/usr/bin/env python3
"""How many sends of Apache RocketMQ's Java producer fail when a DLedger group changes its leader.

The producer sends from several threads at a steady pace, with its default settings (three tries, the route asked for
every 30 s, 3 s a send). The leader hands over, is stopped and started again, or is killed and started again.

    python benches/java_producers.py [--kinds maxq,java] [--how transfer,stop,kill] [--rounds 3] [--threads 3]
        [--interval 10] [--set enableShutdownGracefully=true] [--json FILE]
"""

import argparse
import asyncio
import contextlib
import json
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the tests' way to the jars is ours

from tests.interop.processes.dledger_group import GROUP, DLedgerGroup
from tests.interop.processes.java_driver import DriverError, JavaDriver
from tests.interop.processes.peers import ROCKETMQ_VERSION, compiled_drivers, rocketmq_jars

from benches.results_file import write_results
from maxq.client.instance.dledger_client import DLedgerClient
from maxq.errors import MaxQError
from maxq.runtime.files.system import SystemClock, SystemRng

SETTLED_SECONDS = 3.0
WARM_SECONDS = 60.0
ROUTE_SECONDS = 35.0  # the producer asks for the route every 30 s


class KnowingClient(DLedgerClient):
    """Knows the term, which Java's members tell no client, from a member's files."""

    def __init__(self, group: DLedgerGroup) -> None:
        super().__init__(GROUP, group.peers, clock=SystemClock(), rng=SystemRng(), timeout_ms=5000)
        self._group_of_brokers = group

    async def _term(self) -> int:
        brokers = self._group_of_brokers.brokers
        files = [broker.store / f"dledger-{member}" / "currterm" for member, broker in brokers.items()]
        return max(int(re.findall(r"currTerm=(\d+)", file.read_text())[0]) for file in files if file.exists())


def hand_over(group: DLedgerGroup, to: str) -> None:
    async def ask() -> None:
        client = KnowingClient(group)
        try:
            await client.transfer(to)
        finally:
            await client.close()

    asyncio.run(ask())


def change(group: DLedgerGroup, how: str) -> None:
    """The leader of the group is another one afterwards, and all members run."""
    leader = group.leader()
    if how == "transfer":
        to = next(member for member in group.kinds if member != leader)
        while group.leader() == leader:  # Java's may refuse: the other one is not level
            with contextlib.suppress(MaxQError):
                hand_over(group, to)
            time.sleep(0.2)
        return
    if how == "stop":
        group.brokers[leader].stop()
    else:
        group.brokers[leader].kill()
    group.leader(but=leader)
    group.start_member(leader)


def warm(driver: JavaDriver, producer: str, topic: str) -> None:
    """The topic is made, and the producer knows where it is."""
    end = time.monotonic() + WARM_SECONDS
    while True:
        try:
            driver.call("send", name=producer, topic=topic, count=20, mode="sync", text="warm")
        except DriverError:
            if time.monotonic() > end:
                raise
        else:
            return


def measure(driver: JavaDriver, group: DLedgerGroup, how: str, args: argparse.Namespace) -> dict[str, Any]:
    topic = f"Steady_{how}"
    with driver.client("producer", group=f"PG_{topic}", namesrv=group.namesrv, timeoutMs=3000) as producer:
        warm(driver, producer, topic)
        driver.call("steadyStart", name=producer, topic=topic, threads=args.threads, intervalMs=args.interval)
        time.sleep(SETTLED_SECONDS)
        began_ms = time.time() * 1000
        change(group, how)
        changed_ms = time.time() * 1000
        time.sleep(ROUTE_SECONDS)
        result = driver.call("steadyStop", name=producer)
    failures = result["failures"]
    at = sorted(failure["atMs"] - began_ms for failure in failures)
    return {
        "ok": len(result["acknowledged"]), "failed": len(failures), "longest_ms": result["longestMs"],
        "failing_from_s": round(at[0] / 1000, 2) if at else None,
        "failing_until_s": round(at[-1] / 1000, 2) if at else None,
        "change_s": round((changed_ms - began_ms) / 1000, 2),
        "errors": Counter(failure["error"].split("Send [")[0][:110] for failure in failures).most_common(2),
        "example": failures[0]["error"][:400] if failures else None,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kinds", default="maxq,java")
    parser.add_argument("--how", default="transfer,stop,kill")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="of all brokers")
    parser.add_argument("--interval", type=int, default=10, help="ms between two sends of a thread")
    parser.add_argument("--json", type=Path, help="write the figures, machine and day here")
    args = parser.parse_args()
    rows = []
    jars = rocketmq_jars()
    classes = compiled_drivers(jars)
    with tempfile.TemporaryDirectory(prefix="maxq-java-producers-") as folder:
        driver = JavaDriver(jars, classes, Path(folder) / "driver")
        for kind in args.kinds.split(","):
            settings = dict(text.split("=", 1) for text in args.set)
            group = DLedgerGroup(Path(folder) / kind, (kind, kind, kind), jars, settings)
            try:
                group.start()
                group.leader()
                for how in args.how.split(","):
                    for _ in range(args.rounds):
                        rows.append({"kind": kind, "how": how, **measure(driver, group, how, args)})
                        print(json.dumps(rows[-1]), flush=True)
            finally:
                group.stop()
        driver.close()
    if args.json:
        write_results(args.json, "python benches/java_producers.py", {"rocketmq": ROCKETMQ_VERSION, "rows": rows})


if __name__ == "__main__":
    main()
