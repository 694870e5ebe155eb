"""The options of `format("rocketmq")`: what may be given, what it means, what is refused.

Names and meanings are those of Spark's Kafka source where it has the same thing. Names are compared without regard to
case. Options of the connection serve reading and writing; they begin with `rocketmq.`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from maxq.arrow.schemas import message_columns
from maxq.config.loader import load
from maxq.config.netty_client_config import NettyClientConfig
from maxq.config.setting import settings_of
from maxq.errors import ConfigError
from maxq.pipeline.options.option_values import OptionValues
from maxq.pipeline.options.predicate import PREDICATE

FORMAT: Final = "rocketmq"
#: RocketMQ's names of the client settings that begin with `tls.`.
_TLS_NAMES: Final = tuple(row.name for row in settings_of(NettyClientConfig) if row.name.startswith("tls."))

CONNECTION_OPTIONS: Final = (
    "rocketmq.namesrv", "rocketmq.useTLS", "rocketmq.accessKey", "rocketmq.secretKey", "rocketmq.securityToken",
    "rocketmq.requestTimeout", "rocketmq.brokerWait", *(f"rocketmq.{name}" for name in _TLS_NAMES),
)  # fmt: skip
READ_OPTIONS: Final = (
    "subscribe", "subscribePattern", "assign", "startingOffsets", "endingOffsets", "startingTimestamp",
    "endingTimestamp", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "startingOffsetsByGroup",
    "failOnDataLoss", "minPartitions", "maxRecordsPerPartition", "maxOffsetsPerTrigger", "minOffsetsPerTrigger",
    "maxTriggerDelay", "maxBytesPerTrigger", "groupId", "subExpression", "subExpressionType", "readFrom", "storePath",
    "columns", "includeHeaders", "fetchBytes", "startingOffsetsByTimestampStrategy", PREDICATE,
)  # fmt: skip

#: Options of Spark's Kafka source that have another name here or do not exist → what to do.
KAFKA_OPTIONS: Final = {
    "kafka.bootstrap.servers": "the name servers are given in rocketmq.namesrv",
    "kafka.group.id": "it is groupId here",
    "groupIdPrefix": "readers without a groupId make no group at all, so there are no generated names",
    "kafkaConsumer.pollTimeoutMs": "how long an answer may take is rocketmq.requestTimeout",
    "fetchOffset.numRetries": "a broker that is away is asked again until rocketmq.brokerWait is over",
    "fetchOffset.retryIntervalMs": "a broker that is away is asked again until rocketmq.brokerWait is over",
}

READ_FROM: Final = ("auto", "broker", "slave", "files")
EARLIEST: Final = -2  # in place of an offset, as in Spark's Kafka source
LATEST: Final = -1
#: Key in a stream's offsets, beside the queues of a broker: the incarnation of the topic that they belong to.
INCARNATION: Final = "incarnation"
FIRST: Final = "first:"  # before a queue id

_NAMESRV_PORT: Final = 9876  # port of a name server whose address names none
_TOPIC: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_DEFAULT_FETCH_BYTES: Final = 4 << 20


@dataclass(frozen=True)
class ConnectionOptions:
    """How to reach the cluster. Times in ms.

    Attributes:
        tls: RocketMQ's names (tls.client.trustCertPath, …) → texts.
        broker_wait_ms: how long a reader waits for a broker that cannot be reached before it fails.
    """

    namesrv: str  # host:port, several separated by ';'
    use_tls: bool = False
    tls: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    security_token: str = field(default="", repr=False)
    request_timeout_ms: int = 10_000
    broker_wait_ms: int = 120_000

    @classmethod
    def parse(cls, values: OptionValues) -> "ConnectionOptions":
        """Parse the options of the connection. Raises ConfigError."""
        namesrv = values.required("rocketmq.namesrv", "host:port of the name servers, separated by ';'")
        named = [part.strip().removeprefix("http://") for part in re.split("[;,]", namesrv) if part.strip()]
        addresses = [f"{one}:{_NAMESRV_PORT}" if ":" not in one or one.endswith("]") else one for one in named]
        for address in addresses:
            host, _, port = address.rpartition(":")
            if not host or not port.isdigit() or not 0 < int(port) < 65536:
                raise values.wrong("rocketmq.namesrv", namesrv, "host:port, several separated by ';'")
        access, secret = values.text("rocketmq.accessKey"), values.text("rocketmq.secretKey")
        if (access is None) != (secret is None):
            raise values.contradiction("rocketmq.accessKey and rocketmq.secretKey are given together or not at all")
        given = {name: values.text(f"rocketmq.{name}") for name in _TLS_NAMES}
        tls = {name: text for name, text in given.items() if text is not None}
        # raises for values that the settings cannot have
        load([NettyClientConfig()], tls, source="option rocketmq.tls.…")
        return cls(
            ";".join(addresses),
            values.flag("rocketmq.useTLS", bool(tls)),
            tuple(sorted(tls.items())),
            access or "",
            secret or "",
            values.text("rocketmq.securityToken") or "",
            values.duration_ms("rocketmq.requestTimeout", cls.request_timeout_ms),
            values.duration_ms("rocketmq.brokerWait", cls.broker_wait_ms),
        )


@dataclass(frozen=True)
class QueueSelection:
    """Which queues are read.

    Attributes:
        topics: named ones; empty if `pattern` says which.
        pattern: a regular expression that the whole name of a topic matches.
        queues: topic → broker → queue ids (assign); a broker "*" means each of the topic's.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    queues: Mapping[str, Mapping[str, tuple[int, ...]]] | None = None

    def names(self, topic: str) -> bool:
        """Return whether this is one of the selected topics."""
        return topic in self.topics if self.pattern is None else re.fullmatch(self.pattern, topic) is not None

    def takes(self, topic: str, broker: str, queue_id: int) -> bool:
        """Return whether this queue of a selected topic is one of those assigned."""
        if self.queues is None:
            return True
        brokers = self.queues.get(topic, {})
        return queue_id in brokers.get(broker, ()) or queue_id in brokers.get("*", ())


