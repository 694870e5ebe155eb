"""What strangers ask a broker's HTTP pages for: paths that lead elsewhere, methods that change something, long lines.
The broker is a process of its own."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.access.peer_world import HA, BrokerProcess

ELSEWHERE = (
    "/../metrics", "/..", "/metrics/..", "/metrics/../metrics", "/%2e%2e/metrics", "/..%2fmetrics", "/%2Fmetrics",
    "/%6detrics", "//metrics", "/metrics/", "/./metrics", "/METRICS", "/metrics%00", "/metrics;a=b",
    "\\metrics", "/../../etc/passwd",
    "/config/auth.json", "/%2e%2e%2f%2e%2e%2fetc%2fpasswd", "http://127.0.0.1/metrics", "http://elsewhere/",
    "file:///etc/passwd", "*", "metrics", "/" + "a" * 7000,
)  # fmt: skip
NO_REQUESTS = (
    b"\r\n\r\n", b"GET\r\n\r\n", b"GET /metrics\r\n\r\n", b"GET /metrics HTTP/2.0\r\n\r\n",
    b"GET  /metrics HTTP/1.1\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"\x00" * 100 + b"\r\n\r\n",
)  # fmt: skip
TOO_LONG = (b"GET /" + b"a" * 20_000, b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 5_000, b"a" * 20_000)
METHODS = ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "get", "", "GE\tT")


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerProcess]:
    running = BrokerProcess(tmp_path, HA)
    page_port = str(running.port + 2)
    running.settings |= {
        "metricsExporterType": "PROM", "metricsPromExporterHost": "127.0.0.1", "metricsPromExporterPort": page_port,
    }  # fmt: skip
    await running.start()
    yield running
    await running.stop()


async def test_no_path_or_method_leads_anywhere_but_to_the_pages(broker: BrokerProcess) -> None:
    async def ask(head: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port + 2)
        try:
            writer.write(head)
            async with asyncio.timeout(20):
                return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            writer.transport.abort()

    close = b"Connection: close\r\n\r\n"
    for path in ELSEWHERE:
        answer = await ask(f"GET {path} HTTP/1.1\r\n".encode() + close)
        assert answer.startswith(b"HTTP/1.1 404 "), (path, answer[:100])
        assert b"root:" not in answer and b"secret" not in answer and b"maxq_" not in answer
    for method in METHODS:
        answer = await ask(f"{method} /metrics HTTP/1.1\r\n".encode() + close)
        assert answer.startswith((b"HTTP/1.1 405 ", b"HTTP/1.1 400 ")), (method, answer[:100])
    for head in NO_REQUESTS:
        assert (await ask(head)).startswith(b"HTTP/1.1 400 "), head
    for head in TOO_LONG:
        assert await ask(head) == b"", head[:50]
    with_body = b"GET /health HTTP/1.1\r\nContent-Length: 60\r\n\r\nGET /metrics HTTP/1.1\r\n" + close
    assert (await ask(with_body)).count(b"HTTP/1.1 ") == 1
    assert (await ask(b"GET /health?../../x HTTP/1.1\r\n" + close)).endswith(b"ok\n")
    assert b"maxq_connections" in await ask(b"GET /metrics HTTP/1.1\r\n" + close)
    assert "Traceback" not in broker.log_text()
