"""Runs a plan: starts the workers, watches the clock and the CPU times, and makes one JSON-ready result."""

import multiprocessing
import os
import platform
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benches.load.connections import Counts
from benches.load.histogram import Histogram
from benches.load.worker import MEASURING, STOPPED, WARMING, Plan, run_worker

_TICKS = os.sysconf("SC_CLK_TCK")
_SHOWN_SETTINGS = (
    "brokerName",
    "flushDiskType",
    "messageIndexEnable",
    "brokerRole",
    "mappedFileSizeCommitLog",
    "rocketmqVersion",
)


class LoadError(Exception):
    """The generator could not run: the text says why."""


def measure(plan: Plan, server_pids: Sequence[int]) -> dict[str, Any]:
    """Generate the plan's load and say what came of it.

    Args:
        server_pids: processes whose CPU time and private memory belong to the server; may be empty.

    Returns:
        the options, rates per second, latencies in µs, server CPU in µs a message and cores, RssAnon in MiB, the
        generator's own CPU, the machine and the broker's settings.

    Raises:
        LoadError: a worker failed. RefusedError, OSError: the broker did not do what the preparation asks.
    """
    plan.target.create_topic(plan.topic, plan.queues)
    context = multiprocessing.get_context("fork")
    phase = context.RawValue("i", WARMING)
    workers = []
    for sends in (True, False):
        if plan.mode != ("consume" if sends else "send"):
            for number in range(plan.processes):
                ours, theirs = context.Pipe()
                process = context.Process(target=run_worker, args=(plan, number, sends, phase, theirs), daemon=True)
                process.start()
                theirs.close()
                workers.append((process, ours))
    try:
        pids = [_pid_of(pipe) for _, pipe in workers]
        time.sleep(plan.warm)
        before, own_before, started = cpu_seconds_of(server_pids), cpu_seconds_of(pids), time.monotonic()
        phase.value = MEASURING
        time.sleep(plan.secs)
        # CPU is read while the load still runs, so that it covers the same span as the counts.
        after, own_after, seconds = cpu_seconds_of(server_pids), cpu_seconds_of(pids), time.monotonic() - started
        memory = _rss_anon_mib(server_pids)
        phase.value = STOPPED
        counts = [_counts_of(pipe) for _, pipe in workers]
    finally:
        phase.value = STOPPED
        for process, _ in workers:
            process.join(10)
            if process.is_alive():
                process.kill()
    result = _summary(plan, counts, seconds)
    messages = sum(count.sent + count.received for count in counts)
    result["generator"] = _cpu_facts(own_after - own_before, seconds, messages) | {"processes": len(workers)}
    if server_pids:
        result |= {f"server_{name}": value for name, value in _cpu_facts(after - before, seconds, messages).items()}
        result["server_rss_anon_mb"] = memory
    return result | {"machine": machine(), "settings": _settings(plan)}


def _pid_of(pipe: Any) -> int:
    said = pipe.recv()
    if isinstance(said, str):
        raise LoadError(said)
    return int(said)


def _counts_of(pipe: Any) -> Counts:
    said = pipe.recv()
    if not isinstance(said, Counts):
        raise LoadError(str(said))
    return said


def _summary(plan: Plan, counts: Sequence[Counts], seconds: float) -> dict[str, Any]:
    options = {
        name: getattr(plan, name) for name in ("mode", "conns", "inflight", "size", "batch", "ser", "rate", "max")
    }
    result: dict[str, Any] = options | {"secs": round(seconds, 2)}
    if plan.mode != "consume":
        result["sent_per_s"] = round(sum(count.sent for count in counts) / seconds)
        result["send_us"] = _merged([count.send_latency for count in counts]).summary()
        if plan.rate:
            result["generator_late_us"] = _merged([count.lateness for count in counts]).summary()
    if plan.mode != "send":
        result["received_per_s"] = round(sum(count.received for count in counts) / seconds)
    if plan.mode == "both":
        result["e2e_us"] = _merged([count.end_to_end for count in counts]).summary()
    result["errors"] = sum(count.errors for count in counts)
    errors = [count.last_error for count in counts if count.last_error]
    return result | ({"last_error": errors[-1]} if errors else {})


def _merged(histograms: Sequence[Histogram]) -> Histogram:
    merged = Histogram()
    for histogram in histograms:
        merged.merge(histogram.counts)
    return merged


def _cpu_facts(cpu_seconds: float, seconds: float, messages: int) -> dict[str, float]:
    facts = {"cpu_s": round(cpu_seconds, 2), "cores": round(cpu_seconds / seconds, 2)}
    return facts | ({"cpu_us_per_msg": round(cpu_seconds / messages * 1e6, 2)} if messages else {})


def cpu_seconds_of(pids: Sequence[int]) -> float:
    """Return the user and system seconds of these processes so far."""
    ticks = 0
    for pid in pids:
        facts = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        ticks += int(facts[11]) + int(facts[12])
    return ticks / _TICKS


def _rss_anon_mib(pids: Sequence[int]) -> int:
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                total += int(line.split()[1])
    return round(total / 1024)


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    model = platform.processor()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def _settings(plan: Plan) -> Mapping[str, str]:
    found = plan.target.settings()
    return {name: found[name] for name in _SHOWN_SETTINGS if name in found}
