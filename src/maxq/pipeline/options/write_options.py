"""The options of `format("rocketmq")` when it writes. Names are compared without regard to case."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from maxq.pipeline.options.option_values import OptionValues
from maxq.pipeline.options.read_options import CONNECTION_OPTIONS, FORMAT, KAFKA_OPTIONS, ConnectionOptions
from maxq.protocol.message import message_const as const

WRITE_OPTIONS: Final = (
    "topic", "delivery", "applicationId", "batchId", "coordinator", "producerGroup", "batchBytes", "requestsInFlight",
    "keepProperties", "rowsPerSecond",
)  # fmt: skip
#: Options of Spark's Kafka sink that have another name here or do not exist → what to do.
_KAFKA_OPTIONS: Final = {
    "kafka.bootstrap.servers": KAFKA_OPTIONS["kafka.bootstrap.servers"],
    "includeHeaders": "the column headers is written wherever it is there",
}
#: Spark's own options, which it passes to every sink.
_SPARKS: Final = ("checkpointLocation", "queryName", "path")
AT_LEAST_ONCE: Final = "at-least-once"
EXACTLY_ONCE: Final = "exactly-once"

#: Properties that the sink writes itself.
_OWN_PROPERTIES: Final = (const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, const.PROPERTY_WAIT_STORE_MSG_OK)
_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")


@dataclass(frozen=True)
class WriteOptions:
    """All options of a write.

    Attributes:
        topic: of rows without one of their own.
        delivery: at-least-once, or exactly-once, which needs MaxQ brokers.
        application_id: of exactly-once: names the writer across restarts. None: the id of the streaming query, or an
            id of its own for each batch job.
        batch_id: of exactly-once, in a batch job: which of the application's batches it writes.
        coordinator: of exactly-once: the broker (its name) that keeps the decisions of this application. None: it is
            found by asking all.
        batch_bytes: of one request, about.
        requests_in_flight: at each broker.
        rows_per_second: of each task, at most; None: as fast as it goes.
        keep_properties: names that RocketMQ reserves, which the column properties may still set.
    """

    connection: ConnectionOptions
    topic: str | None = None
    delivery: str = AT_LEAST_ONCE
    application_id: str | None = None
    batch_id: int = 0
    coordinator: str | None = None
    producer_group: str = "maxq-pipeline"
    batch_bytes: int = 512 << 10
    requests_in_flight: int = 4
    keep_properties: tuple[str, ...] = ()
    rows_per_second: float | None = None

    @property
    def exactly_once(self) -> bool:
        return self.delivery == EXACTLY_ONCE

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool = False) -> "WriteOptions":
        """Parse the options of a write or writeStream.

        Raises:
            ConfigError: names option, value and what is allowed.
        """
        values = OptionValues(given, FORMAT)
        values.check_names(CONNECTION_OPTIONS + WRITE_OPTIONS + _SPARKS, _KAFKA_OPTIONS)
        topic = values.text("topic")
        if topic is not None and not _NAME.fullmatch(topic):
            raise values.wrong("topic", topic, "one topic of the characters %|a-zA-Z0-9_-")
        options = cls(
            ConnectionOptions.parse(values),
            topic,
            values.choice("delivery", (AT_LEAST_ONCE, EXACTLY_ONCE), AT_LEAST_ONCE),
            values.text("applicationId"),
            values.number("batchId", low=0) or 0,
            values.text("coordinator"),
            values.text("producerGroup") or cls.producer_group,
            values.size("batchBytes", low=1024) or cls.batch_bytes,
            values.number("requestsInFlight", low=1, high=64) or cls.requests_in_flight,
            _kept(values),
            _rate(values),
        )
        if options.batch_bytes > 4 << 20:
            raise values.wrong("batchBytes", options.batch_bytes, "at most 4m, the brokers' maxMessageSize")
        for name in ("applicationId", "coordinator"):
            if values.has(name) and not options.exactly_once:
                raise values.contradiction(f"option {name} means nothing without delivery={EXACTLY_ONCE}")
        if values.has("batchId") and streaming:
            raise values.contradiction("option batchId is for df.write; Spark numbers the batches of a stream itself")
        if values.has("batchId") and options.application_id is None:
            raise values.contradiction("option batchId means nothing without applicationId, whose batches it numbers")
        if options.application_id is not None and len(options.application_id) > 200:
            raise values.wrong("applicationId", options.application_id, "at most 200 characters long")
        return options


def _rate(values: OptionValues) -> float | None:
    text = values.text("rowsPerSecond")
    if text is None:
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < math.inf:
        raise values.wrong("rowsPerSecond", text, "a number above 0, of each task")
    return rate


def _kept(values: OptionValues) -> tuple[str, ...]:
    text = values.text("keepProperties")
    names = tuple(name.strip() for name in (text or "").split(",") if name.strip())
    if any(name not in const.RESERVED_PROPERTIES or name in _OWN_PROPERTIES for name in names):
        raise values.wrong(
            "keepProperties", text, f"names that RocketMQ reserves, but for {', '.join(_OWN_PROPERTIES)}"
        )
    return names