@dataclass(frozen=True)
class Position:
    """Where a read starts or ends.

    Attributes:
        kind: `earliest` or `latest`: the ends of each queue; `offsets`: what `table` says (EARLIEST and LATEST are
            allowed); `timestamp`: by store time, `timestamp` or by queue in `table`, ms since 1970; `group`: what the
            consumer group `group` has committed, else earliest.
        needs_match: of timestamps: a queue without a message of that time or later is an error, not its end.
        table: topic → broker → queue → number; a broker "*" means each of the topic's.
    """

    kind: str
    table: Mapping[str, Mapping[str, Mapping[int, int]]] | None = None
    timestamp: int | None = None
    group: str = ""
    needs_match: bool = False

    def of_queue(self, topic: str, broker: str, queue_id: int) -> int | None:
        """Return the offset of a queue in `table`; None if it has none."""
        if self.table is None:
            return None
        brokers = self.table.get(topic, {})
        return {**brokers.get("*", {}), **brokers.get(broker, {})}.get(queue_id)


@dataclass(frozen=True)
class ReadOptions:
    """All options of a read. Absent limits are None; times in ms, sizes in bytes."""

    connection: ConnectionOptions
    selection: QueueSelection
    starting: Position
    ending: Position
    columns: tuple[str, ...]
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    max_bytes_per_trigger: int | None = None
    group_id: str | None = None
    sub_expression: str = "*"
    sub_expression_type: str = "TAG"
    read_from: str = "auto"
    store_path: str | None = None
    fetch_bytes: int = _DEFAULT_FETCH_BYTES

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool) -> "ReadOptions":
        """Parse the options of a read.

        Args:
            streaming: for readStream; it starts at `latest` unless told otherwise, a batch at `earliest`, and it has
                no end.

        Raises:
            ConfigError: names option, value and what is allowed.
        """
        values = OptionValues(given, FORMAT)
        values.check_names(CONNECTION_OPTIONS + READ_OPTIONS, KAFKA_OPTIONS)
        _check_kind(values, streaming)
        expression, expression_type = _expression(values)
        options = cls(
            ConnectionOptions.parse(values),
            _selection(values),
            _starting(values, streaming),
            Position("latest") if streaming else _ending(values),
            _columns(values),
            values.flag("failOnDataLoss", True),
            values.number("minPartitions", low=1, high=100_000),
            values.number("maxRecordsPerPartition", low=1),
            values.number("maxOffsetsPerTrigger", low=1),
            values.number("minOffsetsPerTrigger", low=1),
            values.duration_ms("maxTriggerDelay", cls.max_trigger_delay_ms),
            values.size("maxBytesPerTrigger", low=1),
            values.text("groupId"),
            expression,
            expression_type,
            values.choice("readFrom", READ_FROM, "auto"),
            values.text("storePath"),
            values.size("fetchBytes", low=4096) or _DEFAULT_FETCH_BYTES,
        )
        _check_store_path(values, options)
        begin, end = options.starting.timestamp, options.ending.timestamp
        if begin is not None and end is not None and begin > end:
            raise values.contradiction(f"startingTimestamp {begin} is above endingTimestamp {end}: swap them")
        lowest, highest = options.min_offsets_per_trigger, options.max_offsets_per_trigger
        if lowest is not None and highest is not None and lowest > highest:
            raise values.contradiction(f"minOffsetsPerTrigger {lowest} is above maxOffsetsPerTrigger {highest}")
        if options.fetch_bytes > 64 << 20:
            raise values.wrong("fetchBytes", options.fetch_bytes, "at most 64m")
        return options


