"""One process of the generator: a `select` loop over its connections, and the phases that the parent sets."""

import ctypes
import os
import select
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from typing import Any

from benches.load.connections import Connection, Counts, Puller, Sender
from benches.load.frames import SendRing
from benches.load.request import Target

WARMING, MEASURING, STOPPED = 0, 1, 2
_RING_BYTES = 8 << 20
_RING_FRAMES_MAX = 4096
_IDLE_SECONDS = 0.1
_PR_SET_TIMERSLACK = 29


@dataclass(frozen=True)
class Plan:
    """What to generate; times in seconds, sizes in bytes. The names are those of the command's options."""

    mode: str  # send, consume or both
    target: Target
    topic: str = "bench"
    queues: int = 8
    conns: int = 8
    inflight: int = 32
    size: int = 1024
    batch: int = 1
    rate: float = 0.0  # sends a second in all; 0 is a closed loop
    max: int = 32  # messages a pull
    ser: str = "json"
    secs: float = 10.0
    warm: float = 3.0
    processes: int = 1

    @property
    def binary(self) -> bool:
        return self.ser == "rocketmq"


def run_worker(plan: Plan, number: int, sends: bool, phase: Any, results: Pipe) -> None:
    """The body of a worker process: connections `number`, `number + processes`, … of the plan.

    Args:
        sends: this worker sends; otherwise it pulls.
        phase: shared integer, WARMING, MEASURING, STOPPED.
        results: takes one Counts (or an exception's text) at the end.
    """
    with suppress(OSError, AttributeError):  # sleep exactly, not to the next 50 µs
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    try:
        counts = Counts()
        mine = range(number, plan.conns, plan.processes)
        connections = _senders(plan, mine, counts) if sends else _pullers(plan, mine, counts)
        results.send(os.getpid())
        _loop(connections, counts, phase)
        results.send(counts)
    except (OSError, ValueError) as error:
        results.send(f"{type(error).__name__}: {error}")
    finally:
        results.close()


def _senders(plan: Plan, numbers: Sequence[int], counts: Counts) -> list[Connection]:
    frame_bytes = plan.batch * (plan.size + 120) + 400
    count = max(2 * plan.inflight, min(_RING_FRAMES_MAX, _RING_BYTES // frame_bytes))
    interval_ns = int(1e9 * plan.conns * plan.batch / plan.rate) if plan.rate else 0
    connections: list[Connection] = []
    for number in numbers:
        ring = SendRing(
            topic=plan.topic,
            queues=plan.queues,
            connection=number,
            size=plan.size,
            batch=plan.batch,
            count=count,
            binary=plan.binary,
            now_ms=time.time_ns() // 1_000_000,
        )
        sender = Sender(
            plan.target.address,
            ring,
            inflight=plan.inflight,
            interval_ns=interval_ns,
            batch=plan.batch,
            stamped=plan.mode == "both",
            counts=counts,
        )
        if interval_ns:  # connections take turns instead of all sending at once
            sender.due_ns = time.time_ns() + interval_ns * number // plan.conns
        connections.append(sender)
    return connections


def _pullers(plan: Plan, numbers: Sequence[int], counts: Counts) -> list[Connection]:
    connections: list[Connection] = []
    for number in numbers:
        queues = range(number, plan.queues, plan.conns)
        if not queues:
            continue
        tail = plan.mode == "both"
        ends = [plan.target.max_offset(plan.topic, queue) if tail else 0 for queue in queues]
        connections.append(
            Puller(
                plan.target.address,
                topic=plan.topic,
                queues=queues,
                ends=ends,
                tail=tail,
                maximum=plan.max,
                binary=plan.binary,
                counts=counts,
            )
        )
    return connections


def _loop(connections: Sequence[Connection], counts: Counts, phase: Any) -> None:
    """Until the phase is STOPPED. Times are wall nanoseconds, because they go from one process to another."""
    while phase.value != STOPPED:
        counts.measuring = phase.value == MEASURING
        now_ns = time.time_ns()
        wait_ns = int(_IDLE_SECONDS * 1e9)
        for connection in connections:
            connection.refill(now_ns)
            if isinstance(connection, Sender) and connection.due_ns and connection.may_send:
                wait_ns = min(wait_ns, connection.due_ns - now_ns)
        blocked = [connection for connection in connections if connection.wants_to_write]
        readable, writable, _ = select.select(connections, blocked, (), max(wait_ns, 0) / 1e9)
        now_ns = time.time_ns()
        for connection in readable:
            connection.now_ns = now_ns
            connection.receive()
        for connection in writable:
            connection.on_writable()
