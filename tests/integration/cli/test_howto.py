"""The how-to pages lead where they say, step by step."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from maxq.api import Message, Producer
from maxq.errors import MaxQError
from maxq.testing.server_process import StandaloneProcess
from tests.integration.cli.harness import maxq

HOWTO = Path(__file__).parents[3] / "docs/howto"


@pytest.mark.skipif(not shutil.which("openssl"), reason="the page uses OpenSSL's command, which is not installed here")
def test_the_page_of_tls_ends_with_clients_that_check_the_server(tmp_path: Path) -> None:
    page = (HOWTO / "tls.md").read_text()
    steps = re.search(r"```sh\n(.*?)```", page, re.DOTALL)
    started = re.search(r"^ {4}maxq standalone (.*)$", page, re.MULTILINE)
    asked = re.search(r"^ {4}maxq (admin clusterList) .*(--tls ca\.pem)$", page, re.MULTILINE)
    assert steps and started and asked
    subprocess.run(["sh", "-ec", steps[1]], cwd=tmp_path, check=True, capture_output=True)

    settings = dict(pair.split("=", 1) for pair in re.findall(r"--set (\S+)", started[1]))
    inside = {"server.key", "server.pem", "ca.pem"}
    settings = {name: str(tmp_path / value) if value in inside else value for name, value in settings.items()}
    with StandaloneProcess(settings) as server:
        done = maxq("admin", "clusterList", "--tls", "ca.pem", namesrv=server.namesrv_address, cwd=tmp_path)
        assert done.code == 0 and "broker-a" in done.out, done
        with Producer("howto", server.namesrv_address, use_tls=str(tmp_path / "ca.pem")) as producer:
            producer.send(Message("Howto", b"over TLS"))
        with pytest.raises(MaxQError), Producer("howto", server.namesrv_address, send_msg_timeout=500) as producer:
            producer.send(Message("Howto", b"in the open"))
        untrusting = Producer("howto", server.namesrv_address, use_tls=True, send_msg_timeout=500)
        with pytest.raises(MaxQError, match="refused by TLS: unable to get local issuer"), untrusting as producer:
            producer.send(Message("Howto", b"to a stranger"))
