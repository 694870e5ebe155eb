#!/usr/bin/env python3
"""Messages with a delivery time, MaxQ and Apache RocketMQ on this machine: how late they come, what waiting ones cost.

    python benches/timers.py all [--messages 1000000]           # both, Java's broker first; prints the ratios
    python benches/timers.py lateness ours|java [--rate 2000] [--secs 15]
    python benches/timers.py pending ours|java [--messages 1000000] [--spread 86400]

lateness: sends at a steady rate, each due a random 3 to 6 s later to the millisecond, so that as many are due each
second; a consumer waits at the broker. Two figures of each message, both from the moment it asked for: when it was
stored in its topic (the broker's clock), and when the consumer had it. Precision 1 s is the default of both brokers.

pending: so many messages, spread over a day that begins in an hour; when all of them are in the wheel: private memory,
then kill -9, and seconds from the command to the first acknowledged timer message, and to all being known again.
Only the last two need a quiet machine; a million takes Java's broker and ours some minutes each to take in.
"""

import argparse
import asyncio
import json
import os
import random
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.interop.processes.peers import rocketmq_jars

from benches.compare_java import JAVA_WARM_UP_SECONDS, JavaServer, rss_anon_mib
from benches.load.frames import encode
from benches.load.request import RefusedError, Target
from maxq.testing.server_process import StandaloneProcess

TOPIC, GROUP, QUEUES = "BenchTimers", "bench_timer_group", 4
SEND_MESSAGE_V2, PULL_MESSAGE, RUNTIME_INFO = 310, 11, 28
SUSPEND_AND_SUBSCRIBE = "6"
STORE_TIME_AT, BODY_AT = 56, 88
TICK_SECONDS = 0.005
CONNECTIONS, IN_FLIGHT = 8, 32
HOUR_MS = 3_600_000
RESTART_SECONDS = 300.0
_CODE = re.compile(rb'"code":(\d+)')
_NEXT = re.compile(rb'"nextBeginOffset":"?(\d+)')


