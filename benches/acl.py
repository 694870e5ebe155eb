#!/usr/bin/env python3
"""What access control adds to the CPU of a broker, for each message.

    python benches/acl.py ours [--rounds 40] [--size 100] [--size 1024]
    python benches/acl.py ours java --json benches/results/acl.json

Two brokers, one without access control and one with users and policies, stand beside each other, and frames made
beforehand go to one and the other in turn over 8 connections with 32 sends in flight on each: unsigned to the first,
signed by a user who may send to the topic to the second. A turn is some thousand messages, so that what the machine
does meanwhile (pages that its host has taken back, other work) meets both alike; what counts is the median of the
differences between the two turns of a round. `spread` is the quartiles of these. `--batch N` puts N messages into each
request, of as many fewer.

The CPU of a process is read from its threads' run times (nanoseconds), not from its clock ticks.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.interop.processes.peers import ROCKETMQ_VERSION, rocketmq_jars

from benches.compare_java import JAVA_WARM_UP_SECONDS, JavaServer
from benches.load.frames import encode
from benches.load.request import Target
from benches.results_file import write_results
from maxq.auth.signature import Credentials, sign
from maxq.protocol.message.message import Message, encode_batch
from maxq.testing.server_process import StandaloneProcess

TOPIC, QUEUES = "BenchAcl", 8
CONNECTIONS, IN_FLIGHT = 8, 32
WARM_SECONDS = {"ours": 1.0, "java": JAVA_WARM_UP_SECONDS}
SEND_MESSAGE_V2, SEND_BATCH_MESSAGE, CREATE_USER, CREATE_ACL = 310, 320, 3001, 3006
ROOT = Credentials("root", "root-secret")
USER = Credentials("benchuser", "bench-secret")
_AUTH = "org.apache.rocketmq.auth"
ACL = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "authenticationProvider": f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationProvider": f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
    "initAuthenticationUser": json.dumps({"username": ROOT.access_key, "password": ROOT.secret_key}),
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"inner-secret"}',
}


@dataclass(frozen=True)
class SigningTarget(Target):
    """A broker that is asked by root, where it wants that."""

    credentials: Credentials | None = None

    def call(self, code: int, fields, body: bytes = b"") -> bytes:  # type: ignore[no-untyped-def]
        return super().call(code, signed(dict(fields), body, self.credentials), body)


def signed(fields: dict[str, str], body: bytes, credentials: Credentials | None) -> dict[str, str]:
    if credentials is not None:
        sign(fields, body, credentials, credentials.signing_key())
    return fields


def cpu_ns(pid: int) -> int:
    """What all threads of a process, also of those that ended, have used."""
    return time.clock_gettime_ns(~pid << 3 | 2)  # the kernel's number for "CPU clock of that process"


def frame(number: int, size: int, batch: int, credentials: Credentials | None) -> bytes:
    """A send, or a batch of sends."""
    properties = (
        f"TAGS\x01TagA\x02KEYS\x01k{number:08d}\x02UNIQ_KEY\x017F00000100000000{number:016X}\x02WAIT\x01true\x02"
    )
    fields = {
        "a": "bench_group", "b": TOPIC, "c": "TBW102", "d": "4", "e": str(number % QUEUES), "f": "0",
        "g": str(int(time.time() * 1000)), "h": "0", "i": properties, "j": "0", "k": "false",
        "m": "true" if batch > 1 else "false", "n": "broker-a",
    }  # fmt: skip
    body = b"x" * size
    if batch > 1:
        rows = [Message(TOPIC, body, properties={"UNIQ_KEY": f"7F0000{number:08X}{row:018X}"}) for row in range(batch)]
        body = encode_batch(rows)
    code = SEND_BATCH_MESSAGE if batch > 1 else SEND_MESSAGE_V2
    return encode(1_000_000 + number, code, signed(fields, body, credentials), body, binary=False)


class Load:
    """One broker under load: `turn` sends so many messages and says what they cost."""

    def __init__(self, pid: int, target: Target, loads: list[bytes], batch: int) -> None:
        self._pid = pid
        self._target = target
        self._loads = loads
        self._batch = batch
        self._streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def connect(self) -> None:
        for _ in self._loads:
            self._streams.append(await asyncio.open_connection(*self._target.address, limit=1 << 22))

    async def turn(self, windows: int) -> float:
        """CPU of the broker for one message, µs; `windows` times IN_FLIGHT requests on each connection."""
        cpu = cpu_ns(self._pid)
        await asyncio.gather(
            *(_send(*stream, load, windows) for stream, load in zip(self._streams, self._loads, strict=True))
        )
        return (cpu_ns(self._pid) - cpu) / (windows * IN_FLIGHT * CONNECTIONS * self._batch) / 1000

    async def warm(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await self.turn(8)

    def close(self) -> None:
        for _, writer in self._streams:
            writer.close()


async def _send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, frames: bytes, windows: int) -> None:
    """IN_FLIGHT requests, their answers, again."""
    for _ in range(windows):
        writer.write(frames)
        answered, left = 0, b""
        while answered < IN_FLIGHT:
            left += await reader.read(1 << 18)
            position = 0
            while len(left) - position >= 4:
                behind = position + 4 + int.from_bytes(left[position : position + 4], "big")
                if behind > len(left):
                    break
                if left.find(b'"code":0,', position, position + 200) < 0:
                    raise SystemExit(f"refused: {left[position:behind][:400]!r}")
                position, answered = behind, answered + 1
            left = left[position:]


@contextmanager
def running(kind: str, settings: dict[str, str]) -> Iterator[tuple[int, tuple[str, int]]]:
    """A broker: process and address."""
    if kind == "java":
        with JavaServer(rocketmq_jars(), settings) as java:
            yield java.pid, Target.at(java.broker_address).address
        return
    ours = StandaloneProcess(settings).start()
    try:
        yield ours.pid, Target.at(ours.broker_address).address
    finally:
        ours.stop()


def prepare(target: SigningTarget) -> None:
    """The topic; on a guarded broker a user who may send to it."""
    target.create_topic(TOPIC, QUEUES)
    if target.credentials is None:
        return
    user = {"username": USER.access_key, "password": USER.secret_key, "userType": "Normal"}
    target.call(CREATE_USER, {"username": USER.access_key}, json.dumps(user).encode())
    entry = {"resource": f"Topic:{TOPIC}", "actions": ["Pub"], "decision": "Allow"}
    subject = f"User:{USER.access_key}"
    acl = {"subject": subject, "policies": [{"policyType": "Custom", "entries": [entry]}]}
    target.call(CREATE_ACL, {"subject": subject}, json.dumps(acl).encode())


def load_on(pid: int, address: tuple[str, int], size: int, options: argparse.Namespace, *, guarded: bool) -> Load:
    target = SigningTarget(*address, ROOT if guarded else None)
    prepare(target)
    who = USER if guarded else None
    loads = [
        b"".join(frame(n * IN_FLIGHT + i, size, options.batch, who) for i in range(IN_FLIGHT))
        for n in range(CONNECTIONS)
    ]
    return Load(pid, target, loads, options.batch)


async def alternate(off: Load, on: Load, options: argparse.Namespace, warm: float) -> dict[str, float | list[float]]:
    await off.connect()
    await on.connect()
    for load in (off, on):
        await load.warm(warm)
    windows = max(1, options.turn // (IN_FLIGHT * CONNECTIONS * options.batch))
    pairs = []
    for number in range(options.rounds):
        if number % 2:
            without = await off.turn(windows)
            pairs.append((without, await on.turn(windows)))
        else:
            guarded = await on.turn(windows)
            pairs.append((await off.turn(windows), guarded))
    off.close()
    on.close()
    added = sorted(guarded - without for without, guarded in pairs)
    return {
        "off_us": round(statistics.median(without for without, _ in pairs), 2),
        "on_us": round(statistics.median(guarded for _, guarded in pairs), 2),
        "added_us": round(statistics.median(added), 2),
        "spread": [round(value, 2) for value in statistics.quantiles(added, n=4)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", choices=["ours", "java"], nargs="+")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--turn", type=int, default=16_384, help="messages of a turn")
    parser.add_argument("--warm", type=float, help="seconds on each of the two; else 1 for ours and 25 for Java's")
    parser.add_argument("--size", type=int, action="append")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the figures, machine and day here")
    options = parser.parse_args()
    rows = []
    for kind in options.kinds:
        warm = options.warm if options.warm is not None else WARM_SECONDS[kind]
        for size in options.size or [100, 1024]:
            with running(kind, {}) as plain, running(kind, ACL) as guarded:
                off = load_on(*plain, size, options, guarded=False)
                on = load_on(*guarded, size, options, guarded=True)
                found = asyncio.run(alternate(off, on, options, warm))
            rows.append({"kind": kind, "bytes": size, "batch": options.batch, **found})
            print(json.dumps(rows[-1]), flush=True)
    if options.json:
        write_results(options.json, "python benches/acl.py", {"rocketmq": ROCKETMQ_VERSION, "rows": rows})


if __name__ == "__main__":
    main()