def columns_of(given: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns, which are all that the schema of a read needs. Raises ConfigError."""
    return _columns(OptionValues(given, FORMAT))


def _columns(values: OptionValues) -> tuple[str, ...]:
    columns = message_columns(values.text("columns"))
    more = values.flag("includeHeaders", False) and "headers" not in columns
    return (*columns, "headers") if more else columns


def _check_kind(values: OptionValues, streaming: bool) -> None:
    """Refuse the same combinations as Spark's Kafka source."""
    for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp") if streaming else ():
        if values.has(name):
            raise values.contradiction(f"option {name} is for a batch; a stream ends when its query is stopped")
    if streaming and values.has(PREDICATE):
        raise values.contradiction(f"option {PREDICATE} is for a batch; a stream is narrowed by subExpression")
    per_trigger = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxBytesPerTrigger")
    for name in () if streaming else per_trigger:
        if values.has(name):
            raise values.contradiction(f"option {name} is for a stream (readStream); a batch reads everything at once")


def _check_store_path(values: OptionValues, options: ReadOptions) -> None:
    """Check the store path: a folder, or JSON broker → folder. Reading files needs one, and cannot evaluate SQL92."""
    if options.read_from == "files":
        values.required("storePath", "the storePathRootDir of the broker whose files are to be read")
        if options.sub_expression_type == "SQL92":
            raise values.contradiction(
                "subExpressionType SQL92 is the broker's to evaluate: readFrom must not be files"
            )
    path = options.store_path
    if path is not None and path.startswith("{"):
        table = values.table("storePath") or {}
        if not all(isinstance(folder, str) for folder in table.values()):
            raise values.wrong("storePath", path, 'a folder, or JSON such as {"broker-a": "/folder"}')


def _expression(values: OptionValues) -> tuple[str, str]:
    text = values.text("subExpression")
    kind = values.choice("subExpressionType", ("TAG", "SQL92"), "TAG")
    if kind == "SQL92" and text is None:
        raise values.contradiction("subExpressionType SQL92 needs a subExpression")
    if kind == "TAG" and text is not None and text != "*" and not any(tag.strip() for tag in text.split("||")):
        raise values.wrong("subExpression", text, "tags with || between them, or *")
    return text or "*", kind


def _selection(values: OptionValues) -> QueueSelection:
    names = ("subscribe", "subscribePattern", "assign")
    given = [name for name in names if values.has(name)]
    if len(given) != 1:
        found = f"{' and '.join(given)} are there" if given else "none is there"
        raise values.contradiction(f"exactly one of the options {', '.join(names)} says what to read; {found}")
    if given == ["subscribe"]:
        text = values.required("subscribe", "topics, separated by commas")
        topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
        for topic in topics:
            if not _TOPIC.fullmatch(topic):
                raise values.wrong("subscribe", text, "topics of the characters %|a-zA-Z0-9_-, separated by commas")
        if not topics:
            raise values.wrong("subscribe", text, "topics, separated by commas")
        return QueueSelection(topics)
    if given == ["subscribePattern"]:
        text = values.required("subscribePattern", "a regular expression")
        try:
            re.compile(text)
        except re.error as error:
            raise values.wrong("subscribePattern", text, f"a regular expression ({error})") from None
        return QueueSelection(pattern=text)
    return _assigned(values)


def _assigned(values: OptionValues) -> QueueSelection:
    table = values.table("assign") or {}
    allowed = 'JSON topic → queue ids, or topic → broker → queue ids, such as {"T":{"broker-a":[0,1]}}'
    queues: dict[str, dict[str, tuple[int, ...]]] = {}
    for topic, value in table.items():
        brokers = value if isinstance(value, dict) else {"*": value}
        for broker, ids in brokers.items():
            if not isinstance(ids, list) or not ids or not all(type(item) is int and item >= 0 for item in ids):
                raise values.wrong("assign", values.text("assign"), allowed)
            queues.setdefault(topic, {})[broker] = tuple(sorted(set(ids)))
    if not queues:
        raise values.wrong("assign", values.text("assign"), allowed)
    return QueueSelection(tuple(queues), queues=queues)


def _starting(values: OptionValues, streaming: bool) -> Position:
    names = ("startingOffsetsByGroup", "startingOffsetsByTimestamp", "startingTimestamp", "startingOffsets")
    given = _at_most_one(values, names)
    if given == "startingOffsetsByGroup":
        return Position("group", group=values.required(given, "a consumer group"))
    if streaming:
        return _by_strategy(values, _position(values, given, Position("latest"), None))
    return _by_strategy(values, _position(values, given, Position("earliest"), LATEST))


def _ending(values: OptionValues) -> Position:
    names = ("endingOffsetsByTimestamp", "endingTimestamp", "endingOffsets")
    return _position(values, _at_most_one(values, names), Position("latest"), EARLIEST)


def _at_most_one(values: OptionValues, names: tuple[str, ...]) -> str | None:
    given = [name for name in names if values.has(name)]
    if len(given) > 1:
        raise values.contradiction(f"options {' and '.join(given)} say different things about the same end; give one")
    return given[0] if given else None


def _by_strategy(values: OptionValues, position: Position) -> Position:
    strategy = values.choice("startingOffsetsByTimestampStrategy", ("latest", "error"), "latest")
    return replace(position, needs_match=strategy == "error")


def _position(values: OptionValues, name: str | None, default: Position, refused: int | None) -> Position:
    """Parse a position. `refused` is the end of a queue (EARLIEST or LATEST) at which the read would be empty."""
    if name is None:
        return default
    if name.endswith("ByTimestamp"):
        return Position("timestamp", table=_by_queue(values, name, low=0))
    if name.endswith("Timestamp"):
        return Position("timestamp", timestamp=values.number(name, low=0))
    text = values.required(name, "a position")
    words = {"earliest": EARLIEST, "latest": LATEST}
    if text.lower() in words:
        found, position = {words[text.lower()]}, Position(text.lower())
    else:
        table = _by_queue(values, name, low=EARLIEST)
        found = {offset for brokers in table.values() for ids in brokers.values() for offset in ids.values()}
        position = Position("offsets", table=table)
    if refused in found:
        word = next(word for word, offset in words.items() if offset == refused)
        raise values.wrong(name, text, f"something else than {word} ({refused}), which leaves a batch nothing to read")
    return position


def _by_queue(values: OptionValues, name: str, *, low: int) -> dict[str, dict[str, dict[int, int]]]:
    allowed = f'earliest, latest, or JSON topic → broker → queue → offset (≥ {low}): {{"T":{{"broker-a":{{"0":7}}}}}}'
    if name.endswith("ByTimestamp"):
        allowed = 'JSON topic → broker → queue → ms since 1970, as {"T":{"broker-a":{"0":1700000000000}}}'
    text = values.text(name)
    try:
        return offsets_table(values.table(name) or {}, low=low)
    except ConfigError:
        raise values.wrong(name, text, allowed) from None


def offsets_table(table: Mapping[str, Any], *, low: int = 0) -> dict[str, dict[str, dict[int, int]]]:
    """Check the form topic → broker → queue → number. A topic may give queues directly, for each of its brokers ("*").
    INCARNATION and FIRST among the queues, as a stream's offsets have them, are ignored.

    Raises:
        ConfigError: it is something else, or a number is below `low`.
    """
    found: dict[str, dict[str, dict[int, int]]] = {}
    for topic, brokers in table.items():
        if not isinstance(brokers, Mapping):
            raise ConfigError(f"topic {topic} has {brokers!r:.80}, not broker → queue → number")
        if brokers and all(not isinstance(queues, Mapping) for queues in brokers.values()):
            brokers = {"*": brokers}
        for broker, queues in brokers.items():
            if not isinstance(queues, Mapping):
                raise ConfigError(f"broker {broker} of topic {topic} has {queues!r:.80}, not queue → number")
            for queue_id, number in queues.items():
                if queue_id == INCARNATION or str(queue_id).startswith(FIRST):
                    continue
                if not str(queue_id).isdigit() or type(number) is not int or number < low:
                    raise ConfigError(f"queue {queue_id} of {topic} on {broker} has {number!r:.80}, not one ≥ {low}")
                found.setdefault(topic, {}).setdefault(broker, {})[int(queue_id)] = number
    return found
