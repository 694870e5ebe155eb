#!/usr/bin/env python3
"""A slave that lags: how fast it catches up, how far it is behind under full load, what readers at it cost its master.

    python benches/ha_lag.py catch-up|lag|cold [--of floor,java,maxq] [--gib 1] [--secs 10] [--touch 8]
    python benches/ha_lag.py cold-closed [--of maxq] [--gib 2] [--secs 8] [--rounds 3] [--pin]

One JSON object a line. What a slave lacks is read from its master (request 907), so Java and MaxQ are measured alike.
`floor` is what the machine can do at catching up: one process sends a file, another receives 1 MiB at a time into a
buffer that it uses again, and writes it to a file with `pwrite`; no records, no checks. `--touch` GiB of memory are
written to and given back before each row: memory that the host has taken back meanwhile costs up to 2.6 µs a KiB at its
first touch.

`cold` sends at a fixed rate. `cold-closed` sends as fast as the master takes it (8 × 32 in flight), in turns alone
and with four readers of old messages at the slave, whose log is really cold: before each reading the slave is
stopped, its files are written out and dropped from the page cache (POSIX_FADV_DONTNEED; what a process has mapped
cannot be dropped), and it is started again; `slave_read_mib_per_s` says what then came from the disk. Master, slave,
generator and readers share this machine's cores: `--pin` gives master and generator the first one and slave and
readers the second, so that what is left of the difference is memory and disk, as on machines of their own; the
master's CPU a message holds either way.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the tests' way to the jars and to servers is ours

from tests.interop.processes.peers import rocketmq_jars
from tests.interop.processes.servers import (
    Broker,
    JavaBroker,
    MaxqBroker,
    MaxqNamesrv,
    free_port_base,
    java_command,
    wait_until,
)

from benches.load.frames import encode
from benches.load.measure import measure
from benches.load.request import Target
from benches.load.worker import Plan
from maxq.protocol.body.ha_runtime_info import HARuntimeInfo

GET_BROKER_HA_STATUS = 907
JAVA_HEAP = ("-server", "-Xms768m", "-Xmx768m", "-XX:+UseG1GC", "-XX:MaxDirectMemorySize=2g")
JAVA_WARM_SECONDS = 25.0
MAXQ_WARM_SECONDS = 5.0
LINK_SECONDS = 60.0
CATCH_UP_SECONDS = 120.0
COLD_RATE = 5_000.0
PULLERS = 4
POLL_SECONDS = 0.02
SETTINGS = {
    "brokerIP2": "127.0.0.1",
    "mappedFileSizeCommitLog": str(1 << 30),
    "mappedFileSizeConsumeQueue": "6000000",
    "maxHashSlotNum": "5000000",
    "maxIndexNum": "20000000",
    "slaveReadEnable": "true",
    "sendMessageThreadPoolNums": "4",
    "useReentrantLockWhenPutMessage": "true",
    "waitTimeMillsInSendQueue": "20000",
}


class BenchJavaBroker(JavaBroker):
    """Java's, with the heap and the compiler of a server."""

    def launch(self, command: list[str]) -> None:
        conf = str(self.folder / "broker.conf")
        main = "org.apache.rocketmq.broker.BrokerStartup"
        super().launch(java_command(rocketmq_jars(), self.folder, JAVA_HEAP, main, "-c", conf))


