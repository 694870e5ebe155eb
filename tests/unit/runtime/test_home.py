"""The home of users who have one, and of those who have none."""

import pwd
from pathlib import Path

import pytest

from maxq.cli.contexts import contexts_file
from maxq.machine import system_environment, system_host
from maxq.runtime.home import home


def test_a_user_s_home_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert home() == tmp_path


def test_servers_clients_and_commands_work_for_a_user_whom_no_file_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that is started with a number for its user."""

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    assert system_host().home == system_environment().home == Path("/")
    assert contexts_file() == Path("/.config/maxq/contexts.toml")
