"""Ten thousand real idle connections: memory per connection, and nothing slower for the one that works."""

import asyncio
import resource
import sys
from pathlib import Path

import pytest
import uvloop

from maxq.config.netty_server_config import NettyServerConfig
from maxq.protocol.remoting_command import RemotingCommand
from maxq.remoting.server import RemotingServer
from maxq.runtime.system import SystemClock

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


def connections_possible() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < WANTED + 200 and hard >= WANTED + 200:
        resource.setrlimit(resource.RLIMIT_NOFILE, (WANTED + 200, hard))
        soft = WANTED + 200
    return min(WANTED, soft - 200)


async def hold_many() -> tuple[int, int, float]:
    """(connections, bytes each, seconds of one request while they are there)."""
    count = connections_possible()
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
    loop = asyncio.get_running_loop()
    started = loop.time()
    for _ in range(100):
        writer.write(RemotingCommand(1).encode())
        await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    took = (loop.time() - started) / 100
    server._look()  # one look at all of them
    assert len(server.connections) == count + 1
    writer.close()
    holder.stdin.close()
    await holder.wait()
    while server.connections:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await server.shutdown()
    return count, each, took


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and uses 127.0.0.x")
def test_ten_thousand_idle_connections_are_cheap() -> None:
    count, each, took = uvloop.run(hold_many())
    assert count >= 1000
    assert each < 6 * 1024, f"{each} bytes of private memory for each of {count} connections"
    assert took < 0.02