class HAStatus:
    """What a master says of its only slave, over one connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._stream = self._socket.makefile("rb")
        self._request = encode(1, GET_BROKER_HA_STATUS, {}, b"", binary=False)

    def read(self) -> tuple[int, int]:
        """(the master's end, the end that its slave has reported; -1 without one)."""
        self._socket.sendall(self._request)
        frame = self._stream.read(int.from_bytes(self._stream.read(4), "big"))
        header = int.from_bytes(frame[:4], "big") & 0xFFFFFF
        info = HARuntimeInfo.decode(frame[4 + header :])
        acks = [slave.slave_ack_offset for slave in info.ha_connection_info]
        return info.master_commit_log_max_offset, max(acks, default=-1)


class Pair:
    """An asynchronous master and its slave, of one kind."""

    def __init__(self, kind: str, folder: Path, settings: dict[str, str]) -> None:
        self.kind = kind
        self._settings = {**SETTINGS, **settings}
        self.folder = folder
        make = BenchJavaBroker if kind == "java" else MaxqBroker
        self._namesrv = MaxqNamesrv(folder / "namesrv", free_port_base())
        self.master: Broker = make(folder / "master", free_port_base())
        self.slave: Broker = make(folder / "slave", free_port_base())

    def start(self) -> None:
        self._namesrv.start()
        self._start(self.master, {"brokerId": "0", "brokerRole": "ASYNC_MASTER"})
        self.start_slave()
        Target("127.0.0.1", self.master.port).create_topic("bench", 8)
        self.send(secs=0.2, rate=100.0)
        self.status = HAStatus(self.master.port)
        wait_until(lambda: not self.gap(), LINK_SECONDS, "the slave has all")

    def start_slave(self) -> None:
        self._start(self.slave, {"brokerId": "1", "brokerRole": "SLAVE"})

    def _start(self, broker: Broker, own: dict[str, str]) -> None:
        settings = {**self._settings, **own}
        if isinstance(broker, JavaBroker):
            broker.start(rocketmq_jars(), self._namesrv.address, settings)
        elif isinstance(broker, MaxqBroker):
            broker.start(self._namesrv.address, settings)

    def gap(self) -> int:
        end, reported = self.status.read()
        return end - reported if reported >= 0 else end

    def pids(self) -> list[int]:
        return [broker.process.pid for broker in (self.master, self.slave) if broker.process is not None]

    def send(self, *, secs: float, warm: float = 0.0, rate: float = 0.0, batch: int = 1) -> dict[str, Any]:
        """8 × 32 in flight, 1 KiB; with `rate` an open loop. The CPU time is the master's."""
        target = Target("127.0.0.1", self.master.port)
        inflight = 32 if batch == 1 else 8
        plan = Plan("send", target, inflight=inflight, secs=secs, warm=warm, rate=rate, batch=batch)
        return measure(plan, self.pids()[:1])

    def warm_up(self) -> None:
        self.send(secs=0.1, warm=JAVA_WARM_SECONDS if self.kind == "java" else MAXQ_WARM_SECONDS)
        wait_until(lambda: not self.gap(), LINK_SECONDS, "the slave has all")

    def stop(self) -> None:
        for server in (self.slave, self.master, self._namesrv):
            server.kill()


@contextmanager
def pair_of(kind: str, settings: dict[str, str] | None = None) -> Iterator[Pair]:
    folder = Path(tempfile.mkdtemp(prefix="ha-lag-"))
    pair = Pair(kind, folder, settings or {})
    try:
        pair.start()
        yield pair
    finally:
        pair.stop()
        shutil.rmtree(folder, ignore_errors=True)


def touch(gib: int) -> None:
    """Have the host back so much memory with pages, and give them back to the kernel."""
    code = f"held = [b'x' * (1 << 30) for _ in range({gib})]"
    subprocess.run([sys.executable, "-c", code], check=True)


def cpu_seconds(pid: int) -> float:
    facts = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(facts[11]) + int(facts[12])) / os.sysconf("SC_CLK_TCK")


def catch_up(kind: str, options: argparse.Namespace) -> dict[str, Any]:
    """A slave that was killed comes back when its master has `--gib` more."""
    with pair_of(kind) as pair:
        if kind == "java" and not options.quick:
            pair.warm_up()
        pair.slave.kill()
        start, _ = pair.status.read()
        while pair.status.read()[0] < start + options.gib * (1 << 30):
            pair.send(secs=1, batch=32)
        touch(options.touch)
        begun = time.monotonic()
        master_before = cpu_seconds(pair.pids()[0])
        pair.start_slave()
        began = time.monotonic()
        first, at = 0.0, 0
        while True:
            end, reported = pair.status.read()
            now = time.monotonic()
            if not first and reported > start + (1 << 20):
                first, at = now, reported
            if reported >= end:
                break
            if now > began + CATCH_UP_SECONDS:
                raise SystemExit(f"{kind}: the slave lacks {end - reported} bytes after {CATCH_UP_SECONDS} s")
            time.sleep(POLL_SECONDS)
        return {
            "bytes": end - start,
            "mb_per_s_from_first_byte": round((end - at) / (now - first) / 1e6) if now > first else None,
            "s_from_first_byte": round(now - first, 2),
            "s_with_start": round(now - begun, 2),
            "slave_cpu_s": round(cpu_seconds(pair.pids()[1]), 2),  # with its start
            "master_cpu_s": round(cpu_seconds(pair.pids()[0]) - master_before, 2),
        }


