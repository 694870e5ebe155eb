"""The workloads that figures are published for; the names are those of the project's table of figures."""

from typing import Any

from benches.load.request import Target
from benches.load.worker import Plan

WORKLOADS: dict[str, dict[str, Any]] = {
    "send_1k": {"mode": "send", "conns": 8, "inflight": 32, "size": 1024},
    "send_1k_bin": {"mode": "send", "conns": 8, "inflight": 32, "size": 1024, "ser": "rocketmq"},
    "send_100": {"mode": "send", "conns": 8, "inflight": 32, "size": 100},
    "send_batch32": {"mode": "send", "conns": 4, "inflight": 8, "size": 1024, "batch": 32},
    "sync_1": {"mode": "send", "conns": 1, "inflight": 1, "size": 1024},
    "sync_64": {"mode": "send", "conns": 64, "inflight": 1, "size": 1024},
    "rate_15k": {"mode": "send", "conns": 8, "inflight": 64, "size": 1024, "rate": 15_000.0},
    "rate_5k_e2e": {"mode": "both", "conns": 4, "inflight": 64, "size": 1024, "rate": 5_000.0},
    "consume": {"mode": "consume", "conns": 8, "max": 32},
    "both": {"mode": "both", "conns": 4, "inflight": 32, "size": 1024},
}


def plan_of(name: str, target: Target, *, secs: float, warm: float) -> Plan:
    """The plan of a named workload; KeyError if there is none."""
    return Plan(target=target, secs=secs, warm=warm, **WORKLOADS[name])
