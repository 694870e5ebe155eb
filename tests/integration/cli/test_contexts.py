"""A context with TLS and credentials, at a server that insists on both."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from maxq.cli.contexts import contexts_file
from maxq.testing.server_process import StandaloneProcess
from tests.integration.cli.harness import Outcome, maxq


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[StandaloneProcess, Path]]:
    """A server, and the file of the authority that signed its certificate."""
    authority, folder = trustme.CA(), tmp_path_factory.mktemp("guarded")
    issued, trust = authority.issue_cert("127.0.0.1"), folder / "authority.pem"
    issued.private_key_pem.write_to_path(folder / "key.pem")
    issued.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    authority.cert_pem.write_to_path(trust)
    user = '{"username":"root","password":"hush-hush"}'
    settings = {
        "tls.test.mode.enable": "false", "tls.server.mode": "enforcing", "tls.server.keyPath": str(folder / "key.pem"),
        "tls.server.certPath": str(folder / "cert.pem"), "useTLS": "true", "tls.client.trustCertPath": str(trust),
        "authenticationEnabled": "true", "authorizationEnabled": "true", "initAuthenticationUser": user,
        "innerClientAuthenticationCredentials": '{"accessKey":"root","secretKey":"hush-hush"}',
        "maxHashSlotNum": "1000", "maxIndexNum": "4000",
    }  # fmt: skip
    with StandaloneProcess(settings=settings) as server:
        yield server, trust


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("NAMESRV_ADDR", "MAXQ_CONTEXT", "MAXQ_TLS", "MAXQ_ACCESS_KEY", "MAXQ_SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)


def run(*words: str, text: str = "") -> Outcome:
    return maxq(*words, text=text, environment=dict(os.environ))


def test_a_context_opens_a_guarded_server_to_every_kind_of_command(guarded: tuple[StandaloneProcess, Path]) -> None:
    server, trust = guarded
    given = ["--namesrv", server.namesrv_address, "--tls", str(trust), "--access-key", "root", "--secret-key", "-"]
    added = run("context", "add", "secure", *given, text="hush-hush\n")
    assert added.code == 0 and "hush-hush" not in added.out + added.err
    assert contexts_file().stat().st_mode & 0o777 == 0o600
    alone = run("admin", "clusterList", "-n", server.namesrv_address)
    assert alone.code == 1, "without TLS nobody answers"
    assert run("context", "use", "secure").code == 0
    sent = run("produce", "Guarded", text="1\n2\n")
    assert sent.code == 0, sent.err
    got = run("consume", "Guarded", "-g", "G", "--max", "2", "--context", "secure")
    assert sorted(got.out.split()) == ["1", "2"], got.err
    assert "Guarded" in run("admin", "topicList").out
    assert run("dlq", "list", "--json").out == "[]\n"
    shell = run("shell", text="topicList\n")
    assert shell.code == 0 and "Guarded" in shell.out
    wrong = run("admin", "topicList", "--access-key", "root", "--secret-key", "wrong")
    assert wrong.code == 1 and "Guarded" not in wrong.out
    # The commands on Spark ask before they start Java, over a client of their own.
    letters = run("pipeline", "dlq", "show", "nobody")
    assert letters.code == 1 and "group nobody has no dead letters" in letters.err
    words = ["--context", "secure", "--tls", "off"]
    assert "no dead letters" not in run("pipeline", "dlq", "show", "nobody", *words).err


def test_a_context_holds_a_certificate_of_the_client(tmp_path: Path) -> None:
    authority, issued = trustme.CA(), {}
    for name in ("127.0.0.1", "client"):
        issued[name] = authority.issue_cert(name)
        issued[name].private_key_pem.write_to_path(tmp_path / f"{name}.key")
        issued[name].cert_chain_pems[0].write_to_path(tmp_path / f"{name}.pem")
    trust = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(trust)
    own = {"keyPath": str(tmp_path / "127.0.0.1.key"), "certPath": str(tmp_path / "127.0.0.1.pem")}
    settings = {
        "tls.test.mode.enable": "false", "tls.server.mode": "enforcing", "tls.server.need.client.auth": "require",
        "tls.server.authClient": "true", "tls.server.trustCertPath": str(trust), "useTLS": "true",
        "tls.client.trustCertPath": str(trust), **{f"tls.server.{name}": path for name, path in own.items()},
        **{f"tls.client.{name}": path for name, path in own.items()}, "maxHashSlotNum": "1000", "maxIndexNum": "4000",
    }  # fmt: skip
    file = tmp_path / "client.properties"
    file.write_text(
        f"tls.client.trustCertPath={trust}\ntls.client.keyPath={tmp_path / 'client.key'}\n"
        f"tls.client.certPath={tmp_path / 'client.pem'}\n"
    )
    with StandaloneProcess(settings=settings) as server:
        given = ["-n", server.namesrv_address, "--tls", str(file)]
        assert run("context", "add", "own", *given, "--use").code == 0
        assert "broker-a" in run("admin", "clusterList").out
        without = run("admin", "clusterList", "--tls", str(trust))
        assert without.code == 1 and "takes only clients that have a certificate" in without.err
        assert "--tls FILE.properties" in without.err


def test_completion_asks_as_the_context_says(guarded: tuple[StandaloneProcess, Path]) -> None:
    server, trust = guarded
    given = ["-n", server.namesrv_address, "--tls", str(trust), "--access-key", "root", "--secret-key", "hush-hush"]
    assert run("context", "add", "secure", *given).code == 0
    assert run("produce", "Completed", "--context", "secure", text="1\n").code == 0
    line = ["completion", "--complete", "bash", "--", "admin", "topicStatus", "--context"]
    assert run(*line, "").out.split() == ["secure"]
    assert run(*line, "secure", "-t", "Compl").out.split() == ["Completed"]
