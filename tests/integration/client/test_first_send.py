"""A program that only sends loads only what a send needs: its start is short."""

import subprocess
import sys

from maxq.testing.server_process import StandaloneProcess

PROGRAM = """
import sys
from maxq.api import Message, Producer
with Producer("first", sys.argv[1]) as producer:
    assert producer.send(Message("first", b"x")).send_status.name == "SEND_OK"
print(*sys.modules)
"""
#: What others need: consumers, traces, signatures, compressed bodies, servers, commands.
NOT_NEEDED = (
    "maxq.api.consumers",
    "maxq.client.consumer.lite_pull_consumer",
    "maxq.client.consumer.push_consumer",
    "maxq.client.trace",
    "maxq.auth.signing_cy",
    "maxq.broker",
    "maxq.cli",
    "maxq.config.properties",
    "maxq.store",
    "cryptography",
    "difflib",
    "hmac",
    "lark",
    "lz4",
    "shutil",
    "typer",
    "yaml",
    "zstandard",
)


def test_a_first_send_loads_nothing_of_what_others_need() -> None:
    with StandaloneProcess() as server:
        command = [sys.executable, "-c", PROGRAM, server.namesrv_address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert "maxq.client.producer.producer" in loaded
    assert not loaded.intersection(NOT_NEEDED)
