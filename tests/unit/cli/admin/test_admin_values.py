"""Values that no admin command can use are refused before a server is asked: option, value, remedy."""

import pytest

from maxq.cli.app import run

NOBODY = "127.0.0.1:1"  # would be asked, and does not answer
AT = ("-b", NOBODY)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["deleteExpiredCommitLog", "-y", "-b", ""], "-b/--brokerAddr is empty: give it a value or leave it out"),
        (["cleanUnusedTopic", "-y", "-c", ""], "-c/--clusterName is empty: give it a value or leave it out"),
        (["deleteSubGroup", "-y", *AT, "-g", ""], "--groupName/--consumerGroup is empty: give it a value"),
        (["resetMasterFlushOffset", "-y", *AT, "-o", "9" * 24], f"-o/--offset {'9' * 24} is too large: servers"),
        (["printMsg", "-t", "T", "-c", "nonsense"], "charset 'nonsense' is not known: give one such as UTF-8 or GBK"),
        (["printMsg", "-t", "T", "-c", "hex"], "charset 'hex' is not known"),
        (["printMsg", "-t", "T", "-d", "yes"], "-d 'yes' is not allowed: it must be true or false"),
        (["printMsgByQueue", "-t", "T", "-a", "a", "-i", "0", "-f", "1"], "-f '1' is not allowed: it must be true or"),
        (["brokerConsumeStats", *AT, "-o", "no"], "-o 'no' is not allowed: it must be true or false"),
        (["checkMsgSendRT", "-t", "T", "-a", "9" * 24], "is not in the range 1<=x<=1000000"),
        (["sendMsgStatus", "-b", "a", "-s", "9" * 24], "is not in the range 1<=x<=67108864"),
        (["brokerStatus", "-b", "broker-a:"], "an address is host:port, not 'broker-a:'"),
        (["why-slow", "h:65536"], "an address is host:port, not 'h:65536'"),
        (["topicList", "-n", "a:1;b:c"], "an address is host:port, not 'b:c'"),
        (["topicList", "-n", " ; "], "' ; ' names no name server: give host:port, several separated by ';'"),
        (["resetOffsetByTime", "-g", "g", "-t", "T", "-s", "banana"], "'banana' is no time: give now, milliseconds"),
        (["createAcl", "-s", "User:u", "-r", "Topic:T", "-d", "Allow", "-a", "Pub,Subb"], "'Subb' is no action: there"),
        (["updateAcl", "-s", "User:u", "-r", "Topic:T", "-d", "Alow", "-a", "PUB"], "'Alow' is no decision: give"),
        (["getControllerMetaData", "-a", " ; "], "' ; ' names no server: give host:port"),
    ],
)  # fmt: skip
def test_values_that_cannot_be_used_are_named(line: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    command, *options = line
    assert run(["admin", command, "-n", NOBODY, *options]) == 2
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1


def test_the_value_of_a_setting_may_be_empty(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["admin", "updateBrokerConfig", "-n", NOBODY, *AT, "-k", "rocketmqHome", "-v", ""]) == 1
    assert "connect" in capsys.readouterr().err
