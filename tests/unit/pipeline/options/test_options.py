"""Options mean what they mean for Spark's Kafka source; a wrong one is refused by name, value and what is allowed."""

from collections.abc import Callable

import pytest

from maxq.errors import ConfigError
from maxq.pipeline.options.read_options import EARLIEST, LATEST, Position, ReadOptions
from maxq.pipeline.wire.wire_client import tls_config

BASE = {"rocketmq.namesrv": "127.0.0.1:9876", "subscribe": "T"}


def batch(**given: str) -> ReadOptions:
    return ReadOptions.parse(BASE | given, streaming=False)


def stream(**given: str) -> ReadOptions:
    return ReadOptions.parse(BASE | given, streaming=True)


@pytest.mark.parametrize(
    ("given", "addresses"), [("a", "a:9876"), ("a:1; b,[::1]", "a:1;b:9876;[::1]:9876"), ("[::1]:2", "[::1]:2")]
)
def test_a_name_server_without_a_port_has_the_usual_one(given: str, addresses: str) -> None:
    options = ReadOptions.parse({"rocketmq.namesrv": given, "subscribe": "T"}, streaming=False)
    assert options.connection.namesrv == addresses


def test_defaults_of_batch_and_stream() -> None:
    assert (batch().starting, batch().ending) == (Position("earliest"), Position("latest"))
    assert stream().starting == Position("latest")
    assert (batch().fail_on_data_loss, batch().read_from, batch().group_id) == (True, "auto", None)
    assert batch().columns[:2] == ("body", "topic")
    assert len(batch().columns) == 20


def test_names_are_read_in_any_case_and_lists_are_split() -> None:
    options = ReadOptions.parse(
        {"ROCKETMQ.NAMESRV": " a:1, b:2 ", "Subscribe": "A, B,A", "FAILONDATALOSS": "FALSE"}, streaming=False
    )
    assert options.connection.namesrv == "a:1;b:2"
    assert options.selection.topics == ("A", "B")
    assert not options.fail_on_data_loss


@pytest.mark.parametrize(
    ("text", "ms"), [("200ms", 200), ("30s", 30_000), ("15m", 900_000), ("2 hours", 7_200_000), ("1d", 86_400_000),
                     ("750", 750), ("5 minutes", 300_000), ("10 seconds", 10_000)],
)  # fmt: skip
def test_times_are_written_as_spark_writes_them(text: str, ms: int) -> None:
    assert stream(maxTriggerDelay=text).max_trigger_delay_ms == ms


def test_positions() -> None:
    table = {"T": {"broker-a": {0: 5, 1: EARLIEST, 2: LATEST}}}
    assert stream(startingOffsets='{"T":{"broker-a":{"0":5,"1":-2,"2":-1}}}').starting == Position("offsets", table)
    everywhere = stream(startingOffsets='{"T":{"0":5}}').starting
    assert everywhere.of_queue("T", "any", 0) == 5
    assert everywhere.of_queue("T", "any", 1) is None
    assert batch(startingTimestamp="1000").starting == Position("timestamp", timestamp=1000)
    assert batch(endingOffsetsByTimestamp='{"T":{"b":{"0":7}}}').ending == Position("timestamp", {"T": {"b": {0: 7}}})
    assert stream(startingOffsetsByGroup="g").starting == Position("group", group="g")


def test_assign_names_queues() -> None:
    given = {"rocketmq.namesrv": "a:1", "assign": '{"T":{"broker-a":[0,2]},"U":[1]}'}
    selection = ReadOptions.parse(given, streaming=False).selection
    assert selection.topics == ("T", "U")
    assert [selection.takes("T", "broker-a", n) for n in range(3)] == [True, False, True]
    assert not selection.takes("T", "broker-b", 0)
    assert selection.takes("U", "broker-b", 1)


@pytest.mark.parametrize("fold", [str, str.lower], ids=["as written", "as Spark hands them over"])
def test_tls_options_mean_the_same_in_any_case(fold: Callable[[str], str]) -> None:
    """Spark gives names in lower case to a Python data source."""
    given = {"rocketmq.tls.client.authServer": "false", "rocketmq.tls.client.keyPath": "/Key.pem"}
    connection = batch(**{fold(name): text for name, text in given.items()}).connection
    assert connection.tls == (("tls.client.authServer", "false"), ("tls.client.keyPath", "/Key.pem"))
    assert tls_config(connection).tls_client_auth_server is False


