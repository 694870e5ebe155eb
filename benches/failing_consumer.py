#!/usr/bin/env python3
"""What a consumer that fails every message costs the others on its broker.

    python benches/failing_consumer.py                       # ours
    python benches/failing_consumer.py --kind java --warm 25

A topic gets messages at a fixed rate (5000/s), and one group pulls them by long polling. First it consumes them, then
it gives back every one (CONSUMER_SEND_MSG_BACK) and those that come again through its retry topic as well. Meanwhile
another topic has a light load of its own (`--other` messages a second, open loop, long polling): its latencies are
compared. The broker's private memory (RssAnon) is read every five seconds. `--turns` counts how long the turns of the
broker's loop are, in processor time (benches/loop_turns.py): what to look at while the machine does other things.
"""

import argparse
import asyncio
import json
import multiprocessing
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.interop.processes.peers import rocketmq_jars

from benches.compare_java import JavaServer
from benches.load.frames import code_and_opaque, encode, ext_field
from benches.load.measure import measure
from benches.load.request import Target
from benches.load.worker import Plan
from benches.loop_turns import LoopTurns
from maxq.testing.server_process import StandaloneProcess

TOPIC, GROUP, QUEUES = "BenchFailing", "bench_failing_group", 4
RETRY, DLQ = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"
SEND_V2, PULL, SEND_BACK = 310, 11, 36
FOUND, NO_TOPIC = 0, 17
TICK_SECONDS = 0.005
CONSUMING, FAILING, STOPPED = 0, 1, 2
SYS_FLAG = 1 | 2 | 4  # commit, wait, with subscription


