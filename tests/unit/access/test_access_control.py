"""What a server says about its own user, with which it signs what it asks of others."""

from pathlib import Path

import pytest

from maxq.access.access_control import AccessControl, AccessSettings, with_remedy
from maxq.config.auth_config import AuthConfig
from maxq.errors import BrokerError, RemotingTimeoutError
from maxq.runtime.files.system import SystemClock, SystemDisk


def load(folder: Path, secret: str) -> None:
    own = f'{{"accessKey":"inner","secretKey":"{secret}"}}'
    auth = AuthConfig(authentication_enabled=True, inner_client_authentication_credentials=own)
    AccessControl(AccessSettings(auth, False, "", folder), disk=SystemDisk(), clock=SystemClock()).load()


def test_a_secret_of_the_settings_that_is_not_the_one_of_the_file_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    load(tmp_path, "first")
    load(tmp_path, "first")
    assert caplog.messages == []
    load(tmp_path, "second")
    (line,) = caplog.messages
    assert "innerClientAuthenticationCredentials" in line and "user inner" in line and "auth.json" in line
    assert "first" not in line and "second" not in line


def test_a_refused_request_of_the_server_itself_names_the_setting_that_says_as_whom_it_is_signed() -> None:
    refused = with_remedy(BrokerError(16, "check signature failed."))
    assert refused.startswith(str(BrokerError(16, "check signature failed.")))
    assert "innerClientAuthenticationCredentials" in refused
    for other in (BrokerError(1, "system error"), RemotingTimeoutError("no answer", address="a:1", timeout_ms=1)):
        assert with_remedy(other) == str(other)
