#!/usr/bin/env python3
"""CPU of a broker for one message that is popped and acknowledged: ours and Java's in turns, in less than 3 minutes.

    python benches/pop.py [ours] [java] [--acks together single batch] [--count 40000] [--size 1024]

Both brokers run from the start; Java's is warmed up for `--warm` seconds. A turn fills a new topic, then 8 connections
pop 32 messages at a time and acknowledge them: `single` one by one, each when the one before was answered (a consumer
with one thread), `together` 32 frames in one write (Java's push consumer under load), `batch` one BATCH_ACK_MESSAGE.
`cpu_us` is the broker's CPU until the last ack was answered; what check points and acks cost after that, when their
time comes (Java: timer and revive topic), is in `cpu_us_settled`: CPU until `--settle` seconds later, less what an idle
broker uses.
"""

import argparse
import asyncio
import base64
import contextlib
import itertools
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.interop.processes.peers import rocketmq_jars

from benches.compare_java import JavaServer
from benches.load.frames import encode, ext_field
from benches.load.request import Target
from benches.transactions import answers, cpu_seconds
from maxq.testing.server_process import StandaloneProcess

TOPIC, GROUP, QUEUES = "BenchPop", "bench_pop", 8
ACKS = ("together", "single", "batch")
CONNECTIONS, IN_FLIGHT, A_POP = 8, 64, 32
SEND_MESSAGE_V2, POP, ACK, BATCH_ACK = 310, 200050, 200051, 200151
IDLE_SECONDS = 5.0


class Load:
    """Fills the topic, and empties it."""

    def __init__(self, target: Target, topic: str, acks: str, options: argparse.Namespace) -> None:
        self._target = target
        self.topic = topic
        self._ack_form = acks
        self._options = options
        self.taken = 0

    async def fill(self, connection: int, count: int) -> None:
        reader, writer = await asyncio.open_connection(*self._target.address, limit=1 << 22)
        body, now_ms = b"x" * self._options.size, str(int(time.time() * 1000))
        for start in range(0, count, IN_FLIGHT):
            frames = []
            for number in range(start, min(start + IN_FLIGHT, count)):
                properties = f"TAGS\x01TagA\x02WAIT\x01true\x02UNIQ_KEY\x017F000001{connection:08X}{number:016X}\x02"
                fields = {
                    "a": GROUP, "b": self.topic, "c": "TBW102", "d": "4", "e": str((number + connection) % QUEUES),
                    "f": "0", "g": now_ms, "h": "0", "i": properties, "j": "0", "k": "false", "m": "false",
                    "n": "broker-a",
                }  # fmt: skip
                frames.append(encode(1_000_000 + number % 1_000_000, SEND_MESSAGE_V2, fields, body, binary=False))
            writer.write(b"".join(frames))
            async for _ in answers(reader, len(frames)):
                pass
        writer.close()
        await writer.wait_closed()

    async def empty(self, most: int) -> None:
        reader, writer = await asyncio.open_connection(*self._target.address, limit=1 << 24)
        number = 0
        while self.taken < most:
            number += 1
            writer.write(self._pop(number))
            answer = await anext(answers(reader, 1))
            acks = self._acks(answer)
            if acks:
                await self._send(reader, writer, acks)
            elif b'"code":0' not in answer[:200]:
                await asyncio.sleep(0.005)
        writer.close()
        await writer.wait_closed()

    async def _send(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, acks: list[bytes]) -> None:
        if self._ack_form == "single":
            for frame in acks:
                writer.write(frame)
                async for _ in answers(reader, 1):
                    pass
            return
        writer.write(b"".join(acks))
        async for answer in answers(reader, len(acks)):
            assert b'"code":0' in answer, answer

    def _pop(self, number: int) -> bytes:
        fields = {
            "consumerGroup": GROUP, "topic": self.topic, "queueId": "-1", "maxMsgNums": str(A_POP),
            "invisibleTime": str(self._options.invisible), "pollTime": "0", "bornTime": str(int(time.time() * 1000)),
            "initMode": "0", "expType": "TAG", "exp": "*", "order": "false", "bname": "broker-a",
        }  # fmt: skip
        return encode(1_000_000 + number, POP, fields, b"", binary=False)

    def _acks(self, answer: bytes) -> list[bytes]:
        starts, lists = ext_field(answer, "startOffsetInfo"), ext_field(answer, "msgOffsetInfo")
        if not starts or not lists:
            return []
        pop_time, revive = ext_field(answer, "popTime"), ext_field(answer, "reviveQid")
        begin = {tuple(entry.split()[:2]): entry.split()[2] for entry in starts.split(";")}
        frames, batches = [], []
        for entry in lists.split(";"):
            mark, queue, offsets = entry.split()
            start = begin[mark, queue]
            handle = f"{start} {pop_time} {self._options.invisible} {revive} {mark} broker-a {queue}"
            numbers = offsets.split(",")
            self.taken += len(numbers)
            topic = self.topic if mark == "0" else f"%RETRY%{GROUP}_{self.topic}"
            for at, offset in enumerate(numbers):
                fields = {
                    "consumerGroup": GROUP, "topic": topic, "queueId": queue, "extraInfo": f"{handle} {offset}",
                    "offset": offset, "bname": "broker-a",
                }  # fmt: skip
                frames.append(encode(2_000_000 + at, ACK, fields, b"", binary=False))
            bits = sum(1 << int(offset) - int(start) for offset in numbers)
            batches.append({
                "b": base64.b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode(), "c": GROUP,
                "it": self._options.invisible, "pt": int(pop_time or 0), "q": int(queue), "r": mark,
                "rq": int(revive or 0), "so": int(start), "t": self.topic,
            })  # fmt: skip
        if self._ack_form != "batch":
            return frames
        body = json.dumps({"acks": batches, "brokerName": "broker-a"}).encode()
        return [encode(2_000_000, BATCH_ACK, {}, body, binary=False)]


