#!/usr/bin/env python3
"""Consumers far behind: what they read is on the disk alone. MaxQ beside Apache RocketMQ, in alternation.

    python benches/cold_reads.py [--of java,maxq] [--sizes 1024,100] [--rounds 3] [--json FILE]

Both brokers serve the same files, one after the other: a topic of 8 queues, sent to singly and in turn, so that what
one queue has of the log are islands. accessMessageInMemoryMaxRatio is small enough for most of the log to count as
lying on the disk; before each measurement that part is dropped from the page cache (POSIX_FADV_DONTNEED: no process
has it mapped, for the broker was started since and has read the newest part alone, as its warm-up). One reader pulls
the eight queues in turn, eight readers one each; every pull asks for 32 messages, one in flight. `cold_share` is how
much of the old part was out of memory when a measurement began: all of it, then the half that was not read yet.
"""

import argparse
import json
import os
import selectors
import shutil
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the tests' way to the jars is ours

from tests.interop.processes.peers import ROCKETMQ_VERSION, rocketmq_jars

from benches.compare_java import JavaServer
from benches.load.frames import encode, ext_field
from benches.load.measure import cpu_seconds_of, measure
from benches.load.request import Target
from benches.load.worker import Plan
from benches.results_file import write_results
from maxq.testing.server_process import StandaloneProcess

PULL = 11
QUEUES = 8
BATCH = 32  # messages a pull asks for
FILE_BYTES = 256 << 20
NEWEST_BYTES = 1 << 30  # of the log: not read, for servers look at its end when they start
MEMORY_PERCENT = 3
PIECE = 1 << 20
GIB = {1024: 4.0, 100: 2.5}
WARM_SECONDS = {"java": 20.0, "maxq": 3.0}
SETTINGS = {
    "mappedFileSizeCommitLog": str(FILE_BYTES),
    "accessMessageInMemoryMaxRatio": str(MEMORY_PERCENT),
    "fileReservedTime": "720",
}


class Reader:
    """One connection that pulls its queues in turn, one request at a time."""

    def __init__(self, address: tuple[str, int], topic: str, queues: Sequence[int], offsets: dict[int, int]) -> None:
        self.socket = socket.create_connection(address, timeout=60)
        self.received = self.pulls = 0
        self.is_done = False
        self._topic, self._queues, self._offsets = topic, list(queues), offsets
        self._current = 0
        self._buffer = bytearray(1 << 20)
        self._view = memoryview(self._buffer)
        self._held = 0

    def ask(self, ends: Mapping[int, int]) -> None:
        queue = self._queues[self._current]
        if self._offsets[queue] >= ends[queue]:
            self.is_done = True
            return
        fields = {
            "consumerGroup": "bench_group",
            "topic": self._topic,
            "queueId": str(queue),
            "queueOffset": str(self._offsets[queue]),
            "maxMsgNums": str(BATCH),
            "sysFlag": "4",
            "commitOffset": "0",
            "suspendTimeoutMillis": "15000",
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
        }
        self.socket.sendall(encode(self.pulls, PULL, fields, b"", binary=False))
        self.pulls += 1

    def receive(self, ends: Mapping[int, int]) -> None:
        got = self.socket.recv_into(self._view[self._held :])
        if not got:
            raise ConnectionError("the broker closed a reader's connection")
        self._held += got
        if self._held < 4 or self._held < 4 + int.from_bytes(self._buffer[:4], "big"):
            return
        queue = self._queues[self._current]
        header = int.from_bytes(self._buffer[4:8], "big") & 0xFFFFFF
        goes_on_at = int(ext_field(bytes(self._buffer[: 8 + header]), "nextBeginOffset") or 0)
        if self._held == 8 + header:
            raise ConnectionError(f"no messages at {self._offsets[queue]}: {self._buffer[8 : self._held]!r}")
        self.received += goes_on_at - self._offsets[queue]
        self._offsets[queue] = goes_on_at
        self._held = 0
        self._current = (self._current + 1) % len(self._queues)
        self.ask(ends)


def read(target: Target, topic: str, readers: int, offsets: dict[int, int], ends: Mapping[int, int]) -> tuple[int, int]:
    """Read all queues from `offsets`, which move on, until the first has come to its end; messages and pulls."""
    watched = selectors.DefaultSelector()
    all_readers = [Reader(target.address, topic, range(number, QUEUES, readers), offsets) for number in range(readers)]
    for reader in all_readers:
        watched.register(reader.socket, selectors.EVENT_READ, reader)
        reader.ask(ends)
    while not any(reader.is_done for reader in all_readers):
        for key, _ in watched.select():
            key.data.receive(ends)
    for reader in all_readers:
        reader.socket.close()
    return sum(reader.received for reader in all_readers), sum(reader.pulls for reader in all_readers)


def files_of(store: Path) -> list[Path]:
    """The files of the log."""
    return sorted((store / "commitlog").iterdir())


def drop(store: Path, log_bytes: int) -> float:
    """Drop the old part of the log and all queues from the page cache; the share of the old part that is out."""
    there = looked = 0
    for path in (*files_of(store), *(found for found in (store / "consumequeue").rglob("*") if found.is_file())):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            if path.parent.name == "commitlog" and int(path.name) + FILE_BYTES <= log_bytes - NEWEST_BYTES:
                for position in range(0, FILE_BYTES, PIECE):
                    looked += 1
                    there += is_there(descriptor, position)
        finally:
            os.close(descriptor)
    return round(1 - there / max(1, looked), 3)