def send_frame(number: int, due_ms: int) -> bytes:
    """One send; its body says when it is due."""
    properties = f"UNIQ_KEY\x017F0000010000{number:020X}\x02WAIT\x01true\x02TIMER_DELIVER_MS\x01{due_ms}\x02"
    fields = {
        "a": "bench", "b": TOPIC, "c": "TBW102", "d": "4", "e": str(number % QUEUES), "f": "0",
        "g": str(int(time.time() * 1000)), "h": "0", "i": properties, "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    return encode(number % 1_000_000, SEND_MESSAGE_V2, fields, str(due_ms).encode().ljust(100, b"x"), binary=False)


async def frame(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


def check_code(answer: bytes, *allowed: bytes) -> None:
    found = _CODE.search(answer)
    if found is None or found[1] not in allowed:
        raise RefusedError(str(answer[:400]))


# ---- lateness -----------------------------------------------------------------------------------------------------


class Arrivals:
    """What the consumers have: rows of (due ms, stored ms, received ms)."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.rows: list[tuple[int, int, int]] = []

    async def consume(self, queue: int) -> None:
        reader, writer = await asyncio.open_connection(*self._target.address, limit=1 << 22)
        offset = 0
        while True:
            fields = {
                "consumerGroup": GROUP, "topic": TOPIC, "queueId": str(queue), "queueOffset": str(offset),
                "maxMsgNums": "32", "sysFlag": SUSPEND_AND_SUBSCRIBE, "commitOffset": "0", "subVersion": "1",
                "suspendTimeoutMillis": "10000", "subscription": "*", "expressionType": "TAG",
            }  # fmt: skip
            writer.write(encode(1, PULL_MESSAGE, fields, b"", binary=False))
            answer = await frame(reader)
            header = answer[4 : 4 + int.from_bytes(answer[1:4], "big")]
            check_code(header, b"0", b"19", b"20", b"21")
            offset = int(_NEXT.search(header)[1])  # type: ignore[index]
            self._take(answer[4 + len(header) :], int(time.time() * 1000))

    def _take(self, body: bytes, now_ms: int) -> None:
        at = 0
        while at < len(body):
            stored = int.from_bytes(body[at + STORE_TIME_AT : at + STORE_TIME_AT + 8], "big")
            self.rows.append((int(body[at + BODY_AT : at + BODY_AT + 13]), stored, now_ms))
            at += int.from_bytes(body[at : at + 4], "big")


async def send_steadily(target: Target, rate: int, seconds: float) -> None:
    reader, writer = await asyncio.open_connection(*target.address, limit=1 << 22)
    began, sent, answered = time.monotonic(), 0, 0

    async def take_answers() -> None:
        nonlocal answered
        while True:
            check_code(await frame(reader), b"0")
            answered += 1

    answers = asyncio.create_task(take_answers())
    while (passed := time.monotonic() - began) < seconds:
        while sent < passed * rate:
            writer.write(send_frame(sent, int(time.time() * 1000) + random.randrange(3_000, 6_000)))
            sent += 1
        await asyncio.sleep(TICK_SECONDS)
    while answered < sent:
        if answers.done():
            answers.result()
        await asyncio.sleep(TICK_SECONDS)
    answers.cancel()
    writer.close()


async def lateness_of(target: Target, rate: int, warm_seconds: float, seconds: float) -> dict[str, Any]:
    target.create_topic(TOPIC, QUEUES)
    arrivals = Arrivals(target)
    consumers = [asyncio.create_task(arrivals.consume(queue)) for queue in range(QUEUES)]
    from_ms = int((time.time() + 6 + warm_seconds) * 1000)
    to_ms = from_ms + int(seconds * 1000)
    await send_steadily(target, rate, 6 + warm_seconds + seconds - 3)
    await asyncio.sleep(max(0.0, to_ms / 1000 + 3 - time.time()))
    for consumer in consumers:
        if consumer.done():
            consumer.result()
        consumer.cancel()
    rows = [row for row in arrivals.rows if from_ms <= row[0] < to_ms]
    stored = sorted(row[1] - row[0] for row in rows)
    received = sorted(row[2] - row[0] for row in rows)
    return {
        "due": len(rows), "due_per_s": round(len(rows) / seconds), "early": sum(late < 0 for late in stored),
        "stored_late_ms": quantiles(stored), "received_late_ms": quantiles(received),
    }  # fmt: skip


def quantiles(values: list[int]) -> dict[str, int]:
    return {name: values[min(int(len(values) * part), len(values) - 1)] for name, part in _QUANTILES.items()}


_QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "max": 1.0}


# ---- pending ------------------------------------------------------------------------------------------------------


async def fill(target: Target, count: int, spread_ms: int) -> None:
    """`count` messages due at random moments of the time from an hour from now on."""
    begin_ms = int(time.time() * 1000) + HOUR_MS

    async def one(connection: int) -> None:
        reader, writer = await asyncio.open_connection(*target.address, limit=1 << 22)
        numbers = iter(range(connection, count, CONNECTIONS))
        while window := [number for _, number in zip(range(IN_FLIGHT), numbers, strict=False)]:
            writer.write(b"".join(send_frame(number, begin_ms + random.randrange(spread_ms)) for number in window))
            for _ in window:
                check_code(await frame(reader), b"0")
        writer.close()

    await asyncio.gather(*map(one, range(CONNECTIONS)))


def runtime_info(target: Target) -> dict[str, int]:
    """Messages in the wheel, and messages not in it yet."""
    try:
        answer = target.call(RUNTIME_INFO, {})
    except RefusedError:  # Java's broker cannot say it in its first seconds
        return {}
    found = {}
    for name in ("timerCongestNum", "timerOffsetBehind"):
        value = re.search(rf'"{name}":"(-?\d+)"'.encode(), answer)
        found[name] = int(value[1]) if value else -1
    return found


def until_in_wheel(target: Target, count: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while (info := runtime_info(target)) != {"timerCongestNum": count, "timerOffsetBehind": 0}:
        if time.monotonic() > deadline:
            raise SystemExit(f"not all of {count} came into the wheel: {info}")
        time.sleep(0.1)


def restart(server: Any, target: Target, number: int) -> Iterator[float]:
    """Kill and start: seconds from the command until a timer message is acknowledged, and until all are known."""
    os.kill(server.pid, signal.SIGKILL)
    began = time.monotonic()
    server.start_again()
    while True:
        try:
            asyncio.run(fill(target, 1, 1000))
            break
        except (OSError, RefusedError, asyncio.IncompleteReadError):
            if time.monotonic() - began > RESTART_SECONDS:
                raise
            time.sleep(0.02)
    yield time.monotonic() - began
    until_in_wheel(target, number + 1, RESTART_SECONDS)
    yield time.monotonic() - began


def pending(server: Any, options: argparse.Namespace) -> dict[str, Any]:
    target = Target.at(server.broker_address)
    idle = rss_anon_mib(server.pid)
    target.create_topic(TOPIC, QUEUES)
    began = time.monotonic()
    asyncio.run(fill(target, options.messages, options.spread * 1000))
    filled = time.monotonic()
    until_in_wheel(target, options.messages, RESTART_SECONDS)
    in_wheel = time.monotonic()
    time.sleep(options.rest)
    memory = rss_anon_mib(server.pid)
    acknowledged, known = restart(server, target, options.messages)
    return {
        "messages": options.messages, "fill_s": round(filled - began, 1), "wheel_s": round(in_wheel - filled, 1),
        "idle_rss_anon_mb": idle, "rss_anon_mb": memory, "restart_s": round(acknowledged, 2),
        "all_known_s": round(known, 2), "rss_anon_after_restart_mb": rss_anon_mib(server.pid),
    }  # fmt: skip


def measured(what: str, kind: str, options: argparse.Namespace) -> dict[str, Any]:
    settings = {"waitTimeMillsInSendQueue": "20000", "timerWheelEnable": "true"}
    server: Any = JavaServer(rocketmq_jars(), settings) if kind == "java" else StandaloneProcess(settings)
    with server:
        if what == "pending":
            found = pending(server, options)
        else:
            warm = options.warm if options.warm is not None else JAVA_WARM_UP_SECONDS if kind == "java" else 2.0
            found = asyncio.run(lateness_of(Target.at(server.broker_address), options.rate, warm, options.secs))
    found = {"what": what, "kind": kind, **found}
    print(json.dumps(found), flush=True)
    return found


def compared(options: argparse.Namespace) -> dict[str, Any]:
    """Both sides of both, and what section 2 of the issue asks for."""
    java, ours = (measured("pending", kind, options) for kind in ("java", "ours"))
    names = ("rss_anon_mb", "restart_s", "all_known_s", "rss_anon_after_restart_mb")
    ratios = {name: round(ours[name] / java[name], 3) for name in names}
    late = {kind: measured("lateness", kind, options)["stored_late_ms"]["p99"] for kind in ("java", "ours")}
    return {"what": "ratios to Java (must: 0.5)", **ratios, "stored_late_p99_ms (must: 1100 and Java's)": late}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["all", "lateness", "pending"])
    parser.add_argument("kind", choices=["ours", "java"], nargs="?", default="ours")
    parser.add_argument("--rate", type=int, default=2_000, help="due each second")
    parser.add_argument("--secs", type=float, default=15)
    parser.add_argument("--warm", type=float, help="of lateness; Java: 25 s")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--spread", type=int, default=86_400, help="seconds over which they are due")
    parser.add_argument("--rest", type=float, default=5, help="seconds from all being in the wheel to the kill")
    options = parser.parse_args()
    if options.what == "all":
        print(json.dumps(compared(options)), flush=True)
    else:
        measured(options.what, options.kind, options)


if __name__ == "__main__":
    main()
