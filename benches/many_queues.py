#!/usr/bin/env python3
"""Many queues: start-up after kill -9, and private memory, with one message in each of 20 000 queues.

    python benches/many_queues.py [--queues 20000] [--per-topic 500] [--java] [--json FILE]

Prints one JSON object a server. `restart_s`: from the command to the first acknowledged send after the kill.
ext4 looks at each inode freed in the last half minute before it takes another: first sends right after some tens of
thousands of files were deleted nearby take twice as long, on both sides.
"""

import argparse
import json
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the other benches and the tests' way to the jars

from tests.interop.processes.peers import ROCKETMQ_VERSION, rocketmq_jars

from benches.compare_java import JavaServer, rss_anon_mib
from benches.load.frames import encode
from benches.load.request import RefusedError, Target
from benches.results_file import write_results
from maxq.testing.server_process import StandaloneProcess

SEND_MESSAGE_V2 = 310
WINDOW = 64  # sends in flight
TOPIC_SECONDS = 60


def fields(topic: str, queue: int, number: int) -> dict[str, str]:
    """Header of one send."""
    properties = f"UNIQ_KEY\x01{number:032X}\x02WAIT\x01true\x02"
    values = (
        "bench",
        topic,
        "TBW102",
        "8",
        str(queue),
        "0",
        "1700000000000",
        "0",
        properties,
        "0",
        "false",
        "16",
        "false",
    )
    return dict(zip("abcdefghijklm", values, strict=True))


def send_each(target: Target, topics: list[str], per_topic: int) -> None:
    """One message into every queue, each acknowledged with code 0."""
    with socket.create_connection(target.address, timeout=120) as connection, connection.makefile("rb") as stream:
        waiting = number = 0
        for topic in topics:
            for queue in range(per_topic):
                request = fields(topic, queue, number)
                connection.sendall(encode(number, SEND_MESSAGE_V2, request, b"x" * 100, binary=False))
                number += 1
                waiting += 1
                if waiting == WINDOW:
                    take_answer(stream.read)
                    waiting -= 1
        for _ in range(waiting):
            take_answer(stream.read)


def take_answer(read: Callable[[int], bytes]) -> None:
    frame = read(int.from_bytes(read(4), "big"))
    header = json.loads(frame[4 : 4 + (int.from_bytes(frame[:4], "big") & 0xFFFFFF)])
    if header["code"]:
        raise RefusedError(str(header))


def first_acknowledged(target: Target, topic: str, since: float, pid: int) -> float:
    """Seconds from `since` until a send is acknowledged by process `pid`."""
    while time.monotonic() - since < 300:
        try:
            send_each(target, [topic], 1)
            return time.monotonic() - since
        except (OSError, RefusedError, ValueError):  # not listening yet, refused, or closed without an answer
            if has_ended(pid):
                raise SystemExit(
                    f"the server ended while starting; open files may be {resource.getrlimit(resource.RLIMIT_NOFILE)}, "
                    "of which Java keeps one for every queue: take fewer --queues"
                ) from None
            time.sleep(0.02)
    raise SystemExit("no send was acknowledged within 300 s")


def has_ended(pid: int) -> bool:
    """Has this child ended, waited for or not?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def run(server: JavaServer | StandaloneProcess, topics: list[str], per_topic: int) -> dict[str, float]:
    with server:
        began = time.monotonic()
        for topic in topics:
            create(Target.at(server.broker_address), topic, per_topic)
        created = time.monotonic()
        send_each(Target.at(server.broker_address), topics, per_topic)
        sent = time.monotonic()
        memory = rss_anon_mib(server.pid)
        os.kill(server.pid, signal.SIGKILL)
        restarted = time.monotonic()
        server.start_again()
        ready = first_acknowledged(Target.at(server.broker_address), topics[0], restarted, server.pid)
        return {
            "create_s": round(created - began, 2),
            "first_sends_s": round(sent - created, 2),
            "rss_anon_mb": round(memory, 1),
            "restart_s": round(ready, 2),
            "rss_anon_after_restart_mb": round(rss_anon_mib(server.pid), 1),
        }


def create(target: Target, topic: str, queues: int) -> None:
    """Java answers a creation that is slow elsewhere with an error: ask again."""
    deadline = time.monotonic() + TOPIC_SECONDS
    while True:
        try:
            return target.create_topic(topic, queues)
        except RefusedError:
            if time.monotonic() > deadline:
                raise


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queues", type=int, default=20_000)
    parser.add_argument("--per-topic", type=int, default=500)
    parser.add_argument("--java", action="store_true", help="Apache RocketMQ beside ours")
    parser.add_argument("--json", type=Path, help="write the figures, machine and day here")
    options = parser.parse_args()
    topics = [f"Many{number}" for number in range(options.queues // options.per_topic)]
    servers: dict[str, JavaServer | StandaloneProcess] = {
        "maxq": StandaloneProcess({"waitTimeMillsInSendQueue": "20000"})
    }
    if options.java:
        servers["java"] = JavaServer(rocketmq_jars(), {})
    rows = []
    for name, server in servers.items():
        rows.append({"server": name, "queues": options.queues} | run(server, topics, options.per_topic))
        print(json.dumps(rows[-1]), flush=True)
    if options.json:
        write_results(options.json, "python benches/many_queues.py", {"rocketmq": ROCKETMQ_VERSION, "rows": rows})


if __name__ == "__main__":
    main()