def is_there(descriptor: int, position: int) -> bool:
    try:
        return os.preadv(descriptor, [bytearray(1)], position, os.RWF_NOWAIT) == 1
    except BlockingIOError:
        return False


def disk_bytes(pid: int) -> int:
    """What this process had the disk read, bytes."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("read_bytes:")).split()[1])


def make_store(folder: Path, size: int) -> int:
    """Send until the log has its size; its end, bytes."""
    topic, server = f"Cold{size}", StandaloneProcess(SETTINGS, folder=folder)
    with server:
        target = Target.at(server.broker_address)
        while (end := log_end(server.store)) < GIB[size] * (1 << 30):
            plan = Plan(mode="send", target=target, topic=topic, conns=8, inflight=32, size=size, secs=3, warm=0)
            measure(plan, [])
    os.sync()
    return end


def log_end(store: Path) -> int:
    """About where the log ends: the allocated bytes of its files."""
    return sum(path.stat().st_blocks * 512 for path in files_of(store)) if (store / "commitlog").exists() else 0


class JavaOnStore(JavaServer):
    """Apache RocketMQ on a store that is there."""

    def __init__(self, jars: Path, store: Path) -> None:
        places = {"storePathRootDir": str(store), "storePathCommitLog": str(store / "commitlog")}
        super().__init__(jars, SETTINGS | places)


def one_round(kind: str, folder: Path, size: int, log_bytes: int) -> list[dict[str, Any]]:
    """One reader on the first half of the old part, eight on the second."""
    store, topic, rows = folder / "store", f"Cold{size}", []
    drop(store, log_bytes)
    server: Any = JavaOnStore(rocketmq_jars(), store) if kind == "java" else StandaloneProcess(SETTINGS, folder=folder)
    with server:
        target = Target.at(server.broker_address)
        maximum = {queue: target.max_offset(topic, queue) for queue in range(QUEUES)}
        old = {queue: int(end * (1 - NEWEST_BYTES / log_bytes)) for queue, end in maximum.items()}
        newest = {queue: int(end * (1 - NEWEST_BYTES / log_bytes / 2)) for queue, end in maximum.items()}
        warm_until = time.monotonic() + WARM_SECONDS[kind]
        while time.monotonic() < warm_until:
            for readers in (1, 8):
                read(target, topic, readers, dict(newest), {q: end - BATCH for q, end in maximum.items()})
        offsets = dict.fromkeys(range(QUEUES), 0)
        for readers, share in ((1, 0.5), (8, 1.0)):
            cold = drop(store, log_bytes)
            ends = {queue: int(end * share) for queue, end in old.items()}
            cpu, disk, began = cpu_seconds_of([server.pid]), disk_bytes(server.pid), time.monotonic()
            messages, pulls = read(target, topic, readers, offsets, ends)
            seconds = time.monotonic() - began
            rows.append(
                {
                    "server": kind,
                    "size": size,
                    "readers": readers,
                    "received_per_s": round(messages / seconds),
                    "server_cpu_us_per_msg": round((cpu_seconds_of([server.pid]) - cpu) * 1e6 / messages, 2),
                    "messages_per_pull": round(messages / pulls, 1),
                    "disk_mb_per_s": round((disk_bytes(server.pid) - disk) / seconds / 1e6),
                    "cold_share": cold,
                    "seconds": round(seconds, 1),
                }
            )
            print(json.dumps(rows[-1]), flush=True)
            # What was asked for ahead of the reader is not read again.
            offsets.update({queue: end + 20_000 for queue, end in ends.items()})
    return rows


def medians(rows: Sequence[Mapping[str, Any]], kinds: Sequence[str]) -> list[dict[str, Any]]:
    """For each size and number of readers: the servers' medians, and the median of the rounds' ratios."""
    table = []
    for size, readers in sorted({(row["size"], row["readers"]) for row in rows}):
        mine = [row for row in rows if (row["size"], row["readers"]) == (size, readers)]
        line: dict[str, Any] = {"size": size, "readers": readers}
        for name in ("received_per_s", "server_cpu_us_per_msg"):
            values = {kind: [row[name] for row in mine if row["server"] == kind] for kind in kinds}
            line[name] = {kind: statistics.median(found) for kind, found in values.items()}
            if len(kinds) == 2:
                ratios = [b / a for a, b in zip(*values.values(), strict=True)]
                line[name]["ratio"] = round(statistics.median(ratios), 2)
                line[name]["from_to"] = [round(min(ratios), 2), round(max(ratios), 2)]
        table.append(line)
    return table


def main() -> None:
    """Fill a store for each size, read it by turns."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--of", default="java,maxq", help="servers, in this order")
    parser.add_argument("--sizes", default="1024,100", help="body bytes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="keep the stores here and use those that are there")
    parser.add_argument("--json", type=Path, help="write everything measured here")
    options = parser.parse_args()
    kinds, rows = options.of.split(","), []
    folder = options.folder or Path(tempfile.mkdtemp(prefix="cold-"))
    try:
        for size in map(int, options.sizes.split(",")):
            mine = folder / str(size)
            log_bytes = log_end(mine / "store")
            if not log_bytes:
                log_bytes = make_store(mine, size)
            for _ in range(options.rounds):
                for kind in kinds:
                    rows += one_round(kind, mine, size, log_bytes)
    finally:
        if not options.folder:
            shutil.rmtree(folder, ignore_errors=True)
    table = medians(rows, kinds)
    for line in table:
        print(json.dumps(line))
    if options.json:
        about = {"rocketmq": ROCKETMQ_VERSION, "medians": table, "rounds": rows}
        write_results(options.json, "python benches/cold_reads.py", about)


if __name__ == "__main__":
    main()
