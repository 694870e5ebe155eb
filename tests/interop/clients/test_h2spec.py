"""h2spec, the conformance test of HTTP/2 and HPACK, at a gRPC server."""

import asyncio
from pathlib import Path
from xml.etree import ElementTree

import pytest

from maxq.config.netty_server_config import NettyServerConfig
from maxq.remoting.grpc.server import GrpcServer
from maxq.remoting.tls.contexts import ServerTls
from maxq.runtime.files.system import SystemDisk
from tests.interop.conftest import or_skip
from tests.interop.processes import peers

pytestmark = pytest.mark.interop

CASES = 146  # of version 2.2.1, the strict ones included


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
async def test_all_cases_pass(tmp_path: Path, tls: bool) -> None:
    program = or_skip(peers.h2spec)
    server = GrpcServer({}, tls=ServerTls(NettyServerConfig(), SystemDisk(), protocols=["h2"]))
    port = await server.start("127.0.0.1", 0)
    report = tmp_path / "report.xml"
    options = ["--strict", "--timeout", "5", "--junit-report", str(report), *(["--tls", "--insecure"] if tls else [])]
    process = await asyncio.create_subprocess_exec(
        program, "--port", str(port), *options, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    await server.stop(0)
    assert report.exists(), said.decode()
    cases = list(ElementTree.parse(report).iter("testcase"))
    failed = [
        case.get("package", "") + " " + case.get("classname", "") for case in cases if case.find("failure") is not None
    ]
    errors = [case.get("classname", "") for case in cases if case.find("error") is not None]
    skipped = [case.get("classname", "") for case in cases if case.find("skipped") is not None]
    assert (failed, errors, skipped) == ([], [], []), said.decode()
    assert len(cases) == CASES
    assert not server.connections