class Side:
    """One broker, and what it was measured at."""

    def __init__(self, name: str, target: Target, pid: int, options: argparse.Namespace) -> None:
        self.name = name
        self._target = target
        self._pid = pid
        self._options = options
        self._turn = 0
        self._began_cpu = self._ended_cpu = self._ended_at = 0.0
        self._count = 0

    def cpu(self) -> float:
        return cpu_seconds(self._pid)

    def take_turn(self, acks: str, count: int) -> dict[str, Any]:
        """Fill a topic, then pop and acknowledge all."""
        self._turn += 1
        load = Load(self._target, f"{TOPIC}{self._turn}", acks, self._options)
        self._target.create_topic(load.topic, QUEUES)
        share = count // CONNECTIONS
        self._count = share * CONNECTIONS

        async def fill() -> None:
            await asyncio.gather(*(load.fill(self._turn * 100 + n, share) for n in range(CONNECTIONS)))

        async def empty() -> None:
            await asyncio.gather(*(load.empty(self._count) for n in range(CONNECTIONS)))

        asyncio.run(fill())
        time.sleep(0.5)
        self._began_cpu, began = self.cpu(), time.monotonic()
        asyncio.run(empty())
        self._ended_cpu, self._ended_at = self.cpu(), time.monotonic()
        per_s = round(load.taken / (self._ended_at - began))
        return {"side": self.name, "acks": acks, "messages": load.taken, "per_s": per_s, "cpu_us": self._us()}

    def since_turn(self) -> tuple[float, float]:
        """Seconds of CPU, and seconds, since the last turn."""
        return self.cpu() - self._ended_cpu, time.monotonic() - self._ended_at

    def _us(self) -> float:
        return round((self._ended_cpu - self._began_cpu) / self._count * 1e6, 2)


def warm_up(side: Side, seconds: float, count: int) -> None:
    """Turns of all kinds until the time is over."""
    end = time.monotonic() + seconds
    for acks in itertools.cycle(("together", "batch")):
        side.take_turn(acks, count // 4)
        if time.monotonic() > end:
            return


def measure(sides: list[Side], options: argparse.Namespace) -> None:
    """Print a line for each turn of each side, and what Java takes of what ours takes."""
    for side in sides:
        warm_up(side, options.warm if side.name == "java" else options.warm / 10, options.count)
    turns = []
    for acks in options.acks:
        rows = [side.take_turn(acks, options.count) for side in sides]
        time.sleep(options.settle)
        turns.append((rows, [side.since_turn() for side in sides]))
    before = [side.cpu() for side in sides]
    time.sleep(IDLE_SECONDS)
    idle = [(side.cpu() - cpu) / IDLE_SECONDS for side, cpu in zip(sides, before, strict=True)]
    for rows, later in turns:
        for row, (cpu, seconds), idles in zip(rows, later, idle, strict=True):
            row["cpu_us_settled"] = round(row["cpu_us"] + (cpu - idles * seconds) / row["messages"] * 1e6, 2)
            print(json.dumps(row))
        if len(rows) > 1:
            ours, java = rows
            ratios = {key: round(java[key] / ours[key], 2) for key in ("cpu_us", "cpu_us_settled")}
            print(json.dumps({"acks": ours["acks"], "java/ours": ratios}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sides", nargs="*", metavar="ours|java", help="default: both")
    parser.add_argument("--count", type=int, default=40_000)
    parser.add_argument("--warm", type=float, default=25, help="seconds for Java's compiler; a tenth of it for ours")
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--invisible", type=int, default=10_000)
    parser.add_argument("--acks", nargs="+", choices=ACKS, default=list(ACKS))
    parser.add_argument("--settle", type=float, default=14)
    options = parser.parse_args()
    names = options.sides or ["ours", "java"]
    with contextlib.ExitStack() as stack:
        sides = []
        if "ours" in names:
            ours = stack.enter_context(StandaloneProcess({}))
            sides.append(Side("ours", Target.at(ours.broker_address), ours.pid, options))
        if "java" in names:
            java = stack.enter_context(JavaServer(rocketmq_jars(), {}))
            sides.append(Side("java", Target.at(java.broker_address), java.pid, options))
        measure(sides, options)


if __name__ == "__main__":
    main()