def test_tls_and_acl_options() -> None:
    given = {"rocketmq.tls.client.trustCertPath": "/ca.pem", "rocketmq.accessKey": "a", "rocketmq.secretKey": "geheim"}
    connection = batch(**given).connection
    assert connection.use_tls
    assert connection.tls == (("tls.client.trustCertPath", "/ca.pem"),)
    assert "geheim" not in repr(connection)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rocketmq.tls.client.trustPath": "x"}, "did you mean rocketmq.tls.client.trustCertPath?"),
        ({"rocketmq.tls.client.authServer": "perhaps"}, "tls.client.authServer"),
        ({"subscibe": "x"}, "unknown option subscibe; did you mean subscribe?"),
        ({"assign": "{}"}, "exactly one of the options subscribe, subscribePattern, assign .* subscribe and assign"),
        ({"subscribe": "a b"}, "option subscribe is 'a b'"),
        ({"subscribe": ""}, "none is there"),
        ({"rocketmq.namesrv": "host:"}, "rocketmq.namesrv is 'host:'; it must be host:port"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss is 'maybe'; it must be one of true, false"),
        ({"minPartitions": "0"}, "minPartitions is '0'; it must be an integer from 1"),
        ({"startingOffsets": "first"}, "startingOffsets is 'first'; it must be earliest, latest, or JSON"),
        ({"startingOffsets": "latest"}, "leaves a batch nothing to read"),
        ({"startingOffsets": '{"T":{"b":{"0":-1}}}'}, "leaves a batch nothing to read"),
        ({"endingOffsets": "earliest"}, "leaves a batch nothing to read"),
        ({"startingOffsets": '{"T":{"b":{"0":-3}}}'}, "must be earliest, latest, or JSON"),
        ({"startingOffsets": '{"T":[1]}'}, "must be earliest, latest, or JSON"),
        ({"startingTimestamp": "1", "startingOffsets": "earliest"}, "say different things about the same end"),
        ({"maxOffsetsPerTrigger": "5"}, "is for a stream"),
        ({"columns": "body,nobody"}, "'nobody' is no column"),
        ({"readFrom": "tape"}, "readFrom is 'tape'; it must be one of auto, broker, slave, files"),
        ({"subExpressionType": "SQL92"}, "needs a subExpression"),
        ({"subExpression": "||"}, "tags with || between them"),
        ({"rocketmq.accessKey": "a"}, "given together or not at all"),
        ({"rocketmq.brokerWait": "soon"}, "a time such as"),
        ({"fetchBytes": "1g"}, "at most 64m"),
    ],
)
def test_what_is_wrong_is_refused_with_reasons(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("||", r"\|\|").replace("?", r"\?")):
        batch(**given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"endingOffsets": "latest"}, "a stream ends when its query is stopped"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "minOffsetsPerTrigger 9 is above"),
        ({"maxBytesPerTrigger": "much"}, "a number of bytes"),
    ],
)
def test_what_is_wrong_for_a_stream(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        stream(**given)


def test_options_of_sparks_kafka_source_are_told_what_is_here_in_their_place() -> None:
    base = {"rocketmq.namesrv": "a:1", "subscribe": "T"}
    hints = {"kafka.bootstrap.servers": "rocketmq.namesrv", "FETCHOFFSET.numRetries": "rocketmq.brokerWait"}
    for name, hint in hints.items():
        with pytest.raises(ConfigError, match=f"unknown option {name}; .*{hint}"):
            ReadOptions.parse(base | {name: "3"}, streaming=True)


def test_headers_are_a_column_more() -> None:
    base = {"rocketmq.namesrv": "a:1", "subscribe": "T", "includeHeaders": "true"}
    assert ReadOptions.parse(base, streaming=True).columns[-1] == "headers"
    assert ReadOptions.parse(base | {"columns": "headers,value"}, streaming=True).columns == ("headers", "value")


def test_a_span_of_time_that_ends_before_it_begins_is_refused() -> None:
    """It would be a batch without rows."""
    with pytest.raises(ConfigError, match="startingTimestamp 9 is above endingTimestamp 8: swap them"):
        batch(startingTimestamp="9", endingTimestamp="8")
    assert batch(startingTimestamp="8", endingTimestamp="8").ending.timestamp == 8