class Peer:
    """One connection, one request or one window of requests at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, target: Target) -> "Peer":
        return cls(*await asyncio.open_connection(*target.address, limit=1 << 22))

    async def answer(self) -> bytes:
        head = await self._reader.readexactly(4)
        return head + await self._reader.readexactly(int.from_bytes(head, "big"))

    async def call(self, code: int, fields: dict[str, str]) -> bytes:
        self.writer.write(encode(1_000_000, code, fields, b"", binary=False))
        return await self.answer()


class FailingGroup:
    """The messages and the group, in a process of their own."""

    def __init__(self, target: Target, rate: float, size: int, phase: Any, counts: Any) -> None:
        self._target = target
        self._rate = rate
        self._body = b"x" * size
        self._phase = phase
        self._counts = counts  # sent, pulled for the first time, pulled again, refused

    async def run(self) -> None:
        pulls = [self._consume(TOPIC, queue) for queue in range(QUEUES)] + [self._consume(RETRY, 0)]
        tasks = [asyncio.ensure_future(work) for work in (self._produce(), *pulls)]
        while self._phase.value != STOPPED:
            for task in tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _produce(self) -> None:
        peer = await Peer.connect(self._target)
        drop = asyncio.ensure_future(self._drop_answers(peer))
        began, number = time.monotonic(), 0
        while True:
            due = int((time.monotonic() - began) * self._rate)
            while number < due:
                fields = {
                    "a": GROUP, "b": TOPIC, "c": "TBW102", "d": "4", "e": str(number % QUEUES), "f": "0",
                    "g": str(int(time.time() * 1000)), "h": "0", "j": "0", "k": "false", "m": "false",
                    "i": f"TAGS\x01TagA\x02KEYS\x01k{number}\x02WAIT\x01true\x02UNIQ_KEY\x017F000001{number:024X}\x02",
                }  # fmt: skip
                peer.writer.write(encode(1_000_000, SEND_V2, fields, self._body, binary=False))
                number += 1
            self._counts[0] = number
            if drop.done():
                drop.result()
            await asyncio.sleep(TICK_SECONDS)

    async def _drop_answers(self, peer: Peer) -> None:
        while True:
            code, _ = code_and_opaque(bytearray(await peer.answer()), 0)
            self._counts[3] += code != 0

    async def _consume(self, topic: str, queue: int) -> None:
        peer, back = await Peer.connect(self._target), await Peer.connect(self._target)
        offset = 0
        while True:
            fields = {
                "consumerGroup": GROUP, "topic": topic, "queueId": str(queue), "queueOffset": str(offset),
                "maxMsgNums": "32", "sysFlag": str(SYS_FLAG), "commitOffset": str(offset),
                "suspendTimeoutMillis": "5000", "subscription": "*", "subVersion": "0", "expressionType": "TAG",
            }  # fmt: skip
            answer = await peer.call(PULL, fields)
            code, _ = code_and_opaque(bytearray(answer), 0)
            if code == NO_TOPIC:  # nothing failed yet
                await asyncio.sleep(0.2)
                continue
            if code == FOUND:
                records = answer[8 + (int.from_bytes(answer[4:8], "big") & 0xFFFFFF) :]
                await self._consumed(back, topic, records)
            offset = int(ext_field(answer, "nextBeginOffset") or offset)

    async def _consumed(self, back: Peer, topic: str, records: bytes) -> None:
        at = count = 0
        while at < len(records):
            fields = {
                "offset": str(int.from_bytes(records[at + 28 : at + 36], "big")), "group": GROUP, "delayLevel": "0",
                "originTopic": topic, "unitMode": "false", "maxReconsumeTimes": "16",
            }  # fmt: skip
            if self._phase.value == FAILING:
                back.writer.write(encode(1_000_000, SEND_BACK, fields, b"", binary=False))
            at += int.from_bytes(records[at : at + 4], "big")
            count += 1
        self._counts[2 if topic == RETRY else 1] += count
        for _ in range(count if self._phase.value == FAILING else 0):
            code, _opaque = code_and_opaque(bytearray(await back.answer()), 0)
            self._counts[3] += code != 0


def run_group(target: Target, options: argparse.Namespace, phase: Any, counts: Any) -> None:
    asyncio.run(FailingGroup(target, options.rate, options.size, phase, counts).run())


class Memory:
    """RssAnon of the broker every five seconds, in MiB."""

    def __init__(self, pid: int) -> None:
        self.seen: list[int] = []
        self._status = Path(f"/proc/{pid}/status")
        self._end = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            line = next(line for line in self._status.read_text().splitlines() if line.startswith("RssAnon"))
            self.seen.append(int(line.split()[1]) >> 10)
            if self._end.wait(5):
                return

    def stop(self) -> list[int]:
        self._end.set()
        return self.seen


def measured(target: Target, pid: int, options: argparse.Namespace, turns: LoopTurns | None) -> dict[str, Any]:
    target.create_topic(TOPIC, QUEUES)
    context = multiprocessing.get_context("fork")
    phase, counts = context.RawValue("i", CONSUMING), context.RawArray("q", 4)
    group = context.Process(target=run_group, args=(target, options, phase, counts), daemon=True)
    group.start()
    memory = Memory(pid)
    try:
        consuming = others(target, pid, options, options.warm, turns)
        before = list(counts)
        phase.value = FAILING
        began = time.monotonic()
        time.sleep(options.fail_before)
        at_start = list(counts)
        failing = others(target, pid, options, 1, turns)
        seconds, after = time.monotonic() - began, list(counts)
        assert group.is_alive(), "the failing group ended"
    finally:
        phase.value = STOPPED
        group.join(10)
    failed = sum(after[1:3]) - sum(before[1:3])
    return {
        "consuming": consuming, "failing": failing,
        "p99_ratio": {name: round(failing[name][1] / consuming[name][1], 2) for name in ("send_us", "e2e_us")},
        "failed_per_s": round(failed / seconds), "of_it_again_per_s": round((after[2] - before[2]) / seconds),
        "failed_per_s_while_measured": round((sum(after[1:3]) - sum(at_start[1:3])) / (seconds - options.fail_before)),
        "refused": after[3], "behind": after[0] - after[1], "rss_anon_mib": memory.stop(),
    }  # fmt: skip


def others(
    target: Target, pid: int, options: argparse.Namespace, warm: float, turns: LoopTurns | None
) -> dict[str, Any]:
    """The other topic's latencies (p50, p99, p99.9 in µs), the broker's share of a core, its loop's turns."""
    plan = Plan(
        target=target, mode="both", conns=2, inflight=64, size=1024, rate=options.other, secs=options.secs, warm=warm
    )
    before = [] if turns is None else turns.read(pid)
    found = measure(plan, [pid])
    result: dict[str, Any] = {} if turns is None else {"turns": turns.summary(before, turns.read(pid))}
    result |= {name: [found[name][point] for point in ("p50", "p99", "p99.9")] for name in ("send_us", "e2e_us")}
    return {**result, "server_cores": found["server_cores"], "errors": found["errors"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", choices=["ours", "java"], default="ours")
    parser.add_argument("--rate", type=float, default=5000, help="messages a second that the group fails")
    parser.add_argument("--other", type=float, default=1000, help="messages a second of the other topic")
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--secs", type=float, default=10, help="of each of the two measurements")
    parser.add_argument("--warm", type=float, default=3, help="seconds of consuming before the first")
    parser.add_argument("--fail-before", type=float, default=20, help="seconds of failing before the second")
    parser.add_argument("--turns", action="store_true", help="count turns of the loop (ours)")
    options = parser.parse_args()
    server: Any = JavaServer(rocketmq_jars(), {}) if options.kind == "java" else StandaloneProcess({})
    with LoopTurns() if options.turns else nullcontext() as turns, server:
        print(
            json.dumps(
                {"kind": options.kind, **measured(Target.at(server.broker_address), server.pid, options, turns)}
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
