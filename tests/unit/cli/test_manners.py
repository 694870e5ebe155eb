"""What the command line does for people who guess."""

from typing import cast

import pytest
import typer

from maxq import __version__
from maxq.cli.app import run
from maxq.cli.options import name_servers
from maxq.cli.terminal.error_text import error_line
from maxq.cli.terminal.message_json import message_of
from maxq.cli.terminal.near_names import near_names
from maxq.client.admin.admin import Admin
from maxq.errors import BrokerError, ClientError, ConfigError, NoRouteError, RemotingConnectError
from maxq.protocol.body.route import BrokerData, ClusterInfo


@pytest.mark.parametrize("words", [["--version"], ["-V"], ["version"]])
def test_the_version_is_told_to_whoever_asks(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 0
    assert capsys.readouterr().out == f"maxq {__version__}\n"


def test_help_explains_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "timer"]) == run(["timer", "--help"]) == 0
    first, second = capsys.readouterr().out.split("Usage:")[1:]
    assert first.strip() == second.strip() and "maxq timer" in first
    assert run(["help"]) == 0 and "standalone" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["prodcue", "T"], "produce"),
        (["Consume"], "consume"),
        (["admin", "clusterlist"], "clusterList"),
        (["topicList"], "admin topicList"),
        (["topiclst"], "admin topicList"),
        (["store", "chek"], "check"),
        (["store", "Check"], "check"),
        (["dlq", "redriv"], "redrive"),
        (["timer", "canel"], "cancel"),
        (["transaction", "lst"], "list"),
        (["dledger", "apend", "text"], "append"),
        (["pipeline", "adit"], "audit"),
        (["pipeline", "dlq", "shw"], "show"),
        (["pipeline", "archive", "vrify"], "verify"),
        (["rehearse", "DIR"], "store rehearse"),
        (["inspect"], "timer inspect or transaction inspect"),
    ],
)
def test_a_command_that_is_not_there_brings_the_nearest(
    words: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    said = capsys.readouterr()
    assert said.out == "" and f"did you mean {meant}?" in said.err and said.err.count("\n") == 1


def test_name_servers_without_a_port_have_the_usual_one() -> None:
    assert name_servers("localhost") == "localhost:9876"
    assert name_servers("ns1; ns2:9877;http://ns3;[::1]") == "ns1:9876;ns2:9877;ns3:9876;[::1]:9876"
    for wrong in (";", "ns:port"):
        with pytest.raises(typer.BadParameter):
            name_servers(wrong)


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (BrokerError(3, " request type 105 not supported", address="h:10911"), "-n takes the address of a name server"),
        (BrokerError(3, " request type 28 not supported", address="h:9876"), "the address must be a broker's"),
        (NoRouteError(17, "No topic route info in name server for the topic: T"), "updateTopic creates one"),
        (NoRouteError(17, "[NO_BROKER]No topic route info in name server for the topic: T"), "start one with"),
        (BrokerError(16, "check signature failed."), "from a name server); that server knows another secret"),
        (BrokerError(16, "U has no permission to access T from h, no matched policies."), "getAcl with -b"),
        (BrokerError(16, "username cannot be null. Sign requests with an access key."), "--access-key with"),
    ],
)
def test_an_answer_that_explains_nothing_comes_with_what_to_do(error: BrokerError, remedy: str) -> None:
    assert remedy in error_line(error)


def test_a_host_that_nobody_knows_may_be_the_name_of_a_broker() -> None:
    unknown = RemotingConnectError("connect to <broker-a:10911> failed: Name or service not known", address="b:1")
    assert "is that the name of a broker? -b takes its address" in error_line(unknown)
    refused = RemotingConnectError("connect to <b:1> failed: refused", address="b:1")
    assert "does that server run?" in error_line(refused)


def test_an_answer_that_explains_itself_is_left_as_it_is() -> None:
    remark = "request type 901 not supported: ADD_BROKER belongs to the broker container, which MaxQ does not have"
    assert error_line(BrokerError(3, remark)) == f"{remark} (code 3)"


def test_a_key_with_a_blank_is_a_wrong_line() -> None:
    with pytest.raises(ConfigError, match="line 4: the key 'a b' has a blank"):
        message_of({"body": "x", "keys": ["a b"]}, "T", "line 4")


class _Names:
    """The part of Admin that tells names."""

    def __init__(self) -> None:
        self.topics = self

    async def names(self) -> list[str]:
        return ["Orders", "Payments", "%RETRY%readers"]

    async def cluster_info(self) -> ClusterInfo:
        brokers = {"broker-a": BrokerData("Main", "broker-a", {0: "h:10911"})}
        return ClusterInfo(broker_addr_table=brokers, cluster_addr_table={"Main": ["broker-a"]})


@pytest.mark.parametrize(
    ("word", "meant"),
    [("ordres", "Orders"), ("reader", "readers"), ("brokera", "broker-a"), ("main", "Main"), ("Invoices", None)],
)
async def test_a_name_that_no_server_knows_brings_the_most_similar_one(word: str, meant: str | None) -> None:
    with pytest.raises(ClientError) as raised:
        async with near_names(cast(Admin, _Names()), [word, 5, None, "Orders"]):
            raise ClientError(f"nobody knows {word}")
    assert error_line(raised.value) == f"nobody knows {word}" + (f"; did you mean {meant}?" if meant else "")


async def test_a_name_that_is_there_and_an_error_that_names_none_bring_nothing() -> None:
    for error in (ClientError("topic Orders is full"), ClientError("no"), ConfigError("ordres is no number")):
        with pytest.raises(type(error)) as raised:
            async with near_names(cast(Admin, _Names()), ["Orders", "ordres"]):
                raise error
        assert error_line(raised.value) == str(error)