def floor(options: argparse.Namespace) -> dict[str, Any]:
    """Socket to file, nothing else."""
    folder = Path(tempfile.mkdtemp(prefix="ha-lag-"))
    try:
        source, copy, size = folder / "source", folder / "copy", int(options.gib * (1 << 30))
        with open(source, "wb") as file:
            for _ in range(size >> 20):
                file.write(bytes(1 << 20))
        touch(options.touch)
        listener = socket.create_server(("127.0.0.1", 0))
        sender = multiprocessing.get_context("fork").Process(target=_send_file, args=(listener, source), daemon=True)
        sender.start()
        began = time.monotonic()
        received = _receive_file(listener.getsockname()[1], copy, size)
        seconds = time.monotonic() - began
        sender.join()
        return {"bytes": received, "mb_per_s": round(received / seconds / 1e6), "s": round(seconds, 2)}
    finally:
        shutil.rmtree(folder)


def _send_file(listener: socket.socket, source: Path) -> None:
    with open(source, "rb") as file, listener.accept()[0] as connection:
        connection.sendfile(file)


def _receive_file(port: int, copy: Path, size: int) -> int:
    buffer = memoryview(bytearray(1 << 20))
    position = 0
    with socket.create_connection(("127.0.0.1", port)) as connection, open(copy, "wb", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, size)
        while count := connection.recv_into(buffer):
            os.pwrite(file.fileno(), buffer[:count], position)
            position += count
    return position


def lag(kind: str, options: argparse.Namespace) -> dict[str, Any]:
    """8 × 32 sends in flight; what the slave lacks is asked for every 20 ms."""
    with pair_of(kind) as pair:
        pair.warm_up()
        touch(options.touch)
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        watcher = context.Process(target=_watch, args=(pair.master.port, options.secs, theirs), daemon=True)
        watcher.start()
        result = pair.send(secs=options.secs, warm=1.0)
        samples: list[tuple[float, int, int]] = ours.recv()
        watcher.join()
        ended = time.monotonic()
        wait_until(lambda: not pair.gap(), LINK_SECONDS, "the slave has all")
        gaps = [end - reported for _, end, reported in samples]
        return {
            "sent_per_s": result["sent_per_s"],
            "gap_bytes": spread(gaps),
            "gap_ms": spread(ages_ms(samples)),
            "ms_to_equal_after_the_load": round((time.monotonic() - ended) * 1000),
        }


def _watch(port: int, secs: float, results: Any) -> None:
    status = HAStatus(port)
    samples = []
    time.sleep(1.5)
    end = time.monotonic() + secs
    while time.monotonic() < end:
        samples.append((time.monotonic(), *status.read()))
        time.sleep(POLL_SECONDS)
    results.send(samples)


def ages_ms(samples: list[tuple[float, int, int]]) -> list[float]:
    """How long ago the master's log ended where the slave's ends, for each sample; to the next earlier sample."""
    ages, earlier = [], 0
    for at, _, reported in samples:
        while earlier + 1 < len(samples) and samples[earlier + 1][1] <= reported:
            earlier += 1
        ages.append(max(0.0, at - samples[earlier][0]) * 1000 if samples[earlier][1] <= reported else 0.0)
    return ages


def spread(values: list[int] | list[float]) -> dict[str, int]:
    cuts = quantiles(values, n=100)
    return {"p50": round(cuts[49]), "p99": round(cuts[98]), "max": round(max(values))}


def cold(kind: str, options: argparse.Namespace) -> dict[str, Any]:
    """Sends at a fixed rate: alone, with four readers of old messages at the slave, with the same readers at the
    master."""
    with pair_of(kind) as pair:
        pair.warm_up()
        before = pair.status.read()[0]
        while pair.status.read()[0] < before + options.gib * (1 << 30):
            pair.send(secs=1, batch=32)
        wait_until(lambda: not pair.gap(), LINK_SECONDS, "the slave has all")
        touch(options.touch)
        found: dict[str, Any] = {"alone": _sends(pair, options.secs)}
        for name, broker in (("readers_at_slave", pair.slave), ("readers_at_master", pair.master)):
            with readers(broker.port, options.secs + 3) as pulled:
                found[name] = _sends(pair, options.secs)
            found[name]["pulled_per_s"] = pulled()
        return found


