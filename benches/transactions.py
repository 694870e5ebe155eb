#!/usr/bin/env python3
"""CPU of a broker for one message sent in a transaction: half message, its answer, one-way commit, delivered message.

    python benches/transactions.py ours [--secs 6] [--size 1024]
    python benches/transactions.py java --warm 25

Raw frames over 8 connections, 32 transactions in flight on each. The broker's CPU is counted until the last message is
in its topic. What JSON clients send is what is sent; `--binary` has ROCKETMQ headers.
"""

import argparse
import asyncio
import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.interop.processes.peers import rocketmq_jars

from benches.compare_java import JavaServer
from benches.load.frames import encode, ext_field
from benches.load.request import Target
from maxq.testing.server_process import StandaloneProcess

TOPIC, GROUP, QUEUES = "BenchTransactions", "bench_group", 8
CONNECTIONS, IN_FLIGHT = 8, 32
SEND_MESSAGE_V2, END_TRANSACTION, COMMIT = 310, 37, "8"
_PLACE = re.compile(rb'"msgId":"([0-9A-F]+)".*?"queueOffset":"?(\d+)|"queueOffset":"?(\d+).*?"msgId":"([0-9A-F]+)"')


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


class Load:
    """Transactions, until the time is over."""

    def __init__(self, target: Target, size: int, *, binary: bool) -> None:
        self._target = target
        self._body = b"x" * size
        self._binary = binary
        self._now_ms = int(time.time() * 1000)
        self.done = 0

    def half(self, connection: int, number: int) -> bytes:
        properties = (
            f"TAGS\x01TagA\x02KEYS\x01k{number:08d}\x02WAIT\x01true\x02UNIQ_KEY\x017F000001{connection:08X}{number:016X}"
            f"\x02TRAN_MSG\x01true\x02PGROUP\x01{GROUP}\x02"
        )
        queue = str((number + connection) % QUEUES)
        fields = {
            "a": GROUP, "b": TOPIC, "c": "TBW102", "d": "4", "e": queue, "f": "4", "g": str(self._now_ms), "h": "0",
            "i": properties, "j": "0", "k": "false", "m": "false", "n": "broker-a",
        }  # fmt: skip
        return encode(1_000_000 + number % 1_000_000, SEND_MESSAGE_V2, fields, self._body, binary=self._binary)

    def end(self, answer: bytes) -> bytes:
        if self._binary:
            msg_id, offset = ext_field(answer, "msgId") or "", ext_field(answer, "queueOffset") or ""
        else:
            found = _PLACE.search(answer)
            assert found is not None, answer
            msg_id = (found[1] or found[4]).decode()
            offset = (found[2] or found[3]).decode()
        fields = {
            "bname": "broker-a", "commitLogOffset": str(int(msg_id[-16:], 16)), "commitOrRollback": COMMIT,
            "fromTransactionCheck": "false", "msgId": msg_id, "producerGroup": GROUP, "topic": TOPIC,
            "tranStateTableOffset": offset, "transactionId": msg_id,
        }  # fmt: skip
        frame = encode(1_000_000, END_TRANSACTION, fields, b"", binary=self._binary)
        return frame.replace(b'"flag":0', b'"flag":2') if not self._binary else frame[:17] + b"\0\0\0\2" + frame[21:]

    async def run(self, connection: int, until: float) -> None:
        reader, writer = await asyncio.open_connection(*self._target.address, limit=1 << 22)
        number, ends = 0, b""
        while time.monotonic() < until:
            halves = b"".join(self.half(connection, number + n) for n in range(IN_FLIGHT))
            number += IN_FLIGHT
            writer.write(ends + halves)
            ends = b"".join([self.end(answer) async for answer in answers(reader, IN_FLIGHT)])
        writer.write(ends)
        await writer.drain()
        self.done += number
        writer.close()
        await writer.wait_closed()


async def answers(reader: asyncio.StreamReader, count: int):  # type: ignore[no-untyped-def]
    for _ in range(count):
        head = await reader.readexactly(4)
        yield head + await reader.readexactly(int.from_bytes(head, "big"))


def transactions(target: Target, seconds: float, size: int, *, binary: bool, pass_number: int) -> int:
    """How many were done."""
    load = Load(target, size, binary=binary)

    async def all_of_them() -> None:
        until = time.monotonic() + seconds
        await asyncio.gather(*(load.run(pass_number * 100 + n, until) for n in range(CONNECTIONS)))

    asyncio.run(all_of_them())
    return load.done


def delivered(target: Target) -> int:
    return sum(target.max_offset(TOPIC, queue) for queue in range(QUEUES))


def waiting_for(target: Target, count: int) -> Iterator[None]:
    while delivered(target) < count:
        yield
        time.sleep(0.1)


def measured(target: Target, pid: int, options: argparse.Namespace) -> dict[str, float]:
    target.create_topic(TOPIC, QUEUES)
    before = transactions(target, options.warm, options.size, binary=options.binary, pass_number=0)
    for _ in waiting_for(target, before):
        pass
    began, cpu = time.monotonic(), cpu_seconds(pid)
    count = transactions(target, options.secs, options.size, binary=options.binary, pass_number=1)
    for _ in waiting_for(target, before + count):
        pass
    took, used = time.monotonic() - began, cpu_seconds(pid) - cpu
    return {"transactions": count, "per_s": round(count / took), "cpu_us": round(used / count * 1e6, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=["ours", "java"])
    parser.add_argument("--secs", type=float, default=6)
    parser.add_argument("--warm", type=float, default=2)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--binary", action="store_true")
    options = parser.parse_args()
    if options.kind == "java":
        with JavaServer(rocketmq_jars(), {}) as java:
            print(json.dumps({"kind": "java", **measured(Target.at(java.broker_address), java.pid, options)}))
        return
    with StandaloneProcess({}) as ours:
        print(json.dumps({"kind": "ours", **measured(Target.at(ours.broker_address), ours.pid, options)}))


if __name__ == "__main__":
    main()
