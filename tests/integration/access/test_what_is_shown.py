"""What a server says at its start about who reaches it, and that it tells secrets to nobody: in no log, no answer, and
on no page."""

import asyncio
import logging
from pathlib import Path

import pytest

from maxq.codes import RequestCode as Code
from maxq.config.netty_client_config import NettyClientConfig
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.client import RemotingClient
from maxq.runtime.files.system import SystemClock, SystemRng
from tests.integration.access.world import ACL_2, ALICE, ROOT, WRONG, GuardedBroker, GuardedNamesrv, signed
from tests.interop.processes.servers import free_port_base

EVERYWHERE = {"bindAddress": "0.0.0.0"}
SECRETS = ("root-secret", "inner-secret", "alice-secret", "not-her-secret")


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Of listening; each begins with what listens."""
    return [text for record in caplog.records if "is open to other machines" in (text := record.getMessage())]


@pytest.mark.parametrize("is_guarded", [False, True])
async def test_what_other_machines_reach_without_access_control_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_guarded: bool
) -> None:
    access = ACL_2 if is_guarded else {}
    pages = {"metricsExporterType": "PROM", "metricsPromExporterHost": "0.0.0.0",
             "metricsPromExporterPort": str(free_port_base())}  # fmt: skip
    broker = GuardedBroker(tmp_path / "store", {**access, **EVERYWHERE, **pages})
    namesrv = GuardedNamesrv(tmp_path, {**access, **EVERYWHERE})
    await broker.start()
    await namesrv.controller.start()
    try:
        found = _warnings(caplog)
        servers = [f"0.0.0.0:{port}" for port in (broker.controller.port, namesrv.controller.port)]
        assert [text.split(" ")[0] for text in found if text.startswith("0.")] == ([] if is_guarded else servers)
        assert len([text for text in found if text.startswith("haListenPort ")]) == 1
        assert len([text for text in found if text.startswith("metrics: 0.0.0.0:")]) == 1
    finally:
        await namesrv.controller.shutdown()
        await broker.stop()


async def test_what_only_this_machine_reaches_says_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broker = GuardedBroker(tmp_path / "store", {})
    namesrv = GuardedNamesrv(tmp_path, {"namesrvName": "x"})
    await broker.start()
    await namesrv.controller.start()
    await namesrv.controller.shutdown()
    await broker.stop()
    assert _warnings(caplog) == []


async def test_secrets_are_told_to_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    port = free_port_base()
    more = {
        "metricsExporterType": "PROM", "metricsPromExporterHost": "127.0.0.1", "metricsPromExporterPort": str(port),
        "tls.server.keyPassword": "inner-secret", "metricsGrpcExporterHeader": "token:inner-secret",
    }  # fmt: skip
    broker, namesrv = GuardedBroker(tmp_path / "store", {**ACL_2, **more}), GuardedNamesrv(tmp_path)
    client = RemotingClient(NettyClientConfig(), clock=SystemClock(), rng=SystemRng())
    await broker.start()
    await namesrv.controller.start()
    told: list[str] = []

    async def ask(address: str, code: int, who: object = ROOT, body: bytes | None = None, **ext: str) -> None:
        command = signed(RemotingCommand(code, dict(ext), body), who)  # type: ignore[arg-type]
        answer = await client.invoke(address, command, 10_000)
        told.append(f"{answer.remark} {answer.ext} {answer.body_bytes.decode('utf-8', 'replace')}")

    try:
        await broker.make_alice()
        for address in (broker.address, namesrv.address):
            shown = (Code.GET_BROKER_CONFIG, Code.GET_NAMESRV_CONFIG, Code.GET_BROKER_RUNTIME_INFO, Code.AUTH_LIST_ACL)
            for code in shown:
                await ask(address, code)
                await ask(address, code, ALICE)
            for code in (Code.AUTH_GET_USER, Code.AUTH_LIST_USER):  # super users are told: copyUser needs it
                await ask(address, code, ALICE, username="alice")
            await ask(address, Code.AUTH_CREATE_USER, WRONG, b'{"password":"not-her-secret"}', username="eve")
            await ask(address, Code.AUTH_CREATE_USER, ROOT, b'{"password":"alice-secret"', username="eve")
            await ask(address, Code.UPDATE_BROKER_CONFIG, ROOT, b"initAuthenticationUser=alice-secret")
            await ask(address, Code.UPDATE_NAMESRV_CONFIG, ROOT, b"innerClientAuthenticationCredentials=alice-secret")
        for path in ("/metrics", "/health", "/ready", "/"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET {path} HTTP/1.1\r\nConnection: close\r\n\r\n".encode())
            told.append((await reader.read(1 << 24)).decode())
            writer.close()
    finally:
        await client.close()
        await namesrv.controller.shutdown()
        await broker.stop()
    assert len(told) > 20 and "maxq" in "".join(told).lower()
    logged = [record.getMessage() + (record.exc_text or "") for record in caplog.records]
    for secret in SECRETS:
        assert [text for text in [*told, *logged] if secret in text] == []