def cold_closed(kind: str, options: argparse.Namespace) -> dict[str, Any]:
    """See the module: the rate with cold readers at the slave over the rate alone."""
    with pair_of(kind, {"mappedFileSizeCommitLog": str(64 << 20)}) as pair:  # a start reads the last three files
        pair.warm_up()
        before = pair.status.read()[0]
        while pair.status.read()[0] < before + options.gib * (1 << 30):
            pair.send(secs=1, batch=32)
        wait_until(lambda: not pair.gap(), LINK_SECONDS, "the slave has all")
        rounds = []
        for _ in range(options.rounds):
            resident = chill(pair)
            if options.pin:
                pin(pair)
            alone = _sends(pair, options.secs, rate=0.0)
            read = disk_reads(pair)
            with readers(pair.slave.port, options.secs + 3, core=1 if options.pin else None) as pulled:
                with_readers = _sends(pair, options.secs, rate=0.0)
            with_readers["pulled_per_s"] = pulled()
            with_readers["slave_read_mib_per_s"] = round((disk_reads(pair) - read) / (options.secs + 2) / (1 << 20))
            ratio = round(with_readers["sent_per_s"] / alone["sent_per_s"], 3)
            rounds.append({"resident": resident, "alone": alone, "readers_at_slave": with_readers, "ratio": ratio})
            print(json.dumps(rounds[-1]), file=sys.stderr, flush=True)
            wait_until(lambda: not pair.gap(), LINK_SECONDS, "the slave has all")
        ratios = sorted(one["ratio"] for one in rounds)
        return {"pinned": options.pin, "rate_ratio_median": ratios[len(ratios) // 2], "must": 0.95, "rounds": rounds}


def chill(pair: Pair) -> float:
    """Stop the slave, drop its log from the page cache, start it; the part of the log that is in memory then."""
    pair.slave.stop()
    os.sync()
    files = sorted(pair.slave.folder.glob("**/commitlog/*"))
    for path in files:
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    pair.start_slave()
    wait_until(lambda: not pair.gap(), LINK_SECONDS, "the slave has all")
    told = subprocess.run(["fincore", "-b", "-n", "-r", "-o", "RES,SIZE", *files], capture_output=True, text=True)
    pages = [[int(number) for number in line.split()] for line in told.stdout.splitlines()]
    return round(sum(page[0] for page in pages) / max(sum(page[1] for page in pages), 1), 3)


def pin(pair: Pair) -> None:
    """Master and generator to the first core, the slave to the second."""
    for core, pid in enumerate(pair.pids()):
        for task in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), {core})
    os.sched_setaffinity(0, {0})


def disk_reads(pair: Pair) -> int:
    """Bytes that the slave has had read from a disk."""
    io = Path(f"/proc/{pair.pids()[1]}/io").read_text()
    return int(io.partition("\nread_bytes: ")[2].split()[0])


def _sends(pair: Pair, secs: float, rate: float = COLD_RATE) -> dict[str, Any]:
    result = pair.send(secs=secs, warm=1.0, rate=rate)
    names = ("sent_per_s", "send_us", "server_cpu_us_per_msg")
    return {name: result[name] for name in names}


@contextmanager
def readers(port: int, secs: float, core: int | None = None) -> Iterator[Callable[[], int]]:
    """Pulls of 32 from offset 0 on, closed loop; gives what says how many messages a second came."""
    command = [] if core is None else ["taskset", "-c", str(core)]
    command += [sys.executable, "-m", "benches.load", "consume", "--address", f"127.0.0.1:{port}"]
    command += ["--conns", str(PULLERS), "--secs", str(secs - 1), "--warm", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1])
    try:
        yield lambda: int(json.loads(process.communicate()[0])["received_per_s"])
    finally:
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", choices=["catch-up", "lag", "cold", "cold-closed"])
    parser.add_argument("--of", default="java,maxq", help="of floor (catch-up only), java, maxq")
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--secs", type=float, default=10.0)
    parser.add_argument("--touch", type=int, default=0, help="GiB of memory to write to before")
    parser.add_argument("--rounds", type=int, default=3, help="of cold-closed")
    parser.add_argument("--pin", action="store_true", help="cold-closed: a core for the master, one for the slave")
    parser.add_argument("--quick", action="store_true", help="no warm-up of the JVM before a catch-up")
    options = parser.parse_args()
    benches = {"catch-up": catch_up, "lag": lag, "cold": cold, "cold-closed": cold_closed}
    for kind in options.of.split(","):
        result = floor(options) if kind == "floor" else benches[options.what](kind, options)
        print(json.dumps({"what": options.what, "of": kind, "touched_gib": options.touch, **result}), flush=True)


if __name__ == "__main__":
    main()
