#!/usr/bin/env python3
"""Messages examined by an SQL92 filter for each CPU second of the broker, MaxQ and Apache RocketMQ, on this machine.

    python benches/sql_filter.py                       # both, and the ratio
    python benches/sql_filter.py --only ours --messages 200000

A topic of 8 queues is filled with messages of which one in ten matches; then a pull consumer's requests
(LITE_PULL_MESSAGE with the expression in the header, 32 messages at most) read all queues side by side, from the first
offset to the last: some passes to warm up (Java for 25 s), then those that are measured. The broker's CPU is that of
its process, user and system.
"""

import argparse
import asyncio
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.interop.processes.peers import rocketmq_jars

from benches.compare_java import JAVA_WARM_UP_SECONDS, JavaServer
from benches.load.frames import encode
from benches.load.request import Target
from benches.transactions import cpu_seconds
from maxq.protocol.message.message import Message, encode_batch
from maxq.testing.server_process import StandaloneProcess

TOPIC, GROUP, QUEUES = "BenchSql", "bench_sql_group", 8
EXPRESSION = "price BETWEEN 100 AND 199 AND color = 'red' OR region IN ('mars', 'venus')"
BATCH = 64
SEND_BATCH, LITE_PULL = 320, 361
SETTINGS = {"enablePropertyFilter": "true"}
_NEXT = re.compile(rb'"nextBeginOffset":"?(\d+)')
_CODE = re.compile(rb'"code":(\d+)')


def message(number: int, size: int) -> Message:
    """One in ten matches: its price is in range and it is red."""
    made = Message(TOPIC, b"x" * size)
    made.tags, made.keys = "TagA", f"order-{number}"
    made.properties["UNIQ_KEY"] = f"7F0000010000{number:020X}"
    made.put_user_property("price", str(number * 37 % 1000))
    made.put_user_property("color", "red")
    made.put_user_property("region", ("north", "south", "east", "west")[number % 4])
    made.put_user_property("customer", f"c{number % 100_000}")
    return made


async def fill(target: Target, count: int, size: int) -> None:
    """`count` messages, the same number in each queue."""

    async def one(queue: int) -> None:
        reader, writer = await asyncio.open_connection(*target.address, limit=1 << 22)
        for first in range(0, count // QUEUES, BATCH):
            batch = [
                message(queue + QUEUES * number, size) for number in range(first, min(first + BATCH, count // QUEUES))
            ]
            fields = {
                "a": "bench", "b": TOPIC, "c": "TBW102", "d": "4", "e": str(queue), "f": "0",
                "g": str(int(time.time() * 1000)), "h": "0", "i": "", "j": "0", "k": "false", "m": "true",
            }  # fmt: skip
            writer.write(encode(1, SEND_BATCH, fields, encode_batch(batch), binary=False))
            answer = await frame(reader)
            assert _CODE.search(answer)[1] == b"0", answer  # type: ignore[index]
        writer.close()

    await asyncio.gather(*map(one, range(QUEUES)))


async def frame(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(4)
    return await reader.readexactly(int.from_bytes(head, "big"))


async def read_all(target: Target) -> tuple[int, int]:
    """One pass over all queues: (messages examined, matches)."""

    async def one(queue: int) -> tuple[int, int]:
        reader, writer = await asyncio.open_connection(*target.address, limit=1 << 22)
        end, offset, hits = target.max_offset(TOPIC, queue), 0, 0
        while offset < end:
            fields = {
                "consumerGroup": GROUP, "topic": TOPIC, "queueId": str(queue), "queueOffset": str(offset),
                "maxMsgNums": "32", "sysFlag": "20", "commitOffset": "0", "suspendTimeoutMillis": "0",
                "subscription": EXPRESSION, "subVersion": "1", "expressionType": "SQL92",
            }  # fmt: skip
            writer.write(encode(1, LITE_PULL, fields, b"", binary=False))
            answer = await frame(reader)
            header = answer[4 : 4 + int.from_bytes(answer[1:4], "big")]
            assert _CODE.search(header)[1] in (b"0", b"20"), header  # type: ignore[index]
            hits += records_in(answer[4 + len(header) :])
            offset = int(_NEXT.search(header)[1])  # type: ignore[index]
        writer.close()
        return end, hits

    found = await asyncio.gather(*map(one, range(QUEUES)))
    return sum(examined for examined, _ in found), sum(hits for _, hits in found)


def records_in(body: bytes) -> int:
    at = count = 0
    while at < len(body):
        at += int.from_bytes(body[at : at + 4], "big")
        count += 1
    return count


def measured(target: Target, pid: int, options: argparse.Namespace, warm_seconds: float) -> dict[str, Any]:
    target.create_topic(TOPIC, QUEUES)
    asyncio.run(fill(target, options.messages, options.size))
    time.sleep(2)  # what is flushed and cleaned behind the sends is not ours to count
    began, warmed = time.monotonic(), 0
    while warmed < options.warm or time.monotonic() - began < warm_seconds:
        asyncio.run(read_all(target))
        warmed += 1
    began, cpu, examined, hits = time.monotonic(), cpu_seconds(pid), 0, 0
    for _ in range(options.passes):
        looked_at, found = asyncio.run(read_all(target))
        examined += looked_at
        hits += found
    used, took = cpu_seconds(pid) - cpu, time.monotonic() - began
    return {
        "examined": examined, "hits": hits, "per_cpu_s": round(examined / used), "per_s": round(examined / took),
        "cpu_us": round(used / examined * 1e6, 3), "warm_passes": warmed,
    }  # fmt: skip


def run(kind: str, options: argparse.Namespace) -> dict[str, Any]:
    server: Any = JavaServer(rocketmq_jars(), SETTINGS) if kind == "java" else StandaloneProcess(SETTINGS)
    with server:
        warm_seconds = JAVA_WARM_UP_SECONDS if kind == "java" else 0.0
        result = {"kind": kind, **measured(Target.at(server.broker_address), server.pid, options, warm_seconds)}
    print(json.dumps(result), flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=["ours", "java"])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a body")
    parser.add_argument("--warm", type=int, default=2, help="passes before the measured ones, at least")
    parser.add_argument("--passes", type=int, default=2)
    options = parser.parse_args()
    if options.only:
        run(options.only, options)
        return
    ours, java = run("ours", options), run("java", options)
    assert ours["hits"] == java["hits"], "both select the same"
    print(json.dumps({"ratio": round(ours["per_cpu_s"] / java["per_cpu_s"], 2)}))


if __name__ == "__main__":
    main()
