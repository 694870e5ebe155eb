"""Where credentials come from, and what a pipeline's connection makes of its options."""

from pathlib import Path

import pytest

from maxq.auth.signature import Credentials
from maxq.cli.connection import found_connection, use_connection
from maxq.client.client_config import ClientConfig
from maxq.client.instance.mq_client_manager import remoting_of
from maxq.errors import ClientError, ConfigError
from maxq.machine import environment_credentials, system_environment
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.rpc_hooks import HookedRemotingClient

NAMES = ("MAXQ_ACCESS_KEY", "MAXQ_SECRET_KEY", "MAXQ_SECURITY_TOKEN", "ROCKETMQ_HOME")


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.setenv(name, "")


def test_the_environment_comes_before_mqadmin_s_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert environment_credentials() is None
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "tools.yml").write_text("accessKey: 1234567\nsecretKey: 'from-file'\n")
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    assert environment_credentials() == Credentials("1234567", "from-file")
    monkeypatch.setenv("MAXQ_ACCESS_KEY", "a")
    monkeypatch.setenv("MAXQ_SECRET_KEY", "b")
    assert environment_credentials() == Credentials("a", "b")


def test_a_file_that_is_none_is_named_without_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "tools.yml").write_text("secretKey: [hush")
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"tools\.yml") as refused:
        environment_credentials()
    assert "hush" not in str(refused.value)


def test_options_of_a_command_come_first_and_belong_together(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="together"):
        found_connection(access_key="a")
    monkeypatch.setenv("MAXQ_ACCESS_KEY", "c")
    use_connection(found_connection(access_key="a", secret_key="b"))
    assert environment_credentials() == Credentials("a", "b")


def signature(config: ClientConfig) -> dict[str, str]:
    """The header fields of a request that a client with this config sends."""
    remoting = remoting_of(config, system_environment())
    if not isinstance(remoting, HookedRemotingClient):
        return {}
    command = RemotingCommand(105, {"topic": "T"})
    remoting.before("", command)
    return command.ext


def test_a_client_signs_with_its_own_credentials_or_the_environment_s(monkeypatch: pytest.MonkeyPatch) -> None:
    assert signature(ClientConfig()) == {}
    own = ClientConfig(access_key="ak", secret_key="sk", security_token="token")
    assert signature(own)["AccessKey"] == "ak" and signature(own)["SecurityToken"] == "token"
    assert "sk" not in repr(own) and "token" not in repr(own)
    monkeypatch.setenv("MAXQ_ACCESS_KEY", "env")
    monkeypatch.setenv("MAXQ_SECRET_KEY", "x")
    assert signature(ClientConfig())["AccessKey"] == "env"
    assert signature(own)["AccessKey"] == "ak"
    with pytest.raises(ClientError, match="together"):
        signature(ClientConfig(access_key="ak"))


def test_what_hooks_of_the_application_add_is_signed() -> None:
    class Adds:
        def do_before_request(self, address: str, request: RemotingCommand) -> None:
            request.ext["zone"] = "z"

        def do_after_response(self, address: str, request: RemotingCommand, response: RemotingCommand | None) -> None:
            """Nothing."""

    plain = signature(ClientConfig(access_key="ak", secret_key="sk"))
    added = signature(ClientConfig(access_key="ak", secret_key="sk", rpc_hooks=[Adds()]))
    assert added["zone"] == "z" and added["Signature"] != plain["Signature"]
