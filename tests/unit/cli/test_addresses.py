"""Addresses of name servers and brokers, as options and variables take them."""

import pytest
import typer

from maxq.cli.app import run
from maxq.cli.options import (
    DEFAULT_BROKER_PORT,
    DEFAULT_NAMESRV_PORT,
    name_servers,
    other_server_address,
    other_server_addresses,
    server_address,
)
from maxq.config import settings


def test_the_ports_are_those_of_the_servers() -> None:
    assert (DEFAULT_NAMESRV_PORT, DEFAULT_BROKER_PORT) == (
        settings.DEFAULT_NAMESRV_PORT, settings.DEFAULT_BROKER_PORT,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost", "localhost:10911"),
        ("localhost:1", "localhost:1"),
        ("10.0.0.1", "10.0.0.1:10911"),
        ("[::1]", "[::1]:10911"),
        ("[fe80::1%eth0]:1", "[fe80::1%eth0]:1"),
    ],
)
def test_a_host_without_a_port_has_the_usual_one(text: str, address: str) -> None:
    assert server_address(text) == address
    assert name_servers(text) == address.replace("10911", "9876")
    assert name_servers(f"{text}; http://b") == address.replace("10911", "9876") + ";b:9876"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("::1", "an IPv6 address is put in brackets, [::1] or [::1]:"),
        ("fe80::1:10911", "an IPv6 address is put in brackets"),
        ("host:", "an address is host:port, not 'host:'"),
        ("host:port", "an address is host:port"),
        ("host:70000", "an address is host:port"),
        (":9876", "an address is host:port"),
        ("[]", "an address is host:port"),
        ("[::1", "an address is host:port"),
        ("[::1]x:1", "an address is host:port"),
        ("[::1]1", "an address is host:port"),
    ],
)
def test_what_is_no_address_is_refused(text: str, said: str) -> None:
    for parse in (server_address, name_servers, other_server_address, other_server_addresses):
        with pytest.raises(typer.BadParameter) as refused:
            parse(text)
        assert said in str(refused.value.message)


def test_a_server_without_a_usual_port_needs_one() -> None:
    assert other_server_addresses("a:1; b:2") == "a:1;b:2"
    for parse in (other_server_address, other_server_addresses):
        with pytest.raises(typer.BadParameter, match="an address is host:port, not 'host'"):
            parse("host")


@pytest.mark.parametrize(
    "words",
    [
        ["admin", "brokerStatus", "-b", "::1"],
        ["admin", "copyUser", "-f", "host:port", "-t", "b"],
        ["admin", "why-slow", "host:port"],
        ["admin", "getControllerConfig", "-a", "host"],
        ["broker", "-n", "::1"],
        ["sql", "SELECT 1", "-n", "::1"],
        ["shell", "-n", "::1"],
        ["context", "add", "x", "-n", "::1"],
    ],
)
def test_each_option_that_takes_an_address_checks_it(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 2
    err = capsys.readouterr().err
    assert ("an address is host:port" in err or "IPv6 address" in err) and err.count("\n") == 1


def test_the_environment_is_checked_as_well(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "host:port")
    for words in (["admin", "topicList"], ["sql", "SELECT 1"], ["pipeline", "trace"]):
        assert run(words) == 2
        assert "NAMESRV_ADDR: an address is host:port, not 'host:port'" in capsys.readouterr().err
