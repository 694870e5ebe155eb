"""Ten thousand real idle connections: memory per connection, and nothing slower for the one that works."""

import asyncio
import os
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from maxq.config.netty_server_config import NettyServerConfig
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.server import RemotingServer
from maxq.runtime.files.system import SystemClock

WANTED = 10_000
HOLD = """
import socket, sys
port, count = int(sys.argv[1]), int(sys.argv[2])
held = []
for i in range(count):
    peer = socket.socket()
    peer.bind((f"127.0.0.{1 + i % 200}", 0))  # many sources: one address has too few ports to be quick
    peer.connect(("127.0.0.1", port))
    peer.sendall(bytes.fromhex(sys.argv[3]))
    held.append(peer)
print("all", flush=True)
sys.stdin.read()
"""


def private_memory() -> int:
    """RssAnon of this process in bytes."""
    text = Path("/proc/self/status").read_text()
    return int(text.partition("RssAnon:")[2].split()[0]) * 1024


@pytest.fixture
def possible() -> Iterator[int]:
    """How many connections there can be; for the test the limit of open files is as high as it may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = max(map(int, os.listdir("/proc/self/fd"))) + WANTED + 200
    if soft < needed <= hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    yield WANTED - max(0, needed - resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def hold_many(count: int) -> tuple[int, float]:
    """So many; (bytes of each, seconds of CPU of one request while they are there)."""
    server = RemotingServer(NettyServerConfig(), clock=SystemClock())
    server.register(1, lambda _, command: command.reply())
    server.register(2, lambda _, command: None)
    port = await server.start("127.0.0.1", 0)
    before = private_memory()
    start_of_frame = RemotingCommand(2).encode() + b"\0\0"
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLD, str(port), str(count), start_of_frame.hex(),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdout is not None and holder.stdin is not None
    assert await holder.stdout.readline() == b"all\n"
    while len(server.connections) < count or any(not c.arrivals for c in server.connections):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    each = (private_memory() - before) // count
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    started = time.process_time()
    for _ in range(100):
        writer.write(RemotingCommand(1).encode())
        await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    took = (time.process_time() - started) / 100
    server._check_idle()  # one look at all of them
    assert len(server.connections) == count + 1
    writer.close()
    holder.stdin.close()
    await holder.wait()
    while server.connections:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await server.shutdown()
    return each, took


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and uses 127.0.0.x")
def test_ten_thousand_idle_connections_are_cheap(possible: int) -> None:
    assert possible >= 1000
    each, took = uvloop.run(asyncio.wait_for(hold_many(possible), 120))
    assert each < 6 * 1024, f"{each} bytes of private memory for each of {possible} connections"
    assert took < 0.02
